"""The meaning of a table's columns: settled once, when a detector is fitted; later tables are matched by name.

Fitting and scoring read blocks with one function, so they cannot disagree. Every value is read as the schema says, and
a bad row spoils no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError, did_you_mean
from tolfl.tables.block_reader import Block, Errors
from tolfl.tables.values import Values, as_arrow, kind_of_values, names, numbers, seconds, value_at

Floats32 = NDArray[np.float32]

N_HASHES, N_COUNTS = 32, 256  #: of words: features, and values that are counted for a word's rarity
_WITH_UNIT = re.compile(r"(?P<name>.*\S)\s*\[(?P<unit>[^\]]*)\]\s*")
_HASHED = re.compile(r"(?P<name>.+) \(hash \d+\)")
RARITY = " (rarity)"  #: behind the name of the feature that holds what words are counted by


class Roles(msgspec.Struct, frozen=True):
    """Columns of device, label and time; empty where there is none."""

    device: str = ""
    label: str = ""
    time: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are named."""
        return tuple(name for name in (self.device, self.label, self.time) if name)


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column that is learned from: numbers (also true and false), or words.

    A column of words is 33 features: whether a hash value of the word is 0, 1, ..., 31, and another hash value below
    256, which a detector counts to know how rare the word is. No vocabulary is kept: there may be any number of words.

    >>> Column("temp", "number", unit="C").features, Column("mode", "words").features[::32]
    (('temp [C]',), ('mode (hash 0)', 'mode (rarity)'))
    """

    name: str
    kind: Literal["number", "words"] = "number"
    unit: str = ""
    measure: str = ""  #: what is measured (a count, a share, ...), where that is known; its values may be missing

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features, with the unit in brackets, and behind a semicolon the measure."""
        if self.kind == "number":
            note = f"{self.unit}; {self.measure}" if self.measure else self.unit
            return (f"{self.name} [{note}]" if note else self.name,)
        return (*(f"{self.name} (hash {place})" for place in range(N_HASHES)), f"{self.name}{RARITY}")


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which columns are learned from, what they hold, and those of device, label and time."""

    columns: tuple[Column, ...]
    roles: Roles = Roles()
    decimal: Literal[".", ",", "1,000"] = "."  #: what 1,234 is: no number, 1.234, or 1234
    #: Whether 1/2/2024 is the first of February; None: the dates of the table are ambiguous.
    is_day_first: bool | None = None
    encoding: str = ""
    fill_missing: bool = False  #: whether a missing value becomes the usual one; else its row is not used
    left_out: dict[str, str] = {}  #: column -> why it is not learned from
    codes: tuple[str, ...] = ()  #: columns of words of which some were numbers: all may be

    @classmethod
    def from_features(cls, features: Sequence[str]) -> Schema:
        """Return the schema behind names of features, as a fleet's specification has them.

        >>> [column.kind for column in Schema.from_features(["temp [C]", *Column("mode", "words").features]).columns]
        ['number', 'words']
        """
        known = set(features)
        columns: dict[str, Column] = {}
        for feature in features:
            name = word_column(feature)
            if name is not None and known.issuperset(Column(name, "words").features):
                columns[name] = Column(name, "words")
            else:
                columns[feature] = Column(*name_and_unit(feature))
        return cls(tuple(columns.values()))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, units in brackets."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def n_features(self) -> int:
        """How many numbers a row becomes."""
        return sum(N_HASHES + 1 if column.kind == "words" else 1 for column in self.columns)

    @classmethod
    def of_fleet(cls, features: Sequence[str], form: Mapping[str, object]) -> Schema:
        """Return the schema of a fleet's tables, of the features and the form that its specification has.

        >>> Schema.of_fleet(["temp [C]"], {"decimal": ","}) == Schema((Column("temp", unit="C"),), decimal=",")
        True
        """
        columns = msgspec.to_builtins(cls.from_features(features).columns)
        return msgspec.convert({**form, "columns": columns}, cls)

    @property
    def form(self) -> dict[str, object]:
        """How a table is written and what is left out of it, in plain values: for the specification of a fleet.

        >>> Schema((Column("temp"),), decimal=",").form
        {'decimal': ','}
        """
        own, usual = msgspec.to_builtins(self), msgspec.to_builtins(Schema(self.columns))
        return {name: value for name, value in own.items() if value != usual[name]}

    def with_roles(self, roles: Roles) -> Schema:
        """Return the schema with other roles, where others are named."""
        mine = self.roles
        merged = Roles(roles.device or mine.device, roles.label or mine.label, roles.time or mine.time)
        return msgspec.structs.replace(self, roles=merged)

    def rows(self, block: Block) -> Rows:
        """Return a block as numbers; columns are found by name, in any order."""
        given = _match(self, block)
        values = np.empty((block.n_rows, self.n_features), np.float32, order="F")
        errors, at = dict(block.errors), 0
        for column in self.columns:
            array = given.get(column.name)
            width = N_HASHES + 1 if column.kind == "words" else 1
            if array is None:
                values[:, at : at + width] = np.nan
            elif column.kind == "words":
                from tolfl.tables.arrow_values import hashed  # noqa: PLC0415  (pyarrow is an extra)

                _check_words(self, block, column, array)
                place, codes = hashed(as_arrow(array))
                values[:, at : at + N_HASHES] = place[:, None] == np.arange(N_HASHES)
                values[place < 0, at : at + N_HASHES] = np.nan
                values[:, at + N_HASHES] = np.where(codes < 0, np.nan, codes)
            else:
                _take_numbers(self, block, column, array, values[:, at], errors)
            at += width
        return _with_roles(self, Rows(block, values, errors), given)


def note_of(schema: Schema, is_command: bool = True) -> str:
    """Return one line about what is not learned from, and how to learn from it; empty if all is learned from."""
    found = {name: why for name, why in schema.left_out.items() if why != "as asked"}
    if not found:
        return ""
    shown = ", ".join(f"{name} ({why})" for name, why in list(found.items())[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    kept = [column.name for column in schema.columns[:2]]
    how = f"--columns {','.join(kept)},..." if is_command else f"columns=[{', '.join(map(repr, kept))}, ...]"
    return f"not learned from: {shown}{more}; to choose yourself: {how}"


# -- a block as numbers -----------------------------------------------------------------------------------------------

#: Without a number in its first rows, as many, a column is of another kind; fewer may be bad rows.
_CERTAIN_ROWS = 10


@dataclass(eq=False)
class Rows:
    """A block as a matrix, with the rows that cannot be used and why."""

    block: Block
    values: Floats32  #: `(n_rows, n_features)`; NaN where a value is missing
    errors: Errors
    devices: NDArray[np.str_] | None = None
    labels: NDArray[np.str_] | None = None
    times: NDArray[np.float64] | None = None
    given_times: Values | None = None

    @cached_property
    def time_texts(self) -> list[str | None] | None:
        """Times as they were given."""
        return None if self.given_times is None else as_arrow(self.given_times).cast("string").to_pylist() or None

    @property
    def is_good(self) -> NDArray[np.bool_]:
        """Which rows can be used."""
        good = np.ones(len(self.values), bool)
        good[list(self.errors)] = False
        return good

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Of the rows in their source, from 1."""
        return self.block.first + np.arange(len(self.values))


