"""What a frame starts with: fields that every Wi-Fi receiver knows (17.3.3), and VHT's own training (21.3.8.3).

Training is the same in every frame, so it is made once for each bandwidth and sample rate and never written to.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tolfl.signals.wifi.modulation import Points
from tolfl.signals.wifi.ofdm import Samples, symbols
from tolfl.signals.wifi.tones import LEGACY_TONES, LEGACY_TRAINING, in_every_slot, layout, rotated
from tolfl.signals.wlan import short_training


@cache
def short_field(bandwidth_mhz: int, n_fft: int, body: float) -> Samples:
    """Return a short training field that lasts `body` symbols."""
    tones, values = short_training(bandwidth_mhz)
    unturned = values / rotated(tones, bandwidth_mhz)  # `symbols` turns them again
    return _kept(symbols(tones, unturned[None], bandwidth_mhz, n_fft, guard=0, body=body))


@cache
def legacy_training(bandwidth_mhz: int, n_fft: int) -> tuple[Samples, Samples]:
    """Return the legacy training fields, 8 us each: ten short symbols; two long ones behind a double guard interval."""
    tones = in_every_slot(LEGACY_TONES, bandwidth_mhz)
    long_values = np.tile(LEGACY_TRAINING, bandwidth_mhz // 20)[None].astype(np.complex64)
    long_field = symbols(tones, long_values, bandwidth_mhz, n_fft, guard=1 / 2, body=2)
    return short_field(bandwidth_mhz, n_fft, body=2.5), _kept(long_field)


@cache
def vht_training(bandwidth_mhz: int, n_fft: int) -> tuple[Samples, Samples]:
    """Return VHT's short and long training fields, 4 us each."""
    shape = layout(bandwidth_mhz)
    long_field = symbols(shape.tones, shape.training[None].astype(np.complex64), bandwidth_mhz, n_fft)
    return short_field(bandwidth_mhz, n_fft, body=1.25), _kept(long_field)


def legacy_symbols(values: Points, bandwidth_mhz: int, n_fft: int) -> Samples:
    """Return symbols of 52 tones, sent in every 20 MHz of the band."""
    tones = in_every_slot(LEGACY_TONES, bandwidth_mhz)
    return symbols(tones, np.tile(values, (1, bandwidth_mhz // 20)), bandwidth_mhz, n_fft)


def _kept(samples: Samples) -> Samples:
    samples.flags.writeable = False
    return samples
