"""One lock on the machine's own network interfaces: Chromium drops its requests whenever an address comes or goes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from filelock import FileLock


def interfaces_lock() -> FileLock:
    """Return a lock for whoever changes the machine's interfaces, and for a browser that needs them as they are."""
    return FileLock(Path(tempfile.gettempdir()) / "tolfl-test-interfaces.lock")
