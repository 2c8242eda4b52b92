"""Thresholds and ranges in rounds: thresholds from counts of the scores of calibration sets, ranges from extremes.

One round of counts is enough for everything that the fleet agrees on, so no failure can split it; a
second one has each device's own threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import HIGHEST, Contribution, Part
from tolfl.detect.cells import Floats, measures_of, transformed
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import DetectorStage, ModelStage, Recall, ScoreRows, flat, size_of
from tolfl.detect.novelty import LONE, OWN_ROWS, Novelty
from tolfl.detect.thresholds import (
    FEWEST_SCORES,
    MOST_OWN_LEVELS,
    N_BINS,
    Counts,
    DeviceLimit,
    Limit,
    Thresholds,
    count_bins,
    device_limit,
    limit_of,
)
from tolfl.learners.learner import Closing, Fleet, Shape, State, Turn

_COUNT_ROUND = 0  #: then each device's own
_OWN_NUMBERS = 4  #: before a device's own limit: its scores, those above the fleet's, odd ones, whether it has its own
_HELD_BACK, _TRAINING = "held-back rows", "training rows"
MOST_OWN = 64  #: devices of a fleet in which there are ranges of single devices: they travel to all
_ROWS_PER_ODD = 1000


class ThresholdRounds(DetectorStage):
    """The fleet's threshold and p-values, and each device's own; only counts travel."""

    rounds = 2

    def __init__(self, fleet: Fleet, spec: DetectorSpec, before: ModelStage) -> None:
        super().__init__(fleet, spec)
        self._before, self._recall = before, Recall()

    # -- a device -----------------------------------------------------------------------------------------------

    def is_ready(self, state: State, round_index: int) -> bool:
        """Return whether the round can be computed: a device's own threshold needs the fleet's counts."""
        return round_index == _COUNT_ROUND or "threshold/counts" in state

    def parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return counts of each device's scores, then its own threshold."""
        scorer = self._before.scorer(turns[0].state)
        return [{} if scorer is None else self._parts(turn, scorer) for turn in turns]

    def _parts(self, turn: Turn, scorer: ScoreRows) -> dict[str, Part]:
        """Return counts of held-back scores; without such rows, or where all have too few, of those it trained on."""
        state, sizes = turn.state, self.sizes(turn)
        knows_size = "sizes" in state and "prior/bins" not in state
        is_too_few = knows_size and state["sizes"][1::2].sum() < FEWEST_SCORES
        is_held_back = sizes[2 * turn.device + 1] > 0 and not is_too_few
        rows_of = self.calibration_rows if is_held_back else self.training_rows
        scores = self._recall("scores", [turn], [state[self._before.leaves]], lambda: scorer(rows_of(turn)))
        counts = count_bins(scores)
        if turn.round == _COUNT_ROUND:
            return {"held-back" if is_held_back else "training": turn.total(counts)} if counts.any() else {}
        own = device_limit(counts, self._fleet_limit(state), bool(state["threshold/is-held-back"][0]))
        return {f"own/{turn.device}": turn.total(_packed(own)), "sizes": turn.total(sizes)}

    # -- the fleet ----------------------------------------------------------------------------------------------

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state with the counts that the fleet's threshold follows from; then with each device's own."""
        found = {key: part.vector for key, part in total.parts.items()}
        if closing.round == _COUNT_ROUND:
            counts = found.get("held-back", found.get("training"))
            return state if counts is None else self._with_counts(state, counts, "held-back" in found)
        own = {key: vector for key, vector in found.items() if key.startswith("own/")}
        if not own or "sizes" not in found:
            return state
        # A device that joined late has no size from the scaling; one that is gone has none from here.
        sizes = np.where(found["sizes"] > 0, found["sizes"], state.get("sizes", 0))
        return {**state, **own, "sizes": sizes}

    def _with_counts(self, state: State, counts: Counts, is_held_back: bool) -> State:
        if "prior/bins" in state and counts.sum() + 1 < 1 / self.spec.budget:
            # Too few new scores for the budget: those of the model before are better than a guess.
            counts = counts.copy()
            counts[state["prior/bins"]] += state["prior/bin-counts"]
            is_held_back = False
        bins = np.flatnonzero(counts)
        return {
            **state,
            "threshold/bins": bins,
            "threshold/counts": counts[bins],
            "threshold/is-held-back": np.array([int(is_held_back)]),
        }

    def _fleet_limit(self, state: State) -> Limit:
        counts = np.zeros(N_BINS, np.int64)
        counts[state["threshold/bins"]] = state["threshold/counts"]
        return limit_of(counts, self.spec.budget, bool(state["threshold/is-held-back"][0]))

    def thresholds(self, state: State, names: Sequence[str]) -> Thresholds | None:
        """Return what the fleet agreed on; None: nothing yet."""
        if "threshold/counts" not in state:
            return None
        fleet = self._fleet_limit(state)
        own = {name: state[f"own/{device}"] for device, name in enumerate(names) if f"own/{device}" in state}
        is_held_back = bool(state["threshold/is-held-back"][0])
        devices = {name: _unpacked(one, self.spec.budget, is_held_back) for name, one in own.items()}
        return Thresholds(fleet, _HELD_BACK if is_held_back else _TRAINING, devices)

    # -- sizes --------------------------------------------------------------------------------------------------

    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:  # noqa: ARG002
        """Return counts in bins; then a few numbers for each device."""
        if round_index == _COUNT_ROUND:
            return {key: Shape("sum", "i8", N_BINS) for key in ("held-back", "training")}
        own = Shape("sum", "f8", _OWN_NUMBERS + len(_FIELDS) + 2 * MOST_OWN_LEVELS)
        sizes = {"sizes": Shape("sum", "i8", 2 * self.fleet.n_devices)}
        return {**{f"own/{device}": own for device in range(self.fleet.n_devices)}, **sizes}

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of counts, which travel compressed, and of the devices' own thresholds."""
        if round_index == _COUNT_ROUND:
            n_scores = max(1, int((self.fleet.usual_rows or 1000) * self.spec.held_back))
            return 8 * N_BINS // 100 + 4 * n_scores, 16 * min(1000, n_scores * self.fleet.n_devices)
        own = size_of([self.sends(round_index)["own/0"]])
        return own + 16 * self.fleet.n_devices, (own + 16) * self.fleet.n_devices


