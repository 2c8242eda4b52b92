"""What a receiver picks up in a window, relative to its own noise: a change of gain or receiver has little effect.

The noise floor is that of the whole recording, or of the last half minute of a stream: for each bin of the spectrum,
and for the envelope, what is there in the quietest fifth of the time. Where nothing is on, most features are missing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError, SpecError
from tolfl.signals.iq_features import N_FFT, tapered_pieces
from tolfl.signals.sigmf import full_scale
from tolfl.signals.windows import SignalRows

Complex = NDArray[np.complex64]
Float = NDArray[np.float64]

WINDOW_S = 0.032
FLOOR_S = 30.0  #: of a stream, that its floor is taken of
_AVERAGED = 8  #: pieces, and samples of the envelope, that are averaged: the floor must not be that of chance
GROUP = N_FFT * _AVERAGED
MOST_GROUPS = 4096  #: that a floor is taken of
_QUIET = 0.2
#: The 20 % point of a mean of eight exponential draws, of a tapered spectrum and of an envelope, over its expectation.
_BIN_SHARE, _ENVELOPE_SHARE = 0.72, 0.70
_ON = 10**0.7  #: 7 dB above the floor
_LEAST_ON = 2  #: means of the envelope: one alone is noise
_CLEAR_DB = 12.0  #: a signal that far above the noise has a frequency that can be measured
_TINY = 1e-12

#: Names, units, and what is measured: see `tolfl.detect.cells`.
_FEATURES = (
    ("excess", "dB", "strength"),
    ("peak over noise", "dB", "peak"),
    ("duty", "", "share"),
    ("pulses", "", "count"),
    ("pulse width", "s", "pulse"),
    ("pulse width spread", "", "ratio"),
    ("gap width", "s", "pulse"),
    ("gap width spread", "", "ratio"),
    ("centre", "kHz", "offset"),
    ("bandwidth", "kHz", "band"),
    ("deviation", "kHz", "band"),
    ("entropy", "bit", "entropy"),
    ("envelope variation", "", "variation"),
)
_NOTE = re.compile(r".* \((?P<rate>[^ ]+) Hz(, from (?P<centre>[^ ]+) Hz)?\)")


def receiver_names(rate_hz: float, centre_hz: float = 0.0) -> tuple[str, ...]:
    """Return the names of the features; the rate, and where offsets count from, are part of them.

    >>> receiver_names(250e3)[0], receiver_names(250e3, 433.92e6)[8]
    ('excess (250000 Hz) [dB; strength]', 'centre (250000 Hz, from 433920000 Hz) [kHz; offset]')
    """
    note = f" ({rate_hz:.12g} Hz" + (f", from {centre_hz:.12g} Hz)" if centre_hz else ")")
    return tuple(f"{name}{note} [{unit}; {measure}]" for name, unit, measure in _FEATURES)


def tuning_of(names: Iterable[str]) -> tuple[float, float]:
    """Return rate and centre in the names of features; 0: they are not of a receiver.

    >>> tuning_of(["excess (250000 Hz, from 433920000 Hz)"]), tuning_of(["frames"])
    ((250000.0, 433920000.0), (0.0, 0.0))
    """
    found = next((match for name in names if (match := _NOTE.fullmatch(name))), None)
    return (float(found["rate"]), float(found["centre"] or 0)) if found else (0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Floor:
    """The noise of a receiver: offset, power of each bin, power of the envelope."""

    dc: complex
    bins: Float
    envelope: float


class FloorEstimate:
    """Takes groups of samples, the newest `most`, and estimates the floor from them.

    Parameters
    ----------
    rounding
        The power of the noise of rounding: no floor is below it.
    """

    def __init__(self, rounding: float = 0.0, most: int = MOST_GROUPS) -> None:
        self._rounding = rounding
        self._means: deque[complex] = deque(maxlen=most)
        self._bins: deque[NDArray[np.float32]] = deque(maxlen=most)
        self._envelopes: deque[NDArray[np.float32]] = deque(maxlen=most)

    def add(self, samples: Complex) -> None:
        """Take in whole groups of `GROUP` samples; what is left at the end is not used."""
        for first in range(0, len(samples) - GROUP + 1, GROUP):
            group = samples[first : first + GROUP]
            self._means.append(complex(group.mean()))
            self._bins.append(spectra(group - self._means[-1]).mean(axis=0))
            self._envelopes.append(envelope(group - self._means[-1]).astype(np.float32))

    @property
    def is_empty(self) -> bool:
        """Whether no group was taken in."""
        return not self._means

    def floor(self) -> Floor:
        """Return the floor of all that was taken in."""
        bins = np.maximum(np.quantile(np.array(self._bins), _QUIET, axis=0) / _BIN_SHARE, _TINY).astype(np.float64)
        bins = np.maximum(bins, np.median(bins) / 10)  # notches and rounding
        quiet = float(np.quantile(np.concatenate(self._envelopes), _QUIET)) / _ENVELOPE_SHARE
        return Floor(complex(np.median(np.array(self._means).real) + 1j * np.median(np.array(self._means).imag)), bins,
                     max(quiet, self._rounding / 4, _TINY))  # fmt: skip


def spectra(samples: Complex) -> NDArray[np.float32]:
    """Return the power of each bin of each piece."""
    found = np.fft.fftshift(np.fft.fft(tapered_pieces(samples), axis=1), axes=1)
    return np.asarray((found.real**2 + found.imag**2) / N_FFT**2, np.float32)


def envelope(samples: Complex) -> Float:
    """Return the power in means of eight samples."""
    power = samples.real**2 + samples.imag**2
    pieces = power[: len(power) // _AVERAGED * _AVERAGED].reshape(-1, _AVERAGED)
    return np.asarray(pieces.mean(axis=1, dtype=np.float64))


def receiver_features(samples: Complex, rate_hz: float, floor: Floor, tuned_off_hz: float = 0.0) -> Float:
    """Return the features of one window; those that nothing in it has are NaN.

    `tuned_off_hz` is how far the receiver is tuned above what offsets count from.
    """
    samples = samples - np.complex64(floor.dc)
    relative = envelope(samples) / floor.envelope
    found = dict.fromkeys((name for name, *_ in _FEATURES), np.nan)
    starts, ends = _pulses(relative > _ON)
    found["excess"] = 10 * np.log10(max(float(relative.mean()), 1e-3))
    found["duty"] = float((relative > _ON).mean())
    found["pulses"] = float(len(starts))
    if len(starts):
        on = np.zeros(len(relative), np.bool_)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            on[start:end] = True
        found["peak over noise"] = 10 * np.log10(float(np.quantile(relative[on], 0.9)))
        step_s = _AVERAGED / rate_hz
        found["pulse width"], found["pulse width spread"] = _widths((ends - starts) * step_s)
        if len(starts) > 2:
            found["gap width"], found["gap width spread"] = _widths((starts[1:] - ends[:-1]) * step_s)
        found |= _spectrum(samples, rate_hz, floor, tuned_off_hz)
        if found["peak over noise"] > _CLEAR_DB:
            found |= _frequency(samples, rate_hz, starts * _AVERAGED, ends * _AVERAGED)
    return np.array(list(found.values()))


def _pulses(is_on: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    edges = np.diff(np.concatenate([[0], is_on.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    is_long = ends - starts >= _LEAST_ON
    return starts[is_long], ends[is_long]


def _widths(widths_s: NDArray[np.floating]) -> tuple[float, float]:
    """Return the median and, of the logarithms, from the 10 % to the 90 % point."""
    low, high = np.quantile(np.log(widths_s), [0.1, 0.9])
    return float(np.median(widths_s)), float(high - low)


def _spectrum(samples: Complex, rate_hz: float, floor: Floor, tuned_off_hz: float) -> dict[str, float]:
    excess = np.maximum(spectra(samples).mean(axis=0) - 1.5 * floor.bins, 0.0)
    if not excess.sum() > 0:
        return {}
    share = excess / excess.sum()
    at_khz = (np.arange(N_FFT) - N_FFT // 2) * (rate_hz / N_FFT / 1e3)
    centre = float(share @ at_khz)
    some = share[share > 0]
    return {
        "centre": centre + tuned_off_hz / 1e3,
        "bandwidth": float(np.sqrt(share @ (at_khz - centre) ** 2)),
        "entropy": float(-(some * np.log2(some)).sum()),
    }


def _frequency(samples: Complex, rate_hz: float, starts: NDArray[np.intp], ends: NDArray[np.intp]) -> dict[str, float]:
    """Return how far the frequency goes, and how much the amplitude varies, inside of pulses."""
    inside = np.zeros(len(samples), np.bool_)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        inside[start + _AVERAGED // 2 : max(end - _AVERAGED // 2, 0)] = True
    both = inside[1:] & inside[:-1]
    if both.sum() <= 2 * _AVERAGED:
        return {}
    turned = np.angle(samples[1:] * samples[:-1].conj())[both] * (rate_hz / (2 * np.pi * 1e3))
    low, high = np.quantile(turned, [0.1, 0.9])
    size = np.abs(samples[1:][both])
    return {"deviation": float(high - low), "envelope variation": float(size.std() / max(float(size.mean()), _TINY))}


#: Numbers by the ending of files with them.
RAW = {ending: np.dtype(kind) for ending, kind in ((".cu8", "u1"), (".cs8", "i1"), (".cs16", "<i2"), (".cf32", "<f4"))}
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


def tuned(path: Path, tuning: Tuning) -> tuple[float, float]:
    """Return the rate of a file and what its receiver was tuned to (0: unknown), as given or by its name.

    >>> tuned(Path("g001_433.92M_250k.cu8"), Tuning())
    (250000.0, 433920000.0)
    """
    found = _TUNED.search(path.name)
    rate_hz = float(found["rate"]) * 1e3 if found else tuning.rate_hz
    if not rate_hz:
        raise DataFileError(path, "its name has no sample rate; give one with --rate 250k")
    return rate_hz, float(found["centre"]) * 1e6 if found else 0.0


def raw_rows(path: Path, tuning: Tuning, notes: list[str]) -> Iterator[SignalRows]:
    """Yield the windows of a file; their times count from its beginning. What a person should know goes to `notes`."""
    kind = RAW[path.suffix.lower()]
    rate_hz, tuned_hz = tuned(path, tuning)
    try:
        numbers = np.memmap(path, kind, "r")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is empty"
        raise DataFileError(path, f"cannot be read ({why}); check the path") from None
    size, n_samples = window_size(rate_hz), len(numbers) // 2
    if n_samples < size:
        raise DataFileError(path, f"{n_samples} samples are less than one window of {size}; give a longer recording")

    def samples(first: int, n: int) -> Complex:
        return amplitudes(numbers[2 * first : 2 * (first + n)])

    estimate = FloorEstimate(_rounding(kind))
    n_groups = n_samples // GROUP
    for place in np.unique(np.linspace(0, n_groups - 1, min(n_groups, MOST_GROUPS)).astype(int)).tolist():
        estimate.add(samples(place * GROUP, GROUP))
    off_hz = tuned_hz - tuning.centre_hz if tuned_hz and tuning.centre_hz else 0.0
    floor = estimate.floor()
    windows = ((samples(number * size, size), floor) for number in range(n_samples // size))
    yield from _rows(windows, rate_hz, tuning.centre_hz, off_hz, kind, _ROWS_AT_ONCE, notes)


def stream_rows(chunks: Iterator[bytes], tuning: Tuning, notes: list[str]) -> Iterator[SignalRows]:
    """Yield the windows of a stream as its bytes come; the floor is that of the last half minute, once a second."""
    ending = f".{tuning.datatype}"
    if ending not in RAW or not tuning.rate_hz:
        kinds = ", ".join(one[1:] for one in RAW)
        raise SpecError(f"samples on standard input: {tuning.datatype!r} is none of {kinds}; name one with --raw")
    kind, rate_hz = RAW[ending], tuning.rate_hz
    per_second = max(1, round(1 / WINDOW_S))
    windows = _stream_windows(chunks, kind, rate_hz, per_second)
    yield from _rows(windows, rate_hz, tuning.centre_hz, 0.0, kind, per_second, notes)


def _stream_windows(
    chunks: Iterator[bytes], kind: np.dtype[np.generic], rate_hz: float, per_second: int
) -> Iterator[tuple[Complex, Floor]]:
    n_bytes = window_size(rate_hz) * 2 * kind.itemsize
    n_groups = max(1, round(FLOOR_S * rate_hz / GROUP))
    step = -(-n_groups // MOST_GROUPS)  # of a fast receiver, every so many-th group
    estimate, floor = FloorEstimate(_rounding(kind), n_groups // step + 1), None
    for number, content in enumerate(_pieces(chunks, n_bytes)):
        samples = amplitudes(np.frombuffer(content, kind))
        for first in range(0, len(samples) - GROUP + 1, GROUP * step):
            estimate.add(samples[first : first + GROUP])
        if floor is None or number % per_second == 0:
            floor = estimate.floor()
        yield samples, floor


def _pieces(chunks: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    """Yield bytes in pieces of one length; what is left at the end is too short for one."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        n_whole = len(rest) // n_bytes * n_bytes
        yield from (rest[first : first + n_bytes] for first in range(0, n_whole, n_bytes))
        rest = rest[n_whole:]


