"""Rows from anywhere, a block at a time: CSV, JSON lines, Parquet, Arrow, NumPy files, frames; files, folders, pipes.

A block keeps values as its source has them (of CSV: text). What they mean is the schema's business: it is settled once,
when a detector is fitted, and stored with it, so that fitting and scoring cannot read a value in two ways.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
from numpy.typing import NDArray

from tolfl.core.errors import DataError, DataFileError, MissingDataError
from tolfl.tables.array_files import read_arrays
from tolfl.tables.folders import by_device, device_files, kind_of, refuse_pickle, unreadable

if TYPE_CHECKING:
    from tolfl.signals.pcap import CaptureSummary
    from tolfl.signals.receiver import Tuning
    from tolfl.signals.wlan import Networks

STDIN = "-"
INTERFACE = "interface:"  #: before the name of an interface that is captured on
MAX_COLUMNS = 10_000
STDIN_NAME = "standard input"
_BLOCK_BYTES = 1 << 20
_BATCH_ROWS = 8192
_MOST_LINES = 100  #: of one row, in quotation marks
_SEPARATORS = (",", ";", "\t", "|")
_NUMBER = re.compile(r"^[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?$")
_INDEX = re.compile(r"__index_level_\d+__")  #: pandas' numbers of rows: no data
_PCAP = (b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1", b"\x0a\x0d\x0d\x0a")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

Errors = dict[int, str]  #: by the row's place in its block
Tables = Iterator[tuple[pa.Table, Errors]]


@dataclass(frozen=True, eq=False)
class Block:
    """Neighbouring rows of a source: columns by name, with their values as written, and the lines that are no row."""

    table: pa.Table
    first: int = 1  #: the number of the block's first row in its source
    source: str = "X"
    device: str = ""  #: whose file it is, in a folder of one file per device
    errors: Errors = field(default_factory=dict)
    is_ragged: bool = False  #: rows have the columns that they have (JSON lines): one that is not there is empty
    has_names: bool = True  #: False: columns are known by their place alone
    roles: Mapping[str, str] = field(default_factory=dict)  #: role -> column, where the source itself says so
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
    """How a source is read, where it does not say so itself."""

    encoding: str = ""  #: of CSV and JSON lines; nothing: UTF-8, or UTF-16 with a byte order mark
    grid: tuple[float, float] | None = None  #: window and step of captures, in seconds; None: 1 and 1
    per: str = ""  #: `bssid` or `channel`: captures of 802.11 have a row for each
    tuning: Tuning | None = None  #: how a receiver was set, of samples that do not say so themselves
    follow: bool = False  #: a capture file is still being written: it is read as it grows, and files that follow it
    known: Networks | None = None  #: that are not new, in captures of 802.11


def blocks(source: str | Path, how: Reading = Reading()) -> Iterator[Block]:  # noqa: B008  (it cannot change)
    """Yield the rows of a file, of a folder with one file per device, of standard input (`-`), or of an interface.

    What kind of file it is its first bytes say; gzip and zstd are unpacked. `interface:wlan0` captures there.
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

    >>> [block.table.column_names for block in blocks_of(pa.table({"a": [1.0], "b": [2.0]}))]
    [['a', 'b']]
    """
    if len(shape := getattr(X, "shape", (0, 0))) != 2:  # a column of a frame
        raise DataError(f"X has shape {shape}; give one row per sample, even for a single one")
    try:
        table = _without_index(_table_of(X))
    except (pa.ArrowException, TypeError, ValueError) as problem:
        raise DataError(f"X cannot be read as a table: {_said(problem)}") from None
    yield Block(table)


def _table_of(frame: Any) -> pa.Table:
    """Return a frame as a table; objects of several types in one column are text, as they are in a file."""
    try:
        return pa.table(frame)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        if not hasattr(frame, "items"):  # of pandas: the others have types
            raise
    return pa.table({str(name): _text_if_mixed(column) for name, column in frame.items()})


def _text_if_mixed(column: Any) -> pa.Array:
    try:
        return pa.array(column)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(column.astype(str).where(column.notna(), None), pa.string())


@contextmanager
def spooled(source: str) -> Iterator[str]:
    """Give a source that can be read twice: standard input is written to a temporary file."""
    if source != STDIN:
        yield source
        return
    with TemporaryDirectory(prefix="tolfl-") as folder:
        path = Path(folder) / "standard-input"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield str(path)
        except DataFileError as error:
            if Path(error.path) == path:
                raise DataFileError("standard input", error.problem) from None
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
        with path.open("rb", buffering=_BLOCK_BYTES) as stream:
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
    first = 1
    options: dict[str, object] = {}
    try:
        stream = _unpacked(stream, name)
        begin = stream.peek(8)[:8]  # type: ignore[attr-defined]
        if not begin and name == STDIN_NAME:
            return  # a pipe that was closed: there is nothing to say
        if begin.startswith(b"PAR1"):
            tables = _parquet(_seekable(stream))
        elif begin.startswith(b"ARROW1"):
            tables = _arrow_file(_seekable(stream))
        elif begin.startswith(b"\xff\xff\xff\xff"):
            tables = ((_without_index(pa.Table.from_batches([batch])), {}) for batch in pa.ipc.open_stream(stream))
        elif begin.startswith((b"PK", b"\x93NUMPY")):
            tables, options = _arrays(_seekable(stream), name)
        elif begin.startswith(_PCAP):
            yield from _of_signals(stream, device, how)
            return
        else:
            # What a byte order mark shows counts, whatever was asked for.
            mark = "utf-16" if begin.startswith(_UTF16) else "utf-8" if begin.startswith(codecs.BOM_UTF8) else ""
            tables, options = _text(stream, name, mark or how.encoding)
        for table, errors in tables:
            if table.num_columns > MAX_COLUMNS:
                raise DataFileError(name, _too_many(table.num_columns))
            yield Block(table, first, name, device, errors, **options)  # type: ignore[arg-type]
            first += table.num_rows
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError, csv.Error) as problem:
        if isinstance(problem, FileNotFoundError | PermissionError | IsADirectoryError | BrokenPipeError):
            raise
        raise DataFileError(name, f"cannot be read ({_said(problem)}); check that it is not damaged") from None


def _unpacked(stream: BinaryIO, name: str) -> BinaryIO:
    stream = stream if hasattr(stream, "peek") else io.BufferedReader(stream)  # type: ignore[type-var]
    begin = stream.peek(4)[:4]
    kind = "gzip" if begin.startswith(b"\x1f\x8b") else "zstd" if begin == b"\x28\xb5\x2f\xfd" else ""
    if not kind:
        if not begin and name != STDIN_NAME:
            raise DataFileError(name, "the file is empty; remove it or fill it")
        return stream
    return io.BufferedReader(_Unpacked(pa.CompressedInputStream(stream, kind)), _BLOCK_BYTES)


class _Unpacked(io.RawIOBase):
    """Compressed bytes as Python's streams have them."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _seekable(stream: BinaryIO) -> BinaryIO:
    return stream if stream.seekable() else io.BytesIO(stream.read())


