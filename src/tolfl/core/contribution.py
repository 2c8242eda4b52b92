"""What travels up a cluster and along the chain: sample-weighted means, and whose samples are inside.

Merging is associative and commutative (Algorithm 1 of the paper is its left fold), so a star and a chain of any length
give the same total. Floating-point addition is neither, and a difference in the last bit is enough to switch a ReLU on
or off in the next round. So a total is always the same fold: one device after the other in the order given, rounded
after each. A chain that folds its devices in id order then gives the bits that a star gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.device_set import DeviceSet

Vector = NDArray[np.floating[Any]]

#: The key of the one model of Tol-FL, FL and SBT; schemes with several models use their own keys.
GLOBAL = "global"


class Part(msgspec.Struct, frozen=True):
    """The updates of one model, summed over samples: `weight * vector`.

    One device's part is its mean update with its sample count as the weight, so that nothing is computed before it is
    needed; a merged part has weight 1.
    """

    n_samples: int
    vector: Vector
    weight: int = 1
    included: DeviceSet = DeviceSet()  #: whose updates are inside
    loss: float = 0.0  #: mean loss of their training
    n_trained: int = 0  #: samples that they trained on; more than `n_samples` where each device counts as one

    @property
    def mean(self) -> Vector:
        """The mean update over all samples."""
        if self.weight == self.n_samples:
            return self.vector
        mean: Vector = self.vector * self.vector.dtype.type(self.weight) / self.vector.dtype.type(self.n_samples)
        return mean


class Pending(Protocol):
    """A contribution that can be had when it is needed: trained already, or trainable again."""

    @property
    def included(self) -> DeviceSet:
        """Whose samples are inside."""

    @property
    def n_samples(self) -> int:
        """How many samples are inside."""

    def resolve(self) -> Contribution:
        """Return the contribution itself."""


class Contribution(msgspec.Struct, frozen=True):
    """Sample-weighted means by model key, with provenance.

    >>> a = Contribution.of_device(0, 2, {GLOBAL: np.array([-4.0])}, loss=5.0)
    >>> b = Contribution.of_device(1, 1, {GLOBAL: np.array([-8.0])}, loss=16.0)
    >>> total = Contribution.total([a, b])
    >>> total.n_samples, list(total.included), round(float(total.parts[GLOBAL].mean[0]), 4)
    (3, [0, 1], -5.3333)
    """

    included: DeviceSet
    n_samples: int
    parts: dict[str, Part]
    loss: float

    @classmethod
    def of_device(
        cls,
        device: int,
        n_samples: int,
        means: Mapping[str, Vector],
        loss: float,
        weight: int | None = None,
        losses: Mapping[str, float] | None = None,
    ) -> Contribution:
        """Return what one device contributes from `n_samples` samples; its updates weigh as much, or `weight`.

        `losses` are those of single models, where they differ.
        """
        included, of_models = DeviceSet.of([device]), losses or {}
        if not n_samples:
            return cls(included, 0, {}, 0.0)
        weight = n_samples if weight is None else weight
        parts = {
            key: Part(weight, mean, weight, included, of_models.get(key, loss), n_samples)
            for key, mean in means.items()
        }
        return cls(included, n_samples, parts, loss)

    @classmethod
    def empty(cls) -> Contribution:
        """Return the neutral element of merging."""
        return cls(DeviceSet(), 0, {}, 0.0)

    def resolve(self) -> Contribution:
        """Return itself: it is here already."""
        return self

    @classmethod
    def total(cls, contributions: Iterable[Pending]) -> Contribution:
        """Merge contributions of disjoint devices one by one, in the order given.

        The weights are the sample counts: the recursion n <- n + n_i, r <- n_i / n, g <- r g_i + (1 - r) g of
        Algorithm 1, kept as a sum until it is applied. (The closed form printed below it in the paper is wrong for two
        or more clusters.) A contribution without samples changes nothing.
        """
        running = _RunningSum()
        for pending in contributions:
            running.add(pending.resolve())
        return running.total()

    @classmethod
    def appended(cls, upstream: Pending | None, cluster: Sequence[Pending]) -> Contribution:
        """Return the chain so far with a cluster appended, device by device."""
        return cls.total(cluster if upstream is None else [upstream, *cluster])

    def merge(self, other: Contribution) -> Contribution:
        """Return the contribution of both."""
        return Contribution.total([self, other])


class _RunningSum:
    """A sum over contributions that holds on to none of them: those of 10,000 devices do not fit into memory."""

    def __init__(self) -> None:
        self._sums: dict[str, Vector] = {}
        self._counts: dict[str, int] = {}
        self._inside: dict[str, int] = {}
        self._losses: dict[str, float] = {}
        self._trained: dict[str, int] = {}
        self._scratch: Vector | None = None
        self._bits = self._n_samples = 0
        self._loss = 0.0

    def add(self, contribution: Contribution) -> None:
        if self._bits & contribution.included.bits:
            raise ValueError("a sample would be counted twice")
        self._bits |= contribution.included.bits
        self._n_samples += contribution.n_samples
        self._loss += contribution.loss * contribution.n_samples
        for key, part in contribution.parts.items():
            self._counts[key] = self._counts.get(key, 0) + part.n_samples
            self._inside[key] = self._inside.get(key, 0) | part.included.bits
            self._losses[key] = self._losses.get(key, 0.0) + part.loss * part.n_trained
            self._trained[key] = self._trained.get(key, 0) + part.n_trained
            if key not in self._sums:
                self._sums[key] = part.vector * part.vector.dtype.type(part.weight)
            else:
                self._sums[key] += self._weighted(part)

    def _weighted(self, part: Part) -> Vector:
        if part.weight == 1:
            return part.vector
        if self._scratch is None or self._scratch.shape != part.vector.shape:
            self._scratch = np.empty_like(part.vector)
        return np.multiply(part.vector, part.vector.dtype.type(part.weight), out=self._scratch)

    def total(self) -> Contribution:
        parts = {key: self._part(key) for key in sorted(self._sums)}
        loss = self._loss / self._n_samples if self._n_samples else 0.0
        return Contribution(DeviceSet(self._bits), self._n_samples, parts, loss)

    def _part(self, key: str) -> Part:
        n_trained = self._trained[key]
        loss = self._losses[key] / n_trained if n_trained else 0.0
        return Part(self._counts[key], self._sums[key], 1, DeviceSet(self._inside[key]), loss, n_trained)
