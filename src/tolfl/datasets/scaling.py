"""Scaling as a fleet computes it: every device sends moments that can be merged, none sends a sample.

Fitted on typical training samples alone. Test values outside the range are not clipped: they are evidence. A feature
without any spread becomes 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tolfl.datasets.federated import Samples

Floats = NDArray[np.float64]
_NUMBERS_AT_ONCE = 2**16  #: what fits into a cache
Kind = Literal["min-max", "standard", "none"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of a device's samples: per feature the number of values, their sums, extremes.

    The order of merging changes at most the last bits: these are floats.
    """

    counts: Floats
    sums: Floats
    squares: Floats  #: sums of squared distances to the device's own mean
    lowest: Floats
    highest: Floats

    @classmethod
    def of(cls, samples: NDArray[np.floating], has_squares: bool = True) -> Moments:
        """Return the moments of one device's samples `(n_samples, n_features)`; missing values (NaN) do not count."""
        is_there = ~np.isnan(samples)
        if samples.ndim == 2 and samples.shape[1] > 1 and is_there.all():
            return cls._of_whole(samples, has_squares)
        values = samples.astype(np.float64)
        counts = is_there.sum(axis=0).astype(np.float64)
        sums = np.where(is_there, values, 0.0).sum(axis=0)
        means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
        squares = np.where(is_there, np.square(values - means), 0.0).sum(axis=0)
        lowest = np.where(is_there, values, np.inf).min(axis=0, initial=np.inf)
        highest = np.where(is_there, values, -np.inf).max(axis=0, initial=-np.inf)
        return cls(counts, sums, squares, lowest, highest)

    @classmethod
    def _of_whole(cls, samples: NDArray[np.floating], has_squares: bool) -> Moments:
        """Return the moments of rows without a gap, a few at a time: the same sums, row after row, as `einsum` adds."""
        n_rows, n_features = samples.shape
        step = max(1, _NUMBERS_AT_ONCE // n_features)
        sums, squares = np.zeros(n_features), np.zeros(n_features)
        lowest, highest = np.full(n_features, np.inf), np.full(n_features, -np.inf)
        buffer = np.empty((step + 1, n_features))
        for first in range(0, n_rows, step):
            some = samples[first : first + step]
            buffer[0], buffer[1 : len(some) + 1] = sums, some
            sums = np.einsum("ij->j", buffer[: len(some) + 1])
            lowest, highest = np.minimum(lowest, some.min(axis=0)), np.maximum(highest, some.max(axis=0))
        means = sums / max(1, n_rows)
        for first in range(0, n_rows if has_squares else 0, step):
            some = samples[first : first + step]
            buffer[0] = squares
            np.square(np.subtract(some, means, out=buffer[1 : len(some) + 1]), out=buffer[1 : len(some) + 1])
            squares = np.einsum("ij->j", buffer[: len(some) + 1])
        return cls(np.full(n_features, float(n_rows)), sums, squares, lowest, highest)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both (Chan, Golub, LeVeque: updating variances without cancellation)."""
        counts = self.counts + other.counts
        gap = other.means - self.means
        share = np.divide(self.counts * other.counts, counts, out=np.zeros_like(counts), where=counts > 0)
        return Moments(
            counts,
            self.sums + other.sums,
            self.squares + other.squares + np.square(gap) * share,
            np.minimum(self.lowest, other.lowest),
            np.maximum(self.highest, other.highest),
        )

    @property
    def means(self) -> Floats:
        """The mean of each feature; 0 without any value."""
        return np.divide(self.sums, self.counts, out=np.zeros_like(self.sums), where=self.counts > 0)

    @property
    def stds(self) -> Floats:
        """The standard deviation of each feature, ddof 0 as in scikit-learn."""
        return np.sqrt(np.divide(self.squares, self.counts, out=np.zeros_like(self.sums), where=self.counts > 0))


def merged(moments: Iterable[Moments]) -> Moments:
    """Return the moments of all devices."""
    return reduce(Moments.merge, moments)


@dataclass(frozen=True, eq=False)
class Scaler:
    """`(sample - shift) * factor`, feature by feature; a missing value (NaN) becomes the mean first."""

    shift: Floats
    factor: Floats
    fill: Floats

    @classmethod
    def fit(cls, moments: Moments, kind: Kind) -> Scaler:
        """Return the scaler that moments lead to."""
        fill = moments.means
        if kind == "none":
            return cls(np.zeros_like(fill), np.ones_like(fill), fill)
        if kind == "standard":
            return cls(fill, _inverse(moments.stds), fill)
        has_any = moments.counts > 0
        lowest = np.where(has_any, moments.lowest, 0.0)
        spread = np.where(has_any, moments.highest, 0.0) - lowest
        return cls(lowest, _inverse(spread), fill)

    def __call__(self, samples: NDArray[np.floating]) -> Samples:
        """Return scaled samples."""
        values = samples.astype(np.float64)
        is_missing = np.isnan(values)
        if is_missing.any():
            values = np.where(is_missing, self.fill, values)
        values -= self.shift
        values *= self.factor
        return values.astype(np.float32)


def _inverse(spread: Floats) -> Floats:
    # A spread below the smallest normal number has an infinite inverse: there is none.
    return np.divide(1.0, spread, out=np.ones_like(spread), where=spread > np.finfo(np.float64).tiny)
