"""From an aerial to another one: path loss by distance, echoes, fading, delay, carrier offset, and noise.

Lengths are metres, powers dBm. Everything random comes from a generator that is handed in. `channel.py` is the older
and simpler channel of the Comms-ML readings; this one is for whole recordings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Complex = NDArray[np.complex64]
Float = NDArray[np.float64]

LIGHT_M_PER_S = 299_792_458.0
_THERMAL_DBM_PER_HZ = -173.975  #: Boltzmann's constant times 290 K
_KERNEL = 8  #: samples on each side of a path's sinc; below -50 dB up to 0.85 of the band's edge


def path_loss_db(
    distance_m: ArrayLike, carrier_hz: float, exponent: float = 3.0, reference_m: float = 1.0
) -> NDArray[np.float64]:
    """Return the loss by distance: free space up to `reference_m`, from there `exponent` (log-distance model).

    Two in free space, about three in a house. Nearer than `reference_m` the loss does not fall any more: the aerials
    would touch.

    >>> path_loss_db([1.0, 10.0], 2.437e9).round(1).tolist()
    [40.2, 70.2]
    """
    reference_db = 20 * math.log10(4 * math.pi * reference_m * carrier_hz / LIGHT_M_PER_S)
    decades = np.log10(np.maximum(np.asarray(distance_m, np.float64) / reference_m, 1.0))
    return np.asarray(reference_db + 10 * exponent * decades)


def noise_dbm(bandwidth_hz: float, figure_db: float = 6.0) -> float:
    """Return the noise power of a receiver.

    >>> round(noise_dbm(20e6), 1)
    -95.0
    """
    return _THERMAL_DBM_PER_HZ + 10 * math.log10(bandwidth_hz) + figure_db


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class Echoes:
    """The paths between two places: when each arrives, and how strong it is; together they have power 1."""

    delay_s: Float
    gain: NDArray[np.complex128]

    @classmethod
    def draw(cls, distance_m: float, spread_s: float, n_paths: int, rng: np.random.Generator) -> Echoes:
        """Return the direct path and later ones, whose power falls exponentially with their delay."""
        detour_s = np.concatenate([[0.0], np.sort(rng.exponential(spread_s, n_paths - 1))])
        power = np.exp(-detour_s / spread_s) if spread_s > 0 else np.ones(n_paths)
        phase = rng.uniform(0.0, 2 * np.pi, n_paths)
        gain = np.sqrt(power / power.sum()) * np.exp(1j * phase)
        return cls(distance_m / LIGHT_M_PER_S + detour_s, gain)

    def faded(self, rician_k_db: float, rng: np.random.Generator) -> Echoes:
        """Return the paths at another time: a part that stays and a part that changes, both of the same profile.

        The Rician factor is the power that stays over the power that changes; minus infinity is Rayleigh fading, plus
        infinity none. The mean power is 1 either way.
        """
        return Echoes(
            self.delay_s, self.gain * _stays(rician_k_db) + np.abs(self.gain) * self._changes(rician_k_db, rng)
        )

    def _changes(self, rician_k_db: float, rng: np.random.Generator) -> NDArray[np.complex128]:
        parts = rng.standard_normal((2, len(self.gain)))
        return np.asarray(math.sqrt((1 - _stays(rician_k_db) ** 2) / 2) * (parts[0] + 1j * parts[1]))

    def response(self, rate_hz: float) -> tuple[Complex, int]:
        """Return the impulse response at a sample rate, and how many of its samples lie before time 0.

        A path between two samples is a sinc under a Hann window: right for a signal that leaves the outermost sixth of
        the band free, as Wi-Fi and Bluetooth do.
        """
        at = self.delay_s * rate_hz
        n_taps = int(np.ceil(at.max())) + 2 * _KERNEL + 1
        since = np.arange(n_taps)[None, :] - _KERNEL - at[:, None]
        window = np.where(np.abs(since) < _KERNEL + 1, np.cos(np.pi / 2 * since / (_KERNEL + 1)) ** 2, 0.0)
        return (self.gain @ (np.sinc(since) * window)).astype(np.complex64), _KERNEL


def turned(samples: Complex, offset_hz: float, rate_hz: float, start: int = 0) -> Complex:
    """Return samples moved in frequency; `start` is the number of the first one on the receiver's time line."""
    if offset_hz == 0:
        return samples
    # The phase in whole turns first: a float32 has no digits left for it after a second.
    turns = (start + np.arange(len(samples), dtype=np.float64)) * (offset_hz / rate_hz)
    return np.asarray(samples * np.exp(2j * np.pi * (turns % 1.0)).astype(np.complex64))


def noise(rng: np.random.Generator, n_samples: int, power: float) -> Complex:
    """Return circular complex Gaussian noise."""
    parts = rng.standard_normal(2 * n_samples, dtype=np.float32)
    parts *= np.float32(math.sqrt(power / 2))
    return parts.view(np.complex64)


def _stays(rician_k_db: float) -> float:
    """Return the amplitude of what does not change; its square and that of the rest add up to 1."""
    if rician_k_db == math.inf:
        return 1.0
    k = 10 ** (rician_k_db / 10)
    return math.sqrt(k / (k + 1))
