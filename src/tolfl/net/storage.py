"""The state folder of a device: its incarnation, and the newest closed round with its model.

Files are replaced as a whole, by a thread of their own. A disk that cannot be written does not stop training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Annotated, cast

import msgspec
import numpy as np
import safetensors.numpy
from filelock import BaseFileLock, FileLock, Timeout
from safetensors import SafetensorError, safe_open

from tolfl.core.contribution import Contribution, How, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import RunDirectoryError
from tolfl.learners import Scorer
from tolfl.net.wire import DTYPES
from tolfl.protocol.history import ClosedRound, Roster, Version
from tolfl.runs.directory import write_file

_INCARNATION, _ROUND, _KEPT, _LOCK = "life.json", "round.safetensors", "models", "lock"
_UPDATES = "updates"
_Id = Annotated[int, msgspec.Meta(ge=0, lt=2**20)]  #: of a device; a corrupt id would make a set of devices without end


class _StoredIncarnation(msgspec.Struct):
    device: int
    incarnation: int
    planned_deaths: int = 0  #: how many failures of its plan have happened


class StoredRound(msgspec.Struct):
    """A closed round without its models, as JSON."""

    version: Version
    roster: dict[_Id, int]
    parent: str
    included: list[_Id]
    missing: dict[_Id, str]
    n_samples: int
    is_over: bool
    stopped: str = ""  #: why the device stopped with this round, if it did
    is_private: bool = False  #: the device trained on alone
    fleet: str = ""  #: name of the fleet, which is that of its run
    loss: float | None = None


class DeviceStorage:
    """The state folder of one device, which no other process may use at the same time."""

    def __init__(self, folder: Path, device: int, fleet: str = "") -> None:
        self.folder, self._device, self._fleet = folder, device, fleet
        self.planned_deaths = 0  #: how many failures of its plan have happened in earlier incarnations
        self._lock: BaseFileLock | None = None

    def next_incarnation(self) -> int:
        """Return the incarnation that begins now, kept on disk before anybody learns of it."""
        self._lock = _locked(self.folder)
        incarnation, stored = 0, _stored_incarnation(self.folder)
        if stored is not None:
            if stored.device != self._device:
                raise RunDirectoryError(
                    self.folder, f"belongs to device {stored.device}, not {self._device}; choose another folder"
                )
            incarnation, self.planned_deaths = stored.incarnation + 1, stored.planned_deaths
        self.keep_incarnation(incarnation)
        return incarnation

    def keep_incarnation(self, incarnation: int) -> None:
        """Keep the present incarnation."""
        stored = _StoredIncarnation(self._device, incarnation, self.planned_deaths)
        write_file(self.folder, _INCARNATION, msgspec.json.encode(stored))

    def keep_planned_death(self, incarnation: int) -> None:
        """Store that a failure of the plan has happened, so that it does not happen to the next incarnation again."""
        self.planned_deaths += 1
        self.keep_incarnation(incarnation)

    def save(self, record: ClosedRound, stopped: str = "", is_private: bool = False, name: str = _ROUND) -> None:
        """Keep a closed round in place of the last one."""
        write_file(self.folder, name, encode_round(record, stopped, is_private, self._fleet))

    def save_results(self, results: Mapping[str, Scorer]) -> None:
        """Write what was learned as files of their own, for whoever uses it: those that are for this device."""
        for result in results.values():
            if result.users is None or self._device in result.users:
                for name, content in result.files().items():
                    write_file(self.folder, name, content)

    def newest(self) -> ClosedRound | None:
        """Return the round that was kept, if any; one of another run is refused."""
        path = self.folder / _ROUND
        if not path.exists():
            return None
        record, stored = read_round(path)
        if stored.fleet != self._fleet:
            raise RunDirectoryError(self.folder, "holds a round of another model; choose another state folder")
        return record

    def close(self) -> None:
        """Leave the folder to another process."""
        if self._lock is not None:
            self._lock.release()


class _KeptPart(msgspec.Struct):
    n_samples: int
    weight: int
    n_trained: int
    loss: float
    how: How


class KeptUpdate(msgspec.Struct):
    """What a device contributed to a round, without the numbers."""

    device: int
    incarnation: int
    version: str  #: that it was trained on
    n_samples: int
    parts: dict[str, _KeptPart]


def kept_update(device: int, incarnation: int, version: Version, update: Contribution) -> tuple[str, bytes]:
    """Return the name and content of a file that holds a device's contribution to a round."""
    parts = {
        key: _KeptPart(part.n_samples, part.weight, part.n_trained, part.loss, part.how)
        for key, part in update.parts.items()
    }
    about = KeptUpdate(device, incarnation, str(version), update.n_samples, parts)
    name = f"{_UPDATES}/{version.round}-{version.history or 'first'}-{incarnation}.safetensors"
    arrays = {key: part.vector for key, part in update.parts.items()}
    return name, safetensors.numpy.save(arrays, {"update": msgspec.json.encode(about).decode()})


