"""Frames of 802.11ac: VHT, one stream and antenna, 20 to 160 MHz, MCS 0 to 9, convolutional code (clause 21)."""

from __future__ import annotations

import numpy as np

from tolfl.signals.wifi.bits import EXAMPLE_SEED, Bits, bits_of, crc8, scrambled
from tolfl.signals.wifi.coding import TAIL, coded_in_turn
from tolfl.signals.wifi.mac import filled
from tolfl.signals.wifi.modulation import Points, modulated
from tolfl.signals.wifi.ofdm import Samples, joined, symbol_samples, symbols
from tolfl.signals.wifi.rates import SERVICE, Extent, vht_extent, vht_legacy_length
from tolfl.signals.wifi.signal_fields import (
    l_sig_bits,
    legacy_points,
    sig_a_bits,
    sig_b_bits,
    sig_b_points,
    with_legacy_pilots,
)
from tolfl.signals.wifi.tones import Layout, layout, vht_pilots
from tolfl.signals.wifi.training import legacy_symbols, legacy_training, vht_training

_ANNOUNCED_RATE_MBPS = 6  #: in the legacy signal field, whatever the data's rate
_SIG_B_POLARITY, _DATA_POLARITY = 3, 4  #: the first three are those of L-SIG and SIG-A


def vht_frame(
    psdu: bytes,
    bandwidth_mhz: int,
    mcs: int,
    *,
    short_gi: bool = False,
    seed: int = EXAMPLE_SEED,
    oversampling: float = 1,
    window_s: float = 0.0,
) -> Samples:
    """Return a frame at `oversampling` times the bandwidth, with mean power 1.

    Parameters
    ----------
    psdu
        What is sent: what `ampdu` returns. The rest of the last symbol is filled with end-of-frame delimiters.
    bandwidth_mhz
        20, 40, 80 or 160.
    mcs
        0 (BPSK 1/2) to 9 (256-QAM 5/6); 20 MHz ends with 8.
    short_gi
        Whether data symbols have a guard interval of 0.4 us, not 0.8.
    seed
        Of the scrambler, 1 to 127; see `scrambling_sequence` for the order of its bits.
    window_s
        How long symbols fade into one another; without it they are cut.

    >>> len(vht_frame(bytes(100), 160, 1, oversampling=1.5)) / 960  # ten symbols of preamble, two of data
    12.0
    """
    shape, extent = layout(bandwidth_mhz), vht_extent(len(psdu), bandwidth_mhz, mcs)
    n_fft = symbol_samples(bandwidth_mhz, oversampling)
    length = vht_legacy_length(extent.n_symbols, short_gi)
    announced = [
        l_sig_bits(_ANNOUNCED_RATE_MBPS, length),
        sig_a_bits(bandwidth_mhz, mcs, short_gi, extent.n_symbols),
    ]
    sig_b = sig_b_bits(bandwidth_mhz, len(psdu))
    legacy = np.concatenate([legacy_points(bits) for bits in announced])
    legacy[2] *= 1j  # by this quarter turn a receiver knows that the frame is VHT
    fields = [
        *legacy_training(bandwidth_mhz, n_fft),
        legacy_symbols(with_legacy_pilots(legacy, first_polarity=0), bandwidth_mhz, n_fft),
        *vht_training(bandwidth_mhz, n_fft),
        _symbols(sig_b_points(sig_b, shape), shape, n_fft, first_polarity=_SIG_B_POLARITY),
        _symbols(_data(psdu, sig_b, shape, extent, seed), shape, n_fft, _DATA_POLARITY, 1 / 8 if short_gi else 1 / 4),
    ]
    return joined(fields, n_fft, window_s)


def data_bits(psdu: bytes, sig_b: Bits, extent: Extent, seed: int) -> Bits:
    """Return the scrambled bits of all data symbols, without the tails: service, data, padding."""
    bits = np.zeros(extent.n_symbols * extent.data_bits - TAIL * extent.n_coders, np.uint8)
    bits[8:SERVICE] = crc8(sig_b)
    data = bits_of(filled(psdu, extent.psdu_bytes))
    bits[SERVICE : SERVICE + len(data)] = data
    return scrambled(bits, seed)


def _data(psdu: bytes, sig_b: Bits, shape: Layout, extent: Extent, seed: int) -> Points:
    scheme = extent.scheme
    turn = max(scheme.bits_per_tone // 2, 1)
    bits = coded_in_turn(data_bits(psdu, sig_b, extent, seed), scheme.code_rate, extent.n_coders, turn)
    by_symbol = bits.reshape(extent.n_symbols, -1)
    return modulated(by_symbol, scheme.bits_per_tone, shape.n_columns, shape.n_segments, extent.n_coders)


def _symbols(points: Points, shape: Layout, n_fft: int, first_polarity: int, guard: float = 1 / 4) -> Samples:
    """Return symbols of data and pilots."""
    values = np.empty((len(points), len(shape.tones)), np.complex64)
    values[:, np.searchsorted(shape.tones, shape.data)] = points
    values[:, np.searchsorted(shape.tones, shape.pilots)] = vht_pilots(shape, first_polarity, len(points))
    return symbols(shape.tones, values, shape.bandwidth_mhz, n_fft, guard=guard)
