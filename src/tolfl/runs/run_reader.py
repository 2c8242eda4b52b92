"""Records of a run from its folder, simulated or real, finished or growing: each fact once, in order of time.

A simulation writes one file. Real devices write one each; their launcher writes another one, and when they have ended a
file with all messages counted. A device on a machine of its own keeps its file in its state folder, by its own clock;
the folders of several such devices may be copied together. `RunReader` reads all of these.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.records import (
    AlarmSent,
    AnyRecord,
    Evaluated,
    FailureHappened,
    Joined,
    RosterChanged,
    RoundAdopted,
    RoundClosed,
    RunEnded,
    RunStarted,
    Scored,
    TakenOver,
    decode_records,
)
from tolfl.core.spec import RunSpec

#: Of a run, or of one device; and what only the launcher of real devices saw.
RECORDS, LAUNCHER = "records.jsonl", "launcher.jsonl"
#: What several devices say of one failure is one record.
_SAME_FAILURE_S = 10.0


class RunReader:
    r"""Reads the records of one run, also while it grows; a piece of a line waits for its end.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> line = b'{"kind":"evaluation","time_s":1.5,"round":3,"auroc":0.75}'
    >>> _ = (folder / "records.jsonl").write_bytes(line + b"\n" + b'{"kind":"eval')
    >>> [record.auroc for record in RunReader(folder).read()]
    [0.75]
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path, self.name = path, name or path.resolve().name
        self.n_starts = 0  #: how often the records were read from their beginning
        self._start_over()

    def _start_over(self) -> None:
        self.n_starts += 1
        self.news: list[AnyRecord] = []  #: every record in the order in which it became known
        self._files: dict[Path, _RecordFile] = {}
        self._facts = _Facts()
        self.is_over = False  #: whether nothing more will come
        self.clock = ""  #: whose clock the times are by, where devices have one each

    @property
    def n_unreadable(self) -> int:
        """How many lines are no records that this version knows."""
        return sum(file.n_unreadable for file in self._files.values())

    @property
    def records(self) -> list[AnyRecord]:
        """The records so far in order of time; a round stands there once, with its messages if they were counted."""
        latest = {line.version: line for line in self.news if isinstance(line, RoundClosed)}
        once = [line for line in self.news if not isinstance(line, RoundClosed) or latest[line.version] is line]
        return sorted(once, key=lambda line: line.time_s)

    def read(self) -> list[AnyRecord]:
        """Return the records that are new since the last call; all of them, where the run began anew."""
        if any(file.is_another for file in self._files.values()):
            self._start_over()
        n_before = len(self.news)
        devices, has_one_clock = _device_files(self.path)
        whole = self.path / RECORDS if self.path.is_dir() else self.path
        fresh = self._new(devices or [whole])
        if any(isinstance(line, RunStarted) for line in fresh):
            _check_one_run(self.path, self._files.values())
        if devices and has_one_clock:
            fresh += self._new([self.path / LAUNCHER])
            self.clock = "times from the start of the processes"
            self._add(sorted(_without_known_adoptions(fresh), key=lambda line: line.time_s))
            self._add(line for line in self._new([whole]) if isinstance(line, RoundClosed | RunEnded | Scored))
        elif devices or any((begun := _begun(file)) and begun.device is not None for file in self._files.values()):
            n_before = self._merge([self._files[path] for path in devices or [whole]])
        else:
            self._add(fresh)
        self.is_over = self.is_over or any(isinstance(line, Scored) for line in self.news[n_before:])
        bad = next((file for file in self._files.values() if file.problem), None)
        if bad is not None and not any(file.lines for file in self._files.values()):  # else bad lines are counted
            raise RunDirectoryError(self.path, f"{bad.path.name} has no record that can be read ({bad.problem})")
        return self.news[n_before:]

    def _new(self, paths: Sequence[Path]) -> list[AnyRecord]:
        return [line for path in paths for line in self._files.setdefault(path, _RecordFile(path)).read()]

    def _add(self, lines: Iterable[AnyRecord]) -> None:
        self.news += filter(None, map(self._facts.take, lines))

    def _merge(self, files: Sequence[_RecordFile]) -> int:
        """Bring files by different clocks together; return how many records are as they were known before."""
        files = _one_per_device(self.path, files)
        lines, self.clock = _on_one_clock(files)
        before, self.news = self.news, merged_records(lines)
        endings = [line for file in files if (line := _last_of_run(file.lines))]
        self.is_over = bool(endings) and all(isinstance(line, RunEnded) for line in endings)
        if self.is_over:
            last = [line for line in lines if isinstance(line, RunEnded)][-1]
            self.news.append(msgspec.structs.replace(last, device=None))
        if self.news[: len(before)] == before:
            return len(before)
        self.n_starts += 1
        return 0


