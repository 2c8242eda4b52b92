"""Why a sample scores as it does: each feature's share of the score, its value, and what the model expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.plot_style import VERMILION
from tolfl.detect.feature_names import Features

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FeatureShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """One feature's part in a score."""

    name: str
    unit: str
    share: float  #: of the whole score, from 0 to 1
    value: float
    #: In the feature's own unit, and never outside of what the fleet has seen: the model's reconstruction; with cells,
    #: what the other features lead to in the nearest cell.
    expected: float
    low: float | None = None  #: where the row is novel: the range that is usual
    high: float | None = None

    @property
    def usual(self) -> str:
        """What the value is, and what is usual, where the row is novel."""
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.name} {self.value:.4g}{unit}, usual {self.low:.4g} to {self.high:.4g}"

    def __str__(self) -> str:
        """Return a sentence without a verb."""
        if self.low is not None:
            return self.usual
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
        labels = [f"{one.value:.4g} instead of {one.expected:.4g} {one.unit}".rstrip() for one in shown]
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
    errors: NDArray[np.floating],
    score: float,
    threshold: float,
    p_value: float,
) -> Explanation:
    """Return an explanation; the shares of a sample without any error are 0."""
    total = float(errors.sum())
    shares = errors / total if total > 0 else np.zeros_like(errors)
    order = np.argsort(-shares, kind="stable")
    return Explanation(
        score,
        threshold,
        p_value,
        tuple(
            FeatureShare(features.names[i], features.units[i], float(shares[i]), float(values[i]), float(expected[i]))
            for i in order
        ),
    )
