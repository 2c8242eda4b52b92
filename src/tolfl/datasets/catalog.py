"""Every data set that a run can name, and how to load one or a table of one's own."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from zipfile import BadZipFile

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError, SpecError, UnknownNameError
from tolfl.core.spec import CommsMLSettings, DatasetSpec, RunSpec
from tolfl.datasets.blobs import blobs
from tolfl.datasets.federated import FederatedDataset, RawData, bounds_of, in_order
from tolfl.datasets.own_table import agreed, read_table, roles_of
from tolfl.datasets.public_sets import PUBLIC_SETS, cache_dir, find, load_public
from tolfl.datasets.split import Rows, choose, federate, mask_of, share_out, split
from tolfl.tables import Schema
from tolfl.tables.block_reader import kind_of

#: Every data set that a run specification can name, with a description; a path to a table or folder works, too.
DATASETS = {
    "comms-ml": "windows of wireless traffic and radio readings, generated here",
    "comms-ml-published": "the same as its authors' files have it, quirks included",
    "blobs": "groups on subspaces of their own, generated here",
    "fashion-mnist": "pictures of clothes, 28 x 28",
    "mnist": "pictures of digits, 28 x 28",
    "cifar-10": "pictures, 32 x 32, grey or in colour",
    "cifar-100": "pictures, 32 x 32, 20 coarse or 100 fine classes",
    "wsn-ds": "a wireless sensor network and attacks on it, 100 nodes",
}
#: The name of the only device, where there is no device column.
THE_DEVICE = "all"
#: A file may be written twice within one tick of its file system's clock; the coarsest, FAT's, ticks every 2 s.
_SETTLED_S = 2.0


def load(spec: RunSpec) -> FederatedDataset:
    """Return the data set of a run, one slice per device. It depends on N, the seed and the groups, never on k."""
    check_name(spec)
    if spec.data == "blobs":
        return blobs(spec.devices, spec.seed, spec.blobs)
    return federate(load_raw(spec), spec)


def load_raw(spec: RunSpec, is_remembered: bool = True) -> RawData:
    """Return a data set as it is on disk or as it was generated.

    The last two are cached while no file changes, unless the caller has no memory to spare for rows that it needs once.
    """
    settings = spec.comms_ml
    if spec.data == "comms-ml-published":
        settings = msgspec.structs.replace(settings, variant="published")
    files: tuple[FileState, ...] = ()  # what is generated has none
    if spec.data in PUBLIC_SETS:
        files = states_of(find(spec.data, spec.dataset.dir))
    elif spec.data not in DATASETS:
        files = states_of(Path(spec.data).expanduser())
    dataset = spec.dataset
    if is_path(spec.data) and (features := agreed(spec, "columns")):
        columns = tuple(column.name for column in Schema.from_features(features).columns)
        dataset = msgspec.structs.replace(dataset, columns=columns)
    read = _load_raw if is_remembered and are_settled(files) else _load_raw.__wrapped__
    return read(spec.data, settings, dataset, files)


@lru_cache(maxsize=2)  # repetitions load again and again, and CIFAR takes a second
def _load_raw(
    name: str,
    settings: CommsMLSettings,
    spec: DatasetSpec,
    files: tuple[FileState, ...],  # noqa: ARG001 - part of the key alone: what is remembered holds for these states
) -> RawData:
    if name.startswith("comms-ml"):
        return read_comms_ml(settings)
    if name in PUBLIC_SETS:
        return load_public(name, spec.dir, spec.colour, spec.fine)
    return read_table(name, spec)


def is_path(name: str) -> bool:
    """Return whether a data set is a file or folder of one's own: its name has a dot or a slash, or it is there."""
    return name not in DATASETS and ("/" in name or "." in name or Path(name).exists())


def check_name(spec: RunSpec) -> None:
    """Raise an error where no data set has the name that the specification asks for."""
    if spec.data == "arrays":
        raise SpecError("data 'arrays' was given from Python; repeat the run there")
    if spec.data not in DATASETS and not is_path(spec.data):
        raise UnknownNameError("data set", spec.data, [*DATASETS, "or a path to a table or a folder"])
    named = (*roles_of(spec.dataset).columns, *spec.dataset.columns, *spec.dataset.ignore)
    if spec.data in DATASETS and named:
        raise SpecError(f"columns are for tables of one's own; {spec.data} has none to name")


# -- unscaled rows, for learners with a scaling of their own -------------------------------------------------------


