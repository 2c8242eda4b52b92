"""From coded bits to points on tones: segment parser, interleaver, Gray mapping (17.3.5.7, 21.3.10.7 to 9)."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.wifi.bits import Bits

Points = NDArray[np.complex64]


@cache
def interleaving(n_columns: int, n_bits: int, bits_per_tone: int) -> NDArray[np.intp]:
    """Return which coded bit each bit of an interleaved block is; a block is an OFDM symbol, or half of one at 160 MHz.

    Neighbours go to distant tones first, then to weak and strong bits of a tone in turn.
    """
    k = np.arange(n_bits)
    i = n_bits // n_columns * (k % n_columns) + k // n_columns
    s = max(bits_per_tone // 2, 1)
    j = s * (i // s) + (i + n_bits - n_columns * i // n_bits) % s
    source = np.argsort(j)
    source.flags.writeable = False
    return source


@cache
def points(bits_per_tone: int) -> Points:
    """Return the constellation, by the number whose most significant bit is sent first; mean power 1.

    >>> (points(4)[:4].imag * math.sqrt(10)).round().tolist()
    [-3.0, -1.0, 3.0, 1.0]
    """
    if bits_per_tone == 1:
        table = np.array([-1, 1], np.complex64)
    else:
        half = bits_per_tone // 2
        levels = _gray_levels(half)
        table = (levels[:, None] + 1j * levels[None, :]).ravel().astype(np.complex64)
        table /= math.sqrt(2 / 3 * (4**half - 1))
    table.flags.writeable = False
    return table


def _gray_levels(n_bits: int) -> NDArray[np.float64]:
    """Return the level, -(2^n - 1) to 2^n - 1, of each bit pattern; neighbouring levels differ in one bit."""
    ranks = np.arange(2**n_bits)
    levels = np.empty(2**n_bits)
    levels[ranks ^ ranks >> 1] = 2 * ranks - (2**n_bits - 1)
    return levels


def mapped(bits: Bits, bits_per_tone: int) -> Points:
    """Return a point for every `bits_per_tone` bits of the last axis."""
    groups = bits.reshape(*bits.shape[:-1], -1, bits_per_tone)
    index = groups[..., 0].copy()
    for place in range(1, bits_per_tone):
        index <<= 1
        index |= groups[..., place]
    return points(bits_per_tone)[index]


def segments(bits: Bits, n_segments: int, turn: int) -> Bits:
    """Return each symbol's bits dealt to segments of 80 MHz, `turn` at a time, shape `(n_symbols, n_segments, ...)`."""
    n_symbols = len(bits)
    dealt = bits.reshape(n_symbols, -1, n_segments, turn).swapaxes(1, 2)
    return dealt.reshape(n_symbols, n_segments, -1)


def modulated(bits: Bits, bits_per_tone: int, n_columns: int, n_segments: int = 1, n_coders: int = 1) -> Points:
    """Return the points on the data tones, lowest first, of coded bits of shape `(n_symbols, n_bits)`."""
    turn = max(bits_per_tone // 2, 1) * n_coders
    dealt = segments(bits, n_segments, turn)
    source = interleaving(n_columns, dealt.shape[-1], bits_per_tone)
    return mapped(dealt[..., source], bits_per_tone).reshape(len(bits), -1)
