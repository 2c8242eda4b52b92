"""The bytes of a file, unpacked if it is gzip, whatever its name says: browsers unpack, people rename."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from tolfl.core.errors import DataFileError
from tolfl.tables.folders import unreadable

_GZIP = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """Return what is in a file, unpacked."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise unreadable(path, problem) from None
    if not data:
        raise DataFileError(path, "the file is empty; get it again")
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        raise DataFileError(path, "the gzip file is damaged or cut short; delete it and get it again") from None
