"""Every data set that a run can name, and how to load one or a table of one's own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import CommsMLSettings, DatasetSpec, RunSpec
from tolfl.datasets.blobs import blobs
from tolfl.datasets.comms_ml import read_comms_ml
from tolfl.datasets.federated import FederatedDataset
from tolfl.datasets.loaders import PUBLIC_SETS, find, load_public
from tolfl.datasets.loaders.file_states import FileState, are_settled, states_of
from tolfl.datasets.own_table import agreed, read_table
from tolfl.datasets.prepare import federate
from tolfl.datasets.raw import RawData
from tolfl.tables import Schema

#: Every data set that a run specification can name, and what it is; a path to a table or a folder is another way.
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


def load(spec: RunSpec) -> FederatedDataset:
    """Return the data set of a run, one slice per device. It depends on N, the seed and the groups, never on k."""
    check_name(spec)
    if spec.data == "blobs":
        return blobs(spec.devices, spec.seed, spec.blobs)
    return federate(load_raw(spec), spec)


def load_raw(spec: RunSpec) -> RawData:
    """Return a data set as it is on disk or as it was generated; the last two are remembered while no file changes."""
    settings = spec.comms_ml
    if spec.data == "comms-ml-published":
        settings = msgspec.structs.replace(settings, variant="published")
    files, dataset = _files_of(spec), spec.dataset
    if is_path(spec.data) and (features := agreed(spec, "columns")):
        columns = tuple(column.name for column in Schema.from_features(features).columns)
        dataset = msgspec.structs.replace(dataset, columns=columns)
    read = _load_raw if are_settled(files) else _load_raw.__wrapped__
    return read(spec.data, settings, dataset, files)


def _files_of(spec: RunSpec) -> tuple[FileState, ...]:
    """Return the states of the files that a data set is read from; what is generated has none."""
    if spec.data in PUBLIC_SETS:
        return states_of(find(spec.data, spec.dataset.dir))
    return () if spec.data in DATASETS else states_of(Path(spec.data).expanduser())


@lru_cache(maxsize=2)  # repetitions ask again and again, and CIFAR takes a second
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
    """Tell whether a data set is a file or folder of one's own: its name has a dot or a slash, or it is there."""
    return name not in DATASETS and ("/" in name or "." in name or Path(name).exists())


def check_name(spec: RunSpec) -> None:
    """Raise an error where no data set has the name that the specification asks for."""
    if spec.data == "arrays":
        raise SpecError("data 'arrays' was handed in from Python; repeat the run there")
    if spec.data not in DATASETS and not is_path(spec.data):
        raise UnknownNameError("data set", spec.data, [*DATASETS, "or a path to a table or a folder"])
    _check_columns(spec.data, spec.dataset)


def _check_columns(name: str, spec: DatasetSpec) -> None:
    if name in DATASETS and (
        spec.device_column or spec.label_column or spec.time_column or spec.columns or spec.ignore
    ):
        raise SpecError(f"columns are for tables of one's own; {name} has none to name")
