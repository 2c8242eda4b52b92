"""The Mahalanobis distance: scikit-learn's OAS of the pooled rows, for any partition, any k, and whoever dies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import OAS

from tests.detect.rows import Rows, detector_for, near_a_plane, off_the_plane
from tests.learners.play import Present, play
from tolfl.core.spec import RunSpec
from tolfl.detect import DetectorSpec, Features, FederatedDetector, fit_detector
from tolfl.detect.learning import Learned
from tolfl.detect.mahalanobis import LEAST_SHRINKAGE, Distance, oas, shrunk_variances
from tolfl.detect.pca import Subspace
from tolfl.learners.learner import Fleet

QUERIES = np.concatenate([near_a_plane(20, seed=70), off_the_plane(20, seed=71)])


def learned(slices: list[Rows], present: Present | None = None) -> Learned:
    """Return what a fleet learns whose devices hold float32."""
    fleet = Fleet(RunSpec(devices=len(slices)), (slices[0].shape[1],))
    learner = detector_for(fleet, {"model": "mahalanobis", "scaling": "none", "held_back": 0.0})
    rows = {device: own.astype(np.float32) for device, own in enumerate(slices)}
    found = learner.detector(play(learner, rows, present))
    assert found is not None
    return found.learned


def assert_is_oas_of(distance: Distance, pooled: Rows, queries: Rows) -> None:
    """Compare with scikit-learn: mean, covariance, precision and distances. Devices hold float32."""
    expected = OAS().fit(pooled.astype(np.float32).astype(np.float64))
    precision = distance.root @ distance.root
    assert expected.shrinkage_ > LEAST_SHRINKAGE or pooled.shape[1] == 1  # one feature is its own target

    np.testing.assert_allclose(distance.mean, expected.location_, atol=1e-9)
    np.testing.assert_allclose(distance.root, distance.root.T, atol=0.0)
    np.testing.assert_allclose(precision, expected.precision_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.linalg.inv(precision), expected.covariance_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(distance.squared(queries), expected.mahalanobis(queries), rtol=1e-6)


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[Rows], int]:
    """Return rows of a few devices (some with one row, or none), and a number of clusters."""
    sizes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
    sizes[draw(st.integers(0, len(sizes) - 1))] += draw(st.integers(2, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    n_features = draw(st.integers(1, 6))
    mixing, offset = rng.normal(size=(n_features, n_features)), draw(st.sampled_from([0.0, 3.0]))
    return [offset + rng.normal(size=(size, n_features)) @ mixing for size in sizes], draw(st.integers(1, len(sizes)))


@settings(max_examples=40, deadline=None)
@given(partitions())
def test_one_round_is_the_oas_of_the_pooled_rows_for_any_partition_and_k(drawn: tuple[list[Rows], int]) -> None:
    slices, _ = drawn
    n_features = slices[0].shape[1]
    queries = np.random.default_rng(0).normal(size=(10, n_features))

    found = learned(slices)

    assert list(found.params) == ["global"]
    assert_is_oas_of(found.distances()["global"], np.concatenate(slices), queries)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5), st.integers(0, 7))
def test_whoever_dies_leaves_the_oas_of_those_who_were_in_the_round_of_statistics(dead: int, when: int) -> None:
    slices = [near_a_plane(10 + device, seed=device) for device in range(6)]

    found = learned(slices, lambda round_index: [d for d in range(6) if d != dead or round_index < when])

    left = np.concatenate([rows for device, rows in enumerate(slices) if device != dead or when > 1])
    assert_is_oas_of(found.distances()["global"], left, QUERIES)


def test_devices_that_go_on_alone_shrink_by_their_own_number_of_rows() -> None:
    slices = [near_a_plane(size, seed=size) for size in (10, 12, 30, 60)]

    for device in (1, 2, 3):
        found = learned(slices, lambda round_index, own=device: [own] if round_index else range(4))  # type: ignore[misc]

        assert found.n_samples == {"global": len(slices[device])}
        assert_is_oas_of(found.distances()["global"], slices[device], QUERIES)


@pytest.mark.parametrize("side", [(1, 2, 3), (0, 1, 2), (2, 3), (0, 3)], ids=["first", "last", "low-ids", "mixed"])
def test_one_side_of_a_fleet_that_is_cut_in_two_shrinks_by_its_own_rows(side: tuple[int, ...]) -> None:
    slices = [near_a_plane(size, seed=size) for size in (15, 20, 30, 41)]

    found = learned(slices, lambda round_index: side if round_index else range(4))

    assert_is_oas_of(found.distances()["global"], np.concatenate([slices[device] for device in side]), QUERIES)


def test_shrinkage_worked_out_by_hand() -> None:
    # Variances 4, 0, 0, 0: (16 + 16) / (20 (16 - 4)) = 2 / 15 of the way to 1, 1, 1, 1.
    subspace = Subspace(np.zeros(4), np.eye(4), np.array([4.0, 0.0, 0.0, 0.0]))

    assert oas(subspace.variances, 19) == pytest.approx(2 / 15)
    assert shrunk_variances(subspace, 19) == pytest.approx([4 * 13 / 15 + 2 / 15, 2 / 15, 2 / 15, 2 / 15])
    assert Distance.of(subspace, 19).squared(np.array([[0.0, 2.0, 0.0, 0.0]])) == pytest.approx(4 / (2 / 15))


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8), st.integers(1, 10**9))
def test_shrinkage_is_a_share_and_no_variance_is_left_at_nothing(variances: list[float], n_samples: int) -> None:
    ordered = np.sort(np.array(variances))[::-1]
    found = shrunk_variances(Subspace(np.zeros(len(ordered)), np.eye(len(ordered)), ordered), n_samples)

    assert 0.0 < oas(ordered, n_samples) <= 1.0
    assert (found > 0.0).all()
    assert found.min() >= LEAST_SHRINKAGE * ordered.mean() * (1 - 1e-12)
    if ordered.mean() > 0.0:
        assert found.sum() == pytest.approx(ordered.sum())


@given(st.integers(1, 8), st.floats(1e-6, 1e6), st.integers(1, 10**9))
def test_variances_that_are_all_alike_are_what_they_are_shrunk_to(n: int, variance: float, n_samples: int) -> None:
    alike = Subspace(np.zeros(n), np.eye(n), np.full(n, variance))

    assert 0.0 < oas(alike.variances, n_samples) <= 1.0  # rounding must not turn the sign
    np.testing.assert_allclose(shrunk_variances(alike, n_samples), alike.variances)


def test_a_spread_below_the_last_digit_of_float32_is_none() -> None:
    noise = np.array([1e-8, 0.0])  # around 10,000, neighbouring float32 are 0.001 apart

    assert shrunk_variances(Subspace(np.full(2, 1e4), np.eye(2), noise), 100).tolist() == [1.0, 1.0]
    assert shrunk_variances(Subspace(np.zeros(2), np.eye(2), noise), 100).max() < 1e-8


def test_the_floor_holds_constant_and_repeated_columns() -> None:
    rng = np.random.default_rng(0)
    free = rng.normal(size=(20_000, 2))
    rows = np.column_stack([free, free[:, 0], np.full(len(free), 7.0)])  # variances 2, 1, 0, 0: usual is 0.75
    found = fit_detector({"a": rows}, DetectorSpec(model="mahalanobis", scaling="none", held_back=0.0))
    typical = np.array([[0.5, 0.5, 0.5, 7.0]])
    base, apart, moved = found.anomaly_score(typical + np.array([[0, 0, 0, 0], [0.1, 0, -0.1, 0], [0, 0, 0, 0.1]]))

    # Moved by 0.1 where nothing ever moves: 0.01 / (0.001 * 0.75), and along the difference of the twins twice that.
    assert moved - base == pytest.approx(0.01 / 0.00075, rel=0.02)
    assert apart - base == pytest.approx(0.02 / 0.00075, rel=0.02)
    assert found.anomaly_score(rows).max() < 40.0


def test_only_constant_columns_are_a_point_with_the_plain_distance() -> None:
    for value in (0.0, 1.0, 0.1, 1e6):
        detector = FederatedDetector(model="mahalanobis", scaling="none").fit(np.full((20, 3), value))

        assert detector.anomaly_score([[value, value + 2.0, value]]) == pytest.approx([4.0], rel=0.1)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_scores_are_the_distance_in_any_unit(unit: float) -> None:
    rows = unit * near_a_plane(400)
    found = fit_detector({"a": rows}, DetectorSpec(model="mahalanobis", scaling="none", held_back=0.0))

    expected = OAS(store_precision=False).fit(rows / unit).covariance_
    centred = QUERIES - (rows / unit).mean(axis=0)
    distances = np.einsum("ij,ij->i", centred @ np.linalg.inv(expected), centred)
    np.testing.assert_allclose(found.anomaly_score(unit * QUERIES), distances, rtol=1e-3)


def test_float32_is_enough_for_many_features_with_twins_and_constants() -> None:
    rng = np.random.default_rng(3)
    rows = rng.uniform(size=(900, 12)) @ rng.uniform(size=(12, 380)) / 6.0
    rows = np.column_stack([rows, rows[:, :10], np.full((900, 10), 0.3)])
    found = fit_detector({"a": rows}, DetectorSpec(model="mahalanobis"))
    queries = rows[:50] + 0.01 * rng.normal(size=(50, 400))
    exact = found.learned.distances()["global"].squared(found.scaler(queries))

    np.testing.assert_allclose(found.anomaly_score(queries), exact, rtol=1e-3)
    assert [found.anomaly_score(row[None, :])[0] for row in queries] == found.anomaly_score(queries).tolist()


def test_the_shares_of_the_features_add_up_to_the_distance() -> None:
    found = fit_detector({"a": near_a_plane(300)}, DetectorSpec(model="mahalanobis"))
    network = found.networks["global"]
    scaled = found.scaler(QUERIES)

    np.testing.assert_allclose(network.feature_errors(scaled).sum(axis=1), found.anomaly_score(QUERIES), rtol=1e-4)


def test_a_feature_is_expected_where_the_others_lead_to() -> None:
    rows = near_a_plane(300, noise=0.3)
    found = fit_detector({"a": rows}, DetectorSpec(model="mahalanobis", scaling="none", held_back=0.0))
    covariance, mean = OAS().fit(rows).covariance_, rows.mean(axis=0)
    for sample in QUERIES[:5]:
        expected = {one.name: one.expected for one in found.explain(sample).features}
        for j in range(6):
            others = np.delete(np.arange(6), j)
            slopes = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, j])

            assert expected[f"x{j}"] == pytest.approx(mean[j] + slopes @ (sample - mean)[others], rel=1e-3, abs=1e-3)


def test_the_feature_that_is_off_is_named_with_what_was_expected() -> None:
    rng = np.random.default_rng(0)
    load = rng.uniform(0.0, 1.0, 500)
    rows = np.column_stack([load, 200.0 * load + rng.normal(size=500), 50.0 * load + rng.normal(size=500)])
    found = fit_detector({"a": rows}, DetectorSpec(model="mahalanobis"), Features.named(["load", "power [W]", "heat"]))
    explanation = found.explain([0.5, 160.0, 25.0])

    assert explanation.is_alarm
    assert (explanation.features[0].name, explanation.features[0].value) == ("power", 160.0)
    assert explanation.features[0].expected == pytest.approx(100.0, abs=10.0)
    assert "of the score" in str(explanation)


@pytest.mark.parametrize("scheme", ["fl", "sbt"])
def test_the_distance_is_the_same_with_every_scheme_that_has_one_model(scheme: str) -> None:
    rows, devices = near_a_plane(120), np.arange(120) % 4
    reference = FederatedDetector(model="mahalanobis").fit(rows, devices=devices)
    other = FederatedDetector(model="mahalanobis", scheme=scheme).fit(rows, devices=devices)

    np.testing.assert_allclose(other.anomaly_score(QUERIES), reference.anomaly_score(QUERIES), rtol=1e-4)
