"""Cells in rounds: medians and spreads, k-means that starts with one cell and splits, and the scatter about the cells.

Everything that travels is a count, a sum or an extreme, and what is more (a median, a split, the root of a matrix) is
worked out by whoever closes the round. Any device may be lost in any round: what it gave before stays.

Of more than `MOST_ROWS` rows of a fleet, each device takes every so many-th, drawn at random, and counts it as often.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution, Part
from tolfl.detect.cell_scaling import measures_of, scaling_from, word_columns
from tolfl.detect.cells import LEAST_ROWS, Cells, CellSums, full, root_of, split
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import Recall, flat, size_of
from tolfl.detect.novelty import NoveltyRounds
from tolfl.detect.scaling_rounds import CellScalingRounds, CellStage, Pool, WordCounts, fleet_scores
from tolfl.detect.thresholds import N_BINS, count_bins, top_of
from tolfl.kernel import kernel
from tolfl.learners.learner import Closing, Fleet, Learner, Shape, State, Turn

ROWS_PER_CELL = 10
ROUNDS_PER_DOUBLING, LAST_ROUNDS = 2, 4  #: of k-means


# -- cells ----------------------------------------------------------------------------------------------------------


class ScaledStage(CellStage):
    """A stage that works with scaled rows and cells."""

    needs = "scaling/spread"

    def scaled(self, turns: Sequence[Turn]) -> Pool:
        """Return the scaled rows of devices."""
        scaling = scaling_from(self.part_of(turns[0].state))
        return self.pool(turns, "scaled", lambda rows: scaling(flat(rows)), "scaling/spread")

    def n_cells(self, state: State) -> int:
        """Return how many cells there are."""
        return len(self.part_of(state)["cells/counts"])

    def centres_of(self, part: State) -> NDArray[np.float64]:
        """Return the cells' centres."""
        return part["cells/centres"].reshape(-1, self.fleet.n_features).astype(np.float64)


