"""Every failure of a run, from its records: what failed when, who noticed, who took over, what it cost.

One history serves the terminal, the report, the page and the trackers, so they agree in rounds, clock, stalls and
words. Rounds count from 0, as in failure plans; the clock is that of the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tolfl.core.errors import UnknownNameError
from tolfl.core.records import (
    AlarmSent,
    AnyRecord,
    Evaluated,
    FailureHappened,
    Joined,
    RosterChanged,
    RoundClosed,
    RunEnded,
    RunStarted,
    Scored,
    TakenOver,
    round_name,
)
from tolfl.core.spec import Timing
from tolfl.core.topology import Topology

#: Less than this is rounding in a sum of virtual times, and nothing that a person would call a stall.
_NO_STALL_S = 1e-6
_N_NAMED = 8  #: more devices than this are counted, not named
_FOUND = "found dead"  #: how records begin that say that a peer took a device for dead
_MISSED = f"{_FOUND}: missing from the round"  #: nobody says more: a round was closed without its samples
_ENDS = ("healed", "thawed", "came back")


@dataclass
class DeviceFailure:
    """One device that died or froze, or one link that was cut."""

    device: int | None  #: None: a cut, which is between devices
    what: str
    time_s: float
    round: int
    found_after_s: float | None = None
    found_by: int | None = None
    found_how: str = ""
    back_in_round: int | None = None  #: it came back, thawed or healed
    back_s: float | None = None
    head_of: int | None = None  #: the cluster that it led

    @property
    def name(self) -> str:
        """What failed."""
        return "the link" if self.device is None else f"device {self.device}"

    @property
    def is_only_found(self) -> bool:
        """Whether nothing is known of it but that others found it dead."""
        return self.what.startswith(_FOUND)

    @property
    def is_inferred(self) -> bool:
        """Whether no record tells of it, only a round from which its device is missing."""
        return self.what == _MISSED


@dataclass
class Incident:
    """Failures between two closed rounds, and what came of them."""

    round: int
    time_s: float
    failures: list[DeviceFailure] = field(default_factory=list)
    takeovers: list[TakenOver] = field(default_factory=list)
    before: list[RoundClosed] = field(default_factory=list)  #: the last round before it; several, where some are apart
    after: list[RoundClosed] = field(default_factory=list)  #: the first one without those who failed
    stalls: dict[int, RoundClosed] = field(default_factory=dict)  #: rounds that it held up: who waited longest

    @property
    def devices(self) -> list[int]:
        """The devices that failed."""
        return sorted({one.device for one in self.failures if one.device is not None})

    @property
    def stall_s(self) -> float:
        """Seconds that it held up the training; devices that wait at the same time count once."""
        return sum((line.stall_s for line in self.stalls.values()), 0.0)

    @property
    def stalled_until_s(self) -> float | None:
        """When the last round that it held up was closed."""
        return max((line.time_s for line in self.stalls.values()), default=None)

    @property
    def samples_before(self) -> int | None:
        """Samples in the last model before it."""
        return max((line.n_samples for line in self.before), default=None)

    @property
    def samples_after(self) -> int | None:
        """Samples in the first model without those who failed, the largest of several; None: no round was closed."""
        return max((line.n_samples for line in self.after), default=None)

    @property
    def samples_lost(self) -> int | None:
        """How many samples are no longer in a model; None where that cannot be told."""
        if self.samples_before is None or self.samples_after is None:
            return None
        return max(0, self.samples_before - self.samples_after)

    def see_round(self, line: RoundClosed) -> None:
        """Take in a round that was closed since: with those who failed it came late, and is one before."""
        failed = set(self.devices)
        is_late = bool(failed) and failed <= set(line.included) and (line.round or 0) < self.round
        is_of_this_moment = line.time_s <= self.time_s and not any(str(device) in line.missing for device in failed)
        if is_late or is_of_this_moment:
            self.before = [*(one for one in self.before if one.round == line.round), line]
        elif failed.isdisjoint(line.included) and all(one.round == line.round for one in self.after):
            self.after.append(line)


class FailureHistory:
    """All incidents of a run in the order of time, and the seconds that no failure explains.

    >>> died = FailureHappened(time_s=4.0, device=0, round=2, what="died (train)")
    >>> found = FailureHappened(time_s=4.5, device=0, round=2, what="found dead: connection refused", by=3)
    >>> FailureHistory.of([died, found]).incidents[0].failures[0].found_after_s
    0.5
    """

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self.stages: tuple[tuple[str, int], ...] = ()
        self._before_all = Incident(0, 0.0)  #: stalls that no failure explains
        self._open: dict[int | str, DeviceFailure] = {}  #: by device, or by the two sides of a cut
        self._heads: dict[int, int] = {}  #: heads, and the cluster of each
        self._cluster_of: dict[int, int] = {}
        self._newest: list[RoundClosed] = []  #: the last round; several, where some train apart
        self._together: RoundClosed | None = None  #: the last round of those who train together
        self._rounds_at_incident = -1

    @classmethod
    def of(cls, records: Iterable[AnyRecord]) -> FailureHistory:
        """Return what happened to the devices of a run; records in order of time."""
        history = cls()
        for record in records:
            history._add(record)
        for one, following in pairwise([history._before_all, *history.incidents]):
            for round_index in [index for index, line in one.stalls.items() if _is_known_late(following, line)]:
                following.stalls[round_index] = one.stalls.pop(round_index)
        return history

    @property
    def stall_s(self) -> float:
        """Seconds that failures held up the training; devices that wait at the same time count once."""
        return sum((incident.stall_s for incident in self.incidents), 0.0)

    @property
    def unexplained_stall_s(self) -> float:
        """Seconds that rounds took longer before anything failed."""
        return self._before_all.stall_s

    @property
    def dead(self) -> set[int]:
        """Who died and did not return."""
        return {device for device, what in self._away() if not what.startswith("frozen")}

    @property
    def frozen(self) -> set[int]:
        """Who froze and did not thaw."""
        return {device for device, what in self._away() if what.startswith("frozen")} - self.dead

    def _away(self) -> Iterable[tuple[int, str]]:
        open_ones = (one for incident in self.incidents for one in incident.failures if one.back_in_round is None)
        return ((one.device, one.what) for one in open_ones if one.device is not None)

    def _add(self, record: AnyRecord) -> None:
        match record:
            case RunStarted():
                topology = Topology(record.clusters)
                self._cluster_of, self.stages = topology.cluster_of, record.stages
                self._lead(topology.heads(self._cluster_of))
            case RoundClosed():
                self._close(record)
            case FailureHappened():
                self._fail(record)
            case TakenOver():
                self._take_over(record)
            case Joined() if record.device in self._open:
                self._end(record.device, record.round, record.time_s)

    @property
    def _rounds_closed(self) -> int:
        return 1 + (self._newest[0].round or 0) if self._newest else 0

    def _lead(self, heads: Sequence[int]) -> None:
        self._heads = {head: self._cluster_of[head] for head in heads if head in self._cluster_of}

    def _close(self, line: RoundClosed) -> None:
        if len(line.included) > 1:  # a device that goes on alone leads nobody
            self._infer(line)
            self._put_after(line)
            self._lead(line.heads)
            self._together = line
        for incident in self.incidents:
            incident.see_round(line)
        stalls = (self.incidents or [self._before_all])[-1].stalls
        if line.stall_s > max(_NO_STALL_S, stalls[line.round or 0].stall_s if (line.round or 0) in stalls else 0.0):
            stalls[line.round or 0] = line
        if (line.round or 0) >= self._rounds_closed:
            self._newest = []
        if (line.round or 0) + 1 >= self._rounds_closed:
            self._newest.append(line)

    def _infer(self, line: RoundClosed) -> None:
        """Take from a closed round what no other record tells: a device may know of a failure only from the round."""
        if any(one.device is None for one in self._open.values()):
            return  # each side of a cut takes the other one for dead
        for absent, reason in line.missing.items():
            device = int(absent) if absent.isdecimal() else -1
            if reason == "failed" and self._was_inside(device) and device not in self._open:
                lost = FailureHappened(time_s=line.time_s, device=device, round=line.round, what=_MISSED)
                self._open[device] = self._begin(lost)
        led = {cluster: head for head, cluster in self._heads.items()}
        for head in line.heads:
            cluster = self._cluster_of.get(head, -1)
            previous = led.get(cluster)
            if previous is not None and previous != head and previous in self._open:
                self._take_over(
                    TakenOver(time_s=line.time_s, device=head, round=line.round, cluster=cluster, previous=previous)
                )

    def _was_inside(self, device: int | None, round_index: int | None = None) -> bool:
        """Return whether a device's samples are in the last round of those who train together, if it is this one."""
        last = self._together
        return last is not None and device in last.included and round_index in (None, last.round)

    def _put_after(self, line: RoundClosed) -> None:
        """Let a device that was found dead have failed after the round that still has its samples.

        Whoever got that round's model late found it dead before, others after: their folders must say the same.
        """
        for device in line.included:
            failure = self._open.get(device)
            if failure is not None and failure.is_only_found and failure.round == line.round:
                failure.round += 1
                for incident in self.incidents:
                    incident.round = min(one.round for one in incident.failures)

    def _fail(self, line: FailureHappened) -> None:
        what, device = line.what, line.device
        if what.startswith(_ENDS):
            self._end(device if device is not None else _sides(what), line.round, line.time_s)
        elif line.by is not None and not what.startswith("did not come back"):
            self._find(line)
        elif device is None:
            self._open[_sides(what)] = self._begin(line)
        elif device not in self._open or self._open[device].what.startswith("frozen"):
            self._open[device] = self._begin(line)
        elif self._open[device].is_only_found and self._open[device].time_s >= line.time_s - _NO_STALL_S:
            self._open[device].what = line.what
        # Otherwise its launcher says once more what the device said itself before it died, or it is still away.

    def _find(self, line: FailureHappened) -> None:
        key = _sides(line.what) if line.device is None else line.device
        failure = self._open.get(key)
        if failure is None:
            failure = next((one for one in self._open.values() if one.device is None), None)
        if failure is None:
            # It says nothing itself and nobody watched it: when it fell silent is not known.
            self._open[key] = failure = self._begin(line)
        elif failure.what == _MISSED:
            failure.what = line.what
        elif failure.found_by is None and not failure.is_only_found:
            failure.found_after_s = max(0.0, line.time_s - failure.time_s)
        if failure.found_by is None:
            failure.found_by, failure.found_how = line.by, line.what.removeprefix("found dead: ")

    def _take_over(self, line: TakenOver) -> None:
        # A head that left in good order is replaced, too: then nothing has failed.
        hit = [one for one in self.incidents if line.previous in one.devices]
        hit = hit or [one for one in self.incidents if any(failure.device is None for failure in one.failures)]
        known = [(one.device, one.cluster, one.previous) for one in hit[-1].takeovers] if hit else []
        if hit and (line.device, line.cluster, line.previous) not in known:
            hit[-1].takeovers.append(line)

    def _begin(self, line: FailureHappened) -> DeviceFailure:
        round_index = self._rounds_closed if line.round is None else line.round
        if line.by is not None and self._was_inside(line.device, round_index):
            round_index += 1  # whoever tells of it had not heard of that round's end yet
        if not self.incidents or self._rounds_at_incident != self._rounds_closed:
            self.incidents.append(Incident(round_index, line.time_s, before=list(self._newest)))
            self._rounds_at_incident = self._rounds_closed
        incident = self.incidents[-1]
        head_of = None if line.device is None else self._heads.get(line.device)
        failure = DeviceFailure(line.device, line.what, line.time_s, round_index, head_of=head_of)
        incident.failures.append(failure)
        incident.after = [one for one in incident.after if line.device not in one.included]
        return failure

    def _end(self, key: int | str | None, round_index: int | None, time_s: float) -> None:
        failure = None if key is None else self._open.pop(key, None)
        if failure is not None:
            failure.back_in_round = self._rounds_closed if round_index is None else round_index
            failure.back_s = time_s


