"""Undisturbed runs in closed form: when each round closes follows from training and link times, without any event.

Nobody fails, no link is cut and no deadline passes: then a device starts when the newest record reaches it, a member
reports to its head, a head passes the sum on once it has heard of everybody, and the last one closes the round. The
record lines, the ledger and the clock are those of the event player (`timeline`), to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from tolfl.core.failures import FailurePlan
from tolfl.core.records import AnyRecord, RunEnded
from tolfl.core.spec import LinkModel
from tolfl.protocol.history import ClosedRound, Roster
from tolfl.protocol.record_lines import roster_line
from tolfl.runs.ledger import Ledger
from tolfl.sim.deferred import DeferredFleet, DeferredState
from tolfl.sim.timeline import CONTROL_BYTES, ClosedStep, EndState, World


def is_quiet(world: World, plan: FailurePlan) -> bool:
    """Tell whether a run can be played without events: nothing happens in it but rounds."""
    rules = world.rules
    return (
        not plan.failures
        and not plan.cuts
        and not rules.has_deadline
        and rules.admits is None
        and not world.has_defence
        and not world.is_one_machine
        and rules.min_devices <= rules.topology.n_devices
        and rules.min_samples <= sum(world.n_samples)
    )


class QuietTimeline:
    """One undisturbed run of the protocol in virtual time."""

    def __init__(self, world: World, first: DeferredState) -> None:
        self.world = world
        topology = world.rules.topology
        self.ledger = Ledger(topology, world.scheme)
        self._roster = Roster(dict.fromkeys(sorted(topology.cluster_of), 0))
        self._record = ClosedRound.first(self._roster, first)
        self._heads = tuple(cluster[0] for cluster in topology.clusters)
        self._in_merge_order = tuple(chain.from_iterable(sorted(cluster) for cluster in topology.clusters))
        self._train_s = [
            ([world.train_s[device] for device in cluster[1:]], world.train_s[cluster[0]])
            for cluster in topology.clusters
        ]

    def play(self) -> Iterator[AnyRecord | ClosedStep]:
        """Yield what happens, in order."""
        world, links = self.world, self.world.links
        n_devices, closer = self.world.rules.topology.n_devices, self._heads[-1]
        # When each head and, with it, its members start: everybody at once in the first round.
        head_starts = [0.0] * len(self._heads)
        member_starts = list(head_starts)
        last: ClosedStep | None = None
        for round_index in range(world.rules.rounds):
            up, down = world.nbytes[round_index]
            now = self._closes(head_starts, member_starts, up)
            parent = self._record.version.history
            self.ledger.add_quiet_round(parent, round_index, up, down)
            self.ledger.control_messages += n_devices - 1  # each report and each sum is acknowledged
            self.ledger.control_bytes += (n_devices - 1) * CONTROL_BYTES
            state = self._next_state()
            assert isinstance(state.total, DeferredFleet)
            self._record = self._record.after(state.total, {}, self._roster, state)
            if last is not None:
                last.settle()
            last = ClosedStep(state, self._record, now, closer, self._heads, 0.0, self.ledger, world.counted)
            yield last
            head_starts, member_starts = _starts(now, len(self._heads), down, links)
        if last is not None:
            last.settle()
        yield from self._end(head_starts, member_starts)

    def _next_state(self) -> DeferredState:
        """Return the state after the round that everybody is in, not computed yet."""
        before = self._record.state
        assert isinstance(before, DeferredState)
        total = DeferredFleet(self._in_merge_order, self._roster.devices, sum(self.world.n_samples))
        return DeferredState(self._record.version, before, total, self._roster.devices)

    def _closes(self, head_starts: Sequence[float], member_starts: Sequence[float], n_bytes: int) -> float:
        """Return when the last head has heard of everybody."""
        upstream_s: float | None = None
        for place, (member_train_s, head_train_s) in enumerate(self._train_s):
            sent = sorted([member_starts[place] + train_s for train_s in member_train_s])
            if upstream_s is not None:
                sent = sorted([*sent, upstream_s])
            complete_s = head_starts[place] + head_train_s
            upstream_s = max(complete_s, _last_arrival(sent, n_bytes, self.world.links)) if sent else complete_s
        assert upstream_s is not None
        return upstream_s

    def _end(self, head_starts: Sequence[float], member_starts: Sequence[float]) -> Iterator[AnyRecord]:
        """Yield the last lines: everybody says that it holds the last model, in small messages, and hears the end."""
        links, topology = self.world.links, self.world.rules.topology
        n_devices = topology.n_devices
        upstream_s: float | None = None
        for place, cluster in enumerate(topology.clusters):
            complete_s = head_starts[place]
            if len(cluster) > 1:
                complete_s = max(complete_s, _arrival(member_starts[place], CONTROL_BYTES, links))
            if upstream_s is not None:
                complete_s = max(complete_s, _arrival(upstream_s, CONTROL_BYTES, links))
            upstream_s = complete_s
        assert upstream_s is not None
        now = upstream_s
        # Reports and sums, their acknowledgements, and the record of the end.
        self.ledger.control_messages += 3 * (n_devices - 1)
        self.ledger.control_bytes += 3 * (n_devices - 1) * CONTROL_BYTES
        self._record = self._record.with_roster(self._roster, is_over=True)
        yield roster_line(self._record, now, self._heads[-1])
        if n_devices > 1:
            last_s = _arrival(now, CONTROL_BYTES, links)
            if any(len(cluster) > 1 for cluster in topology.clusters[:-1]):
                last_s = _arrival(last_s, CONTROL_BYTES, links)
            now = last_s
        yield RunEnded(time_s=now, reason="over", survivors=tuple(self._roster.incarnations))

    def ends(self) -> list[EndState]:
        """Return what the devices hold in the end: all of them the same."""
        return [EndState(device, self._record, False, "over") for device in self._roster.incarnations]


def _starts(closed_s: float, n_heads: int, n_bytes: int, links: LinkModel) -> tuple[list[float], list[float]]:
    """Return when the new record reaches the heads and their members; the closer is the last head."""
    to_heads = _arrival(closed_s, n_bytes, links)
    head_starts = [*[to_heads] * (n_heads - 1), closed_s]
    return head_starts, [_arrival(start, n_bytes, links) for start in head_starts]


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
