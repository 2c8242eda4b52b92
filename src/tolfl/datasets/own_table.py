"""Tables of one's own as samples: a whole table with its classes and owners, or a device's own rows for its fleet.

A column of numbers is one feature of its name (`temperature`), a column of words is 33 (`mode (hash 0)`, ...,
`mode (rarity)`). A device finds the columns that its fleet has agreed on by name, in any order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError, SpecError, did_you_mean
from tolfl.core.spec import DatasetSpec, RunSpec
from tolfl.datasets.federated import TYPICAL, FederatedDataset, RawData, Samples
from tolfl.datasets.split import choose, mask_of
from tolfl.tables import Block, Reading, Roles, Schema, blocks, settle
from tolfl.tables.block_reader import by_device, device_files, kind_of
from tolfl.tables.schema import note_of, word_column

_LOG = logging.getLogger(__name__)


def read_table(source: str, spec: DatasetSpec) -> RawData:
    """Return the rows of a table as samples, and the schema that they were read by.

    Without a label column all rows are class "typical". Missing values are 0 in `samples` and marked in `missing`.
    """
    check_roles(source, roles_of(spec))
    found, networks = _blocks(source, spec)
    schema = settle(found(), roles_of(spec), columns=spec.columns, ignore=spec.ignore, encoding=spec.encoding)
    raw = _samples(source, schema, found())
    _log_once(raw.name, note_of(schema))
    return replace(raw, networks=networks)


def _blocks(source: str, spec: DatasetSpec) -> tuple[Callable[[], Iterable[Block]], NDArray[np.uint64] | None]:
    """Return a function that yields the rows of a source at each call, and the networks in captures."""
    path = Path(source).expanduser()
    files = device_files(path) if path.is_dir() else [path]
    kind, grid = kind_of(files[0]), (spec.window_s, spec.window_s if spec.step_s is None else spec.step_s)
    if kind == "captures" and path.exists():
        from tolfl.tables.signal_blocks import training_windows  # noqa: PLC0415  (tables do without)

        captures = by_device(files) if path.is_dir() else [("", files)]
        windows, networks = training_windows(captures, grid, spec.per, spec.without_bursts)
        return lambda: windows, networks
    how = Reading(spec.encoding, grid, spec.per)
    if spec.rate or spec.centre:
        from tolfl.signals.receiver import Tuning, hertz  # noqa: PLC0415  (tables do without)

        tuning = Tuning(hertz(spec.rate) if spec.rate else 0.0, hertz(spec.centre) if spec.centre else 0.0)
        how = replace(how, tuning=tuning)
    if kind in {"", "tables"}:
        return lambda: blocks(source, how), None
    once = list(blocks(source, how))  # slow to compute, or in memory anyway
    return lambda: once, None


@lru_cache(maxsize=100)
def _log_once(name: str, note: str) -> None:
    """Log columns that are not learned from, once per table and process: a table is read several times."""
    if note:
        _LOG.warning("%s: %s", name, note)


def own_rows(raw: RawData, spec: RunSpec, columns: Sequence[str]) -> Samples:
    """Return the typical rows of a device's table, its columns found by name; a mismatch is an error."""
    if columns:
        assert raw.schema is not None
        # The table's own format counts first; what it leaves open is as its fleet writes it.
        fleet = agreed_form(spec) or {}
        codes = dict.fromkeys((*raw.schema.codes, *fleet.get("codes", ())))
        schema = Schema.of_fleet(columns, {**fleet, **raw.schema.form, "codes": list(codes)})
        _check_words(schema, raw.schema, raw.name)
        if msgspec.structs.replace(schema, left_out=raw.schema.left_out) != raw.schema:
            found, networks = _blocks(spec.data, spec.dataset)
            raw = replace(_samples(spec.data, schema, found()), networks=networks)
    typical, _ = choose(raw, spec.dataset)
    rows = np.flatnonzero(mask_of(raw.labels, typical))
    if not len(rows):
        raise DataError(f"{raw.name}: no typical row; the typical classes are {', '.join(typical)}")
    return raw.values(rows, "fill it in, or leave the row out")


def _check_words(fleet: Schema, own: Schema, name: str) -> None:
    """Raise an error that names a column of numbers where the fleet has words: each would be an unknown word."""
    numbers = {column.name for column in own.columns if column.kind == "number"} - {*fleet.codes}
    for column in fleet.columns:
        if column.kind == "words" and column.name in numbers:
            raise DataError(
                f"{name}: column {column.name!r} holds numbers, and the fleet learns words there; "
                "give the words, or leave the column out of learn.columns on all devices"
            )


def agreed(spec: RunSpec, what: str) -> tuple[str, ...]:
    """Return the names that a specification gives to `columns` or to devices (`names`); none, where it gives none."""
    named = spec.learn.get(what, [])
    if not isinstance(named, list | tuple) or not all(isinstance(one, str) for one in named):
        raise SpecError(f"learn.{what}: {named!r}; give a list of names")
    if len(set(named)) < len(named):
        raise SpecError(f"learn.{what}: a name occurs twice; give each once")
    if what == "names" and named and len(named) != spec.devices:
        raise SpecError(f"learn.names: {len(named)} names for {spec.devices} devices; give one each")
    return tuple(named)