def _said(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200]


def _too_many(n_columns: int) -> str:
    return f"{n_columns} columns; a detector takes at most {MAX_COLUMNS}: choose some of them, or turn the table around"


# -- columns with types -----------------------------------------------------------------------------------------------


def _parquet(stream: BinaryIO) -> Tables:
    import pyarrow.parquet as pa_parquet  # noqa: PLC0415  (30 ms that CSV does without)

    file = pa_parquet.ParquetFile(stream)
    n_batches = 0
    for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
        n_batches += 1
        yield _without_index(pa.Table.from_batches([batch])), {}
    if not n_batches:  # whatever its metadata say
        yield _without_index(file.schema_arrow.empty_table()), {}


def _arrow_file(stream: BinaryIO) -> Tables:
    reader = pa.ipc.open_file(stream)
    for place in range(reader.num_record_batches):
        yield _without_index(pa.Table.from_batches([reader.get_batch(place)])), {}


def _without_index(table: pa.Table) -> pa.Table:
    table.validate(full=True)  # text of a damaged file need not be UTF-8
    table = table.drop_columns([name for name in table.column_names if _INDEX.fullmatch(name)])
    return table.rename_columns([name.strip() for name in table.column_names])


def _arrays(stream: BinaryIO, name: str) -> tuple[Tables, dict[str, object]]:
    """Return the samples of an NPY or NPZ file, and what stands beside them."""
    found = read_arrays(stream, name)
    beside = {key: _array(name, key, array) for key, array in found.beside.items()}

    def tables() -> Tables:
        for first in range(0, len(found.samples), _BATCH_ROWS):
            part = slice(first, first + _BATCH_ROWS)
            columns = dict(zip(found.columns, (pa.array(column) for column in found.samples[part].T), strict=True))
            yield pa.table({**columns, **{key: column[part] for key, column in beside.items()}}), {}

    return tables(), {"has_names": found.has_names, "roles": found.roles, "beside": tuple(beside)}


