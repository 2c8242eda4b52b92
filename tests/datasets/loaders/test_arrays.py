"""NumPy files: `X` and what is known of each sample; nothing is unpickled."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from tolfl.core.errors import DataError
from tolfl.datasets.loaders import read_table

X = np.arange(6.0).reshape(3, 2)


def write_npz(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_an_archive_has_samples_labels_owners_and_times(tmp_path: Path) -> None:
    path = write_npz(
        tmp_path / "t.npz",
        X=X,
        y=np.array([0, 1, 0]),
        device=np.array(["a", "b", "a"]),
        time=np.array(["2024-01-01", "2024-01-02", "2024-01-03"], "datetime64[D]"),
    )
    raw = read_table(path)

    assert raw.samples.dtype == np.float32
    assert np.array_equal(raw.samples, X)
    assert raw.labels.tolist() == ["0", "1", "0"]
    assert raw.owners is not None
    assert raw.owners.tolist() == ["a", "b", "a"]
    assert raw.times is not None
    assert np.diff(raw.times).tolist() == [86_400, 86_400]
    assert raw.missing is None


def test_arrays_may_have_other_names(tmp_path: Path) -> None:
    path = write_npz(
        tmp_path / "t.npz", X=X, site=np.array([7.0, 8.0, 7.0]), kind=np.array([b"x", b"y", b"x"]), t=X[:, 0]
    )
    raw = read_table(path, "site", "kind", "t")

    assert raw.owners is not None
    assert raw.owners.tolist() == ["7", "8", "7"]
    assert raw.labels.tolist() == ["x", "y", "x"]
    assert raw.times is not None
    assert raw.times.tolist() == [0, 2, 4]


def test_samples_alone_are_typical_and_keep_their_shape(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.zeros((4, 2, 3), np.int16))
    raw = read_table(tmp_path / "t.npy")

    assert raw.samples.shape == (4, 2, 3)
    assert raw.classes == ("typical",)


def test_nan_is_missing(tmp_path: Path) -> None:
    raw = read_table(write_npz(tmp_path / "t.npz", X=np.array([[1, np.nan], [3, 4]])))

    assert raw.missing is not None
    assert raw.missing.tolist() == [[False, True], [False, False]]
    assert raw.samples.tolist() == [[1, 0], [3, 4]]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": X}, "there is no array 'X' for the samples; the arrays are x"),
        ({"X": X, "y": np.zeros(2)}, "array 'y' has shape (2,)"),
        ({"X": X, "y": np.zeros((3, 1))}, "array 'y' has shape (3, 1)"),
        ({"X": X, "y": np.array([0, np.nan, 1])}, "data row 2: column 'y' is empty"),
        ({"X": X, "y": np.zeros(3, complex)}, "array 'y' is complex128"),
        ({"X": X, "y": np.array([b"\xff", b"a", b"b"])}, "array 'y' is |S1"),
        ({"X": X[0]}, "the samples have shape (2,)"),
        ({"X": X[:0]}, "the samples have shape (0, 2)"),
        ({"X": X.astype(complex)}, "the samples are complex128, not numbers"),
        ({"X": X.astype(str)}, "not numbers"),
        ({"X": np.array([[1.0], [np.inf]])}, "data row 2: a value is infinite"),
        ({"X": np.array([[1.0], [1e300]])}, "data row 2: a value is infinite or too large"),
        ({"X": X.astype(object)}, "it holds pickled objects, which are never read"),
        ({"X": X, "y": np.array(["a", None, 1], object)}, "it holds pickled objects"),
        ({}, "there is no array 'X'"),
    ],
)
def test_a_malformed_archive_is_named(tmp_path: Path, arrays: dict[str, object], sentence: str) -> None:
    path = write_npz(tmp_path / "t.npz", **arrays)

    with pytest.raises(DataError) as caught:
        read_table(path)

    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_array_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no array 'site'; the arrays are X"):
        read_table(write_npz(tmp_path / "t.npz", X=X), "site")


@pytest.mark.parametrize("name", ["t.npz", "t.npy"])
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "cannot be read"),
        (b"PK\x03\x04 broken", "cannot be read"),
        (b"\x93NUMPY\x01\x00", "cannot be read"),
        (
            b"\x93NUMPY\x01\x00\x3f\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,9)}\n",
            "cannot be read",
        ),
        (pickle.dumps([[1, 2]]), "it holds pickled objects"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, data: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(data)

    with pytest.raises(DataError, match=sentence):
        read_table(tmp_path / name)
