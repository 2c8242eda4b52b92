"""Statistics of paired runs. A declared split is the unit; seeds inside it are averaged, never counted.

Two methods on one split and seed saw the same data, devices and random draws, so their difference is paired.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from tolfl.experiments.result_rows import Units


@dataclass(frozen=True)
class Interval:
    """A mean over splits with its confidence interval; of one split there is none, and the ends are infinite."""

    mean: float
    low: float
    high: float
    n_splits: int

    def side(self, of: float = 0.0) -> int:
        """Return 1 where all of it lies above a value, -1 below, 0 where that is not settled."""
        return int(self.low > of) - int(self.high < of)

    def __str__(self) -> str:
        """Return it with signs, for differences."""
        if self.n_splits < 2:
            return f"{self.mean:+.3f} (one split)"
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def interval(units: Units) -> Interval:
    """Return the mean of the splits' means with Student's t interval of 95 % over splits.

    A test draws splits and seeds, and counts how often the interval has the true mean: 95 times of 100 with five normal
    splits, at least 93 of 100 with flat or heavy-tailed ones.

    >>> found = interval({"a": [0.5, 0.7], "b": [0.6, 0.6], "c": [0.9, 0.9]})
    >>> f"{found.mean:.3f} {found.low:.3f} {found.high:.3f}"
    '0.700 0.270 1.130'
    """
    means = [statistics.fmean(values) for values in units.values()]
    n, mean = len(means), statistics.fmean(means)
    if n < 2:
        return Interval(mean, -math.inf, math.inf, n)
    half = float(stdtrit(n - 1, 0.975)) * statistics.stdev(means) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def differences(ours: Units, theirs: Units) -> dict[Hashable, list[float]]:
    """Return differences seed by seed, for the splits that both have."""
    return {
        unit: [a - b for a, b in zip(values, theirs[unit], strict=True)]
        for unit, values in ours.items()
        if unit in theirs
    }


def sign_flip_p(values: Sequence[float]) -> float:
    """Return the two-sided p of paired differences under random signs: exact, over all 2**n patterns.

    With n units it cannot be less than 2 / 2**n.

    >>> sign_flip_p([1.0, 2.0, 3.0])
    0.25
    """
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return float(np.mean(np.abs(sums) >= abs(sum(values)) * (1 - 1e-12)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for many comparisons (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    factors = [(len(p_values) - place) * p_values[index] for place, index in enumerate(order)]
    corrected = dict(zip(order, itertools.accumulate(factors, max), strict=True))
    return [min(1.0, corrected[index]) for index in range(len(p_values))]
