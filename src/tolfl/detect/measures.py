"""What a column measures, where its source knows: then its noise has a size before a single row is seen.

A measure gives a transformation t after which the noise of a value is about the same everywhere, and the size of that
noise. A constant column of counts then has a scale: from 0 to 10 are 5.2 deviations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.core.logarithm import arcsine, exp, log
from tolfl.tables.schema import name_and_unit

Floats = NDArray[np.float64]


class Measure(NamedTuple):
    """A transformation (`2 sqrt(x + shift)`, `asin sqrt(x)`, `log(x + shift)`, or none) and the noise behind it."""

    name: str
    how: str
    shift: float
    noise: float


#: Never reordered: a saved detector has places in it. The first is that of a column of which nothing is known.
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
    """Return values whose noise has the size of their measure; what cannot be is taken as the nearest that can.

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
