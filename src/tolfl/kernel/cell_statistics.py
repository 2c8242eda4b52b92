"""Statistics of a detector's rounds: medians, spreads, cells, scatter and distances, the same bits on every processor.

Every sum is taken in the order of the rows or columns, in float64. Numbers in products are single precision, or
multiples of 2^-16 below 2^10 in size: then a product is exact. Where no sum can exceed 2^21 a sum of such multiples is
exact as well, so its order does not matter, and NumPy may multiply matrices in whatever order it likes.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_int32, c_int64, c_void_p
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tolfl.core.logarithm import log

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]

N_BINS = 256
_GRID, _LOG_GRID = 2.0**16, 2.0**30
_EXACT = 2.0**20  #: sums of products of multiples of 2^-16 below it are exact, with a bit to spare
_MISSING = np.uint32(2**32 - 1)
_ROWS_AT_ONCE = 4096


class Statistics(Protocol):
    """What the compiled kernel and NumPy both compute."""

    def counts(self, keys: NDArray[np.uint32], prefixes: NDArray[np.uint32], shift: int) -> I8:
        """Return `(n_features, 2 + N_BINS)`: of keys that are there (not all bits set), below the prefix, in each bin.

        A prefix is compared with the bits above the next eight, which tell the bin; `shift` bits follow these.
        """
        ...

    def spread(self, rows: NDArray[np.floating], median: F8, least: F8) -> F8:
        """Return `(5, n_features)`: values, those that are more than `least` off the median, logarithms, low, high.

        Logarithms of how far they are off are multiples of 2^-30, and their sums are times 2^30.
        """
        ...

    def sums_by_cell(self, rows: F4, centres: F8, has_squares: bool) -> tuple[I8, F8, F8 | None]:
        """Return each row's nearest cell (the first of equals), and by cell the sums of rows and of their squares.

        Squares are rounded to multiples of 2^-16.
        """
        ...

    def nearest(self, rows: F4, centres: F8) -> I8:
        """Return each row's nearest cell, the first of equals."""
        ...

    def scatter(self, rows: F4, centres: F8, cells: I8) -> F8:
        """Return the upper half, row by row, of the sum of products of rows about the centres of their cells."""
        ...

    def product(self, left: F8, right: F8) -> F8:
        """Return `left @ right`."""
        ...

    def least_distances(self, rows: F8, centres: F8, added: F8) -> F8:
        """Return each row's lowest squared distance to a centre, plus what is added for that centre."""
        ...


def _norms(centres: F8) -> F8:
    # One after the other; `sum` has an order of its own.
    return np.ascontiguousarray(np.cumsum(np.square(centres), axis=1)[:, -1])


