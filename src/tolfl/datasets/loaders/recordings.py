"""Recordings of radio signals (SigMF) as samples: one per window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tolfl.datasets.loaders.arrays import TYPICAL
from tolfl.datasets.loaders.folders import owner_of
from tolfl.datasets.loaders.problems import DataFileError
from tolfl.datasets.raw import RawData
from tolfl.signals.recordings.reading import open_recording
from tolfl.signals.recordings.rows import RecordingRows, recording_rows

LABEL, TIME = "label", "time"  #: what a recording has beside its features


def read_recordings(
    name: str, files: Sequence[Path], roles: tuple[str, str, str] = ("", "", ""), *, has_owners: bool = False
) -> RawData:
    """Return the windows of recordings as samples.

    Parameters
    ----------
    name
        What the data are called.
    files
        One per device.
    roles
        Columns for device, label and time. A recording has `label`, what its annotations say, and `time`. Without the
        first, all windows are class "typical".
    has_owners
        Whether each file names a device.
    """
    parts: list[RecordingRows] = []
    owners = []
    for file in files:
        check_columns(file, *roles)
        rows = _finite(file, list(recording_rows(open_recording(file))))
        if parts and rows[0].names != parts[0].names:
            raise DataFileError(file, f"its sample rate is not that of {files[0].name}; give recordings of one rate")
        parts += rows
        owners.append(np.full(sum(len(part.time_s) for part in rows), owner_of(file)))
    features = np.concatenate([part.features for part in parts]).astype(np.float32)
    return RawData(
        name=name,
        samples=features,
        labels=np.concatenate([part.label for part in parts]) if roles[1] else np.full(len(features), TYPICAL),
        owners=np.concatenate(owners) if has_owners else None,
        times=np.concatenate([part.time_s for part in parts]),
        feature_names=parts[0].names,
    )


def _finite(path: Path, rows: list[RecordingRows]) -> list[RecordingRows]:
    is_bad = ~np.isfinite(np.concatenate([part.features for part in rows])).all(axis=1)
    if is_bad.any():
        window = int(np.argmax(is_bad)) + 1
        raise DataFileError(path, f"window {window} has samples that are no finite numbers; cut it out")
    return rows


def check_columns(path: Path, device_column: str, label_column: str, time_column: str) -> None:
    """Say which columns a recording has, where another is asked for."""
    if device_column:
        raise DataFileError(path, "a recording has no device column; put one recording per device into a folder")
    for asked, usual in ((label_column, LABEL), (time_column, TIME)):
        if asked not in ("", usual):
            raise DataFileError(path, f"a recording has no column {asked!r}; it has {LABEL!r} and {TIME!r}")
