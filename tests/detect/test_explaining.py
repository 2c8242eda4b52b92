"""Explanations: shares of the error, values and what was expected, with names and units."""

from __future__ import annotations

import numpy as np
import pytest

from tolfl.detect import DetectorSpec, Features, fit_detector

RNG = np.random.default_rng(0)
T = RNG.uniform(0, 1, 400)
#: The second is twice the first, in another unit; the third is noise that is always small.
X = np.column_stack([T, 200.0 * T, 0.01 * RNG.normal(size=400)])
DETECTOR = fit_detector(
    {"a": X[:200], "b": X[200:]},
    DetectorSpec(model="pca", n_components=1, scaling="min-max"),
    Features.named(["load", "power [W]", "offset"]),
)


def test_the_feature_that_is_off_has_the_largest_share() -> None:
    found = DETECTOR.explain([0.5, 100.0, 0.5])
    first = found.features[0]

    assert (first.name, first.unit, first.value) == ("offset", "", 0.5)
    assert first.share > 0.95
    assert first.expected == pytest.approx(0.0, abs=0.05)
    assert sum(feature.share for feature in found.features) == pytest.approx(1.0)
    assert found.is_alarm
    assert found.p_value == 1 / 81
    assert "offset: 0.5, expected" in str(found)


def test_expected_values_are_in_the_units_of_the_features() -> None:
    found = {feature.name: feature for feature in DETECTOR.explain([0.5, 100.0, 0.0]).features}

    assert found["power"].expected == pytest.approx(100.0, rel=0.05)
    assert found["power"].unit == "W"
    assert not DETECTOR.explain([0.5, 100.0, 0.0]).is_alarm


def test_the_score_is_the_error_that_is_shared_out() -> None:
    row = np.array([0.2, 130.0, 0.01])
    found = DETECTOR.explain(row)

    assert found.score == DETECTOR.anomaly_score(row[None, :])[0]
    assert found.threshold == DETECTOR.thresholds.threshold


def test_a_figure_shows_the_features_that_matter_most() -> None:
    figure = DETECTOR.explain([0.5, 100.0, 0.5]).plot(n_features=2)
    axis = figure.axes[0]

    assert [label.get_text() for label in axis.get_yticklabels()][-1] == "offset"
    assert len(axis.patches) == 2
    assert "above" in axis.get_title()
