"""Scaling in rounds, of models that reconstruct rows: by counts, sums and extremes.

Squares, for `standard`, are taken in a second round about the mean that all devices know by then: merging those about
each device's own mean (Chan, Golub, LeVeque) is not a sum by place, and what is sent must be one.
"""

from __future__ import annotations

import numpy as np

from tolfl.core.contribution import HIGHEST, Contribution, Part
from tolfl.datasets.scaling import Moments, Scaler
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import DetectorStage, size_of
from tolfl.learners.learner import Closing, Fleet, Shape, State, Turn


class Scaling(DetectorStage):
    """How to scale each column, where that puts the fleet's mean, and how many rows each device has."""

    @property
    def rounds(self) -> int:  # type: ignore[override]  # known from the specification
        """Two for `standard`, else one."""
        return 2 if self.spec.scaling == "standard" else 1

    def part(self, turn: Turn) -> dict[str, Part]:
        """Return counts, sums, extremes and numbers of rows; in the second round, squares about the mean."""
        train = self.training_rows(turn)
        if turn.round:
            values = train.astype(np.float64)
            is_there = ~np.isnan(values)
            squares = np.where(is_there, np.square(values - turn.state["scaler/fill"]), 0.0).sum(axis=0)
            return {"counts": turn.total(is_there.sum(axis=0).astype(np.float64)), "squares": turn.total(squares)}
        own = Moments.of(train, has_squares=False)
        return {
            "counts": turn.total(own.counts),
            "sums": turn.total(own.sums),
            "lowest": turn.total(np.minimum(own.lowest, HIGHEST), "min"),
            "highest": turn.total(np.maximum(own.highest, -HIGHEST), "max"),
            "sizes": turn.total(self.sizes(turn)),
        }

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state with the scaling that the moments lead to."""
        found = {key: part.vector for key, part in total.parts.items()}
        if closing.round:
            if "squares" not in found or "scaler/fill" not in state:
                return state
            means, counts = state["scaler/fill"], found["counts"]
            moments = Moments(counts, means * counts, found["squares"], means, means)
            # The mean is that of the round before: devices may have failed since, and their rows count.
            return {**state, "scaler/factor": Scaler.fit(moments, self.spec.scaling).factor}
        if "counts" not in found:
            return state
        no_squares = np.zeros_like(found["sums"])
        moments = Moments(found["counts"], found["sums"], no_squares, found["lowest"], found["highest"])
        scaler = Scaler.fit(moments, self.spec.scaling)
        return {
            **state,
            "scaler/shift": scaler.shift,
            "scaler/factor": scaler.factor,
            "scaler/fill": scaler.fill,
            "scaler/low": np.where(moments.counts > 0, moments.lowest, 0.0),
            "scaler/high": np.where(moments.counts > 0, moments.highest, 0.0),
            "origin": scaler(moments.means[None, :])[0].astype(np.float64),
            "sizes": found["sizes"],
        }

    def is_ready(self, state: State, round_index: int) -> bool:
        """Return whether there is a mean, which squares are about."""
        return not round_index or "scaler/fill" in state

    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:  # noqa: ARG002
        """Return one number for each column of each kind, and two for each device."""
        column = Shape("sum", "f8", self.fleet.n_features)
        if round_index:
            return {"counts": column, "squares": column}
        return {
            "counts": column,
            "sums": column,
            "lowest": Shape("min", "f8", self.fleet.n_features),
            "highest": Shape("max", "f8", self.fleet.n_features),
            "sizes": Shape("sum", "i8", 2 * self.fleet.n_devices),
        }

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of the moments, and of the scaling with the numbers of rows."""
        n_columns = 1 if round_index else 6
        down = 8 * (n_columns * self.fleet.n_features + (0 if round_index else 2 * self.fleet.n_devices))
        return size_of(self.sends(round_index).values()), down


def scaling_learner(fleet: Fleet) -> Scaling:
    """Return the scaling that a fleet agrees on before another learner, over all rows of all devices."""
    kind = fleet.spec.dataset.scaling or "min-max"
    return Scaling(fleet, DetectorSpec(scaling=kind, held_back=0.0, seed=fleet.seed))
