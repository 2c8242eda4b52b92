"""The default detector: the distance of a row to the nearest of at most 32 cells, in the fleet's units.

Each column is centred at the fleet's median and divided by a spread that is a geometric mean; beyond `KNEE` spreads it
counts by its logarithm. The rows are divided into cells, which share one shrunk covariance W. A row's score is

    min over cells j of  (z - c_j)' W^-1 (z - c_j) + 2 WEIGHT log(n_max / n_j)

With one cell that is the Mahalanobis distance. numpy alone: whatever scores rows imports this file.

What a source knows of a column (a count, a share, a level) gives its noise a size before a single row is seen. A
measure is a transformation t after which the noise of a value is about the same everywhere, and the size of that noise.
A constant column of counts then has a scale: from 0 to 10 are 5.2 deviations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from tolfl.core.logarithm import arcsine, exp, log
from tolfl.tables.schema import N_COUNTS, RARITY, name_and_unit

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Rows = NDArray[np.floating]
Arrays = Mapping[str, NDArray[Any]]

KNEE = 6.0  #: a column counts linearly up to so many spreads, by the logarithm beyond
FARTHEST = 1e50  #: spreads; scaled values stay below 700, so that their products are exact in double precision
SIGMA = 1.9  #: from the geometric mean of |x - median| to the standard deviation, for a normal column
GRID = 2.0**16  #: scaled values are multiples of 1 / GRID: rounding in another unit does not decide a tie
LEAST_STEP = 1.2e-7  #: a smaller relative difference to the median is none: samples are float32
NUMBERS_AT_ONCE = 2**17  #: what fits into a cache
WEIGHT = 4.0  #: weight of the penalty of light cells; 1 would be the likelihood of a mixture
LEAST_SHRINKAGE = 1e-3  #: with many rows there is hardly any, and a duplicated column would be singular

_BLOCK_ROWS = 256  #: matrix products of one shape add in one order, wherever a row is
_WIDTH_STEP = 16

#: Several threads add in an order that depends on the machine: `with one_thread.limit(limits=1)`.
one_thread = ThreadpoolController()

# -- what columns measure -------------------------------------------------------------------------------------------


class Measure(NamedTuple):
    """A transformation (`2 sqrt(x + shift)`, `asin sqrt(x)`, `log(x + shift)`, or none) and the noise behind it."""

    name: str
    how: str
    shift: float
    noise: float


#: Never reordered: a saved detector stores indices into it. The first is for columns without a known measure.
MEASURES = (
    Measure("", "", 0.0, 0.0),
    Measure("count", "root", 3 / 8, 1.0),  # Poisson
    Measure("share", "arc", 0.0, 0.05),
    Measure("level", "", 0.0, 2.0),  # dB, dBm
    Measure("volume", "log", 100.0, 0.25),  # bytes
    Measure("rate", "log", 1.0, 0.25),  # Mb/s
    Measure("duration", "log", 0.01, 0.25),  # s
    # Of a receiver, relative to its own noise.
    Measure("strength", "", 0.0, 1.0),  # dB
    Measure("peak", "", 0.0, 3.0),  # dB
    Measure("pulse", "log", 1e-5, 0.15),  # s
    Measure("ratio", "", 0.0, 0.15),  # a difference of logarithms
    Measure("offset", "", 0.0, 4.0),  # kHz
    Measure("band", "log", 2.0, 0.15),  # kHz
    Measure("entropy", "", 0.0, 0.25),  # bit
    Measure("variation", "", 0.0, 0.1),
)
_PLACES = {measure.name: place for place, measure in enumerate(MEASURES)}


def measures_of(names: Sequence[str]) -> NDArray[np.int64]:
    """Return the place of each feature's measure, by its name with unit and measure in brackets.

    >>> measures_of(["x", "beacons [; count]", "signal [dBm; level]"]).tolist()
    [0, 1, 3]
    """
    return np.array([_PLACES.get(name_and_unit(name)[3], 0) for name in names], np.int64)


def noise_of(measures: NDArray[np.int64]) -> Floats:
    """Return the size of the noise of each transformed column."""
    return np.array([MEASURES[place].noise for place in measures.tolist()])


def transformed(values: Floats, measures: NDArray[np.int64]) -> Floats:
    """Return transformed values, with noise of their measure's size; an impossible value becomes the nearest possible.

    >>> transformed(np.array([[0.0, 10.0]]), np.array([1, 1])).round(2).tolist()
    [[1.22, 6.44]]
    """
    found = values.copy()
    for how, shift, columns in _groups(measures):
        own = np.maximum(found[:, columns], 0.0)
        if how == "root":
            found[:, columns] = 2 * np.sqrt(own + shift)
        elif how == "arc":
            found[:, columns] = arcsine(np.sqrt(np.minimum(own, 1.0)))
        else:
            found[:, columns] = log(own + shift)
    return found


def restored(values: Floats, measures: NDArray[np.int64]) -> Floats:
    """Return the values that `transformed` would turn into these."""
    found = np.array(values, np.float64, ndmin=2)
    for how, shift, columns in _groups(measures):
        own = found[:, columns]
        if how == "root":
            found[:, columns] = np.maximum(np.square(np.maximum(own, 0.0) / 2) - shift, 0.0)
        elif how == "arc":
            found[:, columns] = np.square(np.sin(np.clip(own, 0.0, np.pi / 2)))
        else:
            found[:, columns] = np.maximum(exp(np.minimum(own, 80.0)) - shift, 0.0)
    return np.round(found, 9).reshape(np.shape(values))  # 0 bytes, not 4e-14


def _groups(measures: NDArray[np.int64]) -> list[tuple[str, float, NDArray[np.int64]]]:
    """Return the columns of each transformation that is one."""
    return [
        (measure.how, measure.shift, columns)
        for place, measure in enumerate(MEASURES)
        if measure.how and len(columns := np.flatnonzero(measures == place))
    ]


# -- the scaling of cells -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CellScaling:
    """Column by column `z = bend((x - median) / spread)`: unit-free, with a spread that no single row decides."""

    median: Floats
    spread: Floats  #: 0: the column is constant
    low: Floats
    high: Floats
    n_rows: int
    word_columns: NDArray[np.int64]  #: those with hashes of words
    word_counts: NDArray[np.int64]  #: `(n_word_columns, N_COUNTS)`
    measures: NDArray[np.int64] | None = None  #: what columns measure, and are transformed by first; None: nothing

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> CellScaling:
        """Return the scaling that `Cells.arrays` or the state of a fleet holds."""
        median, spread, low, high = (arrays[f"scaling/{name}"] for name in ("median", "spread", "low", "high"))
        counts = arrays["words/counts"].reshape(-1, N_COUNTS)
        n_rows, words = int(arrays["scaling/n"][0]), arrays["words/columns"]
        return cls(median, spread, low, high, n_rows, words, counts, arrays.get("scaling/measures"))

    @cached_property
    def is_constant(self) -> NDArray[np.bool_]:
        """Which columns are constant; any other value there is a step of fixed size."""
        return np.asarray(self.spread == 0)

    @cached_property
    def constant_step(self) -> float:
        """The step of any other value in a constant column: about the largest of so many normal numbers."""
        return float(np.sqrt(2 * log(self.n_rows + 2)))

    def __call__(self, rows: Rows) -> Floats32:
        """Return scaled rows; a missing value is the median."""
        z = np.empty(rows.shape, np.float32)
        step = max(1, NUMBERS_AT_ONCE // max(1, rows.shape[1]))
        for first in range(0, len(rows), step):
            z[first : first + step] = self._scaled(rows[first : first + step])
        return z

    def _scaled(self, rows: Rows) -> Floats:
        off = prepared(rows, self.word_columns, self.word_counts, self.measures) - self.median
        constant = np.flatnonzero(self.is_constant)
        steps = off[:, constant]
        with np.errstate(over="ignore"):
            off /= np.where(self.is_constant, 1.0, self.spread)
        is_step = np.abs(steps) > LEAST_STEP * np.abs(self.median[constant])
        off[:, constant] = np.where(is_step, np.sign(steps) * self.constant_step, 0.0)
        is_far = np.abs(off) > KNEE
        if is_far.any():
            far = off[is_far]
            off[is_far] = np.sign(far) * KNEE * (1 + log(np.minimum(np.abs(far), FARTHEST) / KNEE))
        off *= GRID
        np.rint(off, out=off)
        off /= GRID
        off[np.isnan(off)] = 0.0
        return off

    def back(self, z: Floats) -> Floats:
        """Return values in the columns' own units, never outside of what the fleet has seen."""
        size = np.abs(z)
        bent = np.sign(z) * KNEE * np.exp(np.minimum(size, 100 * KNEE) / KNEE - 1)
        values = self.median + np.where(size <= KNEE, z, bent) * self.spread
        values = np.clip(np.where(self.is_constant, self.median, values), self.low, self.high)
        return np.asarray(values if self.measures is None else restored(values, self.measures))