class NumpyStatistics:
    """The statistics in NumPy."""

    def counts(self, keys: NDArray[np.uint32], prefixes: NDArray[np.uint32], shift: int) -> I8:
        """Return how many keys are there, below the prefix, and in each bin."""
        n_features = keys.shape[1]
        found = np.zeros((n_features, 2 + N_BINS), np.int64)
        step = max(1, 2**17 // max(1, n_features))
        column = np.arange(n_features)
        for first in range(0, len(keys), step):
            some = keys[first : first + step]
            is_there = some != _MISSING
            begun = some >> np.uint32(shift)
            above = begun >> np.uint32(8)
            found[:, 0] += is_there.sum(axis=0)
            found[:, 1] += (is_there & (above < prefixes)).sum(axis=0)
            places = column * N_BINS + (begun & np.uint32(N_BINS - 1))
            matching = places[is_there & (above == prefixes)]
            found[:, 2:] += np.bincount(matching, minlength=n_features * N_BINS).reshape(n_features, N_BINS)
        return found

    def spread(self, rows: NDArray[np.floating], median: F8, least: F8) -> F8:
        """Return counts, moved values, logarithms, lowest and highest."""
        n_features, highest = len(median), np.finfo(np.float64).max
        found = np.zeros((5, n_features))
        found[3], found[4] = highest, -highest
        step = max(1, 2**17 // max(1, n_features))
        for first in range(0, len(rows), step):
            values = rows[first : first + step].astype(np.float64)
            found[3], found[4] = np.fmin(found[3], np.fmin.reduce(values)), np.fmax(found[4], np.fmax.reduce(values))
            found[0] += (~np.isnan(values)).sum(axis=0)
            off = np.abs(values - median)
            has_moved = off > least
            found[1] += has_moved.sum(axis=0)
            off[~has_moved] = 1.0
            found[2] += np.rint(log(off) * _LOG_GRID).sum(axis=0)
        return found

    def sums_by_cell(self, rows: F4, centres: F8, has_squares: bool) -> tuple[I8, F8, F8 | None]:
        """Return nearest cells, and by cell the sums of rows and squares: on their grid, exact in any order."""
        cells = self.nearest(rows, centres)
        sums = np.zeros_like(centres)
        squares = np.zeros_like(centres) if has_squares else None
        for cell in np.unique(cells).tolist():
            own = rows[cells == cell].astype(np.float64)
            sums[cell] = own.sum(axis=0)
            if squares is not None:
                squares[cell] = np.rint(np.square(own) * _GRID).sum(axis=0) / _GRID
        return cells, sums, squares

    def nearest(self, rows: F4, centres: F8) -> I8:
        """Return each row's nearest cell."""
        norms = _norms(centres)
        cells = np.empty(len(rows), np.int64)
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[first : first + _ROWS_AT_ONCE].astype(np.float64)
            largest = 2 * float(np.abs(some).max(initial=0.0)) * float(np.abs(centres).max(initial=0.0))
            is_exact = largest * some.shape[1] < _EXACT
            products = some @ (-2 * centres.T) if is_exact else self.product(some, -2 * centres.T)
            cells[first : first + _ROWS_AT_ONCE] = (products + norms).argmin(axis=1)
        return cells

    def scatter(self, rows: F4, centres: F8, cells: I8) -> F8:
        """Return the upper half of the sum of products about the cells."""
        away = rows.astype(np.float64) - centres[cells]
        products: F8
        if float(np.square(away).sum(axis=0).max(initial=0.0)) < _EXACT:  # no sum of products is larger than these
            products = away.T @ away
        else:
            products = self.product(np.ascontiguousarray(away.T), away)
        return products[np.triu_indices(away.shape[1])]

    def product(self, left: F8, right: F8) -> F8:
        """Return `left @ right`, each sum in order."""
        total = np.zeros((len(left), right.shape[1]))
        for k in range(left.shape[1]):
            total += left[:, k, None] * right[k]
        return total

    def least_distances(self, rows: F8, centres: F8, added: F8) -> F8:
        """Return each row's lowest squared distance with what is added."""
        total = np.zeros((len(rows), len(centres)))
        for k in range(rows.shape[1]):
            total += np.square(rows[:, k, None] - centres[:, k])
        return np.asarray((total + added).min(axis=1, initial=np.inf))


class CompiledStatistics:
    """The statistics in C."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, size = c_void_p, c_int64
        library.tolfl_multiply.argtypes = [pointer, pointer, size, size, size, pointer]
        library.tolfl_nearest.argtypes = [pointer, pointer, pointer, size, size, size, pointer]
        library.tolfl_sum_by_cell.argtypes = [
            pointer,
            size,
            size,
            size,
            pointer,
            pointer,
            size,
            pointer,
            pointer,
            pointer,
        ]
        library.tolfl_scatter.argtypes = [pointer, size, size, size, pointer, pointer, pointer]
        library.tolfl_spread.argtypes = [pointer, c_int32, size, size, pointer, pointer, pointer]
        library.tolfl_count.argtypes = [pointer, size, size, pointer, c_int32, pointer]
        for name in ("multiply", "nearest", "sum_by_cell", "scatter", "spread", "count"):
            getattr(library, f"tolfl_{name}").restype = c_int
        self._library = library

    def counts(self, keys: NDArray[np.uint32], prefixes: NDArray[np.uint32], shift: int) -> I8:
        """Return how many keys are there, below the prefix, and in each bin."""
        keys, prefixes = np.ascontiguousarray(keys, np.uint32), np.ascontiguousarray(prefixes, np.uint32)
        found = np.zeros((keys.shape[1], 2 + N_BINS), np.int64)
        self._library.tolfl_count(keys.ctypes.data, *keys.shape, prefixes.ctypes.data, shift, found.ctypes.data)
        return found

    def spread(self, rows: NDArray[np.floating], median: F8, least: F8) -> F8:
        """Return counts, moved values, logarithms, lowest and highest."""
        rows = np.ascontiguousarray(rows, np.float32 if rows.dtype == np.float32 else np.float64)
        median, least = _doubles(median), _doubles(least)
        found = np.empty((5, len(median)))
        self._library.tolfl_spread(
            rows.ctypes.data,
            rows.dtype == np.float32,
            *rows.shape,
            median.ctypes.data,
            least.ctypes.data,
            found.ctypes.data,
        )
        return found

    def sums_by_cell(self, rows: F4, centres: F8, has_squares: bool) -> tuple[I8, F8, F8 | None]:
        """Return nearest cells, and by cell the sums of rows and squares."""
        sums = np.zeros(centres.shape)
        squares = np.zeros(centres.shape) if has_squares else None
        cells = self._by_cell(rows, centres, sums, squares)
        return cells, sums, None if squares is None else squares / _GRID

    def nearest(self, rows: F4, centres: F8) -> I8:
        """Return each row's nearest cell."""
        return self._by_cell(rows, centres, None, None)

    def _by_cell(self, rows: F4, centres: F8, sums: F8 | None, squares: F8 | None) -> I8:
        rows, centres = _singles(rows), _doubles(centres)
        norms, cells = _norms(centres), np.empty(len(rows), np.int64)
        _check(
            self._library.tolfl_sum_by_cell(
                rows.ctypes.data,
                rows.strides[0] // 4,
                *rows.shape,
                centres.ctypes.data,
                norms.ctypes.data,
                len(centres),
                cells.ctypes.data,
                None if sums is None else sums.ctypes.data,
                None if squares is None else squares.ctypes.data,
            )
        )
        return cells

    def scatter(self, rows: F4, centres: F8, cells: I8) -> F8:
        """Return the upper half of the sum of products about the cells."""
        rows, centres, cells = _singles(rows), _doubles(centres), np.ascontiguousarray(cells, np.int64)
        n_features = rows.shape[1]
        found = np.empty(n_features * (n_features + 1) // 2)
        _check(
            self._library.tolfl_scatter(
                rows.ctypes.data,
                rows.strides[0] // 4,
                *rows.shape,
                centres.ctypes.data,
                cells.ctypes.data,
                found.ctypes.data,
            )
        )
        return found

    def product(self, left: F8, right: F8) -> F8:
        """Return `left @ right`, each sum in order."""
        left, right = _doubles(left), _doubles(right)
        out = np.empty((len(left), right.shape[1]))
        _check(
            self._library.tolfl_multiply(
                left.ctypes.data, right.ctypes.data, *left.shape, right.shape[1], out.ctypes.data
            )
        )
        return out

    def least_distances(self, rows: F8, centres: F8, added: F8) -> F8:
        """Return each row's lowest squared distance with what is added."""
        rows, centres, added = _doubles(rows), _doubles(centres), _doubles(added)
        least = np.empty(len(rows))
        _check(
            self._library.tolfl_nearest(
                rows.ctypes.data,
                centres.ctypes.data,
                added.ctypes.data,
                *rows.shape,
                len(centres),
                least.ctypes.data,
            )
        )
        return least


def _doubles(array: F8) -> F8:
    return np.ascontiguousarray(array, np.float64)


def _singles(rows: F4) -> F4:
    """Return rows whose numbers lie side by side; further numbers may lie between rows."""
    is_usable = rows.dtype == np.float32 and rows.strides[1] == 4 and rows.strides[0] % 4 == 0 and rows.strides[0] >= 0
    return rows if is_usable else np.ascontiguousarray(rows, np.float32)


def _check(failed: int) -> None:
    if failed:
        raise MemoryError("statistics of the rows need more memory than there is; use fewer columns")