def _rows(
    windows: Iterator[tuple[Complex, Floor]],
    rate_hz: float,
    centre_hz: float,
    off_hz: float,
    kind: np.dtype[np.generic],
    at_once: int,
    notes: list[str],
) -> Iterator[SignalRows]:
    """Yield the features of windows, `at_once` at a time; in the end, note how many of them clip."""
    names, size = receiver_names(rate_hz, centre_hz), window_size(rate_hz)
    n_windows = n_clipped = 0
    while True:
        found = []
        for samples, floor in islice(windows, at_once):
            found.append(receiver_features(samples, rate_hz, floor, off_hz))
            n_clipped += _clips(samples, kind)
        if not found:
            break
        starts_s = [round(number * size / rate_hz, 9) for number in range(n_windows, n_windows + len(found))]
        n_windows += len(found)
        yield SignalRows(names, np.array(starts_s), np.array(found))
    if n_clipped:
        notes.append(f"{n_clipped} of {n_windows} windows clip; lower the gain of the receiver")


def _clips(samples: Complex, kind: np.dtype[np.generic]) -> bool:
    """Return whether too many samples, of those that are whole numbers, have the largest amplitude."""
    if kind.kind == "f":
        return False
    half_step = 0.5 if kind.kind == "u" else 1.0
    largest = (full_scale(kind) - half_step) / full_scale(kind) - 1e-6
    is_full = np.maximum(np.abs(samples.real), np.abs(samples.imag)) >= largest
    return bool(is_full.mean() > _CLIPPED_SHARE)


def window_size(rate_hz: float) -> int:
    """Return how many samples a window has."""
    return max(round(WINDOW_S * rate_hz), 2 * GROUP)


def amplitudes(numbers: NDArray[np.generic]) -> Complex:
    """Return samples; 8 bits of a receiver without a sign have their middle between 127 and 128."""
    scale = full_scale(numbers.dtype)
    middle = scale - 0.5 if numbers.dtype.kind == "u" else 0.0
    scaled = (numbers.astype(np.float32) - np.float32(middle)) / np.float32(scale)
    return np.ascontiguousarray(scaled).view(np.complex64)


def _rounding(kind: np.dtype[np.generic]) -> float:
    """Return the power of the noise of rounding, in both parts."""
    return 0.0 if kind.kind == "f" else (1 / full_scale(kind)) ** 2 / 6
