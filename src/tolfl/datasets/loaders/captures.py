"""Captures of a network (pcap, pcapng) as samples: the twelve statistics of each window."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tolfl.datasets.loaders.arrays import TYPICAL
from tolfl.datasets.loaders.folders import by_device, is_capture
from tolfl.datasets.loaders.problems import DataFileError
from tolfl.datasets.raw import RawData
from tolfl.signals.captures.records import Tally
from tolfl.signals.captures.windows import CAPTURE_GRID, CaptureRows, names_with_units, window_rows
from tolfl.signals.windows import WindowGrid

TIME = "time"  #: what the start of a window is called where a column is asked for
_LOG = logging.getLogger(__name__)


def read_captures(
    name: str,
    files: Sequence[Path],
    roles: tuple[str, str, str] = ("", "", ""),
    *,
    has_owners: bool = False,
    grid: WindowGrid = CAPTURE_GRID,
) -> RawData:
    """Return the windows of captures as samples of class "typical".

    Parameters
    ----------
    name
        What the data are called.
    files
        One or more per device; those of one device follow one another.
    roles
        Columns for device, label and time. A capture has none but the time of a window, which is always there.
    has_owners
        Whether each file names a device.
    """
    refuse_columns(files[0], *roles)
    parts, owners = [], []
    for owner, own in by_device(list(files)):
        rows = list(rows_of(own, grid))
        parts += rows
        owners += [np.full(sum(len(part.start_s) for part in rows), owner)]
    n_rows = sum(map(len, owners))
    return RawData(
        name,
        np.concatenate([part.features for part in parts]).astype(np.float32),
        np.full(n_rows, TYPICAL),
        owners=np.concatenate(owners) if has_owners else None,
        times=np.concatenate([part.start_s for part in parts]),
        feature_names=names_with_units(grid),
    )


def rows_of(files: Sequence[Path], grid: WindowGrid) -> Iterator[CaptureRows]:
    """Yield the windows of a capture; in the end, say what was not understood."""
    tally = Tally()
    yield from window_rows(files, grid, tally)
    if tally.sentence:
        _LOG.warning("%s: %s", files[0], tally.sentence)


def refuse_captures(path: Path) -> None:
    """Say that there is no truth in a capture, or in a folder of captures, before somebody asks for its column."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    for file in files:
        if is_capture(file):
            refuse_columns(file, "", "truth", "")


def refuse_columns(path: Path, device_column: str, label_column: str, time_column: str) -> None:
    """Say what to do where a capture is asked for a column."""
    if label_column:
        raise DataFileError(
            path, "a capture does not say which windows are anomalous, so there is no truth to compare with; leave out "
            "the label column, and look at the alarms: tolfl score",
        )  # fmt: skip
    if device_column:
        raise DataFileError(path, "a capture has no device column; put one capture per device into a folder")
    if time_column not in ("", TIME):
        raise DataFileError(path, f"a capture has no column {time_column!r}; the start of a window is called {TIME!r}")