def _array(name: str, key: str, array: NDArray[np.generic]) -> pa.Array:
    try:
        return pa.array(array, from_pandas=True)
    except (pa.ArrowException, TypeError):
        raise DataFileError(name, f"array {key!r} is {array.dtype}; give names or numbers") from None


# -- text -------------------------------------------------------------------------------------------------------------


def _text(stream: BinaryIO, name: str, encoding: str) -> tuple[Tables, dict[str, object]]:
    if encoding and codecs_name(encoding) != "utf-8":
        stream = io.BufferedReader(_Unpacked(pa.transcoding_input_stream(pa.PythonFile(stream), encoding, "utf-8")))
    lines = _whole_lines(stream)
    start = next(lines, b"").removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    if not start.strip():
        if name == STDIN_NAME:
            return iter(()), {}
        raise DataFileError(name, "the file is empty; remove it or fill it")
    if b"\0" in start[:4096]:
        raise DataFileError(name, "this is no table that can be read: CSV, JSON lines, Parquet, Arrow, NPZ or NPY")
    if start.startswith(b"["):
        raise DataFileError(name, "this is one JSON array; write one object per line (JSON lines)")
    if start.startswith(b"{"):
        return _json_lines(start, lines, name), {"is_ragged": True}
    return _csv(start, lines, name), {}


