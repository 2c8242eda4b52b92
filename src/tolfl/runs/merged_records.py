"""Records of several devices as those of one run: of one run only, by one clock, each fact once.

A simulation writes each fact once. Real devices write it several times: each records every round, and failures that
others detected too, by a clock of its own that may be an hour wrong. Copied state folders may be of two runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, combinations

import msgspec

from tolfl.core.errors import TolFLError
from tolfl.core.records import (
    AnyRecord,
    Evaluated,
    FailureHappened,
    Joined,
    RosterChanged,
    RoundAdopted,
    RoundClosed,
    RunEnded,
    RunStarted,
    TakenOver,
)
from tolfl.runs.failure_history import RESTARTED

#: Kinds of records that several devices write about one failure; they become one.
_SAME_FAILURE_S = 10.0


def merged_records(lines: Iterable[AnyRecord]) -> list[AnyRecord]:
    """Return the lines of many devices by one clock as those of one run: each fact once, in order of time."""
    facts = Facts()
    ordered = sorted(without_known_adoptions(list(lines)), key=lambda line: line.time_s)
    taken = [fact for fact in map(facts.take, ordered) if fact is not None]
    return sorted(taken, key=lambda line: line.time_s)


# -- of one run ---------------------------------------------------------------------------------------------------


def check_one_run(files: Iterable[tuple[str, Sequence[AnyRecord]]]) -> None:
    """Refuse files of two runs (where each lies, and its lines), also of one specification.

    Runs of one specification differ in which processes were connected. Files that know one process in common are of one
    run, and so are those between which others make a chain. Two that are not, and know one incarnation of a device as
    different processes, are of two runs; so is a file whose own device was the same incarnation twice.
    """
    runs: list[tuple[str, RunStarted, set[tuple[int, int, int]]]] = []  #: first place and line, processes known there
    for place, lines in files:
        starts = [line for line in lines if isinstance(line, RunStarted)]
        if not starts:
            continue
        _check_incarnations(place, starts)
        run = place, starts[0], {process for line in starts for process in line.processes}
        for other in runs:
            if _identity(other[1]) != _identity(run[1]):
                here, there = (f"{where}: {_what_of(begun)}" for where, begun, _ in (other, run))
                raise TwoRunsError(here, there, _difference(other[1], run[1]))
        for other in [other for other in runs if _numbers(other[2]) & _numbers(run[2])]:
            runs.remove(other)
            run = other[0], other[1], other[2] | run[2]
        runs.append(run)
    for (here, _, known), (there, _, also_known) in combinations(runs, 2):
        if both := {process[:2] for process in known} & {process[:2] for process in also_known}:
            raise TwoRunsError(here, there, f": device {min(both)[0]} was not the same process")


def _check_incarnations(place: str, starts: Sequence[RunStarted]) -> None:
    """Refuse a file whose own device began twice as the same incarnation: it kept its records, and not what it was."""
    own = [{process for process in line.processes if process[0] == line.device} for line in starts]
    for before, after in combinations(own, 2):
        both = {process[:2] for process in before} & {process[:2] for process in after}
        if both and not before & after:
            raise TwoRunsError(place, "further on in it", f": device {min(both)[0]} was not the same process")


def _numbers(processes: set[tuple[int, int, int]]) -> set[int]:
    """Return the numbers that processes drew when they began: none has that of another."""
    return {number for _, _, number in processes}


class TwoRunsError(TolFLError, ValueError):
    """Records of different runs lie in one place."""

    def __init__(self, one: str, other: str, why: str = "") -> None:
        super().__init__(f"these records are of two runs ({one}; {other}){why}; keep each in a folder of its own")


def _what_of(begun: RunStarted) -> str:
    return f"{begun.scheme} on {begun.data}, seed {begun.seed}"


def _difference(one: RunStarted, other: RunStarted) -> str:
    """Return in what two runs of the same name differ."""
    names = [name for name in ("clusters", "learn") if getattr(one, name) != getattr(other, name)]
    return f": they differ in {' and '.join(names)}" if names else ""


def _identity(line: RunStarted) -> tuple[object, ...]:
    return line.scheme, line.data, line.seed, line.clusters, line.learn


# -- by one clock -------------------------------------------------------------------------------------------------


def on_one_clock(files: Sequence[Sequence[AnyRecord]]) -> tuple[list[AnyRecord], str]:
    """Return the lines of all files by one clock, in order, and whose clock it is; 0 is when the first device began.

    A device counts seconds from its own start, and its clock may be wrong, another time after each start: the rounds
    that two files have in common say by how much they differ. Without any, the time of the day does.
    """
    timed = [_by_incarnation(lines) for lines in files]
    reference = max(timed, key=lambda parts: max(len(_moments(part)) for part in parts), default=[])
    moments = _moments(chain(*reference))
    merged: list[AnyRecord] = []
    for parts in timed:
        both = [one for one in (_unix_s(reference), _unix_s(parts)) if one is not None]
        of_day_s = both[1] - both[0] if len(both) == 2 else 0.0
        of_all_s = _behind_s(chain(*parts), moments, of_day_s)
        for number, part in enumerate(parts):
            told = [*part, *_stopped(part, parts[number + 1])] if number + 1 < len(parts) else part
            merged += _shifted(told, _behind_s(part, moments, of_all_s))
    merged.sort(key=lambda line: line.time_s)
    begun = next((line for line in chain(*reference) if isinstance(line, RunStarted)), None)
    if begun is None:
        return merged, ""
    first_s = next(line.time_s for line in merged if isinstance(line, RunStarted))
    at = "" if begun.unix_s is None else f", from {_time_of_day(begun.unix_s + first_s)}"
    return _shifted(merged, -first_s), f"times by the clock of device {begun.device}{at}"


def _behind_s(lines: Iterable[AnyRecord], moments: Mapping[str | None, float], otherwise_s: float) -> float:
    """Return by how much a clock is behind another, by rounds that both have."""
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
                shift_s = 0.0  # it has its run's start time from its launcher
            else:
                shift_s = last_s - line.time_s if began_s is None else max(began_s, last_s - line.time_s)
            parts.append([])
        parts[-1] += _shifted([line], shift_s)
    return parts


def _stopped(part: Sequence[AnyRecord], following: Sequence[AnyRecord]) -> list[AnyRecord]:
    """Return the failure of a device that was started again: after its last line, unless it ended in order."""
    begun = next((line for line in part if isinstance(line, RunStarted)), None)
    rounds, later = _rounds(part), _rounds(following)
    if begun is None or not rounds or any(isinstance(line, RunEnded) for line in part):
        return []
    round_index = 1 + (rounds[-1].round or 0)
    if any(line.round == round_index and begun.device in line.included for line in later):
        return []  # it missed nothing
    return [FailureHappened(time_s=part[-1].time_s, device=begun.device, round=round_index, what=RESTARTED)]


def _rounds(lines: Iterable[AnyRecord]) -> list[RoundClosed | RoundAdopted]:
    return [line for line in lines if isinstance(line, RoundClosed | RoundAdopted) and line.included]


# -- each fact once -----------------------------------------------------------------------------------------------


class Facts:
    """Decides record by record, in the order in which they come, what is new."""

    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._seen: set[object] = set()
        self._closed_s: dict[str | None, float] = {}  #: rounds, by version
        self._known: dict[str | None, int] = {}  #: by version: from another than the closer, the closer, counted
        self._failed_s: dict[int | None, float] = {}
        self._takeovers = TakeOvers()

    def take(self, line: AnyRecord) -> AnyRecord | None:  # noqa: PLR0911  (one per kind)
        """Return a record as a simulation would write it; None: it is known already."""
        if not self._takeovers.is_new(line):
            return None
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
                return None  # a device records its own end; the run may continue
            case RosterChanged():
                return self._once(line, (RosterChanged, line.version))
            case Joined():
                return self._once(line, (Joined, line.device, line.incarnation, line.round))
            case Evaluated() if line.version is not None:
                # When the model was scored is no part of the run.
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
            raise TwoRunsError(_what_of(self._started), _what_of(line), _difference(self._started, line))
        return None

    def _close(self, line: RoundClosed, how_well: int) -> RoundClosed | None:
        """Return a round once, and again when the closer's own record comes or its messages are counted."""
        self._closed_s.setdefault(line.version, line.time_s)
        is_better = how_well > self._known.get(line.version, -1)
        self._known[line.version] = max(how_well, self._known.get(line.version, -1))
        return line if is_better else None


