"""A recording as a table: one row of features per window, with its time and what its annotations say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.recordings.features import LEAST_SAMPLES, feature_names, window_features
from tolfl.signals.recordings.metadata import Annotation, RecordingError
from tolfl.signals.recordings.reading import Recording

_Row = tuple[NDArray[np.float64], float, str]

WINDOW_S = 1e-3  #: two slots of Bluetooth, the longest frames of Wi-Fi
NOTHING = "none"  #: the label of a window in which no annotation lies
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class RecordingRows:
    """Some neighbouring windows."""

    names: tuple[str, ...]
    features: NDArray[np.float64]  #: `(n_windows, n_features)`
    time_s: NDArray[np.float64]  #: when each begins, since the beginning of the recording
    label: NDArray[np.str_]  #: the labels of all annotations in it, joined by +


def window_samples(recording: Recording, window_s: float = WINDOW_S) -> int:
    """Return how many samples a window has: so many seconds, but never less than a spectrum needs."""
    if not 0 < window_s < np.inf:
        raise SpecError(f"windows of {window_s:g} s; use a number above 0")
    return max(round(window_s * recording.rate_hz), LEAST_SAMPLES)


def recording_rows(recording: Recording, window_s: float = WINDOW_S) -> Iterator[RecordingRows]:
    """Yield the windows of a recording, a few hundred at a time, whatever its length.

    Windows follow each other without a gap; what is left at the end, or before a retuning, is too short for one.
    """
    n_samples = window_samples(recording, window_s)
    if not any(segment.n_samples >= n_samples for segment in recording.segments):
        raise RecordingError(
            recording.path,
            f"{recording.n_samples} samples are less than one window of {n_samples}; give a longer recording",
        )
    labels = _Labels(recording.annotations)
    rows: list[_Row] = []
    for segment, start, samples in recording.windows(n_samples):
        first = segment.start + start
        features = window_features([samples], recording.rate_hz)[0]
        time_s = round(segment.time_s + start / recording.rate_hz, 9)  # no 0.30000000000000004
        rows.append((features, time_s, labels.between(first, first + n_samples)))
        if len(rows) == _ROWS_AT_ONCE:
            yield _joined(recording, rows)
            rows = []
    if rows:
        yield _joined(recording, rows)


def _joined(recording: Recording, rows: list[_Row]) -> RecordingRows:
    features, times, labels = zip(*rows, strict=True)
    names = feature_names(recording.rate_hz)
    return RecordingRows(names, np.array(features), np.array(times), np.array(labels, dtype=str))


class _Labels:
    """What annotations say of windows that are asked for in their order."""

    def __init__(self, annotations: Sequence[Annotation]) -> None:
        self._coming = list(reversed([note for note in annotations if note.label]))
        self._open: list[Annotation] = []

    def between(self, start: int, end: int) -> str:
        while self._coming and self._coming[-1].sample_start < end:
            self._open.append(self._coming.pop())
        # Without a count, an annotation lasts to the end.
        self._open = [
            note for note in self._open if note.sample_count is None or note.sample_start + note.sample_count > start
        ]
        return "+".join(sorted({note.label for note in self._open})) or NOTHING