def _sides(what: str) -> str:
    return what.partition(" ")[2]


def _is_known_late(incident: Incident, line: RoundClosed) -> bool:
    """Return whether a round's model came late because of a death that is only known from the round after it.

    A member of the head that was killed waits for the last model with its samples; others wait for the next one.
    """
    is_last_round = (line.round or 0) + 1 == incident.round and {*incident.devices} <= {*line.included}
    return is_last_round and all(one.is_only_found for one in incident.failures)


# -- the fleet before and after ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceState:
    """Role and state of a device at one moment."""

    is_head: bool = False
    is_new: bool = False  #: it took over
    state: str = "trains"  #: or `dead`, `frozen`, `alone`, `out`


def first_states(started: RunStarted) -> dict[int, DeviceState]:
    """Return the fleet before the first round."""
    everybody = [device for cluster in started.clusters for device in cluster]
    heads = set(Topology(started.clusters).heads(everybody))
    return {device: DeviceState(is_head=device in heads) for device in everybody}


def last_states(records: Sequence[AnyRecord], history: FailureHistory) -> dict[int, DeviceState]:
    """Return the fleet as the last round left it; empty, where no record tells of a fleet."""
    started = next((line for line in records if isinstance(line, RunStarted)), None)
    if started is None:
        return {}
    before, last = first_states(started), _last_rounds(records)
    heads = {head for line in last for head in line.heads}
    together = {device for line in last if len(line.included) > 1 for device in line.included}
    alone = {device for line in last if len(line.included) == 1 for device in line.included} - together
    endings = [line for line in records if isinstance(line, RunEnded)]
    has_stopped = any(not line.reason.startswith("over") for line in endings)

    def state_of(device: int) -> DeviceState:
        if device in history.dead:
            return DeviceState(state="dead")
        if device in history.frozen:
            return DeviceState(state="frozen")
        if device in alone and len(before) > 1:
            return DeviceState(state="alone")
        if not last:
            return before[device]
        if has_stopped or device not in together | alone:
            return DeviceState(state="out")
        return DeviceState(is_head=device in heads, is_new=device in heads and not before[device].is_head)

    return {device: state_of(device) for device in before}


