"""Rows of any source, a block at a time: CSV, JSON lines, Parquet, Arrow, NumPy files, frames; files, folders, pipes.

A block keeps values as its source has them (of CSV: text). Their meaning is in the schema: it is settled once,
when a detector is fitted, and stored with it, so that fitting and scoring cannot read a value in two ways.
"""

from __future__ import annotations

import csv
import io
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError, DataFileError, MissingDataError
from tolfl.tables.array_files import ArrayFile, read_arrays
from tolfl.tables.folders import by_device, device_files, kind_of, refuse_pickle, unreadable

if TYPE_CHECKING:
    import pyarrow as pa

    from tolfl.signals.pcap import CaptureSummary
    from tolfl.signals.receiver import Tuning
    from tolfl.signals.wlan import Networks

STDIN = "-"
INTERFACE = "interface:"  #: before the name of an interface that is captured on
MAX_COLUMNS = 10_000
STDIN_NAME = "standard input"
BLOCK_BYTES = 1 << 20
_ARRAY_ROWS = 65_536  #: at once
_PCAP = (b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1", b"\x0a\x0d\x0d\x0a")

Errors = dict[int, str]  #: by the row's place in its block


class ArrayTable(dict[str, NDArray[np.generic]]):
    """Columns of a table that are NumPy's: those of windows and of NumPy files, which need no pyarrow."""

    @property
    def column_names(self) -> list[str]:
        """What the columns are called."""
        return list(self)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.values()), ()))

    def column(self, name: str) -> NDArray[np.generic]:
        """Return a column."""
        return self[name]


@dataclass(frozen=True, eq=False)
class Block:
    """Neighbouring rows of a source: columns by name, with their values as written, and the lines that are no row."""

    table: pa.Table  #: or an `ArrayTable`, with the same methods as far as rows are read
    first: int = 1  #: the number of the block's first row in its source
    source: str = "X"
    device: str = ""  #: whose file it is, in a folder of one file per device
    errors: Errors = field(default_factory=dict)
    is_ragged: bool = False  #: rows have the columns that they have (JSON lines): one that is not there is empty
    has_names: bool = True  #: False: columns are known by their place alone
    roles: Mapping[str, str] = field(default_factory=dict)  #: role -> column, where the source has them
    beside: tuple[str, ...] = ()  #: columns that are never learned from
    window_s: float = 0.0  #: of captures: how long a window is
    is_partial: NDArray[np.bool_] | None = None  #: of captures: windows of which only a part is there
    summary: CaptureSummary | None = None  #: of captures: what has been counted so far, over all blocks

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.table.num_rows)

    def error(self, place: int, problem: str) -> DataFileError:
        """Return the error about a row; rows of data count from 1, below the header."""
        return DataFileError(self.source, f"data row {self.first + place}: {problem}")


@dataclass(frozen=True, eq=False)
class Reading:
    """Settings for reading a source that has no metadata."""

    encoding: str = ""  #: of CSV and JSON lines; nothing: UTF-8, or UTF-16 with a byte order mark
    grid: tuple[float, float] | None = None  #: window and step of captures, in seconds; None: 1 and 1
    per: str = ""  #: `bssid` or `channel`: captures of 802.11 have a row for each
    tuning: Tuning | None = None  #: tuning of the receiver, for samples without metadata
    follow: bool = False  #: a capture file is still being written: it is read as it grows, and files that follow it
    known: Networks | None = None  #: that are not new, in captures of 802.11


def blocks(source: str | Path, how: Reading = Reading()) -> Iterator[Block]:  # noqa: B008  (it cannot change)
    """Yield the rows of a file, of a folder with one file per device, of standard input (`-`), or of an interface.

    The first bytes decide the kind of a file; gzip and zstd are unpacked. `interface:wlan0` captures there.
    """
    if str(source).startswith(INTERFACE):
        yield from _of_signals(str(source).removeprefix(INTERFACE), "", how)
        return
    if str(source) == STDIN and how.tuning is not None and how.tuning.datatype:
        yield from _of_receiver(sys.stdin.buffer, "", how.tuning)
        return
    if str(source) == STDIN:
        yield from _of_stream(sys.stdin.buffer, STDIN_NAME, "", how)
        return
    path = Path(source).expanduser()
    if not path.exists():
        raise MissingDataError(f"{path}: no such file or folder; check the path")
    if how.follow and (path.is_dir() or not (kind_of(path) == "captures" or _begins(path, *_PCAP))):
        raise DataFileError(
            path, f"only a capture can be followed; for lines of text: tail -f {path.name} | tolfl score MODEL -"
        )
    for device, files in by_device(device_files(path)) if path.is_dir() else [("", [path])]:
        yield from _of_files(files, device, how)


def blocks_of(X: object) -> Iterator[Block]:
    """Yield a frame (pandas, polars, Arrow) as one block.

    >>> import pyarrow as pa
    >>> [block.table.column_names for block in blocks_of(pa.table({"a": [1.0], "b": [2.0]}))]
    [['a', 'b']]
    """
    from tolfl.tables.table_files import table_of  # noqa: PLC0415  (pyarrow is an extra)

    yield Block(table_of(X))


@contextmanager
def spooled(source: str) -> Iterator[str]:
    """Give a source that can be read twice: standard input is written to a temporary file."""
    if source != STDIN:
        yield source
        return
    with TemporaryDirectory(prefix="tolfl-") as folder:
        path = Path(folder) / STDIN_NAME
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield str(path)
        except DataFileError as error:
            if Path(error.path) == path:
                raise DataFileError(STDIN_NAME, error.problem) from None
            raise


