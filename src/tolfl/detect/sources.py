"""Where rows come from: tables, JSON lines, NumPy files, captures, recordings, a folder with one per device, a pipe."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from tolfl.core.errors import DataError
from tolfl.datasets.loaders.arrays import read_arrays
from tolfl.datasets.loaders.files import is_gzip, unreadable
from tolfl.datasets.loaders.folders import by_device, device_files, kind_of
from tolfl.datasets.loaders.problems import DataFileError, MissingDataError
from tolfl.detect.capture_source import capture_tables, tables_of_captures
from tolfl.detect.matching import as_column
from tolfl.detect.recording_source import recording_tables
from tolfl.detect.streams import ColumnRoles, Reader, Table

STDIN = "standard input"
ROWS_AT_ONCE = 8192
_BLOCK_BYTES = 256 * 1024  #: pyarrow reads several ahead
_PIPE_BYTES = 256 * 1024
_JSON_LINES = (".jsonl", ".ndjson", ".jsonlines")
_SEPARATORS = (",", ";", "\t")
_DECIMAL_COMMA = re.compile(r"^[+-]?\d+,\d+$")


def tables_in(path: Path, reader: Reader) -> Iterator[Table]:
    """Yield the rows of a file or of a folder, a block at a time."""
    path = path.expanduser()
    if not path.exists():
        raise MissingDataError(f"{path}: no such file or folder; check the path")
    if not path.is_dir():
        yield from _tables_of(path, reader)
        return
    for owner, files in by_device(device_files(path)):
        if len(files) == 1:
            yield from _tables_of(files[0], reader, owner)
        else:
            yield from tables_of_captures(files, reader, owner)


def tables_from(stream: BinaryIO, name: str = STDIN) -> Iterator[Table]:
    """Yield rows of CSV or JSON lines as soon as they are there; which of the two it is the first line says."""
    first, header = 0, ""
    parse: Callable[[list[str]], Table] | None = None
    for lines in _lines_as_they_come(stream, name):
        if parse is None:
            header, lines = lines[0], lines[1:]  # noqa: PLW2901  (the header is no row)
            if header.lstrip().startswith("{"):
                lines.insert(0, header)
                parse = _json_parser(name)
            else:
                parse = _csv_parser(name, header)
        if lines:
            table = parse(lines)
            yield replace(table, first=first)
            first += len(lines)


def is_json_lines(path: Path) -> bool:
    """Tell whether a file holds JSON lines by its name."""
    return path.suffix.lower() in _JSON_LINES


def _tables_of(path: Path, reader: Reader, owner: str = "") -> Iterator[Table]:
    if is_json_lines(path):
        with _opened(path) as file:
            for table in tables_from(file, path.name):
                yield replace(table, owner=owner)
        return
    yield from _BY_KIND[kind_of(path)](path, reader, owner)


# -- files ------------------------------------------------------------------------------------------------------------


def _csv_tables(path: Path, reader: Reader, owner: str) -> Iterator[Table]:
    header, separator, decimal_point = _dialect(path)
    needed = reader.needed(header)
    read = pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=header, skip_rows=1)
    # As words: one that is no number must not stop the file, and the first block does not know what the last one holds.
    convert = pa_csv.ConvertOptions(
        include_columns=list(needed), column_types=dict.fromkeys(needed, pa.string()), strings_can_be_null=True
    )
    parse = pa_csv.ParseOptions(delimiter=separator, newlines_in_values=False)
    first = 0
    try:
        with _stream(path) as stream, pa_csv.open_csv(stream, read, parse, convert) as batches:
            for batch in batches:
                columns = {name: pa.chunked_array([batch.column(place)]) for place, name in enumerate(needed)}
                others = {name: pa.nulls(batch.num_rows) for name in header if name not in columns}
                yield Table({**columns, **others}, first, path.name, owner, decimal_point)
                first += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        # A row with too few values, say: pyarrow gives up on the file, line by line all others can be scored.
        yield from _line_by_line(path, owner, first)


def _line_by_line(path: Path, owner: str, n_known: int) -> Iterator[Table]:
    """Yield the rows of a CSV file after those that are known already."""
    try:
        with _stream(path) as stream:
            for table in tables_from(stream, path.name):
                skipped = max(0, n_known - table.first)
                if skipped < table.n_rows:
                    columns = {name: column.slice(skipped) for name, column in table.columns.items()}
                    problems = {row - skipped: text for row, text in table.problems.items() if row >= skipped}
                    yield replace(table, columns=columns, first=table.first + skipped, owner=owner, problems=problems)
    except (pa.ArrowException, OSError) as problem:
        text = " ".join(str(problem).split())
        raise DataFileError(path, f"cannot be read as CSV ({text}); check that it is whole and not damaged") from None


def _parquet_tables(path: Path, reader: Reader, owner: str) -> Iterator[Table]:
    try:
        with pa_parquet.ParquetFile(str(path)) as file:
            names = file.schema_arrow.names
            needed = list(reader.needed([name for name in names if not name.startswith("__index_level_")]))
            first = 0
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=needed, use_threads=False):
                columns = {name: pa.chunked_array([batch.column(name)]) for name in needed}
                others = {name: pa.nulls(batch.num_rows) for name in names if name not in columns}
                yield Table({**columns, **others}, first, path.name, owner)
                first += batch.num_rows
    except DataError:
        raise
    except PermissionError as problem:
        raise unreadable(path, problem) from None
    except (pa.ArrowException, OSError, ValueError) as problem:
        text = " ".join(str(problem).split())
        raise DataFileError(path, f"cannot be read as Parquet ({text}); check that it is whole") from None


def _array_tables(path: Path, reader: Reader, owner: str) -> Iterator[Table]:
    """Yield the samples of a NumPy file by place: arrays have no names."""
    roles = reader.roles
    raw = read_arrays(path, roles.device, roles.label, roles.time)
    names = reader.feature_names
    if raw.samples.ndim != 2 or raw.samples.shape[1] != len(names):
        shape = raw.samples.shape[1:]
        raise DataFileError(path, f"samples of shape {shape}, but the detector was trained on {len(names)} features")
    samples = raw.samples.astype(np.float64)
    if raw.missing is not None:
        samples[raw.missing] = np.nan
    beside = {roles.device: raw.owners, roles.label: raw.labels, roles.time: raw.times}
    for first in range(0, len(samples), ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        arrays = dict(zip(names, samples[rows].T, strict=True))
        arrays |= {name: array[rows] for name, array in beside.items() if name and array is not None}
        columns = {name: pa.chunked_array([pa.array(array, from_pandas=True)]) for name, array in arrays.items()}
        yield Table(columns, first, path.name, owner)


def _dialect(path: Path) -> tuple[list[str], str, str]:
    """Return names, separator and decimal point, from the beginning of a CSV file."""
    try:
        with _stream(path) as stream:
            sample: bytes = stream.read(_PIPE_BYTES)
    except OSError as problem:
        raise unreadable(path, problem) from None
    lines = sample.decode("utf-8", "replace").lstrip("\ufeff").splitlines()
    if not lines or not lines[0].strip():
        raise DataFileError(path, "the file is empty; there is nothing to score")
    names, separator = _header(lines[0])
    return names, separator, _decimal_point(separator, lines[1:20])


def _stream(path: Path) -> pa.NativeFile:
    return pa.input_stream(str(path), compression="gzip" if is_gzip(path) else None)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as problem:
        raise unreadable(path, problem) from None


# -- pipes ------------------------------------------------------------------------------------------------------------


def _lines_as_they_come(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """Yield whole lines, as many as there are; an end without a line's end is a line, too."""
    read = getattr(stream, "read1", stream.read)
    rest = b""
    while block := read(_PIPE_BYTES):
        *whole, rest = (rest + block).split(b"\n")
        if lines := _texts(whole, name):
            yield lines
    if lines := _texts([rest], name):
        yield lines


