"""One column of a table as numbers, as names or as seconds; what does not fit is refused with its row."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tolfl.datasets.loaders.problems import DataFileError
from tolfl.datasets.loaders.rows import Rows

Column: TypeAlias = pa.ChunkedArray
Numbers = NDArray[np.float64]

_NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SECONDS_PER_DAY = 86_400


def plain(column: Column) -> Column:
    """Return a column without encodings that only save space: dictionaries, long or short offsets, decimals."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(column.cast(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    return column


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column holds words."""
    return bool(pa.types.is_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """Tell whether a column holds numbers, or true and false."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def numbers(rows: Rows, name: str, column: Column) -> Numbers:
    """Return the values of a column of numbers; NaN where one is missing."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    values: Numbers = column.cast(pa.float64(), safe=False).to_numpy()
    with np.errstate(over="ignore"):
        is_infinite = np.isinf(values.astype(np.float32))
    if is_infinite.any():
        row = int(np.argmax(is_infinite))
        problem = "is infinite" if np.isinf(values[row]) else f"is {values[row]:g}, too large for single precision"
        raise rows.error(row, f"the value in column {name!r} {problem}; correct it or leave it empty")
    return values


def words(column: Column) -> Column:
    """Return a column of words without blanks around them; what is left without a letter is missing."""
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), None, trimmed)


def numbers_in_words(rows: Rows, name: str, column: Column) -> Column | None:
    """Return a column of words as numbers if they are, None if they are not; a mixture is refused."""
    is_digits = pc.match_substring_regex(column, _NUMBER)
    n_numbers, n_values = pc.sum(is_digits).as_py() or 0, len(column) - column.null_count
    if n_numbers == n_values:
        return column.cast(pa.float64())
    if 2 * n_numbers < n_values:
        return None
    row = pc.index(is_digits, False).as_py()
    raise rows.error(
        row,
        f"{column[row].as_py()!r} is text, but column {name!r} holds numbers; correct it or leave it empty (missing)",
    )


def names(rows: Rows, name: str, column: Column) -> NDArray[np.str_]:
    """Return the values of a column as names: whole numbers without a point, truth as `true` and `false`."""
    if is_text(column.type):
        column = words(column)
    elif pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    elif not is_number(column.type) and not pa.types.is_temporal(column.type) and column.null_count < len(column):
        raise DataFileError(rows.path, f"column {name!r} holds {column.type}, which cannot be names; convert it")
    _refuse_missing(rows, name, column)
    encoded = pc.unique(column)
    texts = np.array([_name_of(value) for value in encoded.to_pylist()], dtype=np.str_)
    places: NDArray[np.int64] = pc.index_in(column, encoded).to_numpy()
    return texts[places]


def seconds(rows: Rows, name: str, column: Column) -> Numbers:
    """Return the values of a column as seconds, dates since 1970; numbers stay as they are."""
    if is_text(column.type):
        column = _times_in_words(rows, name, words(column))
    kind = column.type
    if is_number(kind):
        values = numbers(rows, name, column)
        if np.isnan(values).any():
            raise _missing(rows, name, int(np.argmax(np.isnan(values))))
        return values
    _refuse_missing(rows, name, column)
    if pa.types.is_date(kind):
        days: Numbers = column.cast(pa.date32()).cast(pa.int32()).to_numpy().astype(np.float64)
        return days * _SECONDS_PER_DAY
    if not pa.types.is_temporal(kind) or pa.types.is_interval(kind):
        raise DataFileError(rows.path, f"column {name!r} holds {kind}, which is no time; convert it")
    ticks = column.cast(pa.int32()) if pa.types.is_time32(kind) else column
    counts: Numbers = ticks.cast(pa.int64()).to_numpy().astype(np.float64)
    return counts / _PER_SECOND[kind.unit]


def _times_in_words(rows: Rows, name: str, column: Column) -> Column:
    for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            last = kind
    for row, value in enumerate(column.to_pylist()):
        try:
            pa.array([value], pa.string()).cast(last)
        except pa.ArrowInvalid:
            raise rows.error(
                row, f"{value!r} in column {name!r} is no time; write 2024-01-31 12:00:00 or seconds"
            ) from None
    raise DataFileError(rows.path, f"column {name!r} mixes times with and without a zone; write all in one way")


def _refuse_missing(rows: Rows, name: str, column: Column) -> None:
    if column.null_count:
        raise _missing(rows, name, pc.index(pc.is_null(column), True).as_py())


def _missing(rows: Rows, name: str, row: int) -> DataFileError:
    return rows.error(row, f"column {name!r} is empty; fill it in, or leave out the row")


def _name_of(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
