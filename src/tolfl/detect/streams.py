"""Rows of any length, a few thousand at a time: files that do not fit into memory, and streams that never end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tolfl.core.errors import DataError
from tolfl.datasets.loaders.columns import seconds
from tolfl.datasets.loaders.rows import Rows
from tolfl.detect.fitted import Detector
from tolfl.detect.matching import Floats, Matching, Problems, names_in

Columns = Mapping[str, pa.ChunkedArray]


@dataclass(frozen=True)
class ColumnRoles:
    """Columns that say whose, what and when; empty where there is none."""

    device: str = ""
    label: str = ""
    time: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are named."""
        return tuple(name for name in (self.device, self.label, self.time) if name)


@dataclass(frozen=True, eq=False)
class Table:
    """Some neighbouring rows as columns, still with their names."""

    columns: Columns
    first: int  #: how many rows of the source came before
    source: str  #: a file, or `standard input`
    owner: str = ""  #: the device whose file it is
    decimal_point: str = "."
    problems: Mapping[int, str] = field(default_factory=dict)  #: lines that are no row, by their place
    is_ragged: bool = False  #: each row has the columns it has (JSON lines): one that is not there is empty

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.columns.values()))) if self.columns else 0


@dataclass(frozen=True, eq=False)
class ReadBatch:
    """Rows that are ready to be scored, and those that are not."""

    rows: Floats  #: `(n_rows, n_features)`; NaN all over a row that has a problem
    problems: Problems
    numbers: NDArray[np.int64]  #: of the rows in their source, from 1
    source: str
    devices: NDArray[np.str_] | None = None
    labels: NDArray[np.str_] | None = None
    times: Floats | None = None
    time_texts: tuple[str, ...] | None = None

    @property
    def is_good(self) -> NDArray[np.bool_]:
        """Which rows can be scored."""
        good = np.ones(len(self.rows), bool)
        good[list(self.problems)] = False
        return good


