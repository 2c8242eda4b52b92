"""From a false-alarm budget to thresholds, for the fleet and for each device, and p-values beside raw scores.

Held-back typical scores and those to come are exchangeable, so a typical sample scores above the k-th lowest of n
held-back ones with probability (n + 1 - k) / (n + 1): the conformal guarantee, whatever the scores' distribution. One
threshold for all can hide a noisy device behind quiet ones; so each device with enough scores has its own, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolfl.detect.quantiles import Scores, counts_at, order_statistics

#: The highest scores are all levels of their own; below, levels thin out: p-values are exact in the tail that counts
#: and no more than 2 % too high elsewhere.
_EXACT_RANKS = 200
_THINNING = 1.02


class DeviceThreshold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device's own threshold, and how it fares under the fleet's."""

    threshold: float
    is_own: bool  #: False: too few held-back scores for the budget, so it is the fleet's
    n_scores: int
    alarm_rate_at_fleet: float | None  #: share of its held-back scores above the fleet's threshold


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the fleet agreed on: a score above the threshold is an alarm."""

    budget: float
    threshold: float
    is_guaranteed: bool  #: False: too few scores for the budget (the threshold is the highest), or not held back
    n_scores: int
    calibrated_on: str  #: `held-back samples`, `training samples` (none was held back), `all samples`, `no samples`
    per_device: dict[str, DeviceThreshold]
    levels: tuple[float, ...]  #: some of the scores, ascending
    n_at_least: tuple[int, ...]  #: how many scores are at least as high
    n_higher: tuple[int, ...]

    def of_devices(self, devices: Sequence[str]) -> NDArray[np.float64]:
        """Return the threshold of each device; the fleet's for a device that is not known."""
        known = {name: one.threshold for name, one in self.per_device.items()}
        return np.array([known.get(name, self.threshold) for name in devices], dtype=np.float64)

    def p_values(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return how likely a typical sample is to score so high: (1 + number of scores at least as high) / (n + 1)."""
        values = np.asarray(scores, dtype=np.float32)
        levels = np.asarray(self.levels, dtype=np.float32)
        place = np.searchsorted(levels, values, side="right") - 1
        at_least = np.array([*self.n_at_least, self.n_scores])[place]  # place -1: below all levels
        higher = np.array([*self.n_higher, self.n_scores])[place]
        is_level = (place >= 0) & (levels[place] == values)
        p: NDArray[np.float64] = (1.0 + np.where(is_level, at_least, higher)) / (self.n_scores + 1.0)
        return p


def rank_for(budget: float, n_scores: int) -> tuple[int, bool]:
    """Return which rank is the threshold, and whether so few scores can keep the budget at all.

    >>> rank_for(0.1, 9), rank_for(0.1, 8), rank_for(0.01, 1000)
    ((9, True), (8, False), (991, True))
    """
    rank = math.ceil((n_scores + 1) * (1 - budget) - 1e-9)  # 0.9 * 10 is a little more than 9
    return max(1, min(rank, n_scores)), rank <= n_scores


def agree(
    scores: Mapping[str, Scores], budget: float, calibrated_on: str = "held-back samples", rank: int | None = None
) -> Thresholds:
    """Agree on thresholds from each device's scores; `rank` sets the fleet's in place of the budget's."""
    by_id = dict(enumerate(scores.values()))
    n_scores = sum(len(values) for values in by_id.values())
    budget_rank, is_enough = rank_for(budget, n_scores)
    levels = np.unique(order_statistics(by_id, level_ranks(n_scores)))
    at_least, higher = counts_at(by_id, levels)
    threshold = float(order_statistics(by_id, [rank or budget_rank])[0])
    per_device = {name: _of_device(values, budget, threshold, rank is None) for name, values in scores.items()}
    is_guaranteed = is_enough and rank is None and calibrated_on == "held-back samples"
    return Thresholds(
        budget,
        threshold,
        is_guaranteed,
        n_scores,
        calibrated_on,
        per_device,
        tuple(levels.tolist()),
        tuple(at_least.tolist()),
        tuple(higher.tolist()),
    )


def _of_device(values: Scores, budget: float, threshold: float, has_budget: bool) -> DeviceThreshold:
    rate = float(np.mean(values > threshold)) if len(values) else None
    own = own_threshold(values, budget) if has_budget else None
    return DeviceThreshold(threshold if own is None else own, own is not None, len(values), rate)


def own_threshold(values: Scores, budget: float) -> float | None:
    """Return a device's own threshold, which needs no message; None: too few scores for the budget.

    >>> own_threshold(np.arange(9.0), budget=0.1), own_threshold(np.arange(8.0), budget=0.1)
    (8.0, None)
    """
    rank, is_enough = rank_for(budget, len(values))
    if not (is_enough and len(values)):
        return None
    return float(np.partition(values, rank - 1)[rank - 1])


def level_ranks(n_scores: int) -> list[int]:
    """Return ranks of some scores, from the highest down: each of the first, then ever fewer, and the lowest."""
    from_top = list(range(1, min(_EXACT_RANKS, n_scores) + 1))
    while from_top[-1] < n_scores:
        from_top.append(min(n_scores, math.ceil(from_top[-1] * _THINNING)))
    return [n_scores + 1 - rank for rank in from_top]
