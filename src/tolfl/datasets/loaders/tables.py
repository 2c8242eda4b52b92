"""Tables of one's own: CSV, Parquet, NPZ, captures, recordings, or a folder with one such file per device."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from tolfl.datasets.loaders.arrays import TYPICAL, join_arrays, read_arrays
from tolfl.datasets.loaders.captures import read_captures
from tolfl.datasets.loaders.columns import Column, is_number, is_text, names, plain, seconds
from tolfl.datasets.loaders.csv_files import read_csv
from tolfl.datasets.loaders.features import to_features
from tolfl.datasets.loaders.files import unreadable
from tolfl.datasets.loaders.folders import ARRAY_KINDS, device_files, kind_of, owner_of
from tolfl.datasets.loaders.problems import DataFileError, MissingDataError
from tolfl.datasets.loaders.recordings import read_recordings
from tolfl.datasets.loaders.rows import Rows
from tolfl.datasets.raw import RawData
from tolfl.signals.captures.windows import CAPTURE_GRID
from tolfl.signals.windows import WindowGrid

Columns = dict[str, Column]


def read_table(
    path: Path | str,
    device_column: str = "",
    label_column: str = "",
    time_column: str = "",
    *,
    grid: WindowGrid = CAPTURE_GRID,
) -> RawData:
    """Return the rows of a table as samples.

    Parameters
    ----------
    path
        A CSV file (also `.gz`; comma, semicolon or tab), a Parquet file, an NPZ file with the arrays `X` and, if
        there, `y`, `device` and `time`, a capture (pcap or pcapng), a recording (SigMF), or a folder with one file per
        device, whose name is the file's.
    device_column, label_column, time_column
        Columns (for NPZ, arrays) that are no features. Without a label column all rows are class "typical".
    grid
        The windows of a capture.

    Numbers become features in the order of the file, true and false 1 and 0, words one feature per value. Missing
    values are 0 in `samples` and marked in `missing`.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise MissingDataError(f"{path}: no such file or folder; check the path")
    files = device_files(path) if path.is_dir() else [path]
    roles = (device_column.strip(), label_column.strip(), time_column.strip())
    name = f"{path.name}/" if path.is_dir() else path.name
    if kind_of(files[0]) == "capture":
        return read_captures(name, files, roles, has_owners=path.is_dir(), grid=grid)
    if kind_of(files[0]) == "recording":
        return read_recordings(name, files, roles, has_owners=path.is_dir())
    if kind_of(files[0]) in ARRAY_KINDS:
        parts = [read_arrays(file, *roles) for file in files]
        owners = [owner_of(file) for file in files] if path.is_dir() else None
        return join_arrays(name, files, parts, owners)
    if not path.is_dir():
        return to_raw(name, Rows.of(path), read_columns(path), *roles)
    rows, columns, owners_of_rows = _joined(path, files)
    return to_raw(name, rows, columns, *roles, owners=owners_of_rows)


def to_raw(
    name: str,
    rows: Rows,
    columns: Columns,
    device_column: str = "",
    label_column: str = "",
    time_column: str = "",
    owners: NDArray[np.str_] | None = None,
) -> RawData:
    """Return columns as raw data; `columns` is emptied. A device column has the last word about owners."""
    n_rows = len(next(iter(columns.values())))
    times = seconds(rows, time_column, _pick(rows, columns, time_column, "time")) if time_column else None
    if device_column:
        owners = names(rows, device_column, _pick(rows, columns, device_column, "device"))
    labels = np.full(n_rows, TYPICAL)
    if label_column:
        labels = names(rows, label_column, _pick(rows, columns, label_column, "label"))
    for role in {device_column, label_column, time_column} - {""}:
        del columns[role]
    if not columns:
        raise DataFileError(rows.path, "no column is left for features; give a table with columns of numbers")
    features = to_features(rows, columns)
    return RawData(
        name=name,
        samples=features.samples,
        labels=labels,
        owners=owners,
        times=times,
        feature_names=features.names,
        missing=features.missing,
    )


