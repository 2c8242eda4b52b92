"""Recordings of radio signals as tables: a row per window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from tolfl.datasets.loaders.problems import DataFileError
from tolfl.datasets.loaders.recordings import LABEL, TIME, check_columns
from tolfl.detect.features import Features
from tolfl.detect.streams import ColumnRoles, Columns, Reader, Table
from tolfl.signals.recordings.features import feature_names
from tolfl.signals.recordings.reading import Recording, open_recording
from tolfl.signals.recordings.rows import RecordingRows, recording_rows
from tolfl.signals.recordings.transcript_samples import RATE_HZ, has_transcript_names, transcript_samples


def recording_tables(path: Path, reader: Reader, owner: str = "") -> Iterator[Table]:
    """Yield the windows of a recording, a block at a time.

    A detector that was trained on Comms-ML gets its own 112 features, if the recording has a transcript.
    """
    roles = reader.roles
    check_columns(path, roles.device, roles.label, roles.time)
    recording = open_recording(path)
    if has_transcript_names(reader.feature_names):
        yield Table(_columns(_of_transcript(recording, reader.feature_names), roles), 0, path.name, owner)
        return
    _check_rate(recording, reader.feature_names)
    first = 0
    for rows in recording_rows(recording):
        yield Table(_columns(rows, roles), first, path.name, owner)
        first += len(rows.features)


def _of_transcript(recording: Recording, names: tuple[str, ...]) -> RecordingRows:
    if recording.rate_hz != RATE_HZ:
        raise DataFileError(
            recording.path,
            f"{recording.rate_hz / 1e6:g} million samples a second, the readings of Comms-ML have {RATE_HZ / 1e6:g}; "
            "train on the recording's own windows: tolfl fit RECORDING",
        )
    found = transcript_samples(recording, n_readings=sum(name.startswith("reading_") for name in names))
    return RecordingRows(found.names, found.features, found.time_s, np.full(len(found.time_s), "typical"))


def _check_rate(recording: Recording, names: tuple[str, ...]) -> None:
    offered = Features.named(feature_names(recording.rate_hz)).names
    if lost := [name for name in names if name not in offered]:
        raise DataFileError(
            recording.path,
            f"at {recording.rate_hz / 1e6:g} million samples a second it has no feature {lost[0]!r}, which the "
            "detector was trained on; train on recordings of that rate",
        )


def _columns(rows: RecordingRows, roles: ColumnRoles) -> Columns:
    columns = {name: pa.array(values) for name, values in zip(rows.names, rows.features.T, strict=True)}
    if roles.time:
        columns[TIME] = pa.array(rows.time_s)
    if roles.label:
        columns[LABEL] = pa.array(rows.label.tolist())
    return {name: pa.chunked_array([column]) for name, column in columns.items()}
