"""Placeholders for arrays in a simulation: updates and states that are computed later.

Nothing that the protocol does depends on the numbers inside a contribution, only on whose samples they are. So the
devices exchange placeholders, and the numbers are computed afterwards: only those that count, all that can be computed
together as one batch, and from a checkpoint none that are known already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tolfl.core.contribution import Contribution
from tolfl.core.deferred_sum import DeferredSum
from tolfl.core.device_set import DeviceSet
from tolfl.learners.learner import Account, State
from tolfl.protocol.events import Apply
from tolfl.protocol.history import Version


class DeferredUpdate:
    """A device's contribution to a round, not computed yet."""

    __slots__ = ("device", "included", "n_samples", "producer", "value")

    def __init__(self, device: int, included: DeviceSet, n_samples: int) -> None:
        self.device, self.included, self.n_samples = device, included, n_samples
        self.value: Contribution | None = None
        self.producer: Callable[[DeferredUpdate], None] | None = None  #: sets `value`; known once the update counts

    def resolve(self) -> Contribution:
        """Return the contribution and forget it: it can be trained again, and 10,000 would not fit into memory."""
        if self.value is None and self.producer is not None:
            self.producer(self)
        if self.value is None:
            raise LookupError(f"nobody can compute the contribution of device {self.device}")
        value, self.value = self.value, None
        return value


@dataclass(frozen=True, eq=False, slots=True)
class DeferredFleet:
    """The contributions of a whole fleet, not computed yet and never all at once: devices in merge order."""

    devices: tuple[int, ...]
    included: DeviceSet
    n_samples: int

    def resolve(self) -> Contribution:
        """Refuse: it is computed in pieces, by the batch trainer."""
        raise LookupError(f"the contributions of {len(self.devices)} devices are added up by the batch trainer")


@dataclass(eq=False, slots=True, weakref_slot=True)
class DeferredState:
    """The state that a closed round leads to; the very first has no parent."""

    version: Version | None  #: that the round started from
    parent: DeferredState | None
    total: DeferredSum | DeferredFleet | None
    present: DeviceSet = field(default_factory=DeviceSet)  #: who goes on from here
    state: State | None = None  #: None: not computed yet, or not kept in a checkpoint
    account: Account = field(default_factory=Account)
    is_done: bool = field(default=False)

    def finish(self, state: State | None, account: Account) -> None:
        """Keep the result and let go of what led to it."""
        self.state, self.account, self.is_done = state, account, True
        self.parent = self.total = None


def updates_of(total: DeferredSum) -> list[DeferredUpdate]:
    """Return the devices' own contributions inside a sum, in merge order."""
    return [leaf for leaf in total.leaves() if isinstance(leaf, DeferredUpdate)]


def apply(effect: Apply) -> DeferredState:
    """Return the state after a round, not computed yet."""
    assert isinstance(effect.state, DeferredState)
    assert isinstance(effect.total, DeferredSum)
    return DeferredState(effect.version, effect.state, effect.total, effect.present)
