"""A run read from its folder: specification, records, summary and repetitions; without a run, an error says why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.errors import RunDirectoryError
from tolfl.core.records import AnyRecord, RoundClosed, RunStarted
from tolfl.core.spec import RunSpec
from tolfl.runs.run_reader import RECORDS, RunReader, device_files


@dataclass(frozen=True)
class RunFolder:
    """A run read from its folder, as far as it has come; or all repetitions of one."""

    name: str
    spec: RunSpec
    records: Sequence[AnyRecord] = ()
    summary: Mapping[str, Any] | None = None  #: None: it is not finished, or was not scored
    is_real: bool = False  #: by processes and by the clock; otherwise simulated, in virtual time
    repetitions: Sequence[RunFolder] = ()
    has_spec: bool = True  #: otherwise `spec` is inferred from the records
    is_over: bool = False
    n_unreadable: int = 0
    clock: str = ""  #: whose clock the times are by, where devices have one each

    @property
    def runs(self) -> Sequence[RunFolder]:
        """Itself, or its repetitions."""
        return self.repetitions or [self]

    @property
    def started(self) -> RunStarted | None:
        """The first line; None where no device has begun."""
        return next((line for line in self.records if isinstance(line, RunStarted)), None)

    @property
    def rounds_done(self) -> int:
        """How many rounds were closed."""
        return rounds_done(self.records)

    @property
    def stages(self) -> tuple[tuple[str, int], ...]:
        """Name and number of rounds of each stage; none, where it has none or does not tell."""
        return () if self.started is None else self.started.stages

    @property
    def rounds(self) -> int:
        """How many rounds it is to have; 0: that is not known."""
        return sum(n_rounds for _, n_rounds in self.stages) or (self.spec.rounds if self.has_spec else 0)

    @property
    def auroc(self) -> float | None:
        """The final AUROC of its model, where the run has ended and has a test set."""
        return None if self.summary is None else self.summary.get("auroc")


def rounds_done(records: Iterable[AnyRecord]) -> int:
    """Return how many rounds were closed."""
    return max((1 + (line.round or 0) for line in records if isinstance(line, RoundClosed)), default=0)


def read_run(folder: Path) -> RunFolder:
    """Read a run directory, the one above repetitions, the state folder of a device, or several of them together."""
    check_run(folder)
    if not (folder / "spec.toml").is_file():
        return _read_one(folder)
    spec = RunSpec.from_file(folder / "spec.toml")
    if spec.repetitions == 1:
        return _read_one(folder, spec)
    folders = [folder / f"repetition-{index}" for index in range(spec.repetitions)]
    begun = [one for one in folders if (one / "spec.toml").is_file()]
    if not begun:
        raise RunDirectoryError(folder, f"is to hold {spec.repetitions} repetitions, but none of them has begun")
    repetitions = [_read_one(one, RunSpec.from_file(one / "spec.toml")) for one in begun]
    return RunFolder(folder.resolve().name, spec, repetitions=repetitions, is_real=repetitions[0].is_real)


def check_run(folder: Path) -> None:
    """Return in one sentence why there is nothing to read in a folder."""
    if not folder.is_dir():
        what = "is a file; name the folder that it is in" if folder.exists() else "does not exist; see runs/"
        raise RunDirectoryError(folder, what)
    if (folder / "spec.toml").is_file() or (folder / RECORDS).is_file() or device_files(folder)[0]:
        return
    inside = sorted(path.parent.name for path in folder.glob("*/spec.toml"))
    if inside:
        more = ", ..." if len(inside) > 5 else ""
        raise RunDirectoryError(folder, f"holds several runs; name one of them: {', '.join(inside[:5])}{more}")
    hint = "name a folder that tolfl simulate or tolfl up has written, or the state folder of a device"
    raise RunDirectoryError(folder, f"holds no run (no spec.toml and no {RECORDS}); {hint}")


def _read_one(folder: Path, spec: RunSpec | None = None) -> RunFolder:
    """Read one run; without a specification it is of devices on machines of their own, whose records tell of it."""
    reader = RunReader(folder)
    reader.read()
    summary = read_summary(folder)
    return RunFolder(
        folder.resolve().name,
        spec_of_records(reader.records) if spec is None else spec,
        reader.records,
        summary,
        is_real=spec is None or (folder / "devices").is_dir() or reader.is_of_devices,
        has_spec=spec is not None,
        is_over=reader.is_over or summary is not None,
        n_unreadable=reader.n_unreadable,
        clock=reader.clock,
    )


def spec_of_records(records: Sequence[AnyRecord]) -> RunSpec:
    """Return the specification as far as the records have it: scheme, data, seed and layout."""
    started = next((line for line in records if isinstance(line, RunStarted)), None)
    if started is None:
        return RunSpec()
    n_rounds = sum(n for _, n in started.stages)
    return RunSpec(
        scheme=started.scheme,
        data=started.data,
        devices=sum(map(len, started.clusters)) or 1,
        clusters=len(started.clusters) or 1,
        topology="|".join(",".join(map(str, cluster)) for cluster in started.clusters),
        rounds=n_rounds or max(1, rounds_done(records)),
        seed=started.seed,
        liars=started.liars,
        learn={"what": started.learn} if started.learn else {},
    )


def read_summary(folder: Path) -> Mapping[str, Any] | None:
    """Return the content of `summary.json`; None where the run is not finished."""
    path = folder / "summary.json"
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise RunDirectoryError(folder, f"its summary.json cannot be read ({error})") from None


def readers_of(path: Path, is_following: bool) -> list[RunReader]:
    """Return the reader of a run, or one for each of its repetitions.

    With `is_following`, the first line need not be written yet.
    """
    repetitions = sorted(path.glob("repetition-*"), key=lambda folder: (len(folder.name), folder.name))
    if repetitions:
        return [RunReader(folder, f"{path.resolve().name}/{folder.name}") for folder in repetitions]
    if not path.exists():
        raise RunDirectoryError(path, "does not exist; name a folder that tolfl simulate or tolfl up wrote")
    has_lines = bool(RunReader(path).read() if path.is_file() else (path / RECORDS).is_file() or device_files(path)[0])
    if not has_lines and not is_following:
        if any(path.glob("*/spec.toml")):
            check_run(path)
        raise RunDirectoryError(path, "has no records; wait for its first round with --follow")
    return [RunReader(path)]
