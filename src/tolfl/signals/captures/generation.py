"""The traffic that Comms-ML samples are taken from, as captures: one per region and kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tolfl.core.errors import RunDirectoryError
from tolfl.core.spec import CommsMLSettings
from tolfl.signals.captures.pcap_writing import FILE_BYTES, Written, write_pcap
from tolfl.signals.comms_ml_generator import SEEDS_IN_FILES, CommsMLSamples
from tolfl.signals.draws import Scenario
from tolfl.signals.regions import (
    PUBLISHED_DURATION_S,
    PUBLISHED_SEEDS,
    Region,
    default_regions,
    published_regions,
    simulate,
)

_SCENARIOS = {"rate": Scenario.RATE, "bluetooth": Scenario.BLUETOOTH}


class CapturePart(NamedTuple):
    """The traffic of one region and kind."""

    kind: str
    region: Region
    seed: int
    scenario: Scenario
    duration_s: float


def parts_of(samples: CommsMLSamples, seed: int, settings: CommsMLSettings) -> list[CapturePart]:
    """Return what samples of a seed were taken from, each part until its last window ends."""
    if settings.variant == "published":
        seeds = [own + SEEDS_IN_FILES * seed for own in PUBLISHED_SEEDS]
        return [
            CapturePart(
                "region-4" if region.number == 4 else "typical", region, own, Scenario.TYPICAL, PUBLISHED_DURATION_S
            )
            for region, own in zip(published_regions(), seeds, strict=True)
        ]
    parts = []
    regions = {region.number: region for region in default_regions()}
    pairs = zip(samples.kind.tolist(), samples.region.tolist(), strict=True)
    for kind, number in dict.fromkeys(pairs):
        is_own = (samples.kind == kind) & (samples.region == number)
        until_s = float(samples.start_s[is_own].max()) + settings.window_s
        region = regions[number].with_rate(settings.rate_factor) if kind == "rate" else regions[number]
        parts.append(CapturePart(kind, region, seed, _SCENARIOS.get(kind, Scenario.TYPICAL), until_s))
    return parts


def write_parts(folder: Path, parts: list[CapturePart], file_bytes: int = FILE_BYTES) -> Iterator[Written]:
    """Write each part as `folder/kind/region-N.pcap`, and yield what was written.

    A folder of a kind is what a fleet trains on or is scored with: one capture per device, the devices by region.
    """
    for part in parts:
        check_new(folder / part.kind)
    for part in parts:
        packets = simulate(part.region, part.duration_s, part.seed, part.scenario)
        yield write_pcap(folder / part.kind, f"region-{part.region.number}", packets, part.region, file_bytes)


def check_new(folder: Path) -> None:
    """Refuse a folder that has captures: old and new ones would be taken for one another's continuation."""
    if folder.is_dir() and any(folder.glob("*.pcap")):
        raise RunDirectoryError(folder, "has captures already; choose another --out, or remove them")
