"""PyOD's names and signs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.detect.rows import near_a_plane, off_the_plane
from tolfl.detect import PyODDetector

X = np.concatenate([near_a_plane(180), off_the_plane(20)])


@pytest.mark.parametrize("model", ["pca", "mahalanobis"])
def test_labels_scores_and_threshold_go_together(model: str) -> None:
    detector = PyODDetector(contamination=0.1, model=model, n_components=2).fit(X, devices=np.arange(200) % 4)

    assert detector.decision_scores_.shape == detector.labels_.shape == (200,)
    assert set(detector.labels_.tolist()) == {0, 1}
    assert detector.labels_.sum() == 20
    assert ((detector.decision_scores_ > detector.threshold_) == detector.labels_).all()
    assert (detector.decision_function(X) == detector.decision_scores_).all()
    assert (detector.predict(X) == detector.labels_).all()
    assert detector.labels_[180:].mean() > 0.8  # higher is more abnormal
    assert (PyODDetector(contamination=0.1, model="pca", n_components=2).fit_predict(X) >= 0).all()


def test_probabilities_add_up_and_rise_with_the_score() -> None:
    detector = PyODDetector(model="pca").fit(X)
    odds = detector.predict_proba(X)
    order = np.argsort(detector.decision_scores_)

    np.testing.assert_allclose(odds.sum(axis=1), 1.0)
    assert (np.diff(odds[order, 1]) >= 0).all()
    assert (detector.predict_confidence(X) >= 0.5).all()
