"""What the file system says of data files: whether what was read from them still holds."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tolfl.tables.folders import is_recording

#: A file may be written twice within one tick of its file system's clock; the coarsest, FAT's, ticks every 2 s.
_SETTLED_S = 2.0


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
    """Tell whether the last change lies so far back that the next one cannot leave the same states."""
    newest_ns = max((time_ns for one in states for time_ns in (one.modified_ns, one.changed_ns)), default=0)
    return time.time_ns() - newest_ns >= _SETTLED_S * 1e9
