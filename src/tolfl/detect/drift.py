"""Whether typical samples still score as they did at calibration.

Kolmogorov and Smirnov's two-sample test, at the levels that the thresholds keep: the devices send counts at these, and
no score leaves a device. Between levels nothing is seen, so the test is a little too careful, never too eager.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from tolfl.core.errors import DataError
from tolfl.detect.thresholds import Counts, Scores, Thresholds, count_bins

#: A check with every update must not cry wolf: one in a thousand without drift.
SIGNIFICANCE = 0.001


class Drift(msgspec.Struct, frozen=True):
    """How far the scores have moved."""

    n_samples: int
    distance: float  #: between the distributions of scores, from 0 to 1
    p_value: float  #: of such a distance without any drift
    is_higher: bool  #: whether scores moved up: samples are more anomalous than they were
    alarm_rate: float  #: share of samples above the fleet's threshold
    budget: float
    per_device: dict[str, float] = {}  #: p-value of each device's samples alone

    @property
    def is_drifting(self) -> bool:
        """Whether chance is no explanation."""
        return self.p_value < SIGNIFICANCE

    @property
    def drifting_devices(self) -> tuple[str, ...]:
        """The devices whose own samples have moved, counted with the number of devices (Bonferroni)."""
        n = max(1, len(self.per_device))
        return tuple(name for name, p_value in self.per_device.items() if p_value < SIGNIFICANCE / n)

    def __str__(self) -> str:
        """Return a sentence."""
        if not self.is_drifting:
            return f"no drift in {self.n_samples} samples (p = {self.p_value:.2g})"
        moved = "higher" if self.is_higher else "lower"
        return (
            f"typical samples score {moved} than at calibration (p = {self.p_value:.2g}); "
            f"{self.alarm_rate:.2%} of {self.n_samples} raise an alarm, {self.budget:.2%} may"
        )


def drift_of(scores: Mapping[str, Scores], thresholds: Thresholds) -> Drift:
    """Return how far the scores of each device's new typical samples have moved, together and one by one."""
    counts = {name: count_bins(values) for name, values in scores.items() if len(values)}
    if not counts:
        raise DataError("no device has a sample to look for drift in")
    total = np.sum(list(counts.values()), axis=0)
    distance, is_higher, p_value = _test(total, thresholds)
    n_samples = int(total.sum())
    alarms = sum(int((values > thresholds.threshold).sum()) for values in scores.values())
    alone = {name: _test(own, thresholds)[2] for name, own in counts.items()}
    return Drift(n_samples, distance, p_value, is_higher, alarms / n_samples, thresholds.budget, alone)


def _test(counts: Counts, thresholds: Thresholds) -> tuple[float, bool, float]:
    fleet, n_new = thresholds.fleet, int(counts.sum())
    levels = np.array(fleet.levels, dtype=np.int64)
    if not len(levels):
        return 0.0, False, 1.0
    at_least = np.cumsum(counts[::-1])[::-1]
    # At the lower edge of each level and of the bin after it; odd rows count, too: they were held back.
    before = np.array([*fleet.n_at_least, 0]) + fleet.n_odd
    now = np.append(at_least, 0)
    gaps = np.concatenate(
        [
            now[levels] / n_new - before[:-1] / fleet.n_scores,
            now[levels + 1] / n_new - before[1:] / fleet.n_scores,
        ]
    )
    largest = float(gaps[np.argmax(np.abs(gaps))])
    size = n_new * fleet.n_scores / (n_new + fleet.n_scores)
    return abs(largest), largest > 0, _kolmogorov(abs(largest) * np.sqrt(size))


def _kolmogorov(distance: float) -> float:
    """Return how likely the limit distribution of Kolmogorov's statistic is to exceed a distance.

    >>> round(_kolmogorov(1.3581), 4), _kolmogorov(0.0)
    (0.05, 1.0)
    """
    if distance < 0.2:  # the series converges slowly there; the probability is 1 within 1e-12
        return 1.0
    k = np.arange(1, 101)
    return float(np.clip(2.0 * np.sum((-1.0) ** (k - 1) * np.exp(-2.0 * np.square(k * distance))), 0.0, 1.0))