class Reader:
    """Turns tables into batches for one detector; remembers what to say in the end.

    Parameters
    ----------
    detector
        Whose features are looked for.
    roles
        Columns that are no features.
    fill_missing
        Whether a missing value becomes the feature's mean in training; else its row is not scored.
    """

    def __init__(self, detector: Detector, roles: ColumnRoles | None = None, fill_missing: bool = False) -> None:
        self._detector, self.roles = detector, roles or ColumnRoles()
        self._fill = fill_missing
        self._matchings: dict[tuple[str, ...], Matching] = {}
        self._known = frozenset(detector.thresholds.devices)
        self.unknown_devices: dict[str, int] = {}
        self.n_filled = 0

    def batches(self, tables: Iterable[Table]) -> Iterator[ReadBatch]:
        """Yield one batch per table."""
        for table in tables:
            if table.n_rows:
                yield self._batch(table)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What the detector's features are called."""
        return self._detector.features.names

    @property
    def notes(self) -> list[str]:
        """What a person should know about the columns, in sentences."""
        notes = []
        ignored = list(dict.fromkeys(name for one in self._matchings.values() for name in one.ignored))
        if ignored:
            shown = ", ".join(ignored[:8]) + (", ..." if len(ignored) > 8 else "")
            notes.append(f"columns that the detector does not use: {shown}")
        for matching in self._matchings.values():
            for column, word in matching.unseen.items():
                notes.append(f"column {column!r} has words that training has not seen, such as {word!r}")
        if self.unknown_devices:
            names = list(self.unknown_devices)
            shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            notes.append(f"devices without a threshold of their own, the fleet's is used: {shown}")
        if self.n_filled:
            notes.append(f"{self.n_filled} missing values are taken as the mean of the training rows")
        return notes

    def needed(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return which columns of a table are needed, or say which are not there."""
        matching = self._matching(columns)
        return tuple(dict.fromkeys((*matching.columns, *self.roles.columns)))

    def _matching(self, columns: Sequence[str]) -> Matching:
        key = tuple(columns)
        if key not in self._matchings:
            for role in self.roles.columns:
                if role not in key:
                    raise DataError(f"there is no column {role!r}; the columns are {', '.join(key[:10])}")
            self._matchings[key] = Matching.of(self._detector.features, key, self.roles.columns)
        return self._matchings[key]

    def _completed(self, table: Table) -> Table:
        """Return a ragged table with an empty column for each that is needed and not there."""
        lost = [*Matching.lost(self._detector.features, tuple(table.columns)), *self.roles.columns]
        empty = {name: pa.chunked_array([pa.nulls(table.n_rows)]) for name in lost if name not in table.columns}
        return replace(table, columns={**table.columns, **empty}) if empty else table

    def _batch(self, table: Table) -> ReadBatch:
        if table.is_ragged:
            table = self._completed(table)
        matching = self._matching(tuple(table.columns))
        rows, problems = matching.rows(table.columns, table.decimal_point)
        problems = {**problems, **table.problems}
        devices = self._devices(table, problems)
        labels = _filled(self._texts(table, self.roles.label, problems))
        times, texts = self._times(table, problems)
        self._missing(rows, problems)
        rows[list(problems)] = np.nan
        numbers = table.first + 1 + np.arange(len(rows))
        return ReadBatch(rows, problems, numbers, table.source, devices, labels, times, texts)

    def _missing(self, rows: Floats, problems: Problems) -> None:
        is_missing = np.isnan(rows)
        if not is_missing.any():
            return
        if self._fill:
            is_missing[list(problems)] = False
            self.n_filled += int(is_missing.sum())
            rows[is_missing] = np.broadcast_to(self._detector.model.fill, rows.shape)[is_missing]
            return
        for row in np.flatnonzero(is_missing.any(axis=1)).tolist():
            name = self._detector.features.names[int(np.argmax(is_missing[row]))]
            problems.setdefault(row, f"{name!r} is missing")

    def _texts(self, table: Table, role: str, problems: Problems) -> list[str | None] | None:
        if not role:
            return None
        texts = names_in(table.columns[role])
        for row, text in enumerate(texts):
            if text is None:
                problems.setdefault(row, f"column {role!r} is empty")
        return texts

    def _devices(self, table: Table, problems: Problems) -> NDArray[np.str_] | None:
        texts = self._texts(table, self.roles.device, problems)
        if texts is None:
            if not table.owner:
                return None
            texts = [table.owner] * table.n_rows
        names = [self._device(text) if text else "" for text in texts]
        for name in names:
            if name and name not in self._known:
                self.unknown_devices[name] = self.unknown_devices.get(name, 0) + 1
        return np.array(names, dtype=str)

    def _device(self, text: str) -> str:
        """Return a device by the name it had in training: as a number, 07 and 7.0 are 7."""
        if text in self._known:
            return text
        try:
            number = float(text)
        except ValueError:
            return text
        short = str(int(number)) if number.is_integer() else text
        return short if short in self._known else text

    def _times(self, table: Table, problems: Problems) -> tuple[Floats | None, tuple[str, ...] | None]:
        role = self.roles.time
        if not role:
            return None, None
        column = table.columns[role]
        texts = tuple("" if value is None else str(value) for value in column.to_pylist())
        rows = Rows.of(Path(table.source))
        try:
            return seconds(rows, role, column), texts
        except DataError:
            times = np.full(len(column), np.nan)
            for row in range(len(column)):
                try:
                    times[row] = seconds(rows, role, column.slice(row, 1))[0]
                except DataError:
                    problems.setdefault(row, f"{texts[row]!r} in column {role!r} is no time")
            return times, texts


def _filled(texts: list[str | None] | None) -> NDArray[np.str_] | None:
    return None if texts is None else np.array(["" if text is None else text for text in texts], dtype=str)
