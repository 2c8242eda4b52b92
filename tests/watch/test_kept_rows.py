"""Rows of late that raised no alarm: bounded, whole after a kill, of one set of columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tolfl.watch.kept_rows import KeptRows, Reached, kept_rows


def rows(first: int, n: int) -> np.ndarray:
    return np.arange(first, first + 2 * n, dtype=np.float32).reshape(n, 2)


def keep(kept: KeptRows, first: int, n: int, n_left_out: int = 0) -> None:
    """Keep rows of `n` windows from number `first` on, one a second, and leave out those of the next ones."""
    windows = [Reached(number, 100.0 + number) for number in range(first, first + n + n_left_out)]
    kept.add(rows(2 * first, n), windows[:n], n_left_out, windows[-1])


def test_rows_of_late_are_kept_and_those_left_out_are_counted(tmp_path: Path) -> None:
    keep(KeptRows(tmp_path, ("a", "b"), "x"), 0, 3, 2)
    keep(KeptRows(tmp_path, ("a", "b"), "x"), 3, 1, 1)
    found = kept_rows(tmp_path)

    assert found is not None
    assert (found[0], found[1].tolist(), found[2]) == (("a", "b"), rows(0, 4).tolist(), 3)


def test_no_more_than_asked_for_are_kept(tmp_path: Path) -> None:
    kept = KeptRows(tmp_path, ("a", "b"), "x", most=10)
    for first in range(30):
        keep(kept, first, 1, 1)
    found = kept_rows(tmp_path)

    assert found is not None
    assert 5 <= len(found[1]) <= 10
    assert found[1][-1].tolist() == [58, 59]
    assert found[2] == len(found[1])


def test_a_piece_of_a_row_that_a_kill_has_left_is_dropped(tmp_path: Path) -> None:
    keep(KeptRows(tmp_path, ("a", "b"), "x"), 0, 2)
    with (tmp_path / "kept.rows").open("ab") as file:
        file.write(b"12345")
    before = kept_rows(tmp_path)
    kept = KeptRows(tmp_path, ("a", "b"), "x")
    reached = kept.reached
    keep(kept, 2, 1)
    after = kept_rows(tmp_path)

    assert reached == Reached(1, 101.0)
    assert before is not None
    assert before[1].tolist() == rows(0, 2).tolist()
    assert after is not None
    assert after[1].tolist() == rows(0, 3).tolist()


def test_a_detector_of_other_columns_begins_anew(tmp_path: Path) -> None:
    keep(KeptRows(tmp_path, ("a", "b"), "x"), 0, 2, 5)
    kept = KeptRows(tmp_path, ("a",), "x")
    reached = kept.reached
    kept.add(np.ones((1, 1), np.float32), [Reached(1, 1.0)], 0, Reached(1, 1.0))
    found = kept_rows(tmp_path)

    assert reached == Reached()
    assert found is not None
    assert (found[0], found[1].tolist(), found[2]) == (("a",), [[1.0]], 0)


def test_how_far_a_source_was_watched_is_the_last_row_kept_or_left_out_of_it(tmp_path: Path) -> None:
    found = [KeptRows(tmp_path, ("a", "b"), "x").reached]
    keep(KeptRows(tmp_path, ("a", "b"), "x", most=4), 0, 2)  # the newer file is full, and is the older one now
    found.append(KeptRows(tmp_path, ("a", "b"), "x").reached)
    keep(KeptRows(tmp_path, ("a", "b"), "x"), 2, 1, 3)
    found += [KeptRows(tmp_path, ("a", "b"), source).reached for source in ("x", "y")]
    keep(KeptRows(tmp_path, ("a", "b"), "y"), 1, 1)
    found.append(KeptRows(tmp_path, ("a", "b"), "y").reached)

    assert found == [Reached(), Reached(1, 101.0), Reached(5, 105.0), Reached(), Reached(1, 101.0)]
