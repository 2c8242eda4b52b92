"""The state of a device in one round: contributions, the mean from upstream, what was sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy

from tolfl.core.contribution import Pending
from tolfl.core.device_set import DeviceSet
from tolfl.protocol.history import Roster
from tolfl.protocol.membership import DeviceRoles, Membership
from tolfl.protocol.messages import Ack, Mean, Offer, Payload


class RoundState:
    """The working state of one round; a new version starts with a new one."""

    __slots__ = (
        "closing",
        "has_taken_over",
        "is_held_back",
        "is_late",
        "judged_bits",
        "offered",
        "own",
        "passed_acked",
        "passed_bits",
        "passed_to",
        "received",
        "received_bits",
        "refused_bits",
        "refused_upstream_bits",
        "reported_acked",
        "reported_to",
        "timer_set",
        "upstream",
        "upstream_means",
        "upstream_missing",
    )

    def __init__(self) -> None:
        self.own: Pending | None = None  #: kept until the round closes (rule 5)
        self.received: dict[int, Pending] = {}  #: by device; as a head, the own one too
        self.received_bits = 0
        self.upstream: Pending | None = None  #: of the upstream means, the one that is used (`choose_upstream`)
        self.upstream_missing: dict[int, str] = {}
        self.upstream_means: dict[int, Mean] = {}  #: by sender, in the order in which they came
        self.judged_bits = 0  #: whose reports were judged; each is judged once
        self.refused_bits = 0  #: whose reports were not admitted: nobody waits for them
        self.refused_upstream_bits = 0  #: who was in upstream means that were not admitted
        self.offered: dict[int, Mean] = {}  #: by sender; upstream means that were not judged yet
        self.is_held_back = False  #: complete, but for somebody who must come in first
        self.is_late = False  #: the deadline for members has passed
        self.timer_set = False
        self.reported_to: int | None = None
        self.reported_acked = False
        self.passed_to: int | None = None
        self.passed_bits = -1  #: whose samples were in the running mean last passed on
        self.passed_acked = False
        self.has_taken_over = False
        #: total, missing and next roster; fixed while the next state is computed: a failure meanwhile is found later
        self.closing: tuple[Pending, dict[int, str], Roster] | None = None

    def collect(self, device: int, contribution: Pending) -> None:
        """Keep a member's contribution; what was received counts, even if its owner dies later (rule 6)."""
        if not (self.received_bits | self.refused_bits) >> device & 1:
            self.received[device] = contribution
            self.received_bits |= 1 << device

    def refuse(self, device: int) -> None:
        """Leave out a member's contribution, unless it has one; nobody waits for it any longer."""
        if not self.received_bits >> device & 1:
            self.refused_bits |= 1 << device

    def offer_upstream(self, mean: Mean) -> None:
        """Keep the last mean of each head upstream."""
        _keep_last(self.upstream_means, mean)

    def choose_upstream(self, roles: DeviceRoles, cluster: int) -> None:
        """Use one upstream mean; two are never merged (rule 6).

        One that covers every device that is waited for comes before one that does not, then the one with most included,
        then the later one: the mean of a head that has failed, and was perhaps wrong, must not stand in the way.
        """
        waiting = roles.earlier.get(cluster, 0) & ~self.refused_upstream_bits
        best = (-1, -1)
        for mean in self.upstream_means.values():
            included = mean.total.included.bits
            is_whole = not waiting & ~(included | DeviceSet.of(mean.missing).bits)
            if (rank := (int(is_whole), included.bit_count())) >= best:
                best, self.upstream, self.upstream_missing = rank, mean.total, mean.missing

    def keep_offered(self, mean: Mean) -> None:
        """Keep the last mean of each head upstream until it is judged."""
        _keep_last(self.offered, mean)

    def judge_reports(self, head: int, is_admitted: Callable[[Pending], bool]) -> None:
        """Drop the reports that are not admitted; a head does not judge its own."""
        for device in sorted(self.received):
            bit = 1 << device
            if device == head or self.judged_bits & bit:
                continue
            self.judged_bits |= bit
            if not is_admitted(self.received[device]):
                del self.received[device]
                self.received_bits &= ~bit
                self.refused_bits |= bit

    def judge_upstream(
        self, roles: DeviceRoles, cluster_of: Mapping[int, int], is_admitted: Callable[[Pending], bool]
    ) -> None:
        """Take up the means that are admitted; of those that are not, nobody is waited for any longer."""
        offered, self.offered = self.offered, {}
        for sender, mean in offered.items():
            if is_admitted(mean.total):
                self.offer_upstream(mean)
            else:
                # A head covers only clusters up to its own: others' means may still come.
                self.refused_upstream_bits |= mean.total.included.bits & roles.so_far[cluster_of[sender]]

    def has(self, offer: Offer) -> bool:
        """Return whether what is offered is here already, or something better."""
        if offer.what is Payload.REPORT:
            return bool((self.received_bits | self.refused_bits) >> offer.sender & 1)
        kept = (means.get(offer.sender) for means in (self.offered, self.upstream_means))
        return any(mean is not None and not offer.included - mean.total.included for mean in kept)

    def is_complete(self, roles: DeviceRoles, cluster: int) -> bool:
        """Return whether a head has a report of everybody it must wait for (rule 6)."""
        if not self.is_late and roles.members[cluster] & ~(self.received_bits | self.refused_bits):
            return False
        waiting = roles.earlier[cluster] & ~self.refused_upstream_bits
        if self.upstream is not None:
            waiting &= ~self.upstream.included.bits
        if not waiting:
            return True
        return not waiting & ~DeviceSet.of(self.upstream_missing).bits

    def included_bits(self) -> int:
        """Return whose samples the running mean has inside."""
        return self.received_bits | (self.upstream.included.bits if self.upstream is not None else 0)

    def n_samples(self) -> int:
        """Return how many samples the running mean has inside."""
        counts = [contribution.n_samples for contribution in self.received.values()]
        return sum(counts) + (self.upstream.n_samples if self.upstream is not None else 0)

    def running_mean(self, merge: Callable[[Pending | None, Sequence[Pending]], Pending]) -> Pending:
        """Append the cluster to the chain, device by device in id order: never in arrival order, never as a block.

        So the devices of contiguous clusters are added in one and the same order, whatever the layout. (A robust rule
        does make a block of the cluster; then the layout matters.)
        """
        return merge(self.upstream, [self.received[device] for device in sorted(self.received)])

    def acknowledge(self, ack: Ack) -> None:
        """Note that a payload has arrived where it was owed."""
        if ack.what is Payload.REPORT:
            self.reported_acked |= ack.sender == self.reported_to
        elif ack.sender == self.passed_to and ack.included.bits == self.passed_bits:
            self.passed_acked = True

    def missing(self, fleet: Membership) -> dict[int, str]:
        """Return who of the clusters so far is not in the mean, and why: failed, left, dropped, refused or late."""
        gone = fleet.roster.devices.bits & ~fleet.roles.live.bits
        absent = DeviceSet((fleet.roles.so_far[fleet.cluster] | gone) & ~self.included_bits())
        return {device: self._why_missing(device, fleet) for device in absent}

    def _why_missing(self, device: int, fleet: Membership) -> str:
        if (self.refused_bits | self.refused_upstream_bits) >> device & 1:
            return "refused"
        # The report of a failure may overtake the leave message that another head has.
        upstream = self.upstream_missing.get(device, "late")
        return upstream if upstream == "left" else fleet.why_missing(device) or upstream

    def clone(self) -> RoundState:
        """Return an independent copy; what it holds is immutable and shared."""
        other = copy(self)
        other.received, other.offered = dict(self.received), dict(self.offered)
        other.upstream_means = dict(self.upstream_means)
        return other


def _keep_last(means: dict[int, Mean], mean: Mean) -> None:
    """Keep the last mean of its sender, and last in order; one that only lacks devices was overtaken on its way."""
    known = means.get(mean.sender)
    if known is None or not known.total.included - mean.total.included or mean.total.included - known.total.included:
        means.pop(mean.sender, None)
        means[mean.sender] = mean
