"""Contributions: means, sums and extremes that heads add up, and the devices whose samples they include.

Merging is associative and commutative (Algorithm 1 of the paper is its left fold), so a star and a chain of any length
give the same total. Floating-point addition is neither, and a difference in the last bit is enough to switch a ReLU on
or off in the next round. So a total is always the same fold: one device after the other in the order given, rounded
after each. A chain that folds its devices in id order then gives the bits that a star gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.device_set import DeviceSet

Vector = NDArray[Any]

#: How the parts of several devices become one, place by place. Only a mean may be put under a defence.
How = Literal["mean", "sum", "min", "max"]

#: Numbers that travel are smaller in size: times 2^40 samples, summed over 10,000 devices, they still fit into float32.
LARGEST_NUMBER, LARGEST_INTEGER = 1e18, 2**62  #: and two such integers can be added
#: Infinities do not travel: where there is no value, this is the lowest, and its negative the highest.
HIGHEST = float(np.nextafter(LARGEST_NUMBER, 0.0))

#: The key of the one model of Tol-FL, FL and SBT; schemes with several models use their own keys.
GLOBAL = "global"


class MismatchError(ValueError):
    """Parts under one key that cannot be added: another length, kind of number or way of merging."""


def can_travel(array: Vector) -> bool:
    """Return whether all numbers are finite, and so small that other devices take them.

    >>> can_travel(np.array([1e17])), can_travel(np.array([1e18])), can_travel(np.array([np.nan], np.float32))
    (True, False, False)
    """
    most = LARGEST_NUMBER if array.dtype.kind == "f" else LARGEST_INTEGER
    return bool(-most < array.min(initial=0) and array.max(initial=0) < most)


class Part(msgspec.Struct, frozen=True):
    """One array that is merged over devices. A mean is kept as a sum over samples: `weight * vector`.

    One device's part is its mean with its sample count as the weight, so that nothing is computed before it is
    needed; a merged part has weight 1.
    """

    n_samples: int
    vector: Vector
    weight: int = 1
    included: DeviceSet = DeviceSet()  #: whose numbers are inside
    loss: float = 0.0  #: mean loss of their training
    n_trained: int = 0  #: samples that they trained on, and that the loss is the mean of; 0: nobody trained
    how: How = "mean"

    @classmethod
    def mean_of(
        cls, device: int, n_samples: int, vector: Vector, loss: float | None = None, weight: int | None = None
    ) -> Part:
        """Return a device's mean over its samples; it weighs as much as there are, or `weight`."""
        weight = n_samples if weight is None else weight
        n_trained = 0 if loss is None else n_samples
        return cls(weight, vector, weight, DeviceSet.of([device]), loss or 0.0, n_trained)

    @classmethod
    def total_of(cls, device: int, vector: Vector, how: How = "sum") -> Part:
        """Return an array of which the fleet's sum, or its lowest or highest numbers, are wanted."""
        return cls(1, vector, 1, DeviceSet.of([device]), how=how)

    @property
    def mean(self) -> Vector:
        """The mean over all samples."""
        if self.weight == self.n_samples:
            return self.vector
        mean: Vector = self.vector * self.vector.dtype.type(self.weight) / self.vector.dtype.type(self.n_samples)
        return mean

    def check_alike(self, key: str, other: Part) -> None:
        """Raise an error where two parts cannot be added: a length of 1 would be repeated, integers would be cut."""
        mine, theirs = ((one.how, one.vector.dtype.str, one.vector.shape) for one in (self, other))
        if mine != theirs:
            raise MismatchError(f"part {key!r} is {_described(*theirs)} for some devices and {_described(*mine)} here")