def _last_rounds(records: Sequence[AnyRecord]) -> list[RoundClosed]:
    """Return the lines that closed the last round: several where devices go on apart from each other."""
    closed = [line for line in records if isinstance(line, RoundClosed)]
    newest = max((line.round or 0 for line in closed), default=0)
    return [line for line in closed if (line.round or 0) == newest]


# -- in words ---------------------------------------------------------------------------------------------------


def seconds(value: float) -> str:
    """Return a duration for people.

    >>> seconds(0.1778), seconds(0.004), seconds(0)
    ('0.18 s', '0.004 s', '0 s')
    """
    if value < _NO_STALL_S:
        return "0 s"
    return f"{value:.2f} s" if value >= 0.01 else f"{value:.1g} s" if value >= 0.001 else "under 0.001 s"


def device_list(ids: Sequence[int]) -> str:
    """Return devices by their ids.

    >>> device_list([3]), device_list([3, 4, 5]), device_list(range(20))
    ('device 3', 'devices 3, 4 and 5', '20 devices (0, 1, 2, 3, 4, 5, 6, 7, ...)')
    """
    if len(ids) == 1:
        return f"device {ids[0]}"
    if len(ids) > _N_NAMED:
        return f"{len(ids)} devices ({', '.join(str(one) for one in ids[:_N_NAMED])}, ...)"
    return f"devices {', '.join(str(one) for one in ids[:-1])} and {ids[-1]}"


