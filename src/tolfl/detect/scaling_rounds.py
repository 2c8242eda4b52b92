"""Scaling in rounds: of models that reconstruct rows by counts, sums and extremes, of cells by medians and spreads.

Squares, for `standard`, are taken in a second round about the mean that all devices know by then: merging those about
each device's own mean (Chan, Golub, LeVeque) is not a sum by place, and what travels must be one.

Of more than `MOST_ROWS` rows of a fleet, each device takes every so many-th for cells, drawn at random, and counts it
as often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import HIGHEST, Contribution, Part
from tolfl.core.logarithm import exp
from tolfl.core.seeding import Purpose, rng_for
from tolfl.datasets.scaling import Moments, Scaler
from tolfl.detect.cell_scaling import (
    LEAST_STEP,
    NUMBERS_AT_ONCE,
    SIGMA,
    Floats32,
    Rows,
    measures_of,
    noise_of,
    prepared,
    word_columns,
)
from tolfl.detect.cells import Cells
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import MOST_ROWS, DetectorStage, Recall, flat, missing_values, size_of
from tolfl.detect.novelty import units_of
from tolfl.kernel import kernel
from tolfl.learners.learner import Closing, Fleet, Shape, State, Turn
from tolfl.tables.schema import N_COUNTS

_BITS, _BITS_PER_ROUND, _MEDIAN_ROUNDS = 32, 8, 4
_BINS = 2**_BITS_PER_ROUND
_LOG_GRID = 2.0**30  #: sums of logarithms on a grid are exact, in whatever order rows come
_SCORED_ROWS = 1024  #: at once
_SAMPLED = 3  #: stream of `Purpose.PARTITION`


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
        own = Moments.of(train, missing_values(train), has_squares=False)
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
            # The mean is that of the round before: devices may have gone since, and their rows count.
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


# -- stages of cells ------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, eq=False)
class Pool:
    """Numbers of several devices in one array: each has the rows from one bound to the next."""

    rows: NDArray[Any]
    bounds: tuple[int, ...]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Return the rows of one device after the other."""
        return (self.rows[first:last] for first, last in pairwise(self.bounds))


