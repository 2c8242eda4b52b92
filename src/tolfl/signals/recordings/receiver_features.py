"""What a receiver hears in a window, relative to its own noise: another gain, or another receiver, changes little.

The noise floor is that of the whole recording, or of the last half minute of a stream: for each bin of the spectrum,
and for the envelope, what is there in the quietest fifth of the time. Where nothing is on, most features are missing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Complex = NDArray[np.complex64]
Float = NDArray[np.float64]

WINDOW_S = 0.032
FLOOR_S = 30.0  #: of a stream, that its floor is taken of
N_FFT = 128
_AVERAGED = 8  #: pieces, and samples of the envelope, that are averaged: the floor must not be that of chance
GROUP = N_FFT * _AVERAGED
MOST_GROUPS = 4096  #: that a floor is taken of
_QUIET = 0.2
#: The 20 % point of a mean of eight exponential draws, of a tapered spectrum and of an envelope, over its expectation.
_BIN_SHARE, _ENVELOPE_SHARE = 0.72, 0.70
_ON = 10**0.7  #: 7 dB above the floor
_LEAST_ON = 2  #: means of the envelope: one alone is noise
_CLEAR_DB = 12.0  #: a signal that far above the noise has a frequency that can be measured
_TAPER = (np.sin(np.pi * (np.arange(N_FFT) + 0.5) / N_FFT) * np.sqrt(2)).astype(np.float32)
_TINY = 1e-12

#: Names, units, and what is measured: see `tolfl.detect.measures`.
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
    """What is there where nobody transmits."""

    dc: complex
    bins: Float
    envelope: float


class FloorEstimate:
    """Takes groups of samples, the newest `most`, and says what the floor is.

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
    pieces = samples[: len(samples) // N_FFT * N_FFT].reshape(-1, N_FFT)
    found = np.fft.fftshift(np.fft.fft(pieces * _TAPER, axis=1), axes=1)
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
