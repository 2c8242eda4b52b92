"""Samples from NPY and NPZ files, with NumPy alone: a device that reads these needs no reader of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError, did_you_mean
from tolfl.tables.folders import unreadable
from tolfl.tables.schema import Column, Roles, Schema, name_and_unit

#: Arrays of a NumPy file that are no samples, by the role that they have unless others are named.
_USUAL_ARRAYS = {"device": "device", "label": "y", "time": "time"}

KEPT_ROWS = 20_000  #: what looks like an identifier, a counter or a clock is looked for in so many
LEAST_ROWS = 50  #: fewer rows tell nothing of a column's nature
NEARLY_ALL = 0.95

Array = NDArray[Any]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ArrayFile:
    """The samples of a file, one row each, and the arrays beside them, one value per row."""

    name: str
    samples: Array  #: `(n_rows, n_columns)`
    columns: tuple[str, ...]
    has_names: bool  #: False: columns are known by their place alone
    beside: dict[str, Array]

    @property
    def roles(self) -> dict[str, str]:
        """Which arrays say whose, what and when, by their usual names."""
        return {role: key for role, key in _USUAL_ARRAYS.items() if key in self.beside}

    def column(self, name: str, what: str) -> Array:
        """Return a column, of the samples or beside them; or say that there is none."""
        if name in self.beside:
            return self.beside[name]
        if name in self.columns:
            values: Array = self.samples[:, self.columns.index(name)]
            return values
        have = [*self.columns, *self.beside]
        raise DataFileError(
            self.name,
            f"there is no column {name!r} {what}; the columns are {', '.join(have[:30])}{did_you_mean(name, have)}",
        )


def open_arrays(path: Path) -> ArrayFile:
    """Return the samples of an NPY or NPZ file."""
    try:
        with path.open("rb") as stream:
            return read_arrays(stream, str(path))
    except (FileNotFoundError, PermissionError, IsADirectoryError) as problem:
        raise unreadable(path, problem) from None


def read_arrays(stream: BinaryIO, name: str) -> ArrayFile:
    """Return the samples of an NPY file, or of an NPZ file: `X` and, if there, `names`, `device`, `y` and `time`."""
    try:
        loaded = np.load(stream, allow_pickle=False)
        packed = [] if isinstance(loaded, np.ndarray) else loaded.zip.namelist()
        arrays = {"X": loaded} if isinstance(loaded, np.ndarray) else {key: loaded[key] for key in loaded.files}
    except Exception as problem:  # a damaged header leads numpy to half a dozen kinds of errors
        if isinstance(problem, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        if any(word in str(problem) for word in ("allow_pickle", "Object arrays", "Python objects")):
            raise DataFileError(
                name, "it holds pickled objects, which are never read, they can run code; save arrays of numbers"
            ) from None
        raise DataFileError(name, "cannot be read as a NumPy file; check that it is whole") from None
    if other := next((one for one in packed if not one.endswith(".npy")), None):
        raise DataFileError(
            name, f"this is an archive or a workbook (with {other}); unpack it, or save the table as CSV"
        )
    samples = arrays.pop("X", None)
    if samples is None:
        raise DataFileError(name, f"there is no array 'X' for the samples; the arrays are {', '.join(sorted(arrays))}")
    if samples.dtype.kind not in "biuf":
        raise DataFileError(name, f"the samples are {samples.dtype}, not numbers; convert them")
    if samples.ndim < 2 or not samples.size:
        raise DataFileError(name, f"the samples have shape {samples.shape}; give one row per sample, and at least one")
    samples = samples.reshape(len(samples), -1)
    names = tuple(str(one) for one in arrays.pop("names", []))
    has_names = len(names) == samples.shape[1]
    names = names if has_names else tuple(f"x{place}" for place in range(samples.shape[1]))
    for key, array in arrays.items():
        if array.shape != (len(samples),):
            raise DataFileError(name, f"array {key!r} has shape {array.shape}; give one value per sample of X")
    beside = {key: _text_of(name, key, array) for key, array in arrays.items() if key not in names}
    return ArrayFile(name, samples, names, has_names, beside)


def _text_of(name: str, key: str, array: Array) -> Array:
    if array.dtype.kind not in "SUbiufM":
        raise DataFileError(name, f"array {key!r} is {array.dtype}; give names or numbers")
    if array.dtype.kind != "S":
        return array
    try:
        return np.char.decode(array, "utf-8")
    except UnicodeDecodeError:
        raise DataFileError(name, f"array {key!r} is {array.dtype}; give names or numbers") from None


# -- what is learned from ---------------------------------------------------------------------------------------------


def settle_arrays(
    files: Sequence[tuple[str, ArrayFile]], roles: Roles, columns: Sequence[str] = (), ignore: Sequence[str] = ()
) -> Schema:
    """Return the schema that the files of all devices lead to, as `settle` does for tables."""
    first = files[0][1]
    for _, file in files[1:]:
        if different := {*file.columns, *file.beside} ^ {*first.columns, *first.beside}:
            shown = ", ".join(map(repr, sorted(different)[:5]))
            raise DataFileError(
                file.name, f"its columns are not those of {first.name} (different: {shown}); give all the same"
            )
    roles = Roles(*(getattr(roles, role) or first.roles.get(role, "") for role in _USUAL_ARRAYS))
    written = {name_and_unit(name)[0]: name for name in first.columns}
    columns, ignore = ([written.get(name, name) for name in asked] for asked in (columns, ignore))
    for asked, what in ((columns, "of --columns"), (ignore, "of --ignore")):
        for name in asked:
            first.column(name, what)
    left_out, kept = dict.fromkeys(ignore, "as asked"), []
    owners = np.concatenate([owners_of(file, device, roles) for device, file in files])[:KEPT_ROWS]
    for name in columns or [name for name in first.columns if name not in {*roles.columns, *ignore}]:
        values = np.concatenate([file.column(name, "").astype(np.float64) for _, file in files])
        if np.isnan(values).all() and not columns:
            left_out[name] = "every value is missing"
        elif not columns and (why := not_a_measurement(values[:KEPT_ROWS], owners)):
            left_out[name] = why
        else:
            base, _, unit, _ = name_and_unit(name)
            kept.append(Column(base, unit=unit))
    if not kept:
        why = "; ".join(f"{name}: {why}" for name, why in list(left_out.items())[:3])
        raise DataFileError(
            first.name, f"no column is left to learn from ({why}); give a table with columns of numbers"
        )
    return Schema(tuple(kept), roles, left_out=left_out)


def not_a_measurement(values: NDArray[np.float64], owners: Array) -> str:
    """Return why numbers look like an identifier, a counter or a clock; nothing if they do not."""
    owners = owners[: len(values)]
    is_there = np.isfinite(values)
    values, owners = values[is_there], owners[is_there]
    if len(values) < LEAST_ROWS:
        return ""
    n_different = len(np.unique(values))
    if n_different >= NEARLY_ALL * len(values) and (values == np.round(values)).all():
        return "whole numbers, nearly all different: an identifier or a counter"
    if n_different < max(10, len(values) // 20):
        return ""
    order = np.argsort(owners, kind="stable") if owners.dtype.kind == "U" else np.arange(len(values))
    of_owner = owners[order]
    steps = np.diff(values[order])[of_owner[1:] == of_owner[:-1]]
    if len(steps) >= LEAST_ROWS // 2 and ((steps >= 0).all() or (steps <= 0).all()):
        return "it only rises or only falls on every device: a counter or a clock"
    return ""


# -- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """The rows of a file as a schema says, NaN where a value is missing."""

    values: NDArray[np.float32]
    devices: NDArray[np.str_] | None
    labels: NDArray[np.str_] | None
    times: NDArray[np.float64] | None


def array_rows(file: ArrayFile, schema: Schema, device: str) -> ArrayRows:
    """Return the rows of one device's file; columns are found by name, in any order, and a bad value is one sentence.

    Without names of its own, a file's columns are known by their place.
    """
    wanted = [column.name for column in schema.columns]
    by_name = {name_and_unit(name)[0]: place for place, name in enumerate(file.columns)}
    if not file.has_names and not set(wanted) <= by_name.keys():
        if len(wanted) != len(file.columns):
            raise DataFileError(
                file.name, f"{len(file.columns)} features, but the fleet has agreed on {len(wanted)} columns"
            )
        by_name = {name: place for place, name in enumerate(wanted)}
    if lost := [name for name in wanted if name not in by_name]:
        near = did_you_mean(lost[0], by_name)
        raise DataFileError(
            file.name,
            f"there is no column {lost[0]!r}, which the fleet has; the file has {', '.join(list(by_name)[:30])}{near}",
        )
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(file.samples[:, [by_name[name] for name in wanted]], np.float32)
    if (is_bad := np.isinf(values)).any():
        row, place = (int(one) for one in np.argwhere(is_bad)[0])
        found = float(file.samples[row, by_name[wanted[place]]])
        what = "infinite" if np.isinf(found) else f"{found:g}, too large for single precision"
        raise _bad_row(file, row, f"the value in column {wanted[place]!r} is {what}")
    roles = schema.roles
    if roles.device and roles.device not in {*file.beside, *file.columns} and device:
        roles = msgspec.structs.replace(roles, device="")  # the file's name says whose rows these are
    return ArrayRows(
        values,
        owners_of(file, device, roles) if roles.device or device else None,
        _names(file, roles.label, "for the label") if roles.label else None,
        _seconds(file, roles.time) if roles.time else None,
    )


def owners_of(file: ArrayFile, device: str, roles: Roles) -> NDArray[np.str_]:
    """Return whose each row is."""
    if roles.device and (roles.device in {*file.beside, *file.columns} or not device):
        return _names(file, roles.device, "for the device")
    return np.full(len(file.samples), device)


def _bad_row(file: ArrayFile, row: int, problem: str) -> DataFileError:
    return DataFileError(file.name, f"data row {row + 1}: {problem}; correct it, or leave the row out")


def _names(file: ArrayFile, column: str, what: str) -> NDArray[np.str_]:
    """Return values as names, whole numbers without a point."""
    values = file.column(column, what)
    if values.dtype.kind == "f":
        texts = np.array(["" if np.isnan(one) else str(one).removesuffix(".0") for one in values.tolist()], str)
    elif values.dtype.kind == "b":
        texts = np.where(values, "true", "false")
    else:
        texts = np.char.strip(values.astype(str))
    if (is_empty := texts == "").any():
        raise _bad_row(file, int(np.argmax(is_empty)), f"column {column!r} is empty")
    return texts


def _seconds(file: ArrayFile, column: str) -> NDArray[np.float64]:
    """Return values as seconds, dates since 1970, numbers as they are."""
    values = file.column(column, "for the time")
    if values.dtype.kind == "U":
        try:
            values = values.astype("M8[us]")
        except ValueError:
            raise _bad_row(file, 0, f"{values[0]!r} in column {column!r} is no time; write seconds") from None
    if values.dtype.kind == "M":
        is_missing = np.isnat(values)
        found: NDArray[np.float64] = values.astype("M8[us]").astype(np.int64) / 1e6
        found[is_missing] = np.nan
    else:
        found = values.astype(np.float64)
    if (is_bad := ~np.isfinite(found)).any():
        raise _bad_row(file, int(np.argmax(is_bad)), f"column {column!r} is empty")
    return found
