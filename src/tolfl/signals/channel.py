"""What a receiver sees of a frame: a few echoes, fading, a gain, noise, and a start that is not quite right."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.core.spec import ChannelSettings

Complex = NDArray[np.complex128]


def draw_taps(settings: ChannelSettings, rng: np.random.Generator) -> Complex:
    """Return the echoes of a place: the settings' powers, random phases, total power 1."""
    amplitudes = 10 ** (np.array(settings.powers_db) / 20)
    phases = rng.uniform(0.0, 2 * np.pi, len(amplitudes))
    return np.asarray(amplitudes / np.linalg.norm(amplitudes) * np.exp(1j * phases))


def mixed_taps(one: Complex, other: Complex, share_of_other: float) -> Complex:
    """Return echoes between two places, total power 1."""
    taps = (1 - share_of_other) * one + share_of_other * other
    return np.asarray(taps / np.linalg.norm(taps))


def receive(
    frame: Complex,
    taps: Complex,
    settings: ChannelSettings,
    rng: np.random.Generator,
    shape: tuple[int, int],
    interference: Complex | None = None,
) -> Complex:
    """Return the first readings of many frames, shape `(n_frames, n_readings)`.

    Parameters
    ----------
    frame
        What is sent, from its first sample on, with power 1.
    taps
        Echoes that stay; every frame adds Rayleigh fading of the same power profile to them.
    shape
        How many frames, and how many readings of each.
    interference
        Something else on the air, added as it is, of that shape.
    """
    n_frames, n_readings = shape
    k = 10 ** (settings.rician_k_db / 10)
    changing = np.abs(taps) * _noise(rng, (n_frames, len(taps)))
    echoes = math.sqrt(k / (k + 1)) * taps + math.sqrt(1 / (k + 1)) * changing
    echoes *= 10 ** (rng.normal(0.0, settings.gain_db, (n_frames, 1)) / 20)
    readings = 10 ** (-settings.snr_db / 20) * _noise(rng, shape)
    most = settings.timing_offset_samples
    offsets = rng.integers(-most, most + 1, n_frames)
    for offset in np.unique(offsets):
        which = offsets == offset
        readings[which] += echoes[which] @ _delayed(frame, settings.delays_samples, int(offset), n_readings)
    if interference is not None:
        readings += interference
    return readings


def _noise(rng: np.random.Generator, shape: tuple[int, int]) -> Complex:
    """Return circular complex Gaussian noise of power 1."""
    parts = rng.standard_normal((*shape, 2)) * math.sqrt(0.5)
    return np.asarray(parts[..., 0] + 1j * parts[..., 1])


def _delayed(frame: Complex, delays: tuple[int, ...], offset: int, n_readings: int) -> Complex:
    """Return the frame once per delay, from sample `offset` on; before its first sample there is silence."""
    index = np.arange(n_readings) + offset - np.array(delays)[:, None]
    if index.max() >= len(frame):
        raise SpecError(f"readings up to sample {index.max()} of a field of {len(frame)}; use fewer readings")
    return np.where(index >= 0, frame[np.maximum(index, 0)], 0)
