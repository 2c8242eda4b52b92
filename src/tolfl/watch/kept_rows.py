"""Recent rows that raised no alarm, on disk: a device's training rows for the next run of its fleet.

Two files of single-precision numbers, the older and the newer half; when the newer one is full it takes the place of
the other. A kill costs at most the row that is being written.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import RunDirectoryError
from tolfl.runs.directory import write_file

MAX_ROWS = 86_400  #: a day of seconds
_NEWER, _OLDER, _ABOUT = "rows.f32", "rows-before.f32", "rows.json"


class _About(msgspec.Struct):
    columns: tuple[str, ...]
    left_out: int = 0  #: rows that raised an alarm, or came while one was open, since the newer file was begun
    left_out_before: int = 0  #: the same of the older file


class KeptRows:
    """Rows of one device, of the columns that its detector has; of other columns it begins anew."""

    def __init__(self, folder: Path, columns: tuple[str, ...], most: int = MAX_ROWS) -> None:
        self._folder, self._most = folder, most
        self._about = _about_in(folder) or _About(columns)
        self._row_bytes = 4 * len(columns)
        self.trouble = ""
        if self._about.columns != columns:
            for name in (_NEWER, _OLDER, _ABOUT):
                (folder / name).unlink(missing_ok=True)
            self._about = _About(columns)

    def add(self, rows: NDArray[np.floating], n_left_out: int) -> None:
        """Keep rows, and count those that are not among them; a full disk is reported, and costs these rows."""
        try:
            self._add(np.ascontiguousarray(rows, "<f4"), n_left_out)
            self.trouble = ""
        except (OSError, RunDirectoryError) as error:
            self.trouble = f"rows to learn from cannot be kept ({error}); make room: these are lost"

    def _add(self, rows: NDArray[np.float32], n_left_out: int) -> None:
        newer = self._folder / _NEWER
        with newer.open("ab") as file:
            if piece := file.tell() % self._row_bytes:
                file.truncate(file.tell() - piece)
            file.write(rows.tobytes())
            n_rows = file.tell() // self._row_bytes
        before = self._about.left_out
        self._about.left_out += n_left_out
        if n_rows * 2 >= self._most:
            newer.replace(self._folder / _OLDER)
            self._about.left_out, self._about.left_out_before = 0, self._about.left_out
        if before != self._about.left_out or not (self._folder / _ABOUT).exists():
            write_file(self._folder, _ABOUT, msgspec.json.encode(self._about))


def kept_rows(folder: Path) -> tuple[tuple[str, ...], NDArray[np.float32], int] | None:
    """Return the columns and rows that a device has kept, and how many it left out; None: it has kept none."""
    about = _about_in(folder)
    if about is None:
        return None
    width, parts = len(about.columns), []
    for name in (_OLDER, _NEWER):
        if (folder / name).exists():
            values = np.fromfile(folder / name, "<f4")
            parts.append(values[: len(values) // width * width].reshape(-1, width))
    rows = np.concatenate(parts) if parts else np.empty((0, width), np.float32)
    return about.columns, rows, about.left_out + about.left_out_before


def _about_in(folder: Path) -> _About | None:
    try:
        return msgspec.json.decode((folder / _ABOUT).read_bytes(), type=_About)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunDirectoryError(folder, f"{_ABOUT} cannot be read ({error}); remove it to begin anew") from None
