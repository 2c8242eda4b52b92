"""Tables: numbers, words, truth, times and holes become samples, a mask, owners, labels and seconds."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from tests.datasets.written import csv
from tests.tables.reading import read_table
from tolfl.core.errors import DataFileError
from tolfl.tables import Column, Roles, blocks, settle

SITES = """site,temp,state,is_on,when,class
a,1.5,low,true,2024-01-01 00:00:00,normal
b,,high,false,2024-01-01 00:00:10,attack
a,3,,true,2024-01-01 00:01:00,normal
"""


def test_a_table_becomes_samples_owners_labels_and_times(tmp_path: Path) -> None:
    raw = read_table(csv(tmp_path / "sites.csv", SITES), "site", "class", "when")

    assert raw.name == "sites.csv"
    assert raw.feature_names == ("temp", *Column("state", "words").features, "is_on")
    assert raw.samples.dtype == np.float32
    assert raw.samples[:, [0, -1]].tolist() == [[1.5, 1], [0, 0], [3, 1]]
    assert raw.samples[:, 1:33].sum(axis=1).tolist() == [1, 1, 0]
    assert raw.samples[0, 1 + crc32(b"low") % 32] == 1
    assert raw.samples[0, 33] == crc32(b"low") // 32 % 256
    assert raw.missing is not None
    assert raw.missing[:, 0].tolist() == [False, True, False]
    assert raw.missing[:, 1:34].all(axis=1).tolist() == [False, False, True]
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
        ("a, C;b, in kW\n1;2.5\n", [1, 2.5]),
        ("a, C;b, in kW\n1,0;2,5\n", [1, 2.5]),
        ("a;x,b\n1,2.5\n", [1, 2.5]),
        ("a,b\n1e3,-.5\n", [1000, -0.5]),
    ],
)
@pytest.mark.parametrize("ends", ["csv", "csv.gz"])
def test_the_separator_is_found_out(tmp_path: Path, text: str, values: list[float], ends: str) -> None:
    raw = read_table(csv(tmp_path / f"t.{ends}", text))

    assert raw.samples.tolist() == [values]
    assert len(raw.feature_names) == 2


@pytest.mark.parametrize("hole", ["", "NaN", "nan", "null", "NA", "<NA>", " ", " NA ", "?", "-"])
def test_every_way_to_write_nothing_is_missing(tmp_path: Path, hole: str) -> None:
    raw = read_table(csv(tmp_path / "t.csv", f"a,b\n1,{hole}\n2,7\n"))

    assert raw.missing is not None
    assert raw.missing.tolist() == [[False, True], [False, False]]
    assert raw.samples.tolist() == [[1, 0], [2, 7]]


def test_a_column_without_any_value_is_left_out(tmp_path: Path) -> None:
    raw = read_table(csv(tmp_path / "t.csv", "a,b\n1,\n2,\n"))

    assert raw.schema is not None
    assert raw.schema.left_out == {"b": "every value is missing"}
    assert raw.feature_names == ("a",)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["0", "1"], ("0", "1")),
        (["0.0", "1.0"], ("0.0", "1.0")),
        (["False", "True"], ("False", "True")),
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
        (["9:05", "10:05"], 3600),
        (["31.1.2024 23:59", "01.02.2024 00:00:30"], 90),
        (["31/12/23 23:59:59.5", "1/1/2024"], 0.5),
        (["1/31/2024 11:59 PM", "2/1/2024 12:00 AM"], 60),
        (["2/1/2024", "1/31/2024"], -86_400),
        (["2024/1/31 9:05", "2024-01-31T10:05:00Z"], 3600),
    ],
)
def test_times_become_seconds(tmp_path: Path, times: list[str], gap_s: float) -> None:
    raw = read_table(csv(tmp_path / "t.csv", f"a,t\n1,{times[0]}\n2,{times[1]}\n"), time_column="t")

    assert raw.times is not None
    assert raw.times[1] - raw.times[0] == pytest.approx(gap_s)


def test_types_are_found_from_all_rows_not_from_the_first_ones(tmp_path: Path) -> None:
    # More than one block: whole numbers and nothing at first, then a decimal comma and a word.
    beginning = "a;b\n" + "1234567890;\n" * 200_000
    raw = read_table(csv(tmp_path / "t.csv", beginning + "0,5;seldom\n"))

    assert raw.feature_names == ("a", *Column("b", "words").features)
    assert raw.samples[-1, 0] == 0.5
    assert raw.missing is not None
    assert raw.missing[:, 1].sum() == 200_000


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

    words = (*Column("word", "words").features, *Column("long", "words").features)
    names = ("small", "large", "float", "half", "money", "truth", *words, "digits")
    assert raw.feature_names == names
    plain = [0, 1, 2, 3, 4, 5, len(names) - 1]
    assert raw.samples[:, plain].tolist() == [[1, 2**40, 0.5, 0.5, 1.25, 1, 7], [0, 1, 0, 1, 2.5, 0, 8]]
    assert raw.missing is not None
    missing = [name for name, hole in zip(names, raw.missing[1], strict=True) if hole]
    assert missing == ["small", "float", "truth", *Column("long", "words").features]
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


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_of_blanks_alone_are_no_rows(tmp_path: Path, end: str) -> None:
    raw = read_table(csv(tmp_path / "t.csv", end.join(["a,b", "1,2", "   ", "3, ", " ", ""])))

    assert raw.samples.tolist() == [[1, 2], [3, 0]]


def test_any_number_of_words_will_do(tmp_path: Path) -> None:
    text = "a,b\n" + "".join(f"word{number % 60},{number % 7}.5\n" for number in range(200))
    raw = read_table(csv(tmp_path / "t.csv", text))

    assert raw.samples.shape == (200, 34)
    assert (raw.samples[:, :32].sum(axis=1) == 1).all()


def test_none_is_a_word_among_words_and_missing_among_numbers(tmp_path: Path) -> None:
    raw = read_table(csv(tmp_path / "t.csv", "edge,n\nnone,1\nround,none\nNone,3\n"))

    assert raw.missing is not None
    assert raw.missing[:, [0, 33]].tolist() == [[False, False], [False, True], [True, False]]


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("1.234,5", 1234.5),
        ("1 234,5", 1234.5),
        ("1\u202f234,5", 1234.5),
        ("-0,25", -0.25),
        ("7", 7),
        ("1.234,50 €", 1234.5),
        ("12,5 %", 12.5),
        ("-$7", -7),
        ("1.234,50 EUR", 1234.5),
        ("(1.234,50)", -1234.5),
    ],
)
def test_numbers_of_other_countries(tmp_path: Path, written: str, number: float) -> None:
    raw = read_table(csv(tmp_path / "t.csv", f"a;b\n{written};0,5\n"))

    assert raw.samples.tolist() == [[number, 0.5]]


def test_a_swiss_spreadsheet_groups_by_apostrophes(tmp_path: Path) -> None:
    raw = read_table(csv(tmp_path / "t.csv", "a;b\n1\u2019234.50;0.5\n-12\u2019345.00;1.5\n"))

    assert raw.samples.tolist() == [[1234.5, 0.5], [-12345, 1.5]]


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ('"1,234"', 1234),
        ('"$12,345.5"', 12345.5),
        ('"12,34,567"', 1234567),
        ('"₹12,34,567.50"', 1234567.5),
        ('"Rs. 1,234"', 1234),
        ("CHF 1\u2019234.50", 1234.5),
        ('"(1,234.50)"', -1234.5),
        ('"$ (1,234.50)"', -1234.5),
        ('"($1,234.50)"', -1234.5),
        (" $ -   ", 0),
        ("1\u2019234", 1234),
        ("1 234", 1234),
        ("\u22127.5", -7.5),
    ],
)
def test_numbers_beside_decimal_points(tmp_path: Path, written: str, number: float) -> None:
    raw = read_table(csv(tmp_path / "t.csv", f"a,b\n{written},0.5\n"))

    assert raw.samples.tolist() == [[number, 0.5]]


@pytest.mark.parametrize(
    "time", ["31-Jan-24", "31 January 2024 0:00", '"Jan 31, 2024"', "31/jan/2024:00:00:00", "31.1.2024"]
)
def test_dates_with_names_of_months(tmp_path: Path, time: str) -> None:
    table = csv(tmp_path / "t.csv", f"a,t\n1,{time}\n2,{time}\n")
    raw = read_table(table, time_column="t")

    assert raw.times is not None
    assert raw.times.tolist() == 2 * [np.datetime64("2024-01-31", "s").astype(float)]
    assert settle(blocks(table)).left_out == {"t": "dates or times"}


@pytest.mark.parametrize("time", ["31.02.2024", "13/13/2024", "1/2/2024 25:00", "1/2/2024 13:00 PM", "9:61"])
def test_a_day_or_an_hour_that_is_none_is_no_time(tmp_path: Path, time: str) -> None:
    with pytest.raises(DataFileError, match=r"data row 2: '.*' in column 't' is no time"):
        read_table(csv(tmp_path / "t.csv", f"a,t\n1,1/12/2024\n2,{time}\n"), time_column="t")


def test_how_dates_are_written_is_settled_from_all_rows_and_holds_for_a_row_alone(tmp_path: Path) -> None:
    schema = settle(blocks(csv(tmp_path / "t.csv", "a,t\n1,1/2/2024\n2,1/31/2024\n")), Roles(time="t"))
    rows = schema.rows(next(blocks(csv(tmp_path / "one.csv", "a,t\n1,1/2/2024\n"))))

    assert schema.is_day_first is False
    assert rows.times is not None
    assert rows.times.tolist() == [np.datetime64("2024-01-02", "s").astype(float)]


@pytest.mark.parametrize("price", ["$12.50", "12.50 %", "CHF 12.50"])
def test_a_point_beside_a_currency_tells_what_commas_are(tmp_path: Path, price: str) -> None:
    table = csv(tmp_path / "t.csv", f'price,visitors\n{price},"1,234"\n{price},987\n')

    assert read_table(table).samples.tolist() == [[12.5, 1234], [12.5, 987]]


@pytest.mark.parametrize("word", ["EUR", "Rs232", "$", "%", "()", "(off)", "Franc 5"])
def test_what_only_looks_like_money_is_a_word(tmp_path: Path, word: str) -> None:
    schema = settle(blocks(csv(tmp_path / "t.csv", f"a,b\n1,{word}\n2,other\n")))

    assert [column.kind for column in schema.columns] == ["number", "words"]


def test_thousands_alone_are_read_as_the_decimal_comma_of_their_table_wants(tmp_path: Path) -> None:
    schema = settle(blocks(csv(tmp_path / "t.csv", "a;b\n0,5;987\n1,5;1.234\n")))

    alone = schema.rows(next(blocks(csv(tmp_path / "one.csv", "a;b\n2;1.234\n"))))
    of_another_country = schema.rows(next(blocks(csv(tmp_path / "other.csv", "a,b\n0.5,987.25\n"))))
    assert alone.values.tolist() == [[2, 1234]]
    assert of_another_country.values.tolist() == [[0.5, 987.25]]


def test_times_with_and_without_a_zone_are_read_one_by_one(tmp_path: Path) -> None:
    text = "a,t\n1,2024-01-01 00:00:00\n2,2024-01-01T02:00:00+01:00\n"
    raw = read_table(csv(tmp_path / "t.csv", text), time_column="t")

    assert raw.times is not None
    assert raw.times[1] - raw.times[0] == 3600


def test_names_in_a_numpy_file_are_those_of_the_features(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.ones((2, 2)), names=np.array(["warm", "flow"]), y=np.array(["0", "1"]))
    raw = read_table(tmp_path / "t.npz")

    assert raw.feature_names == ("warm", "flow")
    assert raw.classes == ("0", "1")
