"""The story of a run's failures, from its records: what failed when, who noticed, who took over, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tolfl.core.records import AnyRecord, FailureHappened, Joined, RoundClosed, RunStarted, TakenOver
from tolfl.core.topology import Topology

#: Less than this is rounding in a sum of virtual times, and nothing that a person would call a stall.
_NO_STALL_S = 1e-6


@dataclass
class Casualty:
    """One device that died or froze, or one link that was cut."""

    device: int | None  #: None: a cut, which is between devices
    what: str
    time_s: float
    round: int
    found_after_s: float | None = None
    found_by: int | None = None
    found_how: str = ""
    back_in_round: int | None = None  #: it came back, thawed or healed
    head_of: int | None = None  #: the cluster that it led

    @property
    def name(self) -> str:
        """Whom it hit."""
        return "the link" if self.device is None else f"device {self.device}"

    @property
    def is_only_found(self) -> bool:
        """Whether nothing is known of it but that others found it dead."""
        return self.found_by is not None and self.found_after_s is None


@dataclass
class Incident:
    """What failed between two closed rounds, and what came of it."""

    round: int
    time_s: float
    casualties: list[Casualty] = field(default_factory=list)
    takeovers: list[TakenOver] = field(default_factory=list)
    stall_s: float = 0.0
    samples_before: int | None = None  #: in the last model before it
    samples_after: int | None = None  #: in the first model without those who failed; None: no round closed after it
    models_after: int = 1  #: devices may go on in several histories

    @property
    def devices(self) -> list[int]:
        """Who failed."""
        return sorted({one.device for one in self.casualties if one.device is not None})

    @property
    def samples_lost(self) -> int | None:
        """How many samples are no longer in a model; None where that cannot be told."""
        if self.samples_before is None or self.samples_after is None:
            return None
        return max(0, self.samples_before - self.samples_after)


@dataclass(frozen=True)
class FailureStory:
    """All incidents of a run in the order of time, and the seconds that no failure explains."""

    incidents: Sequence[Incident]
    unexplained_stall_s: float = 0.0

    @property
    def stall_s(self) -> float:
        """Seconds that failures held up the training."""
        return sum(incident.stall_s for incident in self.incidents)

    @property
    def dead(self) -> set[int]:
        """Who died and did not return."""
        lost = [one for incident in self.incidents for one in incident.casualties if one.back_in_round is None]
        return {one.device for one in lost if one.device is not None and not one.what.startswith("frozen")}

    @property
    def frozen(self) -> set[int]:
        """Who froze and did not thaw."""
        lost = [one for incident in self.incidents for one in incident.casualties if one.back_in_round is None]
        return {one.device for one in lost if one.device is not None and one.what.startswith("frozen")} - self.dead


def story_of(records: Sequence[AnyRecord]) -> FailureStory:
    """Return what happened to the devices of a run.

    >>> died = FailureHappened(time_s=4.0, device=0, round=2, what="died (train)")
    >>> found = FailureHappened(time_s=4.5, device=0, round=2, what="found dead: connection refused", by=3)
    >>> story_of([died, found]).incidents[0].casualties[0].found_after_s
    0.5
    """
    teller = _Teller()
    for record in records:
        teller.hear(record)
    closed = [record for record in records if isinstance(record, RoundClosed)]
    for incident in teller.incidents:
        _count_samples(incident, closed)
    return FailureStory(teller.incidents, _spread_stalls(teller.incidents, closed))


class _Teller:
    """Hears lines one after the other and keeps what is still open."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self._open: dict[int | str, Casualty] = {}  #: by device, or by the two sides of a cut
        self._heads: dict[int, int] = {}  #: heads, and the cluster of each
        self._cluster_of: dict[int, int] = {}
        self._rounds_closed = 0
        self._rounds_at_incident = -1

    def hear(self, record: AnyRecord) -> None:
        match record:
            case RunStarted():
                topology = Topology(record.clusters)
                self._cluster_of = topology.cluster_of
                self._lead(topology.heads(self._cluster_of))
            case RoundClosed():
                self._rounds_closed = max(self._rounds_closed, 1 + (record.round or 0))
                if len(record.included) > 1:  # a device that goes on alone leads nobody
                    self._lead(record.heads)
            case FailureHappened():
                self._hear_failure(record)
            case TakenOver():
                self._hear_takeover(record)
            case Joined() if record.device in self._open:
                self._end(record.device, record.round)

    def _lead(self, heads: Sequence[int]) -> None:
        self._heads = {head: self._cluster_of[head] for head in heads if head in self._cluster_of}

    def _hear_failure(self, line: FailureHappened) -> None:
        what, device = line.what, line.device
        if what.startswith(("healed", "thawed", "came back")):
            self._end(device if device is not None else _sides(what), line.round)
        elif line.by is not None and not what.startswith("did not come back"):
            self._hear_finding(line)
        elif device is None:
            self._open[_sides(what)] = self._begin(line)
        elif device not in self._open or self._open[device].what.startswith("frozen"):
            self._open[device] = self._begin(line)
        # Otherwise its launcher says once more what the device said itself before it died, or it is still away.

    def _hear_finding(self, line: FailureHappened) -> None:
        key = _sides(line.what) if line.device is None else line.device
        casualty = self._open.get(key)
        if casualty is None:
            casualty = next((one for one in self._open.values() if one.device is None), None)
        if casualty is None:
            # It says nothing itself and nobody watched it: when it fell silent is not known.
            self._open[key] = casualty = self._begin(line)
        elif casualty.found_after_s is None:
            casualty.found_after_s = max(0.0, line.time_s - casualty.time_s)
        if casualty.found_by is None:
            casualty.found_by, casualty.found_how = line.by, line.what.removeprefix("found dead: ")

    def _hear_takeover(self, line: TakenOver) -> None:
        hit = [incident for incident in self.incidents if line.previous in incident.devices] or self.incidents
        if hit and not any(_is_same(line, other) for other in hit[-1].takeovers):
            hit[-1].takeovers.append(line)

    def _begin(self, line: FailureHappened) -> Casualty:
        round_index = self._rounds_closed if line.round is None else line.round
        if not self.incidents or self._rounds_at_incident != self._rounds_closed:
            self.incidents.append(Incident(round_index, line.time_s))
            self._rounds_at_incident = self._rounds_closed
        head_of = None if line.device is None else self._heads.get(line.device)
        casualty = Casualty(line.device, line.what, line.time_s, round_index, head_of=head_of)
        self.incidents[-1].casualties.append(casualty)
        return casualty

    def _end(self, key: int | str | None, round_index: int | None) -> None:
        casualty = None if key is None else self._open.pop(key, None)
        if casualty is not None:
            casualty.back_in_round = self._rounds_closed if round_index is None else round_index


