"""Failure-free rounds in closed form: when each closes follows from training and link times, without any event.

Nobody fails, no link is cut and no deadline passes: then a device starts when the newest record reaches it, a member
reports to its head, a head passes the sum on once it has the report of everybody, and the last one closes the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tolfl.core.spec import LinkModel
from tolfl.protocol.history import Roster
from tolfl.sim.deferred import DeferredFleet
from tolfl.sim.world import CONTROL_BYTES, World


def has_closed_form(world: World) -> bool:
    """Return whether rounds in which nobody fails need no events."""
    rules = world.rules
    return (
        not rules.has_deadline
        and not world.has_defence
        and not world.is_one_machine
        and max(world.n_samples) * rules.topology.n_devices <= rules.max_work
    )


def spreads_within(world: World, seconds: float) -> bool:
    """Return whether a new record is with everybody within a time, from the closer to the heads and on to members."""
    largest = max(down for _, down in world.nbytes)
    return _arrival(_arrival(0.0, largest, world.links), largest, world.links) < seconds


class QuietFleet:
    """The devices of a roster in failure-free rounds: who is where in the chain, and when what they send is there."""

    def __init__(self, world: World, roster: Roster) -> None:
        self._links, incarnations = world.links, roster.incarnations
        present = (
            tuple(device for device in cluster if device in incarnations) for cluster in world.rules.topology.clusters
        )
        self.clusters = tuple(filter(None, present))
        self.heads = tuple(cluster[0] for cluster in self.clusters)
        in_merge_order = tuple(chain.from_iterable(sorted(cluster) for cluster in self.clusters))
        self.total = DeferredFleet(in_merge_order, roster.devices, sum(world.n_samples[one] for one in incarnations))
        self._train_s = [
            ([world.train_s[device] for device in cluster[1:]], world.train_s[cluster[0]]) for cluster in self.clusters
        ]
        # When each head and, with it, its members start: everybody at once in the first round.
        self._head_starts = [0.0] * len(self.heads)
        self._member_starts = list(self._head_starts)

    def closes(self, n_bytes: int) -> float:
        """Return when the last head has all reports; a contribution has so many bytes."""
        upstream_s: float | None = None
        for place, (member_train_s, head_train_s) in enumerate(self._train_s):
            sent = sorted([self._member_starts[place] + train_s for train_s in member_train_s])
            if upstream_s is not None:
                sent = sorted([*sent, upstream_s])
            complete_s = self._head_starts[place] + head_train_s
            upstream_s = max(complete_s, _last_arrival(sent, n_bytes, self._links)) if sent else complete_s
        assert upstream_s is not None
        return upstream_s

    def distribute(self, closed_s: float, n_bytes: int) -> None:
        """Let everybody start when the new record reaches it: the heads from the last one, members from their head."""
        to_heads = _arrival(closed_s, n_bytes, self._links)
        self._head_starts = [*[to_heads] * (len(self.heads) - 1), closed_s]
        self._member_starts = [_arrival(start, n_bytes, self._links) for start in self._head_starts]

    def ends(self) -> tuple[float, float]:
        """Return when the last head knows that everybody holds the last model, and when the last device knows."""
        upstream_s: float | None = None
        for place, cluster in enumerate(self.clusters):
            complete_s = self._head_starts[place]
            if len(cluster) > 1:
                complete_s = max(complete_s, _arrival(self._member_starts[place], CONTROL_BYTES, self._links))
            if upstream_s is not None:
                complete_s = max(complete_s, _arrival(upstream_s, CONTROL_BYTES, self._links))
            upstream_s = complete_s
        assert upstream_s is not None
        if len(self.total.devices) == 1:
            return upstream_s, upstream_s
        last_s = _arrival(upstream_s, CONTROL_BYTES, self._links)
        if any(len(cluster) > 1 for cluster in self.clusters[:-1]):
            last_s = _arrival(last_s, CONTROL_BYTES, self._links)
        return upstream_s, last_s


def quiet_durations(world: World, roster: Roster) -> tuple[float, float]:
    """Return how long the first and any later round of a roster last when nothing happens."""
    fleet, ((up, down), *later) = QuietFleet(world, roster), world.nbytes[: world.rules.rounds]
    first_s = fleet.closes(up)
    if not later:
        return first_s, first_s
    fleet.distribute(first_s, down)
    return first_s, fleet.closes(later[0][0]) - first_s


def _arrival(sent_s: float, n_bytes: int, links: LinkModel) -> float:
    return sent_s + n_bytes * 8 / links.bandwidth_bps + links.latency_s


def _last_arrival(sent: Sequence[float], n_bytes: int, links: LinkModel) -> float:
    """Return when the last of some models, sorted by when they were sent, is with one receiver."""
    if links.uplink == "parallel":
        return _arrival(sent[-1], n_bytes, links)
    transfer_s, free_s = n_bytes * 8 / links.bandwidth_bps, 0.0
    for sent_s in sent:
        # One model at a time; no builtin: this line runs for every device.
        free_s = (sent_s if sent_s > free_s else free_s) + transfer_s
    return free_s + links.latency_s
