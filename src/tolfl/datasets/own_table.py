"""Tables by the columns that a fleet has agreed on: their names, their order and what they hold.

A column of numbers is named as it is (`temperature`); one of words stands for each of its values (`mode=eco`: 1 in
rows whose `mode` is `eco`). A table may have its columns in any order, and more of them than the fleet uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np

from tolfl.core.errors import DataError, SpecError, did_you_mean
from tolfl.core.spec import RunSpec
from tolfl.datasets.classes import choose, mask_of
from tolfl.datasets.federated import FederatedDataset, Samples
from tolfl.datasets.raw import RawData


def own_rows(raw: RawData, spec: RunSpec, columns: Sequence[str]) -> Samples:
    """Return the typical rows of a device's table, its columns found by name; what does not fit is one sentence."""
    typical, _ = choose(raw, spec.dataset)
    rows = np.flatnonzero(mask_of(raw.labels, typical))
    if not len(rows):
        raise DataError(f"{raw.name}: not a single typical row; the typical classes are {', '.join(typical)}")
    samples = raw.samples.reshape(raw.n_samples, -1)
    names = raw.feature_names or tuple(f"x{place}" for place in range(samples.shape[1]))
    places = [_place_of(column, names, raw.name) for column in columns] or list(range(len(names)))
    if raw.missing is not None:
        _refuse_missing(raw, rows, [place for place in places if place is not None], names)
    values = np.zeros((len(rows), len(places)), np.float32)
    for target, place in enumerate(places):
        if place is not None:
            values[:, target] = samples[rows, place]
    if raw.scale != 1.0:
        values *= np.float32(raw.scale)
    return values


def agreed(spec: RunSpec, what: str) -> tuple[str, ...]:
    """Return the names that a specification gives to `columns` or to devices (`names`); none, where it gives none."""
    named = spec.learn.get(what, [])
    if not isinstance(named, list | tuple) or not all(isinstance(one, str) for one in named):
        raise SpecError(f"learn.{what}: {named!r}; give a list of names")
    if len(set(named)) < len(named):
        raise SpecError(f"learn.{what}: a name stands there twice; give each once")
    if what == "names" and named and len(named) != spec.devices:
        raise SpecError(f"learn.names: {len(named)} names for {spec.devices} devices; give one each")
    return tuple(named)


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
        values = np.zeros((len(samples), len(places)), samples.dtype)
        for target, place in enumerate(places):
            if place is not None:
                values[:, target] = samples.reshape(len(samples), -1)[:, place]
        return values

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


def columns_of(raw: RawData) -> tuple[str, ...]:
    """Return the columns that a fleet can agree on from one device's table."""
    n_features = int(np.prod(raw.samples.shape[1:]))
    return raw.feature_names or tuple(f"x{place}" for place in range(n_features))


def table_spec(spec: RunSpec, path: str) -> RunSpec:
    """Return the specification under which one device reads its own table."""
    own = msgspec.structs.replace(spec.dataset, partition="iid", test_share=0.0, validation_share=0.0)
    return msgspec.structs.replace(spec, data=path, devices=1, clusters=1, topology="", dataset=own)


def _place_of(column: str, names: Sequence[str], table: str) -> int | None:
    """Return where a table has a column; None: a word that none of its rows has."""
    if column in names:
        return names.index(column)
    base, equals, _ = column.rpartition("=")
    if any(name.startswith(f"{column}=") for name in names):
        raise DataError(f"{table}: column {column!r} holds words, but numbers in the fleet; correct the table")
    if equals and base in names:
        raise DataError(f"{table}: column {base!r} holds numbers, but words in the fleet; correct the table")
    if equals and any(name.startswith(f"{base}=") for name in names):
        return None
    wanted = base if equals else column
    has = dict.fromkeys(name.rpartition("=")[0] or name for name in names)
    shown = ", ".join(list(has)[:30])
    near = did_you_mean(wanted, has)
    raise DataError(f"{table}: there is no column {wanted!r}, which the fleet has; the table has {shown}{near}")


def _refuse_missing(raw: RawData, rows: np.ndarray, places: list[int], names: Sequence[str]) -> None:
    assert raw.missing is not None
    missing = raw.missing.reshape(raw.n_samples, -1)[rows][:, places]
    if missing.any():
        row, place = (int(index) for index in np.argwhere(missing)[0])
        name = names[places[place]]
        raise DataError(
            f"{raw.name}: data row {int(rows[row]) + 1}: {name!r} is missing; fill it in, or leave the row out"
        )
