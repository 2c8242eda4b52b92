"""Tables as numbers: a schema is settled once, from all rows; then every block is read by it.

A schema is settled before training, and stored; fitting and scoring read blocks with the same function, so they
cannot disagree. Every value is read as the schema says, and a bad row spoils no other.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError, did_you_mean
from tolfl.tables.block_reader import Block, Errors, check_names
from tolfl.tables.schema import N_HASHES, Column, Roles, Schema, name_and_unit
from tolfl.tables.values import Floats, Values, as_arrow, kind_of_values, names, numbers, seconds, value_at

if TYPE_CHECKING:
    import pyarrow as pa

Floats32 = NDArray[np.float32]

_KEPT_ROWS = 20_000  #: rows in which identifiers, counters and clocks are looked for
_LEAST_ROWS = 50  #: fewer rows are not enough to recognise them
_NEARLY_ALL = 0.95
_KEPT_VALUES = 20_000_000  #: of all columns, in which identifiers, counters and clocks are looked for
_LOG = logging.getLogger(__name__)

# -- what the columns of a table hold ---------------------------------------------------------------------------------


@dataclass(eq=False)
class _Seen:
    """The values of one column so far: kinds and counts."""

    n_values: int = 0
    n_numbers: int = 0
    n_numbers_with_comma: int = 0  #: numbers if 1,234 has three decimals
    n_numbers_with_groups: int = 0  #: numbers if 1,234 is a thousand
    n_commas: int = 0  #: numbers with a decimal comma for certain
    n_groups: int = 0  #: numbers with a comma behind thousands for certain
    has_point: bool = False  #: whether one has a decimal point
    n_times: int = 0
    n_day_first: int = 0  #: dates with the day before the month for certain
    n_month_first: int = 0
    kind: str = ""  #: a type that is neither number nor word
    odd: tuple[Block, int, str] | None = None  #: the first value that is no number, and where it is
    words: set[str] = field(default_factory=set)
    n_words: int = 0  #: values that `words` was gathered from
    values: list[Floats] = field(default_factory=list)  #: of the first rows
    n_kept: int = 0

    def add(self, block: Block, values: Values, most_kept: int) -> None:
        kind = kind_of_values(values)
        if kind in {"numbers", "nothing"}:
            self._add_numbers(numbers(values)[0], most_kept)
        elif kind == "text":
            self._add_text(block, as_arrow(values), most_kept)
        elif kind == "times":
            n_values = len(values) - as_arrow(values).null_count
            self.n_values, self.n_times = self.n_values + n_values, self.n_times + n_values
        else:
            self.kind = kind

    def _add_numbers(self, values: Floats, most_kept: int) -> None:
        n_values = int(np.count_nonzero(~np.isnan(values)))
        self.n_values += n_values
        self.n_numbers += n_values
        self.n_numbers_with_comma += n_values
        self.n_numbers_with_groups += n_values
        self._keep(values, most_kept)

    def _add_text(self, block: Block, array: pa.Array, most_kept: int) -> None:
        import pyarrow as pa  # noqa: PLC0415  (an extra)
        import pyarrow.compute as pc  # noqa: PLC0415  (as above)

        from tolfl.tables import arrow_values as arrow  # noqa: PLC0415  (as above)

        try:
            values = arrow.cast(array, pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            pass
        else:
            self.has_point = self.has_point or bool(pc.any(pc.match_substring(array, ".")).as_py())
            self._add_numbers(values, most_kept)
            return
        all_text = arrow.words(array)
        text = all_text.drop_null()
        bare = arrow.without_signs(text)
        values, is_bad = numbers(array)
        self.n_values += len(text)
        self.n_numbers += len(text) - int(is_bad.sum())
        self.n_numbers_with_comma += len(text) - int(numbers(array, ",")[1].sum())
        self.n_numbers_with_groups += len(text) - int(numbers(array, "1,000")[1].sum())
        self.n_commas += arrow.count(pc.match_substring_regex(bare, arrow.COMMA_NUMBER))
        self.n_groups += arrow.count(pc.match_substring_regex(bare, arrow.GROUPED_NUMBER))
        self.has_point = self.has_point or bool(pc.any(pc.match_substring_regex(text, arrow.POINT_NUMBER)).as_py())
        if n_times := arrow.count(arrow.are_times(text)):
            self.n_times += n_times
            n_day_first, n_month_first = arrow.order_of_dates(text)
            self.n_day_first, self.n_month_first = self.n_day_first + n_day_first, self.n_month_first + n_month_first
        if self.odd is None and is_bad.any():
            row = int(np.argmax(is_bad))
            self.odd = (block, row, all_text[row].as_py())
        if self.n_words < _KEPT_ROWS:
            self.words.update(pc.unique(text).to_pylist())
            self.n_words += len(text)
        self._keep(values, most_kept)

    def _keep(self, values: Floats, most: int) -> None:
        if self.n_kept < most:
            self.values.append(values[: most - self.n_kept])
            self.n_kept += len(self.values[-1])


@dataclass(eq=False)
class _Table:
    """The rows of a table so far: columns and counts."""

    roles: Roles
    columns: dict[str, _Seen] = field(default_factory=dict)
    beside: set[str] = field(default_factory=set)
    devices: list[np.ndarray] = field(default_factory=list)  #: of the first rows
    n_rows: Counter[str] = field(default_factory=Counter)  #: by source
    first: Block | None = None

    def add(self, block: Block) -> None:
        if block.errors:
            place = min(block.errors)
            raise block.error(place, f"{block.errors[place]}; correct the row")
        names_here = list(block.table.column_names)
        if self.first is None:
            self.first = block
            check_names(names_here, block.source)
        names_first = self.first.table.column_names
        if not block.is_ragged and (different := set(names_here) ^ set(names_first)):
            shown = ", ".join(map(repr, sorted(different)[:5]))
            raise DataFileError(
                block.source,
                f"its columns are not those of {self.first.source} (different: {shown}); give all the same",
            )
        given = ((getattr(self.roles, role) or block.roles.get(role, "")) for role in ("device", "label", "time"))
        self.roles = Roles(*given)
        self.beside.update(block.beside)
        most_kept = min(_KEPT_ROWS, _KEPT_VALUES // max(1, len(names_first)))
        for name in names_here:
            seen = self.columns.setdefault(name, _Seen())
            if name not in block.beside:
                seen.add(block, plain(block, name), most_kept)
        if self.n_rows.total() < most_kept:
            self.devices.append(_device_of_rows(block, self.roles))
        self.n_rows[block.source] += block.n_rows

    def checked_source(self) -> str:
        """Return the first source; raise an error for one without rows."""
        first = "X" if self.first is None else self.first.source
        if empty := next((name for name, n in self.n_rows.items() if not n), "" if self.n_rows else first):
            raise DataFileError(
                empty, "there is no row of data in it; fill it" + " or remove it" * (len(self.n_rows) > 1)
            )
        return first


def settle(
    blocks: Iterable[Block],
    roles: Roles | None = None,
    *,
    columns: Sequence[str] = (),
    ignore: Sequence[str] = (),
    encoding: str = "",
    fill_missing: bool = False,
) -> Schema:
    """Return the schema that all rows of a table lead to.

    Parameters
    ----------
    blocks
        All rows; the values are looked at once and not kept.
    roles
        Columns of device, label and time; those that the source has are used where none is named.
    columns
        The only ones to learn from, whatever they look like.
    ignore
        Not to be learned from.
    encoding, fill_missing
        To be remembered.
    """
    table = _Table(roles or Roles())
    for block in blocks:
        table.add(block)
    source, seen, roles = table.checked_source(), table.columns, table.roles
    as_written = {name_and_unit(name)[0]: name for name in seen}
    left_out = dict.fromkeys(ignore, "as asked")
    columns, ignore = ([as_written.get(name, name) for name in asked] for asked in (columns, ignore))
    if table.first is not None and not table.first.has_names and not seen.keys() & set(columns):
        columns = ()  # whose names a file does not have: their place says which they are
    _check_asked(source, seen, roles, columns, ignore)
    found = {name: one for name, one in seen.items() if name not in {*roles.columns, *table.beside, *ignore}}
    if columns:
        found = {name: found[name] for name in columns if name in found}
    decimal = _decimal_of(found.values())
    kept: list[Column] = []
    owners = np.concatenate(table.devices)
    for name, one in found.items():
        column, why = _column(source, name, one, decimal, owners, is_asked=name in columns)
        if column is None:
            left_out[name] = why
        else:
            kept.append(column)
    if not any(column.kind == "number" for column in kept):
        raise DataFileError(source, _nothing(kept, left_out))
    plain_names = [column.name for column in kept]
    if twice := [name for name in plain_names if plain_names.count(name) > 1]:
        raise DataFileError(source, f"there are two columns {twice[0]!r}; give each a name of its own")
    return Schema(tuple(kept), roles, decimal, _is_day_first(seen), encoding, fill_missing, left_out)  # type: ignore[arg-type]


def _decimal_of(seen: Collection[_Seen]) -> str:
    """Return what a comma is in a table, which one program wrote. 1,234 alone is 1.234 unless there are points."""
    if any(one.n_commas for one in seen):
        return ","
    if any(one.has_point or one.n_groups for one in seen):
        return "1,000" if any(one.n_numbers_with_groups > one.n_numbers for one in seen) else "."
    return "," if any(one.n_numbers_with_comma > one.n_numbers for one in seen) else "."


def _is_day_first(seen: Mapping[str, _Seen]) -> bool | None:
    """Return the order of the dates of a table, which one program wrote. None: none of them is unambiguous."""
    n_day_first = sum(one.n_day_first for one in seen.values())
    n_month_first = sum(one.n_month_first for one in seen.values())
    return n_day_first > n_month_first if n_day_first != n_month_first else None


def _check_asked(
    source: str, seen: dict[str, _Seen], roles: Roles, columns: Sequence[str], ignore: Sequence[str]
) -> None:
    asked = [(roles.device, "for the device"), (roles.label, "for the label"), (roles.time, "for the time")]
    asked += [(name, "of --columns") for name in columns] + [(name, "of --ignore") for name in ignore]
    shown = ", ".join(list(seen)[:30]) + (", ..." if len(seen) > 30 else "")
    for name, what in asked:
        if name and name not in seen:
            raise DataFileError(
                source, f"there is no column {name!r} {what}; the columns are {shown}{did_you_mean(name, seen)}"
            )


def _device_of_rows(block: Block, roles: Roles) -> np.ndarray:
    if roles.device and roles.device in block.table.column_names:
        return names(plain(block, roles.device))[0]
    return np.full(block.n_rows, block.device or "")


def _column(  # noqa: PLR0911  (one per reason)
    source: str, name: str, seen: _Seen, decimal: str, owners: np.ndarray, is_asked: bool
) -> tuple[Column | None, str]:
    """Return a column as it is learned from, or why it is not."""
    as_number = _number(name)
    if as_number.measure:  # its source has its measure
        return as_number, ""
    if seen.kind:
        return _refused(source, name, f"it holds {seen.kind}", is_asked)
    if not seen.n_values:
        return (as_number, "") if is_asked else (None, "every value is missing")
    by_decimal = {",": seen.n_numbers_with_comma, "1,000": seen.n_numbers_with_groups}
    n_numbers = by_decimal.get(decimal, seen.n_numbers)
    if n_numbers >= seen.n_values:
        why = _not_a_measurement(np.concatenate(seen.values), owners)
        if why and is_asked:
            _LOG.warning("%s: column %r is learned from as asked: %s", source, name, why)
        return (None, why) if why and not is_asked else (as_number, "")
    if seen.n_times == seen.n_values:
        return _refused(source, name, "dates or times", is_asked)
    if 2 * n_numbers > seen.n_values and seen.odd is not None:
        block, row, text = seen.odd
        why = "the header is repeated here; remove the row"
        if text != name:
            why = f"{text!r} is text, but column {name!r} holds numbers; correct it, empty it, or --ignore {name}"
        raise block.error(row, why)
    is_unique = seen.n_words >= _LEAST_ROWS and len(seen.words) >= _NEARLY_ALL * seen.n_words
    if is_unique and not is_asked:
        return None, "nearly every row has a different word: an identifier"
    return Column(as_number.name, "words"), ""


def _number(name: str) -> Column:
    """Return a column of numbers by its name, which may have a unit and what it measures."""
    base, kind, unit, measure = name_and_unit(name)
    return Column(base, kind, unit, measure)


def _not_a_measurement(values: Floats, owners: np.ndarray) -> str:
    """Return why numbers look like an identifier, a counter or a clock; nothing if they do not."""
    owners = owners[: len(values)]
    is_there = np.isfinite(values)
    values, owners = values[is_there], owners[is_there]
    if len(values) < _LEAST_ROWS:
        return ""
    n_different = len(np.unique(values))
    if n_different >= _NEARLY_ALL * len(values) and (values == np.round(values)).all():
        return "whole numbers, nearly all different: an identifier or a counter"
    if n_different < max(10, len(values) // 20):
        return ""
    order = np.argsort(owners, kind="stable") if owners.dtype.kind == "U" else np.arange(len(values))
    of_owner = owners[order]
    steps = np.diff(values[order])[of_owner[1:] == of_owner[:-1]]
    if len(steps) >= _LEAST_ROWS // 2 and ((steps >= 0).all() or (steps <= 0).all()):
        return "it only rises or only falls on every device: a counter or a clock"
    return ""


def _refused(source: str, name: str, why: str, is_asked: bool) -> tuple[None, str]:
    if is_asked:
        raise DataFileError(source, f"column {name!r} of --columns cannot be learned from: {why}")
    return None, why


def _nothing(kept: Sequence[Column], left_out: dict[str, str]) -> str:
    why = "; ".join(f"{name}: {why}" for name, why in list(left_out.items())[:3])
    if kept:
        return "only words are there; a detector needs at least one column of numbers" + (why and f" ({why})")
    return f"no column is left to learn from ({why or 'there is none'}); give a table with columns of numbers"


# -- blocks as numbers ------------------------------------------------------------------------------------------------

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
        texts: list[str | None] = (
            [] if self.given_times is None else as_arrow(self.given_times).cast("string").to_pylist()
        )
        return texts or None

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


def rows_of(schema: Schema, block: Block) -> Rows:
    """Return a block as numbers; columns are found by name, in any order."""
    given = _match(schema, block)
    values = np.empty((block.n_rows, schema.n_features), np.float32, order="F")
    errors, at = dict(block.errors), 0
    for column in schema.columns:
        array = given.get(column.name)
        width = len(column.features) if column.kind == "words" else 1
        if array is None:
            values[:, at : at + width] = np.nan
        elif column.kind == "words":
            from tolfl.tables.arrow_values import hashed  # noqa: PLC0415  (pyarrow is an extra)

            place, codes = hashed(as_arrow(array))
            values[:, at : at + N_HASHES] = place[:, None] == np.arange(N_HASHES)
            values[place < 0, at : at + N_HASHES] = np.nan
            values[:, at + N_HASHES] = np.where(codes < 0, np.nan, codes)
        else:
            _take_numbers(schema, block, column, array, values[:, at], errors)
        at += width
    return _with_roles(schema, Rows(block, values, errors), given)


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
            errors.setdefault(row, _not_a_number(value_at(array, row), column.name))
        for row in np.flatnonzero(is_infinite).tolist():
            what = "infinite" if np.isinf(found[row]) else f"{found[row]:g}, too large for single precision"
            errors.setdefault(row, f"the value in column {column.name!r} is {what}")
        into[is_infinite] = np.nan


def plain(block: Block, name: str) -> Values:
    """Return a column of a block as one array, without the encodings that only save space."""
    column: Values = block.table.column(name)
    if isinstance(column, np.ndarray):
        return column
    from tolfl.tables.arrow_values import plain as plain_arrow  # noqa: PLC0415  (pyarrow is an extra)

    return plain_arrow(column)


def _match(schema: Schema, block: Block) -> dict[str, Values]:
    """Return the columns that are needed, by the names they have here; or say which are not there."""
    by_name = {name_and_unit(name)[0]: name for name in block.table.column_names}
    wanted = [column.name for column in schema.columns]
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
    found = {name: plain(block, by_name[name]) for name in wanted if name in by_name}
    for column in schema.columns:
        if column.name not in found:
            continue
        kind = kind_of_values(found[column.name])
        if block.is_ragged and not (block.first == 1 and block.n_rows >= _CERTAIN_ROWS):
            continue  # a line of JSON lines has types of its own, and does not affect others
        if column.kind == "words" and kind == "numbers":
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
            array = plain(block, name)
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


def _not_a_number(value: object, name: str) -> str:
    if value == name:
        return "the header is repeated here"
    return f"{value!r} in column {name!r} is no number"
