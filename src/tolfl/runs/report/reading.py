"""What a report is about: one run or its repetitions, finished or not, simulated or real, as its folder has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.errors import RunDirectoryError
from tolfl.core.records import AnyRecord, RoundClosed, RunStarted
from tolfl.core.spec import RunSpec
from tolfl.runs.records import RECORDS, lines_of_devices, one_story, whole_lines


@dataclass(frozen=True)
class ReportedRun:
    """One run, as far as it has come."""

    spec: RunSpec
    records: Sequence[AnyRecord]
    summary: Mapping[str, Any] | None  #: None: it is not finished
    is_real: bool = False  #: by processes and by the clock; otherwise simulated, in virtual time

    @property
    def rounds_done(self) -> int:
        """How many rounds were closed."""
        return max((1 + (line.round or 0) for line in self.records if isinstance(line, RoundClosed)), default=0)

    @property
    def stages(self) -> tuple[tuple[str, int], ...]:
        """Name and number of rounds of each stage; none, where it has none or does not tell."""
        return next((line.stages for line in self.records if isinstance(line, RunStarted)), ())

    @property
    def rounds(self) -> int:
        """How many rounds it is to have."""
        return sum(n_rounds for _, n_rounds in self.stages) or self.spec.rounds

    @property
    def auroc(self) -> float | None:
        """What its model is worth in the end, where there is an end and a test set."""
        return None if self.summary is None else self.summary.get("auroc")


@dataclass(frozen=True)
class Reported:
    """A run, or all repetitions of one."""

    name: str
    spec: RunSpec
    runs: Sequence[ReportedRun]

    @property
    def is_finished(self) -> bool:
        """Whether every repetition has come to its end."""
        return all(run.summary is not None for run in self.runs)


def read_reported(folder: Path) -> Reported:
    """Read a run directory, or the one above repetitions."""
    if not folder.is_dir():
        what = "is a file; name the folder that it is in" if folder.exists() else "does not exist; see runs/"
        raise RunDirectoryError(folder, what)
    if not (folder / "spec.toml").is_file():
        raise RunDirectoryError(folder, _no_run(folder))
    spec = RunSpec.from_file(folder / "spec.toml")
    name = folder.resolve().name
    if spec.repetitions == 1:
        return Reported(name, spec, [_read_run(folder, spec)])
    folders = [folder / f"repetition-{index}" for index in range(spec.repetitions)]
    begun = [one for one in folders if (one / "spec.toml").is_file()]
    if not begun:
        raise RunDirectoryError(folder, f"is to hold {spec.repetitions} repetitions, but none of them has begun")
    return Reported(name, spec, [_read_run(one, RunSpec.from_file(one / "spec.toml")) for one in begun])


def _no_run(folder: Path) -> str:
    inside = sorted(path.parent.name for path in folder.glob("*/spec.toml"))
    if inside:
        more = ", ..." if len(inside) > 5 else ""
        return f"holds several runs; name one of them: {', '.join(inside[:5])}{more}"
    return "holds no run (no spec.toml); name a folder that tolfl simulate or tolfl up has written"


def _read_run(folder: Path, spec: RunSpec) -> ReportedRun:
    summary = _read_summary(folder)
    is_real = (folder / "devices").is_dir()
    records = whole_lines(folder / RECORDS)
    if is_real and summary is None:
        # What the devices wrote is brought together when the run ends; until then it is with them.
        records = one_story(lines_of_devices(folder))
    return ReportedRun(spec, records, summary, is_real)


def _read_summary(folder: Path) -> Mapping[str, Any] | None:
    path = folder / "summary.json"
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise RunDirectoryError(folder, f"its summary.json cannot be read ({error})") from None
