"""What a table may not hold: one sentence with the file, the column or row, and what to do."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from tests.datasets.loaders.written import csv
from tolfl.core.errors import DataError, TolFLError
from tolfl.datasets.loaders import read_table


def sentence_about(path: Path, *roles: str) -> str:
    with pytest.raises(TolFLError) as caught:
        read_table(path, *roles)
    said = str(caught.value)
    assert isinstance(caught.value, DataError)
    assert path.name in said
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("a,b", "no row of data"),
        ("a,b\n", "no row of data"),
        ("a,b\n1,2\n3\n", "data row 2 has 1 values, the header 2; correct the row"),
        ("a,b\n1,2\n3,4,5\n", "data row 2 has 3 values"),
        ("a,b,a\n1,2,3\n", "there are two columns 'a'"),
        ("a, a\n1,2\n", "there are two columns 'a'"),
        (",a\n0,1\n", "column 1 has no name"),
        ("1,2\n3,4\n", "the first line ('1,2') has numbers where names of columns are needed"),
        ("a,b\n1,1\n2,2\n3,abc\n4,4\n", "data row 3: 'abc' is text, but column 'b' holds numbers"),
        ("a,b\n1,1\n2,\n3,?\n", "data row 3: '?' is text, but column 'b' holds numbers"),
        ('a,b\nx,1\n"y,2\nz,3\n"w",4\n', "quotation mark"),
        (
            'a,b\n1,x\n2,"y\n3,z\n',
            "data row 2: the value in column 2 goes over several lines; is a quotation mark missing?",
        ),
        ("a,b\n1,2\n2,inf\n", "data row 2: the value in column 'b' is infinite"),
        ("a,b\n1,2\n2,1e300\n", "data row 2: the value in column 'b' is 1e+300, too large for single precision"),
        ("a,b\n1,2024-01-01\n", "column 'b' holds dates or times; name it as the time column"),
        ("a,b\n1,12:30:00\n", "column 'b' holds dates or times"),
        ("a\n" + "".join(f"word{number}\n" for number in range(51)), "words with 51 different values, such as 'word0'"),
    ],
)
@pytest.mark.parametrize("ends", ["csv", "csv.gz"])
def test_a_malformed_csv_file(tmp_path: Path, text: str, sentence: str, ends: str) -> None:
    assert sentence in sentence_about(csv(tmp_path / f"t.{ends}", text))


@pytest.mark.parametrize(
    ("roles", "sentence"),
    [
        (("node", "", ""), "there is no column 'node' for the device; the columns are a, t, y"),
        (("", "class", ""), "there is no column 'class' for the label"),
        (("", "", "when"), "there is no column 'when' for the time"),
        (("y", "", ""), "data row 2: column 'y' is empty"),
        (("", "y", ""), "data row 2: column 'y' is empty"),
        (("", "", "t"), "data row 2: column 't' is empty"),
        (("", "", "a"), "data row 1: 'x' in column 'a' is no time"),
    ],
)
def test_columns_with_a_role_must_be_there_and_full(tmp_path: Path, roles: tuple[str, ...], sentence: str) -> None:
    path = csv(tmp_path / "t.csv", "a,t,y\nx,5,0\nz,,\n")

    assert sentence in sentence_about(path, *roles)


def test_a_table_needs_a_feature(tmp_path: Path) -> None:
    assert "no column is left" in sentence_about(csv(tmp_path / "t.csv", "y\n1\n"), "", "y")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("a,b\nü,1\n".encode("latin-1"), "column 'a' holds text that is not UTF-8"),
        ("ü,b\n1,1\n".encode("latin-1"), "not text in UTF-8"),
        (b"a,b\n1,2\n\xff,2,3\n", "data row 2 has 3 values"),
        ("a,b\n1,2\n".encode("utf-16"), "not text in UTF-8"),
        (gzip.compress(b"a,b\n1,2\n" * 9000, mtime=0)[:-20], "damaged or cut short"),
        (b"\x1f\x8bnot a gzip", "damaged or cut short"),
        (pickle.dumps({"a": [1, 2]}), "not text in UTF-8"),
    ],
)
def test_a_csv_file_that_is_none(tmp_path: Path, data: bytes, sentence: str) -> None:
    (tmp_path / "t.csv").write_bytes(data)

    assert sentence in sentence_about(tmp_path / "t.csv")


@pytest.mark.parametrize("ends", ["pkl", "pickle", "pt", "pth", "joblib"])
def test_a_pickle_is_never_read(tmp_path: Path, ends: str) -> None:
    path = tmp_path / f"t.{ends}"
    path.write_bytes(pickle.dumps([1, 2]))

    assert "pickled files are never read" in sentence_about(path)


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    assert "unknown kind of file; use one of .csv.gz" in sentence_about(csv(tmp_path / "t.xlsx", "a\n1\n"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file or folder" in sentence_about(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pa.array([[1, 2]]), "column 'b' holds list<"),
        (pa.array([b"\xff"]), "column 'b' holds text that is not UTF-8"),
        (pa.array([0], pa.timestamp("s")), "column 'b' holds dates or times"),
        (pa.array([0], pa.duration("s")), "column 'b' holds dates or times"),
        (pa.array([], pa.int8()), "no row of data"),
    ],
)
def test_a_parquet_column_that_is_no_feature(tmp_path: Path, column: pa.Array, sentence: str) -> None:
    ones = pa.array([1] * len(column))
    pa_parquet.write_table(pa.table({"a": ones, "b": column}), tmp_path / "t.parquet")

    assert sentence in sentence_about(tmp_path / "t.parquet")


@pytest.mark.parametrize("column", [pa.array([[1, 2]]), pa.array([{"x": 1}])])
@pytest.mark.parametrize("roles", [("b", "", ""), ("", "", "b")])
def test_a_list_is_neither_a_name_nor_a_time(tmp_path: Path, column: pa.Array, roles: tuple[str, ...]) -> None:
    pa_parquet.write_table(pa.table({"a": [1], "b": column}), tmp_path / "t.parquet")

    assert "column 'b' holds" in sentence_about(tmp_path / "t.parquet", *roles)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\0" * 50 + b"PAR1", pickle.dumps([1])])
def test_a_damaged_parquet_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.parquet").write_bytes(data)

    assert "cannot be read as Parquet" in sentence_about(tmp_path / "t.parquet")
