"""Tables as files and frames have them: CSV, JSON lines, Parquet, Arrow, a block of rows at a time; of CSV, text."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from tolfl.core.errors import DataError, DataFileError
from tolfl.tables.block_reader import BLOCK_BYTES, STDIN_NAME, Errors, check_names, said

_BATCH_ROWS = 8192
_MOST_LINES = 100  #: of one row, in quotation marks
_SEPARATORS = (",", ";", "\t", "|")
_QUOTED = re.compile(r'"[^"]*"')
_NUMBER = re.compile(r"^[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?$")
_INDEX = re.compile(r"__index_level_\d+__")  #: pandas' numbers of rows: no data
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

Tables = Iterator[tuple[pa.Table, Errors]]


def tables_in(stream: BinaryIO, name: str, encoding: str) -> tuple[Tables, bool]:
    """Return the tables of a stream, the lines of each that are no row, and whether rows have columns of their own."""
    begin = stream.peek(8)[:8]  # type: ignore[attr-defined]
    if begin.startswith(b"PAR1"):
        return _parquet(seekable(stream)), False
    if begin.startswith(b"ARROW1"):
        return _arrow_file(seekable(stream)), False
    if begin.startswith(b"\xff\xff\xff\xff"):
        batches = pa.ipc.open_stream(stream)
        return ((_without_index(pa.Table.from_batches([batch])), {}) for batch in batches), False
    # A byte order mark overrides the given encoding.
    mark = "utf-16" if begin.startswith(_UTF16) else "utf-8" if begin.startswith(codecs.BOM_UTF8) else ""
    return _text(stream, name, mark or encoding)


def table_of(X: object) -> pa.Table:
    """Return a frame (pandas, polars, Arrow) as a table."""
    if len(shape := getattr(X, "shape", (0, 0))) != 2:  # a column of a frame
        raise DataError(f"X has shape {shape}; give one row per sample, even for a single one")
    if hasattr(X, "items"):  # of pandas, where a name may be anything, and be there twice
        check_names([str(one) for one in X.columns], "X")  # type: ignore[attr-defined]
    try:
        return _without_index(_converted(X))
    except (pa.ArrowException, TypeError, ValueError) as problem:
        raise DataError(f"X cannot be read as a table: {said(problem)}") from None


def _converted(frame: Any) -> pa.Table:
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


def unpacked(stream: BinaryIO, kind: str) -> io.BufferedReader:
    """Return what is in a stream that is packed with gzip or zstd."""
    return io.BufferedReader(_Unpacked(pa.CompressedInputStream(stream, kind)), BLOCK_BYTES)


def seekable(stream: BinaryIO) -> BinaryIO:
    """Return a stream in which one can go back."""
    return stream if stream.seekable() else io.BytesIO(stream.read())


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
    """Return a table without pandas' numbers of rows, its names without blanks around them."""
    table.validate(full=True)  # text of a damaged file need not be UTF-8
    table = table.drop_columns([name for name in table.column_names if _INDEX.fullmatch(name)])
    return table.rename_columns([name.strip() for name in table.column_names])


# -- text -------------------------------------------------------------------------------------------------------------


def _text(stream: BinaryIO, name: str, encoding: str) -> tuple[Tables, bool]:
    if encoding and codecs_name(encoding) != "utf-8":
        stream = io.BufferedReader(_Unpacked(pa.transcoding_input_stream(pa.PythonFile(stream), encoding, "utf-8")))
    lines = _whole_lines(stream)
    start = next(lines, b"").removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    if not start.strip():
        if name == STDIN_NAME:
            return iter(()), False
        raise DataFileError(name, "the file is empty; remove it or fill it")
    if b"\0" in start[:4096]:
        for first, which in ((1, "le"), (0, "be")):
            if start[first:200:2].count(0) > len(start[:200]) // 4:
                raise DataFileError(name, f"this looks like UTF-16; name its encoding: --encoding utf-16-{which}")
        raise DataFileError(name, "this is no table that can be read: CSV, JSON lines, Parquet, Arrow, NPZ or NPY")
    if start.startswith(b"["):
        raise DataFileError(name, "this is one JSON array; write one object per line (JSON lines)")
    if start.startswith(b"{"):
        return _json_lines(start, lines, name), True
    return _csv(start, lines, name), False