def _sides(what: str) -> str:
    return what.partition(" ")[2]


def _is_same(one: TakenOver, other: TakenOver) -> bool:
    return (one.device, one.cluster, one.previous) == (other.device, other.cluster, other.previous)


def _count_samples(incident: Incident, closed: Sequence[RoundClosed]) -> None:
    before = [line for line in closed if line.time_s <= incident.time_s]
    failed = set(incident.devices)
    after = [line for line in closed if line.time_s > incident.time_s and failed.isdisjoint(line.included)]
    if before:
        newest = max(line.round or 0 for line in before)
        incident.samples_before = max(line.n_samples for line in before if (line.round or 0) == newest)
    if after:
        # Where each goes on alone, or a cut keeps two sides apart, several close the round: the largest is told.
        same_round = [line for line in after if line.round == after[0].round]
        incident.samples_after = max(line.n_samples for line in same_round)
        incident.models_after = len({line.included for line in same_round})


def _spread_stalls(incidents: Sequence[Incident], closed: Sequence[RoundClosed]) -> float:
    """Give each round's stall to the newest incident before its end; return what is left over."""
    stalls: dict[tuple[int, int], float] = {}  #: devices that go on alone wait at the same time, not one by one
    for line in closed:
        place = sum(incident.time_s <= line.time_s for incident in incidents) - 1
        key = place, line.round or 0
        stalls[key] = max(stalls.get(key, 0.0), line.stall_s)
    unexplained = 0.0
    for (place, _), stall_s in stalls.items():
        if stall_s > _NO_STALL_S and place >= 0:
            incidents[place].stall_s += stall_s
        elif stall_s > _NO_STALL_S:
            unexplained += stall_s
    return unexplained
