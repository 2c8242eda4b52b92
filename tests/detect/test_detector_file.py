"""Saved detectors: one file that comes back as it was, or is refused with one sentence."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.detect.rows import fleet, near_a_plane, off_the_plane
from tolfl.core.errors import RunDirectoryError
from tolfl.detect import Detector, DetectorFileError, DetectorSpec, fit_detector
from tolfl.detect.detector import with_digest

SMALL = {"hidden": (8,), "code": 2, "rounds": 3}
ROWS = np.concatenate([near_a_plane(40, seed=77), off_the_plane(10)])


@cache
def fitted(model: str, fail: str = "", seed: int = 0) -> Detector:
    spec = DetectorSpec(model=model, fail=fail, clusters=2, seed=seed, **SMALL)  # type: ignore[arg-type]
    return fit_detector(fleet((60, 40, 50, 30)), spec)


@pytest.mark.parametrize(
    ("model", "fail"),
    [("cells", ""), ("pca", ""), ("mahalanobis", "server@2/chain"), ("autoencoder", "device:1@1")],
    ids=["cells", "pca", "mahalanobis", "autoencoder"],
)
def test_a_detector_comes_back_as_it_was(model: str, fail: str, tmp_path: Path) -> None:
    detector = fitted(model, fail)
    if model == "cells":
        detector = detector.with_own_cells({"new/one": near_a_plane(20, seed=5)})
    back = Detector.load(detector.save(tmp_path / "one.tolfl"))

    assert back.anomaly_score(ROWS).tolist() == detector.anomaly_score(ROWS).tolist()
    assert back.p_values(ROWS).tolist() == detector.p_values(ROWS).tolist()
    assert back.explain(ROWS[0]) == detector.explain(ROWS[0])
    assert (back.spec, back.features, back.model.name) == (detector.spec, detector.features, detector.model.name)
    assert (back.thresholds, back.trainings) == (detector.thresholds, detector.trainings)
    assert back.to_bytes() == detector.to_bytes()


def test_a_file_says_whose_rows_are_inside_and_what_failed(tmp_path: Path) -> None:
    back = Detector.load(fitted("pca", "server@2/chain").save(tmp_path / "one.tolfl"))
    training = back.trainings[0]

    assert training.survivors == ("site-1", "site-2", "site-3")
    assert [(one.name, one.n_trained, one.n_held_back) for one in training.devices][:2] == [
        ("site-0", 48, 12),
        ("site-1", 32, 8),
    ]
    assert [(one.round, one.device, one.what) for one in training.events] == [
        (2, "site-0", "lost; last heard of in statistics 0")
    ]
    assert [one.rounds for one in training.devices] == [2, 4, 4, 4]
    assert back.spec.fail == ""


@settings(max_examples=300)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_loads_identically(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = fitted("pca").to_bytes()
    header = int.from_bytes(whole[:8], "little") + 8
    if data.draw(st.booleans()):
        # The header is short beside the arrays, and more can go wrong in it.
        place = data.draw(st.one_of(st.integers(0, header - 1), st.integers(0, len(whole) - 1)))
        damaged = bytearray(whole)
        damaged[place] ^= data.draw(st.integers(1, 255))
    else:
        damaged = bytearray(whole[: data.draw(st.integers(0, len(whole) - 1))])
    path = tmp_path_factory.mktemp("damaged") / "one.tolfl"
    path.write_bytes(damaged)
    try:
        back = Detector.load(path)
    except DetectorFileError as error:
        assert str(path) in str(error)  # noqa: PT017  (either way is in order)
    else:
        assert back.to_bytes() == whole


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_files_that_are_no_detectors_are_named(tmp_path: Path) -> None:
    foreign = safetensors.numpy.save({"a": np.zeros(3)})
    altered = with_digest(b'{"format":2}', {"a": np.zeros(1)}).replace(b"format", b"farmot")

    for path, problem in [
        (tmp_path / "nowhere.tolfl", "there is no such file"),
        (tmp_path, "is a folder; name the file in it"),
        (written(tmp_path / "foreign.safetensors", foreign), "is no detector: save one"),
        (written(tmp_path / "text.tolfl", b"hello, this is no detector at all"), "is no detector, or is damaged"),
        (written(tmp_path / "altered.tolfl", altered), "its digest is wrong"),
    ]:
        with pytest.raises(DetectorFileError, match=problem):
            Detector.load(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"format":3}', "has format 3, .* update tolfl"),
        (b'{"format":1}', r"was saved by an older tolfl \(format 1\); fit it again"),
        (b'{"format":2}', "does not hold a valid detector"),
    ],
    ids=["later", "earlier", "without-sense"],
)
def test_a_file_of_another_version_or_without_sense_is_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(DetectorFileError, match=problem):
        Detector.load(written(tmp_path / "one.tolfl", with_digest(content, {"a": np.zeros(1)})))


def test_arrays_that_do_not_fit_the_names_are_refused(tmp_path: Path) -> None:
    from dataclasses import replace

    from tolfl.detect import Features

    detector = replace(fitted("pca"), features=Features.named(["a", "b"]))
    with pytest.raises(DetectorFileError, match="2 features have names"):
        Detector.load(detector.save(tmp_path / "one.tolfl"))


def test_a_file_that_cannot_be_written_is_an_error_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        fitted("pca").save(tmp_path / "file" / "one.tolfl")
