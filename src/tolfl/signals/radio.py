"""A simulated radio channel: transmitters and their imperfections, path loss, multipath, fading and noise.

Lengths are metres, powers dBm. Everything random comes from a generator that is handed in. `comms_ml_generator` has the
older and simpler channel of the Comms-ML readings; this one is for whole recordings.
"""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.traffic import Use, stream
from tolfl.signals.wifi import check_bandwidth

Complex = NDArray[np.complex64]
Float = NDArray[np.float64]
LIGHT_M_PER_S = 299_792_458.0
_THERMAL_DBM_PER_HZ = -173.975  #: Boltzmann's constant times 290 K
_KERNEL = 8  #: samples on each side of a path's sinc; below -50 dB up to 0.85 of the band's edge


def path_loss_db(distance_m: ArrayLike, carrier_hz: float, exponent: float = 3.0) -> NDArray[np.float64]:
    """Return the loss by distance: free space up to a metre, from there `exponent` (log-distance model).

    Two in free space, about three in a house. Nearer than a metre the loss does not fall any more: the antennas would
    touch.

    >>> path_loss_db([1.0, 10.0], 2.437e9).round(1).tolist()
    [40.2, 70.2]
    """
    reference_db = 20 * math.log10(4 * math.pi * carrier_hz / LIGHT_M_PER_S)
    decades = np.log10(np.maximum(np.asarray(distance_m, np.float64), 1.0))
    return np.asarray(reference_db + 10 * exponent * decades)


def noise_dbm(bandwidth_hz: float, figure_db: float = 6.0) -> float:
    """Return the noise power of a receiver.

    >>> round(noise_dbm(20e6), 1)
    -95.0
    """
    return _THERMAL_DBM_PER_HZ + 10 * math.log10(bandwidth_hz) + figure_db


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class Multipath:
    """The paths between two places: when each arrives, and how strong it is; together they have power 1."""

    delay_s: Float
    gain: NDArray[np.complex128]

    @classmethod
    def draw(cls, distance_m: float, spread_s: float, n_paths: int, rng: np.random.Generator) -> Multipath:
        """Return the direct path and later ones, whose power falls exponentially with their delay."""
        detour_s = np.concatenate([[0.0], np.sort(rng.exponential(spread_s, n_paths - 1))])
        power = np.exp(-detour_s / spread_s) if spread_s > 0 else np.ones(n_paths)
        phase = rng.uniform(0.0, 2 * np.pi, n_paths)
        gain = np.sqrt(power / power.sum()) * np.exp(1j * phase)
        return cls(distance_m / LIGHT_M_PER_S + detour_s, gain)

    def fade(self, rician_k_db: float, rng: np.random.Generator) -> Multipath:
        """Return the paths at another time: a part that stays and a part that changes, both of the same profile.

        The Rician factor is the power that stays over the power that changes; minus infinity is Rayleigh fading, plus
        infinity none. The mean power is 1 either way.
        """
        k = 10 ** (rician_k_db / 10)
        stays = 1.0 if rician_k_db == math.inf else math.sqrt(k / (k + 1))
        parts = rng.standard_normal((2, len(self.gain)))
        changes = math.sqrt((1 - stays**2) / 2) * (parts[0] + 1j * parts[1])
        return Multipath(self.delay_s, self.gain * stays + np.abs(self.gain) * changes)

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


def shift_frequency(samples: Complex, offset_hz: float, rate_hz: float, start: int = 0) -> Complex:
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


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The imperfections of one transmitter. The default has none.

    >>> Fingerprint().distort(np.array([1 + 2j], np.complex64)).tolist()
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

    def distort(self, samples: Complex) -> Complex:
        """Return samples of mean power 1 as they leave the antenna; the carrier's offset is the receiver's business.

        A mixer with branches of unequal gain and angle adds a mirror image of the signal. The amplifier saturates the
        amplitude and keeps the phase (Rapp, 1991).
        """
        branch = 10 ** (self.gain_imbalance_db / 20) * cmath.exp(1j * math.radians(self.phase_imbalance_deg))
        straight, mirrored = np.complex64((1 + branch) / 2), np.complex64((1 - branch) / 2)
        samples = np.asarray(straight * samples + mirrored * samples.conj())
        ratio = np.abs(samples) * np.float32(10 ** (-self.saturation_db / 20))
        knee = (1 + ratio ** np.float32(2 * self.smoothness)) ** np.float32(-1 / (2 * self.smoothness))
        return np.asarray(samples * knee)


class RadioSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a receiver in a region picks up. All numbers are a choice of this project: a flat, a cheap receiver."""

    carrier_hz: float = 2.437e9  #: Wi-Fi channel 6, and in the middle of Bluetooth's band
    bandwidth_mhz: int = 20  #: 20: 802.11g frames; 40, 80, 160: 802.11ac, which in reality is at 5 GHz
    oversampling: float = 1.0
    #: The traffic of a region runs so many times as fast: a region sends a few packets a second, a recording of a
    #: second is large already.
    time_lapse: float = 200.0
    place_seed: int = 9  #: where everybody stands and what their devices are like; no other seed changes it
    radius_m: float = 15.0  #: devices stand in a circle of this size around the router
    receiver_m: float = 4.0  #: how far the receiver is from the router
    path_loss_exponent: float = 3.0
    shadowing_db: float = 3.0  #: standard deviation of what walls add, drawn once per device
    delay_spread_s: float = 40e-9
    n_paths: int = 4
    rician_k_db: float = 10.0
    noise_figure_db: float = 6.0
    full_scale_dbm: float = -20.0  #: the power that is amplitude 1 in a recording; the gain is not controlled
    wifi_dbm: float = 15.0
    bluetooth_dbm: float = 0.0
    bluetooth_load: float = 0.6  #: share of the intruder's slots in which something is sent

    @property
    def rate_hz(self) -> float:
        """Samples per second."""
        return self.bandwidth_mhz * 1e6 * self.oversampling

    @property
    def noise_power(self) -> float:
        """Power of the noise in a recording."""
        return float(10 ** ((noise_dbm(self.rate_hz, self.noise_figure_db) - self.full_scale_dbm) / 10))

    def check(self) -> RadioSettings:
        """Return the settings themselves, or raise SpecError."""
        check_bandwidth(self.bandwidth_mhz)
        if not 1 <= self.oversampling < math.inf or self.n_paths < 1:
            raise SpecError(f"oversampling {self.oversampling:g} and {self.n_paths} paths; use at least 1 of each")
        if not 0 < self.time_lapse < math.inf:
            raise SpecError(f"time lapse {self.time_lapse:g}; use a number above 0")
        if not 0 <= self.bluetooth_load <= 1:
            raise SpecError(f"bluetooth load {self.bluetooth_load:g}; use 0 to 1")
        if not self.carrier_hz > self.rate_hz / 2:
            raise SpecError(f"carrier {self.carrier_hz:g} Hz; it must lie above half the sample rate")
        if min(self.radius_m, self.receiver_m, self.delay_spread_s, self.shadowing_db, self.place_seed) < 0:
            raise SpecError("radius, distance, delay spread, shadowing and place seed of the radio; use at least 0")
        return self


@dataclass(frozen=True, slots=True)
class Transmitter:
    """A device that sends, as it is received."""

    address: str
    power_dbm: float  #: at the receiver's antenna, mean over fading
    fingerprint: Fingerprint
    multipath: Multipath


def place_transmitter(
    radio: RadioSettings, address: str, region: int, node: int, sends_dbm: float, is_router: bool
) -> Transmitter:
    """Return a device at its place: the router in the middle, all others around it, the receiver near the router.

    Place, fingerprint and multipath depend on the place seed, the region and the node's number only.
    """
    rng = stream(radio.place_seed, Use.PLACE, region=region, node=node)
    radius_m = 0.0 if is_router else radio.radius_m * math.sqrt(rng.uniform())
    angle = rng.uniform(0.0, 2 * math.pi)
    distance_m = math.hypot(radius_m * math.cos(angle) - radio.receiver_m, radius_m * math.sin(angle))
    loss_db = float(path_loss_db(distance_m, radio.carrier_hz, radio.path_loss_exponent))
    loss_db += radio.shadowing_db * rng.standard_normal()
    fingerprint = Fingerprint.draw(rng)
    multipath = Multipath.draw(distance_m, radio.delay_spread_s, radio.n_paths, rng)
    return Transmitter(address, sends_dbm - loss_db, fingerprint, multipath)