def codecs_name(encoding: str) -> str:
    """Return an encoding's usual name; raise an error for an unknown one."""
    try:
        return codecs.lookup(encoding).name
    except LookupError:
        raise DataError(f"--encoding {encoding}: there is no such encoding; usual are utf-8, latin-1, cp1252") from None


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield what has arrived up to the last newline: a pipe is answered as it comes, a file in blocks."""
    read, rest = getattr(stream, "read1", stream.read), b""
    while chunk := read(BLOCK_BYTES):
        lines, end, rest = (rest + chunk).rpartition(b"\n")
        if end:
            yield lines + end
    if rest.strip():
        yield rest


def _csv(start: bytes, more: Iterator[bytes], name: str) -> Tables:
    header, rest = _first_line(start, more)
    separator = ""
    if found := re.fullmatch(rb'"?sep=(.)"?\r?', header):  # a spreadsheet's separator line
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
    separator = separator or _separator_of(text, first_row)
    names = _header(text, separator, name)
    read = pa_csv.ReadOptions(column_names=names, use_threads=False, block_size=8 * BLOCK_BYTES + len(header))
    convert = pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    is_narrow = len(names) == 1  # then a blank line may be a missing value
    parse_options = {"delimiter": separator, "ignore_empty_lines": not is_narrow}
    if not rest:
        yield pa.table({one: pa.array([], pa.string()) for one in names}), {}

    def parsed(lines: bytes) -> tuple[pa.Table | None, Errors]:
        errors: Errors = {}

        def keep_place(row: pa_csv.InvalidRow) -> str:
            errors[row.number - 1] = _ragged(row.actual_columns, row.expected_columns)
            return "skip"

        parse = pa_csv.ParseOptions(invalid_row_handler=keep_place, **parse_options)
        try:
            return pa_csv.read_csv(pa.BufferReader(lines), read, parse, convert), errors
        except pa.ArrowInvalid:
            return None, errors

    begun = b""  #: a row that goes on in the lines to come
    for some in itertools.chain(_chained(rest, more), (b"",)):
        is_last, lines = not some, begun + some
        begun = b""
        if not lines:
            continue
        if not lines.isascii():
            _decoded(lines, name)
        table, errors = parsed(lines)
        if errors and not is_narrow:  # a line of blanks alone is a blank line
            lines = re.sub(rb"(?m)^ +(?=\r?$)", b"", lines)
            table, errors = parsed(lines)
        is_open = b'"' in lines and any(line.count(b'"') % 2 for line in lines.split(b"\n"))
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


def _separator_of(header: str, row: str) -> str:
    """Return what separates values: as often in the header as in the first row, where there is such a one."""
    header, row = (re.sub(_QUOTED, "", line) for line in (header, row))
    if 0 < header.count(";") == row.count(";"):
        row = re.sub(r"(?<=\d),(?=\d)", "", row)  # those of decimals
    return max(_SEPARATORS, key=lambda one: (0 < header.count(one) == row.count(one), header.count(one)))


def _header(line: str, separator: str, name: str) -> list[str]:
    line = line.rstrip("\r")
    outside = re.sub(_QUOTED, "", line)
    found = next(csv.reader(line.splitlines(keepends=True), delimiter=separator))
    names = [re.sub(r"\s*[\r\n]+\s*", " ", one).strip() for one in found]
    if names and not names[-1] and len(names) > 1 and names.count("") == 1 and outside.endswith(separator):
        raise DataFileError(
            name, f"the header ends in {separator!r}: column {len(names)} has no name; name or remove it"
        )
    check_names(names, name)
    if all(_NUMBER.match(one) for one in names):
        raise DataFileError(name, f"the first line ({line[:40]!r}) has numbers where names of columns are needed")
    return names


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
    """Return lines one by one: a bad line does not affect others, and a column may hold numbers and words."""
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
