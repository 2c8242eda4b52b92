"""The first field of a Wi-Fi frame: the legacy short training field (L-STF) of IEEE 802.11, clauses 17.3.3 and 21.3.8.

Every non-HT, HT and VHT frame starts with it, and it carries no data: the first 8 microseconds of a frame are the same
for every packet and device, unless a channel says otherwise.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError

Complex = NDArray[np.complex128]

FIELD_S = 8e-6
_TRANSITION_S = 100e-9  #: of the time window; the standard leaves it open, 100 ns is its own example

#: Signs of the twelve tones at -24, -20, ..., 24 (without 0) of a 20 MHz slot; each tone is sign * (1 + j) / sqrt(2).
_TONES = np.array([-24, -20, -16, -12, -8, -4, 4, 8, 12, 16, 20, 24])
_SIGNS = np.array([1, -1, 1, -1, -1, 1, -1, -1, 1, 1, 1, 1])
#: How each 20 MHz slot is turned, from the lowest frequency (IEEE 802.11, 21.3.7.5); 160 MHz is 80 MHz twice.
SLOT_ROTATIONS: dict[int, tuple[complex, ...]] = {
    20: (1,),
    40: (1, 1j),
    80: (1, -1, -1, -1),
    160: (1, -1, -1, -1, 1, -1, -1, -1),
}


def l_stf(bandwidth_mhz: int = 160, oversampling: float = 1.5, window: Literal["none", "ieee"] = "none") -> Complex:
    """Return the whole field at `oversampling` times the bandwidth, with mean power 1.

    `window="ieee"` fades it in over the first 50 ns, the later half of the standard's transition; whether a generator
    puts the earlier half before the first sample is its own choice.

    >>> field = l_stf()
    >>> len(field), round(float(np.abs(field).max()), 6)
    (1920, 1.830136)
    """
    if bandwidth_mhz not in SLOT_ROTATIONS:
        raise SpecError(f"bandwidth {bandwidth_mhz} MHz; use one of {', '.join(map(str, SLOT_ROTATIONS))}")
    if not (oversampling >= 1 and math.isfinite(oversampling)):
        raise SpecError(f"oversampling {oversampling:g}; use at least 1")
    rate_hz = sample_rate_hz(bandwidth_mhz, oversampling)
    tones, values = short_training(bandwidth_mhz)
    n_samples = round(FIELD_S * rate_hz)
    period = 64 * (bandwidth_mhz // 20) * oversampling
    if abs(period - round(period)) < 1e-9:
        field = _by_transform(tones, values, round(period), n_samples)
    else:  # the symbol is not a whole number of samples: sum the tones at the sample times
        field = np.exp(2j * np.pi / period * np.outer(np.arange(n_samples), tones)) @ values
    field /= math.sqrt(len(tones))
    if window == "ieee":
        _fade_in(field, rate_hz)
    return field


def sample_rate_hz(bandwidth_mhz: int, oversampling: float) -> float:
    """Return the samples per second of a waveform: 240 million at 160 MHz and 1.5."""
    return bandwidth_mhz * 1e6 * oversampling


def short_training(bandwidth_mhz: int) -> tuple[NDArray[np.int_], Complex]:
    """Return the tones of the short training field, numbered from the centre, and what is sent on each."""
    rotations = np.array(SLOT_ROTATIONS[bandwidth_mhz], np.complex128)
    centres = 64 * np.arange(len(rotations)) - 32 * (len(rotations) - 1)
    tones = (centres[:, None] + _TONES).ravel()
    values = rotations[:, None] * _SIGNS * (1 + 1j) / math.sqrt(2)
    return tones, values.ravel()


def _by_transform(tones: NDArray[np.int_], values: Complex, n_fft: int, n_samples: int) -> Complex:
    spectrum = np.zeros(n_fft, np.complex128)
    spectrum[tones] = values  # negative tones count from the end, as the transform wants them
    return np.resize(np.fft.ifft(spectrum) * n_fft, n_samples)


def _fade_in(field: Complex, rate_hz: float) -> None:
    times_s = np.arange(math.ceil(_TRANSITION_S / 2 * rate_hz)) / rate_hz
    field[: len(times_s)] *= np.sin(np.pi / 2 * (0.5 + times_s / _TRANSITION_S)) ** 2
