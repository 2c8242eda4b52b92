"""One column of pyarrow as numbers, as words, as names or as seconds, whatever type it comes in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from tolfl.tables.schema import N_COUNTS, N_HASHES
from tolfl.tables.values import Flags, Floats

_NULLS = (*pa_csv.ConvertOptions().null_values, "<NA>")  #: the last one is of pandas
#: Words for "no value" in a column that is learned from.
MISSING = pa.array(sorted({*_NULLS, "None", "none", "NONE", "-", "?"}))
#: The same in a column of words: "none" is how many a table calls what is not there, or did not happen.
_WORDLESS = pa.array(sorted({*_NULLS, "None", "-", "?"}))
#: The same for names of devices and classes: "none" is how many a table calls the rows without an attack.
_NAMELESS = pa.array(sorted(_NULLS))

NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
POINT_NUMBER = r"^[+-]?[0-9]*[.][0-9]+([eE][+-]?[0-9]+)?$"
#: Between groups of three digits, beside the mark that is not the decimal one; x{2019} is the Swiss apostrophe.
_BLANKS = r" '\x{2019}\x{a0}\x{202f}"
#: Certainly with a decimal comma: 1,234 may be a thousand; 0,234 and 1234,5 and 1.234,5 may not.
COMMA_NUMBER = (
    rf"^[+-]?([0-9]{{1,3}}([.{_BLANKS}][0-9]{{3}})+,[0-9]+|0,[0-9]+|[0-9]{{4,}},[0-9]+"
    r"|[0-9]+,([0-9]{1,2}|[0-9]{4,}))$"
)
#: Thousands for certain: two groups, or decimals behind one; lakhs (12,34,567).
_COMMAS = r"[0-9]{1,3}(,[0-9]{3})+[.][0-9]+|[0-9]{1,3}(,[0-9]{3}){2,}|[0-9]{1,2}(,[0-9]{2})+,[0-9]{3}([.][0-9]+)?"
GROUPED_NUMBER = rf"^[+-]?({_COMMAS})$"
_GROUPED = {  #: by the meaning of a table's commas: none, decimals, thousands
    ".": rf"^[+-]?([0-9]{{1,3}}([{_BLANKS}][0-9]{{3}})+([.][0-9]+)?|{_COMMAS})$",
    ",": rf"^[+-]?[0-9]{{1,3}}([.{_BLANKS}][0-9]{{3}})+(,[0-9]+)?$",
    "1,000": rf"^[+-]?([0-9]{{1,3}}([,{_BLANKS}][0-9]{{3}})+([.][0-9]+)?|{_COMMAS})$",
}
_TIME = (
    r"^([0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}|[0-9]{4}/[0-9]{1,2}/[0-9]{1,2})"
    r"([ T][0-9]{1,2}:[0-9]{2}.*)?$|^[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?$"
)
#: A date, a time or both, as spreadsheets write them: 31.1.2024 9:05, 1/31/24 9:05:00 PM, 2024/01/31, 9:05.
_WRITTEN_TIME = (
    r"^(?:(?P<first>[0-9]{1,4})(?P<mark>[./-])(?P<second>[0-9]{1,2})[./-](?P<third>[0-9]{1,4})(?:[ T]+|$))?"
    r"(?:(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<whole>[0-9]{2}(?:[.,][0-9]+)?))?"
    r"[ \x{a0}\x{202f}]?(?P<half>(?i:[ap][.]?m[.]?))?)?$"
)
_GAP, _CODES = r"[ \x{a0}\x{202f}]", "CHF|EUR|GBP|INR|JPY|USD|Fr|Rs"
#: What stands before or behind a number in spreadsheets and is no part of it: currencies and percent.
_SIGNS = (
    rf"^([+-]?)(?:\p{{Sc}}{_GAP}?|(?:{_CODES})(?:[.]{_GAP}?|{_GAP}))"
    rf"|{_GAP}?[%\p{{Sc}}]$|{_GAP}(?:{_CODES})$"
)
_NOUGHT = rf"^\p{{Sc}}{_GAP}+-$"  #: in accounts
#: Negative numbers of accounts, with a currency or none: (1.50), $ (1.50), ($1.50).
_IN_BRACKETS = rf"^(\p{{Sc}}?{_GAP}*)\(([^()]*[0-9][^()]*)\)$"
_NOT_FINITE = "^[+-]?(?i:inf(inity)?|nan)$"
_FLAGS = pa.array(["false", "true"])
_GROUPING = {".": f"[,{_BLANKS}]", ",": f"[.{_BLANKS}]", "1,000": f"[,{_BLANKS}]"}
_MINUS = "\N{MINUS SIGN}"  #: what some countries' spreadsheets write for -
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED_MONTH = rf"(?i:({'|'.join(_MONTH_NAMES)})[a-z]*)[. /-]"
_TIME_TYPES = (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
_PROBED = 16  #: values, before all are cast
_MONTHS, _YEARS = 12, 1000  #: a number above is no month, one from there on is a year
_CENTURY = 70  #: years of two digits from there on are of the last century
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column holds words."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column holds numbers, or true and false."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def kind_of_values(array: pa.Array) -> str:
    """Return what a column holds: `numbers`, `text`, `times`, `nothing`, or else the name of its type."""
    kind = array.type
    if is_text(kind):  # first, as it is what every column of CSV is
        return "text"
    if array.null_count == len(array):
        return "nothing"
    return "numbers" if is_number(kind) else "times" if pa.types.is_temporal(kind) else str(kind)


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array, without the encodings that only save space."""
    if pa.types.is_dictionary(column.type):  # a cast lacks the kinds of text that polars has
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        decoded = [plain(chunk.dictionary).take(chunk.indices) for chunk in chunks]
        return pa.concat_arrays(decoded) if decoded else pa.array([], pa.string())
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.cast(pa.string()) if is_text(array.type) and not pa.types.is_string(array.type) else array


