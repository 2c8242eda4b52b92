"""Novelty in rounds: a fleet agrees on the ranges of its columns. Any device may be lost in any round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tolfl.core.contribution import HIGHEST, Contribution, Part
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import DetectorStage, flat
from tolfl.detect.measures import measures_of, transformed
from tolfl.detect.novelty import LONE, OWN_ROWS, Novelty, own_range
from tolfl.learners.learner import Closing, Fleet, Shape, State, Turn

MOST_OWN = 64  #: devices of a fleet in which there are ranges of single devices: they travel to all


class NoveltyRounds(DetectorStage):
    """The ranges of all rows in two rounds: the extremes; then the second ones, and how many values are extreme."""

    rounds = 2

    def __init__(self, fleet: Fleet, spec: DetectorSpec) -> None:
        super().__init__(fleet, spec)
        self.measures = measures_of(fleet.columns)
        self.has_own = fleet.n_devices <= MOST_OWN

    def is_ready(self, state: State, round_index: int) -> bool:  # noqa: ARG002
        """Return whether the scaling has left units."""
        return "novelty/unit" in state

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
