"""The schema of a table, settled once, from all its rows: what is learned from, and how its values are written."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tolfl.core.errors import DataFileError, did_you_mean
from tolfl.tables.block_reader import Block, check_names
from tolfl.tables.schema import Column, Roles, Schema, name_and_unit
from tolfl.tables.values import Floats, Values, as_arrow, kind_of_values, names, numbers

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT_ROWS = 20_000  #: rows in which identifiers, counters and clocks are looked for
_LEAST_ROWS = 50  #: fewer rows are not enough to recognise them
_NEARLY_ALL = 0.95
_KEPT_VALUES = 20_000_000  #: of all columns, in which identifiers, counters and clocks are looked for
_LOG = logging.getLogger(__name__)

_MARKS = (".", ",", "1,000")  #: what 1,234 is: no number, 1.234, or 1234


@dataclass(eq=False)
class _Seen:
    """The values of one column so far: kinds and counts."""

    most_kept: int  #: values of the first rows
    #: `values`; those that are numbers, by what 1,234 is (`_MARKS`); numbers with a decimal comma, a comma behind
    #: thousands or a decimal point for certain (`commas`, `groups`, `points`); `times`; dates with the day or the month
    #: first for certain (`days`, `months`).
    n: Counter[str] = field(default_factory=Counter)
    kind: str = ""  #: a type that is neither number nor word
    odd: tuple[Block, int, str] | None = None  #: the first value that is no number, and where it is
    words: set[str] = field(default_factory=set)
    n_words: int = 0  #: values that `words` was gathered from
    kept: list[Floats] = field(default_factory=list)

    def add(self, block: Block, values: Values) -> None:
        kind = kind_of_values(values)
        if kind in {"numbers", "nothing"}:
            self._add_numbers(numbers(values)[0])
        elif kind == "text":
            self._add_text(block, as_arrow(values))
        elif kind == "times":
            n_values = len(values) - as_arrow(values).null_count
            self.n.update(values=n_values, times=n_values)
        else:
            self.kind = kind

    def _add_numbers(self, values: Floats) -> None:
        self.n.update(dict.fromkeys(("values", *_MARKS), int(np.count_nonzero(~np.isnan(values)))))
        self._keep(values)

    def _add_text(self, block: Block, array: pa.Array) -> None:
        import pyarrow as pa  # noqa: PLC0415  (an extra)
        import pyarrow.compute as pc  # noqa: PLC0415  (as above)

        from tolfl.tables import arrow_values as arrow  # noqa: PLC0415  (as above)

        try:
            values = arrow.cast(array, pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            pass
        else:
            self.n["points"] += arrow.count(pc.match_substring(array, "."))
            self._add_numbers(values)
            return
        all_text = arrow.words(array)
        text = all_text.drop_null()
        bare = arrow.without_signs(text)
        values, is_bad = numbers(array)
        n_bad = {".": is_bad.sum(), **{mark: numbers(array, mark)[1].sum() for mark in _MARKS[1:]}}
        self.n.update({"values": len(text), **{mark: len(text) - int(n) for mark, n in n_bad.items()}})
        self.n["commas"] += arrow.count(pc.match_substring_regex(bare, arrow.COMMA_NUMBER))
        self.n["groups"] += arrow.count(pc.match_substring_regex(bare, arrow.GROUPED_NUMBER))
        self.n["points"] += arrow.count(pc.match_substring_regex(bare, arrow.POINT_NUMBER))
        if n_times := arrow.count(arrow.are_times(text)):
            n_day_first, n_month_first = arrow.order_of_dates(text)
            self.n.update(times=n_times, days=n_day_first, months=n_month_first)
        if self.odd is None and is_bad.any():
            row = int(np.argmax(is_bad))
            self.odd = (block, row, all_text[row].as_py())
        if self.n_words < _KEPT_ROWS:
            self.words.update(pc.unique(text).to_pylist())
            self.n_words += len(text)
        self._keep(values)

    def _keep(self, values: Floats) -> None:
        if (n_kept := sum(map(len, self.kept))) < self.most_kept:
            self.kept.append(values[: self.most_kept - n_kept])


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
            seen = self.columns.setdefault(name, _Seen(most_kept))
            if name not in block.beside:
                seen.add(block, block.column(name))
        if self.n_rows.total() < most_kept:
            device = self.roles.device
            is_column = device and device in names_here
            self.devices.append(names(block.column(device))[0] if is_column else np.full(block.n_rows, block.device))
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
    decimal = _decimal_of(sum((one.n for one in found.values()), Counter()), found.values())
    dates = sum((one.n for one in seen.values()), Counter[str]())  # of a table, which one program wrote
    is_day_first = None if dates["days"] == dates["months"] else dates["days"] > dates["months"]
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
    with_numbers = {name_and_unit(name)[0] for name, one in found.items() if one.n[decimal]}
    codes = tuple(column.name for column in kept if column.kind == "words" and column.name in with_numbers)
    return Schema(tuple(kept), roles, decimal, is_day_first, encoding, fill_missing, left_out, codes)  # type: ignore[arg-type]


def _decimal_of(n: Counter[str], seen: Collection[_Seen]) -> str:
    """Return what a comma is in a table, which one program wrote. 1,234 alone is 1.234 unless there are points."""
    if n["commas"]:
        return ","
    if n["points"] or n["groups"]:
        return "1,000" if any(one.n["1,000"] > one.n["."] for one in seen) else "."
    return "," if any(one.n[","] > one.n["."] for one in seen) else "."


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


def _column(  # noqa: PLR0911  (one per reason)
    source: str, name: str, seen: _Seen, decimal: str, owners: np.ndarray, is_asked: bool
) -> tuple[Column | None, str]:
    """Return a column as it is learned from, or why it is not."""
    as_number = Column(*name_and_unit(name))
    if as_number.measure:  # its source has its measure
        return as_number, ""
    if seen.kind:
        return _refused(source, name, f"it holds {seen.kind}", is_asked)
    if not seen.n["values"]:
        return (as_number, "") if is_asked else (None, "every value is missing")
    if seen.n[decimal] >= seen.n["values"]:
        why = _not_a_measurement(np.concatenate(seen.kept), owners)
        if why and is_asked:
            _LOG.warning("%s: column %r is learned from as asked: %s", source, name, why)
        return (None, why) if why and not is_asked else (as_number, "")
    if seen.n["times"] == seen.n["values"]:
        return _refused(source, name, "dates or times", is_asked)
    if 2 * seen.n[decimal] > seen.n["values"] and seen.odd is not None:
        block, row, text = seen.odd
        why = "the header is repeated here; remove the row"
        if text != name:
            why = f"{text!r} is text, but column {name!r} holds numbers; correct it, empty it, or --ignore {name}"
        raise block.error(row, why)
    is_unique = seen.n_words >= _LEAST_ROWS and len(seen.words) >= _NEARLY_ALL * seen.n_words
    if is_unique and not is_asked:
        return None, "nearly every row has a different word: an identifier"
    return Column(as_number.name, "words"), ""


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
    order = np.argsort(owners, kind="stable")
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