def words(array: pa.Array, missing: pa.Array = MISSING) -> pa.Array:
    """Return text without blanks around it, null where a value is missing; other types as text."""
    if not is_text(array.type):
        if pa.types.is_floating(array.type):
            return pa.array([None if text is None or text == "nan" else text.removesuffix(".0")
                             for text in array.cast(pa.string()).to_pylist()], pa.string())  # fmt: skip
        if pa.types.is_nested(array.type):
            return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string())
        return array.cast(pa.string())
    text = pc.utf8_trim_whitespace(array)
    return pc.if_else(pc.is_in(text, missing), None, text)


def numbers(array: pa.Array, decimal: str = ".") -> tuple[Floats, Flags]:
    """Return values as numbers, NaN where one is missing, and which are none at all; true and false are 1 and 0.

    A decimal comma is seen from the values; where they leave it open, as 1,234 does, `decimal` says what is meant: ","
    (1.234), "1,000" (1234) or "." (no number).

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
        values = cast(array, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        pass
    else:
        if decimal != "," or not _has_grouping_points(array):
            return values, nothing
    text = without_signs(words(array))
    has_comma = pc.any(pc.match_substring_regex(text, COMMA_NUMBER)).as_py()
    text = _as_digits(text, "," if has_comma else decimal)
    try:
        return text.cast(pa.float64()).to_numpy(zero_copy_only=False), nothing
    except pa.ArrowInvalid:
        is_digits = pc.fill_null(pc.match_substring_regex(text, NUMBER), True)
        is_digits = pc.or_(is_digits, pc.fill_null(pc.match_substring_regex(text, _NOT_FINITE), False))
        values = pc.if_else(is_digits, text, None).cast(pa.float64())
        return values.to_numpy(zero_copy_only=False), ~is_digits.to_numpy(zero_copy_only=False)


def cast(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return text as another type, or raise `pa.ArrowInvalid`: early, if the first values already fail."""
    text[:_PROBED].cast(kind)  # a cast that fails takes many times as long as one that does not
    return text.cast(kind)


def without_signs(text: pa.Array) -> pa.Array:
    """Return numbers without the currency or the percent sign beside them, a minus as a computer writes it."""
    text = pc.replace_substring(text, _MINUS, "-")
    if pc.any(pc.match_substring_regex(text, _IN_BRACKETS)).as_py():
        text = pc.replace_substring_regex(text, _IN_BRACKETS, r"-\1\2")
    if pc.any(pc.match_substring_regex(text, _SIGNS)).as_py():
        text = pc.replace_substring_regex(text, _NOUGHT, "0")
        text = pc.replace_substring_regex(text, _SIGNS, r"\1")
    return text