class BackgroundWriter:
    """Stores rounds beside the training, one at a time; a disk that cannot be written is `trouble`, and no end."""

    def __init__(self, storage: DeviceStorage) -> None:
        self.trouble = ""
        self._storage = storage
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._lock = Lock()
        self._newest: tuple[ClosedRound, bool] | None = None  #: not on disk yet, and whether the device is on its own

    def keep(self, record: ClosedRound, is_private: bool) -> None:
        """Keep the newest round; one that is overtaken before its turn is never written."""
        with self._lock:
            is_waiting, self._newest = self._newest is not None, (record, is_private)
        if not is_waiting:
            self._thread.submit(self._write_newest)

    def keep_as(self, record: ClosedRound, name: str) -> None:
        """Keep a round under a name of its own."""
        self._thread.submit(self._write, record, False, name)

    def keep_incarnation(self, incarnation: int) -> Future[None]:
        """Keep an incarnation; nobody should learn of it before it is kept."""
        return self._thread.submit(self._try, partial(self._storage.keep_incarnation, incarnation))

    def keep_file(self, name: str, content: bytes) -> None:
        """Keep a file beside the rounds."""
        self._thread.submit(self._try, partial(write_file, self._storage.folder, name, content))

    def last_of_incarnation(self, record: ClosedRound, incarnation: int) -> None:
        """Store the last record of an incarnation, and that its planned death has happened, before it happens."""
        with self._lock:
            self._newest = None
        self._thread.submit(self._write, record, False).result()
        self._thread.submit(self._try, partial(self._storage.keep_planned_death, incarnation)).result()

    def leave_behind(self, record: ClosedRound, reason: str, is_private: bool, results: dict[str, Scorer]) -> None:
        """Write the last round and, for whoever uses it, what was learned."""
        with self._lock:
            self._newest = None
        self._thread.submit(self._try, partial(self._storage.save, record, reason, is_private)).result()
        self._thread.submit(self._try, partial(self._storage.save_results, results)).result()

    def close(self) -> None:
        """Wait for what is being written, and leave the folder."""
        self._thread.shutdown()
        self._storage.close()

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
        except RunDirectoryError as error:
            self.trouble = str(error)

    def _write_newest(self) -> None:
        with self._lock:
            newest, self._newest = self._newest, None
        if newest is not None:
            self._write(*newest)

    def _write(self, record: ClosedRound, is_private: bool, name: str = _ROUND) -> None:
        try:
            self._storage.save(record, is_private=is_private, name=name)
            self.trouble = ""
        except RunDirectoryError as error:
            self.trouble = f"{error}; training goes on"


def _locked(folder: Path) -> BaseFileLock:
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise RunDirectoryError(
            folder, "is in use by another process; stop that one, or choose another state folder"
        ) from None
    except OSError as error:
        raise RunDirectoryError(folder, f"cannot be written ({error.strerror}); choose another state folder") from None
    return lock


def encode_round(record: ClosedRound, stopped: str = "", is_private: bool = False, fleet: str = "") -> bytes:
    """Return a closed round and its models as a safetensors file."""
    stored = StoredRound(
        record.version,
        record.roster.incarnations,
        record.parent,
        list(record.included),
        record.missing,
        record.n_samples,
        record.is_over,
        stopped,
        is_private,
        fleet,
        record.loss,
    )
    models = cast("dict[str, Vector]", record.state)
    tensors = {key: np.ascontiguousarray(params) for key, params in models.items()}
    return safetensors.numpy.save(tensors, metadata={"round": msgspec.json.encode(stored).decode()})


def read_round(path: Path) -> tuple[ClosedRound, StoredRound]:
    """Read a closed round back."""
    try:
        with safe_open(path, framework="numpy") as file:
            stored = msgspec.json.decode(file.metadata()["round"], type=StoredRound)
            names = list(file.keys())
            models = {name: _checked(file.get_tensor(name), name) for name in names}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise RunDirectoryError(
            path, f"is no closed round that can be read ({error}); delete it to start anew"
        ) from None
    record = ClosedRound(
        stored.version,
        Roster(dict(sorted(stored.roster.items()))),
        models,
        stored.parent,
        DeviceSet.of(stored.included),
        stored.missing,
        stored.n_samples,
        stored.is_over,
        stored.loss,
    )
    return record, stored


def _checked(array: Vector, name: str) -> Vector:
    if array.ndim != 1 or array.dtype.str[1:] not in DTYPES:
        raise ValueError(f"array {name!r} is of type {array.dtype} with {array.ndim} axes")
    return array


def planned_deaths(folder: Path) -> int:
    """Return how many planned failures have happened to the device of a state folder."""
    stored = _stored_incarnation(folder)
    return 0 if stored is None else stored.planned_deaths


def _stored_incarnation(folder: Path) -> _StoredIncarnation | None:
    path = folder / _INCARNATION
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=_StoredIncarnation)
    except (OSError, ValueError, RecursionError) as error:
        raise RunDirectoryError(folder, f"{_INCARNATION} cannot be read ({error}); choose another folder") from None


def has_round(folder: Path) -> bool:
    """Return whether a state folder has a closed round."""
    return (folder / _ROUND).exists()


def kept_name(version: Version) -> str:
    """Return the name of the file, below a state folder, in which a closer keeps a round for good."""
    return f"{_KEPT}/round-{version.round}-{version.history}.safetensors"


def kept_rounds(devices: Path) -> list[Path]:
    """Return the rounds that are kept for good below the state folders of all devices, in the order of rounds."""
    return sorted(devices.glob(f"*/{_KEPT}/round-*.safetensors"), key=lambda path: (int(path.name.split("-")[1]), path))


def round_path(folder: Path) -> Path:
    """Return the file with the newest closed round of a state folder."""
    return folder / _ROUND
