"""A region's traffic as a recording: what a receiver near the router hears, with the truth in annotations."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.network import Region
from tolfl.signals.radio.air import AirSettings, Emission
from tolfl.signals.radio.intruder import intruder_emissions
from tolfl.signals.radio.mixture import Draws, mixture, truth_of
from tolfl.signals.radio.wifi_emissions import wifi_emissions
from tolfl.signals.recordings.metadata import EXTENSION
from tolfl.signals.recordings.writing import WrittenType, write_recording
from tolfl.signals.regions import default_regions
from tolfl.signals.streams import Scenario

Complex = NDArray[np.complex64]

_MOST_BYTES = 64e9  #: more is a slip of the pen
#: Which recordings are made of each region: without and with an intruder, who comes after half of the time.
KINDS = {"typical": Scenario.TYPICAL, "bluetooth": Scenario.BLUETOOTH}


class Scene(msgspec.Struct, frozen=True):
    """What is recorded: a region for some time, with traffic of its own in every scenario."""

    region: Region
    seconds: float = 0.5
    seed: int = 0  #: of traffic, fading and noise; where everybody stands is the air's business
    scenario: Scenario = Scenario.TYPICAL
    intruder_from_s: float | None = None  #: when a pair of Bluetooth devices starts to talk; None: never
    air: AirSettings = AirSettings()

    def check(self) -> Scene:
        """Return the scene itself, or say in one sentence what is wrong with it."""
        self.air.check()
        if not 1 <= self.seconds * self.air.rate_hz <= _MOST_BYTES / 8:
            most = _MOST_BYTES / 8 / self.air.rate_hz
            raise SpecError(f"a recording of {self.seconds:g} s; use a number above 0 and at most {most:.0f}")
        if self.intruder_from_s is not None and not 0 <= self.intruder_from_s < self.seconds:
            raise SpecError(
                f"an intruder after {self.intruder_from_s:g} s in a recording of {self.seconds:g} s; use a time in it"
            )
        return self

    def emissions(self) -> Iterator[Emission]:
        """Yield everything on the air, in the order of starts."""
        typical = wifi_emissions(self.region, self.air, self.seconds, self.seed, self.scenario)
        if self.intruder_from_s is None:
            return typical
        strange = intruder_emissions(self.air, self.intruder_from_s, self.seconds, self.seed, self.region.number)
        return heapq.merge(typical, strange, key=lambda emission: emission.start_s)

    def samples(self) -> Iterator[Complex]:
        """Yield what the receiver hears, a block at a time."""
        draws = Draws(self.seed, self.region.number, self.scenario)
        return mixture(self.emissions(), self.air, self.seconds, draws)


def write_scene(path: Path, scene: Scene, datatype: WrittenType = "ci16_le") -> Path:
    """Write what a receiver hears, with every emission annotated, and return the path of the metadata."""
    scene.check()
    region, air = scene.region, scene.air
    return write_recording(
        path,
        scene.samples(),
        rate_hz=air.rate_hz,
        frequency_hz=air.carrier_hz,
        annotations=truth_of(scene.emissions(), air),
        datatype=datatype,
        about={
            "core:description": f"Simulated: region {region.number} of Comms-ML, seed {scene.seed}.",
            "core:hw": f"None: simulated. Full scale is {air.full_scale_dbm:g} dBm.",
            f"{EXTENSION}:router": region.addresses[region.router],
            f"{EXTENSION}:time_lapse": air.time_lapse,
        },
    )


def scenes(
    seconds: float, seed: int, regions: Sequence[Region] | None = None, air: AirSettings | None = None
) -> dict[str, list[Scene]]:
    """Return the scenes of regions (default: 1 to 3) by kind: the same places, but every scene has its own traffic.

    Nobody is strange in the typical ones; in the others the intruder comes after half of the time.
    """
    return {
        kind: [
            Scene(region, seconds, seed, scenario, seconds / 2 if kind == "bluetooth" else None, air or AirSettings())
            for region in regions or default_regions()[:3]
        ]
        for kind, scenario in KINDS.items()
    }
