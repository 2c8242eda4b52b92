"""One column of a table as numbers, as words, as names or as seconds, whatever type it comes in."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from tolfl.tables.schema import N_COUNTS, N_HASHES

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Words for "no value", in whatever column.
MISSING = pa.array(sorted({*pa_csv.ConvertOptions().null_values, "None", "none", "NONE", "-", "?"}))

NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
#: With a decimal comma for certain: 1,234 may be a thousand, 0,234 and 1234,5 and 1.234,5 may not.
COMMA_NUMBER = (
    r"^[+-]?([0-9]{1,3}([. '\x{a0}\x{202f}][0-9]{3})+,[0-9]+|0,[0-9]+|[0-9]{4,},[0-9]+|[0-9]+,([0-9]{1,2}|[0-9]{4,}))$"
)
_GROUPED = {  #: thousands: with decimals behind them, or twice; with a comma that is certain, once will do
    ".": r"^[+-]?[0-9]{1,3}(([, '\x{a0}\x{202f}][0-9]{3})+[.][0-9]+|([, '\x{a0}\x{202f}][0-9]{3}){2,})$",
    ",": r"^[+-]?[0-9]{1,3}([. '\x{a0}\x{202f}][0-9]{3})+(,[0-9]+)?$",
}
_TIME = (
    r"^([0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}|[0-9]{4}/[0-9]{1,2}/[0-9]{1,2})"
    r"([ T][0-9]{1,2}:[0-9]{2}.*)?$|^[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?$"
)
_TIME_OF_DAY = r"^[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?$"
_NOT_FINITE = "^[+-]?(?i:inf(inity)?|nan)$"
_FLAGS = pa.array(["false", "true"])
_GROUPING = {".": r"[, '\x{a0}\x{202f}]", ",": r"[. '\x{a0}\x{202f}]"}
_TIME_TYPES = (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column holds words."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Tell whether a column holds numbers, or true and false."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array, without the encodings that only save space."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        return plain(array.cast(array.type.value_type))
    return array.cast(pa.string()) if is_text(array.type) and not pa.types.is_string(array.type) else array


def words(array: pa.Array) -> pa.Array:
    """Return text without blanks around it, null where a value is missing; other types as text."""
    if not is_text(array.type):
        if pa.types.is_floating(array.type):
            return pa.array([None if text is None or text == "nan" else text.removesuffix(".0")
                             for text in array.cast(pa.string()).to_pylist()], pa.string())  # fmt: skip
        return array.cast(pa.string())
    text = pc.utf8_trim_whitespace(array)
    return pc.if_else(pc.is_in(text, MISSING), None, text)


def numbers(array: pa.Array, decimal: str = ".") -> tuple[Floats, Flags]:
    """Return values as numbers, NaN where one is missing, and which are none at all; true and false are 1 and 0.

    A decimal comma is seen from the values; `decimal` says what is meant where they leave it open, as 1,234 does.

    >>> numbers(pa.array(["1.5", " NA ", "true", "many"]))[0].tolist()
    [1.5, nan, 1.0, nan]
    """
    n_rows, kind = len(array), array.type
    nothing = np.zeros(n_rows, bool)
    if pa.types.is_null(kind):
        return np.full(n_rows, np.nan), nothing
    if is_number(kind):
        if pa.types.is_boolean(kind):
            array = array.cast(pa.uint8())
        return array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), nothing
    if not is_text(kind):
        return np.full(n_rows, np.nan), ~array.is_null().to_numpy(zero_copy_only=False)
    try:  # nothing but numbers: no need to look for blanks, markers and flags
        return array.cast(pa.float64()).to_numpy(zero_copy_only=False), nothing
    except pa.ArrowInvalid:
        text = words(array)
    has_comma = pc.any(pc.match_substring_regex(text, COMMA_NUMBER)).as_py()
    text = _as_digits(text, "," if has_comma else decimal)
    try:
        return text.cast(pa.float64()).to_numpy(zero_copy_only=False), nothing
    except pa.ArrowInvalid:
        is_digits = pc.fill_null(pc.match_substring_regex(text, NUMBER), True)
        is_digits = pc.or_(
            is_digits, pc.fill_null(pc.match_substring_regex(text, "^[+-]?(?i:inf(inity)?|nan)$"), False)
        )
        values = pc.if_else(is_digits, text, None).cast(pa.float64())
        return values.to_numpy(zero_copy_only=False), ~is_digits.to_numpy(zero_copy_only=False)


def _as_digits(text: pa.Array, decimal: str) -> pa.Array:
    """Return numbers as a computer writes them: no groups of three, a point for the decimals, 1 and 0 for flags."""
    is_grouped = pc.match_substring_regex(text, _GROUPED[decimal])
    if pc.any(is_grouped).as_py():
        bare = pc.replace_substring_regex(
            text, r"[. '\x{a0}\x{202f}]" if decimal == "," else r"[, '\x{a0}\x{202f}]", ""
        )
        text = pc.if_else(is_grouped, bare, text)
    if decimal == ",":
        text = pc.replace_substring(text, ",", ".")
    return pc.coalesce(pc.index_in(pc.utf8_lower(text), _FLAGS).cast(pa.string()), text)


def count(mask: pa.Array) -> int:
    """Return how many are true."""
    return pc.sum(mask).as_py() or 0


def are_times(text: pa.Array) -> pa.Array:
    """Return which words are dates or times."""
    return pc.match_substring_regex(text, _TIME)


def hashed(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two hash values of each word, below `N_HASHES` and below `N_COUNTS`; -1 where it is missing."""
    encoded = words(array).dictionary_encode()
    known = [text.encode() for text in encoded.dictionary.to_pylist()]
    columns = np.array([crc32(text) % N_HASHES for text in known] + [-1], np.int64)
    counted = np.array([crc32(text) // N_HASHES % N_COUNTS for text in known] + [-1], np.int64)
    places = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    return columns[places], counted[places]


def names(array: pa.Array) -> tuple[NDArray[np.str_], Flags]:
    """Return values as names, whole numbers without a point, and which are missing."""
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        array = words(array.cast(pa.float64()))
    elif pa.types.is_temporal(array.type):
        array = pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string())
    encoded = words(array).dictionary_encode()
    texts = np.array([*encoded.dictionary.to_pylist(), ""], dtype=str)
    is_missing = encoded.indices.is_null().to_numpy(zero_copy_only=False)
    return texts[encoded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)], is_missing


