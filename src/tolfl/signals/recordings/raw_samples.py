"""Samples of a receiver without metadata: files of rtl_sdr, hackrf and others, and a stream on standard input."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.captures.capture_records import Readable, exactly
from tolfl.signals.recordings.metadata import Datatype, RecordingError
from tolfl.signals.recordings.receiver_features import (
    FLOOR_S,
    GROUP,
    MOST_GROUPS,
    WINDOW_S,
    Complex,
    Float,
    Floor,
    FloorEstimate,
    receiver_features,
    receiver_names,
)
from tolfl.signals.recordings.recording_rows import RecordingRows

#: Endings, and how SigMF calls the same.
RAW = {".cu8": "cu8", ".cs8": "ci8", ".cs16": "ci16_le", ".cf32": "cf32_le"}
_TUNED = re.compile(r"_(?P<centre>\d+(\.\d+)?)M(hz)?_(?P<rate>\d+(\.\d+)?)k(?![a-z0-9])", re.IGNORECASE)
_ROWS_AT_ONCE = 64
_CLIPPED_SHARE = 0.001  #: of the samples of a window that clips


class Tuning(NamedTuple):
    """How a receiver was set; 0: not known."""

    rate_hz: float = 0.0
    centre_hz: float = 0.0  #: what offsets in frequency count from
    datatype: str = ""  #: of a stream, by its ending: cu8, cs8, cs16, cf32


def hertz(text: str) -> float:
    """Return a frequency that may have a letter behind it.

    >>> hertz("250k"), hertz("433.92M"), hertz("1e6")
    (250000.0, 433920000.0, 1000000.0)
    """
    found = re.fullmatch(r"(?P<number>[0-9.]+(e[0-9]+)?)\s*(?P<letter>[kMG]?)(Hz)?", text.strip())
    try:
        value = float(found["number"]) * {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}[found["letter"]] if found else 0.0
    except ValueError:
        value = 0.0
    if not 0 < value < 1e15:
        raise SpecError(f"{text!r} is no frequency; write one as in 250k, 433.92M or 2.4G")
    return value


def tuned(path: Path, asked: Tuning) -> tuple[float, float]:
    """Return the rate of a file and what its receiver was tuned to (0: unknown), as asked for or by its name.

    >>> tuned(Path("g001_433.92M_250k.cu8"), Tuning())
    (250000.0, 433920000.0)
    """
    found = _TUNED.search(path.name)
    rate_hz = float(found["rate"]) * 1e3 if found else asked.rate_hz
    if not rate_hz:
        raise RecordingError(path, "its name does not say how many samples a second it has; say so with --rate 250k")
    return rate_hz, float(found["centre"]) * 1e6 if found else 0.0


def raw_rows(path: Path, asked: Tuning, notes: list[str]) -> Iterator[RecordingRows]:
    """Yield the windows of a file; `time_s` counts from its beginning. What a person should know goes to `notes`."""
    datatype = Datatype.named(RAW[path.suffix.lower()])
    rate_hz, tuned_hz = tuned(path, asked)
    try:
        numbers = np.memmap(path, np.dtype(datatype.numbers), "r")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is empty"
        raise RecordingError(path, f"cannot be read ({why}); check the path") from None
    size, n_samples = window_size(rate_hz), len(numbers) // 2
    if n_samples < size:
        raise RecordingError(path, f"{n_samples} samples are less than one window of {size}; give a longer recording")

    def samples(first: int, n: int) -> Complex:
        return amplitudes(numbers[2 * first : 2 * (first + n)], datatype)

    estimate = FloorEstimate(_rounding(datatype))
    n_groups = n_samples // GROUP
    for place in np.unique(np.linspace(0, n_groups - 1, min(n_groups, MOST_GROUPS)).astype(int)).tolist():
        estimate.add(samples(place * GROUP, GROUP))
    off_hz = tuned_hz - asked.centre_hz if tuned_hz and asked.centre_hz else 0.0
    rows = _Rows(rate_hz, asked.centre_hz, off_hz, datatype)
    floor = estimate.floor()
    for number in range(n_samples // size):
        yield from rows.add(samples(number * size, size), floor, number * size / rate_hz)
    yield from rows.rest()
    if rows.n_clipped:
        notes.append(f"{rows.n_clipped} of {rows.n_windows} windows clip; lower the gain of the receiver")


def stream_rows(stream: Readable, asked: Tuning, notes: list[str]) -> Iterator[RecordingRows]:
    """Yield the windows of a stream as they come; the floor is that of the last half minute, once a second."""
    ending = f".{asked.datatype}"
    if ending not in RAW or not asked.rate_hz:
        kinds = ", ".join(one[1:] for one in RAW)
        raise SpecError(f"samples on {stream.path}: {asked.datatype!r} is none of {kinds}; say which with --raw")
    datatype, rate_hz = Datatype.named(RAW[ending]), asked.rate_hz
    size, per_second = window_size(rate_hz), max(1, round(1 / WINDOW_S))
    n_groups = max(1, round(FLOOR_S * rate_hz / GROUP))
    step = -(-n_groups // MOST_GROUPS)  # of a fast receiver, every so many-th group
    estimate, floor = FloorEstimate(_rounding(datatype), n_groups // step + 1), None
    rows = _Rows(rate_hz, asked.centre_hz, 0.0, datatype)
    number = 0
    while True:
        content = exactly(stream, size * datatype.bytes_per_sample)
        if len(content) < size * datatype.bytes_per_sample:
            break
        samples = amplitudes(np.frombuffer(content, np.dtype(datatype.numbers)), datatype)
        for first in range(0, len(samples) - GROUP + 1, GROUP * step):
            estimate.add(samples[first : first + GROUP])
        if floor is None or number % per_second == 0:
            floor = estimate.floor()
        yield from rows.add(samples, floor, number * size / rate_hz)
        number += 1
        if number % per_second == 0:
            yield from rows.rest()
    yield from rows.rest()
    if rows.n_clipped:
        notes.append(f"{rows.n_clipped} of {rows.n_windows} windows clip; lower the gain of the receiver")


def window_size(rate_hz: float) -> int:
    """Return how many samples a window has."""
    return max(round(WINDOW_S * rate_hz), 2 * GROUP)


def amplitudes(numbers: NDArray[np.generic], datatype: Datatype) -> Complex:
    """Return samples; 8 bits of a receiver without a sign have their middle between 127 and 128."""
    scaled = (numbers.astype(np.float32) - np.float32(_middle(datatype))) / np.float32(datatype.full_scale)
    return np.ascontiguousarray(scaled).view(np.complex64)


def _middle(datatype: Datatype) -> float:
    return datatype.middle - 0.5 if datatype.middle else 0.0


def _rounding(datatype: Datatype) -> float:
    """Return the power of the noise of rounding, in both parts."""
    return 0.0 if datatype.full_scale == 1.0 else (1 / datatype.full_scale) ** 2 / 6


class _Rows:
    """Gathers windows, and counts those that clip."""

    def __init__(self, rate_hz: float, centre_hz: float, off_hz: float, datatype: Datatype) -> None:
        self._rate_hz, self._off_hz = rate_hz, off_hz
        self._names = receiver_names(rate_hz, centre_hz)
        kind, middle = np.dtype(datatype.numbers), _middle(datatype)
        #: Of samples that are whole numbers, the largest amplitude in both directions.
        self._largest = 0.0 if kind.kind == "f" else float(np.iinfo(kind).max - middle) / datatype.full_scale - 1e-6
        self._found: list[Float] = []
        self._times: list[float] = []
        self.n_windows = self.n_clipped = 0

    def add(self, samples: Complex, floor: Floor, time_s: float) -> Iterator[RecordingRows]:
        self.n_windows += 1
        if self._largest:
            is_full = np.maximum(np.abs(samples.real), np.abs(samples.imag)) >= self._largest
            self.n_clipped += bool(is_full.mean() > _CLIPPED_SHARE)
        self._found.append(receiver_features(samples, self._rate_hz, floor, self._off_hz))
        self._times.append(round(time_s, 9))
        if len(self._found) >= _ROWS_AT_ONCE:
            yield from self.rest()

    def rest(self) -> Iterator[RecordingRows]:
        if self._found:
            labels = np.full(len(self._found), "none")
            yield RecordingRows(self._names, np.array(self._found), np.array(self._times), labels)
        self._found, self._times = [], []
