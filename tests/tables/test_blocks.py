"""Rows come in blocks, cut anywhere, from every format, and a bad one spoils no other."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as pa_feather
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import DataError
from tolfl.tables import Reading, Rows, Schema, blocks, blocks_of, settle, spooled
from tolfl.tables.block_reader import _of_stream
from tolfl.tables.schema import Column

ROWS = np.round(np.random.default_rng(0).normal(size=(40, 3)), 3)
NAMES = ("a", "b [dB]", "c")
SCHEMA = Schema.from_features(NAMES)


class Trickle(io.RawIOBase):
    """A pipe that gives what was put into it in pieces of given sizes, as a slow sensor would."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        super().__init__()
        edges = np.cumsum([0, *sizes]).tolist()
        self._pieces = [data[first:last] for first, last in zip(edges, [*edges[1:], None], strict=True)]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while self._pieces:
            piece = self._pieces.pop(0)
            if piece:
                if len(piece) > len(buffer):
                    self._pieces.insert(0, piece[len(buffer) :])
                    piece = piece[: len(buffer)]
                buffer[: len(piece)] = piece
                return len(piece)
        return 0


def csv_text() -> str:
    return "\n".join([",".join(NAMES), *(",".join(map(repr, row)) for row in ROWS.tolist())])


def json_text() -> str:
    return "\n".join(json.dumps(dict(zip(NAMES, row, strict=True))) for row in ROWS.tolist())


def table() -> pa.Table:
    return pa.table(dict(zip(NAMES, ROWS.T, strict=True)))


def notes_text() -> str:
    """Return the rows beside notes of several lines, in a table whose names have several lines, too."""
    notes = ['"one, ""two""\r\n\nthree"', "one", '"1\n2"', '""', '5" pipe']
    rows = [f"{','.join(map(repr, row))},{notes[place % 5]}" for place, row in enumerate(ROWS.tolist())]
    return "\n".join(['a,"b\n[dB]",c,"any\r\nnote"', *rows])


@given(st.lists(st.integers(0, 200), max_size=30), st.sampled_from([csv_text, json_text, notes_text]), st.booleans())
def test_where_a_pipe_is_cut_changes_nothing(
    sizes: list[int], text_of: Callable[[], str], has_last_newline: bool
) -> None:
    text = text_of() + "\n" * has_last_newline
    found = [SCHEMA.rows(block) for block in _of_stream(Trickle(text.encode(), sizes), "pipe", "", Reading())]  # type: ignore[arg-type]

    assert (np.concatenate([rows.values for rows in found]) == ROWS.astype(np.float32)).all()
    assert np.concatenate([rows.numbers for rows in found]).tolist() == list(range(1, 41))
    assert not any(rows.errors for rows in found)


def written(folder: Path, kind: str) -> Path:
    path = folder / f"t.{kind}"
    if kind == "csv":
        path.write_text(csv_text())
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(csv_text().encode()))
    elif kind == "csv.zst":
        path.write_bytes(pa.Codec("zstd").compress(csv_text().encode(), asbytes=True))
    elif kind == "jsonl":
        path.write_text(json_text())
    elif kind == "parquet":
        pa_parquet.write_table(table(), path)
    elif kind == "arrow":
        pa_feather.write_feather(table(), path, compression="uncompressed")
    elif kind == "arrows":
        with pa.ipc.new_stream(path, table().schema) as writer:
            writer.write_table(table())
    else:
        np.savez(path, X=ROWS, names=np.array(NAMES))
    return path


