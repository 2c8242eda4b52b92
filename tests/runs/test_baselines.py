"""The plain baselines against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from tolfl.runs.baselines import PLAIN_BASELINES, mean_vector, pca

RNG = np.random.default_rng(0)
SAMPLES = (RNG.normal(size=(300, 12)) @ RNG.normal(size=(12, 12)) + 5).astype(np.float32)
TEST = RNG.normal(size=(20, 12)).astype(np.float32)


def test_the_mean_vector_scores_by_squared_distance() -> None:
    score = mean_vector(np.array([[0.0, 0.0], [2.0, 4.0]], dtype=np.float32))

    assert score(np.array([[1.0, 2.0], [1.0, 5.0]], dtype=np.float32)).tolist() == [0.0, 9.0]


@pytest.mark.parametrize(("n_rows", "n_components"), [(300, 1), (300, 4), (300, 11), (9, 4)])
def test_pca_is_that_of_scikit_learn(n_rows: int, n_components: int) -> None:
    """Also of fewer rows than features."""
    reference = PCA(n_components, svd_solver="full").fit(SAMPLES[:n_rows].astype(float))
    error = TEST - reference.inverse_transform(reference.transform(TEST.astype(float)))

    np.testing.assert_allclose(pca(SAMPLES[:n_rows], n_components)(TEST), np.square(error).sum(1), rtol=1e-6, atol=1e-9)


def test_all_components_reconstruct_everything() -> None:
    assert pca(SAMPLES, 12)(TEST).max() < 1e-9


def test_pictures_are_flattened() -> None:
    pictures, test = SAMPLES.reshape(300, 3, 4), TEST.reshape(20, 3, 4)

    assert np.array_equal(mean_vector(pictures)(test), mean_vector(SAMPLES)(TEST))
    assert np.array_equal(pca(pictures, 2)(test), pca(SAMPLES, 2)(TEST))


def test_data_in_pieces_is_data_as_a_whole() -> None:
    many = np.random.default_rng(1).normal(3, 1, (40_000, 3)).astype(np.float32)
    mean = many.astype(float).mean(axis=0)

    np.testing.assert_allclose(mean_vector(many)(many[:5]), np.square(many[:5] - mean).sum(1), rtol=1e-9)


def test_every_baseline_gives_one_score_per_sample() -> None:
    wide = np.random.default_rng(2).normal(size=(100, 40)).astype(np.float32)

    for baseline in PLAIN_BASELINES.values():
        assert baseline(wide)(wide[:7]).shape == (7,)