def agreed_form(spec: RunSpec) -> dict[str, Any] | None:
    """Return how the tables of a fleet are written, by its specification (see `Schema.form`); None: not given."""
    form = spec.learn.get("schema")
    try:
        if form is not None:
            Schema.of_fleet((), form)
    except (TypeError, msgspec.ValidationError) as error:
        raise SpecError(f"learn.schema: {error}; tolfl data describe TABLE --columns writes it") from None
    return form


def as_agreed(data: FederatedDataset, spec: RunSpec) -> FederatedDataset:
    """Return the rows of all devices with the columns and devices that the specification names, in its order."""
    return _with_names(_with_columns(data, agreed(spec, "columns")), agreed(spec, "names"))


def _with_columns(data: FederatedDataset, columns: tuple[str, ...]) -> FederatedDataset:
    names = data.feature_names or tuple(f"x{place}" for place in range(data.n_features))
    if not columns or columns == names:
        return data
    places = [_place_of(column, names, data.name) for column in columns]

    def picked(samples: Samples | None) -> Samples | None:
        if samples is None:
            return None
        return samples.reshape(len(samples), -1)[:, places]

    pool = picked(data.pool)
    assert pool is not None
    test, validation = picked(data.test), picked(data.validation)
    return replace(data, pool=pool, test=test, validation=validation, feature_names=columns)


def _with_names(data: FederatedDataset, names: tuple[str, ...]) -> FederatedDataset:
    """Return data whose devices have these names: those that the rows bear, in this order, or others in their place."""
    if not names or names == data.names:
        return data
    unknown = sorted(set(names) - set(data.names))
    if len(unknown) == len(names):
        return replace(data, names=names)
    if unknown:
        there = ", ".join(data.names[:30])
        raise DataError(f"{data.name}: no rows of {unknown[0]!r}, which learn.names has; there are rows of {there}")
    slices = dict(zip(data.names, pairwise(data.bounds), strict=True))
    order = np.concatenate([np.arange(*slices[name]) for name in names])
    bounds = np.cumsum([0, *(last - first for first, last in (slices[name] for name in names))])
    labels = None if data.labels is None else data.labels[order]
    return replace(data, pool=data.pool[order], bounds=tuple(map(int, bounds)), labels=labels, names=names)


def table_spec(spec: RunSpec, path: str) -> RunSpec:
    """Return the specification under which one device reads its own table."""
    own = msgspec.structs.replace(spec.dataset, partition="iid", test_share=0.0, validation_share=0.0)
    return msgspec.structs.replace(spec, data=path, devices=1, clusters=1, topology="", dataset=own)


def roles_of(spec: DatasetSpec) -> Roles:
    """Return the columns of device, label and time."""
    return Roles(spec.device_column.strip(), spec.label_column.strip(), spec.time_column.strip())


def check_roles(source: str, roles: Roles) -> None:
    """Raise an error where a column is asked for that captures do not have."""
    path = Path(source).expanduser()
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    captures = [file for file in files if kind_of(file) == "captures"]
    if captures and roles.label:
        raise DataError(
            f"{captures[0]}: a capture has no labels of anomalous windows to compare with; "
            "leave out the label column, and look at the alarms: tolfl score"
        )
    if captures and roles.time not in {"", "time"}:
        raise DataError(
            f"{captures[0]}: a capture has no column {roles.time!r}; the start of a window is called 'time'"
        )
    if captures and roles.device:
        raise DataError(f"{captures[0]}: a capture has no device column; put one capture per device into a folder")


def _samples(source: str, schema: Schema, found: Iterable[Block]) -> RawData:
    parts = [schema.rows(block) for block in found]
    for part in parts:
        if part.errors:
            row = min(part.errors)
            raise part.block.error(row, f"{part.errors[row]}; correct it, or leave the row out")
    path = Path(source).expanduser()
    values = parts[0].values if len(parts) == 1 else np.concatenate([part.values for part in parts])
    missing = np.isnan(values)
    values[missing] = 0.0
    labels = [np.full(len(part.values), TYPICAL) if part.labels is None else part.labels for part in parts]
    devices = [part.devices for part in parts if part.devices is not None]
    times = [part.times for part in parts if part.times is not None]
    return RawData(
        name=f"{path.name}/" if path.is_dir() else path.name,
        samples=np.ascontiguousarray(values),
        labels=np.concatenate(labels),
        owners=np.concatenate(devices) if devices else None,
        times=np.concatenate(times) if times else None,
        feature_names=schema.features,
        missing=missing if missing.any() else None,
        schema=schema,
    )


def _place_of(column: str, names: Sequence[str], table: str) -> int:
    """Return where a table has a feature."""
    if column in names:
        return names.index(column)
    has = dict.fromkeys(word_column(name) or name for name in names)
    wanted = word_column(column) or column
    shown, near = ", ".join(list(has)[:30]), did_you_mean(wanted, has)
    raise DataError(f"{table}: there is no column {wanted!r}, which the fleet has; the table has {shown}{near}")
