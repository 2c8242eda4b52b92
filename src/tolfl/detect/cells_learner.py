"""Cells in rounds: medians and spreads, k-means that starts with one cell and splits, and the scatter about the cells.

Everything that is sent is a count, a sum or an extreme; the rest (a median, a split, the root of a matrix) is
computed by the closer of the round. Any device may be lost in any round: its earlier contributions stay.

Of more than `MOST_SAMPLED` rows of a fleet, each device takes some, drawn at random, and counts each as often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import HIGHEST, Contribution, Part
from tolfl.core.logarithm import exp
from tolfl.core.seeding import Purpose, rng_for
from tolfl.detect.cells import (
    LEAST_ROWS,
    LEAST_STEP,
    NUMBERS_AT_ONCE,
    SIGMA,
    Cells,
    CellScaling,
    CellSums,
    Floats32,
    Rows,
    full,
    measures_of,
    noise_of,
    prepared,
    root_of,
    split_cells,
    word_columns,
)
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import MOST_SAMPLED, DetectorStage, ModelStage, Recall, ScoreRows, flat, size_of
from tolfl.detect.novelty import units_of
from tolfl.detect.threshold_learner import NoveltyRounds
from tolfl.detect.thresholds import N_BINS, count_bins, top_of
from tolfl.kernel import kernel
from tolfl.learners.learner import Closing, Fleet, Learner, Shape, State, Turn
from tolfl.tables.schema import N_COUNTS

ROWS_PER_CELL = 10
ROUNDS_PER_DOUBLING, LAST_ROUNDS = 2, 4  #: of k-means
_BITS, _BITS_PER_ROUND, _MEDIAN_ROUNDS = 32, 8, 4
_BINS = 2**_BITS_PER_ROUND
_LOG_GRID = 2.0**30  #: sums of logarithms on a grid are exact, in whatever order rows come
_SCORED_ROWS = 1024  #: at once
_SAMPLED = 3  #: stream of `Purpose.PARTITION`


class CellStage(DetectorStage):
    """A stage of cells. With a prefix it is part of a pass that only finds the rows to leave out of the next."""

    def __init__(
        self, fleet: Fleet, spec: DetectorSpec, prefix: str = "", cut: str | None = None, recall: Recall | None = None
    ) -> None:
        super().__init__(fleet, spec)
        self.prefix, self.cut = prefix, cut
        self.recall = recall or Recall()
        self.words = word_columns(fleet.columns)
        measures = measures_of(fleet.columns)
        self.measures = measures if measures.any() else None

    def part_of(self, state: State) -> State:
        """Return the arrays of this pass, by their plain names."""
        return _under(self.prefix, state)

    def with_part(self, state: State, arrays: State) -> State:
        """Return the state with further arrays of this pass."""
        return {**state, **{self.prefix + name: array for name, array in arrays.items()}}

    def with_no_words(self, state: State) -> State:
        """Return the state with no word counted."""
        counts = np.zeros(len(self.words) * N_COUNTS, np.int64)
        return self.with_part(state, {"words/columns": self.words, "words/counts": counts})

    def places_of(self, turn: Turn) -> NDArray[np.int64]:
        """Return the places of the rows that train in this pass: the pass before may leave some out."""
        places: NDArray[np.int64] = self.training_places(turn).astype(np.int64)
        if self.cut is None or f"{self.cut}cut" not in turn.state:
            return places
        scores = fleet_scores(Cells.from_arrays(_under(self.cut, turn.state)), flat(turn.rows)[places])
        kept: NDArray[np.int64] = places[scores <= turn.state[f"{self.cut}cut"][0]]
        return kept

    def sampled(self, turn: Turn) -> tuple[NDArray[np.int64], int]:
        """Return the places of some of the rows that train, and how often each counts."""
        found = self.recall("sample", [turn], self._cut_arrays([turn]), lambda: self._drawn(turn))
        return found[1:], int(found[0])

    def _drawn(self, turn: Turn) -> NDArray[np.int64]:
        places = self.places_of(turn)
        often = max(1, -(-len(places) // self.share_of(MOST_SAMPLED)))
        if often > 1:
            rng = rng_for(turn.seed, Purpose.PARTITION, turn.device, _SAMPLED)
            places = places[np.sort(rng.permutation(len(places))[: len(places) // often])]
        return np.append(often, places)

    def _cut_arrays(self, turns: Sequence[Turn]) -> list[NDArray[Any]]:
        key = f"{self.cut}cut"
        return [turn.state[key] for turn in turns if key in turn.state]

    def pool(
        self, turns: Sequence[Turn], what: str, number: Callable[[Rows], NDArray[Any]], key: str
    ) -> Iterator[tuple[Turn, NDArray[Any], int]]:
        """Yield what `number` makes of each device's sampled rows and the state's `key`, and how often each counts."""
        samples = [self.sampled(turn) for turn in turns]
        bounds = np.cumsum([0, *(len(places) for places, _ in samples)]).tolist()
        arrays = [turns[0].state[self.prefix + key], *self._cut_arrays(turns)]

        def make() -> NDArray[Any]:
            rows = np.empty((bounds[-1], self.fleet.n_features), turns[0].rows.dtype)
            for turn, (own, _), (first, last) in zip(turns, samples, pairwise(bounds), strict=True):
                np.take(flat(turn.rows), own, axis=0, out=rows[first:last], mode="clip")  # "raise" would copy twice
            return number(rows)

        found = self.recall(what, turns, arrays, make)
        for turn, (_, weight), (first, last) in zip(turns, samples, pairwise(bounds), strict=True):
            yield turn, found[first:last], weight

    def scaled(self, turns: Sequence[Turn]) -> Iterator[tuple[Turn, NDArray[Any], int]]:
        """Yield the scaled rows of each device, and how often each of them counts."""
        scaling = CellScaling.from_arrays(self.part_of(turns[0].state))
        return self.pool(turns, "scaled", lambda rows: scaling(flat(rows)), "scaling/spread")

    def n_cells(self, state: State) -> int:
        """Return how many cells there are."""
        return len(self.part_of(state)["cells/counts"])

    def centres_of(self, part: State) -> NDArray[np.float64]:
        """Return the cells' centres."""
        return part["cells/centres"].reshape(-1, self.fleet.n_features).astype(np.float64)


