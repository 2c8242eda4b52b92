"""Many rows at once: score, p-value, verdict, and for each the features that make its score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolfl.detect.explaining import FeatureShare
from tolfl.detect.features import Features, Rows
from tolfl.detect.fitted import Detector

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """What a detector says of rows; `top_...` have the features of most error first, shape `(n_rows, n_top)`."""

    features: Features
    scores: Floats
    p_values: Floats
    thresholds: Floats
    top: NDArray[np.int64]
    shares: Floats
    values: Floats
    expected: Floats

    @property
    def is_alarm(self) -> NDArray[np.bool_]:
        """Which rows are above their threshold."""
        return self.scores > self.thresholds

    def top_features(self, row: int) -> tuple[FeatureShare, ...]:
        """Return the features that make the score of one row, as `Detector.explain` has them."""
        return tuple(
            FeatureShare(self.features.names[feature], self.features.units[feature], share, value, expected)
            for feature, share, value, expected in zip(
                self.top[row].tolist(),
                self.shares[row].tolist(),
                self.values[row].tolist(),
                self.expected[row].tolist(),
                strict=True,
            )
        )


def score_rows(
    detector: Detector,
    rows: Rows,
    devices: NDArray[np.str_] | None = None,
    n_top: int = 3,
    only_alarms: bool = False,
) -> ScoredRows:
    """Return what the detector says of rows that have been checked.

    Parameters
    ----------
    detector, rows
        The rows have the detector's features in its order, and no value that is missing.
    devices
        Whose row each is, for thresholds of their own.
    n_top
        How many features to name for each row.
    only_alarms
        Whether features are named for alarms only, which takes less time; those of other rows are not to be used.
    """
    scores = detector.scores_of(rows, devices).astype(np.float64)
    thresholds = detector.limits(len(rows), devices)
    p_values = detector.thresholds.p_values(scores, devices)
    n_top = min(n_top, detector.features.n)
    top = np.zeros((len(rows), n_top), np.int64)
    shares, values, expected = (np.zeros((len(rows), n_top)) for _ in range(3))
    named = scores > thresholds if only_alarms else np.ones(len(rows), bool)
    if n_top and named.any():
        own = rows[named]
        reconstructed, errors = detector.taken_apart(own, None if devices is None else devices[named])
        order = np.argsort(-errors, axis=1, kind="stable")[:, :n_top]
        total = errors.sum(axis=1, keepdims=True)
        parts = np.divide(errors, total, out=np.zeros_like(errors), where=total > 0)
        top[named] = order
        for into, of in ((shares, parts), (values, own), (expected, reconstructed)):
            into[named] = np.take_along_axis(of, order, axis=1)
    return ScoredRows(detector.features, scores, p_values, thresholds, top, shares, values, expected)
