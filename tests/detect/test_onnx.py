"""The exported graph says what the detector says, whatever the model."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.detect.rows import fleet, near_a_plane, off_the_plane
from tolfl.detect import Detector, DetectorSpec, Features, fit_detector
from tolfl.detect.export import largest_difference, to_onnx
from tolfl.detect.reconstruction import Dense, Reconstruction

ROWS = np.concatenate([near_a_plane(300, seed=5), off_the_plane(300, seed=6)])
SMALL = {"hidden": (8,), "code": 2, "rounds": 5}


def detector_of(model: str, **more: object) -> Detector:
    settings = SMALL if model == "autoencoder" else {}
    spec = DetectorSpec(**{"model": model, **settings, **more})  # type: ignore[arg-type]
    return fit_detector(fleet((200, 200)), spec)


@pytest.fixture(scope="module", params=["cells", "pca", "mahalanobis", "autoencoder"])
def detector(request: pytest.FixtureRequest) -> Detector:
    return detector_of(request.param)


def test_scores_agree_to_six_digits(detector: Detector) -> None:
    assert largest_difference(detector, to_onnx(detector), ROWS) < 1e-6
    assert largest_difference(detector, to_onnx(detector)) < 1e-6


def test_a_reading_that_moves_in_its_last_digits_is_not_rounded_away() -> None:
    # 101,325 Pa that moves by 0.01: single precision has steps of 0.008 there.
    rng = np.random.default_rng(0)
    rows = 101_325.0 + 0.01 * rng.normal(size=(500, 1)) @ np.ones((1, 3)) + 0.001 * rng.normal(size=(500, 3))
    detector = fit_detector({"a": rows}, DetectorSpec(model="pca", n_components=1))

    assert largest_difference(detector, to_onnx(detector), rows) < 1e-6


@pytest.mark.parametrize("n_components", [0, 1, 5])
def test_any_number_of_components_is_exported(n_components: int) -> None:
    detector = detector_of("pca", n_components=n_components)

    assert largest_difference(detector, to_onnx(detector), ROWS) < 1e-6


def test_columns_of_words_and_missing_values_are_exported() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 9, 400).astype(float)
    rows = np.column_stack([near_a_plane(400), words, np.full(400, 3.0)])
    names = [*"abcdef", "mode (rarity)", "constant"]
    detector = fit_detector({"a": rows[:200], "b": rows[200:]}, DetectorSpec(), Features.named(names))
    new = rows[:50] + 0.3
    new[:, 6] = rng.integers(0, 256, 50)
    new[::3, 2] = new[::4, 6] = np.nan

    assert largest_difference(detector, to_onnx(detector), new) < 1e-6


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_any_chain_of_layers_is_exported(n_layers: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = _base()
    n = base.features.n
    sizes = [n, *[width] * (n_layers - 1), n]
    layers = tuple(
        Dense(rng.normal(size=(b, a)).astype(np.float32), rng.normal(size=b).astype(np.float32), bool(rng.integers(2)))
        for a, b in pairwise(sizes)
    )
    assert isinstance(base.model, Reconstruction)
    detector = replace(base, model=replace(base.model, layers=layers))

    assert largest_difference(detector, to_onnx(detector), ROWS[:50]) < 1e-6


_bases: list[Detector] = []


def _base() -> Detector:
    if not _bases:
        _bases.append(detector_of("pca"))
    return _bases[0]


def test_a_graph_can_be_checked_and_names_what_it_takes(detector: Detector) -> None:
    graph = onnx.load_from_string(to_onnx(detector))
    stored = {entry.key: entry.value for entry in graph.metadata_props}

    onnx.checker.check_model(graph, full_check=True)
    assert json.loads(stored["tolfl"])["features"] == list(detector.features.names)
    assert to_onnx(detector) == to_onnx(detector)
