"""From a false-alarm budget to thresholds, for the fleet and for each device, and p-values beside raw scores.

Held-back typical scores and those to come are exchangeable, so a typical row scores above the k-th lowest of n
held-back ones with probability (n + 1 - k) / (n + 1): the conformal guarantee, whatever the scores' distribution. Two
things stand in its way. One odd held-back row can be the threshold; and few rows have no rank that is high enough. Both
are met by X(b), which follows the tail of the logarithms of scores through their median and 90 % quantile:

    X(b) = q50 (q90 / q50) ^ (log(0.5 / b) / log(0.5 / 0.1))

1. Held-back scores above X(b / 10) are odd, and left out. 2. Of enough others the conformal rank is the threshold,
otherwise it is X(b). 3. The expected rate is (1 + held-back scores above the threshold) / (n + 1), odd ones included.
It is guaranteed where nothing was left out, nor extrapolated.

Only counts in fixed logarithmic bins are needed for that, so one round is enough. A threshold is the highest
number of its bin: no score is between it and the next bin.

Whether typical rows still score as they did is Kolmogorov and Smirnov's two-sample test at the levels that are kept:
no score leaves a device. Differences between levels do not count, so the test is conservative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolfl.core.errors import DataError

Scores = NDArray[np.floating]
Counts = NDArray[np.int64]

_SHIFT = 16  #: of the bits of a float32: what is left are its exponent and 7 more bits, 128 bins from 2^k to 2^(k+1)
_LOWEST = int(np.float32(2.0**-32).view(np.uint32)) >> _SHIFT  #: the bin of all scores up to 2^-32
_HIGHEST = int(np.float32(2.0**64).view(np.uint32)) >> _SHIFT
N_BINS = _HIGHEST - _LOWEST + 1

FEWEST_SCORES = 4  #: of fewer, nothing can be said
MOST_OWN_LEVELS = 64  #: of a device's own p-values


def bins_of(scores: ArrayLike) -> NDArray[np.int64]:
    """Return the bin of each score.

    >>> bins_of([0.0, 1.0, 1.004, 1.01, 2.0]).tolist()
    [0, 4096, 4096, 4097, 4224]
    """
    bits = (np.maximum(np.asarray(scores, np.float32), np.float32(0.0)) + np.float32(0.0)).view(np.uint32)
    bins: NDArray[np.int64] = np.clip((bits >> np.uint32(_SHIFT)).astype(np.int64), _LOWEST, _HIGHEST) - _LOWEST
    return bins


def top_of(place: int) -> float:
    """Return the highest score of a bin.

    >>> bins_of([1.0, top_of(4096), 1 + 1 / 128]).tolist()
    [4096, 4096, 4097]
    """
    if place >= N_BINS - 1:
        return float(np.finfo(np.float32).max)
    return float(np.uint32(((place + _LOWEST + 1) << _SHIFT) - 1).view(np.float32))


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A threshold, what it was found from, and the counts that p-values are read from."""

    value: float  #: a score above it is an alarm
    budget: float
    n_scores: int
    n_odd: int  #: of them left out
    n_above: int  #: of them above the threshold, odd ones included
    is_extrapolated: bool
    is_guaranteed: bool
    median: float
    tail: float  #: how much the score's logarithm grows while the share above it falls by a factor of e
    levels: tuple[int, ...]  #: bins that have scores, ascending
    n_at_least: tuple[int, ...]  #: how many scores are above the level before, without odd ones

    @property
    def expected_rate(self) -> float:
        """The share of typical rows that is expected to raise an alarm."""
        return (1 + self.n_above) / (self.n_scores + 1) if self.n_scores >= FEWEST_SCORES else 0.0

    @property
    def promise(self) -> str:
        """The expected rate of alarms, and whether it is guaranteed, in words."""
        if self.n_scores < FEWEST_SCORES:
            return f"no row can raise an alarm; too few for a threshold, {FEWEST_SCORES} are needed"
        rate = f"{self.expected_rate:.2%} of typical rows expected to raise an alarm"
        if self.is_guaranteed:
            return f"{rate}; at most {self.budget:.2%} guaranteed, on average"
        n_needed = math.ceil(1 / self.budget) - 1
        why = []
        if self.is_extrapolated:
            why.append(f"extrapolated: {self.n_scores - self.n_odd} rows, {n_needed} are needed")
        if self.n_odd:
            why.append(f"{self.n_odd} odd row(s) left out")
        return f"{rate}; not guaranteed ({'; '.join(why) or 'not on rows that were held back'})"

    def p_values(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return how likely a typical row is to score so high; at most the budget where the score is an alarm."""
        values = np.asarray(scores, dtype=np.float32)
        bins = bins_of(values)
        if self.is_extrapolated:
            # By the lowest score of its bin: what is not above the threshold's bin has more than the budget.
            bottoms = ((bins + _LOWEST) << _SHIFT).astype(np.uint32).view(np.float32).astype(np.float64)
            steps = np.log(bottoms / self.median) / self.tail
            p = np.clip(0.5 * np.exp(-np.clip(steps, -1.0, 700.0)), 0.0, 1.0)
        else:
            place = np.searchsorted(np.array(self.levels), bins, side="left")
            n_typical = self.n_scores - self.n_odd
            p = (1.0 + np.array([*self.n_at_least, 0])[place]) / (n_typical + 1.0)
        is_alarm = values > np.float32(self.value)
        return np.where(is_alarm, np.minimum(p, self.budget), np.maximum(p, np.nextafter(self.budget, 1.0)))


def limit_of(counts: Counts, budget: float, is_held_back: bool = True) -> Limit:
    """Return the threshold that counts of scores lead to, in bins.

    >>> scores = np.random.default_rng(0).chisquare(9, 199)
    >>> limit = limit_of(np.bincount(bins_of(scores), minlength=N_BINS), budget=0.01)
    >>> limit.n_scores, limit.n_above, limit.is_guaranteed
    (199, 1, True)
    """
    n_scores = int(counts.sum())
    if n_scores < FEWEST_SCORES:
        highest = top_of(N_BINS - 1)
        return Limit(highest, budget, n_scores, 0, 0, True, False, 1.0, 1.0, (), ())
    median, tail = _tail_of(counts, n_scores)
    odd = int(bins_of([_beyond(median, tail, budget / 10)])[0])
    typical = counts[: odd + 1]
    n_typical = int(typical.sum())
    rank = math.ceil((n_typical + 1) * (1 - budget) - 1e-9)  # 0.9 * 10 is a little more than 9
    is_extrapolated = rank > n_typical
    if is_extrapolated:
        place = int(bins_of([_beyond(median, tail, budget)])[0])
    else:
        place = int(np.searchsorted(np.cumsum(typical), rank))
    levels = np.flatnonzero(typical)
    return Limit(
        value=top_of(place),
        budget=budget,
        n_scores=n_scores,
        n_odd=n_scores - n_typical,
        n_above=int(counts[place + 1 :].sum()),
        is_extrapolated=is_extrapolated,
        is_guaranteed=is_held_back and not is_extrapolated and n_typical == n_scores,
        median=median,
        tail=tail,
        levels=tuple(levels.tolist()),
        n_at_least=tuple(np.cumsum(typical[::-1])[::-1][levels].tolist()),
    )


def _tail_of(counts: Counts, n_scores: int) -> tuple[float, float]:
    """Return the median, and how the scores' logarithms grow from there to the 90 % quantile."""
    up_to_bin = np.cumsum(counts)
    rank = min(math.ceil(0.9 * n_scores), n_scores - 1)  # of few rows, not the highest
    middle, high = (top_of(int(np.searchsorted(up_to_bin, one))) for one in ((n_scores + 1) // 2, rank))
    middle = max(middle, high / 10)
    tail = math.log(high / middle) / math.log(0.5 / (1 - rank / (n_scores + 1)))
    return middle, max(tail, 1e-9)


def _beyond(median: float, tail: float, share: float) -> float:
    """Return X(share): the score that this share of typical rows exceeds."""
    return min(median * math.exp(tail * math.log(0.5 / share)), float(np.finfo(np.float32).max))


class DeviceLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device's own threshold, where it has enough held-back scores, and its rate of alarms under the fleet's."""

    n_scores: int
    n_above: int  #: of them above the fleet's threshold
    n_odd: int  #: of them left out of the fleet's
    own: Limit | None = None


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the fleet agreed on: a score above the limit of its row is an alarm."""

    fleet: Limit
    calibrated_on: str  #: `held-back rows`, `training rows` (none was held back), `all rows`
    devices: dict[str, DeviceLimit] = {}

    @property
    def threshold(self) -> float:
        """The fleet's threshold."""
        return self.fleet.value

    @property
    def budget(self) -> float:
        """The share of typical rows that may raise an alarm."""
        return self.fleet.budget

    def limit_for(self, device: str | None = None) -> Limit:
        """Return the limit of a row's verdict, p-value and explanation: its device's own, or the fleet's."""
        known = None if device is None else self.devices.get(device)
        return self.fleet if known is None or known.own is None else known.own

    def limits(self, n_rows: int, devices: Sequence[str] | NDArray[np.str_] | None = None) -> NDArray[np.float64]:
        """Return the threshold of each row."""
        return self._of_rows("value", n_rows, devices)

    def are_extrapolated(
        self, n_rows: int, devices: Sequence[str] | NDArray[np.str_] | None = None
    ) -> NDArray[np.bool_]:
        """Return whose threshold was extrapolated from few rows."""
        return self._of_rows("is_extrapolated", n_rows, devices)

    def _of_rows(self, what: str, n_rows: int, devices: Sequence[str] | NDArray[np.str_] | None) -> NDArray[Any]:
        if devices is None:
            return np.full(n_rows, getattr(self.fleet, what))
        names, whose = np.unique(np.asarray(devices, dtype=str), return_inverse=True)
        dtype = np.asarray(getattr(self.fleet, what)).dtype  # also where there is no row
        return np.array([getattr(self.limit_for(name), what) for name in names.tolist()], dtype)[whose]

    def p_values(
        self, scores: ArrayLike, devices: Sequence[str] | NDArray[np.str_] | None = None
    ) -> NDArray[np.float64]:
        """Return how likely a typical row is to score so high, each by the limit of its row."""
        values = np.asarray(scores, dtype=np.float32)
        if devices is None:
            return self.fleet.p_values(values)
        p, names = np.empty(len(values)), np.asarray(devices, dtype=str)
        for name in np.unique(names).tolist():
            is_own = names == name
            p[is_own] = self.limit_for(name).p_values(values[is_own])
        return p


def count_bins(scores: Scores) -> Counts:
    """Return how many scores are in each bin."""
    return np.bincount(bins_of(scores), minlength=N_BINS)


def device_limit(counts: Counts, fleet: Limit, is_held_back: bool = True) -> DeviceLimit:
    """Return a device's rate of alarms under the fleet's threshold, and its own one if it has enough scores."""
    n_scores = int(counts.sum())
    n_above = int(counts[int(bins_of([fleet.value])[0]) + 1 :].sum())
    odd = int(bins_of([_beyond(fleet.median, fleet.tail, fleet.budget / 10)])[0])
    n_odd = int(counts[odd + 1 :].sum()) if fleet.n_scores >= FEWEST_SCORES else 0
    own = limit_of(counts, fleet.budget, is_held_back)
    return DeviceLimit(n_scores, n_above, n_odd, None if own.is_extrapolated else thinned(own))


def thinned(limit: Limit, most: int = MOST_OWN_LEVELS) -> Limit:
    """Return a limit with fewer levels: exact at the threshold, elsewhere p-values may be a little too high."""
    if len(limit.levels) <= most or limit.is_extrapolated:
        return limit
    at_threshold = int(np.searchsorted(limit.levels, int(bins_of([limit.value])[0])))
    from_top = np.unique(np.geomspace(1, len(limit.levels), most - 2).round().astype(int))
    kept = np.unique([*(len(limit.levels) - from_top), at_threshold, len(limit.levels) - 1])
    # A level now stands for those between it and the one before, too: as many are at least as high as their lowest.
    n_at_least = np.array(limit.n_at_least)[[0, *(kept[:-1] + 1)]]
    return msgspec.structs.replace(
        limit, levels=tuple(np.array(limit.levels)[kept].tolist()), n_at_least=tuple(n_at_least.tolist())
    )


def limit_for_share(scores: Mapping[str, Scores], share: float) -> Thresholds:
    """Return the threshold that this share of all rows is above: for rows of which so many are anomalous."""
    values = np.sort(np.concatenate([np.asarray(one, np.float32) for one in scores.values()]))
    rank = max(1, len(values) - round(share * len(values)))
    found = limit_of(count_bins(values), share, is_held_back=False)
    value = float(values[rank - 1])
    fleet = msgspec.structs.replace(
        found, value=value, is_extrapolated=False, n_odd=0, n_above=int((values > value).sum()),
        levels=tuple(np.unique(bins_of(values)).tolist()),
        n_at_least=tuple((len(values) - np.searchsorted(bins_of(values), np.unique(bins_of(values)))).tolist()),
    )  # fmt: skip
    devices = {name: DeviceLimit(len(own), int((np.asarray(own) > value).sum()), 0) for name, own in scores.items()}
    return Thresholds(fleet, "all rows", devices)


# -- drift ----------------------------------------------------------------------------------------------------------

#: False-positive rate of the check: it runs with every update, so one in a thousand.
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
        """Whether the distance is significant."""
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
