"""What a transmitter does to every signal it sends: its oscillator, its mixer and its amplifier, all a little off.

No two devices are off in the same way, and all of a device's signals are: a fingerprint.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Complex = NDArray[np.complex64]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The imperfections of one transmitter. The default has none.

    >>> Fingerprint().distorted(np.array([1 + 2j], np.complex64)).tolist()
    [(1+2j)]
    """

    carrier_ppm: float = 0.0  #: how far the oscillator is off, in millionths; the standards allow 20
    gain_imbalance_db: float = 0.0  #: of the mixer's Q branch over its I branch
    phase_imbalance_deg: float = 0.0  #: how far the two branches are from a right angle
    saturation_db: float = math.inf  #: what the amplifier can give at most, over the mean power of the signal
    smoothness: float = 2.0  #: of the amplifier's knee (Rapp's p)

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Fingerprint:
        """Return the imperfections of a cheap device: what these lie between is a choice of this project."""
        return cls(
            carrier_ppm=rng.uniform(-10.0, 10.0),
            gain_imbalance_db=rng.normal(0.0, 0.3),
            phase_imbalance_deg=rng.normal(0.0, 1.5),
            saturation_db=rng.uniform(5.0, 9.0),
            smoothness=rng.uniform(1.5, 3.0),
        )

    def distorted(self, samples: Complex) -> Complex:
        """Return samples of mean power 1 as they leave the aerial; the carrier's offset is the receiver's business."""
        return self._amplified(self._mixed(samples))

    def _mixed(self, samples: Complex) -> Complex:
        """Mix with branches of unequal gain and angle: a mirror image of the signal appears."""
        branch = 10 ** (self.gain_imbalance_db / 20) * cmath.exp(1j * math.radians(self.phase_imbalance_deg))
        straight, mirrored = (1 + branch) / 2, (1 - branch) / 2
        if not mirrored:
            return samples
        return np.asarray(np.complex64(straight) * samples + np.complex64(mirrored) * samples.conj())

    def _amplified(self, samples: Complex) -> Complex:
        """Saturate the amplitude and keep the phase (Rapp, 1991)."""
        if self.saturation_db == math.inf:
            return samples
        ratio = np.abs(samples) * np.float32(10 ** (-self.saturation_db / 20))
        knee = (1 + ratio ** np.float32(2 * self.smoothness)) ** np.float32(-1 / (2 * self.smoothness))
        return np.asarray(samples * knee)
