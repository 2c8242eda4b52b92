"""Recent rows that raised no alarm, on disk: a device's training rows for the next run of its fleet.

Two files of single-precision numbers, the older and the newer half; when the newer one is full it takes the place of
the other. Each row has with it which window of which source it is: after SIGKILL a source is read again from the last
event on, and what was kept since then is not kept again. A kill costs the piece of a row that it has left.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import RunDirectoryError
from tolfl.runs.directory import write_file

MAX_ROWS = 86_400  #: a day of seconds
_NEWER, _OLDER, _ABOUT = "kept.rows", "kept-before.rows", "kept.json"


class Reached(NamedTuple):
    """How far a source was watched."""

    n_windows: int = 0
    last_s: float | None = None  #: the start of the last window


class _About(msgspec.Struct):
    columns: tuple[str, ...]
    left_out: int = 0  #: rows that raised an alarm, or came while one was open, since the newer file was begun
    left_out_before: int = 0  #: the same of the older file
    source: int = 0  #: that was watched when rows were left out last
    reached: Reached = Reached()  #: the last window by then


class KeptRows:
    """Rows of one device, of the columns that its detector has; of other columns it begins anew."""

    def __init__(self, folder: Path, columns: tuple[str, ...], source: str, most: int = MAX_ROWS) -> None:
        self._folder, self._most = folder, most
        self._about = _about_in(folder) or _About(columns)
        self._row, self._source = _row_of(len(columns)), zlib.crc32(source.encode())
        self.trouble = ""
        if self._about.columns != columns:
            for name in (_NEWER, _OLDER, _ABOUT):
                (folder / name).unlink(missing_ok=True)
            self._about = _About(columns)

    @property
    def reached(self) -> Reached:
        """How far the source was watched when rows were kept or left out last."""
        found = [self._about.reached] if self._about.source == self._source else []
        last = _rows_in(self._folder, self._row)[-1:]
        found += [
            Reached(int(one["n_windows"]), float(one["start_s"])) for one in last if one["source"] == self._source
        ]
        return max(found, key=lambda one: one.n_windows, default=Reached())

    def add(self, rows: NDArray[np.floating], windows: list[Reached], n_left_out: int, reached: Reached) -> None:
        """Keep the rows of some windows, and count those left out; a full disk is reported, and costs these rows.

        `reached` is the last window, whether its row is kept or left out.
        """
        kept = np.zeros(len(rows), self._row)
        kept["source"], kept["values"] = self._source, rows
        kept["n_windows"] = [one.n_windows for one in windows]
        kept["start_s"] = [one.last_s for one in windows]
        try:
            self._add(kept, n_left_out, reached)
            self.trouble = ""
        except (OSError, RunDirectoryError) as error:
            self.trouble = f"rows to learn from cannot be kept ({error}); make room: these are lost"

    def _add(self, rows: NDArray[np.void], n_left_out: int, reached: Reached) -> None:
        newer, about = self._folder / _NEWER, self._about
        with newer.open("ab") as file:
            if piece := file.tell() % self._row.itemsize:
                file.truncate(file.tell() - piece)
            file.write(rows.tobytes())
            n_rows = file.tell() // self._row.itemsize
        if n_left_out:
            about.left_out, about.source, about.reached = about.left_out + n_left_out, self._source, reached
        if is_full := n_rows * 2 >= self._most:
            newer.replace(self._folder / _OLDER)
            about.left_out, about.left_out_before = 0, about.left_out
        if n_left_out or is_full or not (self._folder / _ABOUT).exists():
            write_file(self._folder, _ABOUT, msgspec.json.encode(about))


def kept_rows(folder: Path) -> tuple[tuple[str, ...], NDArray[np.float32], int] | None:
    """Return the columns and rows that a device has kept, and how many it left out; None: it has kept none."""
    about = _about_in(folder)
    if about is None:
        return None
    rows = _rows_in(folder, _row_of(len(about.columns)))
    return about.columns, np.ascontiguousarray(rows["values"]), about.left_out + about.left_out_before


def _row_of(width: int) -> np.dtype[np.void]:
    return np.dtype([("source", "<u4"), ("n_windows", "<i8"), ("start_s", "<f8"), ("values", "<f4", (width,))])


def _rows_in(folder: Path, row: np.dtype[np.void]) -> NDArray[np.void]:
    paths = [folder / name for name in (_OLDER, _NEWER)]
    return np.concatenate([np.empty(0, row), *(np.fromfile(path, row) for path in paths if path.exists())])


def _about_in(folder: Path) -> _About | None:
    try:
        return msgspec.json.decode((folder / _ABOUT).read_bytes(), type=_About)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunDirectoryError(folder, f"{_ABOUT} cannot be read ({error}); remove it to begin anew") from None