def _check_words(schema: Schema, block: Block, column: Column, array: Values) -> None:
    """Raise an error where a source has nothing but numbers in a column in which training had none."""
    if column.name in schema.codes or block.first > 1 or len(array) < _CERTAIN_ROWS:
        return
    found, is_bad = numbers(array, schema.decimal)
    if not is_bad.any() and np.isfinite(found).sum() >= _CERTAIN_ROWS:
        first = value_at(array, int(np.argmax(np.isfinite(found))))
        raise DataFileError(block.source, f"column {column.name!r} holds numbers ({first!r}), words were trained on")


def _take_numbers(schema: Schema, block: Block, column: Column, array: Values, into: Floats32, errors: Errors) -> None:
    found, is_bad = numbers(array, schema.decimal)
    if block.first == 1 and len(array) >= _CERTAIN_ROWS and is_bad.all():
        first = value_at(array, 0)
        raise DataFileError(block.source, f"column {column.name!r} holds words ({first!r}), numbers were trained on")
    with np.errstate(over="ignore"):
        into[:] = found
    is_infinite = np.isinf(into)
    if is_bad.any() or is_infinite.any():
        for row in np.flatnonzero(is_bad).tolist():
            value = value_at(array, row)
            why = f"{value!r} in column {column.name!r} is no number"
            errors.setdefault(row, "the header is repeated here" if value == column.name else why)
        for row in np.flatnonzero(is_infinite).tolist():
            what = "infinite" if np.isinf(found[row]) else f"{found[row]:g}, too large for single precision"
            errors.setdefault(row, f"the value in column {column.name!r} is {what}")
        into[is_infinite] = np.nan


