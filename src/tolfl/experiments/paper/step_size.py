"""Which step size: chosen on held-back typical samples, never on the test set.

Clean FL with three seeds that no table uses, for step sizes a factor of two apart, the smallest first. A step is too
large if a loss is not finite, or a tenth worse than that of a smaller step. Of those whose double is not too large, the
one with the least validation loss is taken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tolfl.core.errors import DivergedError, RunDirectoryError
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.experiments.paper.studies import Study, with_place
from tolfl.experiments.report import ExperimentReport, Row, Table
from tolfl.experiments.steps import Step
from tolfl.experiments.sweep import spec_hash
from tolfl.runs.directory import write_file
from tolfl.sim.simulation import Runs

#: Seeds of the tables start at 0.
_FIRST_SEED = 1000
_N_SEEDS = 3
#: Tried in this order, times 0.001, until one diverges or is so many times worse than the best.
_MUCH_WORSE = 1.1
_FACTORS = (0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)
_NOTE = "Clean FL, mean over three seeds. Chosen: the least loss among steps whose double is not too large."


class StepSizes:
    """The choice at work, one data set after the other. Iterate to make it go on."""

    def __init__(
        self, studies: Sequence[Study], quick: bool = False, data_dir: str = "", store: Path | None = None
    ) -> None:
        self._studies, self._quick, self._data_dir, self._store = studies, quick, data_dir, store
        self.rows: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Step]:
        """Try step after step."""
        total = len(self._studies) * len(_FACTORS)
        for place, study in enumerate(self._studies):
            best = math.inf
            for tried, factor in enumerate(_FACTORS):
                lr = 0.001 * factor
                yield Step(f"{study.data}, step {lr:g}", place * len(_FACTORS) + tried, total)
                row = self._known_or_tried(study, lr)
                row["too_large"] = row["loss"] is None or row["loss"] > _MUCH_WORSE * best
                self.rows.append(row)
                if row["too_large"]:
                    break
                best = min(best, row["loss"])

    def _known_or_tried(self, study: Study, lr: float) -> dict[str, Any]:
        """Return what a step size gives, from an earlier attempt if there was one."""
        spec = study.spec(self._quick, scheme="fl", seed=_FIRST_SEED, repetitions=_N_SEEDS, splits=_N_SEEDS)
        spec = with_place(RunSpec.from_fields(_with_lr(spec, lr)), self._data_dir)
        if self._store is None:
            return _tried(spec)
        path = self._store / f"{study.data}-step-{spec_hash(spec)}.json"
        if not path.is_file():
            write_file(path.parent, path.name, msgspec.json.encode(_tried(spec)) + b"\n")
        try:
            known: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise RunDirectoryError(path, f"cannot be read ({error}); delete it to compute it again") from None
        return known

    @property
    def computing_s(self) -> float:
        """How long the tries took, whenever they were made."""
        return sum(float(row["seconds"]) for row in self.rows)

    def save_checkpoints(self) -> None:
        """Keep nothing more: each try is kept when it is done."""

    def reports(self) -> list[ExperimentReport]:
        """Return the choice for each data set, with all that was tried."""
        return [report_of(self.rows)]


def _tried(spec: RunSpec) -> dict[str, Any]:
    """Return the validation losses of a specification's runs, none if they diverge, and how long they took."""
    started = time.perf_counter()
    losses = _validation_losses(spec)
    mean = float(np.mean(losses)) if losses else None
    seconds = round(time.perf_counter() - started, 1)
    return {"data": spec.data, "lr": spec.train.lr, "losses": losses, "loss": mean, "seconds": seconds}


def _validation_losses(spec: RunSpec) -> list[float]:
    runs = Runs(spec)
    try:
        for _ in runs:
            pass
    except DivergedError:
        return []
    losses = [_validation_loss(result.models["global"].anomaly_score, result.data) for result in runs.results]
    return losses if all(map(math.isfinite, losses)) else []


def _with_lr(spec: RunSpec, lr: float) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(spec)
    fields["train"]["lr"] = lr
    return fields


def _validation_loss(score: Any, data: FederatedDataset) -> float:
    samples = data.pool if data.validation is None else data.validation
    return float(np.mean(score(samples), dtype=np.float64))


def choose(rows: Sequence[Row]) -> float | None:
    """Return the best step of one data set whose double is not too large; None if there is none.

    >>> tried = [(0.1, 5.0, False), (0.2, 4.0, False), (0.4, 3.0, False), (0.8, None, True)]
    >>> choose([{"lr": lr, "loss": loss, "too_large": too_large} for lr, loss, too_large in tried])
    0.2
    """
    too_large = [row["lr"] for row in rows if row["too_large"]]
    safe = [row for row in rows if not row["too_large"] and all(2.001 * row["lr"] < lr for lr in too_large)]
    return min(safe, key=lambda row: row["loss"])["lr"] if safe else None


def report_of(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of stored rows."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    tables = []
    for name in names:
        own = [row for row in rows if row["data"] == name]
        chosen = choose(own)
        cells = tuple(
            (
                f"{row['lr']:g}",
                "diverges" if row["loss"] is None else f"{row['loss']:.4g}",
                " to ".join(f"{loss:.4g}" for loss in (min(row["losses"]), max(row["losses"])))
                if row["losses"]
                else "-",
                "chosen" if row["lr"] == chosen else "too large" if row["too_large"] else "",
            )
            for row in own
        )
        notes = (_NOTE,)
        tables.append(Table(f"{name}: step size", ("step", "validation loss", "of three seeds", ""), cells, notes))
    return ExperimentReport("step-size", "Step sizes, chosen on held-back typical samples", list(rows), tables)
