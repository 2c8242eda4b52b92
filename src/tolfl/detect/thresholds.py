"""From a false-alarm budget to thresholds, for the fleet and for each device, and p-values beside raw scores.

Held-back typical scores and those to come are exchangeable, so a typical row scores above the k-th lowest of n
held-back ones with probability (n + 1 - k) / (n + 1): the conformal guarantee, whatever the scores' distribution. Two
things stand in its way. One odd held-back row can be the threshold; and few rows have no rank that is high enough. Both
are met by X(b), which follows the tail of the logarithms of scores through their median and 90 % quantile:

    X(b) = q50 (q90 / q50) ^ (log(0.5 / b) / log(0.5 / 0.1))

1. Held-back scores above X(b / 10) are odd, and left out. 2. Of enough others the conformal rank is the threshold,
otherwise it is X(b). 3. The expected rate is (1 + held-back scores above the threshold) / (n + 1), odd ones included.
It is guaranteed where nothing was left out, nor extrapolated.

Only counts in fixed logarithmic bins are needed for that, and so all of it takes one round. A threshold is the highest
number of its bin: no score is between it and the next bin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.floating]
Counts = NDArray[np.int64]

_SHIFT = 16  #: of the bits of a float32: what is left are its exponent and 7 more bits, 128 bins from 2^k to 2^(k+1)
_LOWEST = int(np.float32(2.0**-32).view(np.uint32)) >> _SHIFT  #: the bin of all scores up to 2^-32
_HIGHEST = int(np.float32(2.0**64).view(np.uint32)) >> _SHIFT
N_BINS = _HIGHEST - _LOWEST + 1

FEWEST_SCORES = 4  #: of fewer, nothing can be said
_MOST_OWN_LEVELS = 64  #: of a device's own p-values


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
        return (1 + self.n_above) / (self.n_scores + 1)

    @property
    def promise(self) -> str:
        """What the threshold promises, in one sentence without a verb."""
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
    """One device's own threshold, where it has enough held-back scores, and how it fares under the fleet's."""

    n_scores: int
    n_above: int  #: of them above the fleet's threshold
    n_odd: int  #: of them left out of the fleet's
    own: Limit | None = None

    @property
    def alarm_rate_at_fleet(self) -> float | None:
        """The share of its held-back scores above the fleet's threshold."""
        return self.n_above / self.n_scores if self.n_scores else None


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
        """Return what verdict, p-value and explanation of a row go by: its device's own limit, or the fleet's."""
        known = None if device is None else self.devices.get(device)
        return self.fleet if known is None or known.own is None else known.own

    def limits(self, n_rows: int, devices: Sequence[str] | NDArray[np.str_] | None = None) -> NDArray[np.float64]:
        """Return the threshold of each row."""
        if devices is None:
            return np.full(n_rows, self.fleet.value)
        names, whose = np.unique(np.asarray(devices, dtype=str), return_inverse=True)
        return np.array([self.limit_for(name).value for name in names.tolist()], dtype=np.float64)[whose]

    def are_extrapolated(
        self, n_rows: int, devices: Sequence[str] | NDArray[np.str_] | None = None
    ) -> NDArray[np.bool_]:
        """Return whose threshold was extrapolated from few rows."""
        if devices is None:
            return np.full(n_rows, self.fleet.is_extrapolated)
        names, whose = np.unique(np.asarray(devices, dtype=str), return_inverse=True)
        return np.array([self.limit_for(name).is_extrapolated for name in names.tolist()], dtype=np.bool_)[whose]

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


def calibrate(scores: Mapping[str, Scores], budget: float, calibrated_on: str = "held-back rows") -> Thresholds:
    """Return thresholds from the scores of each device's rows."""
    counts = {name: count_bins(values) for name, values in scores.items()}
    total = np.sum(list(counts.values()), axis=0) if counts else np.zeros(N_BINS, np.int64)
    fleet = limit_of(total, budget, calibrated_on == "held-back rows")
    devices = {name: device_limit(own, fleet, calibrated_on == "held-back rows") for name, own in counts.items()}
    return Thresholds(fleet, calibrated_on, devices)


def count_bins(scores: Scores) -> Counts:
    """Return how many scores are in each bin."""
    return np.bincount(bins_of(scores), minlength=N_BINS)


def device_limit(counts: Counts, fleet: Limit, is_held_back: bool = True) -> DeviceLimit:
    """Return how a device fares under the fleet's threshold, and its own one if it has enough scores."""
    n_scores = int(counts.sum())
    n_above = int(counts[int(bins_of([fleet.value])[0]) + 1 :].sum())
    odd = int(bins_of([_beyond(fleet.median, fleet.tail, fleet.budget / 10)])[0])
    n_odd = int(counts[odd + 1 :].sum()) if fleet.n_scores >= FEWEST_SCORES else 0
    own = limit_of(counts, fleet.budget, is_held_back)
    return DeviceLimit(n_scores, n_above, n_odd, None if own.is_extrapolated else thinned(own))


def thinned(limit: Limit, most: int = _MOST_OWN_LEVELS) -> Limit:
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
