"""Record files: JSON lines, written as a run goes and read by tables, plots and the dashboard."""

from __future__ import annotations

from pathlib import Path

from tolfl.core.errors import RunDirectoryError
from tolfl.core.records import AnyRecord, decode_records


def read_records(path: Path) -> list[AnyRecord]:
    """Read a record file, or the one of a run directory."""
    file = path / "records.jsonl" if path.is_dir() else path
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise RunDirectoryError(path, f"has no records that can be read ({error.strerror})") from None
    return list(decode_records(lines, source=str(file)))
