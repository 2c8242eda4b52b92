"""The Comms-ML data set, generated: twelve statistics of a second of traffic, and first readings of the router's frame.

The original (github.com/mkatzef/comms-ml) needs MATLAB for its waveforms. As published, the readings are the same
numbers in every sample, and region 4 looks like the others. The default here is a benchmark with stated strengths:
typical windows of regions 1 to 3, and three kinds of anomaly. `variant="published"` is what the published files say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.spec import ChannelSettings, CommsMLSettings, checked
from tolfl.signals.bluetooth import gfsk_glimpses
from tolfl.signals.draws import Scenario, Use, stream
from tolfl.signals.packets import STATISTICS, WindowGrid, Windows, window_statistics, windows_of
from tolfl.signals.pcap_writer import Written, write_pcap
from tolfl.signals.regions import (
    PUBLISHED_DURATION_S,
    PUBLISHED_SEEDS,
    Region,
    default_regions,
    published_regions,
    simulate,
)
from tolfl.signals.wifi import l_stf, sample_rate_hz

KINDS = ("typical", "rate", "bluetooth", "region-4")  #: and `rare`, where it is asked for
_SHARE_KEPT = 0.19  #: of the windows have a router packet: 0.195 measured; only a guess of how long to simulate
SEEDS_IN_FILES = 2048  #: the published seeds were drawn from 1 to 2048
Complex = NDArray[np.complex128]


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class CommsMLSamples:
    """Samples, unscaled, with the truth beside them."""

    features: NDArray[np.float32]
    """Twelve statistics and the readings, shape `(n_samples, 12 + n_readings)`."""
    region: NDArray[np.int8]
    """1 to 4."""
    start_s: NDArray[np.float64]
    """When the window starts in its own simulation; time 0 is Monday 00:00."""
    kind: NDArray[np.str_]
    """One of `KINDS`, or `rare`."""
    feature_names: tuple[str, ...]

    @property
    def is_anomalous(self) -> NDArray[np.bool_]:
        """Which samples are not typical."""
        return np.asarray(self.kind != "typical")


def comms_ml(seed: int = 0, settings: CommsMLSettings | None = None) -> CommsMLSamples:
    """Return the samples of a seed: regions 1 to 3 typical, then the anomalies, each kind as many as a region has.

    >>> samples = comms_ml(0, CommsMLSettings(windows_per_region=3))
    >>> samples.features.shape, [int((samples.kind == kind).sum()) for kind in KINDS]
    ((18, 112), [9, 3, 3, 3])
    """
    settings = checked(settings or CommsMLSettings())
    return _published(seed, settings) if settings.variant == "published" else _default(seed, settings)


def _default(seed: int, settings: CommsMLSettings) -> CommsMLSamples:
    regions = default_regions()
    n_typical = settings.windows_per_region
    # A third of an anomaly that three regions share; the first regions take what cannot be divided.
    shares = [n_typical // 3 + (index < n_typical % 3) for index in range(3)]
    typical, other = regions[:3], regions[3]
    parts = [_part(seed, settings, region, "typical", Scenario.TYPICAL, n_typical) for region in typical]
    for region, share in zip(typical, shares, strict=True):
        busy = region.with_rate(settings.rate_factor)
        parts.append(_part(seed, settings, busy, "rate", Scenario.RATE, share))
    for region, share in zip(typical, shares, strict=True):
        parts.append(_part(seed, settings, region, "bluetooth", Scenario.BLUETOOTH, share))
    parts.append(_part(seed, settings, other, "region-4", Scenario.TYPICAL, n_typical))
    if settings.rare_factor:
        for region, share in zip(typical, shares, strict=True):
            quiet = region.with_rate(settings.rare_factor)
            parts.append(_part(seed, settings, quiet, "rare", Scenario.RARE, share))
    return _joined(parts)


def _published(seed: int, settings: CommsMLSettings) -> CommsMLSamples:
    """Seven days of the published regions with their own seeds; another seed than 0 moves all of them."""
    parts = []
    readings = np.abs(_frame(settings)[: settings.n_readings])
    for region, region_seed in zip(published_regions(), PUBLISHED_SEEDS, strict=True):
        duration_s = PUBLISHED_DURATION_S
        windows = _kept_windows(region, region_seed + SEEDS_IN_FILES * seed, settings, Scenario.TYPICAL, duration_s)
        same = np.broadcast_to(readings, (len(windows), len(readings)))
        parts.append(_samples(windows, same, region, "region-4" if region.number == 4 else "typical", settings))
    return _joined(parts)


def _part(
    seed: int, settings: CommsMLSettings, region: Region, kind: str, scenario: Scenario, n_windows: int
) -> CommsMLSamples:
    """Simulate a region until it has enough windows, and draw what its receiver reads."""
    duration_s = (1.05 * n_windows / _SHARE_KEPT + 20) * settings.interval_s
    windows = _kept_windows(region, seed, settings, scenario, duration_s)
    while len(windows) < n_windows:
        duration_s *= 2
        windows = _kept_windows(region, seed, settings, scenario, duration_s)
    windows = windows.select(np.arange(len(windows)) < n_windows)
    shape = (n_windows, settings.n_readings)
    interference = None
    if scenario is Scenario.BLUETOOTH:
        rng = stream(seed, Use.BLUETOOTH, region=region.number, scenario=scenario)
        rate_hz = sample_rate_hz(settings.bandwidth_mhz, settings.oversampling)
        interference = gfsk_glimpses(rng, shape, rate_hz, settings.bandwidth_mhz * 1e6, settings.bluetooth_db)
    rng = stream(seed, Use.CHANNEL, region=region.number, scenario=scenario)
    taps = _taps(settings, region.number)
    readings = np.abs(receive(_frame(settings), taps, settings.channel, rng, shape, interference))
    return _samples(windows, readings, region, kind, settings)


def _kept_windows(
    region: Region, seed: int, settings: CommsMLSettings, scenario: Scenario, duration_s: float
) -> Windows:
    """Return the windows with a router packet: the others have no readings."""
    packets = simulate(region, duration_s, seed, scenario, _grid(settings))
    windows = windows_of(packets, _grid(settings), until_s=duration_s)
    return windows.select(windows.have(windows.packets["source"] == region.router))


def _grid(settings: CommsMLSettings) -> WindowGrid:
    return WindowGrid(settings.window_s, settings.interval_s)


def _taps(settings: CommsMLSettings, region: int) -> NDArray[np.complex128]:
    taps = draw_taps(settings.channel, stream(settings.place_seed, Use.TAPS, region=region))
    return taps if region != 4 else mixed_taps(_taps(settings, 2), taps, settings.own_share)


def _frame(settings: CommsMLSettings) -> NDArray[np.complex128]:
    frame = l_stf(settings.bandwidth_mhz, settings.oversampling, settings.window)
    if settings.n_readings > len(frame):
        raise SpecError(f"{settings.n_readings} readings; the field has {len(frame)}")
    return frame


def _samples(
    windows: Windows, readings: NDArray[np.float64], region: Region, kind: str, settings: CommsMLSettings
) -> CommsMLSamples:
    features = np.concatenate([window_statistics(windows), readings], axis=1, dtype=np.float32, casting="same_kind")
    n_windows = len(windows)
    return CommsMLSamples(
        features,
        np.full(n_windows, region.number, np.int8),
        windows.start_s,
        np.full(n_windows, kind),
        (*STATISTICS, *(f"reading_{index}" for index in range(settings.n_readings))),
    )


def _joined(parts: list[CommsMLSamples]) -> CommsMLSamples:
    return CommsMLSamples(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.region for part in parts]),
        np.concatenate([part.start_s for part in parts]),
        np.concatenate([part.kind for part in parts]),
        parts[0].feature_names,
    )


def draw_taps(settings: ChannelSettings, rng: np.random.Generator) -> Complex:
    """Return the paths to a receiver: the settings' powers, random phases, total power 1."""
    amplitudes = 10 ** (np.array(settings.powers_db) / 20)
    phases = rng.uniform(0.0, 2 * np.pi, len(amplitudes))
    return np.asarray(amplitudes / np.linalg.norm(amplitudes) * np.exp(1j * phases))