def _has_grouping_points(array: pa.Array) -> bool:
    """Return whether the points in numbers all stand where those of thousands do: 987, 1.234."""
    has_point = pc.match_substring(array, ".")
    is_grouped = pc.match_substring_regex(array, _GROUPED[","])
    return bool(pc.any(has_point).as_py()) and not pc.any(pc.and_not(has_point, is_grouped)).as_py()


def _as_digits(text: pa.Array, decimal: str) -> pa.Array:
    """Return numbers as a computer writes them: no groups of three, a point for the decimals, 1 and 0 for flags."""
    is_grouped = pc.match_substring_regex(text, _GROUPED[decimal])
    if pc.any(is_grouped).as_py():
        text = pc.if_else(is_grouped, pc.replace_substring_regex(text, _GROUPING[decimal], ""), text)
    if decimal == ",":
        text = pc.replace_substring(text, ",", ".")
    return pc.coalesce(pc.index_in(pc.utf8_lower(text), _FLAGS).cast(pa.string()), text)


def count(mask: pa.Array) -> int:
    """Return how many are true."""
    return pc.sum(mask).as_py() or 0


def are_times(text: pa.Array) -> pa.Array:
    """Return which words are dates or times."""
    return pc.match_substring_regex(_with_numbered_months(text), _TIME)


def _with_numbered_months(text: pa.Array) -> pa.Array:
    """Return dates with months by their English names (31 Jan 2024, 31/Jan/2024:9:05, January 31, 2024) in numbers."""
    if not pc.any(pc.match_substring_regex(text, _NAMED_MONTH)).as_py():
        return text
    text = pc.replace_substring_regex(text, rf"^{_NAMED_MONTH}+([0-9]{{1,2}}),?", r"\2 \1")
    for number, name in enumerate(_MONTH_NAMES, 1):
        named = rf"^([0-9]{{1,2}})[. /-]+(?i:{name}[a-z]*)[. /-]+([0-9]{{2,4}})[:, ]*"
        text = pc.replace_substring_regex(text, named, rf"\1.{number}.\2 ")
    return pc.utf8_rtrim_whitespace(text)


