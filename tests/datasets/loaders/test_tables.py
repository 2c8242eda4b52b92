"""Tables: numbers, words, truth, times and holes become samples, a mask, owners, labels and seconds."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from tests.datasets.loaders.written import csv
from tolfl.datasets.loaders import read_table

SITES = """site,temp,state,is_on,when,class
a,1.5,low,true,2024-01-01 00:00:00,normal
b,,high,false,2024-01-01 00:00:10,attack
a,3,,true,2024-01-01 00:01:00,normal
"""


def test_a_table_becomes_samples_owners_labels_and_times(tmp_path: Path) -> None:
    raw = read_table(csv(tmp_path / "sites.csv", SITES), "site", "class", "when")

    assert raw.name == "sites.csv"
    assert raw.feature_names == ("temp", "state=high", "state=low", "is_on")
    assert raw.samples.dtype == np.float32
    assert raw.samples.tolist() == [[1.5, 0, 1, 1], [0, 1, 0, 0], [3, 0, 0, 1]]
    assert raw.missing is not None
    assert raw.missing.tolist() == [[False] * 4, [True, False, False, False], [False, True, True, False]]
    assert raw.owners is not None
    assert raw.owners.tolist() == ["a", "b", "a"]
    assert raw.labels.tolist() == ["normal", "attack", "normal"]
    assert raw.times is not None
    assert (raw.times - raw.times[0]).tolist() == [0, 10, 60]
    assert raw.times[0] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()
    assert raw.is_test is None


def test_without_a_label_column_all_rows_are_typical_and_nothing_is_missing(tmp_path: Path) -> None:
    raw = read_table(csv(tmp_path / "t.csv", "a,b\n1,2\n3,4\n"))

    assert raw.classes == ("typical",)
    assert (raw.missing, raw.owners, raw.times) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a,b\n1,2.5\n", [1, 2.5]),
        ("a;b\n1;2.5\n", [1, 2.5]),
        ("a;b\n1;2,5\n", [1, 2.5]),
        ("a\tb\n1\t2.5\n", [1, 2.5]),
        ("\ufeffa,b\r\n1,2.5\r\n", [1, 2.5]),
        ("\n a , b \n 1 , 2.5 \n\n", [1, 2.5]),
        ('"a","b"\n"1","2.5"\n', [1, 2.5]),
        ('"a;x";b\n1;2.5\n', [1, 2.5]),
        ("a,b\n1e3,-.5\n", [1000, -0.5]),
    ],
)
@pytest.mark.parametrize("ends", ["csv", "csv.gz"])
def test_the_separator_is_found_out(tmp_path: Path, text: str, values: list[float], ends: str) -> None:
    raw = read_table(csv(tmp_path / f"t.{ends}", text))

    assert raw.samples.tolist() == [values]
    assert len(raw.feature_names) == 2


@pytest.mark.parametrize("hole", ["", "NaN", "nan", "null", "NA", " "])
def test_every_way_to_write_nothing_is_missing(tmp_path: Path, hole: str) -> None:
    raw = read_table(csv(tmp_path / "t.csv", f"a,b\n1,{hole}\n2,7\n"))

    assert raw.missing is not None
    assert raw.missing.tolist() == [[False, True], [False, False]]
    assert raw.samples.tolist() == [[1, 0], [2, 7]]


def test_a_column_without_any_value_is_missing_throughout(tmp_path: Path) -> None:
    raw = read_table(csv(tmp_path / "t.csv", "a,b\n1,\n2,\n"))

    assert raw.missing is not None
    assert raw.missing[:, 1].all()


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["0", "1"], ("0", "1")),
        (["0.0", "1.0"], ("0", "1")),
        (["False", "True"], ("false", "true")),
        (["normal", " Attack "], ("Attack", "normal")),
        (["2", "10"], ("2", "10")),
        (["0.5", "1"], ("0.5", "1")),
    ],
)
def test_labels_are_names(tmp_path: Path, labels: list[str], classes: tuple[str, ...]) -> None:
    text = "a,y\n" + "".join(f"1,{label}\n" for label in labels)

    assert set(read_table(csv(tmp_path / "t.csv", text), label_column="y").classes) == set(classes)


@pytest.mark.parametrize(
    ("times", "gap_s"),
    [
        (["5", "7.5"], 2.5),
        (["2024-02-28", "2024-02-29"], 86_400),
        (["2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z"], 3600),
        (["2024-01-01 00:00:00.25", "2024-01-01 00:00:01"], 0.75),
        (["10:00:00", "10:00:09"], 9),
    ],
)
def test_times_become_seconds(tmp_path: Path, times: list[str], gap_s: float) -> None:
    raw = read_table(csv(tmp_path / "t.csv", f"a,t\n1,{times[0]}\n2,{times[1]}\n"), time_column="t")

    assert raw.times is not None
    assert raw.times[1] - raw.times[0] == pytest.approx(gap_s)


def test_types_are_found_from_all_rows_not_from_the_first_ones(tmp_path: Path) -> None:
    # More than one block of 8 MB: whole numbers and nothing at first, then a fraction and a word.
    beginning = "a,b\n" + "1234567890,\n" * 800_000
    raw = read_table(csv(tmp_path / "t.csv", beginning + "0.5,seldom\n"))

    assert raw.feature_names == ("a", "b=seldom")
    assert raw.samples[-1].tolist() == [0.5, 1]
    assert raw.missing is not None
    assert raw.missing[:, 1].sum() == 800_000


def write_parquet(path: Path, columns: dict[str, object]) -> Path:
    pa_parquet.write_table(pa.table(columns), path)
    return path


def test_parquet_columns_of_every_kind(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "t.parquet",
        {
            "small": pa.array([1, None], pa.int8()),
            "large": pa.array([2**40, 1], pa.uint64()),
            "float": pa.array([0.5, float("nan")], pa.float32()),
            "half": pa.array(np.array([0.5, 1], np.float16)),
            "money": pa.array([Decimal("1.25"), Decimal("2.50")]),
            "truth": pa.array([True, None]),
            "word": pa.array(["x", "y"]).dictionary_encode(),
            "long": pa.array(["u", None], pa.large_string()),
            "digits": pa.array(["7", "8"]),
            "__index_level_0__": pa.array([10, 20]),
            "when": pa.array([dt.timedelta(seconds=1), dt.timedelta(seconds=3)]),
            "node": pa.array([3.0, 4.0]),
        },
    )
    raw = read_table(path, "node", "", "when")

    names = ("small", "large", "float", "half", "money", "truth", "word=x", "word=y", "long=u", "digits")
    assert raw.feature_names == names
    assert raw.samples.tolist() == [[1, 2**40, 0.5, 0.5, 1.25, 1, 1, 0, 1, 7], [0, 1, 0, 1, 2.5, 0, 0, 1, 0, 8]]
    assert raw.missing is not None
    assert [name for name, hole in zip(names, raw.missing[1], strict=True) if hole] == [
        "small",
        "float",
        "truth",
        "long=u",
    ]
    assert raw.owners is not None
    assert raw.owners.tolist() == ["3", "4"]
    assert raw.times is not None
    assert raw.times.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("times", "gap_s"),
    [
        (pa.array(["2024-01-01 00:00:00", "2024-01-01 00:00:30"]), 30),
        (pa.array(["2024-01-01T00:00:00+00:00", "2024-01-01T02:00:00+02:00"]), 0),
        (pa.array(["1", "2.5"]), 1.5),
        (pa.array([0, 1500], pa.timestamp("ms", "UTC")), 1.5),
        (pa.array([0, 1_500_000_000], pa.timestamp("ns")), 1.5),
        (pa.array([0, 86_400_000], pa.date64()), 86_400),
        (pa.array([0, 10**9], pa.time64("ns")), 1),
        (pa.array([0, 7], pa.time32("s")), 7),
    ],
)
def test_parquet_times_of_every_kind(tmp_path: Path, times: object, gap_s: float) -> None:
    raw = read_table(write_parquet(tmp_path / "t.parquet", {"a": pa.array([1, 2]), "t": times}), time_column="t")

    assert raw.times is not None
    assert raw.times[1] - raw.times[0] == pytest.approx(gap_s)


def test_fifty_words_are_categories(tmp_path: Path) -> None:
    text = "a\n" + "".join(f"word{number}\n" for number in range(50))

    assert (
        read_table(csv(tmp_path / "t.csv", text)).samples.tolist()
        == np.eye(50)[np.argsort(np.argsort([f"word{number}" for number in range(50)]))].tolist()
    )
