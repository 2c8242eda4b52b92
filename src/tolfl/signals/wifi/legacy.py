"""Frames of 802.11a and 802.11g: OFDM in 20 MHz, 6 to 54 Mb/s (clause 17)."""

from __future__ import annotations

import numpy as np

from tolfl.signals.wifi.bits import EXAMPLE_SEED, Bits, bits_of, scrambled
from tolfl.signals.wifi.coding import TAIL, coded
from tolfl.signals.wifi.modulation import modulated
from tolfl.signals.wifi.ofdm import Samples, joined, symbol_samples
from tolfl.signals.wifi.rates import SERVICE, Extent, legacy_extent
from tolfl.signals.wifi.signal_fields import LEGACY_COLUMNS, l_sig_bits, legacy_points, with_legacy_pilots
from tolfl.signals.wifi.training import legacy_symbols, legacy_training

_BANDWIDTH_MHZ = 20


def legacy_frame(
    psdu: bytes, rate_mbps: int, *, seed: int = EXAMPLE_SEED, oversampling: float = 1, window_s: float = 0.0
) -> Samples:
    """Return a frame at `oversampling` times 20 MS/s, with mean power 1.

    Parameters
    ----------
    psdu
        What is sent, its check sequence included: what `data_mpdu` returns.
    rate_mbps
        6, 9, 12, 18, 24, 36, 48 or 54.
    seed
        Of the scrambler, 1 to 127; see `scrambling_sequence` for the order of its bits.
    window_s
        How long symbols fade into one another: the standard's own example has 100 ns. Without it they are cut.

    >>> len(legacy_frame(bytes(100), 36))  # 20 us, and six symbols of 4 us
    880
    """
    extent = legacy_extent(len(psdu), rate_mbps)
    n_fft = symbol_samples(_BANDWIDTH_MHZ, oversampling)
    bits = coded(data_bits(psdu, extent, seed), extent.scheme.code_rate).reshape(extent.n_symbols, -1)
    data = modulated(bits, extent.scheme.bits_per_tone, LEGACY_COLUMNS)
    signal = legacy_points(l_sig_bits(rate_mbps, len(psdu)))
    values = with_legacy_pilots(np.concatenate([signal, data]), first_polarity=0)
    fields = [*legacy_training(_BANDWIDTH_MHZ, n_fft), legacy_symbols(values, _BANDWIDTH_MHZ, n_fft)]
    return joined(fields, n_fft, window_s)


def data_bits(psdu: bytes, extent: Extent, seed: int) -> Bits:
    """Return the scrambled bits of all data symbols: service, data, tail and padding, in that order."""
    bits = np.zeros(extent.n_symbols * extent.data_bits, np.uint8)
    end = SERVICE + 8 * len(psdu)
    bits[SERVICE:end] = bits_of(psdu)
    bits = scrambled(bits, seed)
    bits[end : end + TAIL] = 0  # the coder must end where it began
    return bits