def hashed(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two hash values of each word, below `N_HASHES` and below `N_COUNTS`; -1 where it is missing."""
    encoded = words(array, _WORDLESS).dictionary_encode()
    known = [text.encode() for text in encoded.dictionary.to_pylist()]
    columns = np.array([crc32(text) % N_HASHES for text in known] + [-1], np.int64)
    counted = np.array([crc32(text) // N_HASHES % N_COUNTS for text in known] + [-1], np.int64)
    places = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    return columns[places], counted[places]


def names(array: pa.Array) -> tuple[NDArray[np.str_], Flags]:
    """Return values as names, whole numbers without a point, and which are missing.

    >>> names(pa.array(["none", " north ", "NA", None]))[1].tolist()
    [False, False, True, True]
    """
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        array = words(array.cast(pa.float64()))
    elif pa.types.is_temporal(array.type):
        array = pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string())
    encoded = words(array, _NAMELESS).dictionary_encode()
    texts = np.array([*encoded.dictionary.to_pylist(), ""], dtype=str)
    is_missing = encoded.indices.is_null().to_numpy(zero_copy_only=False)
    return texts[encoded.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)], is_missing


def order_of_dates(text: pa.Array) -> tuple[int, int]:
    """Return how many dates have the day first for certain, and how many the month.

    >>> order_of_dates(pa.array(["31/01/2024", "01/31/2024", "01/02/2024", "2024-01-31", "01/02/2024 9:05 PM"]))
    (1, 2)
    """
    return _order_of(_parts_of_times(text))


def _order_of(parts: Mapping[str, NDArray[Any]]) -> tuple[int, int]:
    first, second, third = parts["first"], parts["second"], parts["third"]
    is_open = (third > 0) & (first < _YEARS) & ~parts["has_points"]
    is_month_first = is_open & ((second > _MONTHS) | parts["has_halves"])
    return int((is_open & (first > _MONTHS)).sum()), int(is_month_first.sum())


def seconds(array: pa.Array, is_day_first: bool | None = None) -> tuple[Floats, Flags]:
    """Return values as seconds, dates since 1970, numbers as they are; and which are no time.

    The other values decide the order of 1/2/2024; else `is_day_first` does. (default: the first of February)
    """
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
    text = _with_numbered_months(words(array))
    for wanted in _TIME_TYPES:
        try:
            return seconds(cast(text, wanted))
        except pa.ArrowInvalid:
            continue
    values = _written_seconds(text, is_day_first)
    # Others are read one by one: times with and without a zone in one column, where those without are UTC.
    for row in np.flatnonzero(np.isnan(values) & text.is_valid().to_numpy(zero_copy_only=False)).tolist():
        values[row] = _seconds_of(text[row].as_py())
    return values, np.isnan(values)


def _written_seconds(text: pa.Array, is_day_first: bool | None) -> Floats:
    """Return dates and times as spreadsheets write them as seconds; NaN where a word is none, or no such day is."""
    parts = _parts_of_times(text)
    first, second, third = parts["first"], parts["second"], parts["third"]
    n_day_first, n_month_first = _order_of(parts)
    if n_day_first != n_month_first:
        is_day_first = n_day_first > n_month_first
    elif is_day_first is None:
        is_day_first = True
    is_year_first = first >= _YEARS
    is_swapped = ~is_year_first & ~parts["has_points"] & (not is_day_first)
    year = np.where(is_year_first, first, third)
    year += np.where(~is_year_first & (year < 100), np.where(year < _CENTURY, 2000, 1900), 0)
    month = np.where(is_swapped, first, second)
    day = np.where(is_year_first, third, np.where(is_swapped, second, first))
    has_date = third >= 0
    months = np.where(has_date, (year - 1970) * 12 + month - 1, 0).astype("M8[M]")
    days = months.astype("M8[D]") + np.where(has_date, day - 1, 0)
    is_right = (days.astype("M8[M]") == months) & np.where(has_date, (month >= 1) & (month <= _MONTHS), True)
    hour, is_half = parts["hour"], parts["has_halves"]
    is_right &= np.where(is_half, (hour >= 1) & (hour <= 12), hour < 24) & (parts["minute"] < 60)
    hour = np.where(is_half, hour % 12 + 12 * parts["is_afternoon"], hour.clip(0))
    of_day = 3600.0 * hour + 60.0 * parts["minute"].clip(0) + parts["seconds"]
    return np.where(is_right & parts["is_time"], days.astype(np.int64) * 86_400.0 + of_day, np.nan)


def _parts_of_times(text: pa.Array) -> dict[str, NDArray[Any]]:
    """Return the numbers of dates and times, -1 where one is not there, and how they are written."""
    found = pc.extract_regex(text, _WRITTEN_TIME)
    is_time = pc.fill_null(pc.and_(found.is_valid(), pc.greater(pc.utf8_length(text), 0)), False)

    def part(name: str) -> pa.Array:
        return pc.fill_null(pc.struct_field(found, name), "")

    def whole(name: str) -> NDArray[np.int64]:
        digits = part(name)
        is_there = pc.not_equal(digits, "")
        if not pc.any(is_there).as_py():
            return np.full(len(text), -1)
        values: NDArray[np.int64] = pc.if_else(is_there, digits, "-1").cast(pa.int64()).to_numpy()
        return values

    exact, half = pc.replace_substring(part("whole"), ",", "."), pc.utf8_lower(part("half"))
    return {
        **{name: whole(name) for name in ("first", "second", "third", "hour", "minute")},
        "seconds": pc.if_else(pc.equal(exact, ""), "0", exact).cast(pa.float64()).to_numpy(zero_copy_only=False),
        "has_points": pc.equal(part("mark"), ".").to_numpy(zero_copy_only=False),
        "has_halves": pc.not_equal(half, "").to_numpy(zero_copy_only=False),
        "is_afternoon": pc.starts_with(half, "p").to_numpy(zero_copy_only=False),
        "is_time": is_time.to_numpy(zero_copy_only=False),
    }


def _seconds_of(text: str) -> float:
    for wanted in _TIME_TYPES:
        try:
            return float(seconds(pa.array([text]).cast(wanted))[0][0])
        except pa.ArrowInvalid:
            continue
    return float("nan")
