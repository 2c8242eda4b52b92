"""Rows of any source, a block at a time: CSV, JSON lines, Parquet, Arrow, NumPy files, frames; files, folders, pipes.

A block keeps values as its source has them (of CSV: text). Their meaning is in the schema: it is settled once,
when a detector is fitted, and stored with it, so that fitting and scoring cannot read a value in two ways.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError, DataFileError, MissingDataError
from tolfl.tables.values import Values

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

    def column(self, name: str) -> Values:
        """Return a column as one array, without the encodings that only save space."""
        column: Values = self.table.column(name)
        if isinstance(column, np.ndarray):
            return column
        from tolfl.tables.arrow_values import plain  # noqa: PLC0415  (pyarrow is an extra)

        return plain(column)

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
        yield from _of_arrays(stream if stream.seekable() else io.BytesIO(stream.read()), name, device)
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
            yield Block(table, first, name, device, errors, is_ragged)
            first += table.num_rows


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


def check_names(names: list[str], source: str) -> None:
    """Check the names of columns: raise an error if there are too many, an empty one or a duplicate."""
    if len(names) > MAX_COLUMNS:
        raise DataFileError(
            source,
            f"{len(names)} columns; a detector takes at most {MAX_COLUMNS}: choose some, or turn the table around",
        )
    if "" in names:
        raise DataFileError(
            source,
            f"column {names.index('') + 1} has no name; name it, or, if it counts the rows, write the table without "
            "it (in pandas: index=False)",
        )
    if twice := [one for one, count in Counter(names).items() if count > 1]:
        raise DataFileError(source, f"there are two columns {twice[0]!r}; give each a name of its own")


# -- NumPy files, which need no pyarrow -------------------------------------------------------------------------------

#: Arrays of a NumPy file that are no samples, by the role that they have unless others are named.
_USUAL_ARRAYS = {"device": "device", "label": "y", "time": "time"}


def _of_arrays(stream: BinaryIO, name: str, device: str) -> Iterator[Block]:
    """Yield the samples of an NPY file, or of an NPZ file: `X` and, if there, `names`, `device`, `y` and `time`."""
    try:
        loaded = np.load(stream, allow_pickle=False)
        packed = [] if isinstance(loaded, np.ndarray) else loaded.zip.namelist()
        arrays = {"X": loaded} if isinstance(loaded, np.ndarray) else {key: loaded[key] for key in loaded.files}
    except Exception as problem:  # a damaged header leads numpy to half a dozen kinds of errors
        if isinstance(problem, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        if any(word in str(problem) for word in ("allow_pickle", "Object arrays", "Python objects")):
            raise DataFileError(
                name, "it holds pickled objects, which are never read: they can run code; save arrays of numbers"
            ) from None
        raise DataFileError(name, "cannot be read as a NumPy file; check that it is whole") from None
    if other := next((one for one in packed if not one.endswith(".npy")), None):
        raise DataFileError(
            name, f"this is an archive or a workbook (with {other}); unpack it, or save the table as CSV"
        )
    samples = arrays.pop("X", None)
    if samples is None:
        raise DataFileError(name, f"there is no array 'X' for the samples; the arrays are {', '.join(sorted(arrays))}")
    if samples.dtype.kind not in "biuf":
        raise DataFileError(name, f"the samples are {samples.dtype}, not numbers; convert them")
    if samples.ndim < 2 or not samples.size:
        raise DataFileError(name, f"the samples have shape {samples.shape}; give one row per sample, and at least one")
    samples = samples.reshape(len(samples), -1)
    names = tuple(str(one) for one in arrays.pop("names", []))
    has_names = len(names) == samples.shape[1]
    names = names if has_names else tuple(f"x{place}" for place in range(samples.shape[1]))
    for key, array in arrays.items():
        if array.shape != (len(samples),):
            raise DataFileError(name, f"array {key!r} has shape {array.shape}; give one value per sample of X")
    beside = {key: _text_of(name, key, array) for key, array in arrays.items() if key not in names}
    roles = {role: key for role, key in _USUAL_ARRAYS.items() if key in beside}
    for at in range(0, len(samples), _ARRAY_ROWS):
        part = slice(at, at + _ARRAY_ROWS)
        columns = dict(zip(names, samples[part].T, strict=True))
        table = ArrayTable({**columns, **{key: values[part] for key, values in beside.items()}})
        yield Block(table, at + 1, name, device, has_names=has_names, roles=roles, beside=tuple(beside))


def _text_of(name: str, key: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "SUbiufM":
        raise DataFileError(name, f"array {key!r} is {array.dtype}; give names or numbers")
    if array.dtype.kind != "S":
        return array
    try:
        return np.char.decode(array, "utf-8")
    except UnicodeDecodeError:
        raise DataFileError(name, f"array {key!r} is {array.dtype}; give names or numbers") from None


# -- files by their names: what they hold, and whose they are ----------------------------------------------------------

#: Kinds of files by how their names end; a folder holds only one: files of one kind have the same features.
_ENDINGS = {
    "tables": (".csv.gz", ".tsv.gz", ".csv.zst", ".csv", ".tsv", ".jsonl.gz", ".jsonl", ".ndjson", ".arrow", ".feather",
               ".parquet", ".pq"),
    "arrays": (".npz", ".npy"),
    "captures": (".pcap.gz", ".pcapng.gz", ".pcap", ".pcapng", ".cap"),
    "recordings": (".sigmf-meta", ".sigmf-data", ".sigmf"),
    "raw samples": (".cu8", ".cs8", ".cs16", ".cf32"),
}  # fmt: skip
_KINDS = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings}
#: Reading any of these can run code of its author's choice.
_PICKLED = (".pkl", ".pickle", ".pt", ".pth", ".joblib")
#: How dumpcap calls the files that follow one another: a number, and the time of the first packet.
_ROTATED = re.compile(r"_\d{5}(_\d{14})?$")
#: Files that may lie beside data. Any other is refused: it might be a device's.
_COMPANIONS = (".md", ".txt", ".rst", ".html", ".pdf")


def refuse_pickle(path: Path) -> None:
    """Raise an error where a file is pickled by its name."""
    if path.suffix.lower() in _PICKLED:
        raise DataFileError(
            path, "pickled files are never read: they can run code; save the data as CSV, Parquet or NPZ instead"
        )


def unreadable(path: Path, problem: OSError) -> DataFileError | MissingDataError:
    """Return the error for a file that cannot be opened."""
    if isinstance(problem, FileNotFoundError):
        return MissingDataError(f"{path}: no such file; check the path")
    return DataFileError(path, f"cannot be read ({problem.strerror or problem}); check the path and its permissions")


def owner_of(path: Path) -> str:
    """Return the device of a file.

    >>> owner_of(Path("data/site-7.csv.gz")), owner_of(Path("router_00002_20240101120000.pcap"))
    ('site-7', 'router')
    """
    name = path.name[: len(path.name) - len(_ending(path))]
    return _ROTATED.sub("", name) if kind_of(path) == "captures" else name


def kind_of(path: Path) -> str:
    """Return what a file holds by its name; empty: not known from the name.

    >>> kind_of(Path("site-7.csv.gz")), kind_of(Path("router.pcap")), kind_of(Path("notes"))
    ('tables', 'captures', '')
    """
    return _KINDS.get(_ending(path), "")


def device_files(folder: Path) -> list[Path]:
    """Return the files of a folder, one per device, in the order of their names."""
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as problem:
        raise unreadable(folder, problem) from None
    files = [path for path in entries if not _is_companion(path)]
    if not files:
        raise DataFileError(
            folder, "there is no file in it; put one CSV, Parquet, NPZ, pcap or SigMF file per device there"
        )
    by_owner: dict[str, Path] = {}
    for path in files:
        if path.is_dir():
            raise DataFileError(path, "a folder inside the folder of devices; put one file per device there")
        kinds = sorted({_known_kind(path), _known_kind(files[0])})
        if len(kinds) > 1:
            mixed = " and ".join(kinds)
            raise DataFileError(path, f"{mixed} are mixed ({files[0].name}); use one kind for all devices")
        other = by_owner.setdefault(owner_of(path), path)
        if other != path and not (kinds == ["captures"] and _follows(other) and _follows(path)):
            raise DataFileError(path, f"the same device as {other.name}; give each device one file")
    return files


def _is_companion(path: Path) -> bool:
    """Return whether a file is no data of its own; the samples of a recording belong to its metadata."""
    ending = path.suffix.lower()
    is_samples = ending == ".sigmf-data" and path.with_suffix(".sigmf-meta").exists()
    return is_samples or ending in (*_COMPANIONS, ".sigmf-collection") or path.name == "LICENSE"


def by_device(files: list[Path]) -> list[tuple[str, list[Path]]]:
    """Return files by the device they belong to: one each, but for captures that follow one another."""
    ordered = sorted(files, key=lambda path: (owner_of(path), path.name))
    return [(owner, list(own)) for owner, own in groupby(ordered, key=owner_of)]


def _known_kind(path: Path) -> str:
    refuse_pickle(path)
    if not (kind := kind_of(path)):
        raise DataFileError(path, f"unknown kind of file; use one of {', '.join(_KINDS)}")
    return kind


def _follows(path: Path) -> bool:
    """Return whether a capture is one of several that follow one another, by its name."""
    return _ROTATED.search(path.name[: len(path.name) - len(_ending(path))]) is not None


def _ending(path: Path) -> str:
    return next((ending for ending in _KINDS if path.name.lower().endswith(ending)), "")