def mixed_taps(one: Complex, other: Complex, share_of_other: float) -> Complex:
    """Return paths between those of two receivers, total power 1."""
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
        Paths that stay; every frame adds Rayleigh fading of the same power profile to them.
    shape
        How many frames, and how many readings of each.
    interference
        Something else on the air, added as it is, of that shape.
    """
    n_frames, n_readings = shape
    k = 10 ** (settings.rician_k_db / 10)
    changing = np.abs(taps) * _noise(rng, (n_frames, len(taps)))
    paths = math.sqrt(k / (k + 1)) * taps + math.sqrt(1 / (k + 1)) * changing
    paths *= 10 ** (rng.normal(0.0, settings.gain_db, (n_frames, 1)) / 20)
    readings = 10 ** (-settings.snr_db / 20) * _noise(rng, shape)
    most = settings.timing_offset_samples
    offsets = rng.integers(-most, most + 1, n_frames)
    for offset in np.unique(offsets):
        which = offsets == offset
        readings[which] += paths[which] @ _delayed(frame, settings.delays_samples, int(offset), n_readings)
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


_SCENARIOS = {"rate": Scenario.RATE, "bluetooth": Scenario.BLUETOOTH, "rare": Scenario.RARE}


class CapturePart(NamedTuple):
    """The traffic of one region and kind."""

    kind: str
    region: Region
    seed: int
    scenario: Scenario
    duration_s: float


def traffic_parts(samples: CommsMLSamples, seed: int, settings: CommsMLSettings) -> list[CapturePart]:
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
        factor = {"rate": settings.rate_factor, "rare": settings.rare_factor}.get(kind)
        region = regions[number] if factor is None else regions[number].with_rate(factor)
        parts.append(CapturePart(kind, region, seed, _SCENARIOS.get(kind, Scenario.TYPICAL), until_s))
    return parts


def write_parts(folder: Path, parts: list[CapturePart]) -> Iterator[Written]:
    """Write each part as `folder/kind/region-N.pcap`, and yield what was written.

    A folder of a kind is what a fleet trains on or is scored with: one capture per device, the devices by region.
    """
    for part in parts:
        check_new(folder / part.kind)
    for part in parts:
        packets = simulate(part.region, part.duration_s, part.seed, part.scenario)
        yield write_pcap(folder / part.kind, f"region-{part.region.number}", packets, part.region)


def check_new(folder: Path) -> None:
    """Refuse a folder that has captures: old and new ones would be taken for one another's continuation."""
    if folder.is_dir() and any(folder.glob("*.pcap")):
        raise RunDirectoryError(folder, "has captures already; choose another --out, or remove them")
