"""Why a sample scores as it does: each feature's share of the score, its value, and what the model expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.plot_style import VERMILION
from tolfl.detect.feature_names import Features
from tolfl.tables.schema import word_column

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        """Return a sentence without a verb."""
        if self.low is not None:
            return self.usual
        if self.has_no_number:
            return f"{self.name} ({self.share:.0%} of the score)"
        unit = f" {self.unit}" if self.unit else ""
        return (
            f"{self.name}: {self.value:.4g}{unit}, expected {self.expected:.4g}{unit} ({self.share:.0%} of the score)"
        )


class Explanation(msgspec.Struct, frozen=True):
    """A score taken apart."""

    score: float
    threshold: float  #: that the row's verdict goes by: its device's own, or the fleet's
    p_value: float
    features: tuple[FeatureShare, ...]  #: the largest share first

    @property
    def is_alarm(self) -> bool:
        """Whether the score is above the threshold."""
        return self.score > self.threshold

    def plot(self, n_features: int = 15) -> Figure:
        """Return a figure of the features that matter most."""
        from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import, and not everybody draws)

        shown = self.features[:n_features][::-1]
        figure = Figure(figsize=(7, 0.32 * len(shown) + 1.2), layout="constrained")
        axis = figure.subplots()
        bars = axis.barh([one.name for one in shown], [one.share for one in shown], color=VERMILION)
        labels = [
            "" if one.has_no_number else f"{one.value:.4g} instead of {one.expected:.4g} {one.unit}".rstrip()
            for one in shown
        ]
        axis.bar_label(bars, labels, fontsize=8, padding=3)
        axis.set(xlim=(0.0, 1.35 * max((one.share for one in shown), default=1.0) or 1.0), xlabel="share of the score")
        verdict = "above" if self.is_alarm else "not above"
        axis.set_title(f"score {self.score:.4g}, {verdict} {self.threshold:.4g}; p = {self.p_value:.3g}", fontsize=10)
        return figure

    def __str__(self) -> str:
        """Return the three features that matter most."""
        return "; ".join(map(str, self.features[:3]))


def explanation_of(
    features: Features,
    values: NDArray[np.floating],
    expected: NDArray[np.floating],
    gains: NDArray[np.floating],
    score: float,
    threshold: float,
    p_value: float,
) -> Explanation:
    """Return an explanation of one row, with all of its features; the shares of a row without any gain are 0."""
    found = top_shares(features, values[None, :], expected[None, :], gains[None, :], features.n)
    return Explanation(score, threshold, p_value, found[0])


def top_shares(
    features: Features,
    values: NDArray[np.floating],
    expected: NDArray[np.floating],
    gains: NDArray[np.floating],
    n_top: int,
) -> list[tuple[FeatureShare, ...]]:
    """Return for each row the features that make its score, the largest share first; those of a word are one."""
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
    # As they were written: single precision has 20.15 as 20.149999618530273.
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
