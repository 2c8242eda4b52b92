"""From tones to samples: inverse transform, guard interval, and symbols faded into one another (17.3.2.5).

Every symbol has mean power 1, whatever the number of its tones: exactly with tones of equal power, on average else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.wifi.tones import Tones, rotated

Samples = NDArray[np.complex64]

SYMBOL_S = 3.2e-6  #: without its guard interval
_LONGEST_WINDOW_S = 0.4e-6  #: the short guard interval: beyond it, a receiver would see the neighbouring symbol


def symbol_samples(bandwidth_mhz: int, oversampling: float) -> int:
    """Return the samples of a symbol without its guard interval: 64 at 20 MHz, once sampled.

    >>> symbol_samples(160, 1.5)
    768
    """
    n_samples = 64 * bandwidth_mhz / 20 * oversampling
    if not (oversampling >= 1 and math.isfinite(oversampling)):
        raise SpecError(f"oversampling {oversampling:g}; use at least 1")
    if n_samples % 8:
        raise SpecError(
            f"oversampling {oversampling:g} at {bandwidth_mhz} MHz cuts a guard interval; use a whole number"
        )
    return int(n_samples)


def symbols(
    tones: Tones,
    values: NDArray[np.complexfloating],
    bandwidth_mhz: int,
    n_fft: int,
    *,
    guard: float = 1 / 4,
    body: float = 1,
) -> Samples:
    """Return symbols, shape `(n_symbols, n_samples)`, of what is sent on the tones, shape `(n_symbols, n_tones)`.

    `guard` and `body` are parts of `n_fft`: how much of a symbol is sent ahead of it, and how often it is repeated.
    """
    spectra = np.zeros((len(values), n_fft), np.complex64)
    spectra[:, tones] = values * rotated(tones, bandwidth_mhz)  # negative tones count from the end
    periods: Samples = np.fft.ifft(spectra, axis=1).astype(np.complex64, copy=False)
    periods *= np.float32(n_fft / math.sqrt(len(tones)))
    n_guard = round(guard * n_fft)
    if body == 1:
        return np.concatenate([periods[:, n_fft - n_guard :], periods], axis=1)
    return periods[:, (np.arange(n_guard + round(body * n_fft)) - n_guard) % n_fft]


def joined(fields: Sequence[Samples], n_fft: int, window_s: float) -> Samples:
    """Return fields of symbols as one frame; with a window, each symbol fades into the next over `window_s`.

    The transition is centred where the symbols meet. Half of it would lie before the frame and half behind: it is left
    out, so that a frame starts and ends at half its amplitude and its length does not depend on the window.
    """
    frame = np.concatenate([field.ravel() for field in fields])
    if not 0 <= window_s <= _LONGEST_WINDOW_S:
        raise SpecError(f"a window of {window_s:g} s; use 0 to {_LONGEST_WINDOW_S:g} s, the short guard interval")
    width = window_s * n_fft / SYMBOL_S
    reach = math.ceil(width / 2) - 1  # the transition's ends are 0 and 1: nothing to do there
    if reach < 0:
        return frame
    lengths = np.concatenate([np.full(len(field), field.shape[1]) for field in fields])
    ends = np.cumsum(lengths)
    plain = frame.copy()
    later, earlier = np.arange(reach + 1), np.arange(-reach, 0)
    rising = np.sin(np.pi / 2 * (0.5 + later / width)).astype(np.float32) ** 2
    falling = np.cos(np.pi / 2 * (0.5 + earlier / width)).astype(np.float32) ** 2
    frame[later] *= rising
    frame[ends[-1] + earlier] *= falling
    # A symbol goes on in both directions as it began: a period later, or earlier, is the same sample.
    after = ends[:-1, None] + later
    frame[after] = rising * plain[after] + (1 - rising) * plain[after - n_fft]
    before = ends[:-1, None] + earlier
    frame[before] = falling * plain[before] + (1 - falling) * plain[before + n_fft]
    return frame
