"""A Bluetooth emission in a Wi-Fi receiver's band: GFSK, 1 Mbit/s, BT 0.5 (Bluetooth Core, vol. 2 part A, 3.1).

Bluetooth lives at 2.4 GHz and frames 160 MHz wide at 5 GHz: the mix is an abstraction at baseband, as in the paper. One
hundred readings at 240 MS/s are 0.42 microseconds, less than a bit, so what shows is a nearly constant frequency.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

Complex = NDArray[np.complex128]

BIT_RATE_HZ = 1e6
MODULATION_INDEX = 0.32  #: basic rate: 0.28 to 0.35
#: Standard deviation of the Gaussian filter in bits, for a bandwidth-time product of 0.5.
_FILTER_BITS = math.sqrt(math.log(2)) / (2 * math.pi * 0.5)
_NEIGHBOURS = 2  #: bits on each side that reach into a bit; the filter has died away after 1.5


def emissions(
    rng: np.random.Generator,
    shape: tuple[int, int],
    rate_hz: float,
    band_hz: float,
    power_db: float,
) -> Complex:
    """Return emissions, shape `(n_emissions, n_readings)`: each with its own bits, place in the band and phase."""
    n_emissions, n_readings = shape
    span = math.ceil(n_readings * BIT_RATE_HZ / rate_hz) + 1 + 2 * _NEIGHBOURS
    bits = rng.choice(np.array([-1.0, 1.0]), (n_emissions, span))
    since = rng.uniform(0.0, 1.0, (n_emissions, 1))  # of the first bit, when the readings start
    carrier_hz = rng.uniform(-0.5, 0.5, (n_emissions, 1)) * (band_hz - BIT_RATE_HZ)
    phase = rng.uniform(0.0, 2 * np.pi, (n_emissions, 1))
    at = since + np.arange(n_readings) * (BIT_RATE_HZ / rate_hz)
    swing = np.zeros(shape)
    for bit in range(span):
        swing += bits[:, bit : bit + 1] * _pulse(at - (bit - _NEIGHBOURS + 0.5))
    deviation_hz = MODULATION_INDEX / 2 * BIT_RATE_HZ * swing
    turns = np.cumsum(carrier_hz + deviation_hz, axis=1) / rate_hz
    return np.asarray(10 ** (power_db / 20) * np.exp(1j * (2 * np.pi * turns + phase)))


def _pulse(bits_from_centre: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a bit's frequency pulse: a rectangle of one bit behind the Gaussian filter."""
    scale = 1 / (_FILTER_BITS * math.sqrt(2))
    return np.asarray((erf((bits_from_centre + 0.5) * scale) - erf((bits_from_centre - 0.5) * scale)) / 2)