KINDS = ["csv", "csv.gz", "csv.zst", "jsonl", "parquet", "arrow", "arrows", "npz"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_pipe", [False, True])
def test_every_format_gives_the_same_rows(
    tmp_path: Path, kind: str, is_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, kind)
    source = str(path)
    if is_pipe:
        pipe = io.BufferedReader(Trickle(path.read_bytes(), [3, 100, 1]))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
        source = "-"
    with spooled(source) as twice:
        schema = settle(blocks(twice))
        values = np.concatenate([schema.rows(block).values for block in blocks(twice)])

    assert schema.features == NAMES
    assert (values == ROWS.astype(np.float32)).all()


def test_the_order_of_columns_and_further_ones_change_nothing() -> None:
    moved = pa.table({"new": ["x"] * 40, "c": ROWS[:, 2], "b": ROWS[:, 1], " a ": ROWS[:, 0]})
    (block,) = blocks_of(moved)

    assert (SCHEMA.rows(block).values == ROWS.astype(np.float32)).all()


@given(st.lists(st.sampled_from(["1.5", " 2 ", "-3e2", ".5", "true", "", " NA ", "x", "1;5", "inf"]), min_size=1))
def test_each_value_is_a_number_or_missing_or_has_a_sentence(texts: list[str]) -> None:
    known = {"1.5": 1.5, " 2 ": 2.0, "-3e2": -300.0, ".5": 0.5, "true": 1.0}
    (block,) = blocks_of(pa.table({"v": texts}))
    rows = Schema.from_features(["v"]).rows(block)

    assert [row for row, text in enumerate(texts) if text in {"x", "1;5", "inf"}] == sorted(rows.errors)
    for row, text in enumerate(texts):
        assert rows.values[row, 0] == known[text] if text in known else np.isnan(rows.values[row, 0])


def test_a_ragged_line_keeps_its_number_and_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n4,5\n\n6,7,8\n")
    (block,) = blocks(tmp_path / "t.csv")
    rows = Schema.from_features(["a", "b", "c"]).rows(block)

    assert rows.errors == {1: "2 values, the header has 3"}
    assert rows.values[[0, 2]].tolist() == [[1, 2, 3], [6, 7, 8]]


def test_json_lines_need_not_all_have_all_columns() -> None:
    text = b'{"a": 1, "b": 2, "c": 3}\n{"a": 4, "c": "5"}\n{"d": 1}\n'
    (block,) = _of_stream(io.BufferedReader(Trickle(text, [])), "pipe", "", Reading())
    values = Schema.from_features(["a", "b", "c"]).rows(block).values

    np.testing.assert_array_equal(values, [[1, 2, 3], [4, np.nan, 5], [np.nan] * 3])


def test_a_json_line_means_the_same_alone_and_among_others() -> None:
    """A pipe brings lines one by one: a date, a number or an object may be a word, and a word stands for no number."""
    words = ['"beta"', '"2024-01-31"', "12", "3.0", "true", '{"a": 1}', "[1, 2]", "null"]
    others = ["1.5", '"2.5"', '{"a": 1}', '"2024-01-31"', "[1]", "7", "null", "true"]
    lines = [b'{"n": %s, "w": %s}\n' % (n.encode(), w.encode()) for n, w in zip(others, words, strict=True)]
    schema = Schema((Column("n"), Column("w", "words")))

    def rows_of(text: bytes) -> Rows:
        (block,) = _of_stream(io.BufferedReader(Trickle(text, [])), "pipe", "", Reading())
        return schema.rows(block)

    whole = rows_of(b"".join(lines))
    assert sorted(whole.errors) == [2, 3, 4]
    for place, line in enumerate(lines):
        alone = rows_of(line)
        assert list(alone.errors) == [0] * (place in whole.errors)
        np.testing.assert_array_equal(alone.values[0], whole.values[place])


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_bytes("größe;b\n1,5;2\n".encode(encoding))
    named = "" if encoding.startswith("utf") else encoding
    schema = settle(blocks(tmp_path / "t.csv", Reading(named)))

    assert schema.features == ("größe", "b")
    assert schema.decimal == ","


def test_an_encoding_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")

    with pytest.raises(DataError, match="--encoding klingon: there is no such encoding"):
        list(blocks(tmp_path / "t.csv", Reading("klingon")))


def test_a_file_that_grows_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with path.open("a") as more:
        found = blocks(path)
        assert next(found).n_rows == 1
        more.write("3,4\n5,")
        more.flush()
        more_blocks = list(found)

    assert [block.first for block in more_blocks] == [2, 3]
    assert more_blocks[0].table.to_pydict() == {"a": ["3"], "b": ["4"]}
