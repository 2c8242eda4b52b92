"""Quality of a detector on labelled rows: for the fleet, for each device, and the time to detect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.core.metrics import auroc, average_precision
from tolfl.core.plot_style import BLUE, VERMILION, new_figure
from tolfl.datasets.federated import in_order
from tolfl.datasets.split import commonest, is_typical_by_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: The share of false alarms up to which the partial AUROC looks.
MAX_FALSE_ALARMS = 0.01


def is_anomalous(labels: NDArray[np.str_], typical: Sequence[str] = ()) -> NDArray[np.bool_]:
    """Return which rows are anomalous by their class; without typical classes, these are recognised by their names.

    >>> is_anomalous(np.array(["0", "normal", "leak"])).tolist()
    [False, False, True]
    """
    classes, which = np.unique(labels, return_inverse=True)
    names = classes.tolist()
    if unknown := [name for name in typical if name not in names]:
        raise SpecError(f"no row has the class {unknown[0]!r}; the classes are {', '.join(names[:20])}")
    flags = [name not in typical if typical else not is_typical_by_name(name) for name in names]
    if all(flags):
        known = ", ".join(names[:20])
        raise SpecError(f"the classes are {known}; name the typical ones, as in --typical {commonest(labels)}")
    anomalous: NDArray[np.bool_] = np.array(flags)[which]
    return anomalous


@dataclass(frozen=True, eq=False)
class LabelledScores:
    """Rows with scores and truth, as many of each; NaN times and no devices where these are not known."""

    scores: Floats
    is_alarm: Flags
    is_anomalous: Flags
    devices: NDArray[np.str_] | None = None
    times: Floats | None = None

    def of_device(self, name: str) -> LabelledScores:
        """Return the rows of one device."""
        if self.devices is None:
            return self
        own = self.devices == name
        times = None if self.times is None else self.times[own]
        return LabelledScores(self.scores[own], self.is_alarm[own], self.is_anomalous[own], self.devices[own], times)

    @property
    def names(self) -> tuple[str, ...]:
        """The devices in order."""
        return () if self.devices is None else in_order(np.unique(self.devices).tolist())


class Quality(msgspec.Struct, frozen=True):
    """Quality measures of rows; None where they are not defined."""

    n_rows: int
    n_anomalous: int
    auroc: float | None
    average_precision: float | None
    partial_auroc: float | None  #: up to 1 % false alarms, from 0.5 (chance) to 1 (McClish)
    false_alarm_rate: float | None  #: share of typical rows that raise an alarm
    detection_rate: float | None  #: share of anomalous rows that do


class Detections(msgspec.Struct, frozen=True):
    """The time to detect events, which are runs of anomalous rows of one device: from first row to first alarm."""

    n_events: int
    n_detected: int
    median_s: float | None  #: of those that were detected; in the unit of the time column
    longest_s: float | None


class Evaluation(msgspec.Struct, frozen=True):
    """The result of `evaluate`."""

    fleet: Quality
    detections: Detections | None  #: None: there is no time
    per_device: dict[str, Quality]
    detections_per_device: dict[str, Detections]


def evaluation_of(labelled: LabelledScores) -> Evaluation:
    """Return the quality of a detector on labelled rows."""
    per_device = {name: labelled.of_device(name) for name in labelled.names}
    times = {name: found for name, own in per_device.items() if (found := delays_of(own)) is not None}
    fleet = delays_of(labelled)
    if labelled.devices is not None:
        fleet = list(chain.from_iterable(times.values())) if times else None
    return Evaluation(
        quality_of(labelled),
        None if fleet is None else _detections(fleet),
        {name: quality_of(own) for name, own in per_device.items()},
        {name: _detections(found) for name, found in times.items()},
    )


def quality_of(labelled: LabelledScores) -> Quality:
    """Return the numbers of some rows."""
    truth, scores = labelled.is_anomalous, labelled.scores
    n_anomalous = int(truth.sum())
    has_both = 0 < n_anomalous < len(truth)
    return Quality(
        len(truth),
        n_anomalous,
        auroc(scores, truth) if has_both else None,
        average_precision(scores, truth) if has_both else None,
        partial_auroc(scores, truth) if has_both else None,
        float(labelled.is_alarm[~truth].mean()) if n_anomalous < len(truth) else None,
        float(labelled.is_alarm[truth].mean()) if n_anomalous else None,
    )


def partial_auroc(scores: Floats, is_anomalous: Flags) -> float:
    """Return the area under the ROC curve up to 1 % false alarms, scaled so that chance is 0.5 and 1 is best.

    >>> partial_auroc(np.array([1.0, 2.0, 3.0]), np.array([False, False, True]))
    1.0
    """
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415  (a second of import time that most callers do not need)

    return float(roc_auc_score(is_anomalous, scores, max_fpr=MAX_FALSE_ALARMS))


def delays_of(labelled: LabelledScores) -> list[float | None] | None:
    """Return the time to detect each event of one device, None where it is missed; None without times."""
    if labelled.times is None:
        return None
    order = np.argsort(labelled.times, kind="stable")
    truth, alarms, times = labelled.is_anomalous[order], labelled.is_alarm[order], labelled.times[order]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], truth.astype(np.int8), [0]])))
    delays: list[float | None] = []
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        noticed = np.flatnonzero(alarms[first:last])
        delays.append(float(times[first + noticed[0]] - times[first]) if len(noticed) else None)
    return delays


def _detections(delays: Sequence[float | None]) -> Detections:
    found = [delay for delay in delays if delay is not None]
    return Detections(
        len(delays), len(found), float(np.median(found)) if found else None, max(found) if found else None
    )


_TYPICAL, _ANOMALOUS = BLUE, VERMILION
_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "s"))
_MAX_DEVICES = 8  #: more curves than this are not readable


def plot_roc(labelled: LabelledScores) -> Figure:
    """Return ROC curves of the fleet and of its devices; the axis of false alarms is logarithmic."""
    figure = new_figure(6, 4.2)
    axis = figure.subplots()
    names = labelled.names if len(labelled.names) <= _MAX_DEVICES else ()
    for name in names:
        _roc(axis, labelled.of_device(name), name, _lowest_rate(labelled), 1.0)
    _roc(axis, labelled, "fleet" if labelled.names else "all rows", _lowest_rate(labelled), 2.0, "black")
    axis.axvline(MAX_FALSE_ALARMS, color="0.5", linestyle=":", linewidth=1)
    axis.set(xscale="log", xlim=(_lowest_rate(labelled), 1.0), ylim=(0, 1.02))
    axis.set(xlabel="false alarms, as a share of typical rows", ylabel="detected, as a share of anomalous rows")
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _roc(
    axis: Axes, labelled: LabelledScores, label: str, lowest: float, width: float, colour: str | None = None
) -> None:
    from sklearn.metrics import roc_curve  # noqa: PLC0415  (as above)

    if labelled.is_anomalous.all() or not labelled.is_anomalous.any():
        return
    false_alarms, detected, _ = roc_curve(labelled.is_anomalous, labelled.scores)
    # A curve that rises at no false alarm at all would begin outside of a log scale.
    shown = np.maximum(false_alarms, lowest / 2)
    axis.plot(shown, detected, label=label, drawstyle="steps-post", linewidth=width, color=colour)


def _lowest_rate(labelled: LabelledScores) -> float:
    n_typical = int((~labelled.is_anomalous).sum())
    return min(1e-3, 1.0 / max(1, n_typical))


def plot_histogram(labelled: LabelledScores, threshold: float) -> Figure:
    """Return how often each score occurs, typical against anomalous, with the threshold between them."""
    figure = new_figure(6, 3.6)
    axis = figure.subplots()
    positive = labelled.scores[labelled.scores > 0]
    lowest = float(positive.min()) if len(positive) else 1e-6
    highest = max(float(labelled.scores.max()), threshold, 2 * lowest)
    bins = np.geomspace(min(lowest, threshold) if threshold > 0 else lowest, highest * 1.01, 50)
    for mask, name, colour in (
        (~labelled.is_anomalous, "typical", _TYPICAL),
        (labelled.is_anomalous, "anomalous", _ANOMALOUS),
    ):
        if mask.any():
            scores = np.maximum(labelled.scores[mask], bins[0])
            axis.hist(scores, bins.tolist(), label=f"{name} ({mask.sum()})", color=colour, alpha=0.55)
    axis.axvline(threshold, color="black", linestyle="--", linewidth=1, label=f"threshold {threshold:.3g}")
    axis.set(xscale="log", xlabel="score", ylabel="rows")
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def plot_timeline(labelled: LabelledScores, threshold: float) -> Figure:
    """Return scores over time (over rows, where there is none), one line of panels per device."""
    names = labelled.names[:_MAX_DEVICES] or ("",)
    figure = new_figure(9, 1.2 + 1.7 * len(names))
    axes = figure.subplots(len(names), 1, sharex=labelled.times is not None, squeeze=False)[:, 0].tolist()
    for axis, name in zip(axes, names, strict=True):
        places = _places(labelled)
        own = np.ones(len(places), bool) if labelled.devices is None else labelled.devices == name
        _timeline(axis, labelled.of_device(name), places[own], threshold)
        axis.set(ylabel=name or "score")
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set(xlabel="row" if labelled.times is None else f"time since the first row, {_unit(labelled)[1]}")
    axes[0].legend(frameon=False, fontsize=8, ncols=3, loc="upper left", bbox_to_anchor=(0.0, 1.25))
    return figure


def _places(labelled: LabelledScores) -> Floats:
    """Return where rows are on the axis: in time, or in turn."""
    if labelled.times is None:
        return np.arange(len(labelled.scores), dtype=np.float64)
    since: Floats = (labelled.times - np.min(labelled.times)) / _unit(labelled)[0]
    return since


def _unit(labelled: LabelledScores) -> tuple[float, str]:
    """Return the seconds of a unit that makes the numbers small, and its name."""
    span = 0.0 if labelled.times is None else float(np.ptp(labelled.times))
    return next((unit for unit in _UNITS if span >= 3 * unit[0]), _UNITS[-1])


def _timeline(axis: Axes, labelled: LabelledScores, places: Floats, threshold: float) -> None:
    order = np.argsort(places, kind="stable")
    places, scores, truth = places[order], labelled.scores[order], labelled.is_anomalous[order]
    alarms = labelled.is_alarm[order]
    shown = np.maximum(scores, np.min(scores[scores > 0], initial=threshold) if (scores > 0).any() else 1e-9)
    axis.plot(places, shown, color="0.75", linewidth=0.8, zorder=1)
    axis.scatter(places[truth], shown[truth], s=10, color=_ANOMALOUS, label="anomalous", zorder=2)
    false = alarms & ~truth
    axis.scatter(places[false], shown[false], s=14, marker="x", color=_TYPICAL, label="false alarm", zorder=3)
    axis.axhline(threshold, color="black", linestyle="--", linewidth=0.8, label="threshold")
    axis.set(yscale="log")
