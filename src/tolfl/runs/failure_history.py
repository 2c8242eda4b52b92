"""Every failure of a run, from its records: what failed when, which device detected it, which took over, the cost.

One history serves the terminal, the report, the page and the trackers, so they agree in rounds, clock and stalls.
Rounds count from 0, as in failure plans; the clock is that of the records. Half of the rules are for a device on a
machine of its own: its folder may have a failure late, before the round that it belongs to, or only as a round with
missing samples, and must lead to the same history as the folder of any other device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tolfl.core.records import (
    AnyRecord,
    FailureHappened,
    Joined,
    RosterChanged,
    RoundClosed,
    RunEnded,
    RunStarted,
    TakenOver,
    history_of,
)
from tolfl.core.topology import Topology

#: A shorter stall is rounding in a sum of virtual times.
NO_STALL_S = 1e-6
FOUND = "found dead"  #: prefix of records in which a peer declares a device failed
ENDS = ("healed", "thawed", "came back")  #: prefix of records of the end of a failure
MISSED = f"{FOUND}: missing from the round"  #: no other record: a round was closed without its samples
AFTER_GAP = f"{FOUND}: missing after a gap in these records"  #: whose writer was away itself
RESTARTED = f"{FOUND}: stopped, and started again later"  #: its own folder has no more on it
_UNEXPLAINED = {MISSED, AFTER_GAP, RESTARTED}  #: records of others have more on it


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
    was_put_after: bool = False  #: the round in which others declared it failed still has its samples
    is_elsewhere: bool = False  #: the device that declared it failed was cut off from it: it trains another model

    @property
    def name(self) -> str:
        """What failed."""
        return "the link" if self.device is None else f"device {self.device}"

    @property
    def status(self) -> str:
        """The status of its devices until they are back: dead, frozen, cut or unreachable."""
        if self.device is None:
            return "cut"
        return "unreachable" if self.is_only_found else "frozen" if self.what.startswith("frozen") else "dead"

    @property
    def is_only_found(self) -> bool:
        """Whether all that is known is that others declared it failed."""
        return self.what.startswith(FOUND)

    @property
    def is_inferred(self) -> bool:
        """Whether it has no record, only a round from which its device is missing."""
        return self.what in {MISSED, AFTER_GAP}


@dataclass
class Incident:
    """Failures between two closed rounds, and their consequences."""

    round: int
    time_s: float
    failures: list[DeviceFailure] = field(default_factory=list)
    takeovers: list[TakenOver] = field(default_factory=list)
    before: list[RoundClosed] = field(default_factory=list)  #: the last round before it; several, where some are apart
    after: list[RoundClosed] = field(default_factory=list)  #: the first one without those who failed
    stalls: dict[int, RoundClosed] = field(default_factory=dict)  #: rounds that it stalled: the longest wait of each

    @property
    def devices(self) -> list[int]:
        """The devices that failed."""
        return sorted({one.device for one in self.failures if one.device is not None})

    @property
    def stall_s(self) -> float:
        """Seconds that it stalled the training; devices that wait at the same time count once."""
        return sum((line.stall_s for line in self.stalls.values()), 0.0)

    @property
    def stalled_until_s(self) -> float | None:
        """When the last round that it stalled was closed."""
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
        """How many samples are no longer in a model; None where that is not known."""
        if self.samples_before is None or self.samples_after is None:
            return None
        return max(0, self.samples_before - self.samples_after)

    def _away_in(self, round_index: int) -> set[int]:
        away = [one for one in self.failures if one.back_in_round is None or one.back_in_round > round_index]
        return {one.device for one in away if one.device is not None and not one.is_elsewhere}

    def see_round(self, line: RoundClosed) -> None:
        """Take in a round that was closed since: with those who failed it came late, and is one before."""
        failed = set(self.devices)
        is_late = bool(failed) and failed <= set(line.included) and (line.round or 0) < self.round
        is_of_this_moment = line.time_s <= self.time_s and not any(str(device) in line.missing for device in failed)
        if is_late or is_of_this_moment:
            self.before = [*(one for one in self.before if one.round == line.round), line]
        elif self._away_in(line.round or 0).isdisjoint(line.included) and all(
            one.round == line.round for one in self.after
        ):
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
        self._before_all = Incident(0, 0.0)  #: stalls that no failure explains
        self._open: dict[int | str, DeviceFailure] = {}  #: by device, or by the two sides of a cut
        self._heads: dict[int, int] = {}  #: heads, and the cluster of each
        self._cluster_of: dict[int, int] = {}
        self.started: RunStarted | None = None
        self.last_rounds: list[
            RoundClosed
        ] = []  #: lines that closed the last round; several, where branches train separately
        self._left: set[int] = set()  #: the devices at the end
        self.has_stopped = False  #: it ended before all rounds were done
        self._inside: dict[str, tuple[int, ...]] = {}  #: by history: whose samples are in its last round
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
    def stages(self) -> tuple[tuple[str, int], ...]:
        """Name and number of rounds of each stage of the run, where it has stages."""
        return () if self.started is None else self.started.stages

    @property
    def stall_s(self) -> float:
        """Seconds that failures stalled the training; devices that wait at the same time count once."""
        return sum((incident.stall_s for incident in self.incidents), 0.0)

    @property
    def unexplained_stall_s(self) -> float:
        """Seconds that rounds took longer before anything failed."""
        return self._before_all.stall_s

    @property
    def dead(self) -> set[int]:
        """The devices that failed and did not return."""
        return {device for device, status in self._away().items() if status != "frozen"}

    @property
    def frozen(self) -> set[int]:
        """The devices that froze and did not thaw."""
        return {device for device, status in self._away().items() if status == "frozen"}

    def _away(self) -> dict[int, str]:
        """Return the devices that are not back, and the status of each."""
        every = [one for incident in self.incidents for one in incident.failures if one.back_in_round is None]
        gone = {one.device: one for one in every if one.device is not None and not one.is_elsewhere}
        return {device: one.status for device, one in gone.items() if not (one.is_only_found and device in self._left)}

    def away_by(self, failure: DeviceFailure) -> list[int]:
        """Return the devices that a failure takes away: of a cut the smaller side, if the two are the whole fleet."""
        if failure.device is not None:
            return [failure.device] * (not failure.is_elsewhere)
        one, other = sides_of(failure.what) or ([], [])
        return min(one, other, key=len) if len(one) + len(other) >= len(self._cluster_of) else []

    def _add(self, record: AnyRecord) -> None:
        match record:
            case RunStarted():
                topology = Topology(record.clusters)
                self.started, self._cluster_of = self.started or record, topology.cluster_of
                self._lead(topology.heads(self._cluster_of))
            case RoundClosed():
                self._close(record)
            case FailureHappened():
                self._fail(record)
            case TakenOver():
                self._take_over(record)
            case Joined() if record.device in self._open:
                self._end(record.device, record.round, record.time_s)
            case RosterChanged() if record.parent in self._inside:
                self._inside[history_of(record)] = self._inside[record.parent]
            case RunEnded():
                self._left = {*record.survivors} if record.device is None else set()
                self.has_stopped |= not record.reason.startswith(("over", "left"))

    @property
    def _rounds_closed(self) -> int:
        return 1 + (self.last_rounds[0].round or 0) if self.last_rounds else 0

    def _lead(self, heads: Sequence[int]) -> None:
        self._heads = {head: self._cluster_of[head] for head in heads if head in self._cluster_of}

    def _close(self, line: RoundClosed) -> None:
        if len(line.included) > 1:  # an isolated device leads nobody
            before = self._inside.get(line.parent)
            self._infer(line, before)
            self._include(line, before)
            self._lead(line.heads)
            self._together = line
        self._inside[history_of(line)] = line.included
        for incident in self.incidents:
            incident.see_round(line)
        round_index, whose = line.round or 0, self.incidents or [self._before_all]
        stalls = next((one.stalls for one in whose if round_index in one.stalls), whose[-1].stalls)
        if line.stall_s > max(NO_STALL_S, stalls[round_index].stall_s if round_index in stalls else 0.0):
            stalls[round_index] = line
        if round_index >= self._rounds_closed:
            self.last_rounds = []
        if round_index + 1 >= self._rounds_closed:
            self.last_rounds.append(line)

    def _infer(self, line: RoundClosed, before: tuple[int, ...] | None) -> None:
        """Infer from a closed round the failures without a record: a device may learn of one only from the round.

        A device that was away itself knows neither the rounds nor the failures of that time.
        """
        if any(one.device is None for one in self._open.values()):
            return  # each side of a cut declares the other one failed
        now: dict[str, Any] = {"time_s": line.time_s, "round": line.round}
        missing = {int(one): MISSED for one, why in line.missing.items() if why == "failed" and one.isdecimal()}
        last = self._together
        if last is not None and before is None and (line.round or 0) > (last.round or 0) + 1:
            off_roster = {*last.included} - {*line.included} - {int(one) for one in line.missing if one.isdecimal()}
            missing |= dict.fromkeys(sorted(off_roster), AFTER_GAP)
        for device, what in missing.items():
            # Before the first round whoever is in the roster is inside.
            if (last is None or self._was_inside(device)) and device not in self._open:
                self._open[device] = self._begin(FailureHappened(device=device, what=what, **now))
        led = {cluster: head for head, cluster in self._heads.items()}
        for head in line.heads:
            cluster = self._cluster_of.get(head, -1)
            previous = led.get(cluster, head)
            if previous != head and previous in self._open:
                self._take_over(TakenOver(device=head, cluster=cluster, previous=previous, **now))

    def _was_inside(self, device: int | None, round_index: int | None = None) -> bool:
        """Return whether a device's samples are in the last round of those who train together, if it is this one."""
        last = self._together
        return last is not None and device in last.included and round_index in (None, last.round)

    def _include(self, line: RoundClosed, before: tuple[int, ...] | None) -> None:
        """Take the devices of a round for present: each that had failed did so after this round, or is back.

        Whoever got a round's model late found a device of it dead before, others after: their folders must say the
        same. Only the closer writes down who joined, but every folder has the rounds without a device and with it.
        """
        for device in line.included:
            failure, round_index = self._open.get(device), line.round or 0
            if failure is None:
                continue
            if failure.is_only_found and failure.round == round_index and not failure.was_put_after:
                failure.round, failure.was_put_after = failure.round + 1, True
                for incident in self.incidents:
                    incident.round = min(one.round for one in incident.failures)
            elif failure.round < round_index + failure.was_put_after:
                if before is None or device not in before or failure.found_by in line.included:
                    self._end(device, line.round, line.time_s)
                failure.is_elsewhere = failure.is_only_found and failure.back_in_round is None

    def _fail(self, line: FailureHappened) -> None:
        what, device = line.what, line.device
        if what.startswith(ENDS):
            self._end(device if device is not None else _sides(what), line.round, line.time_s)
        elif line.by is not None and not what.startswith("did not come back"):
            self._find(line)
        elif device is None:
            self._open[_sides(what)] = self._begin(line)
        elif device not in self._open or self._open[device].what.startswith("frozen"):
            self._open[device] = self._begin(line)
        elif self._open[device].is_only_found and self._open[device].time_s >= line.time_s - NO_STALL_S:
            self._open[device].what = line.what
        # Otherwise its launcher repeats what the device recorded itself before it failed, or it is still away.

    def _find(self, line: FailureHappened) -> None:
        key = _sides(line.what) if line.device is None else line.device
        failure = self._open.get(key)
        if failure is None:
            failure = next((one for one in self._open.values() if one.device is None), None)
        if failure is None:
            # It recorded nothing itself and no launcher watched it: when it failed is not known.
            self._open[key] = failure = self._begin(line)
        elif failure.what in _UNEXPLAINED:
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
            round_index += 1  # the device that recorded it did not know yet that the round was closed
        if not self.incidents or self._rounds_at_incident != self._rounds_closed:
            self.incidents.append(Incident(round_index, line.time_s, before=list(self.last_rounds)))
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