def seconds(array: pa.Array) -> tuple[Floats, Flags]:
    """Return values as seconds, dates since 1970, numbers as they are; and which are no time."""
    kind = array.type
    if pa.types.is_date(kind):
        array, kind = array.cast(pa.timestamp("s")), pa.timestamp("s")
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        whole = array.cast(pa.int32()) if pa.types.is_time32(kind) else array
        ticks = whole.cast(pa.int64()).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return ticks / _PER_SECOND[kind.unit], np.isnan(ticks)
    if not is_text(kind):
        values, is_bad = numbers(array)
        return values, is_bad | ~np.isfinite(values)
    text = words(array)
    is_of_day = pc.match_substring_regex(text, _TIME_OF_DAY)
    text = pc.if_else(is_of_day, pc.binary_join_element_wise("1970-01-01", text, " "), text)
    for wanted in _TIME_TYPES:
        try:
            return seconds(text.cast(wanted))
        except pa.ArrowInvalid:
            continue
    # Times with and without a zone in one column: each by itself, without a zone as UTC.
    encoded = text.dictionary_encode()
    known = np.array([*map(_seconds_of, encoded.dictionary.to_pylist()), np.nan])
    values = known[encoded.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
    return values, np.isnan(values)


def _seconds_of(text: str) -> float:
    for wanted in _TIME_TYPES:
        try:
            return float(seconds(pa.array([text]).cast(wanted))[0][0])
        except pa.ArrowInvalid:
            continue
    return float("nan")
