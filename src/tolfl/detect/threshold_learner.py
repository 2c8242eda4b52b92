"""Thresholds in two rounds: counts of all held-back scores, then each device's own threshold.

One round of counts is enough for everything that the fleet agrees on, so nobody can be lost in the middle of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution, Part
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import DetectorStage, Recall, size_of
from tolfl.detect.thresholds import (
    FEWEST_SCORES,
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
_OWN_LEVELS = 64
_OWN_NUMBERS = 4  #: before a device's own limit: its scores, those above the fleet's, odd ones, whether it has its own
_HELD_BACK, _TRAINING = "held-back rows", "training rows"

#: From rows to their scores.
ScoreRows = Callable[[NDArray[np.floating]], NDArray[np.float32]]


class ThresholdRounds(DetectorStage):
    """The fleet's threshold and p-values, and each device's own; only counts travel."""

    rounds = 2

    def __init__(
        self, fleet: Fleet, spec: DetectorSpec, scorer: Callable[[State], ScoreRows | None], arrays: Sequence[str]
    ) -> None:
        super().__init__(fleet, spec)
        self._scorer, self._arrays = scorer, tuple(arrays)
        self._recall = Recall()

    # -- a device -----------------------------------------------------------------------------------------------

    def is_ready(self, state: State, round_index: int) -> bool:
        """Return whether the round can be computed: a device's own threshold needs the fleet's counts."""
        return round_index == _COUNT_ROUND or "threshold/counts" in state

    def parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return counts of each device's scores, then its own threshold."""
        scorer = self._scorer(turns[0].state)
        return [{} if scorer is None else self._parts(turn, scorer) for turn in turns]

    def _parts(self, turn: Turn, scorer: ScoreRows) -> dict[str, Part]:
        key, counts = self._counts(turn, scorer)
        if turn.round == _COUNT_ROUND:
            return {key: turn.total(counts)} if counts.any() else {}
        return {
            f"own/{turn.device}": turn.total(_packed(self._own(turn.state, counts))),
            "sizes": turn.total(self.sizes(turn)),
        }

    def _counts(self, turn: Turn, scorer: ScoreRows) -> tuple[str, Counts]:
        """Return counts of held-back scores; without such rows, or where all have too few, of those it trained on."""
        knows_size = "sizes" in turn.state and "prior/bins" not in turn.state
        is_too_few = knows_size and turn.state["sizes"][1::2].sum() < FEWEST_SCORES
        is_held_back = self.sizes(turn)[2 * turn.device + 1] > 0 and not is_too_few
        rows_of = self.held_back_rows if is_held_back else self.training_rows
        arrays = [turn.state[key] for key in self._arrays]
        scores = self._recall("scores", [turn], arrays, lambda: scorer(rows_of(turn)))
        return ("held-back" if is_held_back else "training"), count_bins(scores)

    def _own(self, state: State, counts: Counts) -> DeviceLimit:
        return device_limit(counts, self._fleet_limit(state), bool(state["threshold/is-held-back"][0]))

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
            # Too few new scores for the budget: those of the model before are better than a guess, and no promise.
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
        own = Shape("sum", "f8", _OWN_NUMBERS + len(_FIELDS) + 2 * _OWN_LEVELS)
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
    numbers = np.full(_OWN_NUMBERS + len(_FIELDS) + 2 * _OWN_LEVELS, -1.0)
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