def codecs_name(encoding: str) -> str:
    """Return an encoding's usual name, or say that there is none."""
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        raise DataError(f"--encoding {encoding}: there is no such encoding; usual are utf-8, latin-1, cp1252") from None


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield what has arrived up to the last newline: a pipe is answered as it comes, a file in blocks."""
    read, rest = getattr(stream, "read1", stream.read), b""
    while chunk := read(_BLOCK_BYTES):
        lines, end, rest = (rest + chunk).rpartition(b"\n")
        if end:
            yield lines + end
    if rest.strip():
        yield rest


def _csv(start: bytes, more: Iterator[bytes], name: str) -> Tables:
    header, rest = _first_line(start, more)
    separator = ""
    if found := re.fullmatch(rb'"?sep=(.)"?\r?', header):  # a spreadsheet's hint to itself
        separator = found[1].decode()
        header, rest = _first_line(rest, more)
    while header.count(b'"') % 2 and rest and header.count(b"\n") < _MOST_LINES:  # a name of several lines
        line, rest = _first_line(rest, more)
        header += b"\n" + line
    if b"\r" in header.replace(b"\r\n", b"\n").rstrip(b"\r"):
        raise DataFileError(name, "its lines end in CR alone; save it with LF or CR LF at their ends")
    text, first_row = _decoded(header, name), rest.partition(b"\n")[0].decode(errors="replace")
    if not any(one in text for one in _SEPARATORS) and 0 < text.strip().count(" ") == first_row.strip().count(" "):
        separator = " "
    names, separator = _header(text, separator, name)
    read = pa_csv.ReadOptions(column_names=names, use_threads=False, block_size=8 * _BLOCK_BYTES + len(header))
    convert = pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    is_narrow = len(names) == 1  # then a blank line may be a missing value
    parse_options = {"delimiter": separator, "ignore_empty_lines": not is_narrow}
    if not rest:
        yield pa.table({one: pa.array([], pa.string()) for one in names}), {}
    begun = b""  #: a row that goes on in the lines to come
    for some in itertools.chain(_chained(rest, more), (b"",)):
        is_last, lines = not some, begun + some
        begun = b""
        if not lines:
            continue
        if not lines.isascii():
            _decoded(lines, name)
        errors: Errors = {}

        def keep_place(row: pa_csv.InvalidRow, errors: Errors = errors) -> str:
            errors[row.number - 1] = _ragged(row.actual_columns, row.expected_columns)
            return "skip"

        parse = pa_csv.ParseOptions(invalid_row_handler=keep_place, **parse_options)
        try:
            table = pa_csv.read_csv(pa.BufferReader(lines), read, parse, convert)
        except pa.ArrowInvalid:
            table = None
        is_open = lines.count(b'"') % 2 == 1
        if table is None or is_open or not _has_all_lines(table.num_rows + len(errors), lines, is_narrow):
            table, errors, begun = _row_by_row(lines, names, separator, is_last)
            yield table, errors
        else:
            yield _with_empty_rows(table, sorted(errors)), errors


def _first_line(lines: bytes, more: Iterator[bytes]) -> tuple[bytes, bytes]:
    """Return a line, and those behind it: the next ones that come, if it is the last of what is there."""
    line, _, rest = lines.partition(b"\n")
    return line, rest if rest.strip(b"\r\n") else next(more, b"")


def _chained(first: bytes, more: Iterator[bytes]) -> Iterator[bytes]:
    if first.strip(b"\r\n"):
        yield first
    yield from more


def _has_all_lines(n_rows: int, lines: bytes, counts_blank: bool = False) -> bool:
    """Return whether so many rows are all lines there are, blank ones aside."""
    n_lines = lines.count(b"\n") + (not lines.endswith(b"\n"))
    if n_rows == n_lines or counts_blank:
        return n_rows == n_lines
    return n_rows == sum(1 for line in lines.split(b"\n") if line.strip(b"\r"))


def _ragged(actual: int, expected: int) -> str:
    return f"{actual} values, the header has {expected}"


def _row_by_row(lines: bytes, names: list[str], separator: str, is_last: bool) -> tuple[pa.Table, Errors, bytes]:
    """Return lines in which a quotation mark is open at the end of one, and those of a row that is not all there.

    A value in quotation marks may have several lines; where they are not closed, that line alone is no row.
    """
    rows: list[list[str]] = []
    errors: Errors = {}
    text, at = lines.decode().split("\n"), 0
    while at < len(text):
        if not text[at].strip("\r"):
            at += 1
            continue
        some = [f"{line}\n" for line in text[at : at + _MOST_LINES]]
        reader = csv.reader(some, delimiter=separator, strict=some[0].count('"') % 2 == 1)
        try:
            values = next(reader)
        except csv.Error as error:
            if len(some) < _MOST_LINES and not is_last and "unexpected end" in str(error):
                break
            errors[len(rows)], values = "a quotation mark is not closed on its line", []
        else:
            if len(values) != len(names):
                errors[len(rows)] = _ragged(len(values), len(names))
        at += 1 if len(rows) in errors else reader.line_num
        rows.append([""] * len(names) if len(rows) in errors else values)
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    table = pa.table([pa.array(column, pa.string()) for column in columns], names=names)
    return table, errors, "\n".join(text[at:]).encode()


def _decoded(text: bytes, name: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = text[error.start]
        raise DataFileError(
            name,
            f"this is not text in UTF-8 (byte 0x{byte:02x}); save it in UTF-8, or name its encoding: "
            "--encoding latin-1, or --encoding cp1252",
        ) from None


def _header(line: str, separator: str, name: str) -> tuple[list[str], str]:
    line = line.rstrip("\r")
    outside = re.sub(r'"[^"]*"', "", line)
    separator = separator or max(_SEPARATORS, key=outside.count)
    found = next(csv.reader(line.splitlines(keepends=True), delimiter=separator))
    names = [re.sub(r"\s*[\r\n]+\s*", " ", one).strip() for one in found]
    if names and not names[-1] and len(names) > 1 and names.count("") == 1 and outside.endswith(separator):
        raise DataFileError(
            name, f"the header ends in {separator!r}: column {len(names)} has no name; name or remove it"
        )
    check_names(names, name)
    if all(_NUMBER.match(one) for one in names):
        raise DataFileError(name, f"the first line ({line[:40]!r}) has numbers where names of columns are needed")
    return names, separator


def check_names(names: list[str], source: str) -> None:
    """Say what is wrong with the names of columns: too many, one that is empty, one that stands twice."""
    if len(names) > MAX_COLUMNS:
        raise DataFileError(source, _too_many(len(names)))
    if "" in names:
        raise DataFileError(
            source,
            f"column {names.index('') + 1} has no name; name it, or, if it counts the rows, write the table without "
            "it (in pandas: index=False)",
        )
    if twice := [one for one, count in Counter(names).items() if count > 1]:
        raise DataFileError(source, f"there are two columns {twice[0]!r}; give each a name of its own")


def _with_empty_rows(table: pa.Table, places: list[int]) -> pa.Table:
    """Return a table with an empty row at each place, so that rows keep their numbers."""
    if not places:
        return table
    is_row = np.ones(table.num_rows + len(places), bool)
    is_row[places] = False
    order = np.cumsum(is_row) - 1
    return table.take(pa.array(order, mask=~is_row))


def _json_lines(start: bytes, more: Iterator[bytes], name: str) -> Tables:
    for lines in _chained(start, more):
        try:
            table = _as_written(lines)
        except (pa.ArrowException, UnicodeDecodeError):
            table = None
        if table is None or not _has_all_lines(table.num_rows, lines):
            yield _objects(_decoded(lines, name))
        else:
            yield table.rename_columns([one.strip() for one in table.column_names]), {}


def _as_written(lines: bytes) -> pa.Table:
    """Return JSON lines as a table, dates as text: what a word is must not depend on the words in its block."""
    options = pa_json.ReadOptions(use_threads=False)
    table = pa_json.read_json(pa.BufferReader(lines), options)
    dates = [pa.field(one.name, pa.string()) for one in table.schema if pa.types.is_temporal(one.type)]
    if not dates:
        return table
    parse = pa_json.ParseOptions(explicit_schema=pa.schema(dates))
    return pa_json.read_json(pa.BufferReader(lines), options, parse).select(table.column_names)


def _objects(lines: str) -> tuple[pa.Table, Errors]:
    """Return lines one by one: a line that is no object spoils no other, and a column may hold numbers and words."""
    decode = msgspec.json.Decoder(dict[str, object]).decode
    rows: list[dict[str, object]] = []
    errors: Errors = {}
    for line in lines.split("\n"):
        if not line.strip():
            continue
        try:
            rows.append(decode(line))
        except msgspec.DecodeError as error:
            errors[len(rows)] = f"no JSON object ({error})"
            rows.append({})
    names = list(dict.fromkeys(key for row in rows for key in row))
    columns = [_column([row.get(key) for row in rows]) for key in names]
    if not columns:
        return pa.table({"": pa.nulls(len(rows))}), errors
    return pa.table(columns, names=[key.strip() for key in names]), errors


def _column(values: list[object]) -> pa.Array:
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())  # type: ignore[arg-type]
    return pa.array([_as_text(value) for value in values], pa.string())


def _as_text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")
