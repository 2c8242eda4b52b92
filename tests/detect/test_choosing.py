"""`auto`: made-up samples, the smallest of the best codes, and reasons in words and numbers."""

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


def test_separation_is_the_mean_over_samples_of_each_devices_auroc() -> None:
    held_back = {0: np.zeros((2, 4), np.float32), 5: np.ones((6, 4), np.float32), 6: np.ones((1, 4), np.float32)}

    def scores(samples: np.ndarray) -> np.ndarray:
        return np.zeros((2, len(samples)))

    assert separations(held_back, scores, 0).tolist() == [0.5, 0.5]  # type: ignore[union-attr]
    assert separations({6: held_back[6]}, scores, 0) is None


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


def test_pca_takes_the_plane_for_rows_near_a_plane_and_auto_the_distance() -> None:
    rows = fleet((200, 200, 200))
    plane, detector = (fit_detector(rows, DetectorSpec(model=model, rounds=20)) for model in ("pca", "auto"))
    by_name = {one.name: one.separation or 0.0 for one in detector.choice.candidates}

    assert plane.choice.name == "pca-2"
    assert {one.model for one in plane.choice.candidates} == {"pca"}
    assert {one.model for one in detector.choice.candidates} == {"pca", "mahalanobis", "autoencoder"}
    assert detector.choice.name == "mahalanobis"
    assert by_name["mahalanobis"] >= max(by_name.values()) - 0.01
    assert repr(detector) == "<Detector mahalanobis: 6 features, 3 device(s)>"


def test_auto_takes_pca_where_a_component_is_noise_that_the_distance_minds() -> None:
    def rows(seed: int) -> np.ndarray:
        # Two pairs go together; what is large, and what is tiny, has nothing to do with anything.
        rng = np.random.default_rng(seed)
        a, b = rng.normal(size=(2, 600))
        pairs = np.column_stack([a, b, a, b]) + 0.3 * rng.normal(size=(600, 4))
        return np.column_stack([pairs, 0.02 * rng.standard_t(2, size=(600, 12))])

    found = fit_detector({"a": rows(0), "b": rows(1)}, DetectorSpec(rounds=2, scaling="none")).choice

    assert found.model == "pca", found


def test_auto_takes_the_autoencoder_where_no_plane_fits() -> None:
    def on_a_curve(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        t = rng.uniform(0, 2 * np.pi, 1500)
        rows = np.column_stack([np.cos(t), np.sin(t), np.cos(2 * t), np.sin(2 * t)])
        return rows + 0.02 * rng.normal(size=rows.shape)

    spec = DetectorSpec(hidden=(32,), code=2, dropout=0.0, lr=0.1, rounds=60, scaling="standard")
    found = fit_detector({"a": on_a_curve(0), "b": on_a_curve(1)}, spec).choice

    assert found.model == "autoencoder", found


@pytest.mark.parametrize("scheme", ["ifca", "fedgroup"])
def test_a_scheme_with_several_models_leaves_the_autoencoder(scheme: str) -> None:
    spec = DetectorSpec(scheme=scheme, clusters=2, hidden=(4,), code=2, rounds=3)
    detector = fit_detector(fleet((50, 50, 50, 50)), spec)

    assert detector.choice.model == "autoencoder"
    assert f"scheme {scheme} has several models" in detector.choice.reason
    for model in ("pca", "mahalanobis"):
        with pytest.raises(SpecError, match=f"{model} is one model for everybody"):
            DetectorSpec(scheme=scheme, model=model).check()


def test_a_diverging_autoencoder_is_left_out_with_its_reason() -> None:
    detector = fit_detector(fleet((100,)), DetectorSpec(lr=1e9, rounds=3))

    assert detector.choice.model != "autoencoder"
    assert "diverged" in detector.choice.candidates[-1].note


def test_a_step_that_is_too_long_is_shortened_where_none_was_given() -> None:
    rows = {"a": 30.0 * near_a_plane(100)}
    detector = fit_detector(rows, DetectorSpec(model="autoencoder", scaling="none", rounds=3, hidden=(8,), lr=None))

    assert "started again with a step of" in detector.trainings[0].notes[0]


def test_without_anything_held_back_auto_takes_what_needs_no_choice() -> None:
    found = fit_detector({"a": near_a_plane(100)}, DetectorSpec(held_back=0.0, rounds=1)).choice

    assert (found.name, found.candidates) == ("mahalanobis", ())
    assert "nothing to compare models on" in found.reason


def test_without_anything_held_back_the_variance_decides() -> None:
    detector = fit_detector({"a": near_a_plane(100)}, DetectorSpec(model="pca", held_back=0.0))

    assert detector.choice.code == 2
    assert "90% of the variance" in detector.choice.reason
    assert detector.thresholds.calibrated_on == "training samples"
    assert not detector.thresholds.is_guaranteed
