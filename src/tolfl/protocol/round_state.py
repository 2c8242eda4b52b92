"""What a device has in hand in the round of one version: contributions, the mean from upstream, what was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

from tolfl.core.contribution import Pending
from tolfl.core.device_set import DeviceSet
from tolfl.protocol.history import Roster
from tolfl.protocol.membership import Membership, Roles
from tolfl.protocol.messages import Ack, Mean, Offer, Payload


class RoundState:
    """The working state of one round; a new version starts with a new one."""

    __slots__ = (
        "closing",
        "has_taken_over",
        "is_late",
        "own",
        "passed_acked",
        "passed_bits",
        "passed_to",
        "received",
        "received_bits",
        "reported_acked",
        "reported_to",
        "timer_set",
        "upstream",
        "upstream_missing",
    )

    def __init__(self) -> None:
        self.own: Pending | None = None  #: kept until the round closes (rule 5)
        self.received: dict[int, Pending] = {}  #: by device; as a head, the own one too
        self.received_bits = 0
        self.upstream: Pending | None = None
        self.upstream_missing: dict[int, str] = {}
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
        if not self.received_bits >> device & 1:
            self.received[device] = contribution
            self.received_bits |= 1 << device

    def offer_upstream(self, mean: Mean) -> None:
        """Keep the upstream mean with most included; two are never merged (rule 6)."""
        if self.upstream is None or len(mean.total.included) > len(self.upstream.included):
            self.upstream, self.upstream_missing = mean.total, mean.missing

    def has(self, offer: Offer) -> bool:
        """Tell whether what is offered is here already, or something better."""
        if offer.what is Payload.REPORT:
            return bool(self.received_bits >> offer.sender & 1)
        return self.upstream is not None and len(self.upstream.included) >= len(offer.included)

    def is_complete(self, roles: Roles, cluster: int) -> bool:
        """Tell whether a head has heard of everybody it must wait for (rule 6)."""
        if not self.is_late and roles.members[cluster] & ~self.received_bits:
            return False
        waiting = roles.earlier[cluster]
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
        """Return who of the clusters so far is not in the mean, and why: failed, left, dropped or late."""
        gone = fleet.roster.devices.bits & ~fleet.roles.live.bits
        absent = DeviceSet((fleet.roles.so_far[fleet.cluster] | gone) & ~self.included_bits())
        return {device: self._why_missing(device, fleet) for device in absent}

    def _why_missing(self, device: int, fleet: Membership) -> str:
        # Word of a death may overtake the goodbye that another head has heard.
        upstream = self.upstream_missing.get(device, "late")
        return upstream if upstream == "left" else fleet.why_missing(device) or upstream

    def clone(self) -> RoundState:
        """Return an independent copy; what it holds is immutable and shared."""
        other = copy(self)
        other.received = dict(self.received)
        return other
