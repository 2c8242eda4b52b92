"""Which columns of a table are learned from, and how: settled from all of its rows, before anybody trains."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tolfl.core.errors import DataFileError, did_you_mean
from tolfl.tables.array_files import not_a_measurement
from tolfl.tables.block_reader import Block, check_names
from tolfl.tables.schema import Column, Roles, Schema, name_and_unit
from tolfl.tables.values import (
    COMMA_NUMBER,
    POINT_NUMBER,
    Floats,
    are_times,
    cast,
    count,
    is_number,
    is_text,
    names,
    numbers,
    order_of_dates,
    plain,
    without_signs,
    words,
)

#: What looks like an identifier, a counter or a clock is looked for in the first rows, so many values of all columns.
_KEPT_ROWS, _KEPT_VALUES = 20_000, 20_000_000
_LEAST_ROWS = 50  #: fewer rows tell nothing of a column's nature
_NEARLY_ALL = 0.95
_LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class _Seen:
    """What all values of one column are, so far."""

    n_values: int = 0
    n_numbers: int = 0
    n_numbers_with_comma: int = 0  #: numbers if 1,234 has three decimals
    n_commas: int = 0  #: numbers with a decimal comma for certain
    has_point: bool = False  #: whether one has a decimal point
    n_times: int = 0
    n_day_first: int = 0  #: dates with the day before the month for certain
    n_month_first: int = 0
    n_rows: int = 0
    kind: str = ""  #: a type that is neither number nor word
    odd: tuple[Block, int, str] | None = None  #: the first value that is no number, and where it is
    words: set[str] = field(default_factory=set)
    n_words: int = 0  #: values that `words` was gathered from
    values: list[Floats] = field(default_factory=list)  #: of the first rows
    n_kept: int = 0

    def add(self, block: Block, array: pa.Array, most_kept: int) -> None:
        self.n_rows += len(array)
        kind = array.type
        if pa.types.is_null(kind):
            self._keep(np.full(len(array), np.nan), most_kept)
        elif pa.types.is_temporal(kind):
            n_values = len(array) - array.null_count
            self.n_values, self.n_times = self.n_values + n_values, self.n_times + n_values
        elif is_number(kind):
            self._add_numbers(numbers(array)[0], most_kept)
        elif is_text(kind):
            self._add_text(block, array, most_kept)
        else:
            self.kind = str(kind)

    def _add_numbers(self, values: Floats, most_kept: int) -> None:
        n_values = int(np.count_nonzero(~np.isnan(values)))
        self.n_values += n_values
        self.n_numbers += n_values
        self.n_numbers_with_comma += n_values
        self._keep(values, most_kept)

    def _add_text(self, block: Block, array: pa.Array, most_kept: int) -> None:
        try:
            values = cast(array, pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            pass
        else:
            self.has_point = self.has_point or bool(pc.any(pc.match_substring(array, ".")).as_py())
            self._add_numbers(values, most_kept)
            return
        all_text = words(array)
        text = all_text.drop_null()
        values, is_bad = numbers(array)
        self.n_values += len(text)
        self.n_numbers += len(text) - int(is_bad.sum())
        self.n_numbers_with_comma += len(text) - int(numbers(array, ",")[1].sum())
        self.n_commas += count(pc.match_substring_regex(without_signs(text), COMMA_NUMBER))
        self.has_point = self.has_point or bool(pc.any(pc.match_substring_regex(text, POINT_NUMBER)).as_py())
        if n_times := count(are_times(text)):
            self.n_times += n_times
            n_day_first, n_month_first = order_of_dates(text)
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


def settle(  # noqa: PLR0912  (one argument per flag)
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
        Columns that say whose, what and when; what a source itself says is used where none is named.
    columns
        The only ones to learn from, whatever they look like.
    ignore
        Not to be learned from.
    encoding, fill_missing
        To be remembered.
    """
    roles = roles or Roles()
    seen: dict[str, _Seen] = {}
    beside: set[str] = set()
    devices: list[np.ndarray] = []
    source, most_kept = "X", _KEPT_ROWS
    n_rows: Counter[str] = Counter()  #: by source
    first_names: set[str] = set()
    for block in blocks:
        if block.errors:
            place = min(block.errors)
            raise block.error(place, f"{block.errors[place]}; correct the row")
        if not first_names:
            source = block.source
            check_names(list(block.table.column_names), source)
            most_kept = min(_KEPT_ROWS, _KEPT_VALUES // max(1, len(block.table.column_names)))
            first_names = set(block.table.column_names)
        elif not block.is_ragged and set(block.table.column_names) != first_names:
            different = ", ".join(map(repr, sorted(set(block.table.column_names) ^ first_names)[:5]))
            raise DataFileError(block.source, f"its columns are not those of {source} (different: {different}); "
                                "give all the same")  # fmt: skip
        roles = Roles(*(getattr(roles, role) or block.roles.get(role, "") for role in ("device", "label", "time")))
        beside.update(block.beside)
        for name in block.table.column_names:
            seen.setdefault(name, _Seen()).add(block, plain(block.table.column(name)), most_kept)
        if n_rows.total() < most_kept:
            devices.append(_device_of_rows(block, roles))
        n_rows[block.source] += block.n_rows
    if empty := next((name for name, n_of_source in n_rows.items() if not n_of_source), source if not n_rows else ""):
        raise DataFileError(empty, "there is no row of data in it; fill it" + " or remove it" * (len(n_rows) > 1))
    as_written = {name_and_unit(name)[0]: name for name in seen}
    columns, ignore = ([as_written.get(name, name) for name in asked] for asked in (columns, ignore))
    _check_asked(source, seen, roles, columns, ignore)
    found = {name: one for name, one in seen.items() if name not in {*roles.columns, *beside, *ignore}}
    if columns:
        found = {name: found[name] for name in columns if name in found}
    decimal = _decimal_of(found.values())
    left_out = dict.fromkeys(ignore, "as asked")
    kept: list[Column] = []
    owners = np.concatenate(devices) if devices else np.zeros(0, int)
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
    """Return the decimal mark of a table: one program wrote it. 1,234 alone is 1.234 unless there are points, too."""
    has_comma = any(one.n_commas for one in seen)
    is_open = not any(one.has_point for one in seen)
    return "," if has_comma or (is_open and any(one.n_numbers_with_comma > one.n_numbers for one in seen)) else "."


def _is_day_first(seen: Mapping[str, _Seen]) -> bool | None:
    """Return how the dates of a table are written: one program wrote them all. None: none of them says."""
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
        return names(plain(block.table.column(roles.device)))[0]
    return np.full(block.n_rows, block.device or "")


def _column(  # noqa: PLR0911  (one per reason)
    source: str, name: str, seen: _Seen, decimal: str, owners: np.ndarray, is_asked: bool
) -> tuple[Column | None, str]:
    """Return a column as it is learned from, or why it is not."""
    base, _, unit, measure = name_and_unit(name)
    if measure:  # its source knows what it is
        return Column(base, unit=unit, measure=measure), ""
    if seen.kind:
        return _refused(source, name, f"it holds {seen.kind}", is_asked)
    if not seen.n_values:
        return (Column(base, unit=unit), "") if is_asked else (None, "every value is missing")
    n_numbers = seen.n_numbers_with_comma if decimal == "," else seen.n_numbers
    if n_numbers >= seen.n_values:
        why = not_a_measurement(np.concatenate(seen.values), owners)
        if why and is_asked:
            _LOG.warning("%s: column %r is learned from as asked: %s", source, name, why)
        return (None, why) if why and not is_asked else (Column(base, unit=unit), "")
    if seen.n_times == seen.n_values:
        return _refused(source, name, "dates or times", is_asked)
    if 2 * n_numbers > seen.n_values and seen.odd is not None:
        block, row, text = seen.odd
        why = "the header stands here again; remove the row"
        if text != name:
            why = f"{text!r} is text, but column {name!r} holds numbers; correct it, empty it, or --ignore {name}"
        raise block.error(row, why)
    is_unique = seen.n_words >= _LEAST_ROWS and len(seen.words) >= _NEARLY_ALL * seen.n_words
    if is_unique and not is_asked:
        return None, "nearly every row has another word: an identifier"
    return Column(base, "words"), ""


def _refused(source: str, name: str, why: str, is_asked: bool) -> tuple[None, str]:
    if is_asked:
        raise DataFileError(source, f"column {name!r} of --columns cannot be learned from: {why}")
    return None, why


def _nothing(kept: Sequence[Column], left_out: dict[str, str]) -> str:
    why = "; ".join(f"{name}: {why}" for name, why in list(left_out.items())[:3])
    if kept:
        return "only words are there; a detector needs at least one column of numbers" + (why and f" ({why})")
    return f"no column is left to learn from ({why or 'there is none'}); give a table with columns of numbers"