class TakeOvers:
    """Decides record by record whether a device takes over, or only says so again.

    A device says so in every round until the roster is without the failed head: twice where that head's last model came
    late.
    """

    def __init__(self) -> None:
        self._newest: dict[int, TakenOver] = {}  #: by cluster, while the head before it is away

    def is_new(self, line: AnyRecord) -> bool:
        """Return whether a record says anything new; each is to be shown here."""
        match line:
            case TakenOver():
                before, self._newest[line.cluster] = self._newest.get(line.cluster), line
                return before is None or (before.device, before.previous) != (line.device, line.previous)
            case Joined():
                self._forget([line.device], None)
            case RoundClosed() | RoundAdopted():
                self._forget(line.heads, line.round)
        return True

    def _forget(self, heads: Sequence[int | None], round_index: int | None) -> None:
        """Forget take-overs from devices that are back: they join, or lead a later round."""
        self._newest = {
            cluster: line
            for cluster, line in self._newest.items()
            if line.previous not in heads or (round_index is not None and round_index <= (line.round or 0))
        }


def _as_closed(line: RoundAdopted) -> RoundClosed | RosterChanged:
    """Return a round that a device adopted as its closer would have written it, as far as the device knows."""
    known = msgspec.structs.asdict(line) | {"device": line.heads[-1] if line.heads else None}
    if line.included:
        known |= {"bytes": 0, "messages": {}}
    kind = RoundClosed if line.included else RosterChanged
    return kind(**{name: value for name, value in known.items() if name in kind.__struct_fields__})


def without_known_adoptions(lines: Sequence[AnyRecord]) -> list[AnyRecord]:
    """Drop devices' records of rounds of which the closers' own records are there."""
    closed = {line.version for line in lines if isinstance(line, RoundClosed | RosterChanged)}
    return [line for line in lines if not isinstance(line, RoundAdopted) or line.version not in closed]
