"""The detector's commands as a person types them, and tables of three buildings to try them on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import typer
from typer.testing import CliRunner

from tolfl.cli.data_commands import app as data_app
from tolfl.cli.detector_commands import evaluate, export, fit, inspect, score
from tolfl.core.errors import DataError, SpecError, TolFLError
from tolfl.detect import Detector, DetectorSpec, fit_detector
from tolfl.detect.features import Features

BUILDINGS = ("north", "south", "west")
COLUMNS = ("temp [C]", "humidity [%]", "co2 [ppm]", "fan", "power [kW]")


@dataclass(frozen=True)
class Done:
    """What a command left: its exit code as the whole program has it, and what it wrote."""

    code: int
    out: str
    err: str


Run: TypeAlias = Callable[..., Done]

app = typer.Typer()
for command in (fit, score, evaluate, inspect, export):
    app.command()(command)
app.add_typer(data_app, name="data")


def run(*arguments: object, stdin: str | bytes | None = None) -> Done:
    """Run a command; an error becomes its sentence and its exit code, as in `tolfl.cli.main`."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    if isinstance(done.exception, TolFLError):
        code = 2 if isinstance(done.exception, SpecError | DataError) else 1
        return Done(code, done.stdout, f"{done.stderr}{done.exception}\n")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, done.stdout, done.stderr)


def readings(n_rows: int, seed: int = 0) -> np.ndarray:
    """Return readings of one building: humidity follows temperature, the fan CO2, power the fan."""
    rng = np.random.default_rng(seed)
    temp = 20 + 2 * np.sin(np.arange(n_rows) / 50) + 0.3 * rng.normal(size=n_rows)
    humidity = 55 - 1.5 * (temp - 20) + 0.5 * rng.normal(size=n_rows)
    co2 = 600 + 30 * rng.normal(size=n_rows)
    fan = 0.3 + 0.005 * (co2 - 600) + 0.01 * rng.normal(size=n_rows)
    power = 2 + 3 * fan + 0.05 * rng.normal(size=n_rows)
    return np.column_stack([temp, humidity, co2, fan, power])


def lines_of_buildings(n_rows: int = 200, is_labelled: bool = False, seed: int = 0) -> list[str]:
    """Return CSV with a row per minute and building; labelled, the motor of the south fails in rows 100 to 119."""
    header = ["time", "building", *COLUMNS, *["state"] * is_labelled]
    lines = [",".join(header)]
    values = {name: readings(n_rows, seed + place) for place, name in enumerate(BUILDINGS)}
    for row in range(n_rows):
        when = f"2026-01-01 {row // 60:02d}:{row % 60:02d}:00"
        for name in BUILDINGS:
            is_broken = is_labelled and name == "south" and 100 <= row < 120
            own = values[name][row] + ([0, 0, 0, 0, 3.0] if is_broken else 0)
            label = [("motor" if is_broken else "normal")] * is_labelled
            lines.append(",".join([when, name, *(f"{value:.4f}" for value in own), *label]))
    return lines


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def small_detector(n_rows: int = 300, **settings: object) -> Detector:
    """Return a PCA that the three buildings trained."""
    slices = {name: readings(n_rows, place) for place, name in enumerate(BUILDINGS)}
    spec = DetectorSpec(**{"model": "pca", **settings})  # type: ignore[arg-type]
    return fit_detector(slices, spec, Features.named(COLUMNS))
