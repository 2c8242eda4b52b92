"""Features of windows of radio samples: power, place in the band, and variation over time.

Powers are in dBFS: 0 is a carrier of amplitude 1, full scale of a recording of integers. A scaled signal moves these
and leaves all others as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError
from tolfl.signals.sigmf import Annotation, Recording
from tolfl.signals.windows import SignalRows

Complex = NDArray[np.complex64]
Float = NDArray[np.float64]

N_BANDS = 32
_BINS_PER_BAND = 4
N_FFT = N_BANDS * _BINS_PER_BAND
N_PIECES = 32  #: in which the envelope's course is measured
LEAST_SAMPLES = 1024  #: eight spectra, and pieces of 32 samples
_SILENCE = 1e-20  #: -200 dBFS: less than any converter can tell, and a logarithm needs something
_TAPER = (np.sin(np.pi * (np.arange(N_FFT) + 0.5) / N_FFT) * np.sqrt(2)).astype(np.float32)  # its square has mean 1

_UNITS = ((1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz"))

_OVERALL = (
    "power [dBFS]",
    "peak over power [dB]",
    "loudest piece [dBFS]",
    "quietest piece [dBFS]",
    "loud share [%]",
    "envelope variation",
    "envelope kurtosis",
    "spectrum centre [kHz]",
    "spectrum width [kHz]",
    "spectrum flatness [dB]",
    "loudest bin over mean [dB]",
)


def feature_names(rate_hz: float) -> tuple[str, ...]:
    """Return the names, with units in brackets; a band is named by its middle, as an offset from the receiver's tuning.

    Of a band there are the mean power, in decibels, and the mean of the decibels of short pieces. A loud frame covers
    the rest of a window in the first, not in the second.

    >>> names = feature_names(20e6)
    >>> len(names), names[0], names[11], names[-1]
    (75, 'power [dBFS]', 'power at -9.766 MHz [dBFS]', 'level at +9.609 MHz [dBFS]')
    """
    scale, unit = next((pair for pair in _UNITS if rate_hz >= pair[0]), _UNITS[-1])
    middles = _in_bands(_bin_hz(rate_hz)) / _BINS_PER_BAND / scale
    bands = [f"{middle:+.4g} {unit} [dBFS]" for middle in middles]
    return (*_OVERALL, *(f"power at {band}" for band in bands), *(f"level at {band}" for band in bands))


def window_features(samples: Complex, rate_hz: float) -> Float:
    """Return the 75 features of a window of `LEAST_SAMPLES` or more.

    A spectrum is the mean over pieces of 128 samples under a sine window; what is left at the end of a window after
    the last whole piece counts for its power and envelope only. A window with a sample that is no finite number has
    features that are none either.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        power = samples.real**2 + samples.imag**2
        spectra = piece_spectra(samples)
        bins = np.maximum(spectra.mean(axis=0, dtype=np.float64), _SILENCE / N_FFT)
        powers = decibels(_in_bands(bins))
        levels = decibels(_in_bands(spectra)).mean(axis=0)
        return np.concatenate([_envelope(power), _shape(bins, rate_hz), powers, levels])


def tapered_pieces(samples: Complex) -> Complex:
    """Return neighbouring pieces of `N_FFT` samples under a sine window."""
    return np.asarray(samples[: len(samples) // N_FFT * N_FFT].reshape(-1, N_FFT) * _TAPER)


def piece_spectra(samples: Complex) -> NDArray[np.float32]:
    """Return the power of each of `N_FFT` bins, from the lowest frequency, in each piece: their sum is its power."""
    from scipy import fft  # noqa: PLC0415  (scipy is an extra)

    transformed = fft.fftshift(fft.fft(tapered_pieces(samples), axis=1), axes=1)
    return np.asarray((transformed.real**2 + transformed.imag**2) / np.float32(N_FFT**2))


def decibels(power: NDArray[np.floating] | float) -> Float:
    """Return powers in decibels; nothing is less than -200."""
    return np.asarray(10 * np.log10(np.maximum(np.asarray(power, np.float64), _SILENCE)))


def _in_bands(bins: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.asarray(bins.reshape(*bins.shape[:-1], N_BANDS, _BINS_PER_BAND).sum(axis=-1))


def _envelope(power: NDArray[np.float32]) -> list[float]:
    mean = max(float(power.mean(dtype=np.float64)), _SILENCE)
    relative = power / np.float32(mean)
    size = np.sqrt(relative, dtype=np.float64)
    pieces = power[: len(power) // N_PIECES * N_PIECES].reshape(N_PIECES, -1).mean(axis=1, dtype=np.float64)
    variance = max(float(size.var()), 1e-12)  # a constant envelope has none, and its kurtosis is then 0
    return [
        float(decibels(mean)),
        float(decibels(relative.max())),
        float(decibels(pieces.max())),
        float(decibels(pieces.min())),
        100 * float((pieces > mean / 2).mean()),
        variance**0.5 / max(float(size.mean()), 1e-6),
        float(((size - size.mean()) ** 4).mean()) / variance**2,
    ]


def _shape(bins: Float, rate_hz: float) -> list[float]:
    share = bins / bins.sum()
    at_khz = _bin_hz(rate_hz) / 1e3
    centre = float(share @ at_khz)
    width = float(np.sqrt(share @ (at_khz - centre) ** 2))
    flatness = float(np.log10(share * N_FFT).mean() * 10)
    return [centre, width, flatness, float(decibels(share.max() * N_FFT))]


def _bin_hz(rate_hz: float) -> Float:
    return np.asarray((np.arange(N_FFT) - N_FFT // 2) * (rate_hz / N_FFT), np.float64)


WINDOW_S = 1e-3  #: at least: two slots of Bluetooth, the longest frames of Wi-Fi
NOTHING = "none"  #: the label of a window in which no annotation lies
_ROWS_AT_ONCE = 256


def recording_rows(recording: Recording) -> Iterator[SignalRows]:
    """Yield the windows of a recording, a few hundred at a time, whatever its length.

    Windows follow each other without a gap; what is left at the end, or before a retuning, is too short for one.
    """
    n_samples = max(round(WINDOW_S * recording.rate_hz), LEAST_SAMPLES)
    if not any(segment.n_samples >= n_samples for segment in recording.segments):
        raise DataFileError(
            recording.path,
            f"{recording.n_samples} samples are less than one window of {n_samples}; give a longer recording",
        )
    labels = _Labels(recording.annotations)
    rows: list[tuple[Float, float, str]] = []
    for segment, start, samples in recording.windows(n_samples):
        first = segment.start + start
        features = window_features(samples, recording.rate_hz)
        time_s = round(segment.time_s + start / recording.rate_hz, 9)  # no 0.30000000000000004
        rows.append((features, time_s, labels.between(first, first + n_samples)))
        if len(rows) == _ROWS_AT_ONCE:
            yield _rows_of(recording, rows)
            rows = []
    if rows:
        yield _rows_of(recording, rows)


def _rows_of(recording: Recording, rows: list[tuple[Float, float, str]]) -> SignalRows:
    features, times, labels = zip(*rows, strict=True)
    return SignalRows(feature_names(recording.rate_hz), np.array(times), np.array(features), labels=labels)


class _Labels:
    """The labels of annotations in windows, which come in their order."""

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
