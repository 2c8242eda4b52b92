"""Novelty: how far a row is outside of the ranges of training, in units of each column's noise; beside the score.

Only columns that measure something known (`MEASURES`) count. For each the fleet agrees on a range: the lowest and the
highest value of all rows, each at most `LONE` units beyond the second one, so that one outlier does not set it. From
`OWN_ROWS` rows on, a device has a range of its own; of more than 1,000 rows, one in a thousand is left out at each end.
The novelty of a row is the root of the sum of squares of what lies outside; above `LIMIT` it raises an alarm.

It needs no calibration set, so it works from a minute of rows on, where a threshold has to be extrapolated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.detect.cells import SIGMA, Arrays, Floats, Rows, noise_of, restored, transformed
from tolfl.detect.features import Features, FeatureShare

LIMIT = 3.0
LONE = 3.0  #: units by which one value alone can widen a range
OWN_ROWS = 100  #: from which a device has a range of its own
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