def _texts(lines: Sequence[bytes], name: str) -> list[str]:
    try:
        return [text for line in lines if (text := line.decode("utf-8").lstrip("\ufeff").rstrip("\r")).strip()]
    except UnicodeDecodeError:
        raise DataError(f"{name}: this is not text in UTF-8; send CSV or JSON lines in UTF-8") from None


def _csv_parser(name: str, header: str) -> Callable[[list[str]], Table]:
    names, separator = _header(header)
    point: list[str] = []

    def parse(lines: list[str]) -> Table:
        if not point:
            point.append(_decimal_point(separator, lines[:20]))
        rows, problems = [], {}
        for place, line in enumerate(lines):
            values = next(csv.reader([line], delimiter=separator))
            if len(values) != len(names):
                problems[place] = f"{len(values)} values, the header has {len(names)}"
                values = [""] * len(names)
            rows.append(values)
        columns = {
            column: pa.chunked_array([pa.array(values, pa.string())])
            for column, values in zip(names, zip(*rows, strict=True), strict=True)
        }
        return Table(columns, 0, name, "", point[0], problems)

    return parse


def _json_parser(name: str) -> Callable[[list[str]], Table]:
    decode = msgspec.json.Decoder(dict[str, object]).decode
    names: dict[str, None] = {}

    def parse(lines: list[str]) -> Table:
        rows: list[dict[str, object]] = []
        problems = {}
        for place, line in enumerate(lines):
            try:
                rows.append(decode(line))
            except msgspec.DecodeError as error:
                problems[place] = f"no JSON object ({error})"
                rows.append({})
        for row in rows:
            names.update(dict.fromkeys(row))
        columns = {key: as_column([row.get(key) for row in rows]) for key in names or {"": None}}
        return Table(columns, 0, name, problems=problems, is_ragged=True)

    return parse


def _header(line: str) -> tuple[list[str], str]:
    plain = re.sub(r'"[^"]*"', "", line)
    separator = max(_SEPARATORS, key=plain.count)
    names = [name.strip() for name in next(csv.reader([line.rstrip("\r\n")], delimiter=separator))]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or "" in names:
        problem = f"there are two columns {twice[0]!r}" if twice else f"column {names.index('') + 1} has no name"
        raise DataError(f"the header: {problem}; give each a name of its own")
    return names, separator


def _decimal_point(separator: str, lines: Sequence[str]) -> str:
    cells = (cell.strip() for line in lines for cell in line.split(separator))
    return "," if separator != "," and any(_DECIMAL_COMMA.match(cell) for cell in cells) else "."


def roles_in(path: Path | None, roles: ColumnRoles) -> ColumnRoles:
    """Return the roles of a NumPy file's arrays, which have usual names; of anything else, as they were given."""
    if path is None or not path.is_file() or is_json_lines(path) or kind_of(path) != "npz":
        return roles
    with np.load(path, allow_pickle=False) as arrays:
        there = set(arrays.files)
    usual = {"device": "device", "label": "y", "time": "time"}
    given = {"device": roles.device, "label": roles.label, "time": roles.time}
    return ColumnRoles(**{role: given[role] or (usual[role] if usual[role] in there else "") for role in usual})


#: Who reads which kind of file; the kinds are those of `kind_of`.
_BY_KIND: dict[str, Callable[[Path, Reader, str], Iterator[Table]]] = {
    "csv": _csv_tables,
    "parquet": _parquet_tables,
    "npz": _array_tables,
    "npy": _array_tables,
    "capture": capture_tables,
    "recording": recording_tables,
}