def describe(record: AnyRecord, stages: Sequence[tuple[str, int]] = ()) -> str:  # noqa: PLR0911  (one per kind)
    """Return what a record says, in a few words; nothing for those that only numbers are in.

    >>> describe(FailureHappened(time_s=4.5, device=0, round=2, what="found dead: connection refused", by=3))
    'device 0 is gone (connection refused), says device 3'
    """
    match record:
        case RunStarted():
            return f"{record.scheme} on {record.data} starts, seed {record.seed}"
        case RoundClosed():
            stall = f", stalled {seconds(record.stall_s)}" if record.stall_s > _NO_STALL_S else ""
            inside = f"{len(record.included)} device{'s' * (len(record.included) != 1)} inside"
            return f"round {round_name(stages, record.round or 0)} closed by device {record.device}: {inside}{stall}"
        case RosterChanged():
            return (
                f"device {record.device} closes the run" if record.is_over else f"{len(record.devices)} devices go on"
            )
        case FailureHappened():
            return _described_failure(record)
        case TakenOver():
            return f"device {record.device} takes over cluster {record.cluster} from device {record.previous}"
        case Joined():
            return f"device {record.device} is part of the fleet again"
        case Evaluated() if record.auroc is not None:
            return f"AUROC {record.auroc:.3f} in round {round_name(stages, record.round or 0)}"
        case RunEnded():
            return f"{'the run' if record.device is None else f'device {record.device}'} ends: {record.reason}"
        case AlarmSent():
            return f"device {record.device}: {record.what}"
        case Scored() if record.auroc is not None:
            return f"AUROC {record.auroc:.3f} in the end"
    return ""


def _described_failure(line: FailureHappened) -> str:
    if line.device is None:
        return _described_cut(line.what)
    if line.by is None:
        return f"device {line.device} {line.what}"
    return f"device {line.device} {failure_words(line.what)}, says device {line.by}"