def _last_of_run(lines: Sequence[AnyRecord]) -> AnyRecord | None:
    """Return the last line that is about the run: a device goes on to watch, and to tell of alarms, after it."""
    return next((line for line in reversed(lines) if not isinstance(line, AlarmSent)), None)


class _RecordFile:
    """One file of records, and how far it has been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[AnyRecord] = []
        self.n_unreadable = 0
        self.problem = ""  #: of the first line that could not be read
        self._n_bytes = self._inode = 0

    def read(self) -> list[AnyRecord]:
        """Return the new records; a line without its end waits for it."""
        try:
            with self.path.open("rb") as file:
                self._inode = os.fstat(file.fileno()).st_ino
                file.seek(self._n_bytes)
                content = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunDirectoryError(self.path, f"cannot be read ({error.strerror})") from None
        whole = content[: content.rfind(b"\n") + 1]
        self._n_bytes += len(whole)
        fresh = list(self._decoded(whole.splitlines()))
        self.lines += fresh
        return fresh

    def _decoded(self, lines: Iterable[bytes]) -> Iterator[AnyRecord]:
        for line in lines:
            try:
                yield from decode_records([line])
            except TolFLError as error:
                self.n_unreadable += 1  # whoever shows the run says how many; one bad line must not hide the others
                self.problem = self.problem or str(error).partition(": ")[2]

    @property
    def is_another(self) -> bool:
        """Whether the file was written anew, as a run that is resumed does, or replaced."""
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return self._n_bytes > 0
        return self._n_bytes > 0 and (now.st_size < self._n_bytes or now.st_ino != self._inode)


# -- which files, on which clock --------------------------------------------------------------------------------


def _device_files(path: Path) -> tuple[list[Path], bool]:
    """Return the files of several devices, and whether their launcher gave them one clock; none: a run in one file."""
    if not path.is_dir():
        return [], True
    launched = sorted(path.glob(f"devices/*/{RECORDS}"))
    if launched:
        return launched, (path / LAUNCHER).exists() or (path / "spec.toml").exists()
    if (path / RECORDS).exists() or (path / "spec.toml").exists():
        return [], True
    copied = sorted(path.glob(f"*/{RECORDS}"))
    begun = [line for line in map(_first_line, copied) if line is not None]
    if not begun or any(line.device is None for line in begun):
        return [], True  # no run, or several, each in a folder of its own
    return copied, False  # what is no record in any of them is counted


def _first_line(file: Path) -> RunStarted | None:
    """Return how a file begins: a device says in its first line who it is; None: it has not begun."""
    try:
        with file.open("rb") as content:
            first = next(decode_records([content.readline()]), None)
    except (OSError, TolFLError):
        return None
    return first if isinstance(first, RunStarted) else None


def _one_per_device(folder: Path, files: Sequence[_RecordFile]) -> list[_RecordFile]:
    """Return one file per device: of two copies of one file the longer one; two that differ are two runs."""
    found: dict[int | None, _RecordFile] = {}
    for file in files:
        devices = dict.fromkeys(line.device for line in file.lines if isinstance(line, RunStarted))
        if len(devices) > 1:
            which = " and ".join(map(str, devices))
            raise RunDirectoryError(file.path, f"has records of devices {which}; keep each in a folder of its own")
        device = next(iter(devices), None)
        other = found.get(device)
        if other is None or device is None:
            found[device if device is not None else -1 - len(found)] = file
            continue
        n_common = min(len(file.lines), len(other.lines))
        if file.lines[:n_common] != other.lines[:n_common]:
            names = " and ".join(str(one.path.relative_to(folder)) for one in (other, file))
            raise RunDirectoryError(folder, f"holds two different runs of device {device} ({names}); keep one of them")
        found[device] = max(file, other, key=lambda one: len(one.lines))
    return list(found.values())


def _begun(file: _RecordFile) -> RunStarted | None:
    return next((line for line in file.lines if isinstance(line, RunStarted)), None)


def _check_one_run(folder: Path, files: Iterable[_RecordFile]) -> None:
    """Refuse files of two runs, also of one specification: these differ in which processes were connected.

    Files that know one process in common are of one run, and so are those between which others make a chain. Two that
    are not, and know one incarnation of a device as different processes, are of two runs.
    """
    runs: list[_KnownProcesses] = []
    for file in files:
        begun = _begun(file)
        if begun is None:
            continue
        processes = {one for line in file.lines if isinstance(line, RunStarted) for one in line.processes}
        run = _KnownProcesses(_place(folder, file.path), begun, processes)
        for other in runs:
            if _identity(other.begun) != _identity(begun):
                raise TwoRunsError(f"{other.place}: {_what_of(other.begun)}", f"{run.place}: {_what_of(begun)}")
        for other in [other for other in runs if other.numbers & run.numbers]:
            runs.remove(other)
            run = _KnownProcesses(other.place, other.begun, other.processes | run.processes)
        runs.append(run)
    for one, other in combinations(runs, 2):
        if both := {process[:2] for process in one.processes} & {process[:2] for process in other.processes}:
            why = f": device {min(both)[0]} was not the same process"
            raise TwoRunsError(one.place, other.place, why)


@dataclass(frozen=True)
class _KnownProcesses:
    """The processes that one file knows, or several of one run together."""

    place: str  #: of the first file
    begun: RunStarted
    processes: set[tuple[int, int, int]]  #: device, incarnation, and the number that the process has drawn

    @property
    def numbers(self) -> set[int]:
        return {number for _, _, number in self.processes}


def _place(folder: Path, file: Path) -> str:
    return str(file.parent.relative_to(folder)) if file != folder else file.name


def _on_one_clock(files: Sequence[_RecordFile]) -> tuple[list[AnyRecord], str]:
    """Return the lines of all files by one clock, in order, and whose clock it is; 0 is when the first device began.

    A device counts seconds from its own start, and its clock may be wrong, another time after each start: the rounds
    that two files have in common say by how much they differ. Without any, the time of the day does.
    """
    timed = [_by_incarnation(file.lines) for file in files]
    reference = max(timed, key=lambda parts: max(len(_moments(part)) for part in parts), default=[])
    moments = _moments(chain(*reference))
    merged: list[AnyRecord] = []
    for parts in timed:
        both = [one for one in (_unix_s(reference), _unix_s(parts)) if one is not None]
        of_day_s = both[1] - both[0] if len(both) == 2 else 0.0
        of_all_s = _behind_s(chain(*parts), moments, of_day_s)
        for part in parts:
            merged += _shifted(part, _behind_s(part, moments, of_all_s))
    merged.sort(key=lambda line: line.time_s)
    begun = next((line for line in chain(*reference) if isinstance(line, RunStarted)), None)
    if begun is None:
        return merged, ""
    first_s = next(line.time_s for line in merged if isinstance(line, RunStarted))
    at = "" if begun.unix_s is None else f", from {_time_of_day(begun.unix_s + first_s)}"
    return _shifted(merged, -first_s), f"times by the clock of device {begun.device}{at}"


def _behind_s(lines: Iterable[AnyRecord], moments: Mapping[str | None, float], otherwise_s: float) -> float:
    """Return by how much a clock is behind that of some moments."""
    own = _moments(lines)
    gaps = [moments[version] - own[version] for version in own.keys() & moments.keys()]
    return statistics.median(gaps) if gaps else otherwise_s


def _time_of_day(unix_s: float) -> str:
    """Return a moment for people.

    >>> _time_of_day(0.0)
    '1970-01-01 00:00:00 UTC'
    """
    try:
        return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return "a time that is no date"


def _shifted(lines: Sequence[AnyRecord], by_s: float) -> list[AnyRecord]:
    return [msgspec.structs.replace(line, time_s=line.time_s + by_s) for line in lines] if by_s else list(lines)


def _unix_s(parts: Sequence[Sequence[AnyRecord]]) -> float | None:
    return next((line.unix_s for part in parts for line in part if isinstance(line, RunStarted)), None)


def _moments(lines: Iterable[AnyRecord]) -> dict[str | None, float]:
    kinds = RoundClosed | RosterChanged | RoundAdopted
    return {line.version: line.time_s for line in lines if isinstance(line, kinds)}


def _by_incarnation(lines: Sequence[AnyRecord]) -> list[list[AnyRecord]]:
    """Return the lines of each start of a device on one clock, which began anew whenever it was started again."""
    parts: list[list[AnyRecord]] = [[]]
    first_unix_s, shift_s = _unix_s([lines]), 0.0
    for line in lines:
        if isinstance(line, RunStarted) and parts[-1]:
            last_s = parts[-1][-1].time_s
            began_s = None if line.unix_s is None or first_unix_s is None else line.unix_s - first_unix_s
            if began_s is None and line.time_s >= last_s:
                shift_s = 0.0  # its launcher told it when the run began
            else:
                shift_s = last_s - line.time_s if began_s is None else max(began_s, last_s - line.time_s)
            parts.append([])
        parts[-1] += _shifted([line], shift_s)
    return parts


# -- each fact once ---------------------------------------------------------------------------------------------


class _Facts:
    """Decides record by record, in the order in which they come, what is new."""

    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._seen: set[object] = set()
        self._closed_s: dict[str | None, float] = {}  #: rounds, by version
        self._known: dict[str | None, int] = {}  #: by version: from another than the closer, the closer, counted
        self._failed_s: dict[int | None, float] = {}

    def take(self, line: AnyRecord) -> AnyRecord | None:  # noqa: PLR0911  (one per kind)
        """Return a record as a simulation would write it; None: it is known already."""
        match line:
            case RoundAdopted():
                return (
                    self._close(closed, 0) if isinstance(closed := _as_closed(line), RoundClosed) else self.take(closed)
                )
            case RoundClosed():
                return self._close(line, 2 if line.messages else 1)
            case RunStarted():
                return self._begin(line)
            case RunEnded() if line.device is not None:
                return None  # a device says of itself that it has ended; the run may go on
            case RosterChanged():
                return self._once(line, (RosterChanged, line.version))
            case Joined():
                return self._once(line, (Joined, line.device, line.incarnation, line.round))
            case TakenOver():
                return self._once(line, (TakenOver, line.device, line.cluster, line.previous, line.version))
            case Evaluated() if line.version is not None:
                # When somebody came to score the model says nothing about the run.
                time_s = self._closed_s.get(line.version, line.time_s)
                return self._once(msgspec.structs.replace(line, time_s=time_s), (Evaluated, line.version))
            case FailureHappened() if line.by is not None:
                before_s, self._failed_s[line.device] = self._failed_s.get(line.device), line.time_s
                return line if before_s is None or line.time_s - before_s >= _SAME_FAILURE_S else None
        return line

    def _once(self, line: AnyRecord, key: object) -> AnyRecord | None:
        is_new = key not in self._seen
        self._seen.add(key)
        return line if is_new else None

    def _begin(self, line: RunStarted) -> RunStarted | None:
        if self._started is None:
            self._started = msgspec.structs.replace(line, device=None, processes=())
            return self._started
        if _identity(line) != _identity(self._started):
            raise TwoRunsError(_what_of(self._started), _what_of(line))
        return None

    def _close(self, line: RoundClosed, how_well: int) -> RoundClosed | None:
        """Let a round through once, and again when its closer tells of it or its messages are counted."""
        self._closed_s.setdefault(line.version, line.time_s)
        is_better = how_well > self._known.get(line.version, -1)
        self._known[line.version] = max(how_well, self._known.get(line.version, -1))
        return line if is_better else None


def _as_closed(line: RoundAdopted) -> RoundClosed | RosterChanged:
    """Return what a device adopted as its closer would have written it, as far as the device knows."""
    known = msgspec.structs.asdict(line) | {"device": line.heads[-1] if line.heads else None}
    if line.included:
        known |= {"loss": None, "bytes": 0, "messages": {}}
    kind = RoundClosed if line.included else RosterChanged
    return kind(**{name: value for name, value in known.items() if name in kind.__struct_fields__})


def _without_known_adoptions(lines: Sequence[AnyRecord]) -> list[AnyRecord]:
    """Drop what devices say of rounds that their closers tell of themselves."""
    closed = {line.version for line in lines if isinstance(line, RoundClosed | RosterChanged)}
    return [line for line in lines if not isinstance(line, RoundAdopted) or line.version not in closed]


class TwoRunsError(TolFLError, ValueError):
    """Records of different runs lie in one place."""

    def __init__(self, one: str, other: str, why: str = "") -> None:
        super().__init__(f"these records are of two runs ({one}; {other}){why}; keep each in a folder of its own")


def _what_of(begun: RunStarted) -> str:
    return f"{begun.scheme} on {begun.data}, seed {begun.seed}"


def _identity(line: RunStarted) -> tuple[object, ...]:
    return line.scheme, line.data, line.seed, line.clusters, line.learn


def merged_records(lines: Iterable[AnyRecord]) -> list[AnyRecord]:
    """Return the lines of many devices by one clock as those of one run: each fact once, in order of time."""
    facts = _Facts()
    ordered = sorted(_without_known_adoptions(list(lines)), key=lambda line: line.time_s)
    taken = [fact for fact in map(facts.take, ordered) if fact is not None]
    return sorted(taken, key=lambda line: line.time_s)


def read_records(path: Path) -> list[AnyRecord]:
    """Read a record file, or the one of a run directory; a piece of a line at its end is none."""
    file = path / RECORDS if path.is_dir() else path
    try:
        content = file.read_bytes()
    except OSError as error:
        raise RunDirectoryError(path, f"has no records that can be read ({error.strerror})") from None
    return list(decode_records(content[: content.rfind(b"\n") + 1].splitlines(), source=str(file)))


def device_records(run: Path) -> list[AnyRecord]:
    """Return what the devices of a run on this machine and its launcher wrote, in order of time."""
    files = [*sorted(run.glob(f"devices/*/{RECORDS}")), run / LAUNCHER]
    lines = [line for file in files if file.exists() for line in read_records(file)]
    return sorted(lines, key=lambda line: line.time_s)


# -- a run on disk ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunFolder:
    """A run as its folder has it, as far as it has come; or all repetitions of one."""

    name: str
    spec: RunSpec
    records: Sequence[AnyRecord] = ()
    summary: Mapping[str, Any] | None = None  #: None: it is not finished, or nobody scored it
    is_real: bool = False  #: by processes and by the clock; otherwise simulated, in virtual time
    repetitions: Sequence[RunFolder] = ()
    has_spec: bool = True  #: otherwise `spec` is what the records tell of it
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
        """What its model is worth in the end, where there is an end and a test set."""
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
    """Say in one sentence why there is nothing to read in a folder."""
    if not folder.is_dir():
        what = "is a file; name the folder that it is in" if folder.exists() else "does not exist; see runs/"
        raise RunDirectoryError(folder, what)
    if (folder / "spec.toml").is_file() or (folder / RECORDS).is_file() or _device_files(folder)[0]:
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
    summary, first = read_summary(folder), _first_line(folder / RECORDS)
    return RunFolder(
        folder.resolve().name,
        spec_of_records(reader.records) if spec is None else spec,
        reader.records,
        summary,
        is_real=spec is None or (folder / "devices").is_dir() or (first is not None and first.device is not None),
        has_spec=spec is not None,
        is_over=reader.is_over or summary is not None,
        n_unreadable=reader.n_unreadable,
        clock=reader.clock,
    )


def spec_of_records(records: Sequence[AnyRecord]) -> RunSpec:
    """Return what the records tell of the specification: scheme, data, seed and layout."""
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

    Whoever follows may come before the first line is written.
    """
    repetitions = sorted(path.glob("repetition-*"), key=lambda folder: (len(folder.name), folder.name))
    if repetitions:
        return [RunReader(folder, f"{path.resolve().name}/{folder.name}") for folder in repetitions]
    if not path.exists():
        raise RunDirectoryError(path, "does not exist; name a folder that tolfl simulate or tolfl up wrote")
    has_lines = path.is_file() or (path / RECORDS).is_file() or bool(_device_files(path)[0])
    if not has_lines and not is_following:
        if any(path.glob("*/spec.toml")):
            check_run(path)
        raise RunDirectoryError(path, "has no records; wait for its first round with --follow")
    return [RunReader(path)]
