"""Federated PCA: one round is scikit-learn's PCA of the pooled rows, for any partition, any k, and whoever dies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from tests.detect.rows import Rows, fleet, near_a_plane
from tolfl.core.errors import DataError
from tolfl.detect.learning import learn_pca
from tolfl.detect.pca import PCAModel, Subspace
from tolfl.detect.spec import DetectorSpec
from tolfl.models import TrainJob, TrainSettings

SPEC = DetectorSpec(model="pca", scaling="none")


def learned(slices: list[Rows], spec: DetectorSpec, origin: float = 0.0) -> Subspace:
    trained = learn_pca(slices, spec, np.full(slices[0].shape[1], origin)).learned
    assert list(trained.params) == ["global"]
    return trained.subspaces()["global"]


def assert_is_pca_of(subspace: Subspace, pooled: Rows, n_components: int) -> None:
    """Compare with scikit-learn: mean, variances, the subspace (its projector) and the errors of reconstruction."""
    rows = pooled.astype(np.float32).astype(np.float64)
    expected = PCA(n_components, svd_solver="full").fit(rows)
    directions = subspace.directions[:n_components]
    scale = max(1.0, float(np.abs(rows).max()) ** 2)

    np.testing.assert_allclose(subspace.mean, rows.mean(axis=0), atol=1e-9 * scale)
    variances = expected.explained_variance_ * (len(rows) - 1) / len(rows)
    np.testing.assert_allclose(subspace.variances[:n_components], variances, atol=1e-9 * scale)
    errors = np.square(rows - expected.inverse_transform(expected.transform(rows))).sum(axis=1)
    np.testing.assert_allclose(subspace.errors(rows, [n_components])[0], errors, atol=1e-8 * scale)
    np.testing.assert_allclose(
        directions.T @ directions, expected.components_.T @ expected.components_, atol=1e-7 * scale
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


@settings(max_examples=40)
@given(partitions(), st.integers(1, 3))
def test_one_round_is_the_pca_of_the_pooled_rows_for_any_partition_and_k(
    drawn: tuple[list[Rows], int], n_components: int
) -> None:
    slices, k = drawn

    found = learned(slices, DetectorSpec(model="pca", clusters=k))

    pooled = np.concatenate(slices)
    gaps = -np.diff(np.linalg.eigvalsh(np.cov(pooled.T))[::-1])
    if gaps[n_components - 1] > 0.1:
        assert_is_pca_of(found, pooled, n_components)


@settings(max_examples=30)
@given(st.integers(0, 5), st.integers(1, 6), st.sampled_from(["train", "report"]), st.integers(0, 2))
def test_whoever_dies_takes_only_its_own_rows_along(dead: int, k: int, phase: str, when: int) -> None:
    slices = [near_a_plane(10 + device, seed=device) for device in range(6)]
    fail = f"device:{dead}@{when}/{phase}"

    found = learned(slices, DetectorSpec(model="pca", clusters=k, fail=fail, rounds=4))

    assert_is_pca_of(found, np.concatenate([rows for device, rows in enumerate(slices) if device != dead]), 2)


def test_a_device_that_dies_after_the_last_round_is_in_the_model() -> None:
    slices = [near_a_plane(10, seed=device) for device in range(4)]

    found = learned(slices, DetectorSpec(model="pca", clusters=2, fail="device:3@0/distribute", rounds=1))

    assert_is_pca_of(found, np.concatenate(slices), 2)


def test_the_number_of_clusters_does_not_change_a_bit_that_matters() -> None:
    slices = list(fleet((20, 5, 1, 30, 8)).values())
    found = [learned(slices, DetectorSpec(model="pca", clusters=k)) for k in (1, 2, 5)]

    for other in found[1:]:
        np.testing.assert_allclose(other.mean, found[0].mean, atol=1e-12)
        np.testing.assert_allclose(other.variances, found[0].variances, atol=1e-12)


def test_more_rounds_find_the_same_again() -> None:
    slices = list(fleet((20, 5, 9)).values())
    once, often = (learned(slices, DetectorSpec(model="pca", rounds=rounds)) for rounds in (1, 7))

    np.testing.assert_allclose(often.variances, once.variances, atol=1e-12)


def test_what_was_known_before_counts_with_its_rows() -> None:
    first, second = list(fleet((20, 5)).values()), list(fleet((30, 2), seed=5).values())
    origin = np.zeros(6)
    before = learn_pca(first, SPEC, origin).learned

    after = learn_pca(second, SPEC, origin, before).learned

    assert after.n_samples == {"global": 57}
    assert_is_pca_of(after.subspaces()["global"], np.concatenate([*first, *second]), 2)


def test_an_origin_near_the_rows_saves_the_digits_of_far_away_ones() -> None:
    far = [1e4 + near_a_plane(40, seed=device, noise=0.5) for device in range(2)]
    near = learned(far, SPEC, origin=1e4)
    rows = np.concatenate(far).astype(np.float32).astype(np.float64)

    np.testing.assert_allclose(near.variances, np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1], rtol=1e-9)


def test_statistics_worked_out_by_hand() -> None:
    samples = np.array([[1, 2], [3, 0]], dtype=np.float32)
    model = PCAModel(np.array([1.0, 0.0]), 1)
    update = model.train([TrainJob(0, 0, 0, model.initial(0), samples, 0, 2)], TrainSettings())[0]

    # (0, 2) and (2, 0): means 1 and 1; squares 2 and 2, product 0. The loss is the mean of 4 and 4.
    assert (-update.delta).tolist() == [1.0, 1.0, 2.0, 0.0, 2.0]
    assert update.loss == 4.0
    subspace = model.subspace(-update.delta)
    assert subspace.mean.tolist() == [2.0, 1.0]
    np.testing.assert_allclose(subspace.variances, [2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(np.abs(subspace.directions[0]), [0.5**0.5] * 2)


def test_a_network_scores_as_the_subspace_does() -> None:
    rows = near_a_plane(50)
    model = PCAModel(np.zeros(6), 2)
    params = -model.train([TrainJob(0, 0, 0, model.initial(0), rows, 0, 50)], TrainSettings())[0].delta
    exact: NDArray[np.float64] = model.subspace(params).errors(rows, [2])[0]

    np.testing.assert_allclose(model.sample_losses(params, rows), exact, rtol=1e-3, atol=1e-6)
    assert set(model.tensors(params)) == {"mean", "products"}
    assert len(list(model.to_module(params).parameters())) == 4
    with pytest.raises(DataError, match=r"the model takes \(n_samples, 6\)"):
        model.sample_losses(params, rows[:, :5])