def _match(schema: Schema, block: Block) -> dict[str, Values]:
    """Return the columns that are needed, by the names they have here; or say which are not there."""
    by_name = {name_and_unit(name)[0]: name for name in block.table.column_names}
    wanted = [column.name for column in schema.columns]
    in_training = {column.features[0] if column.unit else column.name: column.name for column in schema.columns}
    by_name |= {in_training[name]: name for name in block.table.column_names if name in in_training}
    if not block.has_names and not set(wanted) <= by_name.keys():
        features = [name for name in block.table.column_names if name not in block.beside]
        if len(features) != len(wanted):
            raise DataFileError(
                block.source, f"{len(features)} features, but the detector was trained on {len(wanted)} columns"
            )
        by_name |= dict(zip(wanted, features, strict=True))
    lost = [name for name in wanted if name not in by_name]
    if lost and not block.is_ragged:
        shown = ", ".join(map(repr, lost[:5])) + (", ..." if len(lost) > 5 else "")
        have = ", ".join(list(by_name)[:10]) + (", ..." if len(by_name) > 10 else "")
        near = did_you_mean(lost[0], by_name)
        if len(lost) == len(wanted) and any(column.measure for column in schema.columns):
            near = (
                "; the detector is of another link type, other windows or another sample rate: fit one on such a source"
            )
        raise DataFileError(
            block.source, f"no column for {len(lost)} of {len(wanted)} columns: {shown}; it has {have}{near}"
        )
    found = {name: block.column(by_name[name]) for name in wanted if name in by_name}
    if block.is_ragged and not (block.first == 1 and block.n_rows >= _CERTAIN_ROWS):
        return found  # a line of JSON lines has types of its own, and does not affect others
    for column in schema.columns:
        if column.name not in found:
            continue
        kind = kind_of_values(found[column.name])
        if column.kind == "words" and kind == "numbers" and column.name not in schema.codes:
            of_type = getattr(found[column.name], "type", "")
            raise DataFileError(
                block.source, f"column {column.name!r} holds numbers ({of_type}), words were trained on"
            )
        if column.kind == "number" and kind not in {"numbers", "text", "nothing"}:
            raise DataFileError(block.source, f"column {column.name!r} holds {kind}, numbers were trained on")
    return found


def _with_roles(schema: Schema, rows: Rows, given: dict[str, Values]) -> Rows:
    block, roles = rows.block, schema.roles
    for role in ("device", "label", "time"):
        name = getattr(roles, role)
        if not name:
            continue
        array = given.get(name)
        if array is None and name in block.table.column_names:
            array = block.column(name)
        if array is None and block.is_ragged:
            import pyarrow as pa  # noqa: PLC0415  (an extra)

            array = pa.nulls(block.n_rows, pa.string())
        if array is None:
            if role == "device" and block.device:
                continue  # the file's name is the device's
            have = ", ".join(block.table.column_names[:30])
            raise DataFileError(block.source, f"there is no column {name!r} for the {role}; the columns are {have}")
        _take_role(schema, rows, role, name, array)
    if rows.devices is None and block.device:
        rows.devices = np.full(block.n_rows, block.device)
    return rows


def _take_role(schema: Schema, rows: Rows, role: str, name: str, array: Values) -> None:
    if role == "time":
        rows.times, is_bad = seconds(array, schema.is_day_first)
        rows.given_times = array
        why = "is no time; write 2024-01-31 12:00:00 or seconds"
    else:
        found, is_bad = names(array)
        rows.devices, rows.labels = (found, rows.labels) if role == "device" else (rows.devices, found)
        why = ""
    for row in np.flatnonzero(is_bad).tolist():
        value = value_at(array, row)
        is_empty = value is None or not why or not str(value).strip()
        rows.errors.setdefault(row, f"column {name!r} is empty" if is_empty else f"{value!r} in column {name!r} {why}")


# -- names of features ------------------------------------------------------------------------------------------------


def word_column(feature: str) -> str | None:
    """Return the column of words that a feature is of; None: of none.

    >>> word_column("mode (hash 7)"), word_column("mode (rarity)"), word_column("temp")
    ('mode', 'mode', None)
    """
    if found := _HASHED.fullmatch(feature):
        return found["name"]
    return feature.removesuffix(RARITY) if feature.endswith(RARITY) else None


def value_features(features: Sequence[str]) -> list[int]:
    """Return the places of one feature per column: of the many of a word, its rarity. Values are counted by these.

    >>> value_features(["temp", "mode (hash 0)", "mode (hash 1)", "mode (rarity)"])
    [0, 3]
    """
    return [place for place, name in enumerate(features) if not _HASHED.fullmatch(name)]


def name_and_unit(name: str) -> tuple[str, Literal["number"], str, str]:
    """Return the name, the kind (unless it holds words), the unit and the measure of a column.

    >>> name_and_unit("size [bytes; volume]"), name_and_unit("temp [C]"), name_and_unit("x")
    (('size', 'number', 'bytes', 'volume'), ('temp', 'number', 'C', ''), ('x', 'number', '', ''))
    """
    found = _WITH_UNIT.fullmatch(name)
    if not found:
        return name, "number", "", ""
    unit, mark, measure = found["unit"].rpartition(";")
    return (found["name"], "number", unit.strip(), measure.strip()) if mark else (found["name"], "number", measure, "")