def _under(prefix: str, state: State) -> State:
    return {key.removeprefix(prefix): one for key, one in state.items() if key.startswith(prefix)} if prefix else state


# -- words ----------------------------------------------------------------------------------------------------------


class WordCounts(CellStage):
    """How often each hash of a word occurs in a column, over all rows that train."""

    rounds = 1

    def start(self, state: State) -> State:
        """Return the state with no word counted."""
        return self.with_no_words(state)

    def part(self, turn: Turn) -> dict[str, Part]:
        """Return the counts of a device."""
        hashes = flat(turn.rows)[self.places_of(turn)][:, self.words]
        counts = [
            np.bincount(one[np.isfinite(one)].astype(np.int64).clip(0, N_COUNTS - 1), minlength=N_COUNTS)
            for one in hashes.T
        ]
        return {"words": turn.total(np.concatenate(counts))}

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:  # noqa: ARG002
        """Return the state with the counts."""
        if "words" not in total.parts:
            return state
        return self.with_part(state, {"words/counts": total.parts["words"].vector})

    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:  # noqa: ARG002
        """Return the counts alone."""
        return {"words": Shape("sum", "i8", len(self.words) * N_COUNTS)}

    def nbytes(self, round_index: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the bytes of the counts, which travel compressed."""
        n_bytes = 2 * len(self.words) * N_COUNTS
        return n_bytes, n_bytes


# -- scaling --------------------------------------------------------------------------------------------------------


class CellScalingRounds(CellStage):
    """The median of each column, eight bits in each of four rounds; then its spread, its extremes, and sizes."""

    rounds = _MEDIAN_ROUNDS + 1

    def start(self, state: State) -> State:
        """Return the state with no bit of a median known."""
        state = state if f"{self.prefix}words/counts" in state else self.with_no_words(state)
        return self.with_part(state, {"prefixes": np.zeros(self.fleet.n_features, np.int64)})

    def is_ready(self, state: State, round_index: int) -> bool:  # noqa: ARG002
        """Return whether columns of words, if any, have been counted."""
        return not {"prefixes", "scaling/median"}.isdisjoint(self.part_of(state))

    def parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return counts for the medians; in the last round, what the spread follows from."""
        if turns[0].round < _MEDIAN_ROUNDS:
            return self._median_parts(turns)
        self.recall.forget("keys")
        return [self._spread_parts(turn) for turn in turns]

    def _prepared(self, part: State) -> Callable[[Rows], NDArray[np.float64]]:
        counts = part["words/counts"].reshape(-1, N_COUNTS)
        return lambda rows: prepared(flat(rows), self.words, counts, self.measures)

    def _median_parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        part = self.part_of(turns[0].state)
        prepare = self._prepared(part)
        shift = _BITS - _BITS_PER_ROUND * (turns[0].round + 1)
        prefixes, statistics = part["prefixes"].astype(np.uint32), kernel().statistics
        return [
            {"medians": turn.total(statistics.counts(keys, prefixes, shift).ravel() * weight)}
            for turn, keys, weight in self.pool(turns, "keys", lambda rows: _sortable(rows, prepare), "words/counts")
        ]

    def _spread_parts(self, turn: Turn) -> dict[str, Part]:
        part = self.part_of(turn.state)
        median, prepare = part["scaling/median"], self._prepared(part)
        least = LEAST_STEP * np.abs(median)
        sums = np.zeros((3, len(median)))
        low, high = np.full(len(median), HIGHEST), np.full(len(median), -HIGHEST)
        rows, places = flat(turn.rows), self.places_of(turn)
        step = max(1, NUMBERS_AT_ONCE // max(1, len(median)))
        for first in range(0, len(places), step):
            some = rows[places[first : first + step]]
            is_ready = not len(self.words) and self.measures is None
            found = kernel().statistics.spread(some if is_ready else prepare(some), median, least)
            sums += found[:3]
            low, high = np.minimum(low, found[3]), np.maximum(high, found[4])
        (n, moved), logs = sums[:2].astype(np.int64), sums[2]
        return {
            "counts": turn.total(np.concatenate([n, moved])),
            "logs": turn.total(logs),
            "low": turn.total(low, "min"),
            "high": turn.total(high, "max"),
            "sizes": turn.total(self.sizes(turn)),
        }

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state with more bits of the medians, or with the scaling."""
        found = {key: part.vector for key, part in total.parts.items()}
        if closing.round < _MEDIAN_ROUNDS:
            return self._with_bits(state, found.get("medians"), closing.round + 1 == _MEDIAN_ROUNDS)
        return self._with_spread(state, found) if {"counts", "logs", "low", "high", "sizes"} <= found.keys() else state

    def _with_bits(self, state: State, counts: NDArray[np.int64] | None, are_last: bool) -> State:
        prefixes = self.part_of(state)["prefixes"] << _BITS_PER_ROUND
        if counts is not None:
            prefixes += _median_bins(counts.reshape(-1, 2 + _BINS))
        if not are_last:
            return self.with_part(state, {"prefixes": prefixes})
        median = from_keys(prefixes.astype(np.uint32)).astype(np.float64)
        known = {key: one for key, one in state.items() if key != f"{self.prefix}prefixes"}
        return self.with_part(known, {"scaling/median": np.where(np.isfinite(median), median, 0.0)})

    def _with_spread(self, state: State, found: State) -> State:
        n, moved = found["counts"].reshape(2, -1)
        geometric = exp(found["logs"] / _LOG_GRID / np.maximum(moved, 1))
        spread = np.where(moved > 0, SIGMA * geometric * np.sqrt(moved / np.maximum(n, 1)), 0.0)
        # The median is rounded to single precision: of one value all over, it is that value.
        is_one, is_there = found["low"] == found["high"], n > 0
        spread = np.where(is_one, 0.0, spread)
        measured: State = {}
        if self.measures is not None:
            spread = np.maximum(spread, noise_of(self.measures))
            unit = units_of(self.measures, geometric, moved / np.maximum(n, 1))
            measured = {"scaling/measures": self.measures, "novelty/unit": unit}
        median = np.where(is_one & is_there, found["low"], self.part_of(state)["scaling/median"])
        scaling = {
            "scaling/median": median,
            "scaling/spread": spread,
            "scaling/low": np.where(is_there, found["low"], median),
            "scaling/high": np.where(is_there, found["high"], median),
            "scaling/n": n.max(keepdims=True),
        }
        return self.with_part({**state, "sizes": found["sizes"]}, {**measured, **scaling})

    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:  # noqa: ARG002
        """Return counts for medians, or sums and extremes for each column."""
        n_features = self.fleet.n_features
        if round_index < _MEDIAN_ROUNDS:
            return {"medians": Shape("sum", "i8", n_features * (2 + _BINS))}
        return {
            "counts": Shape("sum", "i8", 2 * n_features),
            "logs": Shape("sum", "f8", n_features),
            "low": Shape("min", "f8", n_features),
            "high": Shape("max", "f8", n_features),
            "sizes": Shape("sum", "i8", 2 * self.fleet.n_devices),
        }

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of counts, which travel compressed, and of what is known of the columns."""
        up = size_of(self.sends(round_index).values())
        if round_index < _MEDIAN_ROUNDS:
            return up // 40, 8 * self.fleet.n_features
        return up, 32 * self.fleet.n_features + 16 * self.fleet.n_devices


# -- cells ----------------------------------------------------------------------------------------------------------


class CellRounds(CellStage):
    """k-means that begins with one cell and splits; or, from the cells of an earlier training, goes on with those."""

    needs = "scaling/spread"

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
        centre = np.zeros(self.fleet.n_features, np.float32)
        return self.with_part(state, {"cells/centres": centre, "cells/counts": part["scaling/n"].copy()})

    def splits(self, round_index: int) -> bool:
        """Return whether cells are split after a round."""
        return round_index % ROUNDS_PER_DOUBLING == 0 and round_index // ROUNDS_PER_DOUBLING < self.n_doublings

    def parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return sums of each device's rows by their nearest cell; of a cell with few of them, the number alone."""
        centres, has_squares = self.centres_of(self.part_of(turns[0].state)), self.splits(turns[0].round)
        found = []
        for turn, z, weight in self.scaled(turns):
            # Rows lie on a grid, so sums are exact in any order.
            nearest, sums, squares = kernel().statistics.sums_by_cell(z, centres, has_squares)
            n_all = np.bincount(nearest, minlength=len(centres))
            is_few = n_all < LEAST_ROWS
            sums[is_few] = 0.0
            counts = np.concatenate([n_all, np.where(is_few, 0, n_all)])
            parts = {"counts": turn.total(counts * weight), "sums": turn.total(sums.ravel() * weight)}
            if squares is not None:
                squares[is_few] = 0.0
                parts["squares"] = turn.total(squares.ravel() * weight)
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
        # A cell without rows of present devices keeps centre and weight: lost devices' contributions count.
        counts = np.where(sums.n_all > 0, sums.n_all, part["cells/counts"])
        if does_split:
            n_wanted = min(self.most, max(1, int(part["scaling/n"][0]) // ROWS_PER_CELL))
            centres, counts = split_cells(centres, counts, sums, n_wanted)
        # On their grid, centres lose nothing in single precision.
        centres = centres.ravel().astype(np.float32)
        return self.with_part(state, {"cells/centres": centres, "cells/counts": counts})

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


class ScatterRound(CellStage, ModelStage):
    """The sum of products about the cells' centres, how many rows each cell has, and the model that follows."""

    rounds = 1
    needs, leaves, counts = "scaling/spread", "root", "scaling/n"

    def model(self, state: State) -> Cells | None:
        """Return the cells; None: there are none yet."""
        return Cells.from_arrays(state) if "root" in state else None

    def scorer(self, state: State) -> ScoreRows | None:
        """Return what scores rows with the same bits on every processor."""
        model = self.model(state)
        return None if model is None else partial(fleet_scores, model)

    def parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return the scatter of each device's rows about their cells."""
        part = self.part_of(turns[0].state)
        centres, kept = self.centres_of(part), _heavy_enough(part["cells/counts"])
        found = []
        for turn, z, weight in self.scaled(turns):
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
        """Return the state with the model; without any rows the covariance is the identity."""
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
        model = {
            "cells/centres": centres[kept].ravel().astype(np.float32),
            "cells/counts": counts[kept],
            "scatter": scatter,
            "scatter/n": np.array([n]),
            "root": root[np.triu_indices(n_features)].astype(np.float32),
        }
        return self.with_part(state, model)

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


class CutRound(CellStage):
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
        return self.with_part(state, {"cut": np.array([top_of(int(np.searchsorted(counts, rank)))], np.float32)})

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


def fleet_scores(model: Cells, rows: Rows) -> Floats32:
    """Return scores as the rounds of a fleet count them: the same bits on every processor."""
    statistics = kernel().statistics
    centres = statistics.product(model.centres, model.root)
    scores = np.empty(len(rows), np.float32)
    for first in range(0, len(rows), _SCORED_ROWS):
        z = model.scaling(rows[first : first + _SCORED_ROWS]).astype(np.float64)
        turned = statistics.product(z, model.root)
        scores[first : first + _SCORED_ROWS] = statistics.least_distances(turned, centres, model.penalty)
    return scores


def _heavy_enough(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    kept: NDArray[np.bool_] = counts >= min(LEAST_ROWS, counts.max())
    return kept


_SIGN, _MISSING = np.uint32(1 << 31), np.uint32(2**32 - 1)


def to_keys(values: Rows) -> NDArray[np.uint32]:
    """Return whole numbers that sort as the values do, in single precision."""
    # Adding 0 turns -0.0 into 0.0: they are equal, but their bits differ.
    bits = np.add(values, np.float32(0.0), dtype=np.float32, casting="same_kind").view(np.uint32)
    flips = (bits.view(np.int32) >> 31).view(np.uint32)  # all bits of a negative number are turned, else the sign
    flips |= _SIGN
    bits ^= flips
    return bits


def from_keys(keys: NDArray[np.uint32]) -> Floats32:
    """Return the values that have these keys."""
    return np.where(keys & _SIGN, keys & ~_SIGN, ~keys).astype(np.uint32).view(np.float32)


def _sortable(rows: Rows, prepared: Callable[[Rows], NDArray[np.float64]]) -> NDArray[np.uint32]:
    """Return whole numbers that sort as the values do; that of a missing value is the highest."""
    keys = np.empty(rows.shape, np.uint32)
    step = max(1, NUMBERS_AT_ONCE // max(1, rows.shape[1]))
    for first in range(0, len(rows), step):
        some = prepared(rows[first : first + step])
        with np.errstate(over="ignore"):
            keys[first : first + step] = to_keys(some)
        is_missing = np.isnan(some)
        if is_missing.any():
            keys[first : first + step][is_missing] = _MISSING
    return keys


def _median_bins(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bin of each column's median, by the counts of those who are in the round.

    A rank is never carried from round to round: a device of earlier counts may be lost. If the median is no longer
    inside the interval that they led to, the nearest value that is there is taken.
    """
    n, below, bins = counts[:, 0], counts[:, 1], counts[:, 2:]
    in_bins = np.cumsum(bins, axis=1)
    left = np.clip((n + 1) // 2 - below, 1, np.maximum(in_bins[:, -1], 1))
    return np.where(in_bins[:, -1] > 0, (in_bins < left[:, None]).sum(axis=1), 0)
