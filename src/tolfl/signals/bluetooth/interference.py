"""A Bluetooth emission in a Wi-Fi receiver's band: GFSK, 1 Mbit/s, BT 0.5 (Bluetooth Core, vol. 2 part A, 3.1).

Bluetooth lives at 2.4 GHz and frames 160 MHz wide at 5 GHz: the mix is an abstraction at baseband, as in the paper. One
hundred readings at 240 MS/s are 0.42 microseconds, less than a bit, so what shows is a nearly constant frequency.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.bluetooth.gfsk import BIT_RATE_HZ, MODULATION_INDEX, NEIGHBOURS, pulse

Complex = NDArray[np.complex128]


def emissions(
    rng: np.random.Generator,
    shape: tuple[int, int],
    rate_hz: float,
    band_hz: float,
    power_db: float,
) -> Complex:
    """Return emissions, shape `(n_emissions, n_readings)`: each with its own bits, place in the band and phase."""
    n_emissions, n_readings = shape
    span = math.ceil(n_readings * BIT_RATE_HZ / rate_hz) + 1 + 2 * NEIGHBOURS
    bits = rng.choice(np.array([-1.0, 1.0]), (n_emissions, span))
    since = rng.uniform(0.0, 1.0, (n_emissions, 1))  # of the first bit, when the readings start
    carrier_hz = rng.uniform(-0.5, 0.5, (n_emissions, 1)) * (band_hz - BIT_RATE_HZ)
    phase = rng.uniform(0.0, 2 * np.pi, (n_emissions, 1))
    at = since + np.arange(n_readings) * (BIT_RATE_HZ / rate_hz)
    swing = np.zeros(shape)
    for bit in range(span):
        swing += bits[:, bit : bit + 1] * pulse(at - (bit - NEIGHBOURS + 0.5))
    deviation_hz = MODULATION_INDEX / 2 * BIT_RATE_HZ * swing
    turns = np.cumsum(carrier_hz + deviation_hz, axis=1) / rate_hz
    return np.asarray(10 ** (power_db / 20) * np.exp(1j * (2 * np.pi * turns + phase)))
