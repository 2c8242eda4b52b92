"""Captures of a network as tables: a row per window, with the windows that the detector was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tolfl.datasets.loaders.captures import TIME, refuse_columns, rows_of
from tolfl.detect.streams import Reader, Table
from tolfl.signals.captures.windows import feature_names, grid_of


def capture_tables(path: Path, reader: Reader, owner: str) -> Iterator[Table]:
    """Yield the windows of one capture."""
    return tables_of_captures([path], reader, owner)


def tables_of_captures(files: Sequence[Path], reader: Reader, owner: str) -> Iterator[Table]:
    """Yield the windows of captures that follow one another.

    The names of the detector's features say how long its windows are and how often they come. The start of a window
    is there as a column `time` (UTC) if it is asked for.
    """
    roles = reader.roles
    refuse_columns(files[0], roles.device, roles.label, roles.time)
    grid = grid_of(reader.feature_names)
    names = feature_names(grid)
    first = 0
    for rows in rows_of(files, grid):
        columns = {name: pa.chunked_array([values]) for name, values in zip(names, rows.features.T, strict=True)}
        if roles.time:
            columns[TIME] = pa.chunked_array([(rows.start_s * 1e6).astype(np.int64).view("M8[us]")])
        yield Table(columns, first, files[0].name, owner)
        first += len(rows.start_s)
