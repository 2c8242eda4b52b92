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
    assert found.p_value <= 0.01
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


# -- cells ----------------------------------------------------------------------------------------------------------


def moved_bytes(n_rows: int, seed: int) -> np.ndarray:
    """Return rows of counts: never negative, and their ratio is almost constant."""
    rng = np.random.default_rng(seed)
    packets = rng.poisson(20.0, n_rows).astype(float)
    return np.column_stack([packets, packets * rng.normal(60.0, 5.0, n_rows), rng.exponential(2.0, n_rows)])


CELLS = fit_detector(
    {f"site-{place}": moved_bytes(700, place) * (1 + place % 2) for place in range(4)},
    DetectorSpec(),
    Features.named(["packets", "bytes", "gap [s]"]),
)


def test_what_cells_expect_is_never_impossible() -> None:
    rng = np.random.default_rng(3)
    rows = moved_bytes(300, 77) * rng.choice([-20.0, 0.0, 1.0, 50.0, 1e6], (300, 3))
    expected, gains = CELLS.attributions(rows)

    scaling = CELLS.model.scaling  # type: ignore[union-attr]
    assert (expected >= scaling.low).all()
    assert (expected <= scaling.high).all()
    assert (gains >= 0).all()


def test_a_column_that_is_moved_by_eight_deviations_comes_first() -> None:
    rng = np.random.default_rng(4)
    mixed = rng.normal(size=(8, 8))
    rows = rng.normal(size=(1200, 8)) @ mixed
    detector = fit_detector({"a": rows[:500], "b": rows[500:1000]}, DetectorSpec())
    columns = rng.integers(8, size=200)
    moved = rows[1000:].copy()
    moved[np.arange(200), columns] += 8 * rows.std(axis=0)[columns]

    found = detector.attributions(moved)[1].argmax(axis=1)
    assert (found == columns).mean() > 0.9


def test_an_explanation_goes_by_the_threshold_of_the_rows_verdict() -> None:
    new = moved_bytes(400, 9) * 2.6
    for device in ("site-0", "site-1", "stranger", None):
        names = None if device is None else [device] * 400
        verdicts, p_values = CELLS.verdicts(new, names), CELLS.p_values(new, names)
        explained = [CELLS.explain(row, device) for row in new[:60]]

        assert [one.is_alarm for one in explained] == verdicts[:60].tolist()
        assert [one.p_value for one in explained] == p_values[:60].tolist()
        assert ((p_values <= 0.01) == verdicts).all()
    own = {name: CELLS.thresholds.limit_for(name).value for name in ("site-0", "site-1")}
    assert own["site-0"] != own["site-1"]
