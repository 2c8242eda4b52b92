"""Unit-free columns: a variance-stabilizing transformation where the measure is known, then median and spread.

What a source knows of a column (a count, a share, a level) gives its noise a size before a single row is seen. A
measure is a transformation t after which the noise of a value is about the same everywhere, and the size of that noise.
A constant column of counts then has a scale: from 0 to 10 are 5.2 deviations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    rows: Rows, columns: NDArray[np.int64], counts: NDArray[np.int64], measures: NDArray[np.int64] | None
) -> Floats:
    """Return rows as they are scaled: with rarities of words, and transformed by what columns measure."""
    found = with_rarities(rows, columns, counts)
    return found if measures is None else transformed(found, measures)


def with_rarities(rows: Rows, columns: NDArray[np.int64], counts: NDArray[np.int64]) -> Floats:
    """Return rows in which a hash of a word has become `-log((count + .5) / (n + 1))`: rare words are high.

    >>> counts = np.zeros((1, N_COUNTS), np.int64)
    >>> counts[0, :2] = 9, 1
    >>> with_rarities(np.array([[0.0], [1.0], [2.0]]), np.array([0]), counts).round(2).ravel().tolist()
    [0.15, 1.99, 3.09]
    """
    found: Floats = rows.astype(np.float64)
    for column, own in zip(columns.tolist(), counts, strict=True):
        rarity = -log((own + 0.5) / (own.sum() + 1.0))
        hashes = found[:, column]
        known = np.isfinite(hashes)
        found[known, column] = rarity[np.clip(hashes[known], 0, N_COUNTS - 1).astype(np.int64)]
    return found


def scaling_from(arrays: Arrays) -> CellScaling:
    """Return the scaling that `Cells.arrays` or the state of a fleet holds."""
    median, spread, low, high = (arrays[f"scaling/{name}"] for name in ("median", "spread", "low", "high"))
    counts = arrays["words/counts"].reshape(-1, N_COUNTS)
    n_rows, words = int(arrays["scaling/n"][0]), arrays["words/columns"]
    return CellScaling(median, spread, low, high, n_rows, words, counts, arrays.get("scaling/measures"))


def word_columns(names: Sequence[str]) -> NDArray[np.int64]:
    """Return which columns hold hashes of words, by their names."""
    return np.array([place for place, name in enumerate(names) if name.endswith(RARITY)], dtype=np.int64)