class CellStage(DetectorStage):
    """A stage of cells. With a prefix it is part of a pass that only tells which rows are left out of the next."""

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
        if not self.prefix:
            return state
        return {key.removeprefix(self.prefix): array for key, array in state.items() if key.startswith(self.prefix)}

    def with_part(self, state: State, **arrays: NDArray[Any]) -> State:
        """Return the state with further arrays of this pass; `__` stands for a slash."""
        return {**state, **{self.prefix + name.replace("__", "/"): array for name, array in arrays.items()}}

    def with_no_words(self, state: State) -> State:
        """Return the state with no word counted."""
        counts = np.zeros(len(self.words) * N_COUNTS, np.int64)
        return self.with_part(state, words__columns=self.words, words__counts=counts)

    def rows_of(self, turn: Turn) -> Rows:
        """Return the rows of a device that train in this pass."""
        return flat(turn.rows)[self.places_of(turn)]

    def places_of(self, turn: Turn) -> NDArray[np.int64]:
        """Return the places of the rows that train in this pass: the pass before may leave some out."""
        places: NDArray[np.int64] = self.training_places(turn).astype(np.int64)
        if self.cut is None or f"{self.cut}cut" not in turn.state:
            return places
        arrays = {key.removeprefix(self.cut): one for key, one in turn.state.items() if key.startswith(self.cut)}
        scores = fleet_scores(Cells.from_arrays(arrays), flat(turn.rows)[places])
        kept: NDArray[np.int64] = places[scores <= turn.state[f"{self.cut}cut"][0]]
        return kept

    def sampled(self, turn: Turn) -> tuple[NDArray[np.int64], int]:
        """Return the places of some of the rows that train, and how often each counts."""
        found = self.recall("sample", [turn], self._cut_arrays([turn]), lambda: self._drawn(turn))
        return found[1:], int(found[0])

    def _drawn(self, turn: Turn) -> NDArray[np.int64]:
        places = self.places_of(turn)
        often = max(1, -(-len(places) // self.share_of(MOST_ROWS)))
        if often > 1:
            rng = rng_for(turn.seed, Purpose.PARTITION, turn.device, _SAMPLED)
            places = places[np.sort(rng.permutation(len(places))[: len(places) // often])]
        return np.append(often, places)

    def weights(self, turns: Sequence[Turn]) -> NDArray[np.int64]:
        """Return how often each device's rows count."""
        return np.array([self.sampled(turn)[1] for turn in turns])

    def _cut_arrays(self, turns: Sequence[Turn]) -> list[NDArray[Any]]:
        key = f"{self.cut}cut"
        return [turn.state[key] for turn in turns if key in turn.state]

    def pool(self, turns: Sequence[Turn], what: str, number: Callable[[Rows], NDArray[Any]], *keys: str) -> Pool:
        """Return what `number` makes of the sampled rows of each device; the arrays of the state it takes are named."""
        places = [self.sampled(turn)[0] for turn in turns]
        bounds = tuple(np.cumsum([0, *map(len, places)]).tolist())
        arrays = [turns[0].state[self.prefix + key] for key in keys] + self._cut_arrays(turns)

        def make() -> NDArray[Any]:
            rows = np.empty((bounds[-1], self.fleet.n_features), turns[0].rows.dtype)
            for turn, own, first, last in zip(turns, places, bounds, bounds[1:], strict=False):
                np.take(flat(turn.rows), own, axis=0, out=rows[first:last], mode="clip")  # "raise" would copy twice
            return number(rows)

        return Pool(self.recall(what, turns, arrays, make), bounds)


# -- words ----------------------------------------------------------------------------------------------------------


class WordCounts(CellStage):
    """How often each hash of a word occurs in a column, over all rows that train."""

    rounds = 1

    def start(self, state: State) -> State:
        """Return the state with no word counted."""
        return self.with_no_words(state)

    def part(self, turn: Turn) -> dict[str, Part]:
        """Return the counts of a device."""
        hashes = self.rows_of(turn)[:, self.words]
        counts = [
            np.bincount(one[np.isfinite(one)].astype(np.int64).clip(0, N_COUNTS - 1), minlength=N_COUNTS)
            for one in hashes.T
        ]
        return {"words": turn.total(np.concatenate(counts))}

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:  # noqa: ARG002
        """Return the state with the counts."""
        if "words" not in total.parts:
            return state
        return self.with_part(state, words__counts=total.parts["words"].vector)

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
        return self.with_part(state, prefixes=np.zeros(self.fleet.n_features, np.int64))

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
        pool = self.pool(turns, "keys", lambda rows: _sortable(rows, prepare), "words/counts")
        shift = _BITS - _BITS_PER_ROUND * (turns[0].round + 1)
        prefixes, statistics = part["prefixes"].astype(np.uint32), kernel().statistics
        return [
            {"medians": turn.total(statistics.counts(own, prefixes, shift).ravel() * weight)}
            for turn, own, weight in zip(turns, pool, self.weights(turns).tolist(), strict=True)
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
        part, n_features = self.part_of(state), self.fleet.n_features
        if closing.round < _MEDIAN_ROUNDS:
            prefixes = part["prefixes"] << _BITS_PER_ROUND
            if "medians" in found:
                counts = found["medians"].reshape(n_features, 2 + _BINS)
                prefixes += _median_bins(counts)
            if closing.round + 1 < _MEDIAN_ROUNDS:
                return self.with_part(state, prefixes=prefixes)
            median = from_keys(prefixes.astype(np.uint32)).astype(np.float64)
            known = {key: one for key, one in state.items() if key != f"{self.prefix}prefixes"}
            return self.with_part(known, scaling__median=np.where(np.isfinite(median), median, 0.0))
        if not {"counts", "logs", "low", "high", "sizes"} <= found.keys():
            return state
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
            measured = {f"{self.prefix}scaling/measures": self.measures, f"{self.prefix}novelty/unit": unit}
        median = np.where(is_one & is_there, found["low"], part["scaling/median"])
        return self.with_part(
            {**state, "sizes": found["sizes"], **measured},
            scaling__median=median,
            scaling__spread=spread,
            scaling__low=np.where(is_there, found["low"], median),
            scaling__high=np.where(is_there, found["high"], median),
            scaling__n=n.max(keepdims=True),
        )

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


_SIGN, _MISSING = np.uint32(1 << 31), np.uint32(2**32 - 1)


def to_keys(values: Rows) -> NDArray[np.uint32]:
    """Return whole numbers that sort as the values do, in single precision."""
    # Adding 0 turns -0.0 into 0.0: they are equal, and their bits are not.
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

    A rank is never carried from round to round: who sent the earlier counts may be gone. If the median is no longer
    inside the interval that they led to, the nearest value that is there is taken.
    """
    n, below, bins = counts[:, 0], counts[:, 1], counts[:, 2:]
    in_bins = np.cumsum(bins, axis=1)
    left = np.clip((n + 1) // 2 - below, 1, np.maximum(in_bins[:, -1], 1))
    return np.where(in_bins[:, -1] > 0, (in_bins < left[:, None]).sum(axis=1), 0)
