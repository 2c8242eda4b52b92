"""From columns of a table to samples of a detector: matched by name, row by row, and a bad row spoils no other.

A stream goes on for weeks: one value that is no number must neither stop it nor shift a column. So what cannot be used
is marked with a sentence, and everything else is scored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from tolfl.core.errors import DataError
from tolfl.datasets.loaders.columns import is_number, is_text, plain
from tolfl.detect.features import Features

Floats = NDArray[np.float64]
Problems = dict[int, str]  #: by row of a batch

_NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
_TRUTH = {"true": "1", "false": "0"}
#: Words for "no value", the same as in files.
MISSING_WORDS = frozenset(pa_csv.ConvertOptions().null_values)


@dataclass(frozen=True)
class Source:
    """Where one feature comes from: a column of numbers, or one value of a column of words."""

    column: str
    category: str | None = None


@dataclass
class Matching:
    """Which column is which feature, for one table."""

    sources: tuple[Source, ...]
    ignored: tuple[str, ...]  #: columns that are no feature and have no role
    unseen: dict[str, str] = field(default_factory=dict)  #: a word of each column that training has not seen

    @classmethod
    def of(cls, features: Features, columns: Sequence[str], roles: Sequence[str] = ()) -> Matching:
        """Match columns with features by name; a feature without a column is an error that names it."""
        by_name = _by_name(columns)
        if lost := cls.lost(features, columns):
            shown = ", ".join(repr(name) for name in lost[:5]) + (", ..." if len(lost) > 5 else "")
            have = ", ".join(list(by_name)[:10]) + (", ..." if len(by_name) > 10 else "")
            raise DataError(f"no column for {len(lost)} of {features.n} features: {shown}; the columns are {have}")
        sources = (_source(feature, by_name) for feature in features.names)
        found = tuple(source for source in sources if source is not None)
        used = {source.column for source in found} | set(roles)
        return cls(found, tuple(name for name in columns if name not in used))

    @staticmethod
    def lost(features: Features, columns: Sequence[str]) -> list[str]:
        """Return the features that no column is for."""
        by_name = _by_name(columns)
        return [feature for feature in features.names if _source(feature, by_name) is None]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are needed, each once."""
        return tuple(dict.fromkeys(source.column for source in self.sources))

    def rows(self, columns: Mapping[str, pa.ChunkedArray], decimal_point: str = ".") -> tuple[Floats, Problems]:
        """Return samples `(n_rows, n_features)`, NaN where a value is missing, and what is wrong with which row."""
        problems: Problems = {}
        kept: dict[str, Floats] = {}
        words: dict[str, pa.ChunkedArray] = {}
        for source in self.sources:
            if source.category is not None:
                words.setdefault(source.column, _words(columns[source.column]))
            elif source.column not in kept:
                kept[source.column] = _numbers(source.column, columns[source.column], decimal_point, problems)
        self._note_unseen(words)
        values = [
            kept[source.column] if source.category is None else _is_word(words[source.column], source.category)
            for source in self.sources
        ]
        return np.column_stack(values), problems

    def _note_unseen(self, words: Mapping[str, pa.ChunkedArray]) -> None:
        for name, column in words.items():
            known = {source.category for source in self.sources if source.column == name}
            strange = [word for word in pc.unique(column).to_pylist() if word is not None and word not in known]
            if strange:
                self.unseen.setdefault(name, strange[0])


def as_column(values: Sequence[object]) -> pa.ChunkedArray:
    """Return plain values as a column: numbers where all are, else words.

    >>> as_column([1, None, 2.5]).to_pylist(), as_column([1, "a", True]).to_pylist()
    ([1.0, None, 2.5], ['1', 'a', 'true'])
    """
    if all(value is None or isinstance(value, int | float) for value in values):
        return pa.chunked_array(
            [pa.array([None if value is None else _float(value) for value in values], pa.float64())]
        )
    texts = [
        None if value is None else str(value).lower() if isinstance(value, bool) else str(value) for value in values
    ]
    return pa.chunked_array([pa.array(texts, pa.string())])


def names_in(column: pa.ChunkedArray) -> list[str | None]:
    """Return values as names, whole numbers without a point; None where there is no value."""
    column = plain(column)
    if is_text(column.type):
        return _words(column).to_pylist()  # type: ignore[no-any-return]
    return [None if value is None or _is_nan(value) else _name(value) for value in column.to_pylist()]


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _name(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return float("inf")


def _by_name(columns: Sequence[str]) -> dict[str, str]:
    """Return columns by the name of the feature, which is without blanks and without its unit."""
    return {Features.named([name.strip()]).names[0]: name for name in columns}


def _source(feature: str, by_name: Mapping[str, str]) -> Source | None:
    if feature in by_name:
        return Source(by_name[feature])
    parts = feature.split("=")
    for place in range(1, len(parts)):
        column = "=".join(parts[:place])
        if column in by_name:
            return Source(by_name[column], "=".join(parts[place:]))
    return None


def _words(column: pa.ChunkedArray) -> pa.ChunkedArray:
    trimmed = pc.utf8_trim_whitespace(plain(column).cast(pa.string()))
    return pc.if_else(pc.is_in(trimmed, pa.array(sorted(MISSING_WORDS))), None, trimmed)


def _is_word(column: pa.ChunkedArray, word: str) -> Floats:
    """Return 1 where a value is the word, 0 where it is another, NaN where there is none."""
    values: Floats = pc.equal(column, word).cast(pa.float64()).to_numpy()
    return values


def _numbers(name: str, column: pa.ChunkedArray, decimal_point: str, problems: Problems) -> Floats:
    column = plain(column)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if is_text(column.type):
        column = _numbers_in_words(name, column, decimal_point, problems)
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif not is_number(column.type):
        raise DataError(f"column {name!r} holds {column.type}, but the detector was trained on numbers there")
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy().copy()
    with np.errstate(over="ignore"):
        is_too_large = np.isinf(values.astype(np.float32))
    for row in np.flatnonzero(is_too_large).tolist():
        problems.setdefault(row, f"{values[row]:g} in column {name!r} is too large")
    values[is_too_large] = np.nan
    return values


def _numbers_in_words(name: str, column: pa.ChunkedArray, decimal_point: str, problems: Problems) -> pa.ChunkedArray:
    words = _words(column)
    digits = words if decimal_point == "." else pc.replace_substring(words, decimal_point, ".")
    for truth, digit in _TRUTH.items():
        digits = pc.if_else(pc.equal(pc.utf8_lower(digits), truth), digit, digits)
    is_digits = pc.match_substring_regex(digits, _NUMBER)
    if not pc.all(is_digits).as_py():
        for row in np.flatnonzero(pc.fill_null(pc.invert(is_digits), False).to_numpy()).tolist():
            problems.setdefault(row, f"{words[row].as_py()!r} in column {name!r} is no number")
        digits = pc.if_else(is_digits, digits, None)
    return digits.cast(pa.float64())
