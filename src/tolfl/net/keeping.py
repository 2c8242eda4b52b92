"""Writing to the disk beside the training: never on the event loop, never two rounds at a time, and never fatal."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock

from tolfl.core.errors import RunDirectoryError
from tolfl.learners import Scorer
from tolfl.net.disk import DeviceDisk
from tolfl.protocol.history import ClosedRound


class Keeper:
    """Keeps rounds on a device's disk; a disk that cannot be written is `trouble`, and training goes on."""

    def __init__(self, disk: DeviceDisk) -> None:
        self.trouble = ""
        self._disk = disk
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

    def keep_incarnation(self, incarnation: int) -> None:
        """Keep the number of a life, now."""
        try:
            self._disk.keep_incarnation(incarnation)
        except RunDirectoryError as error:
            self.trouble = str(error)

    def last_of_life(self, record: ClosedRound, incarnation: int) -> None:
        """Keep what a planned death leaves behind, and that it happened, before it does."""
        with self._lock:
            self._newest = None
        self._thread.submit(self._write, record, False).result()
        with suppress(RunDirectoryError):
            self._disk.keep_planned_death(incarnation)

    def leave_behind(self, record: ClosedRound, reason: str, is_private: bool, results: dict[str, Scorer]) -> None:
        """Write the last round and, for whoever uses it, what was learned."""
        with self._lock:
            self._newest = None
        self._thread.submit(lambda: None).result()  # what is being written is written
        try:
            self._disk.save(record, reason, is_private)
            self._disk.save_results(results)
        except RunDirectoryError as error:
            self.trouble = str(error)

    def close(self) -> None:
        """Wait for what is being written."""
        self._thread.shutdown()

    def _write_newest(self) -> None:
        with self._lock:
            newest, self._newest = self._newest, None
        if newest is not None:
            self._write(*newest)

    def _write(self, record: ClosedRound, is_private: bool, name: str | None = None) -> None:
        try:
            if name is None:
                self._disk.save(record, is_private=is_private)
            else:
                self._disk.save(record, name=name)
            self.trouble = ""
        except RunDirectoryError as error:
            self.trouble = f"{error}; training goes on"