#: Numbers of a device's own limit that travel, before its levels and counts.
_FIELDS = ("value", "n_scores", "n_odd", "n_above", "is_guaranteed", "median", "tail")


def _packed(device: DeviceLimit) -> NDArray[np.float64]:
    """Return a device's own threshold as numbers; levels are filled up with -1."""
    numbers = np.full(_OWN_NUMBERS + len(_FIELDS) + 2 * MOST_OWN_LEVELS, -1.0)
    own = device.own
    numbers[:_OWN_NUMBERS] = device.n_scores, device.n_above, device.n_odd, own is not None
    if own is not None:
        rest = numbers[_OWN_NUMBERS:]
        rest[: len(_FIELDS)] = [getattr(own, name) for name in _FIELDS]
        levels, n_at_least = rest[len(_FIELDS) :].reshape(2, -1)
        levels[: len(own.levels)], n_at_least[: len(own.levels)] = own.levels, own.n_at_least
    return numbers


def _unpacked(numbers: NDArray[np.float64], budget: float, is_held_back: bool) -> DeviceLimit:
    """Return what `_packed` packed."""
    n_scores, n_above, n_odd, has_own = (int(number) for number in numbers[:_OWN_NUMBERS])
    if not has_own:
        return DeviceLimit(n_scores, n_above, n_odd)
    rest = numbers[_OWN_NUMBERS:]
    fields: dict[str, Any] = dict(zip(_FIELDS, rest[: len(_FIELDS)].tolist(), strict=True))
    fields |= {name: int(fields[name]) for name in ("n_scores", "n_odd", "n_above")}
    levels, n_at_least = rest[len(_FIELDS) :].reshape(2, -1).astype(np.int64)
    is_level = levels >= 0
    own = Limit(
        **{**fields, "is_guaranteed": is_held_back and bool(fields["is_guaranteed"])},
        budget=budget,
        is_extrapolated=False,
        levels=tuple(levels[is_level].tolist()),
        n_at_least=tuple(n_at_least[is_level].tolist()),
    )
    return DeviceLimit(n_scores, n_above, n_odd, own)


# -- ranges ---------------------------------------------------------------------------------------------------------