def prepared(
    rows: Rows, words: NDArray[np.int64], counts: NDArray[np.int64], measures: NDArray[np.int64] | None
) -> Floats:
    """Return rows as they are scaled: transformed by what columns measure, and a word's hash as `-log` of its share.

    That is `-log((count + .5) / (n + 1))`: rare words are high.

    >>> counts = np.zeros((1, N_COUNTS), np.int64)
    >>> counts[0, :2] = 9, 1
    >>> prepared(np.array([[0.0], [1.0], [2.0]]), np.array([0]), counts, None).round(2).ravel().tolist()
    [0.15, 1.99, 3.09]
    """
    found: Floats = rows.astype(np.float64)
    for column, own in zip(words.tolist(), counts, strict=True):
        rarity = -log((own + 0.5) / (own.sum() + 1.0))
        hashes = found[:, column]
        known = np.isfinite(hashes)
        found[known, column] = rarity[np.clip(hashes[known], 0, N_COUNTS - 1).astype(np.int64)]
    return found if measures is None else transformed(found, measures)


def word_columns(names: Sequence[str]) -> NDArray[np.int64]:
    """Return which columns hold hashes of words, by their names."""
    return np.array([place for place, name in enumerate(names) if name.endswith(RARITY)], dtype=np.int64)


# -- scores -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Cells:
    """A trained detector of cells; `own` are those that one device adds for its own rows, and weigh most."""

    scaling: CellScaling
    centres: Floats  #: `(n_cells, n_features)`, scaled
    counts: NDArray[np.int64]
    root: Floats  #: symmetric; its square is the inverse of the shrunk covariance
    scatter: Floats  #: upper half of the sum of products about the cells' centres: training goes on from it
    n_scatter: int

    @property
    def kind(self) -> str:
        """The name of the model."""
        return "cells"

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return len(self.root)

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"cells-{len(self.counts)}" if len(self.counts) > 1 else "mahalanobis"

    @property
    def fill(self) -> Floats:
        """The value that replaces a missing one."""
        scaling = self.scaling
        return scaling.median if scaling.measures is None else restored(scaling.median, scaling.measures)

    @cached_property
    def penalty(self) -> Floats:
        """What a cell adds to the distance: light cells more."""
        return np.asarray(2 * WEIGHT * log(self.counts.max() / self.counts))

    def scores(self, rows: Rows, own: Floats | None = None) -> Floats32:
        """Return one score per row, the same for a row alone and among others; `own`: further cells, penalty 0."""
        scores = np.empty(len(rows), np.float32)
        for first, last, squares in self._distances(self.scaling(rows), own):
            scores[first:last] = np.maximum(squares.min(axis=1), 0.0)
        return scores

    def nearest(self, z: Floats32, own: Floats | None = None) -> NDArray[np.int64]:
        """Return the cell that each row's score is about; own cells come after those of the fleet."""
        cells = np.empty(len(z), np.int64)
        for first, last, squares in self._distances(z, own):
            cells[first:last] = squares.argmin(axis=1)
        return cells

    def _distances(self, z: Floats32, own: Floats | None) -> Iterator[tuple[int, int, Floats]]:
        """Yield squared distances with penalties, block by block: `(rows of the block, n_cells)`."""
        root, minus_twice, added = self._prepared if own is None else self._prepare(own)
        n_cells = len(self.counts) + (0 if own is None else len(own))
        with one_thread.limit(limits=1):
            for first, last, block in blocks(z):
                turned = block @ root
                squares = turned @ minus_twice
                squares += added
                squares += np.einsum("ij,ij->i", turned, turned)[:, None]
                yield first, last, squares[: last - first, :n_cells]

    @cached_property
    def _prepared(self) -> tuple[Floats, Floats, Floats]:
        return self._prepare(np.empty((0, self.n_features)))

    def _prepare(self, own: Floats) -> tuple[Floats, Floats, Floats]:
        """Return root, `-2 C`, and what is added for each cell, all filled up to whole steps of width."""
        turned = np.vstack([self.centres, own]) @ self.root
        penalty = np.concatenate([self.penalty, np.zeros(len(own))])
        root = filled_up(self.root)
        minus_twice = filled_up(-2 * turned.T)
        added = np.zeros(minus_twice.shape[1])
        added[: len(turned)] = np.square(turned).sum(axis=1) + penalty
        return root, minus_twice, added

    @cached_property
    def _precision(self) -> Floats:
        with one_thread.limit(limits=1):
            return self.root @ self.root

    def attributions(self, rows: Rows, own: Floats | None = None) -> tuple[Floats, Floats]:
        """Return what is expected in place of each value, and by how much the score would fall if it were there."""
        z = self.scaling(rows)
        centres = self.centres if own is None else np.vstack([self.centres, own])
        away = z - centres[self.nearest(z, own)]
        precision = self._precision
        pull = np.empty_like(away)
        with one_thread.limit(limits=1):
            filled = filled_up(precision)
            for first, last, block in blocks(away):
                pull[first:last] = (block @ filled)[: last - first, : self.n_features]
        diagonal = np.diag(precision)
        return self.scaling.back(z - pull / diagonal), np.square(pull) / diagonal

    def own_cells(self, rows: Rows, per_cell: int) -> Floats:
        """Return cells of one device's typical rows, one for `per_cell` of them: nothing of it is sent."""
        z = self.scaling(rows).astype(np.float64)
        turned = z @ self.root
        centres = turned.mean(axis=0, keepdims=True)
        for _ in range(max(1, len(z) // per_cell) - 1):
            sums = CellSums.of(turned, centres, has_squares=True)
            centres, _ = split_cells(centres, sums.n_all, sums, len(centres) + 1)
            for _ in range(3):
                sums = CellSums.of(turned, centres, has_squares=False)
                centres = sums.centres(centres)
        return np.asarray(np.linalg.solve(self.root, centres.T).T)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name."""
        scaling = self.scaling
        return {
            "scaling/median": scaling.median,
            "scaling/spread": scaling.spread,
            "scaling/low": scaling.low,
            "scaling/high": scaling.high,
            "scaling/n": np.array([scaling.n_rows]),
            **({} if scaling.measures is None else {"scaling/measures": scaling.measures}),
            "words/columns": scaling.word_columns,
            "words/counts": scaling.word_counts.ravel(),
            "cells/centres": self.centres.ravel().astype(np.float32),
            "cells/counts": self.counts,
            "root": self.root[np.triu_indices(self.n_features)].astype(np.float32),
            "scatter": self.scatter,
            "scatter/n": np.array([self.n_scatter]),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Cells:
        """Return the detector that `arrays` or the state of a fleet holds."""
        n_features = len(arrays["scaling/median"])
        counts = arrays["cells/counts"]
        return cls(
            CellScaling.from_arrays(arrays),
            arrays["cells/centres"].reshape(len(counts), n_features).astype(np.float64),
            counts,
            full(arrays["root"], n_features),
            arrays["scatter"],
            int(arrays["scatter/n"][0]),
        )


# -- cells ----------------------------------------------------------------------------------------------------------

LEAST_ROWS = 3  #: of the fleet in a cell, or it is dropped; and of a device, or it sends no sum of that cell


@dataclass(frozen=True, eq=False)
class CellSums:
    """Counts and sums of rows, cell by cell."""

    n_all: NDArray[np.int64]
    n: NDArray[np.int64]  #: of rows in the sums
    sums: Floats  #: `(n_cells, n_features)`
    squares: Floats | None = None

    @classmethod
    def of(cls, rows: Floats, centres: Floats, has_squares: bool) -> CellSums:
        """Return the sums of rows over their nearest centres; for one device by itself."""
        nearest = np.argmin(np.square(centres).sum(axis=1) - 2 * rows @ centres.T, axis=1)
        is_own = (nearest == np.arange(len(centres))[:, None]).astype(np.float64)
        n = is_own.sum(axis=1).astype(np.int64)
        return cls(n, n, is_own @ rows, is_own @ np.square(rows) if has_squares else None)

    def centres(self, old: Floats) -> Floats:
        """Return the means; a cell without rows keeps its centre."""
        means = self.sums / np.maximum(self.n, 1)[:, None]
        return np.where(self.n[:, None] > 0, np.rint(means * GRID) / GRID, old)


def split_cells(
    centres: Floats, counts: NDArray[np.int64], sums: CellSums, n_wanted: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Split the cells with the largest sums of squares, each along its widest column, one deviation to both sides."""
    assert sums.squares is not None
    n = np.maximum(sums.n, 1)[:, None]
    variances = np.maximum(sums.squares / n - np.square(sums.sums / n), 0.0)
    within = np.where(sums.n >= 2 * LEAST_ROWS, variances.sum(axis=1) * sums.n, 0.0)
    widest = np.argsort(-within, kind="stable")[: max(n_wanted - len(centres), 0)]
    chosen = widest[within[widest] > 1e-9]
    step = np.zeros_like(centres)
    step[np.arange(len(centres)), variances.argmax(axis=1)] = np.sqrt(variances.max(axis=1))
    step = np.rint(step * GRID) / GRID
    half = counts[chosen] // 2
    centres = np.vstack([centres, centres[chosen] - step[chosen]])
    centres[chosen] += step[chosen]
    counts = np.concatenate([counts, half])
    counts[chosen] -= half
    return centres, counts


def root_of(scatter: Floats, n_rows: int, is_constant: NDArray[np.bool_]) -> Floats:
    """Return the symmetric root of the inverse of the shrunk covariance; constant columns have no part in it.

    Shrunk by Chen, Wiesel, Eldar, Hero: "Shrinkage Algorithms for MMSE Covariance Estimation" (2010), eq. (23).
    """
    moves = ~is_constant
    n_moving = max(int(moves.sum()), 1)
    covariance = scatter[np.ix_(moves, moves)] / n_rows
    trace, trace_of_square = float(np.trace(covariance)), float(np.square(covariance).sum())
    difference = (n_rows + 1) * (trace_of_square - trace**2 / n_moving)
    shrinkage = min((trace_of_square + trace**2) / difference, 1.0) if difference > 0 else 1.0
    shrinkage = max(shrinkage, LEAST_SHRINKAGE)
    usual = trace / n_moving if trace > 0 else 1.0
    with one_thread.limit(limits=1):
        shrunk = (1 - shrinkage) * covariance + shrinkage * usual * np.eye(len(covariance))
        variances, vectors = np.linalg.eigh(shrunk)
        inner = (vectors / np.sqrt(variances)) @ vectors.T
    root = np.eye(len(scatter)) / np.sqrt(shrinkage * usual)
    root[np.ix_(moves, moves)] = (inner + inner.T) / 2
    return np.asarray(root)


# -- matrices -------------------------------------------------------------------------------------------------------


def blocks(rows: Rows) -> Iterator[tuple[int, int, Floats]]:
    """Yield rows from `first` to `last` as blocks of one shape, filled up with zeros."""
    width = rows.shape[1]
    block = np.zeros((_BLOCK_ROWS, up_to(width, _WIDTH_STEP)))
    for first in range(0, len(rows), _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, len(rows))
        block[: last - first, :width] = rows[first:last]
        yield first, last, block


def filled_up(array: Floats) -> Floats:
    """Return a matrix with zeros up to whole steps of width."""
    filled = np.zeros([up_to(size, _WIDTH_STEP) for size in array.shape], array.dtype)
    filled[tuple(slice(size) for size in array.shape)] = array
    return filled


def up_to(size: int, step: int) -> int:
    """Return the next multiple of a step.

    >>> up_to(17, 16), up_to(32, 16)
    (32, 32)
    """
    return -(-size // step) * step


def full(upper: Floats, size: int) -> Floats:
    """Return a symmetric matrix from its upper half."""
    matrix = np.empty((size, size))
    places = np.triu_indices(size)
    matrix[places] = upper
    matrix.T[places] = upper
    return matrix
