"""Rows of late that raised no alarm: bounded, whole after a kill, of one set of columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tolfl.watch.kept_rows import KeptRows, kept_rows


def rows(first: int, n: int) -> np.ndarray:
    return np.arange(first, first + 2 * n, dtype=np.float32).reshape(n, 2)


def test_rows_of_late_are_kept_and_those_left_out_are_counted(tmp_path: Path) -> None:
    KeptRows(tmp_path, ("a", "b")).add(rows(0, 3), 2)
    KeptRows(tmp_path, ("a", "b")).add(rows(6, 1), 1)
    found = kept_rows(tmp_path)

    assert found is not None
    assert (found[0], found[1].tolist(), found[2]) == (("a", "b"), rows(0, 4).tolist(), 3)


def test_no_more_than_asked_for_are_kept(tmp_path: Path) -> None:
    kept = KeptRows(tmp_path, ("a", "b"), most=10)
    for first in range(0, 60, 2):
        kept.add(rows(first, 1), 1)
    found = kept_rows(tmp_path)

    assert found is not None
    assert 5 <= len(found[1]) <= 10
    assert found[1][-1].tolist() == [58, 59]
    assert found[2] == len(found[1])


def test_a_piece_of_a_row_that_a_kill_has_left_is_dropped(tmp_path: Path) -> None:
    KeptRows(tmp_path, ("a", "b")).add(rows(0, 2), 0)
    with (tmp_path / "rows.f32").open("ab") as file:
        file.write(b"12345")
    before = kept_rows(tmp_path)
    KeptRows(tmp_path, ("a", "b")).add(rows(4, 1), 0)
    after = kept_rows(tmp_path)

    assert before is not None
    assert before[1].tolist() == rows(0, 2).tolist()
    assert after is not None
    assert after[1].tolist() == rows(0, 3).tolist()


def test_a_detector_of_other_columns_begins_anew(tmp_path: Path) -> None:
    KeptRows(tmp_path, ("a", "b")).add(rows(0, 2), 5)
    KeptRows(tmp_path, ("a",)).add(np.ones((1, 1), np.float32), 0)
    found = kept_rows(tmp_path)

    assert found is not None
    assert (found[0], found[1].tolist(), found[2]) == (("a",), [[1.0]], 0)
