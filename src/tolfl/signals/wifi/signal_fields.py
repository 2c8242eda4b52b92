"""The fields that say how to read the rest: L-SIG (17.3.4), VHT-SIG-A (21.3.8.3.3) and VHT-SIG-B (21.3.8.3.6)."""

from __future__ import annotations

import math

import numpy as np

from tolfl.signals.wifi.bits import Bits, crc8, number_bits
from tolfl.signals.wifi.coding import TAIL, coded
from tolfl.signals.wifi.modulation import Points, modulated
from tolfl.signals.wifi.rates import LEGACY_RATES
from tolfl.signals.wifi.tones import LEGACY_DATA, LEGACY_PILOT_SIGNS, LEGACY_PILOTS, LEGACY_TONES, Layout, polarity

LEGACY_COLUMNS = 16  #: of the legacy interleaver
_ONE, _ZERO = np.ones(1, np.uint8), np.zeros(1, np.uint8)
_TAIL_BITS = np.zeros(TAIL, np.uint8)
_NOT_TO_AN_ACCESS_POINT = 63  #: group id of a frame for one device that is no access point
#: Bits of the length, and of the reserved ones behind it, in SIG-B; how often all is sent; zeros in the end.
_SIG_B = {20: (17, 3, 1, 0), 40: (19, 2, 2, 0), 80: (21, 2, 4, 1), 160: (21, 2, 4, 1)}


def l_sig_bits(rate_mbps: int, length: int) -> Bits:
    """Return the 24 bits of the legacy signal field.

    >>> "".join(map(str, l_sig_bits(36, 100)))
    '101100010011000000000000'
    """
    rate = np.array([int(bit) for bit in LEGACY_RATES[rate_mbps][0]], np.uint8)
    announced = np.concatenate([rate, _ZERO, number_bits(length, 12)])
    parity = number_bits(int(announced.sum()), 1)
    return np.concatenate([announced, parity, _TAIL_BITS])


def sig_a_bits(bandwidth_mhz: int, mcs: int, short_gi: bool, n_symbols: int) -> Bits:
    """Return the 48 bits of SIG-A of one stream, coded with the convolutional code, to one device."""
    first = [
        number_bits((20, 40, 80, 160).index(bandwidth_mhz), 2),
        _ONE,  # reserved
        _ZERO,  # no space-time block code
        number_bits(_NOT_TO_AN_ACCESS_POINT, 6),
        number_bits(0, 3),  # one stream
        number_bits(0, 9),  # partial association id
        _ZERO,  # others may doze meanwhile
        _ONE,  # reserved
    ]
    second = [
        number_bits(short_gi, 1),
        number_bits(
            short_gi and n_symbols % 10 == 9, 1
        ),  # else the duration would leave two counts of symbols possible
        number_bits(0, 2),  # convolutional code
        number_bits(mcs, 4),
        _ZERO,  # not beamformed
        _ONE,  # reserved
    ]
    announced = np.concatenate(first + second)
    return np.concatenate([announced, crc8(announced), _TAIL_BITS])


def sig_b_bits(bandwidth_mhz: int, n_bytes: int) -> Bits:
    """Return the bits of SIG-B that its check covers: the length in units of four bytes, and reserved ones."""
    n_length, n_reserved, _, _ = _SIG_B[bandwidth_mhz]
    return np.concatenate([number_bits(math.ceil(n_bytes / 4), n_length), np.ones(n_reserved, np.uint8)])


def sig_b_points(bits: Bits, shape: Layout) -> Points:
    """Return the points of SIG-B on the data tones: sent several times to fill the band."""
    _, _, n_copies, n_zeros = _SIG_B[shape.bandwidth_mhz]
    block = np.concatenate([np.tile(np.concatenate([bits, _TAIL_BITS]), n_copies), np.zeros(n_zeros, np.uint8)])
    every_segment = coded(np.tile(block, shape.n_segments))[None]
    return modulated(every_segment, 1, shape.n_columns, shape.n_segments)


def legacy_points(bits: Bits) -> Points:
    """Return the points of L-SIG or SIG-A on the 48 data tones, one row for every 24 bits, coded in one go."""
    return modulated(coded(bits).reshape(-1, 48), 1, LEGACY_COLUMNS)


def with_legacy_pilots(points: Points, first_polarity: int) -> Points:
    """Return symbols of all 52 tones: data, and pilots that start with polarity `first_polarity`."""
    values = np.empty((len(points), len(LEGACY_TONES)), np.complex64)
    values[:, np.searchsorted(LEGACY_TONES, LEGACY_DATA)] = points
    signs = polarity(first_polarity, len(points))[:, None] * LEGACY_PILOT_SIGNS
    values[:, np.searchsorted(LEGACY_TONES, LEGACY_PILOTS)] = signs
    return values