def failure_words(what: str) -> str:
    """Return a failure in the words of a reader: whoever refuses connections is gone, whoever is silent may be slow.

    >>> failure_words("found dead: connection refused"), failure_words("found dead: silent for 2 s")
    ('is gone (connection refused)', 'is silent (for 2 s)')
    >>> failure_words("died (train)"), failure_words("found dead: missing from the round")
    ('died (train)', 'is missing from the round')
    """
    found, _, how = what.partition(": ")
    if found != _FOUND:
        return what
    if how.startswith("silent "):
        return f"is silent ({how.removeprefix('silent ')})"
    return f"is {how}" if how.startswith("missing") else f"is gone ({how})"


def _described_cut(what: str) -> str:
    """Return a cut by its two sides.

    >>> _described_cut("cut 3 | 0,1,2"), _described_cut("healed 3,4 | 0")
    ('device 3 cut off from devices 0, 1 and 2', 'devices 3 and 4 connected again with device 0')
    """
    verb, _, sides = what.partition(" ")
    parts = [[part.strip() for part in side.split(",")] for side in sides.split("|")]
    if len(parts) != 2 or verb not in {"cut", "healed"} or not all(one.isdecimal() for side in parts for one in side):
        return what
    one, other = (device_list([int(part) for part in side]) for side in parts)
    return f"{one} {'cut off from' if verb == 'cut' else 'connected again with'} {other}"


def tone(record: AnyRecord) -> str:
    """Return whether a record is `good`, `bad` or `quiet` (of every round); empty for what is none of them."""
    match record:
        case FailureHappened():
            return "good" if record.what.startswith(_ENDS) else "bad"
        case TakenOver() | Joined():
            return "good"
        case AlarmSent():
            return "good" if record.event == "close" else "bad"
        case RoundClosed() | RosterChanged() | Evaluated():
            return "quiet"
    return ""


def what_failed(incident: Incident) -> str:
    """Say what failed and how: those with the same fate together."""
    fates: dict[str, list[DeviceFailure]] = {}
    for one in incident.failures:
        fates.setdefault(one.what, []).append(one)
    return "; ".join(_fate(what, hit) for what, hit in fates.items())


def _fate(what: str, hit: Sequence[DeviceFailure]) -> str:
    ids = sorted(one.device for one in hit if one.device is not None)
    if not ids:
        return _described_cut(what)
    led = sorted(one.head_of for one in hit if one.head_of is not None)
    said = failure_words(what)
    if not led:
        return f"{device_list(ids)} {said}"
    if len(ids) == 1:
        return f"device {ids[0]}, head of cluster {led[0]}, {said}"
    return f"{device_list(ids)}, {len(led)} of them {'a head' if len(led) == 1 else 'heads'}, {said}"


def short_label(incident: Incident) -> str:
    """Say it in the two or three words that a curve has room for."""
    if len(incident.failures) > 1:
        return f"{len(incident.failures)} failures"
    (one,) = incident.failures
    what = failure_words(one.what).partition(" (")[0]
    return what if one.device is None else f"{one.name} {what}"


def who_noticed(incident: Incident, simulated_timing: str = "") -> str:
    """Say how long it took until somebody noticed, and who did; in a simulation its timing says how long."""
    found = [one for one in incident.failures if one.found_by is not None]
    if found:
        told = dict.fromkeys(_finding(one, len(incident.failures) > 1) for one in found[:_N_NAMED])
        return "; ".join(told) + ("; ..." if len(found) > _N_NAMED else "")
    if simulated_timing and incident.devices:
        try:
            delay_s = Timing.preset(simulated_timing).crash_detection_s
        except UnknownNameError:
            return "not told"
        return f"{seconds(delay_s)} (set by timing {simulated_timing})"
    return "by nobody: nothing had to be done" if not incident.devices else "not told"


def _finding(one: DeviceFailure, is_one_of_several: bool) -> str:
    whom = f"{one.name}: " if is_one_of_several else ""
    after = "when it fell silent is not known" if one.found_after_s is None else seconds(one.found_after_s)
    return f"{whom}{after}, by device {one.found_by} ({one.found_how})"


def who_took_over(incident: Incident) -> str:
    """Say who became a head."""
    told = []
    for line in incident.takeovers[:_N_NAMED]:
        # Of one that was only found dead nobody knows when it fell silent.
        dead = [one for one in incident.failures if one.device == line.previous and not one.is_only_found]
        is_timed = dead and dead[-1].time_s < line.time_s
        after = f" after {seconds(line.time_s - dead[-1].time_s)}" if is_timed else ""
        told.append(f"device {line.device} for {line.previous} in cluster {line.cluster}{after}")
    more = len(incident.takeovers) - _N_NAMED
    return "; ".join(told) + (f"; {more} more" if more > 0 else "") or "nobody had to, or could"


