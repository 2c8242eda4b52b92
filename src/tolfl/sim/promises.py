"""Promises: what travels in a simulation in place of arrays.

Nothing that the protocol does depends on the numbers inside a contribution, only on whose samples they are. So the
devices exchange promises, and the numbers are computed afterwards: only those that count, all that can be computed
together as one batch, and from a checkpoint none that are known already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tolfl.core.contribution import Contribution, Pending
from tolfl.core.defence import combine, counted
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import DefenceSpec
from tolfl.learners.learner import Account, State
from tolfl.protocol.history import Version


class Share:
    """A device's contribution to the round of a version."""

    __slots__ = ("device", "included", "n_samples", "producer", "value")

    def __init__(self, device: int, included: DeviceSet, n_samples: int) -> None:
        self.device, self.included, self.n_samples = device, included, n_samples
        self.value: Contribution | None = None
        self.producer: Callable[[Share], None] | None = None  #: sets `value`; known once the share counts

    def resolve(self) -> Contribution:
        """Return the contribution and forget it: it can be trained again, and 10,000 would not fit into memory."""
        if self.value is None and self.producer is not None:
            self.producer(self)
        if self.value is None:
            raise LookupError(f"nobody can compute the contribution of device {self.device}")
        value, self.value = self.value, None
        return value


class Sum:
    """The merged contribution of several devices: the chain so far, and a cluster that was appended to it."""

    __slots__ = ("defence", "included", "n_samples", "parts", "upstream")

    def __init__(
        self, upstream: Pending | None, cluster: Sequence[Pending], defence: DefenceSpec | None = None
    ) -> None:
        self.upstream, self.defence = upstream, defence
        self.parts = tuple(cluster) if upstream is None else (upstream, *cluster)
        bits = n_samples = 0
        for part in self.parts:
            bits |= part.included.bits
            n_samples += part.n_samples if defence is None else counted(defence, part.n_samples, len(part.included))
        self.included, self.n_samples = DeviceSet(bits), n_samples

    def resolve(self) -> Contribution:
        """Merge now, device by device in the order in which the devices merged; under a defence hop by hop."""
        if self.defence is None:
            return Contribution.total(self.leaves())
        hops, at = [self], self.upstream
        while isinstance(at, Sum):
            hops.append(at)
            at = at.upstream
        total = None if at is None else at.resolve()
        for hop in reversed(hops):
            total = combine(self.defence, total, [device.resolve() for device in hop.cluster])
        return total or Contribution.empty()

    @property
    def cluster(self) -> tuple[Pending, ...]:
        """The devices of the last hop."""
        return self.parts if self.upstream is None else self.parts[1:]

    def leaves(self) -> list[Pending]:
        """Return the contributions inside, in merge order. A chain of 10,000 heads is 10,000 deep: no recursion."""
        found: list[Pending] = []
        stack: list[Pending] = [self]
        while stack:
            part = stack.pop()
            if isinstance(part, Sum):
                stack.extend(reversed(part.parts))
            else:
                found.append(part)
        return found

    def shares(self) -> list[Share]:
        """Return the devices' own contributions inside, in merge order."""
        return [leaf for leaf in self.leaves() if isinstance(leaf, Share)]


@dataclass(eq=False, slots=True, weakref_slot=True)
class Step:
    """The state that a closed round leads to; the very first has no parent."""

    version: Version | None  #: that the round started from
    parent: Step | None
    total: Sum | None
    present: DeviceSet = field(default_factory=DeviceSet)  #: who goes on from here
    state: State | None = None  #: None: not computed yet, or not kept in a checkpoint
    account: Account = field(default_factory=Account)
    is_done: bool = field(default=False)

    def finish(self, state: State | None, account: Account) -> None:
        """Keep the result and let go of what led to it."""
        self.state, self.account, self.is_done = state, account, True
        self.parent = self.total = None


def merge(upstream: Pending | None, cluster: Sequence[Pending]) -> Pending:
    """Promise the sum of promises."""
    return Sum(upstream, cluster)


def merge_under(defence: DefenceSpec) -> Callable[[Pending | None, Sequence[Pending]], Pending]:
    """Return how promises are merged under a defence."""
    if not defence.is_on:
        return merge
    return lambda upstream, cluster: Sum(upstream, cluster, defence)


def apply(models: object, total: Pending, version: Version, present: DeviceSet) -> object:
    """Promise the models after a round."""
    assert isinstance(models, Step)
    assert isinstance(total, Sum)
    return Step(version, models, total, present)
