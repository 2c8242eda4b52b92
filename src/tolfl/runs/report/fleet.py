"""Who stood where: the fleet before the first round, and as the last rounds show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tolfl.core.records import AnyRecord, RoundClosed, RunEnded, RunStarted
from tolfl.core.topology import Topology
from tolfl.runs.report.story import FailureStory
from tolfl.runs.report.topology import Mark

LEGEND = (
    "Boxes are clusters; filled: a head, with a ring if it took over; arrows: the chain of heads; crossed out: dead; "
    "amber: goes on alone; broken outline: lives, but its samples are not in the last round."
)


@dataclass(frozen=True)
class FleetMarks:
    """Clusters in chain order, and how each device stands."""

    clusters: tuple[tuple[int, ...], ...]
    marks: dict[int, Mark]


def fleet_before(records: Sequence[AnyRecord]) -> FleetMarks | None:
    """Return the fleet as it was laid out; None where no line tells of one."""
    started = next((line for line in records if isinstance(line, RunStarted)), None)
    if started is None:
        return None
    everybody = [device for cluster in started.clusters for device in cluster]
    heads = set(Topology(started.clusters).heads(everybody))
    return FleetMarks(started.clusters, {device: Mark(is_head=device in heads) for device in everybody})


def fleet_after(records: Sequence[AnyRecord], story: FailureStory) -> FleetMarks:
    """Return the fleet as the last round left it."""
    before = fleet_before(records)
    if before is None:
        return FleetMarks((), {})
    last = _last_rounds(records)
    heads = {head for line in last for head in line.heads}
    together = {device for line in last if len(line.included) > 1 for device in line.included}
    alone = {device for line in last if len(line.included) == 1 for device in line.included} - together
    has_stopped = _has_stopped(records)

    def mark(device: int) -> Mark:
        was_head = before.marks[device].is_head
        if device in story.dead:
            return Mark(is_head=False, state="dead")
        if device in story.frozen:
            return Mark(is_head=False, state="frozen")
        if device in alone and len(before.marks) > 1:
            return Mark(state="alone")
        if not last:
            return before.marks[device]
        if has_stopped or device not in together | alone:
            return Mark(state="out")
        return Mark(is_head=device in heads, is_new=device in heads and not was_head)

    return FleetMarks(before.clusters, {device: mark(device) for device in before.marks})


def _last_rounds(records: Sequence[AnyRecord]) -> list[RoundClosed]:
    """Return the lines that closed the last round: several where devices go on apart from each other."""
    closed = [line for line in records if isinstance(line, RoundClosed)]
    newest = max((line.round or 0 for line in closed), default=0)
    return [line for line in closed if (line.round or 0) == newest]


def _has_stopped(records: Sequence[AnyRecord]) -> bool:
    """Tell whether the run ended before its time: those who live have nobody to train with."""
    return any(isinstance(line, RunEnded) and not line.reason.startswith("over") for line in records)
