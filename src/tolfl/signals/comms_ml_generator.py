"""The Comms-ML data set, generated: twelve statistics of a second of traffic, and first readings of the router's frame.

The original (github.com/mkatzef/comms-ml) needs MATLAB for its waveforms. As published, the readings are the same
numbers in every sample, and region 4 looks like the others. The default here is a benchmark with stated strengths:
typical windows of regions 1 to 3, and three kinds of anomaly. `variant="published"` follows the published files.
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
from tolfl.signals.pcap_writer import write_pcap
from tolfl.signals.traffic import (
    PUBLISHED_DURATION_S,
    PUBLISHED_SEEDS,
    Region,
    Scenario,
    Use,
    default_regions,
    published_regions,
    simulate,
    stream,
)
from tolfl.signals.wifi import l_stf, sample_rate_hz
from tolfl.signals.windows import STATISTICS, WindowGrid, Windows, window_statistics, windows_of

KINDS = ("typical", "rate", "bluetooth", "region-4")  #: and `rare`, where settings have it
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


class TrafficPart(NamedTuple):
    """The traffic of one region and kind."""

    kind: str
    region: Region
    seed: int
    scenario: Scenario = Scenario.TYPICAL
    duration_s: float = PUBLISHED_DURATION_S
    n_windows: int = 0  #: to be sampled; 0: all


def comms_ml(seed: int = 0, settings: CommsMLSettings | None = None) -> CommsMLSamples:
    """Return the samples of a seed: regions 1 to 3 typical, then the anomalies, each kind as many as a region has.

    >>> samples = comms_ml(0, CommsMLSettings(windows_per_region=3))
    >>> samples.features.shape, [int((samples.kind == kind).sum()) for kind in KINDS]
    ((18, 112), [9, 3, 3, 3])
    """
    settings = checked(settings or CommsMLSettings())
    sample = _published if settings.variant == "published" else _default
    parts = [sample(part, settings) for part in _parts(seed, settings)]
    return CommsMLSamples(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.region for part in parts]),
        np.concatenate([part.start_s for part in parts]),
        np.concatenate([part.kind for part in parts]),
        parts[0].feature_names,
    )


def _parts(seed: int, settings: CommsMLSettings) -> list[TrafficPart]:
    """Return what samples of a seed are taken from: the published regions for a week, or so many windows of the others.

    The published regions have seeds of their own; another seed than 0 moves all of them.
    """
    if settings.variant == "published":
        pairs = zip(published_regions(), PUBLISHED_SEEDS, strict=True)
        return [
            TrafficPart("region-4" if region.number == 4 else "typical", region, own + SEEDS_IN_FILES * seed)
            for region, own in pairs
        ]
    n_typical = settings.windows_per_region
    # A third of an anomaly that three regions share; the first regions take what cannot be divided.
    shares = [n_typical // 3 + (index < n_typical % 3) for index in range(3)]
    *typical, other = default_regions()

    def shared(kind: str, scenario: Scenario, factor: float = 1.0) -> list[TrafficPart]:
        return [
            TrafficPart(kind, region.with_rate(factor), seed, scenario, n_windows=share)
            for region, share in zip(typical, shares, strict=True)
        ]

    return [
        *(TrafficPart("typical", region, seed, n_windows=n_typical) for region in typical),
        *shared("rate", Scenario.RATE, settings.rate_factor),
        *shared("bluetooth", Scenario.BLUETOOTH),
        TrafficPart("region-4", other, seed, n_windows=n_typical),
        *(shared("rare", Scenario.RARE, settings.rare_factor) if settings.rare_factor else ()),
    ]


def _published(part: TrafficPart, settings: CommsMLSettings) -> CommsMLSamples:
    """Return the samples of a week, whose readings are the same numbers in each."""
    readings = np.abs(_frame(settings)[: settings.n_readings])
    windows = _kept_windows(part, settings, part.duration_s)
    return _samples(windows, np.broadcast_to(readings, (len(windows), len(readings))), part, settings)


def _default(part: TrafficPart, settings: CommsMLSettings) -> CommsMLSamples:
    """Simulate a region until it has enough windows, and draw what its receiver reads."""
    duration_s = (1.05 * part.n_windows / _SHARE_KEPT + 20) * settings.interval_s
    while len(windows := _kept_windows(part, settings, duration_s)) < part.n_windows:
        duration_s *= 2
    windows = windows.select(np.arange(len(windows)) < part.n_windows)
    shape, number = (part.n_windows, settings.n_readings), part.region.number
    interference = None
    if part.scenario is Scenario.BLUETOOTH:
        rng = stream(part.seed, Use.BLUETOOTH, region=number, scenario=part.scenario)
        rate_hz = sample_rate_hz(settings.bandwidth_mhz, settings.oversampling)
        interference = gfsk_glimpses(rng, shape, rate_hz, settings.bandwidth_mhz * 1e6, settings.bluetooth_db)
    rng = stream(part.seed, Use.CHANNEL, region=number, scenario=part.scenario)
    readings = receive(_frame(settings), _taps(settings, number), settings.channel, rng, shape, interference)
    return _samples(windows, np.abs(readings), part, settings)


def _kept_windows(part: TrafficPart, settings: CommsMLSettings, duration_s: float) -> Windows:
    """Return the windows with a router packet: the others have no readings."""
    grid = WindowGrid(settings.window_s, settings.interval_s)
    packets = simulate(part.region, duration_s, part.seed, part.scenario, grid)
    windows = windows_of(packets, grid, until_s=duration_s)
    return windows.select(windows.have(windows.packets["source"] == part.region.router))


def _taps(settings: CommsMLSettings, region: int) -> NDArray[np.complex128]:
    taps = draw_taps(settings.channel, stream(settings.place_seed, Use.TAPS, region=region))
    return taps if region != 4 else mixed_taps(_taps(settings, 2), taps, settings.own_share)


def _frame(settings: CommsMLSettings) -> NDArray[np.complex128]:
    frame = l_stf(settings.bandwidth_mhz, settings.oversampling, settings.window)
    if settings.n_readings > len(frame):
        raise SpecError(f"{settings.n_readings} readings; the field has {len(frame)}")
    return frame


def _samples(
    windows: Windows, readings: NDArray[np.float64], part: TrafficPart, settings: CommsMLSettings
) -> CommsMLSamples:
    features = np.concatenate([window_statistics(windows), readings], axis=1, dtype=np.float32, casting="same_kind")
    n_windows = len(windows)
    return CommsMLSamples(
        features,
        np.full(n_windows, part.region.number, np.int8),
        windows.start_s,
        np.full(n_windows, part.kind),
        (*STATISTICS, *(f"reading_{index}" for index in range(settings.n_readings))),
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
        Interference, added as it is, of that shape.
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


def traffic_parts(samples: CommsMLSamples, seed: int, settings: CommsMLSettings) -> list[TrafficPart]:
    """Return what samples of a seed were taken from, each part until its last window ends."""
    parts = _parts(seed, settings)
    if settings.variant == "published":
        return parts
    found = []
    for part in parts:
        is_own = (samples.kind == part.kind) & (samples.region == part.region.number)
        if is_own.any():
            found.append(part._replace(duration_s=float(samples.start_s[is_own].max()) + settings.window_s))
    return found


def write_parts(folder: Path, parts: list[TrafficPart]) -> Iterator[tuple[Path, int]]:
    """Write each part as `folder/kind/region-N.pcap`, and yield its path and how many packets it has.

    A folder of a kind is what a fleet trains on or is scored with: one capture per device, the devices by region.
    """
    for part in parts:
        if any((folder / part.kind).glob("*.pcap")):  # old and new ones would be read as one series
            raise RunDirectoryError(folder / part.kind, "has captures already; choose another --out, or remove them")
    for part in parts:
        packets = simulate(part.region, part.duration_s, part.seed, part.scenario)
        yield write_pcap(folder / part.kind, f"region-{part.region.number}", packets, part.region), len(packets)
