"""Federated PCA: one round is scikit-learn's PCA of the pooled rows, for any partition, any k, and whoever dies."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from tests.detect.rows import Rows, detector_for, near_a_plane
from tests.learners.play import Present, play
from tolfl.core.spec import RunSpec
from tolfl.detect.reconstruction import Reconstruction
from tolfl.detect.reconstruction_learner import StatisticsRound, statistics_of, subspace_of
from tolfl.learners.learner import Fleet


def learned(slices: list[Rows], n_components: int, present: Present | None = None) -> Reconstruction:
    """Return what a fleet learns whose devices hold float32."""
    fleet = Fleet(RunSpec(devices=len(slices)), (slices[0].shape[1],))
    learn = {"model": "pca", "scaling": "none", "held_back": 0.0, "n_components": n_components}
    learner = detector_for(fleet, learn)
    rows = {device: own.astype(np.float32) for device, own in enumerate(slices)}
    statistics = learner.stages["statistics"]
    assert isinstance(statistics, StatisticsRound)
    found = statistics.model(play(learner, rows, present))
    assert found is not None
    return found


def assert_is_pca_of(found: Reconstruction, pooled: Rows, n_components: int) -> None:
    """Compare with scikit-learn: mean, the subspace (its projector) and the errors of reconstruction."""
    rows = pooled.astype(np.float32).astype(np.float64)
    expected = PCA(n_components, svd_solver="full").fit(rows)
    down, up = found.layers
    scale = max(1.0, float(np.abs(rows).max()) ** 2)

    np.testing.assert_allclose(up.bias, rows.mean(axis=0), atol=1e-6 * scale)
    errors = np.square(rows - expected.inverse_transform(expected.transform(rows))).sum(axis=1)
    np.testing.assert_allclose(found.scores(rows), errors, atol=1e-5 * scale)
    np.testing.assert_allclose(
        down.weight.T @ down.weight, expected.components_.T @ expected.components_, atol=1e-6 * scale
    )


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[Rows], int]:
    """Return rows of a few devices (some with one row, or none), and a number of clusters."""
    sizes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
    sizes[draw(st.integers(0, len(sizes) - 1))] += 8
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    # Clearly different variances: where two are equal, no subspace is the right one.
    scales = np.array([8.0, 4.0, 2.0, 1.0])
    offset = draw(st.sampled_from([0.0, 3.0]))
    slices = [offset + scales * rng.normal(size=(size, 4)) for size in sizes]
    return slices, draw(st.integers(1, len(sizes)))


@given(partitions(), st.integers(1, 3))
def test_one_round_is_the_pca_of_the_pooled_rows_for_any_partition_and_k(
    drawn: tuple[list[Rows], int], n_components: int
) -> None:
    slices, _ = drawn

    found = learned(slices, n_components)

    pooled = np.concatenate(slices)
    gaps = -np.diff(np.linalg.eigvalsh(np.cov(pooled.T))[::-1])
    if gaps[n_components - 1] > 0.1:
        assert_is_pca_of(found, pooled, n_components)


@given(st.integers(0, 5), st.integers(0, 8))
def test_whoever_dies_takes_only_its_own_rows_along(dead: int, when: int) -> None:
    slices = [near_a_plane(10 + device, seed=device) for device in range(6)]

    found = learned(slices, 2, lambda round_index: [d for d in range(6) if d != dead or round_index < when])

    left = [rows for device, rows in enumerate(slices) if device != dead or when > 1]
    assert_is_pca_of(found, np.concatenate(left), 2)


def test_a_device_that_dies_after_the_round_of_statistics_is_in_the_model() -> None:
    slices = [near_a_plane(10, seed=device) for device in range(4)]

    found = learned(slices, 2, lambda round_index: range(4 if round_index < 2 else 3))

    assert_is_pca_of(found, np.concatenate(slices), 2)


def test_an_origin_near_the_rows_saves_the_digits_of_far_away_ones() -> None:
    rows = 1e4 + near_a_plane(80, noise=0.5)
    origin = rows.mean(axis=0).round()
    _, _, variances = subspace_of(statistics_of(rows, origin), origin)

    np.testing.assert_allclose(variances, np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1], rtol=1e-9)


def test_statistics_worked_out_by_hand() -> None:
    samples = np.array([[1, 2], [3, 0]], dtype=np.float32)
    origin = np.array([1.0, 0.0])
    found = statistics_of(samples, origin)

    # (0, 2) and (2, 0): means 1 and 1; squares 2 and 2, product 0.
    assert found.tolist() == [1.0, 1.0, 2.0, 0.0, 2.0]
    mean, directions, variances = subspace_of(found, origin)
    assert mean.tolist() == [2.0, 1.0]
    np.testing.assert_allclose(variances, [2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(np.abs(directions[0]), [0.5**0.5] * 2)
