"""Thresholds in rounds: four find the bits of some scores, one counts at them, one hears of each device.

The bits are those of `quantiles`, eight more in each round. But a rank cannot be counted down from round to round where
devices fail in between: what is left of it would be about scores that are gone. So every round sends how many scores
there are, how many begin with each prefix and go on with each of 256 values, and how many lie below each prefix; ranks
are worked out anew from those who are in the round. The fifth round counts at the levels found, and the threshold is
the smallest level that keeps the budget by these counts: whether it is guaranteed is counted, not inferred.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution, Part
from tolfl.datasets.scaling import Scaler
from tolfl.detect.detector_stage import DetectorStage, flat, scaled_together, scaler_of, size_of
from tolfl.detect.features import Rows
from tolfl.detect.learning import autoencoder_for
from tolfl.detect.network import Floats32, ScoringNetwork
from tolfl.detect.quantiles import bin_places, from_keys, levels_counts, to_keys
from tolfl.detect.statistics_rounds import network_from
from tolfl.detect.thresholds import DeviceThreshold, Thresholds, level_ranks, own_threshold, rank_for
from tolfl.learners.learner import Closing, Shape, State, Turn

_BIT_ROUNDS, _COUNT_ROUND, _OWN_ROUND = 4, 4, 5
_BITS, _BITS_PER_ROUND = 32, 8
_USUAL_ROWS = 1000  #: of a device, for an estimate of bytes where nobody knows

#: What the thresholds are agreed on, by its number in the state. The last: those who had any are gone.
CALIBRATED_ON = ("held-back samples", "training samples", "all samples", "no samples")
_HELD_BACK, _TRAINING, _ALL, _NONE = range(4)


class Agreement(DetectorStage):
    """The fleet's threshold, levels for p-values, and each device's own threshold; only counts travel."""

    rounds = 6

    def start(self, state: State) -> State:
        """Return the state with no bit known, and on which rows thresholds are agreed."""
        begun = {"prefixes": np.zeros(1, np.int64), "bits": np.zeros(1, np.int64)}
        return {**state, **begun, "calibration": np.array([self._calibration(state)])}

    def _calibration(self, state: State) -> int:
        if self.spec.contamination != "auto":
            return _ALL
        if "sizes" not in state:
            return _HELD_BACK
        held_back = state["sizes"][1::2]
        last = state.get("provenance/last")
        is_here = np.ones(len(held_back), bool) if last is None else last == last.max()
        return _HELD_BACK if held_back[is_here].any() else _TRAINING

    # -- a device -----------------------------------------------------------------------------------------------

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return counts of a device's scores."""
        return [
            {} if scores is None else self._parts(turn, scores)
            for turn, scores in zip(turns, self._scores(turns), strict=True)
        ]

    def _parts(self, turn: Turn, scores: Floats32) -> dict[str, Part]:
        if turn.round == _OWN_ROUND:
            return self._own(turn, scores)
        if not len(scores):
            return {}
        if turn.round == _COUNT_ROUND:
            if "levels" not in turn.state:
                return {}
            return {"counts": turn.total(np.append(len(scores), levels_counts(scores, turn.state["levels"])))}
        prefixes = turn.state["prefixes"].astype(np.uint64)
        shift = np.uint64(_BITS - _BITS_PER_ROUND - int(turn.state["bits"][0]))
        keys = to_keys(scores).astype(np.uint64)
        begun = np.sort(keys >> shift >> np.uint64(_BITS_PER_ROUND))
        below = np.searchsorted(begun, prefixes, side="left")
        n_prefixes = len(prefixes)
        # A device has few scores and many bins: only those that it has scores in are touched.
        counts = np.zeros(1 + n_prefixes * 257, np.int64)
        counts[0], counts[1 : n_prefixes + 1] = len(scores), below
        np.add.at(counts, n_prefixes + 1 + bin_places(keys, prefixes, int(shift)), 1)
        return {"counts": turn.total(counts)}

    def _own(self, turn: Turn, scores: Floats32) -> dict[str, Part]:
        if "threshold" not in turn.state:
            return {}
        n_devices, device = self.fleet.n_devices, turn.device
        own = own_threshold(scores, self.spec.budget) if self.spec.contamination == "auto" else None
        thresholds, counts = np.zeros(n_devices, np.float32), np.zeros((n_devices, 3), np.int64)
        thresholds[device] = 0.0 if own is None else own
        counts[device] = 1 if own is None else 2, len(scores), (scores > turn.state["threshold"][0]).sum()
        return {
            "own/threshold": turn.total(thresholds),
            "own/counts": turn.total(counts.ravel()),
            "sizes": turn.total(self.sizes(turn)),
        }

    def _scores(self, turns: Sequence[Turn]) -> list[Floats32 | None]:
        """Return the scores of each device; None: there is no model. Devices with one state are scored together."""
        found: list[Floats32 | None] = [None] * len(turns)
        by_state: dict[int, list[int]] = {}
        for place, turn in enumerate(turns):
            by_state.setdefault(id(turn.state), []).append(place)
        for places in by_state.values():
            state = turns[places[0]].state
            scaler, network = scaler_of(state), scoring_network(self, state)
            if scaler is not None and network is not None:
                for place, scores in zip(
                    places, self._together([turns[p] for p in places], scaler, network), strict=True
                ):
                    found[place] = scores
        return found

    def _together(self, turns: Sequence[Turn], scaler: Scaler, network: ScoringNetwork) -> list[Floats32]:
        groups = [(scaler, self._rows(turn)) for turn in turns]
        pool, bounds = scaled_together(groups, self.fleet.n_features)
        scores = network.errors(pool)
        return [scores[first:last] for first, last in bounds]

    def _rows(self, turn: Turn) -> Rows:
        calibration = int(turn.state["calibration"][0])
        if calibration in {_HELD_BACK, _TRAINING}:
            return self.held_back_rows(turn) if calibration == _HELD_BACK else self.training_rows(turn)
        return flat(turn.rows) if calibration == _ALL else flat(turn.rows)[:0]

    # -- the fleet ----------------------------------------------------------------------------------------------

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state with more bits of the levels; then with the threshold; then with each device's own."""
        found = {key: part.vector for key, part in total.parts.items()}
        if closing.round < _BIT_ROUNDS:
            state = self._with_more_bits(state, found, has_devices=bool(total.included))
            return _with_levels(state) if closing.round + 1 == _BIT_ROUNDS else state
        if closing.round == _COUNT_ROUND:
            return self._with_threshold(state, found) if total.included and "levels" in state else state
        if not {"own/threshold", "own/counts", "sizes"} <= found.keys():
            return state
        own = {key: found[key] for key in ("own/threshold", "own/counts")}
        # A device that joined late has no size from the scaling; one that is gone has none from here.
        sizes = np.where(found["sizes"] > 0, found["sizes"], state.get("sizes", 0))
        return {**state, **own, "sizes": sizes}

    def _with_more_bits(self, state: State, found: dict[str, NDArray[np.int64]], has_devices: bool) -> State:
        if "counts" not in found:
            # Nobody here has a held-back row: training rows are better than nothing, as long as nothing is known.
            is_lost = has_devices and state["calibration"][0] == _HELD_BACK and not state["bits"][0]
            return {**state, "calibration": np.array([_TRAINING])} if is_lost else state
        n_scores, n_prefixes = int(found["counts"][0]), len(state["prefixes"])
        ranks = np.unique([*level_ranks(n_scores), self._rank(n_scores)[0]])
        below, bins = found["counts"][1 : n_prefixes + 1], found["counts"][n_prefixes + 1 :].reshape(-1, 256)
        place = np.maximum(np.searchsorted(below, ranks, side="left") - 1, 0)
        # Without a death the rank lies inside the interval; otherwise the nearest score that does is taken.
        left = np.clip(ranks - below[place], 1, np.maximum(bins[place].sum(axis=1), 1))
        chosen = np.minimum((np.cumsum(bins[place], axis=1) < left[:, None]).sum(axis=1), 255)
        prefixes = np.unique((state["prefixes"][place] << _BITS_PER_ROUND) + chosen)
        return {**state, "prefixes": prefixes, "bits": state["bits"] + _BITS_PER_ROUND}

    def _with_threshold(self, state: State, found: dict[str, NDArray[np.int64]]) -> State:
        levels = state["levels"]
        if "counts" not in found:  # whose scores the levels were are gone: above the highest nobody was
            nothing = np.zeros(len(levels), np.int64)
            agreed = {"levels/at-least": nothing, "levels/higher": nothing, "agreed": np.zeros(2, np.int64)}
            return {**state, **agreed, "threshold": levels[-1:], "calibration": np.array([_NONE])}
        n_scores, (at_least, higher) = int(found["counts"][0]), found["counts"][1:].reshape(2, -1)
        rank, is_enough = self._rank(n_scores)
        keeps = np.flatnonzero(n_scores - higher >= rank)
        threshold = levels[keeps[:1]] if len(keeps) else levels[-1:]
        is_guaranteed = is_enough and len(keeps) > 0 and state["calibration"][0] == _HELD_BACK
        ranks = np.sort(level_ranks(n_scores))
        first, last = (np.searchsorted(ranks, n_scores - counts, side="right") for counts in (at_least, higher))
        kept = first < last if (first < last).any() else np.ones(len(levels), bool)
        return {
            **state,
            "levels": levels[kept],
            "levels/at-least": at_least[kept],
            "levels/higher": higher[kept],
            "threshold": threshold,
            "agreed": np.array([n_scores, int(is_guaranteed)]),
        }

    def _rank(self, n_scores: int) -> tuple[int, bool]:
        """Return which rank is the threshold, and whether that keeps the budget."""
        if self.spec.contamination != "auto":
            return max(1, n_scores - round(self.spec.contamination * n_scores)), False
        return rank_for(self.spec.budget, n_scores)

    def thresholds(self, state: State, names: Sequence[str]) -> Thresholds:
        """Return what the fleet agreed on."""
        threshold, (n_scores, is_guaranteed) = float(state["threshold"][0]), state["agreed"].tolist()
        per_device = {}
        if "own/counts" in state:
            rows = zip(names, state["own/threshold"].tolist(), state["own/counts"].reshape(-1, 3).tolist(), strict=True)
            for name, own, (kind, n_own, n_above) in rows:
                rate = n_above / n_own if n_own else None
                if kind:
                    per_device[name] = DeviceThreshold(own if kind == 2 else threshold, kind == 2, n_own, rate)
        budget = self.spec.budget if self.spec.contamination == "auto" else self.spec.contamination
        return Thresholds(
            budget,
            threshold,
            bool(is_guaranteed),
            n_scores,
            CALIBRATED_ON[int(state["calibration"][0])],
            per_device,
            *(tuple(state[key].tolist()) for key in ("levels", "levels/at-least", "levels/higher")),
        )

    # -- sizes --------------------------------------------------------------------------------------------------

    def shapes(self, state: State, round_index: int) -> dict[str, Shape]:
        """Return counts for each prefix, for each level, or for each device."""
        if round_index < _BIT_ROUNDS:
            return self._shapes(round_index, len(state["prefixes"])) if "prefixes" in state else {}
        if round_index == _COUNT_ROUND:
            return self._shapes(round_index, len(state["levels"])) if "levels" in state else {}
        return self._shapes(round_index, 0) if "threshold" in state else {}

    def _shapes(self, round_index: int, n_intervals: int) -> dict[str, Shape]:
        n_devices = self.fleet.n_devices
        if round_index <= _COUNT_ROUND:  # how many scores there are; below and in 256 bins, or at least and above
            return {"counts": Shape("sum", "i8", 1 + (2 if round_index == _COUNT_ROUND else 257) * n_intervals)}
        return {
            "own/threshold": Shape("sum", "f4", n_devices),
            "own/counts": Shape("sum", "i8", 3 * n_devices),
            "sizes": Shape("sum", "i8", 2 * n_devices),
        }

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of counts and of prefixes, for a fleet of devices of the usual size."""
        n_scores = max(1, int(self.fleet.n_devices * (self.fleet.usual_rows or _USUAL_ROWS) * self.spec.held_back))
        n_levels = len(level_ranks(n_scores))
        # Scores share their first bits: of 600 levels, a few differ in the first byte and some 200 in the second.
        n_intervals = min(n_levels, (1, 4, 200, n_levels, n_levels, 0)[round_index])
        up = size_of(self._shapes(round_index, n_intervals).values())
        if round_index < _BIT_ROUNDS:
            # Counts travel compressed: a device has few scores, and almost all bins are empty.
            up = up // 200 + 3 * max(1, n_scores // self.fleet.n_devices)
        return up, up if round_index == _OWN_ROUND else 8 * n_levels


def scoring_network(stage: DetectorStage, state: State) -> ScoringNetwork | None:
    """Return the model that the state holds; None: there is none yet."""
    if stage.spec.model == "autoencoder":
        if not state.get("autoencoder/n", np.zeros(1))[0]:
            return None
        model = autoencoder_for(stage.fleet.n_features, stage.spec)
        return ScoringNetwork.of_autoencoder(model, state["autoencoder"])
    return network_from(state, stage.fleet.n_features) if "network" in state else None


def _with_levels(state: State) -> State:
    """Return the state with the levels that the bits lead to: where some are not known, the highest that begins so."""
    known = {key: array for key, array in state.items() if key not in {"prefixes", "bits"}}
    n_open = _BITS - int(state["bits"][0])
    if n_open == _BITS:
        return known
    keys = (state["prefixes"] << n_open) + ((1 << n_open) - 1)
    highest = int(to_keys(np.array([np.finfo(np.float32).max]))[0])
    return {**known, "levels": np.unique(from_keys(np.minimum(keys, highest).astype(np.uint32)))}
