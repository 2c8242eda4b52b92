"""What the numbers of a sample are called, in which unit they are, and samples as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError
from tolfl.tables.schema import Column, name_and_unit

Rows = NDArray[np.floating]


class Features(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Names and units, one each per feature; a unit that is not known is empty.

    >>> Features.named(["rssi [dBm]", "packets"]).units
    ('dBm', '')
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    measures: tuple[str, ...] = ()  #: what each measures, where the source of any knows: see `measures`

    @classmethod
    def named(cls, names: Sequence[str], units: Mapping[str, str] | Sequence[str] | None = None) -> Features:
        """Return features with these names; a unit is given, or stands in brackets behind the name."""
        found = [name_and_unit(name) for name in names]
        plain, in_names = tuple(one[0] for one in found), tuple(one[2] for one in found)
        measures = tuple(one[3] for one in found)
        if units is None:
            return cls(plain, in_names, measures if any(measures) else ())
        if isinstance(units, Mapping):
            if unknown := sorted(set(units) - set(plain)):
                raise DataError(f"a unit is given for {unknown[0]!r}, which is no feature; known are: {_some(plain)}")
            given = tuple(units.get(name, unit) for name, unit in zip(plain, in_names, strict=True))
            return cls(plain, given)
        if len(units) != len(plain):
            raise DataError(f"{len(units)} units for {len(plain)} features; give one each")
        return cls(plain, tuple(units))

    @property
    def full(self) -> tuple[str, ...]:
        """The names with units and measures in brackets; just the names where nothing is measured."""
        if not self.measures:
            return self.names
        parts = zip(self.names, self.units, self.measures, strict=True)
        return tuple(Column(name, "number", unit, measure).features[0] for name, unit, measure in parts)

    @property
    def n(self) -> int:
        """How many features there are."""
        return len(self.names)

    def check(self, X: object) -> Rows:
        """Return samples as an array `(n_samples, n_features)`, or say in one sentence what is wrong with them."""
        rows = as_rows(X)
        if not len(rows):
            return np.empty((0, self.n))  # an empty stream has no shape that could be wrong
        if rows.shape[1] != self.n:
            raise DataError(f"X has {rows.shape[1]} features, but the detector was trained on {self.n}")
        check_not_infinite(rows, self.names)
        return rows

    def check_same(self, other: Features) -> None:
        """Say which feature of other rows is not one of these."""
        if unknown := [name for name in self.names if name not in other.names]:
            raise DataError(f"the new rows have no column {unknown[0]!r}; give the columns that the detector has")
        if other.names != self.names:
            raise DataError(f"the new rows have other columns, or another order; the detector has {_some(self.names)}")


def as_rows(X: object) -> Rows:
    """Return samples as an array of numbers with two axes."""
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    try:
        array = np.asarray(X)
        if array.dtype.char not in "fd":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"X has something that is no number ({error}); turn words into numbers first") from None
    if array.shape == (0,):
        return array.reshape(0, 0)
    if array.ndim != 2:
        raise DataError(f"X has shape {array.shape}; give one row per sample, even for a single one")
    return array


def check_not_infinite(rows: Rows, names: Sequence[str]) -> None:
    """Say which column has a value that is infinite, or too large for single precision; NaN is a missing value."""
    with np.errstate(over="ignore"):
        is_bad = np.isinf(rows.astype(np.float32, copy=False))
    if is_bad.any():
        row, column = (int(place) for place in np.argwhere(is_bad)[0])
        raise DataError(f"Input X contains infinity in column {names[column]!r} (first in row {row}); correct it")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
