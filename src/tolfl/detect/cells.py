"""The default detector: the distance of a row to the nearest of at most 32 cells, in the fleet's units.

Each column is centred at the fleet's median and divided by a spread that is a geometric mean; beyond `KNEE` spreads it
counts by its logarithm. The rows are divided into cells, which share one shrunk covariance W. A row's score is

    min over cells j of  (z - c_j)' W^-1 (z - c_j) + 2 WEIGHT log(n_max / n_j)

With one cell that is the Mahalanobis distance. numpy alone: whatever scores rows imports this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from tolfl.core.logarithm import log
from tolfl.detect.cell_scaling import GRID, Arrays, CellScaling, Floats, Floats32, Rows, restored, scaling_from

WEIGHT = 4.0  #: weight of the penalty of light cells; 1 would be the likelihood of a mixture
LEAST_SHRINKAGE = (
    1e-3  #: least shrinkage: with many rows there is hardly any, and a duplicated column would be singular
)

_BLOCK_ROWS = 256  #: matrix products of one shape add in one order, wherever a row is
_WIDTH_STEP = 16

#: Several threads add in an order that depends on the machine: `with one_thread.limit(limits=1)`.
one_thread = ThreadpoolController()


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
            scaling_from(arrays),
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
