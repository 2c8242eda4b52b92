"""Rows of each device as they are, for learners that scale them together; anomalous ones only to test with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from tolfl.core.errors import DataError
from tolfl.core.spec import RunSpec
from tolfl.datasets import check_name, is_path, load, load_raw
from tolfl.datasets.federated import FederatedDataset
from tolfl.datasets.raw import RawData, in_order
from tolfl.datasets.split import Choice, Parts, Rows, choose, share_out, split

#: The name of the one device, where nobody says whose rows these are.
THE_DEVICE = "all"


def unscaled(
    spec: RunSpec, n_devices: int | None = None, fill_missing: bool = False, has_all_owners: bool = False
) -> tuple[FederatedDataset, tuple[str, ...]]:
    """Return the rows that devices learn from, by name, and what a person should know of them.

    Parameters
    ----------
    spec
        The data set, its classes, its partition.
    n_devices
        None: as many as the table names, or one where it names none; a data set has its usual number.
    fill_missing
        Whether rows may have missing values, which stay NaN; else one is an error.
    has_all_owners
        Whether an owner without a single typical row is a device, too.
    """
    check_name(spec)
    if spec.data == "blobs":
        data = load(spec)
        names = tuple(f"x{place}" for place in range(data.n_features))
        return _named(data, [str(device) for device in range(data.n_devices)], names), ()
    raw = load_raw(spec)
    choice = choose(raw, spec.dataset)
    parts = _parts(raw, choice, spec)
    if not len(parts.train):
        raise DataError(f"{raw.name}: no typical row is left to train on; the typical classes are {choice[0]}")
    told: tuple[str, ...] = ()
    if n_devices is None and is_path(spec.data) and spec.dataset.partition in {None, "column"}:
        places = _by_owner(raw, parts.train, has_all_owners)
        told = _without_rows(raw, places)
    else:
        places = {str(device): own for device, own in enumerate(share_out(raw, parts.train, choice, spec))}
    advice = "" if fill_missing else "fill them in, leave the rows out, or use --fill-missing"
    values = raw.values(slice(None), advice)
    if n_missing := raw.n_missing(values) if raw.missing is not None else 0:
        told = (*told, f"{n_missing} missing values are taken as the usual value of their column")
    tested = np.concatenate([parts.typical_test, parts.anomalous_test])
    has_test = len(parts.typical_test) > 0 and len(parts.anomalous_test) > 0
    data = FederatedDataset(
        raw.name,
        values[np.concatenate(list(places.values()))],
        tuple(int(bound) for bound in np.cumsum([0, *map(len, places.values())])),
        values[tested] if has_test else None,
        np.arange(len(tested)) >= len(parts.typical_test) if has_test else None,
    )
    named = _named(data, list(places), raw.names)
    return replace(named, schema=raw.schema, networks=raw.networks), told


def fleet_rows(spec: RunSpec) -> FederatedDataset:
    """Return unscaled rows for as many devices as a specification has; by owner, where a table has as many."""
    if spec.data != "blobs" and is_path(spec.data) and spec.dataset.partition in {None, "column"}:
        owners = load_raw(spec).owners
        if (1 if owners is None else len(np.unique(owners))) == spec.devices:
            return unscaled(spec, has_all_owners=True)[0]
    return unscaled(spec, spec.devices)[0]


def _named(data: FederatedDataset, names: Sequence[str], columns: tuple[str, ...]) -> FederatedDataset:
    return replace(data, names=tuple(names), feature_names=columns)


def _parts(raw: RawData, choice: Choice, spec: RunSpec) -> Parts:
    """Return training and test rows: nothing is tested where nothing is anomalous; the detector holds back itself."""
    has_anomalies = bool(np.isin(raw.labels, np.array(choice[1], dtype=str)).any())
    asked = msgspec.structs.replace(spec.dataset, validation_share=0.0)
    if not has_anomalies and raw.is_test is None:
        asked = msgspec.structs.replace(asked, test_share=0.0)
    return split(raw, choice, asked, spec.seed)


def _by_owner(raw: RawData, train: Rows, has_all_owners: bool) -> dict[str, Rows]:
    if raw.owners is None:
        return {THE_DEVICE: train}
    owners = raw.owners[train]
    named = np.unique(raw.owners if has_all_owners else owners)
    return {name: train[owners == name] for name in in_order(named.tolist())}


def _without_rows(raw: RawData, places: Mapping[str, Rows]) -> tuple[str, ...]:
    """Say which devices of a table have nothing to train on; refuse a column that names one device alone."""
    if raw.owners is None:
        return ()
    names = in_order(np.unique(raw.owners).tolist())
    column = raw.schema.roles.device if raw.schema is not None else ""
    if len(names) == 1 and column:
        raise DataError(
            f"{raw.name}: column {column!r} names one device, {names[0]}, which has all the rows; to train on those "
            "of one device, leave --device-column out"
        )
    idle = [name for name in names if name not in places]
    more = f" and {len(idle) - 5} more" if len(idle) > 5 else ""
    return (f"without a typical row, and so no part of the fleet: {', '.join(idle[:5])}{more}",) if idle else ()
