"""What travels up a cluster and along the chain: sample-weighted means, and whose samples are inside.

Merging is associative and commutative (Algorithm 1 of the paper is its left fold), so a star and a chain of any
length give the same total; floating-point addition is not, so callers merge in id order, never in arrival order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.devices import DeviceSet

Vector = NDArray[np.floating[Any]]

#: The key of the one model of Tol-FL, FL and SBT; schemes with several models use their own keys.
GLOBAL = "global"

#: Contributions merged in one go: few enough that the models of 10,000 devices never lie in memory at once.
_MERGED_AT_ONCE = 25


class Part(msgspec.Struct, frozen=True):
    """The mean of one model's updates, and over how many samples it was taken."""

    n_samples: int
    mean: Vector


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
    def of_device(cls, device: int, n_samples: int, means: Mapping[str, Vector], loss: float) -> Contribution:
        """Return what one device contributes from `n_samples` samples."""
        parts = {key: Part(n_samples, mean) for key, mean in means.items()} if n_samples else {}
        return cls(DeviceSet.of([device]), n_samples, parts, loss if n_samples else 0.0)

    @classmethod
    def empty(cls) -> Contribution:
        """Return the neutral element of merging."""
        return cls(DeviceSet(), 0, {}, 0.0)

    def resolve(self) -> Contribution:
        """Return itself: it is here already."""
        return self

    @classmethod
    def total(cls, contributions: Iterable[Pending]) -> Contribution:
        """Merge contributions of disjoint devices, in the order given, in bounded memory.

        The weights are the sample counts: the recursion n <- n + n_i, r <- n_i / n, g <- r g_i + (1 - r) g of
        Algorithm 1, unrolled. (The closed form printed below it in the paper is wrong for two or more clusters.)
        A contribution without samples changes nothing.
        """
        stream, running = iter(contributions), _RunningSum()
        while running.add(islice(stream, _MERGED_AT_ONCE)):
            pass
        return running.mean()

    def merge(self, other: Contribution) -> Contribution:
        """Return the contribution of both."""
        return Contribution.total([self, other])


class _RunningSum:
    """Sums over contributions. Each call of `add` lets go of what it added before the next is trained."""

    def __init__(self) -> None:
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._counts: dict[str, int] = {}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._bits = self._n_samples = 0
        self._loss = 0.0

    def add(self, pending: Iterable[Pending]) -> bool:
        """Add some contributions; tell whether there were any."""
        chunk = [one.resolve() for one in pending]
        for contribution in chunk:
            if self._bits & contribution.included.bits:
                raise ValueError("a sample would be counted twice")
            self._bits |= contribution.included.bits
            self._n_samples += contribution.n_samples
            self._loss += contribution.loss * contribution.n_samples
        for key in sorted({key for contribution in chunk for key in contribution.parts}):
            parts = [contribution.parts[key] for contribution in chunk if key in contribution.parts]
            self._dtypes[key] = parts[0].mean.dtype
            self._counts[key] = self._counts.get(key, 0) + sum(part.n_samples for part in parts)
            if key in self._sums:
                self._sums[key] += _weighted_sum(parts)
            else:
                self._sums[key] = _weighted_sum(parts).astype(np.float64)
        return bool(chunk)

    def mean(self) -> Contribution:
        """Return the contribution of all that was added."""
        parts = {
            key: Part(self._counts[key], (total / self._counts[key]).astype(self._dtypes[key]))
            for key, total in self._sums.items()
        }
        loss = self._loss / self._n_samples if self._n_samples else 0.0
        return Contribution(DeviceSet(self._bits), self._n_samples, parts, loss)


def _weighted_sum(parts: Sequence[Part]) -> Vector:
    """Return the sum of n_d * mean_d, in one go for each run of vectors that lie in one block."""
    total: Vector | None = None
    first = 0
    while first < len(parts):
        last = first + 1
        while last < len(parts) and _follows(parts[last - 1].mean, parts[last].mean):
            last += 1
        weights = np.array([part.n_samples for part in parts[first:last]], dtype=parts[first].mean.dtype)
        # Not `weights @ block`: BLAS would start threads of its own, which fight with those that train.
        added: Vector = np.einsum("i,ij->j", weights, _block(parts[first].mean, last - first))
        total = added if total is None else total + added
        first = last
    assert total is not None
    return total


def _address(row: Vector) -> int:
    return int(row.__array_interface__["data"][0])


def _follows(row: Vector, next_row: Vector) -> bool:
    """Tell whether two vectors are neighbouring rows of one matrix, so that they can be read without a copy."""
    block = row.base
    if not (isinstance(block, np.ndarray) and block is next_row.base and block.ndim == 2):
        return False
    is_whole = block.shape[1] == row.size and block.flags.c_contiguous
    return is_whole and _address(next_row) - _address(row) == block.strides[0]


def _block(row: Vector, n_rows: int) -> Vector:
    """Return the rows of a matrix that begin with this one."""
    if n_rows == 1:
        return row[None, :]
    block = row.base
    assert isinstance(block, np.ndarray)
    first = (_address(row) - _address(block)) // block.strides[0]
    return block[first : first + n_rows]
