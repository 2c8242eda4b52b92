"""What a table may not hold: one sentence with the file, the column or row, and what to do."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from tests.datasets.written import csv
from tests.tables.reading import read_table
from tolfl.core.errors import DataError, TolFLError


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
        ("a,b\n1,2\n3\n", "data row 2: 1 values, the header has 2; correct the row"),
        ("a,b\n1,2\n3,4,5\n", "data row 2: 3 values"),
        ("a,b,a\n1,2,3\n", "there are two columns 'a'"),
        ("a, a\n1,2\n", "there are two columns 'a'"),
        (",a\n0,1\n", "column 1 has no name"),
        ("1,2\n3,4\n", "the first line ('1,2') has numbers where names of columns are needed"),
        ("a,b\n1,1\n2,2\n3,abc\n4,4\n", "data row 3: 'abc' is text, but column 'b' holds numbers"),
        ("a,b\n1,1\na,b\n2,2\n", "data row 2: the header is repeated here"),
        ('a,b\nx,1\n"y,2\nz,3\n"w",4\n', "quotation mark"),
        (
            'a,b\n1,x\n2,"y\n3,z\n',
            "data row 2: a quotation mark is not closed",
        ),
        ('a,b\n1,x\n2,"y', "data row 2: a quotation mark is not closed"),
        ("a,b\n1,2\n2,inf\n", "data row 2: the value in column 'b' is infinite"),
        ("a,b\n1,2\n2,1e300\n", "data row 2: the value in column 'b' is 1e+300, too large for single precision"),
        ("a,b\nx,2024-01-01\ny,2024-01-02\n", "only words are there; a detector needs at least one column of numbers"),
        ("b\n2024-01-01\n", "no column is left to learn from (b: dates or times)"),
        (",".join(f"c{number}" for number in range(100_000)) + "\n", "100000 columns; a detector takes at most 10000"),
    ],
)
@pytest.mark.parametrize("ends", ["csv", "csv.gz"])
def test_a_malformed_csv_file(tmp_path: Path, text: str, sentence: str, ends: str) -> None:
    assert sentence in sentence_about(csv(tmp_path / f"t.{ends}", text))


@pytest.mark.parametrize(
    ("roles", "sentence"),
    [
        (("node", "", ""), "there is no column 'node' for the device; the columns are a, t, y, n"),
        (("", "class", ""), "there is no column 'class' for the label"),
        (("", "", "when"), "there is no column 'when' for the time"),
        (("y", "", ""), "data row 2: column 'y' is empty"),
        (("", "y", ""), "data row 2: column 'y' is empty"),
        (("", "", "t"), "data row 2: column 't' is empty"),
        (("", "", "a"), "data row 1: 'x' in column 'a' is no time"),
    ],
)
def test_columns_with_a_role_must_be_there_and_full(tmp_path: Path, roles: tuple[str, ...], sentence: str) -> None:
    path = csv(tmp_path / "t.csv", "a,t,y,n\nx,5,0,1\nz,,,2\n")

    assert sentence in sentence_about(path, *roles)


def test_a_table_needs_a_feature(tmp_path: Path) -> None:
    assert "no column is left" in sentence_about(csv(tmp_path / "t.csv", "y\n1\n"), "", "y")


def packed(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("a,b\nü,1\n".encode("latin-1"), "not text in UTF-8 (byte 0xfc); save it in UTF-8, or name its encoding"),
        ("ü,b\n1,1\n".encode("latin-1"), "not text in UTF-8"),
        ("ü,b\n1,1\n".encode("utf-16-le"), "this looks like UTF-16; name its encoding: --encoding utf-16-le"),
        ("ü,b\n1,1\n".encode("utf-16-be"), "--encoding utf-16-be"),
        (b"a,b\n1,2\n\xff,2,3\n", "not text in UTF-8"),
        (gzip.compress(b"a,b\n1,2\n" * 9000, mtime=0)[:-20], "check that it is not damaged"),
        (b"\x1f\x8bnot a gzip", "check that it is not damaged"),
        (pickle.dumps({"a": [1, 2]}), "this is no table that can be read"),
        (b'[{"a": 1}]', "this is one JSON array"),
        (b"a,b\r1,2\r", "its lines end in CR alone"),
        (packed({"xl/workbook.xml": "<x/>"}), "an archive or a workbook (with xl/workbook.xml); unpack it, or save"),
        (b'{"a": 1}\nnothing\n', "data row 2: no JSON object"),
        (b'{\n  "a": 1\n}\n', "data row 1: no JSON object"),
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


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file or folder" in sentence_about(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([[1, 2]]), "it holds list<"),
        (pa.array([b"\xff"]), "it holds binary"),
        (pa.array([0], pa.timestamp("s")), "dates or times"),
        (pa.array([0], pa.duration("s")), "dates or times"),
    ],
)
def test_a_parquet_column_that_is_no_feature_is_left_out(tmp_path: Path, column: pa.Array, why: str) -> None:
    pa_parquet.write_table(pa.table({"a": [1], "b": column}), tmp_path / "t.parquet")
    raw = read_table(tmp_path / "t.parquet")

    assert raw.feature_names == ("a",)
    assert raw.schema is not None
    assert raw.schema.left_out["b"].startswith(why)


def test_a_parquet_file_without_a_row(tmp_path: Path) -> None:
    pa_parquet.write_table(pa.table({"a": pa.array([], pa.int8())}), tmp_path / "t.parquet")

    assert "no row of data" in sentence_about(tmp_path / "t.parquet")


@pytest.mark.parametrize("data", [b"PAR1", b"PAR1" + b"\0" * 50 + b"PAR1"])
def test_a_damaged_parquet_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.parquet").write_bytes(data)

    assert "check that it is not damaged" in sentence_about(tmp_path / "t.parquet")
