"""Samples as two configuration files of the original simulator describe them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.configs import ConfigFileError, Feature, SamplingConfig, SimConfig
from tolfl.signals.expressions import Aggregate, Condition
from tolfl.signals.network import simulate
from tolfl.signals.packets import TCP, UDP, Packets
from tolfl.signals.statistics import count, gaps_s, n_unique
from tolfl.signals.windows import Windows, numbered_windows
from tolfl.signals.wlan import l_stf

Float = NDArray[np.float64]

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class ConfiguredSamples:
    """Samples in the order of their windows, unscaled; of readings the magnitude."""

    features: Float
    """Shape `(n_samples, n_features)`."""
    start_s: Float
    feature_names: tuple[str, ...]


def sample_configs(sim: SimConfig, sampling: SamplingConfig, seed: int | None = None) -> ConfiguredSamples:
    """Simulate and sample as two configuration files say; `seed` replaces the one of the file.

    A window in which a feature has nothing to work on (no frame of the wanted sender, say) gives no sample.
    """
    packets = simulate(sim.region, sim.duration_s, sim.seed if seed is None else seed)
    windows = sequential_windows(packets, sampling.window_s, sampling.interval_s)
    columns: list[Float] = []
    names: list[str] = []
    is_kept = np.ones(len(windows), np.bool_)
    for feature in sampling.features:
        values, is_there = _feature_values(feature, windows, sim, sampling)
        columns.append(values)
        is_kept &= is_there
        names += [feature.name] if values.shape[1] == 1 else [f"{feature.name}_{i}" for i in range(values.shape[1])]
    return ConfiguredSamples(np.concatenate(columns, axis=1)[is_kept], windows.start_s[is_kept], tuple(names))


def sequential_windows(packets: Packets, window_s: float, interval_s: float) -> Windows:
    """Cut packets as the original does, which reads them one by one.

    It moves on by one window at most with each packet: after a silence longer than the interval it lags behind, and
    loses packets until it has caught up. It closes a window when a later packet arrives, so the last one is lost.
    """
    if not len(packets):
        return Windows(packets, np.empty(0, np.intp), np.empty(0))
    start_s = float(packets.time_s[0])
    since = packets.time_s - start_s
    due = np.maximum(np.floor((since - window_s) / interval_s).astype(np.int64) + 1, 0)
    # number[i] = min(due[i], number[i - 1] + 1), as a running minimum.
    index = np.arange(len(due))
    number = index + np.minimum.accumulate(due - index)
    offset = since - number * interval_s
    is_inside = (offset >= 0) & (offset < window_s) & (number < number[-1])
    return numbered_windows(packets.take(is_inside), number[is_inside], start_s, interval_s)


def _feature_values(
    feature: Feature, windows: Windows, sim: SimConfig, sampling: SamplingConfig
) -> tuple[Float, NDArray[np.bool_]]:
    """Return the values of a feature, shape `(n_windows, n_values)`, and which windows have them."""
    is_there = np.ones(len(windows), np.bool_)
    looked_at = windows
    if feature.mapping.condition is not None:
        is_wanted = _meets(feature.mapping.condition, windows.packets, None, sim.region.addresses)
        is_there = windows.have(is_wanted)
        looked_at = _first_of_each(windows, is_wanted, is_there)
    width = feature.aggregate.n_elements or 1
    values = np.full((len(windows), width), np.nan)
    if len(looked_at):
        if feature.property == "~phy":
            sources = looked_at.packets.source[looked_at.first]
            values[is_there] = _readings(sources, width, sim, sampling)
        else:
            values[is_there, 0] = _reduced(feature, looked_at, sim.region.addresses)
    return values, is_there


def _first_of_each(windows: Windows, is_wanted: NDArray[np.bool_], is_there: NDArray[np.bool_]) -> Windows:
    """Return windows of one packet: the first wanted one of each that has any."""
    _, first = np.unique(windows.number[is_wanted], return_index=True)
    chosen = np.flatnonzero(is_wanted)[first]
    return Windows(windows.packets.take(chosen), np.arange(len(chosen)), windows.start_s[is_there])


def _readings(sources: NDArray[np.int32], width: int, sim: SimConfig, sampling: SamplingConfig) -> Float:
    """Return the first readings of frames: what they depend on is only who sends them."""
    table = np.zeros((len(sim.transmitters), width))
    for source in np.unique(sources):
        transmitter = sim.transmitters[source]
        if transmitter.unknown:
            address = sim.region.addresses[source]
            raise ConfigFileError(sim.path, f"the tx_config of {address} has {transmitter.unknown}")
        field = np.abs(l_stf(transmitter.bandwidth_mhz, transmitter.oversampling))
        if width > len(field):
            raise ConfigFileError(
                sampling.path, f"head({width}) of '~phy': only the first {len(field)} readings of a frame are known"
            )
        table[source] = field[:width]
    return np.asarray(table[sources])


def _reduced(feature: Feature, windows: Windows, addresses: tuple[str, ...]) -> Float:
    packets = windows.packets
    # Of whole packets only their number or their length is ever asked for.
    values = gaps_s(windows) if feature.mapping.kind == "gaps" else _field(packets, feature.property)
    aggregate = feature.aggregate
    if aggregate.kind == "count":
        return windows.sizes.astype(np.float64)
    if aggregate.kind == "n_unique":  # by rank, which also makes one value of all NaN
        return n_unique(windows, np.unique(values, return_inverse=True)[1]).astype(np.float64)
    if aggregate.condition is not None:
        return count(windows, _meets(aggregate.condition, packets, values, addresses)).astype(np.float64)
    return _statistic(aggregate, windows, values.astype(np.float64))


def _statistic(aggregate: Aggregate, windows: Windows, values: Float) -> Float:
    """Return minimum, maximum, mean, sum, standard deviation or median of each window, as NumPy defines them."""
    if aggregate.skips_nan and np.isnan(values).any():  # no window has only NaN: a lone packet's gap is 0
        is_number = ~np.isnan(values)
        sizes = count(windows, is_number)
        windows = Windows(windows.packets.take(is_number), np.cumsum(sizes) - sizes, windows.start_s)
        values = values[is_number]
    first, sizes = windows.first, windows.sizes
    match aggregate.kind:
        case "min":
            return np.minimum.reduceat(values, first)
        case "max":
            return np.maximum.reduceat(values, first)
        case "median":
            ranked = values[np.lexsort((values, windows.number))]  # NaN comes last
            middle = (ranked[first + (sizes - 1) // 2] + ranked[first + sizes // 2]) / 2
            return np.where(np.isnan(ranked[first + sizes - 1]), np.nan, middle)
    total = np.add.reduceat(values, first)
    if aggregate.kind == "sum":
        return total
    mean = total / sizes
    if aggregate.kind == "mean":
        return mean
    return np.sqrt(np.add.reduceat((values - mean[windows.number]) ** 2, first) / sizes)


def _meets(
    condition: Condition, packets: Packets, values: NDArray[Any] | None, addresses: tuple[str, ...]
) -> NDArray[np.bool_]:
    if condition.field == "layer":
        protocols = {"UDP": packets.protocol == UDP, "TCP": packets.protocol == TCP}
        has_layer = protocols.get(str(condition.value), np.ones(len(packets), np.bool_))
        return np.asarray(has_layer == (condition.comparison == "in"))
    looked_at = _field(packets, condition.field) if condition.field or values is None else values
    if isinstance(condition.value, float):
        wanted = condition.value
    else:  # -1: an address that nobody has
        wanted = addresses.index(condition.value) if condition.value in addresses else -1
    return np.asarray(_OPERATORS[condition.comparison](looked_at, wanted))


def _field(packets: Packets, name: str) -> NDArray[Any]:
    fields: dict[str, NDArray[Any]] = {
        "src": packets.source,
        "dst": packets.destination,
        "time": packets.time_s,
    }
    return fields.get(name, packets.wire_bytes)
