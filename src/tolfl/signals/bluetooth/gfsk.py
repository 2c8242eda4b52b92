"""Bluetooth's modulation: the frequency follows the bits behind a Gaussian filter, BT 0.5 (vol. 2 part A, 3.1)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError

Floats = NDArray[np.float64]
Bits = NDArray[np.uint8]

BIT_RATE_HZ = 1e6
MODULATION_INDEX = 0.32  #: basic rate: 0.28 to 0.35
#: Standard deviation of the Gaussian filter in bits, for a bandwidth-time product of 0.5.
_FILTER_BITS = math.sqrt(math.log(2)) / (2 * math.pi * 0.5)
NEIGHBOURS = 2  #: bits on each side that reach into a bit; the filter has died away after 1.5
_SCALE = 1 / (_FILTER_BITS * math.sqrt(2))


def pulse(bits_from_centre: Floats) -> Floats:
    """Return a bit's frequency pulse: a rectangle of one bit behind the Gaussian filter."""
    from scipy.special import erf  # noqa: PLC0415  (scipy is an extra)

    return np.asarray((erf((bits_from_centre + 0.5) * _SCALE) - erf((bits_from_centre - 0.5) * _SCALE)) / 2)


def pulse_so_far(bits_from_centre: Floats) -> Floats:
    """Return the integral of the pulse up to there: from 0 to 1."""
    return np.asarray((_slope(bits_from_centre + 0.5) - _slope(bits_from_centre - 0.5) + 1) / 2)


def _slope(bits: Floats) -> Floats:
    """Return the integral of the error function behind the filter."""
    scaled = bits * _SCALE
    from scipy.special import erf  # noqa: PLC0415  (scipy is an extra)

    return np.asarray((scaled * erf(scaled) + np.exp(-(scaled**2)) / math.sqrt(math.pi)) / _SCALE)


def gfsk(bits: Bits, rate_hz: float, modulation_index: float) -> NDArray[np.complex64]:
    """Return the bits at 1 Mb/s as samples of amplitude 1, around frequency 0; a one is above it.

    The phase is exact at every sample, whether or not a bit is a whole number of them.
    """
    per_bit = rate_hz / BIT_RATE_HZ
    if not (math.isfinite(rate_hz) and per_bit >= 2):
        raise SpecError(f"{rate_hz:g} samples/s for a Bluetooth packet; use at least {2 * BIT_RATE_HZ:g}")
    swings = np.pad(2.0 * bits - 1, NEIGHBOURS)
    before = np.concatenate([[0.0], np.cumsum(swings)])[: len(bits)]  # of bits that are over, each a whole pulse
    near = np.lib.stride_tricks.sliding_window_view(swings, 2 * NEIGHBOURS + 1)
    offsets = np.arange(-NEIGHBOURS, NEIGHBOURS + 1)[:, None] + 0.5
    if per_bit == round(per_bit):
        inside = np.arange(round(per_bit)) / per_bit
        progress = (before[:, None] + near @ pulse_so_far(inside - offsets)).ravel()
    else:
        at = np.arange(math.ceil(len(bits) * per_bit)) / per_bit
        bit = np.minimum(at.astype(np.intp), len(bits) - 1)
        progress = before[bit] + (near[bit].T * pulse_so_far(at - bit - offsets)).sum(axis=0)
    turns = modulation_index / 2 * progress
    angle = (2 * np.pi * (turns - np.round(turns))).astype(np.float32)
    samples = np.empty(len(angle), np.complex64)
    np.cos(angle, out=samples.real)
    np.sin(angle, out=samples.imag)
    return samples


def check_index(modulation_index: float, least: float, most: float) -> None:
    """Refuse a modulation index outside of what the standard allows."""
    if not least <= modulation_index <= most:
        raise SpecError(f"modulation index {modulation_index:g}; use {least:g} to {most:g}")
