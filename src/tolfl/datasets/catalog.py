"""Every data set that a run can name, and how to load one or a table of one's own."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import CommsMLSettings, DatasetSpec, RunSpec
from tolfl.datasets.blobs import blobs
from tolfl.datasets.comms_ml import read_comms_ml
from tolfl.datasets.federated import FederatedDataset
from tolfl.datasets.own_table import agreed, read_table
from tolfl.datasets.picture_files import read_cifar, read_idx_pictures
from tolfl.datasets.public_sets import PUBLIC_SETS, find
from tolfl.datasets.raw import RawData
from tolfl.datasets.split import federate
from tolfl.tables import Schema
from tolfl.tables.folders import is_recording

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
#: A file may be written twice within one tick of its file system's clock; the coarsest, FAT's, ticks every 2 s.
_SETTLED_S = 2.0


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


def load_public(name: str, data_dir: str = "", colour: bool = False, fine: bool = False) -> RawData:
    """Return a public data set from wherever it lies; `colour` is for CIFAR, `fine` for CIFAR-100."""
    folder = find(name, data_dir)
    if name.startswith("cifar"):
        return read_cifar(folder, name, colour, fine)
    if name == "wsn-ds":
        from tolfl.datasets.wsn_ds import read_wsn_ds  # noqa: PLC0415  (pyarrow is an extra)

        return read_wsn_ds(folder)
    return read_idx_pictures(folder, name)


def is_path(name: str) -> bool:
    """Return whether a data set is a file or folder of one's own: its name has a dot or a slash, or it is there."""
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


# -- whether what was read from files still holds ---------------------------------------------------------------------


class FileState(NamedTuple):
    """One file as it is now; another content of it has another state, once its clock has ticked."""

    path: str
    inode: int
    size: int
    modified_ns: int
    changed_ns: int
    """Of the inode: a time of modification can be set back, as copies with their times kept do."""


def states_of(path: Path) -> tuple[FileState, ...]:
    """Return the state of a file, or of all files in a folder; without those that cannot be looked at.

    A recording is read with the file of samples beside it, whose name only its metadata know: its whole folder counts.
    """
    path = path.resolve()
    states = []
    with suppress(OSError):
        folder = path.parent if is_recording(path) else path
        for file in sorted(folder.iterdir()) if folder.is_dir() else [path]:
            with suppress(OSError):
                found = file.stat()
                states.append(FileState(str(file), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return tuple(states)


def are_settled(states: tuple[FileState, ...]) -> bool:
    """Return whether the last change lies so far back that the next one cannot leave the same states."""
    newest_ns = max((time_ns for one in states for time_ns in (one.modified_ns, one.changed_ns)), default=0)
    return time.time_ns() - newest_ns >= _SETTLED_S * 1e9
