"""Names and units of features, and explanations: each feature's share of a score, its value, what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError
from tolfl.core.plot_style import VERMILION, new_figure
from tolfl.detect.cells import Rows
from tolfl.tables.schema import Column, name_and_unit, word_column

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Features(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Names and units, one each per feature; a unit that is not known is empty.

    >>> Features.named(["rssi [dBm]", "packets"]).units
    ('dBm', '')
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    measures: tuple[str, ...] = ()  #: what each measures, where its source has it: see `measures`

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
        """Return samples as an array `(n_samples, n_features)`, or raise an error with one sentence."""
        rows = as_rows(X)
        if not len(rows):
            return np.empty((0, self.n))  # an empty stream has no shape that could be wrong
        if rows.shape[1] != self.n:
            raise DataError(f"X has {rows.shape[1]} features, but the detector was trained on {self.n}")
        with np.errstate(over="ignore"):
            is_bad = np.isinf(rows.astype(np.float32, copy=False))  # also too large for it; NaN is a missing value
        if is_bad.any():
            row, column = (int(place) for place in np.argwhere(is_bad)[0])
            raise DataError(
                f"Input X contains infinity in column {self.names[column]!r} (first in row {row}); correct it"
            )
        return rows

    def check_same(self, other: Features) -> None:
        """Raise an error that names a feature of other rows which is not one of these."""
        if unknown := [name for name in self.names if name not in other.names]:
            of_words = word_column(unknown[0])
            what = f"column of words {of_words!r}" if of_words else f"column {unknown[0]!r}"
            raise DataError(f"the new rows have no {what}; give the columns that the detector has")
        if other.names != self.names:
            columns = list(dict.fromkeys(word_column(name) or name for name in self.names))
            raise DataError(f"the new rows have other columns, or another order; the detector has {_some(columns)}")


def as_rows(X: object) -> Rows:
    """Return samples as an array of numbers with two axes."""
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    try:
        array = np.asarray(X)
        if array.dtype.char not in "fd":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"X has a value that is not a number ({error}); turn words into numbers first") from None
    if array.shape == (0,):
        return array.reshape(0, 0)
    if array.ndim != 2:
        raise DataError(f"X has shape {array.shape}; give one row per sample, even for a single one")
    return array


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


# -- explanations -------------------------------------------------------------------------------------------------


class FeatureShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """One feature's part in a score."""

    name: str
    unit: str
    share: float  #: of the whole score, from 0 to 1
    value: float  #: NaN: a word, or missing
    #: In the feature's own unit, and never outside of what the fleet has seen: the model's reconstruction; with cells,
    #: what the other features lead to in the nearest cell.
    expected: float
    low: float | None = None  #: where the row is novel: the range that is usual
    high: float | None = None

    @property
    def has_no_number(self) -> bool:
        """Whether there is no number to name: the column holds words, or the value is missing."""
        return self.value != self.value

    @property
    def usual(self) -> str:
        """What the value is, and what is usual, where the row is novel."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.name} {self.value:.4g}{unit}, usual {self.low:.4g} to {self.high:.4g}"

    def __str__(self) -> str:
        """Return value and expected value in words."""
        if self.low is not None:
            return self.usual
        if self.has_no_number:
            return f"{self.name} ({self.share:.0%} of the score)"
        unit = f" {self.unit}" if self.unit else ""
        return (
            f"{self.name}: {self.value:.4g}{unit}, expected {self.expected:.4g}{unit} ({self.share:.0%} of the score)"
        )


class Explanation(msgspec.Struct, frozen=True):
    """The parts of a score."""

    score: float
    threshold: float  #: of the row's verdict: its device's own, or the fleet's
    p_value: float
    features: tuple[FeatureShare, ...]  #: the largest share first; of the novelty, where that is above its limit
    is_alarm: bool  #: as `predict` has it: by the score, or by novelty
    novelty: float | None = None  #: None: the detector has none

    def plot(self, n_features: int = 15) -> Figure:
        """Return a figure of the features that matter most."""
        shown = self.features[:n_features][::-1]
        figure = new_figure(7, 0.32 * len(shown) + 1.2)
        axis = figure.subplots()
        bars = axis.barh([one.name for one in shown], [one.share for one in shown], color=VERMILION)
        labels = [
            "" if one.has_no_number else f"{one.value:.4g} instead of {one.expected:.4g} {one.unit}".rstrip()
            for one in shown
        ]
        axis.bar_label(bars, labels, fontsize=8, padding=3)
        axis.set(xlim=(0.0, 1.35 * max((one.share for one in shown), default=1.0) or 1.0), xlabel="share of the score")
        verdict = "above" if self.score > self.threshold else "not above"
        novelty = "" if self.novelty is None else f"; novelty {self.novelty:.3g}"
        title = f"score {self.score:.4g}, {verdict} {self.threshold:.4g}; p = {self.p_value:.3g}{novelty}"
        axis.set_title(title, fontsize=10)
        return figure

    def __str__(self) -> str:
        """Return the three features that matter most."""
        return "; ".join(map(str, self.features[:3]))


def top_shares(
    features: Features,
    values: NDArray[np.floating],
    expected: NDArray[np.floating],
    gains: NDArray[np.floating],
    n_top: int,
) -> list[tuple[FeatureShare, ...]]:
    """Return for each row the features that make its score, the largest share first; those of a word are one.

    The shares of a row without any gain are 0.
    """
    owners = [word_column(name) or name for name in features.names]
    names = list(dict.fromkeys(owners))
    if len(names) < len(owners):
        at = {name: place for place, name in enumerate(names)}
        groups = np.array([at[name] for name in owners])
        first = np.array([owners.index(name) for name in names])
        summed = np.zeros((len(gains), len(names)))
        np.add.at(summed.T, groups, gains.T)
        is_word = np.bincount(groups, minlength=len(names)) > 1
        gains, values, expected = summed, values[:, first], np.where(is_word, np.nan, expected[:, first])
        values = np.where(is_word, np.nan, values)
        units = [features.units[place] for place in first.tolist()]
    else:
        units = list(features.units)
    total = gains.sum(axis=1, keepdims=True)
    shares = np.divide(gains, total, out=np.zeros_like(gains), where=total > 0)
    order = np.argsort(-shares, axis=1, kind="stable")[:, :n_top]
    # As they were written: in single precision, 20.15 is 20.149999618530273.
    values = np.take_along_axis(values, order, axis=1).astype(np.float32).astype(str).astype(np.float64)
    picked = (np.take_along_axis(shares, order, axis=1).tolist(), values.tolist(),
              np.take_along_axis(expected, order, axis=1).tolist())  # fmt: skip
    return [
        tuple(
            FeatureShare(names[place], units[place], share, value, wanted)
            for place, share, value, wanted in zip(*row, strict=True)
        )
        for row in zip(order.tolist(), *picked, strict=True)
    ]
