"""A folder with one file per device: the file's name is the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from tests.datasets.written import csv
from tests.tables.reading import read_table
from tolfl.core.errors import DataError
from tolfl.tables import Column


def test_every_file_is_a_device(tmp_path: Path) -> None:
    csv(tmp_path / "site" / "north.csv", "a,b,y\n1,low,0\n2,high,1\n")
    csv(tmp_path / "site" / "south.csv.gz", "y,a,b\n0,0.5,\n")
    pa_parquet.write_table(
        pa.table({"a": pa.array([None], pa.null()), "b": ["mid"], "y": [0]}), tmp_path / "site" / "west.parquet"
    )
    csv(tmp_path / "site" / "README.md", "what this is")
    csv(tmp_path / "site" / ".hidden", "")
    raw = read_table(tmp_path / "site", label_column="y")

    assert raw.name == "site/"
    assert raw.feature_names == ("a", *Column("b", "words").features)
    assert raw.owners is not None
    assert raw.owners.tolist() == ["north", "north", "south", "west"]
    assert raw.samples[:, 0].tolist() == [1, 2, 0.5, 0]
    assert raw.missing is not None
    assert raw.missing[:, :2].tolist() == [[False, False], [False, False], [False, True], [True, False]]
    assert raw.labels.tolist() == ["0", "1", "0", "0"]


def test_a_device_column_has_the_last_word(tmp_path: Path) -> None:
    csv(tmp_path / "monday.csv", "node,a\n7,1\n8,2\n")
    csv(tmp_path / "tuesday.csv", "node,a\n7,3\n")
    raw = read_table(tmp_path, "node")

    assert raw.owners is not None
    assert raw.owners.tolist() == ["7", "8", "7"]


def test_times_of_different_precision_agree(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", "x,t\n1,2024-01-01 00:00:00\n")
    csv(tmp_path / "b.csv", "x,t\n1,2024-01-01 00:00:00.5\n")
    csv(tmp_path / "c.csv", "x,t\n1,2024-01-01\n")
    raw = read_table(tmp_path, time_column="t")

    assert raw.times is not None
    assert (raw.times - raw.times[0]).tolist() == [0, 0.5, 0]


def test_arrays_per_device(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 3)))
    np.savez(tmp_path / "b.npz", X=np.array([[1, 2, np.nan]]))
    raw = read_table(tmp_path)

    assert raw.owners is not None
    assert raw.owners.tolist() == ["a", "a", "b"]
    assert raw.missing is not None
    assert raw.missing.sum() == 1


GOOD = "x,y\n1,2\n"


@pytest.mark.parametrize(
    ("files", "named", "sentence"),
    [
        ({}, "", "there is no file in it"),
        ({"a.csv": GOOD, "b.csv": ""}, "b.csv", "the file is empty"),
        ({"a.csv": GOOD, "b.csv": "x,y\n"}, "b.csv", "no row of data in it; fill it or remove it"),
        ({"a.csv": GOOD, "b.csv": "x,z\n1,2\n"}, "b.csv", "(different: 'y', 'z')"),
        ({"a.csv": GOOD, "a.csv.gz": GOOD}, "a.csv.gz", "the same device as a.csv"),
        ({"a.csv": GOOD, "b.pkl": ""}, "b.pkl", "pickled files are never read"),
        ({"a.csv": GOOD, "b.xlsx": ""}, "b.xlsx", "unknown kind of file"),
        ({"a.csv": GOOD, "b.npy": ""}, "b.npy", "arrays and tables are mixed"),
        ({"a.csv": GOOD, "b/c.csv": GOOD}, "b", "a folder inside the folder"),
        ({"a.csv": GOOD + "3,4\n", "b.csv": "x,y\n5,6\n7,abc\n"}, "b.csv", "data row 2: 'abc' is text"),
    ],
)
def test_a_file_that_does_not_fit_is_named(tmp_path: Path, files: dict[str, str], named: str, sentence: str) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    for name, text in files.items():
        csv(folder / name, text)

    with pytest.raises(DataError) as caught:
        read_table(folder)

    assert sentence in str(caught.value)
    assert str(folder / named) in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"X": np.ones((2, 4))}, "its columns are not those of"),
        ({"X": np.ones((2, 3)), "time": np.ones(2)}, "its columns are not those of"),
        ({"X": np.ones((0, 3))}, "the samples have shape (0, 3)"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, arrays: dict[str, np.ndarray], sentence: str) -> None:
    np.savez(tmp_path / "a.npz", X=np.ones((2, 3)))
    np.savez(tmp_path / "b.npz", **arrays)  # type: ignore[arg-type]

    with pytest.raises(DataError) as caught:
        read_table(tmp_path)

    assert sentence in str(caught.value)
    assert "b.npz" in str(caught.value)
