"""Figures of a detector on rows whose truth is known: ROC curves, scores by truth, and scores over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tolfl.detect.assessment import MAX_FALSE_ALARMS, Floats, Judged

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TYPICAL, _ANOMALOUS = "C0", "C3"
_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "s"))
_MAX_DEVICES = 8  #: more curves than this are a carpet


def plot_roc(judged: Judged) -> Figure:
    """Return ROC curves of the fleet and of its devices; few false alarms have the room they deserve (log scale)."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import, and not everybody draws)

    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axis = figure.subplots()
    names = judged.names if len(judged.names) <= _MAX_DEVICES else ()
    for name in names:
        _roc(axis, judged.of_device(name), name, _lowest_rate(judged), 1.0)
    _roc(axis, judged, "fleet" if judged.names else "all rows", _lowest_rate(judged), 2.0, "black")
    axis.axvline(MAX_FALSE_ALARMS, color="0.5", linestyle=":", linewidth=1)
    axis.set(xscale="log", xlim=(_lowest_rate(judged), 1.0), ylim=(0, 1.02))
    axis.set(xlabel="false alarms, as a share of typical rows", ylabel="detected, as a share of anomalous rows")
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _roc(axis: Axes, judged: Judged, label: str, lowest: float, width: float, colour: str | None = None) -> None:
    from sklearn.metrics import roc_curve  # noqa: PLC0415  (as above)

    if judged.is_anomalous.all() or not judged.is_anomalous.any():
        return
    false_alarms, detected, _ = roc_curve(judged.is_anomalous, judged.scores)
    # A curve that rises at no false alarm at all would begin outside of a log scale.
    shown = np.maximum(false_alarms, lowest / 2)
    axis.plot(shown, detected, label=label, drawstyle="steps-post", linewidth=width, color=colour)


def _lowest_rate(judged: Judged) -> float:
    n_typical = int((~judged.is_anomalous).sum())
    return min(1e-3, 1.0 / max(1, n_typical))


def plot_histogram(judged: Judged, threshold: float) -> Figure:
    """Return how often each score occurs, typical against anomalous, with the threshold between them."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (as above)

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    positive = judged.scores[judged.scores > 0]
    lowest = float(positive.min()) if len(positive) else 1e-6
    highest = max(float(judged.scores.max()), threshold, 2 * lowest)
    bins = np.geomspace(min(lowest, threshold) if threshold > 0 else lowest, highest * 1.01, 50)
    for mask, name, colour in (
        (~judged.is_anomalous, "typical", _TYPICAL),
        (judged.is_anomalous, "anomalous", _ANOMALOUS),
    ):
        if mask.any():
            scores = np.maximum(judged.scores[mask], bins[0])
            axis.hist(scores, bins.tolist(), label=f"{name} ({mask.sum()})", color=colour, alpha=0.55)
    axis.axvline(threshold, color="black", linestyle="--", linewidth=1, label=f"threshold {threshold:.3g}")
    axis.set(xscale="log", xlabel="score", ylabel="rows")
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def plot_timeline(judged: Judged, threshold: float) -> Figure:
    """Return scores over time (over rows, where there is none), one line of panels per device."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (as above)

    names = judged.names[:_MAX_DEVICES] or ("",)
    figure = Figure(figsize=(9, 1.2 + 1.7 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), 1, sharex=judged.times is not None, squeeze=False)[:, 0].tolist()
    for axis, name in zip(axes, names, strict=True):
        places = _places(judged)
        own = np.ones(len(places), bool) if judged.devices is None else judged.devices == name
        _timeline(axis, judged.of_device(name), places[own], threshold)
        axis.set(ylabel=name or "score")
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set(xlabel="row" if judged.times is None else f"time since the first row, {_unit(judged)[1]}")
    axes[0].legend(frameon=False, fontsize=8, ncols=3, loc="upper left", bbox_to_anchor=(0.0, 1.25))
    return figure


def _places(judged: Judged) -> Floats:
    """Return where rows are on the axis: in time, or in turn."""
    if judged.times is None:
        return np.arange(len(judged.scores), dtype=np.float64)
    since: Floats = (judged.times - np.min(judged.times)) / _unit(judged)[0]
    return since


def _unit(judged: Judged) -> tuple[float, str]:
    """Return the seconds of a unit that makes the numbers small, and its name."""
    span = 0.0 if judged.times is None else float(np.ptp(judged.times))
    return next((unit for unit in _UNITS if span >= 3 * unit[0]), _UNITS[-1])


def _timeline(axis: Axes, judged: Judged, places: Floats, threshold: float) -> None:
    order = np.argsort(places, kind="stable")
    places, scores, truth = places[order], judged.scores[order], judged.is_anomalous[order]
    alarms = judged.is_alarm[order]
    shown = np.maximum(scores, np.min(scores[scores > 0], initial=threshold) if (scores > 0).any() else 1e-9)
    axis.plot(places, shown, color="0.75", linewidth=0.8, zorder=1)
    axis.scatter(places[truth], shown[truth], s=10, color=_ANOMALOUS, label="anomalous", zorder=2)
    false = alarms & ~truth
    axis.scatter(places[false], shown[false], s=14, marker="x", color=_TYPICAL, label="false alarm", zorder=3)
    axis.axhline(threshold, color="black", linestyle="--", linewidth=0.8, label="threshold")
    axis.set(yscale="log")
