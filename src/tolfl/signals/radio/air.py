"""A piece of the air: where a receiver listens, who sends around it, and how well it hears each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.radio.fingerprint import Fingerprint
from tolfl.signals.radio.propagation import Echoes, noise_dbm, path_loss_db
from tolfl.signals.streams import Use, stream

Complex = NDArray[np.complex64]

BANDWIDTHS_MHZ = (20, 40, 80, 160)


class AirSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a receiver in a region hears. All numbers are this project's choice: a flat, and a cheap receiver in it."""

    carrier_hz: float = 2.437e9  #: Wi-Fi channel 6, and in the middle of Bluetooth's band
    bandwidth_mhz: int = 20  #: 20: 802.11g frames; 40, 80, 160: 802.11ac, which in reality is at 5 GHz
    oversampling: float = 1.0
    #: The transcript of a region runs so many times as fast: a region sends a few packets a second, a recording of a
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

    def check(self) -> AirSettings:
        """Return the settings themselves, or say in one sentence what is wrong with them."""
        if self.bandwidth_mhz not in BANDWIDTHS_MHZ:
            raise SpecError(f"bandwidth {self.bandwidth_mhz} MHz; use one of {', '.join(map(str, BANDWIDTHS_MHZ))}")
        if not 1 <= self.oversampling < math.inf or self.n_paths < 1:
            raise SpecError(f"oversampling {self.oversampling:g} and {self.n_paths} paths; use at least 1 of each")
        if not 0 < self.time_lapse < math.inf:
            raise SpecError(f"time lapse {self.time_lapse:g}; use a number above 0")
        if not 0 <= self.bluetooth_load <= 1:
            raise SpecError(f"bluetooth load {self.bluetooth_load:g}; use 0 to 1")
        if not self.carrier_hz > self.rate_hz / 2:
            raise SpecError(f"carrier {self.carrier_hz:g} Hz; it must lie above half the sample rate")
        if min(self.radius_m, self.receiver_m, self.delay_spread_s, self.shadowing_db, self.place_seed) < 0:
            raise SpecError("radius, distance, delay spread, shadowing and place seed of the air; use at least 0")
        return self


@dataclass(frozen=True, slots=True)
class Emitter:
    """A device that sends, as the receiver hears it."""

    address: str
    power_dbm: float  #: at the receiver's aerial, mean over fading
    fingerprint: Fingerprint
    echoes: Echoes


@dataclass(frozen=True, slots=True)
class Emission:
    """Something on the air: who sends, what, when, and where in the band. Its samples are made when they are needed."""

    start_s: float
    duration_s: float
    emitter: Emitter
    label: str
    comment: str
    bandwidth_hz: float
    waveform: Callable[[], Complex] = field(repr=False)
    """Its samples at the receiver's rate, around frequency 0, with mean power 1."""
    number: int  #: chooses its fading; no two emissions of a recording have the same
    offset_hz: float = 0.0  #: from the receiver's carrier
    destination: str = ""
    wire_bytes: int = 0


def place_emitter(air: AirSettings, address: str, region: int, node: int, sends_dbm: float, is_router: bool) -> Emitter:
    """Return a device at its place: the router in the middle, all others around it, the receiver near the router.

    The place, the device's fingerprint and its echoes depend on the place seed, the region and the node's number only.
    """
    rng = stream(air.place_seed, Use.PLACE, region=region, node=node)
    radius_m = 0.0 if is_router else air.radius_m * math.sqrt(rng.uniform())
    angle = rng.uniform(0.0, 2 * math.pi)
    distance_m = math.hypot(radius_m * math.cos(angle) - air.receiver_m, radius_m * math.sin(angle))
    loss_db = float(path_loss_db(distance_m, air.carrier_hz, air.path_loss_exponent))
    loss_db += air.shadowing_db * rng.standard_normal()
    fingerprint = Fingerprint.draw(rng)
    echoes = Echoes.draw(distance_m, air.delay_spread_s, air.n_paths, rng)
    return Emitter(address, sends_dbm - loss_db, fingerprint, echoes)