def sides_of(what: str) -> tuple[list[int], list[int]] | None:
    """Return the devices on the two sides of a cut; None, where a record does not say them.

    >>> sides_of("cut 3 | 0,1,2"), sides_of("cut off")
    (([3], [0, 1, 2]), None)
    """
    parts = [[part.strip() for part in side.split(",")] for side in _sides(what).split("|")]
    if len(parts) != 2 or not all(one.isdecimal() for side in parts for one in side):
        return None
    one, other = ([int(part) for part in side] for side in parts)
    return one, other


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


def last_states(history: FailureHistory) -> dict[int, DeviceState]:
    """Return the fleet as the last round left it; empty, where no record tells of a fleet."""
    if history.started is None:
        return {}
    before, last = first_states(history.started), history.last_rounds
    heads = {head for line in last for head in line.heads}
    together = {device for line in last if len(line.included) > 1 for device in line.included}
    alone = {device for line in last for device in line.included} - together

    def state_of(device: int) -> DeviceState:
        if device in history.dead:
            return DeviceState(state="dead")
        if device in history.frozen:
            return DeviceState(state="frozen")
        if device in alone and len(before) > 1:
            return DeviceState(state="alone")
        if not last:
            return before[device]
        if history.has_stopped or device not in together | alone:
            return DeviceState(state="out")
        return DeviceState(is_head=device in heads, is_new=device in heads and not before[device].is_head)

    return {device: state_of(device) for device in before}
