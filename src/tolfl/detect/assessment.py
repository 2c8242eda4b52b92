"""How good a detector is on rows whose truth is known: for the fleet, for each device, and how soon it speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.metrics import auroc, average_precision
from tolfl.datasets.raw import in_order

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: The share of false alarms up to which the partial AUROC looks.
MAX_FALSE_ALARMS = 0.01


@dataclass(frozen=True, eq=False)
class Judged:
    """Rows with scores and truth, as many of each; NaN times and no devices where these are not known."""

    scores: Floats
    is_alarm: Flags
    is_anomalous: Flags
    devices: NDArray[np.str_] | None = None
    times: Floats | None = None

    def of_device(self, name: str) -> Judged:
        """Return the rows of one device."""
        if self.devices is None:
            return self
        own = self.devices == name
        times = None if self.times is None else self.times[own]
        return Judged(self.scores[own], self.is_alarm[own], self.is_anomalous[own], self.devices[own], times)

    @property
    def names(self) -> tuple[str, ...]:
        """The devices in order."""
        return () if self.devices is None else in_order(np.unique(self.devices).tolist())


class Quality(msgspec.Struct, frozen=True):
    """Numbers about rows; None where there is nothing to work them out from."""

    n_rows: int
    n_anomalous: int
    auroc: float | None
    average_precision: float | None
    partial_auroc: float | None  #: up to 1 % false alarms, from 0.5 (chance) to 1 (McClish)
    false_alarm_rate: float | None  #: share of typical rows that raise an alarm
    detection_rate: float | None  #: share of anomalous rows that do


class Detections(msgspec.Struct, frozen=True):
    """How soon events are noticed: runs of anomalous rows of one device, from their first row to their first alarm."""

    n_events: int
    n_detected: int
    median_s: float | None  #: of those that were detected; in the unit of the time column
    longest_s: float | None


class Assessment(msgspec.Struct, frozen=True):
    """What `evaluate` finds."""

    fleet: Quality
    detections: Detections | None  #: None: there is no time
    per_device: dict[str, Quality]
    detections_per_device: dict[str, Detections]


def assess(judged: Judged) -> Assessment:
    """Return what rows with known truth say about a detector."""
    per_device = {name: judged.of_device(name) for name in judged.names}
    times = {name: found for name, own in per_device.items() if (found := delays_of(own)) is not None}
    fleet = delays_of(judged) if judged.devices is None else _together(list(times.values()))
    return Assessment(
        quality_of(judged),
        None if fleet is None else _detections(fleet),
        {name: quality_of(own) for name, own in per_device.items()},
        {name: _detections(found) for name, found in times.items()},
    )


def quality_of(judged: Judged) -> Quality:
    """Return the numbers of some rows."""
    truth, scores = judged.is_anomalous, judged.scores
    n_anomalous = int(truth.sum())
    has_both = 0 < n_anomalous < len(truth)
    return Quality(
        len(truth),
        n_anomalous,
        auroc(scores, truth) if has_both else None,
        average_precision(scores, truth) if has_both else None,
        partial_auroc(scores, truth) if has_both else None,
        float(judged.is_alarm[~truth].mean()) if n_anomalous < len(truth) else None,
        float(judged.is_alarm[truth].mean()) if n_anomalous else None,
    )


def partial_auroc(scores: Floats, is_anomalous: Flags, max_false_alarms: float = MAX_FALSE_ALARMS) -> float:
    """Return the area under the ROC curve up to a share of false alarms, scaled so that chance is 0.5 and 1 is best.

    >>> partial_auroc(np.array([1.0, 2.0, 3.0]), np.array([False, False, True]))
    1.0
    """
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415  (a second of import time that most callers do not need)

    return float(roc_auc_score(is_anomalous, scores, max_fpr=max_false_alarms))


def delays_of(judged: Judged) -> list[float | None] | None:
    """Return how long each event of one device takes to be noticed, None where it is not; None without times."""
    if judged.times is None:
        return None
    order = np.argsort(judged.times, kind="stable")
    truth, alarms, times = judged.is_anomalous[order], judged.is_alarm[order], judged.times[order]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], truth.astype(np.int8), [0]])))
    delays: list[float | None] = []
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        noticed = np.flatnonzero(alarms[first:last])
        delays.append(float(times[first + noticed[0]] - times[first]) if len(noticed) else None)
    return delays


def _together(delays: Sequence[Sequence[float | None]]) -> list[float | None] | None:
    return [one for of_device in delays for one in of_device] if delays else None


def _detections(delays: Sequence[float | None]) -> Detections:
    found = [delay for delay in delays if delay is not None]
    return Detections(
        len(delays), len(found), float(np.median(found)) if found else None, max(found) if found else None
    )
