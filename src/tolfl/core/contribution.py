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

#: Vectors merged by one matrix product: enough for BLAS, few enough that 10,000 devices never lie in memory at once.
_MERGED_AT_ONCE = 64


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
        stream = iter(contributions)
        sums: dict[str, NDArray[np.float64]] = {}
        counts: dict[str, int] = {}
        dtypes: dict[str, np.dtype[Any]] = {}
        bits, n_samples, loss = 0, 0, 0.0
        while chunk := [pending.resolve() for pending in islice(stream, _MERGED_AT_ONCE)]:
            for contribution in chunk:
                if bits & contribution.included.bits:
                    raise ValueError("a sample would be counted twice")
                bits |= contribution.included.bits
                n_samples += contribution.n_samples
                loss += contribution.loss * contribution.n_samples
            for key in sorted({key for contribution in chunk for key in contribution.parts}):
                parts = [contribution.parts[key] for contribution in chunk if key in contribution.parts]
                added = _weighted_sum(parts)
                sums[key] = sums[key] + added if key in sums else added.astype(np.float64)
                counts[key] = counts.get(key, 0) + sum(part.n_samples for part in parts)
                dtypes[key] = parts[0].mean.dtype
        merged = {key: Part(counts[key], (sums[key] / counts[key]).astype(dtypes[key])) for key in sums}
        return cls(DeviceSet(bits), n_samples, merged, loss / n_samples if n_samples else 0.0)

    def merge(self, other: Contribution) -> Contribution:
        """Return the contribution of both."""
        return Contribution.total([self, other])


def _weighted_sum(parts: Sequence[Part]) -> Vector:
    """Return the sum of n_d * mean_d: one matrix-vector product for each run of vectors that lie in one block."""
    total: Vector | None = None
    first = 0
    while first < len(parts):
        last = first + 1
        while last < len(parts) and _follows(parts[last - 1].mean, parts[last].mean):
            last += 1
        weights = np.array([part.n_samples for part in parts[first:last]], dtype=parts[first].mean.dtype)
        added = weights @ _block(parts[first].mean, last - first)
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
