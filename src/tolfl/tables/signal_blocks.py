"""Captures of a network and recordings of radio signals as blocks: a row per window."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tolfl.signals.captures.records import Tally
from tolfl.signals.captures.windows import CAPTURE_GRID, names_with_units, window_rows
from tolfl.signals.recordings.reading import open_recording
from tolfl.signals.recordings.rows import recording_rows
from tolfl.signals.windows import WindowGrid
from tolfl.tables.block_reader import Block

LABEL, TIME = "label", "time"  #: what windows have beside their features
_LOG = logging.getLogger(__name__)


def capture_blocks(files: Sequence[Path], device: str, grid: tuple[float, float] | None = None) -> Iterator[Block]:
    """Yield the windows of captures that follow one another; `time` is their start (UTC)."""
    windows = CAPTURE_GRID if grid is None else WindowGrid(*grid)
    names, tally, first = names_with_units(windows), Tally(), 1
    for rows in window_rows(files, windows, tally):
        columns = {name: pa.array(values) for name, values in zip(names, rows.features.T, strict=True)}
        columns[TIME] = pa.array((rows.start_s * 1e6).astype(np.int64).view("M8[us]"))
        yield Block(pa.table(columns), first, str(files[0]), device, roles={"time": TIME}, beside=(TIME,))
        first += len(rows.start_s)
    if tally.sentence:
        _LOG.warning("%s: %s", files[0], tally.sentence)


def recording_blocks(path: Path, device: str) -> Iterator[Block]:
    """Yield the windows of a recording; `time` is in seconds since its beginning, `label` what annotations say."""
    first = 1
    for rows in recording_rows(open_recording(path)):
        is_bad = ~np.isfinite(rows.features).all(axis=1)
        errors = dict.fromkeys(np.flatnonzero(is_bad).tolist(), "samples of this window are no finite numbers")
        columns = {name: pa.array(values) for name, values in zip(rows.names, rows.features.T, strict=True)}
        columns |= {TIME: pa.array(rows.time_s), LABEL: pa.array(rows.label.tolist())}
        roles = {"time": TIME}
        yield Block(pa.table(columns), first, str(path), device, errors, roles=roles, beside=(TIME, LABEL))
        first += len(rows.features)
