"""Locks: two processes that share a store do not compute the same thing at the same time."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from tolfl.core.errors import RunDirectoryError


class WriteLock:
    """The right to write one thing; it belongs to a process and ends with it, however that dies."""

    def __init__(self, path: Path | None) -> None:
        """Name the file that stands for it; None: nobody else can be at it."""
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Try to take the lock; tell whether this process has it now."""
        if self._path is None:
            return True
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunDirectoryError(
                self._path, f"cannot be written ({error.strerror}); choose another folder"
            ) from None
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):  # somebody else's; others: a file system without locks
                os.close(handle)
                return False
        self._handle = handle
        return True

    def give_back(self) -> None:
        """Release the lock."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