class CellRounds(ScaledStage):
    """k-means that begins with one cell and splits; or, from the cells of an earlier training, goes on with those."""

    def __init__(
        self,
        fleet: Fleet,
        spec: DetectorSpec,
        prefix: str = "",
        cut: str | None = None,
        recall: Recall | None = None,
        most: int | None = None,
        has_prior: bool = False,
    ) -> None:
        super().__init__(fleet, spec, prefix, cut, recall)
        self.most = spec.most_cells if most is None else most
        self.n_doublings = 0 if has_prior else int(np.ceil(np.log2(self.most)))
        self.rounds = ROUNDS_PER_DOUBLING * self.n_doublings + (LAST_ROUNDS if self.most > 1 else 1)

    def start(self, state: State) -> State:
        """Return the state with one cell at the median, or with those that there are."""
        part = self.part_of(state)
        if "scaling/n" not in part or "prior/counts" in state:
            return state
        return self.with_part(
            state, cells__centres=np.zeros(self.fleet.n_features, np.float32), cells__counts=part["scaling/n"].copy()
        )

    def splits(self, round_index: int) -> bool:
        """Return whether cells are split after a round."""
        return round_index % ROUNDS_PER_DOUBLING == 0 and round_index // ROUNDS_PER_DOUBLING < self.n_doublings

    def parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return sums of each device's rows by their nearest cell; of a cell with few of them, the number alone."""
        pool, weights = self.scaled(turns), self.weights(turns)
        centres, has_squares = self.centres_of(self.part_of(turns[0].state)), self.splits(turns[0].round)
        sums = _sums_by_cell(pool, centres, has_squares)
        found = []
        for turn, weight, own in zip(turns, weights.tolist(), sums, strict=True):
            parts = {
                "counts": turn.total(np.concatenate([own.n_all, own.n]) * weight),
                "sums": turn.total(own.sums.ravel() * weight),
            }
            if own.squares is not None:
                parts["squares"] = turn.total(own.squares.ravel() * weight)
            found.append(parts)
        return found

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state with the cells moved, and perhaps split."""
        found, part = {key: one.vector for key, one in total.parts.items()}, self.part_of(state)
        does_split = self.splits(closing.round)
        if not {"counts", "sums"} <= found.keys() or (does_split and "squares" not in found):
            return state
        n_features, old = self.fleet.n_features, self.centres_of(part)
        n_all, n = found["counts"].reshape(2, -1)
        squares = found["squares"].reshape(-1, n_features) if does_split else None
        sums = CellSums(n_all, n, found["sums"].reshape(-1, n_features), squares)
        if "prior/counts" in state:
            counts = state["prior/counts"]
            before = state["prior/centres"].reshape(-1, n_features)
            sums = CellSums(n_all + counts, n + counts, sums.sums + before * counts[:, None])
        centres = sums.centres(old)
        # A cell of nobody who is here stays where it is, and as heavy: what the lost gave counts.
        counts = np.where(sums.n_all > 0, sums.n_all, part["cells/counts"])
        if does_split:
            n_wanted = min(self.most, max(1, int(part["scaling/n"][0]) // ROWS_PER_CELL))
            centres, counts = split(centres, counts, sums, n_wanted)
        # On their grid, centres lose nothing in single precision.
        return self.with_part(state, cells__centres=centres.ravel().astype(np.float32), cells__counts=counts)

    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:
        """Return counts and sums for each cell; before a split, squares too."""
        n_cells = self._usual_cells(round_index) if state is None else self.n_cells(state)
        sums = Shape("sum", "f8", n_cells * self.fleet.n_features)
        shapes = {"counts": Shape("sum", "i8", 2 * n_cells), "sums": sums}
        return {**shapes, "squares": sums} if self.splits(round_index) else shapes

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of the sums, and of the cells after the round."""
        next_cells = (1 + self.splits(round_index)) * self._usual_cells(round_index)
        up = size_of(self.sends(round_index).values())
        return up, 4 * min(self.most, next_cells) * (self.fleet.n_features + 2)

    def _usual_cells(self, round_index: int) -> int:
        return min(self.most, 1 << (round_index + 1) // ROUNDS_PER_DOUBLING)


class ScatterRound(ScaledStage):
    """The sum of products about the cells' centres, how many rows each cell has, and the model that follows."""

    rounds = 1

    def parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return the scatter of each device's rows about their cells."""
        pool, weights = self.scaled(turns), self.weights(turns)
        part = self.part_of(turns[0].state)
        centres, kept = self.centres_of(part), _heavy_enough(part["cells/counts"])
        found = []
        for turn, weight, z in zip(turns, weights.tolist(), pool, strict=True):
            nearest = kernel().statistics.nearest(z, centres)
            is_in = kept[nearest]
            own = (z, nearest) if is_in.all() else (z[is_in], nearest[is_in])
            n_all = np.bincount(nearest, minlength=len(centres))
            found.append(
                {
                    "counts": turn.total(np.append(n_all, is_in.sum()) * weight),
                    "scatter": turn.total(kernel().statistics.scatter(own[0], centres, own[1]) * weight),
                }
            )
        return found

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state with the model; without anybody's rows, every column counts as it is scaled."""
        part, n_features = self.part_of(state), self.fleet.n_features
        if not self.is_ready(state, closing.round):
            return state
        found = {key: one.vector for key, one in total.parts.items()}
        counts, centres = part["cells/counts"], self.centres_of(part)
        kept = _heavy_enough(counts)
        scatter, n = np.eye(n_features)[np.triu_indices(n_features)], 1
        if {"counts", "scatter"} <= found.keys() and found["counts"][-1]:
            counts = np.where(found["counts"][:-1] > 0, found["counts"][:-1], counts)
            scatter, n = found["scatter"], int(found["counts"][-1])
        if "prior/counts" in state:
            counts = part["cells/counts"]
            away = centres - state["prior/centres"].reshape(-1, n_features)
            moved = (away * state["prior/counts"][:, None]).T @ away
            before = state["prior/scatter"] + moved[np.triu_indices(n_features)]
            n_before = int(state["prior/scatter-n"][0])
            is_new = {"counts", "scatter"} <= found.keys()
            scatter, n = (scatter + before, n + n_before) if is_new else (before, n_before)
        is_constant = part["scaling/spread"] == 0
        root = root_of(full(scatter, n_features), n, is_constant)
        return self.with_part(
            state,
            cells__centres=centres[kept].ravel().astype(np.float32),
            cells__counts=counts[kept],
            scatter=scatter,
            scatter__n=np.array([n]),
            root=root[np.triu_indices(n_features)].astype(np.float32),
        )

    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:  # noqa: ARG002
        """Return the upper half of the products, and one count for each cell."""
        n_cells = self.spec.most_cells if state is None else self.n_cells(state)
        n_features = self.fleet.n_features
        n_products = n_features * (n_features + 1) // 2
        return {"counts": Shape("sum", "i8", n_cells + 1), "scatter": Shape("sum", "f8", n_products)}

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of the products, and of the model."""
        up = size_of(self.sends(round_index).values())
        return up, 3 * up // 2 + 4 * self.spec.most_cells * self.fleet.n_features


class CutRound(ScaledStage):
    """The score above which the most anomalous rows are left out of the next pass: counted, as thresholds are."""

    rounds = 1
    needs = "root"

    def parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return counts of the scores of all rows that train, also of those that this pass left out."""
        model = Cells.from_arrays(self.part_of(turns[0].state))
        scores = [fleet_scores(model, self.training_rows(turn)) for turn in turns]
        return [{"scores": turn.total(count_bins(own))} for turn, own in zip(turns, scores, strict=True)]

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:  # noqa: ARG002
        """Return the state with the cut."""
        if "scores" not in total.parts:
            return state
        counts = np.cumsum(total.parts["scores"].vector)
        rank = int(np.ceil((1 - self.spec.trim) * counts[-1]))
        return self.with_part(state, cut=np.array([top_of(int(np.searchsorted(counts, rank)))], np.float32))

    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:  # noqa: ARG002
        """Return the counts alone."""
        return {"scores": Shape("sum", "i8", N_BINS)}

    def nbytes(self, round_index: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the bytes of counts, which travel compressed, and of one number."""
        return 8 * N_BINS // 60, 8


def cell_stages(fleet: Fleet, spec: DetectorSpec, has_prior: bool = False) -> dict[str, Learner]:
    """Return the stages of cells: with rows to be left out, two passes with one cell come first.

    `has_prior`: there are cells of an earlier training, with a scaling, to go on from.
    """
    recall = Recall()
    if has_prior:
        cells = CellRounds(fleet, spec, recall=recall, has_prior=True)
        return {"cells": cells, "scatter": ScatterRound(fleet, spec, recall=recall)}
    stages: dict[str, Learner] = {}
    cut, has_words = None, len(word_columns(fleet.columns)) > 0
    for number in (1, 2) if spec.trim else ():
        prefix = f"trim-{number}/"
        of_pass = (fleet, spec, prefix, cut, recall)
        stages |= {f"words-{number}": WordCounts(*of_pass)} if has_words else {}
        stages |= {
            f"scaling-{number}": CellScalingRounds(*of_pass),
            f"mean-{number}": CellRounds(*of_pass, most=1),
            f"scatter-{number}": ScatterRound(*of_pass),
            f"cut-{number}": CutRound(*of_pass),
        }
        cut = prefix
    last = (fleet, spec, "", cut, recall)
    stages |= {"words": WordCounts(*last)} if has_words else {}
    return {
        **stages,
        "scaling": CellScalingRounds(*last),
        "cells": CellRounds(*last),
        "scatter": ScatterRound(*last),
        **({"novelty": NoveltyRounds(fleet, spec)} if measures_of(fleet.columns).any() else {}),
    }


# -- numbers --------------------------------------------------------------------------------------------------------


def _sums_by_cell(pool: Pool, centres: NDArray[np.float64], has_squares: bool) -> list[CellSums]:
    """Return the sums of each device's rows by cell. Rows lie on a grid, so sums are exact in any order."""
    found = []
    for z in pool:
        nearest, sums, squares = kernel().statistics.sums_by_cell(z, centres, has_squares)
        n_all = np.bincount(nearest, minlength=len(centres))
        is_enough = n_all >= LEAST_ROWS
        sums[~is_enough] = 0.0
        if squares is not None:
            squares[~is_enough] = 0.0
        found.append(CellSums(n_all, np.where(is_enough, n_all, 0), sums, squares))
    return found


def _heavy_enough(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    kept: NDArray[np.bool_] = counts >= min(LEAST_ROWS, counts.max())
    return kept