class NoveltyRounds(DetectorStage):
    """The ranges of all rows in two rounds: the extremes; then the second ones, and how many values are extreme.

    Any device may be lost in any round.
    """

    rounds = 2
    needs = "novelty/unit"

    def __init__(self, fleet: Fleet, spec: DetectorSpec) -> None:
        super().__init__(fleet, spec)
        self.measures = measures_of(fleet.columns)
        self.has_own = fleet.n_devices <= MOST_OWN

    def part(self, turn: Turn) -> dict[str, Part]:
        """Return the extremes of a device, or its second ones and its own range."""
        values = transformed(flat(turn.rows).astype(np.float64), self.measures)
        if turn.round == 0:
            low, high = np.fmin.reduce(values, initial=HIGHEST), np.fmax.reduce(values, initial=-HIGHEST)
            return {"low": turn.total(low, "min"), "high": turn.total(high, "max")}
        low, high = turn.state["novelty/low"], turn.state["novelty/high"]
        second_low = np.fmin.reduce(np.where(values > low, values, np.nan), initial=HIGHEST)
        second_high = np.fmax.reduce(np.where(values < high, values, np.nan), initial=-HIGHEST)
        counts = np.concatenate([(values == low).sum(axis=0), (values == high).sum(axis=0)])
        found = {
            "low": turn.total(second_low, "min"),
            "high": turn.total(second_high, "max"),
            "counts": turn.total(counts.astype(np.int64)),
        }
        if self.has_own:
            own = np.zeros((self.fleet.n_devices, 1 + 2 * values.shape[1]))
            if len(values) >= OWN_ROWS:
                own[turn.device] = np.concatenate([[1.0], *own_range(values, turn.state["novelty/unit"])])
            found["own"] = turn.total(own.ravel())
        return found

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state with the extremes, or with ranges that no single value makes."""
        found = {key: part.vector for key, part in total.parts.items()}
        if not {"low", "high"} <= found.keys():
            return state
        if closing.round == 0 or "novelty/high" not in state:
            return {**state, "novelty/low": found["low"], "novelty/high": found["high"]}
        if "counts" not in found:
            return state
        reach = LONE * state["novelty/unit"]
        n_low, n_high = found["counts"].reshape(2, -1)
        low, high = state["novelty/low"], state["novelty/high"]
        is_lone_low, is_lone_high = (n_low < 2) & (found["low"] < HIGHEST), (n_high < 2) & (found["high"] > -HIGHEST)
        low = np.where(is_lone_low, np.maximum(low, found["low"] - reach), low)
        high = np.where(is_lone_high, np.minimum(high, found["high"] + reach), high)
        own = {"novelty/own-ranges": found["own"]} if "own" in found else {}
        return {**state, "novelty/low": low, "novelty/high": high, **own}

    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:  # noqa: ARG002
        """Return extremes, counts, and a place for the range of each device."""
        n_features = self.fleet.n_features
        found = {"low": Shape("min", "f8", n_features), "high": Shape("max", "f8", n_features)}
        if round_index:
            found["counts"] = Shape("sum", "i8", 2 * n_features)
            if self.has_own:
                found["own"] = Shape("sum", "f8", self.fleet.n_devices * (1 + 2 * n_features))
        return found

    def novelty(self, state: State, names: Sequence[str]) -> Novelty | None:
        """Return the ranges that a state holds; None: there are none."""
        if "novelty/high" not in state:
            return None
        low, high, own = state["novelty/low"], state["novelty/high"], {}
        if "novelty/own-ranges" in state:
            ranges = state["novelty/own-ranges"].reshape(self.fleet.n_devices, -1)
            own = {
                name: (one[1 : 1 + len(low)], one[1 + len(low) :])
                for name, one in zip(names, ranges, strict=True)
                if one[0] == 1.0
            }
            if self.fleet.n_devices == 1 and own:
                low, high = own[names[0]]
        return Novelty(self.measures, state["novelty/unit"], low, high, own)


def own_range(values: Floats, unit: Floats) -> tuple[Floats, Floats]:
    """Return the range of one device's transformed rows."""
    n_odd = len(values) // _ROWS_PER_ODD if len(values) > _ROWS_PER_ODD else 0
    n = np.isfinite(values).sum(axis=0)
    ordered = np.sort(np.where(np.isfinite(values), values, np.inf), axis=0)
    place = np.arange(values.shape[1])
    low, second_low = (ordered[np.minimum(rank, np.maximum(n - 1, 0)), place] for rank in (n_odd, n_odd + 1))
    high, second_high = (ordered[np.maximum(n - 1 - rank, 0), place] for rank in (n_odd, n_odd + 1))
    if not n_odd:
        low, high = np.maximum(low, second_low - LONE * unit), np.minimum(high, second_high + LONE * unit)
    is_there = n > 0
    return np.where(is_there, low, HIGHEST), np.where(is_there, high, -HIGHEST)
