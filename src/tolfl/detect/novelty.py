"""How far a row is outside of what was seen, in units of each column's own noise; beside the joint score.

Only columns that measure something known (`MEASURES`) count. For each the fleet agrees on a range: the lowest and the
highest value of all rows, each at most `LONE` units beyond the second one, so that one odd row does not make it. From
`OWN_ROWS` rows on, a device has a range of its own; of more than 1,000 rows, one in a thousand is left out at each end.
The novelty of a row is the root of the sum of squares of what lies outside; above `LIMIT` it raises an alarm.

It needs no rows that are held back, so it works from a minute of rows on, where a threshold has to be extrapolated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import HIGHEST, Contribution, Part
from tolfl.detect.cell_scaling import SIGMA, Arrays, Floats, Rows, measures_of, noise_of, restored, transformed
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import DetectorStage, flat
from tolfl.detect.features import Features, FeatureShare
from tolfl.learners.learner import Closing, Fleet, Shape, State, Turn

LIMIT = 3.0
LONE = 3.0  #: units by which one value alone can widen a range
OWN_ROWS = 100  #: from which a device has a range of its own
MOST_OWN = 64  #: devices of a fleet in which there are ranges of single devices: they travel to all
_ROWS_PER_ODD = 1000
_OWN = "novelty/own/"


@dataclass(frozen=True, eq=False)
class Novelty:
    """Ranges of transformed values, and the unit of each column."""

    measures: NDArray[np.int64]
    unit: Floats
    low: Floats
    high: Floats
    own: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)  #: device -> low and high

    def beyond(
        self, rows: Rows, devices: NDArray[np.str_] | None = None, is_partial: NDArray[np.bool_] | None = None
    ) -> Floats:
        """Return by how many units each value is outside of its range; of a partial row, above it only."""
        values = transformed(np.asarray(rows, np.float64), self.measures)
        low, high = self._ranges(len(rows), devices)
        below = np.where((low > high) | (self.measures == 0), 0.0, np.maximum(low - values, 0.0))
        above = np.where((low > high) | (self.measures == 0), 0.0, np.maximum(values - high, 0.0))
        if is_partial is not None:
            below[is_partial] = 0.0
        found: Floats = np.nan_to_num((above + below) / self.unit)
        return found

    def scores(
        self, rows: Rows, devices: NDArray[np.str_] | None = None, is_partial: NDArray[np.bool_] | None = None
    ) -> Floats:
        """Return one number per row; above `LIMIT` it is an alarm."""
        return np.asarray(np.sqrt(np.square(self.beyond(rows, devices, is_partial)).sum(axis=1)))

    def top(
        self,
        features: Features,
        rows: Rows,
        n_top: int,
        devices: NDArray[np.str_] | None = None,
        is_partial: NDArray[np.bool_] | None = None,
    ) -> list[tuple[FeatureShare, ...]]:
        """Return for each row the values that are furthest outside, with what is usual."""
        squares = np.square(self.beyond(rows, devices, is_partial))
        low, high = (
            restored(np.broadcast_to(one, rows.shape), self.measures) for one in self._ranges(len(rows), devices)
        )
        shares = squares / np.maximum(squares.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        found = []
        for row, order in enumerate(np.argsort(-shares, axis=1, kind="stable")[:, :n_top]):
            found.append(
                tuple(
                    FeatureShare(
                        features.names[place],
                        features.units[place],
                        float(shares[row, place]),
                        float(rows[row, place]),
                        float(np.clip(rows[row, place], low[row, place], high[row, place])),
                        float(low[row, place]),
                        float(high[row, place]),
                    )
                    for place in order.tolist()
                    if squares[row, place] > 0
                )
            )
        return found

    def _ranges(self, n_rows: int, devices: NDArray[np.str_] | None) -> tuple[Floats, Floats]:
        if devices is None or not self.own:
            return self.low, self.high
        low, high = np.tile(self.low, (n_rows, 1)), np.tile(self.high, (n_rows, 1))
        for name, (own_low, own_high) in self.own.items():
            low[devices == name], high[devices == name] = own_low, own_high
        return low, high

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name."""
        return {
            "novelty/measures": self.measures,
            "novelty/unit": self.unit,
            "novelty/low": self.low,
            "novelty/high": self.high,
            **{_OWN + name: np.stack(own) for name, own in self.own.items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Novelty | None:
        """Return what `arrays` of a saved detector hold; None: nothing."""
        if "novelty/high" not in arrays:
            return None
        own = {name.removeprefix(_OWN): (one[0], one[1]) for name, one in arrays.items() if name.startswith(_OWN)}
        measures, unit, low, high = (arrays[f"novelty/{name}"] for name in ("measures", "unit", "low", "high"))
        return cls(measures, unit, low, high, own)


def units_of(measures: NDArray[np.int64], geometric: Floats, moved_share: Floats) -> Floats:
    """Return the unit of each column: its measure's noise, or more where its values spread more.

    Without the root that the spread of cells has: one odd row must not make the unit.
    """
    return np.asarray(np.maximum(np.maximum(noise_of(measures), SIGMA * geometric * moved_share), 1e-12))


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


# -- in rounds ----------------------------------------------------------------------------------------------------


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
