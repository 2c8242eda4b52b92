"""Deferred sums: contributions that are added up only when their sum is needed.

The protocol decides by whose samples are included, never by the numbers. So it passes on a handle: the simulator
computes only the sums that count, and a device on a network adds up arrays in the thread that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tolfl.core.contribution import Contribution, Pending
from tolfl.core.defence import combine, counted
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import DefenceSpec


class DeferredSum:
    """The merged contribution of several devices: the chain so far, and a cluster that was appended to it."""

    __slots__ = ("defence", "included", "n_samples", "parts", "upstream")

    def __init__(
        self, upstream: Pending | None, cluster: Sequence[Pending], defence: DefenceSpec | None = None
    ) -> None:
        self.upstream, self.defence = upstream, defence
        self.parts = tuple(cluster) if upstream is None else (upstream, *cluster)
        included, n_samples = DeviceSet(), 0
        for n_parts, part in enumerate(self.parts):
            included = included | part.included if n_parts else part.included
            n_samples += part.n_samples if defence is None else counted(defence, part.n_samples, len(part.included))
        self.included, self.n_samples = included, n_samples

    def resolve(self) -> Contribution:
        """Merge now, device by device in the order in which the devices merged; under a defence hop by hop."""
        if self.defence is None:
            return Contribution.total(self.leaves())
        hops, at = [self], self.upstream
        while isinstance(at, DeferredSum):
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
            if isinstance(part, DeferredSum):
                stack.extend(reversed(part.parts))
            else:
                found.append(part)
        return found


def deferred_merge(defence: DefenceSpec) -> Callable[[Pending | None, Sequence[Pending]], Pending]:
    """Return how the chain so far and a cluster become one under a defence, without adding up anything yet."""
    used = defence if defence.is_on else None
    return lambda upstream, cluster: DeferredSum(upstream, cluster, used)