def unscaled(
    spec: RunSpec, n_devices: int | None = None, fill_missing: bool = False, has_all_owners: bool = False
) -> tuple[FederatedDataset, tuple[str, ...]]:
    """Return the rows that devices learn from, by name, and notes for the user.

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
        return replace(data, names=tuple(map(str, range(data.n_devices))), feature_names=names), ()
    raw = load_raw(spec)
    choice = choose(raw, spec.dataset)
    asked = msgspec.structs.replace(spec.dataset, validation_share=0.0)  # a detector holds back itself
    if raw.is_test is None and not mask_of(raw.labels, choice[1]).any():
        asked = msgspec.structs.replace(asked, test_share=0.0)  # nothing is anomalous, so there is nothing to test
    parts = split(raw, choice, asked, spec.seed)
    told: tuple[str, ...] = ()
    if n_devices is None and is_path(spec.data) and spec.dataset.partition in {None, "column"}:
        if raw.owners is None:
            places = {THE_DEVICE: parts.train}
        else:
            owners = raw.owners[parts.train]
            named = in_order(np.unique(raw.owners if has_all_owners else owners).tolist())
            places = {name: parts.train[owners == name] for name in named}
            told = _without_rows(raw.name, raw.owners, places, roles_of(spec.dataset).device)
    else:
        places = {str(device): own for device, own in enumerate(share_out(raw, parts.train, choice, spec))}
    advice = "" if fill_missing else "fill them in, leave the rows out, or use --fill-missing"
    values = raw.values(slice(None), advice)
    if n_missing := raw.n_missing(values) if raw.missing is not None else 0:
        told = (*told, f"{n_missing} missing values are taken as the usual value of their column")
    data = FederatedDataset(
        raw.name,
        values[np.concatenate(list(places.values()))],
        bounds_of(places.values()),
        None if parts.test is None else values[parts.test],
        parts.is_anomalous,
        feature_names=raw.names,
        names=tuple(places),
        schema=None if raw.schema is None else msgspec.structs.replace(raw.schema, fill_missing=fill_missing),
        networks=raw.networks,
    )
    return data, told


def fleet_rows(spec: RunSpec) -> FederatedDataset:
    """Return unscaled rows for as many devices as a specification has; by owner, where a table has as many."""
    if spec.data != "blobs" and is_path(spec.data) and spec.dataset.partition in {None, "column"}:
        owners = load_raw(spec).owners
        if (1 if owners is None else len(np.unique(owners))) == spec.devices:
            return unscaled(spec, has_all_owners=True)[0]
    return unscaled(spec, spec.devices)[0]


def _without_rows(source: str, owners: NDArray[np.str_], places: Mapping[str, Rows], column: str) -> tuple[str, ...]:
    """Return a note on devices without training rows; raise an error if the column asked for has one device alone."""
    names = in_order(np.unique(owners).tolist())
    if len(names) == 1 and column:
        raise DataError(
            f"{source}: column {column!r} names one device, {names[0]}, which has all the rows; to train on those "
            "of one device, leave --device-column out"
        )
    idle = [name for name in names if name not in places]
    more = f" and {len(idle) - 5} more" if len(idle) > 5 else ""
    return (f"without a typical row, and so no part of the fleet: {', '.join(idle[:5])}{more}",) if idle else ()


# -- whether what was read from files still holds ---------------------------------------------------------------------


#: A file as it is now: its path, inode, size, and when its content and its inode were changed, as the former can be set
#: back; another content of it has another state, once its clock has ticked.
FileState = tuple[str, int, int, int, int]


def states_of(path: Path) -> tuple[FileState, ...]:
    """Return the state of a file, or of all files in a folder; without those that cannot be looked at.

    A recording is read with the file of samples beside it, whose name only its metadata know: its whole folder counts.
    """
    path = path.resolve()
    states = []
    with suppress(OSError):
        folder = path.parent if kind_of(path) == "recordings" else path
        for file in sorted(folder.iterdir()) if folder.is_dir() else [path]:
            with suppress(OSError):
                found = file.stat()
                states.append((str(file), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return tuple(states)


def are_settled(states: tuple[FileState, ...]) -> bool:
    """Return whether the last change lies so far back that the next one cannot leave the same states."""
    newest_ns = max((max(times_ns) for _, _, _, *times_ns in states), default=0)
    return time.time_ns() - newest_ns >= _SETTLED_S * 1e9


# -- Comms-ML: generated once, then kept in the user's cache -----------------------------------------------------------

#: Part of the name of a cached file: raise it with every change of what is generated.
_GENERATION = 1
_KEPT = ("features", "region", "start_s", "kind", "feature_names")


def read_comms_ml(settings: CommsMLSettings) -> RawData:
    """Return the samples of a region as classes `region-1` to `region-3`, anomalies by their kind."""
    name = "comms-ml-published" if settings.variant == "published" else "comms-ml"
    fingerprint = hashlib.sha256(msgspec.json.encode([_GENERATION, settings])).hexdigest()[:12]
    path = cache_dir() / f"{name}-{fingerprint}.npz"
    arrays = _cached(path)
    if arrays is None:
        from tolfl.signals.comms_ml_generator import comms_ml  # noqa: PLC0415  (other data do without)

        samples = comms_ml(settings.seed, settings)
        arrays = {kept: np.asarray(getattr(samples, kept)) for kept in _KEPT}
        _keep(path, arrays)
    labels = np.where(arrays["kind"] == "typical", np.char.add("region-", arrays["region"].astype(str)), arrays["kind"])
    names = tuple(arrays["feature_names"].tolist())
    return RawData(name, arrays["features"], labels.astype(str), times=arrays["start_s"], feature_names=names)


def _cached(path: Path) -> dict[str, np.ndarray] | None:
    """Return the cached arrays; None if they cannot be read, in which case they are generated again."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            return {name: kept[name] for name in _KEPT}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


def _keep(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Cache arrays. If the folder cannot be written, generating again only costs seconds."""
    scratch = path.with_name(f"{path.name}.part")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        scratch.replace(path)
