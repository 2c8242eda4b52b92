"""CSV files as columns: separator and decimal point found out, read by pyarrow block by block."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tolfl.datasets.loaders.files import is_gzip, unreadable
from tolfl.datasets.loaders.problems import DataFileError

_SEPARATORS = (",", ";", "\t")
_SAMPLE_BYTES = 64 * 1024
#: A line must fit into a block; tables with thousands of columns have long lines.
_BLOCK_BYTES = 8 * 1024 * 1024
_Options = tuple[pa_csv.ReadOptions, pa_csv.ParseOptions, pa_csv.ConvertOptions]
#: pyarrow's words; its callback for such rows falls over where they are not UTF-8. The header is row 1.
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_DECIMAL_COMMA = re.compile(r"^[+-]?\d+,\d+$")
_NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")


def read_csv(path: Path) -> pa.Table:
    """Return a CSV file (also gzip) as a table with a type for each column, found from all of its values."""
    separator, decimal_point = _dialect(path)
    options = (
        # One thread: it is no slower for our files, and only then does pyarrow know the row of an error.
        pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
        pa_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        pa_csv.ConvertOptions(strings_can_be_null=True, decimal_point=decimal_point),
    )
    try:
        table = _read_as_it_begins(path, options) or _read_twice(path, options)
        _refuse_open_quotes(path, table)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise DataFileError(path, _said(problem)) from None
    return table


def _refuse_open_quotes(path: Path, table: pa.Table) -> None:
    # A quotation mark that is never closed swallows all rows up to the next one, without any error.
    for number, column in enumerate(table.columns):
        if pa.types.is_string(column.type) and pc.any(pc.match_substring(column, "\n")).as_py():
            row = pc.index(pc.match_substring(column, "\n"), True).as_py()
            raise DataFileError(
                path,
                f"data row {row + 1}: the value in column {number + 1} goes over several lines; is a quotation mark "
                "missing?",
            )


def _read_as_it_begins(path: Path, options: _Options) -> pa.Table | None:
    """Return a table whose types are those of the first block, without ever holding the text; None if they change."""
    try:
        with _stream(path) as stream, pa_csv.open_csv(stream, *options) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError):
        return None


def _read_twice(path: Path, options: _Options) -> pa.Table:
    """Return a table whose types fit all values; the text is held until the last one is seen."""
    with _stream(path) as stream:
        return pa_csv.read_csv(stream, *options)


def _said(problem: Exception) -> str:
    if isinstance(problem, UnicodeDecodeError):
        return "the header is not text in UTF-8; save the table as CSV in UTF-8"
    text = " ".join(str(problem).split())
    if ragged := _RAGGED.search(text):
        row, expected, actual = (int(number) for number in ragged.groups())
        return f"data row {row - 1} has {actual} values, the header {expected}; correct the row"
    if "cannot infer number of columns" in text:
        return "there is no row of data below the header; remove the file or fill it"
    return f"cannot be read as CSV ({text}); check that it is CSV in UTF-8, whole and not damaged"


def _stream(path: Path) -> pa.NativeFile:
    return pa.input_stream(str(path), compression="gzip" if is_gzip(path) else None)


def _dialect(path: Path) -> tuple[str, str]:
    """Return separator and decimal point, from the beginning of the file."""
    try:
        with _stream(path) as stream:
            sample = stream.read(_SAMPLE_BYTES)
    except OSError as problem:
        if is_gzip(path):
            raise DataFileError(path, "the gzip file is damaged or cut short; get it again") from None
        raise unreadable(path, problem) from None
    if not sample.strip():
        raise DataFileError(path, "the file is empty; remove it or fill it")
    if b"\0" in sample:
        raise DataFileError(path, "this is not text in UTF-8; save the table as CSV in UTF-8")
    header, *rest = sample.decode("utf-8", "replace").lstrip("\ufeff").strip("\r\n").splitlines()
    plain = re.sub(r'"[^"]*"', "", header)
    separator = max(_SEPARATORS, key=plain.count)
    names = [name.strip().strip('"') for name in header.split(separator)]
    if all(_NUMBER.match(name) for name in names):
        raise DataFileError(path, f"the first line ({header[:40]!r}) has numbers where names of columns are needed")
    cells = (cell.strip() for line in rest for cell in line.split(separator))
    has_comma = separator != "," and any(_DECIMAL_COMMA.match(cell) for cell in cells)
    return separator, "," if has_comma else "."
