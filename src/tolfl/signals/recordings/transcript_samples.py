"""Samples of Comms-ML from a recording: twelve statistics of its packets, and first readings of the router's frames.

A recording has a transcript if its annotations say who sends how much to whom, as those that are written here do. Then
a window has the same 112 features as the data set: a second of traffic without a gap between windows (a recording is
short), times by the transcript's clock, and the magnitude of the first readings of the router's first frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.captures.ethernet import HEADER_BYTES
from tolfl.signals.packets import UDP, Packets
from tolfl.signals.recordings.metadata import Annotation, RecordingError
from tolfl.signals.recordings.reading import Recording
from tolfl.signals.statistics import STATISTICS, window_statistics
from tolfl.signals.windows import WindowGrid, Windows, windows_of

N_READINGS = 100
RATE_HZ = 240e6  #: of the data set's readings: 160 MHz, oversampled by 1.5


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class TranscriptSamples:
    """Samples of the windows in which the router sends."""

    names: tuple[str, ...]
    features: NDArray[np.float64]  #: `(n_windows, 12 + n_readings)`
    time_s: NDArray[np.float64]  #: when each begins, since the beginning of the recording


def has_transcript_names(names: tuple[str, ...]) -> bool:
    """Tell whether features are those of Comms-ML."""
    return names[: len(STATISTICS)] == STATISTICS and len(names) > len(STATISTICS)


def transcript_samples(recording: Recording, window_s: float = 1.0, n_readings: int = N_READINGS) -> TranscriptSamples:
    """Return the samples of a recording with a transcript.

    Readings are over the root mean square of all first readings of the router: a receiver that knows its router's level
    would do the same. They are those of the data set at 240 million samples a second only.
    """
    notes = [note for note in recording.annotations if note.our_wire_bytes > 0]
    if not recording.router or not notes:
        raise RecordingError(
            recording.path, "there is no transcript of packets in its annotations; use one that tolfl made"
        )
    packets = _packets(notes, recording)
    windows = windows_of(packets, WindowGrid(window_s, window_s))
    kept = windows.select(windows.have(windows.packets.source == 0))
    if not len(kept):
        raise RecordingError(recording.path, "the router sends nothing in it; give a longer recording")
    readings = _readings(recording, kept, n_readings)
    readings /= max(float(np.sqrt((readings**2).mean())), 1e-12)
    names = (*STATISTICS, *(f"reading_{index}" for index in range(n_readings)))
    features = np.concatenate([window_statistics(kept), readings], axis=1)
    return TranscriptSamples(names, features, kept.start_s / recording.time_lapse)


def _packets(notes: list[Annotation], recording: Recording) -> Packets:
    """Return the packets by the transcript's clock; the router has the number 0."""
    numbers = {recording.router: 0}
    sources = [numbers.setdefault(note.our_source, len(numbers)) for note in notes]
    destinations = [numbers.setdefault(note.our_destination, len(numbers)) for note in notes]
    starts = np.array([note.sample_start for note in notes], np.float64)
    payload = np.array([note.our_wire_bytes for note in notes], np.int32) - HEADER_BYTES
    return Packets(
        starts / recording.rate_hz * recording.time_lapse,
        payload,
        np.array(sources, np.int32),
        np.array(destinations, np.int32),
        np.full(len(notes), UDP, np.uint8),
    )


def _readings(recording: Recording, windows: Windows, n_readings: int) -> NDArray[np.float64]:
    """Return the first readings of the first router frame of each window."""
    packets, number = windows.packets, windows.number
    rows = np.flatnonzero(packets.source == 0)
    _, first = np.unique(number[rows], return_index=True)
    starts = np.rint(packets.time_s[rows[first]] / recording.time_lapse * recording.rate_hz).astype(np.int64)
    found = np.zeros((len(starts), n_readings))
    for row, start in enumerate(starts.tolist()):
        segment = next(part for part in reversed(recording.segments) if part.start <= start)
        samples = recording.read(segment, start - segment.start, n_readings)
        found[row, : len(samples)] = np.abs(samples)
    return found