def _described(how: str, dtype: str, shape: tuple[int, ...]) -> str:
    return f"a {how} of {' x '.join(map(str, shape))} numbers ({dtype[1:]})"


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
    """Parts by key, with provenance.

    >>> a = Contribution.of_device(0, 2, {GLOBAL: np.array([-4.0])}, loss=5.0)
    >>> b = Contribution.of_device(1, 1, {GLOBAL: np.array([-8.0])}, loss=16.0)
    >>> total = Contribution.total([a, b])
    >>> total.n_samples, list(total.included), round(float(total.parts[GLOBAL].mean[0]), 4), round(total.loss, 4)
    (3, [0, 1], -5.3333, 8.6667)
    """

    included: DeviceSet
    n_samples: int
    parts: dict[str, Part]

    @classmethod
    def of_device(
        cls,
        device: int,
        n_samples: int,
        means: Mapping[str, Vector],
        loss: float | None = None,
        weight: int | None = None,
    ) -> Contribution:
        """Return what one device contributes from `n_samples` samples; its means weigh as much, or `weight`."""
        parts = {key: Part.mean_of(device, n_samples, mean, loss, weight) for key, mean in means.items() if n_samples}
        return cls(DeviceSet.of([device]), n_samples, parts)

    @property
    def loss(self) -> float | None:
        """The mean loss over the samples that were trained on; None where nobody trained."""
        n_trained = sum(part.n_trained for part in self.parts.values())
        return sum(part.loss * part.n_trained for part in self.parts.values()) / n_trained if n_trained else None

    @classmethod
    def empty(cls) -> Contribution:
        """Return the neutral element of merging."""
        return cls(DeviceSet(), 0, {})

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
        running = RunningSum()
        for pending in contributions:
            running.add(pending.resolve())
        return running.total()

    @classmethod
    def appended(cls, upstream: Pending | None, cluster: Sequence[Pending]) -> Contribution:
        """Return the chain so far with a cluster appended, device by device."""
        return cls.total(cluster if upstream is None else [upstream, *cluster])


class RunningSum:
    """A sum over contributions that holds on to none of them: those of 10,000 devices do not fit into memory."""

    def __init__(self) -> None:
        self._parts: dict[str, _RunningPart] = {}
        self._bits = self._n_samples = 0

    def add(self, contribution: Contribution) -> None:
        """Add one contribution."""
        if self._bits & contribution.included.bits:
            raise ValueError("a sample would be counted twice")
        self._bits |= contribution.included.bits
        self._n_samples += contribution.n_samples
        for key, part in contribution.parts.items():
            if key in self._parts:
                self._parts[key].add(key, part)
            else:
                self._parts[key] = _RunningPart(part)

    def mean_so_far(self, key: str, n_numbers: int) -> Vector:
        """Return the running sum of a mean of float32 numbers, to which a learner adds devices in place.

        Nothing is minus zero: to add anything to it gives that thing to the last bit.
        """
        if key not in self._parts:
            nothing = np.full(n_numbers, -0.0, np.float32)
            self._parts[key] = _RunningPart(Part(0, nothing))
        running: Vector = self._parts[key].vector
        return running

    def count(self, key: str, devices: DeviceSet, n_samples: Sequence[int], losses: Sequence[float]) -> None:
        """Count devices whose means were added to `mean_so_far` in this order, each with the weight of its samples."""
        if self._bits & devices.bits:
            raise ValueError("a sample would be counted twice")
        self._bits |= devices.bits
        self._n_samples += sum(n_samples)
        self._parts[key].count(devices, n_samples, losses)

    def total(self) -> Contribution:
        """Return the sum."""
        parts = {key: self._parts[key].total() for key in sorted(self._parts)}
        return Contribution(DeviceSet(self._bits), self._n_samples, parts)


class _RunningPart:
    """The parts of one key so far."""

    def __init__(self, first: Part) -> None:
        self._first = first
        self.vector = first.vector * first.vector.dtype.type(first.weight)
        self._n_samples, self._bits = first.n_samples, first.included.bits
        self._loss, self._n_trained = first.loss * first.n_trained, first.n_trained
        self._scratch: Vector | None = None

    def add(self, key: str, part: Part) -> None:
        self._first.check_alike(key, part)
        self._n_samples += part.n_samples
        self._bits |= part.included.bits
        self._loss += part.loss * part.n_trained
        self._n_trained += part.n_trained
        match part.how:
            case "min":
                np.minimum(self.vector, part.vector, out=self.vector)
            case "max":
                np.maximum(self.vector, part.vector, out=self.vector)
            case _:
                self.vector += self._weighted(part)

    def count(self, devices: DeviceSet, n_samples: Sequence[int], losses: Sequence[float]) -> None:
        self._bits |= devices.bits
        for n, loss in zip(n_samples, losses, strict=True):
            self._n_samples += n
            self._loss += loss * n
            self._n_trained += n

    def _weighted(self, part: Part) -> Vector:
        if part.weight == 1:
            return part.vector
        if self._scratch is None:
            self._scratch = np.empty_like(part.vector)
        np.multiply(part.vector, part.vector.dtype.type(part.weight), out=self._scratch)
        return self._scratch

    def total(self) -> Part:
        loss = self._loss / self._n_trained if self._n_trained else 0.0
        included = DeviceSet(self._bits)
        return Part(self._n_samples, self.vector, 1, included, loss, self._n_trained, self._first.how)
