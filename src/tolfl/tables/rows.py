"""A block as a matrix: every value read as the schema says, and a bad row spoils no other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError, did_you_mean
from tolfl.tables.block_reader import Block, Errors
from tolfl.tables.schema import N_HASHES, Column, Schema, name_and_unit
from tolfl.tables.values import hashed, is_number, is_text, names, numbers, plain, seconds

Floats32 = NDArray[np.float32]

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
    time_texts: pa.Array | None = None  #: as they were given

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
            place, codes = hashed(array)
            values[:, at : at + N_HASHES] = place[:, None] == np.arange(N_HASHES)
            values[place < 0, at : at + N_HASHES] = np.nan
            values[:, at + N_HASHES] = np.where(codes < 0, np.nan, codes)
        else:
            _take_numbers(schema, block, column, array, values[:, at], errors)
        at += width
    return _with_roles(schema, Rows(block, values, errors), given)


def _take_numbers(
    schema: Schema, block: Block, column: Column, array: pa.Array, into: Floats32, errors: Errors
) -> None:
    found, is_bad = numbers(array, schema.decimal)
    if block.first == 1 and len(array) >= _CERTAIN_ROWS and is_bad.all():
        first = array[0].as_py()
        raise DataFileError(block.source, f"column {column.name!r} holds words ({first!r}), numbers were trained on")
    with np.errstate(over="ignore"):
        into[:] = found
    is_infinite = np.isinf(into)
    if is_bad.any() or is_infinite.any():
        for row in np.flatnonzero(is_bad).tolist():
            errors.setdefault(row, _not_a_number(array[row].as_py(), column.name))
        for row in np.flatnonzero(is_infinite).tolist():
            what = "infinite" if np.isinf(found[row]) else f"{found[row]:g}, too large for single precision"
            errors.setdefault(row, f"the value in column {column.name!r} is {what}")
        into[is_infinite] = np.nan


def _match(schema: Schema, block: Block) -> dict[str, pa.Array]:
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
    found = {name: plain(block.table.column(by_name[name])) for name in wanted if name in by_name}
    for column in schema.columns:
        if column.name not in found:
            continue
        kind = found[column.name].type
        if block.is_ragged and not (block.first == 1 and block.n_rows >= _CERTAIN_ROWS):
            continue  # a line of JSON lines has types of its own, and spoils no other
        if column.kind == "words" and is_number(kind) and found[column.name].null_count < block.n_rows:
            raise DataFileError(block.source, f"column {column.name!r} holds numbers ({kind}), words were trained on")
        if column.kind == "number" and not (is_number(kind) or is_text(kind) or pa.types.is_null(kind)):
            raise DataFileError(block.source, f"column {column.name!r} holds {kind}, numbers were trained on")
    return found


def _with_roles(schema: Schema, rows: Rows, given: dict[str, pa.Array]) -> Rows:
    block, roles = rows.block, schema.roles
    for role in ("device", "label", "time"):
        name = getattr(roles, role)
        if not name:
            continue
        array = given.get(name)
        if array is None and name in block.table.column_names:
            array = plain(block.table.column(name))
        if array is None and block.is_ragged:
            array = pa.nulls(block.n_rows, pa.string())
        if array is None:
            if role == "device" and block.device:
                continue  # the file's name says whose rows these are
            have = ", ".join(block.table.column_names[:30])
            raise DataFileError(block.source, f"there is no column {name!r} for the {role}; the columns are {have}")
        _take_role(schema, rows, role, name, array)
    if rows.devices is None and block.device:
        rows.devices = np.full(block.n_rows, block.device)
    return rows


def _take_role(schema: Schema, rows: Rows, role: str, name: str, array: pa.Array) -> None:
    if role == "time":
        rows.times, is_bad = seconds(array, schema.is_day_first)
        rows.time_texts = array if is_text(array.type) else array.cast(pa.string())
        why = "is no time; write 2024-01-31 12:00:00 or seconds"
    else:
        found, is_bad = names(array)
        rows.devices, rows.labels = (found, rows.labels) if role == "device" else (rows.devices, found)
        why = ""
    for row in np.flatnonzero(is_bad).tolist():
        value = array[row].as_py()
        is_empty = value is None or not why or not str(value).strip()
        rows.errors.setdefault(row, f"column {name!r} is empty" if is_empty else f"{value!r} in column {name!r} {why}")


def _not_a_number(value: object, name: str) -> str:
    if value == name:
        return "the header stands here again"
    return f"{value!r} in column {name!r} is no number"
