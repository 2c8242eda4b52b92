"""The same detector with PyOD's names and signs, for code that is written for PyOD. PyOD itself is not needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolfl.detect.detector import FederatedDetector


class PyODDetector:
    """A `FederatedDetector` as PyOD has them: scores and labels of the training rows, 1 is an outlier.

    Parameters
    ----------
    contamination
        The share of the training rows that is labelled as outliers.
    **settings
        Of `FederatedDetector`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = PyODDetector(contamination=0.1, model="pca").fit(rng.normal(size=(100, 4)))
    >>> int(found.labels_.sum()), bool((found.decision_scores_[found.labels_ == 1] > found.threshold_).all())
    (10, True)
    """

    def __init__(self, contamination: float = 0.1, **settings: object) -> None:
        self.contamination = contamination
        self.detector = FederatedDetector(contamination=contamination, **settings)  # type: ignore[arg-type]

    def fit(self, X: object, y: object = None, devices: ArrayLike | None = None) -> PyODDetector:  # noqa: ARG002
        """Train, and keep score and label of each row."""
        self.detector.fit(X, devices=devices)
        self.decision_scores_ = self.detector.anomaly_score(X)
        self.threshold_ = self.detector.threshold_
        self.labels_ = self._labels(self.decision_scores_)
        return self

    def fit_predict(self, X: object, y: object = None, devices: ArrayLike | None = None) -> NDArray[np.int64]:
        """Train, and return the labels of the rows."""
        return self.fit(X, y, devices).labels_

    def decision_function(self, X: object) -> NDArray[np.float64]:
        """Return one score per row: the higher, the more abnormal."""
        return self.detector.anomaly_score(X)

    def predict(self, X: object) -> NDArray[np.int64]:
        """Return 1 for outliers and 0 for inliers."""
        return self._labels(self.decision_function(X))

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """Return for each row the odds of being an inlier and an outlier: its p-value, and one minus it."""
        typical = self.detector.p_values(X)
        return np.column_stack([typical, 1.0 - typical])

    def predict_confidence(self, X: object) -> NDArray[np.float64]:
        """Return how sure each label is, from 0.5 to 1."""
        confidence: NDArray[np.float64] = self.predict_proba(X).max(axis=1)
        return confidence

    def _labels(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        return (scores > self.threshold_).astype(np.int64)
