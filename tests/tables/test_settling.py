"""A schema is settled from all rows: what is learned from, and what looks like an identifier, a counter or a clock."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from tolfl.core.errors import DataError
from tolfl.tables import Roles, Schema, blocks_of, settle
from tolfl.tables.schema import note_of

N = 200
RNG = np.random.default_rng(0)
TABLE = {
    "serial": np.arange(6000, 6000 + N),
    "uuid": [f"{value:08x}" for value in RNG.integers(0, 2**32, N)],
    "odometer": np.cumsum(RNG.random(N)),
    "clock": 1.7e9 + np.arange(N) * 0.5,
    "temp": RNG.normal(size=N),
    "count": RNG.integers(0, 50, N),
    "mode": ["eco", "boost"] * (N // 2),
    "on": [True, False] * (N // 2),
    "day": pa.array([19000 + row % 3 for row in range(N)], pa.date32()),
}


def settled(table: Mapping[str, object], **asked: object) -> Schema:
    return settle(blocks_of(pa.table(table)), **asked)  # type: ignore[arg-type]


def test_identifiers_counters_and_clocks_are_left_out_with_a_reason() -> None:
    schema = settled(TABLE)

    assert [column.name for column in schema.columns] == ["temp", "count", "mode", "on"]
    assert set(schema.left_out) == {"serial", "uuid", "odometer", "clock", "day"}
    assert "identifier" in schema.left_out["serial"]
    assert "rises" in schema.left_out["odometer"]
    assert "--columns temp,count,..." in note_of(schema)


def test_a_counter_may_start_anew_on_every_device() -> None:
    table = {"n": np.tile(np.arange(50), 4) * 1.5, "x": RNG.normal(size=200), "who": np.repeat(list("abcd"), 50)}

    assert set(settled(table, roles=Roles(device="who")).left_out) == {"n"}
    assert settled(table).left_out == {}


def test_columns_that_are_named_are_kept_whatever_they_look_like() -> None:
    assert settled(TABLE, columns=["serial", "temp"]).features == ("serial", "temp")
    assert "temp" not in settled(TABLE, ignore=["temp"]).features


def test_few_rows_tell_nothing_of_a_column() -> None:
    assert settled({"a": [1, 2, 3], "b": [0.5, 0.1, 0.2]}).left_out == {}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"columns": ["tmep"]}, "there is no column 'tmep' of --columns; .* did you mean 'temp'"),
        ({"ignore": ["x"]}, "there is no column 'x' of --ignore"),
        ({"roles": Roles(device="site")}, "there is no column 'site' for the device"),
        ({"columns": ["day"]}, "column 'day' of --columns cannot be learned from: dates or times"),
        ({"columns": ["mode"]}, "only words are there"),
    ],
)
def test_what_cannot_be_is_one_sentence(asked: dict[str, object], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        settled(TABLE, **asked)


@pytest.mark.parametrize(
    ("numbers", "decimal"),
    [
        (["1,234", "20,500"], ","),
        (["1,234", "2.5"], "1,000"),
        (["1,234,567"], "."),
        (["1,234,567", "1,234"], "1,000"),
        (["1,23,456", "1,234"], "1,000"),
        (["1.234", "2.500"], "."),
        (["1.234,5", "7"], ","),
    ],
)
def test_the_decimal_mark_follows_from_all_numbers_of_a_table(numbers: list[str], decimal: str) -> None:
    table = {"a": [1, 2] * 60, **{f"b{place}": [one, "7"] * 60 for place, one in enumerate(numbers)}}

    assert settle(blocks_of(pa.table(table))).decimal == decimal


def test_a_schema_is_the_same_whatever_the_blocks() -> None:
    whole = pa.table(TABLE)
    cut = [block for at in range(0, N, 7) for block in blocks_of(whole.slice(at, 7))]

    assert settle(cut) == settle(blocks_of(whole))