def samples_lost(incident: Incident) -> str:
    """Say how many samples are no longer trained on."""
    if incident.samples_before is None:
        after = "" if incident.samples_after is None else f"; {incident.samples_after:,} go on"
        return f"not known: no round was closed before{after}"
    if incident.samples_after is None:
        return f"all {incident.samples_before:,}: no round was closed after it"
    if (n_models := len({line.included for line in incident.after})) > 1:
        apart = f"{n_models} models go on apart, the largest with {incident.samples_after:,}"
        return f"{incident.samples_lost:,} of {incident.samples_before:,}: {apart}"
    return f"{incident.samples_lost:,} of {incident.samples_before:,}"


def who_came_back(incident: Incident, stages: Sequence[tuple[str, int]] = ()) -> str:
    """Say who returned, thawed or healed, and in which round."""
    back = [one for one in incident.failures if one.back_in_round is not None]
    told = [f"{one.name}, round {round_name(stages, one.back_in_round or 0)}" for one in back[:_N_NAMED]]
    return "; ".join(told) + ("; ..." if len(back) > _N_NAMED else "") or "no"


@dataclass(frozen=True)
class IncidentCell:
    """A cell of the table of failures, and when it became known: a replay shows nothing before its time."""

    text: str
    known_s: float


#: The table of failures, on every surface.
COLUMNS = ("round", "at", "what failed", "noticed after", "who took over", "stalled", "samples lost", "came back")


def incident_cells(
    incident: Incident, stages: Sequence[tuple[str, int]] = (), simulated_timing: str = ""
) -> list[IncidentCell]:
    """Return one row of the table of failures."""
    at_s = incident.time_s
    found = [one.time_s + (one.found_after_s or 0.0) for one in incident.failures if one.found_by is not None]
    back = [one.back_s for one in incident.failures if one.back_s is not None]
    noticed_s = min(found, default=min((line.time_s for line in incident.takeovers), default=at_s))
    closed_s = at_s if not incident.after else max(line.time_s for line in incident.after)
    return [
        IncidentCell(round_name(stages, incident.round), at_s),
        IncidentCell(f"{at_s:.1f} s", at_s),
        IncidentCell(what_failed(incident), at_s),
        IncidentCell(who_noticed(incident, simulated_timing), noticed_s),
        IncidentCell(who_took_over(incident), max((line.time_s for line in incident.takeovers), default=at_s)),
        IncidentCell(seconds(incident.stall_s), at_s if incident.stalled_until_s is None else incident.stalled_until_s),
        IncidentCell(samples_lost(incident), closed_s),
        IncidentCell(who_came_back(incident, stages), max(back, default=at_s)),
    ]


def headline(incident: Incident, stages: Sequence[tuple[str, int]] = ()) -> list[IncidentCell]:
    """Return the incident in one line, and in a longer one once somebody took over, and once all are back."""
    cells = dict(zip(COLUMNS, incident_cells(incident, stages), strict=True))
    told = [cells["what failed"]]
    if incident.takeovers:
        took_over = cells["who took over"]
        told.append(IncidentCell(f"{told[-1].text}; took over: {took_over.text}", took_over.known_s))
    if all(one.back_s is not None for one in incident.failures):
        back = cells["came back"]
        told.append(IncidentCell(f"{told[-1].text}; came back: {back.text}", back.known_s))
    return told


def sentence(incident: Incident, stages: Sequence[tuple[str, int]] = ()) -> str:
    """Tell an incident in a few short sentences."""
    where = f"round {round_name(stages, incident.round)}"
    parts = [f"In {where}, {incident.time_s:.1f} s into the run: {headline(incident, stages)[-1].text}."]
    found = [one for one in incident.failures if one.found_after_s is not None]
    if len(found) == 1:
        parts.append(f"Device {found[0].found_by} noticed after {seconds(found[0].found_after_s or 0.0)}.")
    if incident.samples_after is None:
        parts.append("No round was closed after it.")
    else:
        stall = seconds(incident.stall_s)
        parts.append(f"It held up the training for {stall}." if incident.stall_s else "No stall was measured.")
        if incident.samples_lost is not None:
            parts.append(f"Samples lost: {samples_lost(incident)}.")
    return " ".join(parts)
