"""Statistics of paired runs. A declared split is the unit; seeds inside it are averaged or resampled, never counted.

Two methods on one split and seed saw the same data, devices and random draws, so their difference is paired.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolfl.core.seeding import Purpose, rng_for

Units = Mapping[Hashable, Sequence[float]]  #: by unit, one value per seed
_DRAWS = 10_000
#: Up to so many units all sign patterns are tried; beyond, so many random ones.
_MAX_EXACT = 20
_RANDOM_PATTERNS = 100_000


@dataclass(frozen=True)
class Estimate:
    """A mean over units with its bootstrap interval."""

    mean: float
    low: float
    high: float
    n_units: int


def estimate(units: Units, level: float = 0.95) -> Estimate:
    """Return the mean of the units' means, with a percentile interval: units are resampled, then seeds inside them.

    >>> estimate({"a": [0.5, 0.7], "b": [0.6, 0.6]}).mean
    0.6
    """
    means = np.array([np.mean(values) for values in units.values()])
    rng = rng_for(0, Purpose.STATISTICS)
    values = list(units.values())
    chosen = rng.integers(len(values), size=(_DRAWS, len(values)))
    drawn = np.zeros((_DRAWS, len(values)))
    for place, of_unit in enumerate(values):
        resampled = np.asarray(of_unit)[rng.integers(len(of_unit), size=(_DRAWS, len(values), len(of_unit)))].mean(2)
        drawn = np.where(chosen == place, resampled, drawn)
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(drawn.mean(1), [tail, 100 - tail])
    return Estimate(float(means.mean()), float(low), float(high), len(values))


def differences(ours: Units, theirs: Units) -> dict[Hashable, list[float]]:
    """Return differences seed by seed, for the units that both have."""
    return {
        unit: [a - b for a, b in zip(values, theirs[unit], strict=True)]
        for unit, values in ours.items()
        if unit in theirs
    }


def sign_flip_p(values: Sequence[float]) -> float:
    """Return the two-sided p of paired differences under random signs; exact for up to 20 units.

    With n units it cannot be less than 2 / 2**n.

    >>> sign_flip_p([1.0, 2.0, 3.0])
    0.25
    """
    observed = np.array(values, dtype=float)
    n = len(observed)
    if n == 0 or not observed.any():
        return 1.0
    limit = abs(observed.sum()) * (1 - 1e-12)
    if n <= _MAX_EXACT:
        sums = _all_sums(observed)
        return float(np.mean(np.abs(sums) >= limit))
    signs = rng_for(1, Purpose.STATISTICS).choice([-1.0, 1.0], size=(_RANDOM_PATTERNS, n))
    at_least = int(np.sum(np.abs(signs @ observed) >= limit))
    return (at_least + 1) / (_RANDOM_PATTERNS + 1)


def _all_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum for every pattern of signs."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return sums


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for many comparisons (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    factors = [(len(p_values) - place) * p_values[index] for place, index in enumerate(order)]
    corrected = dict(zip(order, itertools.accumulate(factors, max), strict=True))
    return [min(1.0, corrected[index]) for index in range(len(p_values))]
