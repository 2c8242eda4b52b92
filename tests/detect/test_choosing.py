"""How many components: made-up samples, the smallest of the best codes, and reasons in words and numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.detect.rows import fleet, near_a_plane
from tolfl.core.errors import SpecError
from tolfl.detect import Candidate, DetectorSpec, fit_detector
from tolfl.detect.choosing import choose, made_up, possible_components, separations


@given(st.integers(2, 30), st.integers(2, 20), st.integers(0, 5))
def test_a_made_up_sample_has_half_of_another_one(n_rows: int, n_features: int, device: int) -> None:
    samples = np.arange(n_rows * n_features, dtype=np.float32).reshape(n_rows, n_features)
    found = made_up(samples, 0, device)
    is_changed = found != samples

    assert (is_changed.sum(axis=1) == n_features // 2).all()
    assert np.isin(found, samples).all()
    for row, changed in zip(found, is_changed, strict=True):
        owners = set((row[changed] // n_features).tolist())
        assert len(owners) == 1
        assert np.ptp(np.flatnonzero(changed)) == changed.sum() - 1
    assert (found % n_features == samples % n_features).all()  # a value stays in its column


def test_the_smallest_code_among_the_best_is_taken() -> None:
    candidates = [
        Candidate("pca", 1, 0.70),
        Candidate("pca", 8, 0.895),
        Candidate("pca", 32, 0.90),
        Candidate("autoencoder", 16, 0.897),
    ]
    found = choose(candidates)

    assert (found.model, found.code) == ("pca", 8)
    assert "pca-8 tells made-up from held-back samples with an AUROC of 0.895" in found.reason
    assert "the best of 4, pca-32, with 0.900" in found.reason
    assert choose(candidates[:1]).code == 1


def test_separation_is_an_auroc_for_each_model_where_there_is_something_to_compare() -> None:
    def scores(samples: np.ndarray) -> np.ndarray:
        return np.zeros((2, len(samples)))

    found = separations(np.ones((6, 4), np.float32), scores, seed=0, device=5)

    assert found is not None
    assert found.tolist() == [0.5, 0.5]
    assert separations(np.ones((1, 4), np.float32), scores, seed=0, device=6) is None


@given(st.integers(1, 300), st.integers(1, 300))
def test_components_never_explain_everything(n_features: int, n_samples: int) -> None:
    numbers = possible_components(n_features, n_samples)

    assert numbers[0] == 0
    assert max(numbers) < max(1, min(n_features, n_samples))
    assert numbers == sorted(set(numbers))


def test_the_distance_has_no_code_and_is_taken_among_equals() -> None:
    wide, distance = Candidate("pca", 8, 0.90), Candidate("mahalanobis", 0, 0.893)
    found = choose([Candidate("pca", 0, 0.6), wide, distance, Candidate("autoencoder", 4, 0.895)])

    assert (found.name, found.code) == ("mahalanobis", 0)
    assert found.reason.endswith("no more than 0.01 apart, so the one without a code is taken")
    assert choose([wide, Candidate("mahalanobis", 0, 0.88)]).name == "pca-8"
    # Neither forgives anything: what they tell apart decides.
    assert choose([Candidate("pca", 0, 0.899), Candidate("mahalanobis", 0, 0.9)]).name == "mahalanobis"
    assert choose([Candidate("pca", 0, 0.9), Candidate("mahalanobis", 0, 0.899)]).name == "pca-0"


def test_pca_takes_the_plane_for_rows_near_a_plane() -> None:
    plane = fit_detector(fleet((200, 200, 200)), DetectorSpec(model="pca"))
    distance = fit_detector(fleet((200, 200, 200)), DetectorSpec())

    assert plane.choice.name == "pca-2"
    assert {one.model for one in plane.choice.candidates} == {"pca"}
    assert (distance.choice.name, distance.choice.candidates) == ("mahalanobis", ())
    assert repr(distance) == "<Detector mahalanobis: 6 features, 3 device(s)>"


@pytest.mark.parametrize("scheme", ["ifca", "fedgroup"])
def test_a_scheme_with_several_models_leaves_no_detector(scheme: str) -> None:
    for model in ("pca", "mahalanobis", "autoencoder"):
        with pytest.raises(SpecError, match="learns its own models, not a detector"):
            DetectorSpec(scheme=scheme, model=model).check()


def test_what_this_version_does_not_do_is_said_with_what_to_use_instead() -> None:
    with pytest.raises(SpecError, match="use mahalanobis"):
        fit_detector(fleet((100,)), DetectorSpec(model="auto"))
    with pytest.raises(SpecError, match="remove anomalous ones"):
        fit_detector(fleet((100,)), DetectorSpec(trim=0.05))
    with pytest.raises(SpecError, match="at most 2000 features"):
        fit_detector({"a": np.zeros((4, 2001))}, DetectorSpec())


def test_an_autoencoder_that_diverges_with_a_given_step_is_an_error() -> None:
    with pytest.raises(ArithmeticError, match="diverged"):
        fit_detector(fleet((100,)), DetectorSpec(model="autoencoder", lr=1e9, rounds=3))


def test_a_step_that_is_too_long_is_shortened_where_none_was_given() -> None:
    rows = {"a": 30.0 * near_a_plane(100), "b": near_a_plane(100)}
    spec = DetectorSpec(model="autoencoder", scaling="none", rounds=5, hidden=(8,), lr=None)
    detector = fit_detector(rows, spec)

    assert "went on with a step of" in detector.trainings[0].notes[0]
    assert np.isfinite(detector.anomaly_score(rows["a"])).all()


def test_without_anything_held_back_the_variance_decides() -> None:
    detector = fit_detector({"a": near_a_plane(100)}, DetectorSpec(model="pca", held_back=0.0))

    assert detector.choice.code == 2
    assert "90% of the variance" in detector.choice.reason
    assert detector.thresholds.calibrated_on == "training samples"
    assert not detector.thresholds.is_guaranteed