def read_columns(path: Path) -> Columns:
    """Return the columns of a CSV or Parquet file by their names, without blanks around them."""
    table = _read_parquet(path) if kind_of(path) == "parquet" else read_csv(path)
    found = [name.strip() for name in table.column_names]
    if not found:
        raise DataFileError(path, "there is no column in it; remove the file or fill it")
    if "" in found:
        raise DataFileError(
            path,
            f"column {found.index('') + 1} has no name; name it, or, if it counts the rows, write the table "
            "without it (in pandas: index=False)",
        )
    twice = [name for name, count in Counter(found).items() if count > 1]
    if twice:
        raise DataFileError(path, f"there are two columns {twice[0]!r}; give each a name of its own")
    if not table.num_rows:
        raise DataFileError(path, "there is no row of data in it; remove the file or fill it")
    try:
        return {name: plain(column) for name, column in zip(found, table.columns, strict=True)}
    except pa.ArrowException as problem:
        raise DataFileError(path, f"cannot be read ({problem}); write it again") from None


def _read_parquet(path: Path) -> pa.Table:
    try:
        with pa_parquet.ParquetFile(str(path)) as file:
            table = file.read(use_threads=False)
            table.validate(full=True)
        # pandas writes the numbers of rows that it kept as a column of this name: they are no data.
        return table.drop_columns([name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)])
    except PermissionError as problem:
        raise unreadable(path, problem) from None
    except Exception as problem:  # a damaged file leads pyarrow to half a dozen kinds of errors
        text = " ".join(str(problem).split())
        raise DataFileError(path, f"cannot be read as Parquet ({text}); check that it is whole") from None


def _joined(folder: Path, files: list[Path]) -> tuple[Rows, Columns, NDArray[np.str_]]:
    """Return the tables of a folder as one, and whose each row is."""
    tables = [read_columns(file) for file in files]
    first = tables[0]
    for file, table in zip(files, tables, strict=True):
        if set(table) != set(first):
            different = ", ".join(repr(name) for name in sorted(set(table) ^ set(first))[:5])
            raise DataFileError(
                file, f"its columns are not those of {files[0].name} (different: {different}); give all the same"
            )
    lengths = [len(next(iter(table.values()))) for table in tables]
    starts = tuple(int(start) for start in np.cumsum([0, *lengths[:-1]]))
    rows = Rows(folder, tuple(files), starts)
    columns = {name: _stacked(rows, name, [table.pop(name) for table in tables]) for name in list(first)}
    return rows, columns, np.repeat(np.array([owner_of(file) for file in files]), lengths)


def _stacked(rows: Rows, name: str, parts: list[Column]) -> Column:
    kinds = {part.type for part in parts if not pa.types.is_null(part.type)}
    kind = _common(kinds)
    try:
        if kind is None:
            raise pa.ArrowInvalid("no common type")
        return pa.chunked_array([chunk for part in parts for chunk in part.cast(kind, safe=False).chunks], type=kind)
    except pa.ArrowException:
        found = " and ".join(sorted(str(kind) for kind in kinds))
        raise DataFileError(
            rows.path, f"column {name!r} holds {found} in different files; write it in one way in all"
        ) from None


def _common(kinds: set[pa.DataType]) -> pa.DataType | None:
    def all_are(check: Callable[[pa.DataType], bool]) -> bool:
        return all(check(kind) for kind in kinds)

    if len(kinds) <= 1:
        return next(iter(kinds), pa.null())
    if all_are(is_number):
        return pa.float64()
    if any(is_text(kind) for kind in kinds):
        return pa.string()
    if all_are(lambda kind: bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))):
        return pa.timestamp("us")
    return None


def _pick(rows: Rows, columns: Columns, name: str, role: str) -> Column:
    if name in columns:
        return columns[name]
    shown = ", ".join(list(columns)[:30]) + (", ..." if len(columns) > 30 else "")
    raise DataFileError(rows.path, f"there is no column {name!r} for the {role}; the columns are {shown}")