# -- which reader -----------------------------------------------------------------------------------------------------


def _of_files(files: list[Path], device: str, how: Reading) -> Iterator[Block]:
    path = files[0]
    refuse_pickle(path)
    if kind_of(path) == "raw samples":
        yield from _of_receiver(path, device, how.tuning)
        return
    if kind_of(path) in {"recordings", "captures"} or _begins(path, *_PCAP):
        yield from _of_signals(files, device, how)
        return
    try:
        with path.open("rb", buffering=BLOCK_BYTES) as stream:
            yield from _of_stream(stream, str(path), device, how)
    except (FileNotFoundError, PermissionError, IsADirectoryError) as problem:
        raise unreadable(path, problem) from None


def _of_signals(source: list[Path] | str | BinaryIO, device: str, how: Reading) -> Iterator[Block]:
    from tolfl.tables.signal_blocks import capture_blocks, recording_blocks  # noqa: PLC0415  (tables do without)

    if isinstance(source, list) and kind_of(source[0]) == "recordings":
        return recording_blocks(source[0], device)
    return capture_blocks(source, device, how.grid, per=how.per, follow=how.follow, known=how.known)


def _of_receiver(source: Path | BinaryIO, device: str, tuning: Tuning | None) -> Iterator[Block]:
    from tolfl.signals.receiver import Tuning  # noqa: PLC0415  (tables do without)
    from tolfl.tables.signal_blocks import receiver_blocks  # noqa: PLC0415  (as above)

    return receiver_blocks(source, device, tuning or Tuning())


def _begins(path: Path, *magic: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(4).startswith(magic)
    except OSError as problem:
        raise unreadable(path, problem) from None


def _of_stream(stream: BinaryIO, name: str, device: str, how: Reading) -> Iterator[Block]:
    stream = stream if hasattr(stream, "peek") else io.BufferedReader(stream)  # type: ignore[type-var]
    begin = _peeked(stream)
    if packed := "gzip" if begin.startswith(b"\x1f\x8b") else "zstd" if begin[:4] == b"\x28\xb5\x2f\xfd" else "":
        from tolfl.tables.table_files import unpacked  # noqa: PLC0415  (pyarrow is an extra)

        stream = unpacked(stream, packed)
        with _damage_of(name):
            begin = _peeked(stream)
    elif not begin and name != STDIN_NAME:
        raise DataFileError(name, "the file is empty; remove it or fill it")
    if not begin and name == STDIN_NAME:
        return  # a closed pipe: no error
    if begin.startswith((b"PK", b"\x93NUMPY")):
        yield from _of_arrays(read_arrays(stream if stream.seekable() else io.BytesIO(stream.read()), name), device)
    elif begin.startswith(_PCAP):
        yield from _of_signals(stream, device, how)
    else:
        yield from _of_table(stream, name, device, how)


def _peeked(stream: BinaryIO) -> bytes:
    begin: bytes = stream.peek(8)[:8]  # type: ignore[attr-defined]
    return begin


def _of_table(stream: BinaryIO, name: str, device: str, how: Reading) -> Iterator[Block]:
    from tolfl.tables.table_files import tables_in  # noqa: PLC0415  (pyarrow is an extra)

    first = 1
    with _damage_of(name):
        tables, is_ragged = tables_in(stream, name, how.encoding)
        for table, errors in tables:
            if table.num_columns > MAX_COLUMNS:
                raise DataFileError(name, too_many(table.num_columns))
            yield Block(table, first, name, device, errors, is_ragged)
            first += table.num_rows


def _of_arrays(file: ArrayFile, device: str) -> Iterator[Block]:
    if len(file.columns) > MAX_COLUMNS:
        raise DataFileError(file.name, too_many(len(file.columns)))
    for at in range(0, len(file.samples), _ARRAY_ROWS):
        part = slice(at, at + _ARRAY_ROWS)
        columns = dict(zip(file.columns, file.samples[part].T, strict=True))
        table = ArrayTable({**columns, **{key: values[part] for key, values in file.beside.items()}})
        yield Block(
            table, at + 1, file.name, device, has_names=file.has_names, roles=file.roles, beside=tuple(file.beside)
        )


@contextmanager
def _damage_of(name: str) -> Iterator[None]:
    """Turn a reader's exception into an error that names the damaged file."""
    import pyarrow as pa  # noqa: PLC0415  (an extra)

    try:
        yield
    except (DataError, FileNotFoundError, PermissionError, IsADirectoryError, BrokenPipeError):
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError, csv.Error) as problem:
        raise DataFileError(name, f"cannot be read ({said(problem)}); check that it is not damaged") from None


def said(problem: Exception) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(problem).split())[:200]


def too_many(n_columns: int) -> str:
    """Return what to do where there are too many columns."""
    return f"{n_columns} columns; a detector takes at most {MAX_COLUMNS}: choose some of them, or turn the table around"


def check_names(names: list[str], source: str) -> None:
    """Check the names of columns: raise an error if there are too many, an empty one or a duplicate."""
    if len(names) > MAX_COLUMNS:
        raise DataFileError(source, too_many(len(names)))
    if "" in names:
        raise DataFileError(
            source,
            f"column {names.index('') + 1} has no name; name it, or, if it counts the rows, write the table without "
            "it (in pandas: index=False)",
        )
    if twice := [one for one, count in Counter(names).items() if count > 1]:
        raise DataFileError(source, f"there are two columns {twice[0]!r}; give each a name of its own")
