"""The configuration files of the original Comms-ML simulator (`sim_cfgX.json`, `sampling_cfgX.json`), read as they are.

Keys that change nothing here are ignored (IP addresses, positions, output files, `arg_hawkes` of a periodic source);
of several traffic descriptions of a node the first is used, as the original does. The original hands the expressions of
a sampling file to Python's `eval`. Here they are looked up in a table of those that the published files use, with a
free address and a free number; white space and the kind of quotes do not matter. Nothing is run.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError
from tolfl.signals.traffic import Bursty, Hawkes, PeriodicHawkes, Region, RegionNode, Traffic, simulate
from tolfl.signals.wifi import l_stf
from tolfl.signals.windows import TCP, UDP, Packets, SignalRows, Windows, count, gaps_s, n_unique, numbered_windows

Float = NDArray[np.float64]

PROPERTIES = ("time", "wirelen", "src", "dst", "~pkt", "~phy")
_NUMBERS = ("time", "wirelen")
_GAPS = "aggregators.iat()"
_FIRST_FROM = re.compile(r"aggregators\.keep_if\(lambda(\w+):\1\[0\]\.src=='([^']*)'\)")
_READINGS = re.compile(r"aggregators\.head\(([1-9]\d*)\)")
#: What the aggregations are called in feature names, and the properties they go with.
_AGGREGATES: dict[str, tuple[str, tuple[str, ...]]] = {
    "aggregators.count()": ("count", PROPERTIES[:-1]),
    "aggregators.n_unique()": ("n_unique", PROPERTIES[:-2]),
    "aggregators.count_if(lambdax:TCPinx)": ("tcp", ("~pkt",)),
    "aggregators.count_if(lambdax:UDPinx)": ("udp", ("~pkt",)),
    **{f"np.{name}": (name, _NUMBERS) for name in ("min", "max", "mean", "nanmin", "nanmax", "nanmean")},
}
_KNOWN_MAPS = "null, aggregators.iat(), aggregators.keep_if(lambda rec: rec[0].src == '...')"
_KNOWN_AGGREGATES = (
    "aggregators.count(), aggregators.count_if(lambda x: TCP in x), the same with UDP, aggregators.n_unique(), "
    "aggregators.head(n), np.min, np.max, np.mean, np.nanmin, np.nanmax, np.nanmean"
)


class TxConfig(msgspec.Struct, frozen=True):
    """How the frames of a node look; only matters if its readings are wanted."""

    # Defaults of the original, for nodes that leave them out.
    bandwidth: str = msgspec.field(name="ChannelBandwidth", default="CBW160")
    oversampling: float = msgspec.field(name="oversamplingFactor", default=1.5)
    frame_format: str = msgspec.field(name="FrameFormat", default="VHT")
    post_processing: str = msgspec.field(name="postProcFunc", default="@(x, a) x")
    antennas: float = msgspec.field(name="NumTransmitAntennas", default=1.0)


@dataclass(frozen=True, slots=True)
class SimConfig:
    """Who sends what, for how long."""

    path: Path
    seed: int
    duration_s: float
    region: Region
    tx_configs: tuple[TxConfig, ...]
    """One per address of the region."""


class SampledFeature(msgspec.Struct, frozen=True):
    """One feature of a sampling file: what is looked at, of which packets, and what remains of it."""

    what: str = msgspec.field(name="property")  #: one of `PROPERTIES`
    agg_function: str
    map_function: str | None = None

    def __post_init__(self) -> None:
        mapping, aggregate = _compact(self.map_function or ""), _compact(self.agg_function)
        has_sender, has_readings = _FIRST_FROM.fullmatch(mapping) is not None, self.n_readings > 0
        if self.what not in PROPERTIES:
            raise ValueError(f"property {self.what!r} is not known; known are: {', '.join(PROPERTIES)}")
        if mapping not in ("", _GAPS) and not has_sender:
            raise ValueError(f"map_function {self.map_function!r} is not known; known are: {_KNOWN_MAPS}")
        if aggregate not in _AGGREGATES and not has_readings:
            raise ValueError(f"agg_function {self.agg_function!r} is not known; known are: {_KNOWN_AGGREGATES}")
        properties = ("~phy",) if has_readings else _AGGREGATES[aggregate][1]
        if self.what not in properties:
            known = " or ".join(properties)
            raise ValueError(f"agg_function {self.agg_function!r} goes with {known}, not with {self.what}")
        if (self.is_of_gaps and self.what != "time") or (has_sender and not has_readings):
            known = "time" if self.is_of_gaps else "~phy"
            raise ValueError(f"map_function {self.map_function!r} goes with {known}, not with {self.what}")

    @property
    def aggregate(self) -> str:
        """What the aggregation is called: a name of `_AGGREGATES`, or `head`."""
        return "head" if self.n_readings else _AGGREGATES[_compact(self.agg_function)][0]

    @property
    def n_readings(self) -> int:
        """How many first readings of a frame; 0: these are no readings."""
        found = _READINGS.fullmatch(_compact(self.agg_function))
        return int(found[1]) if found else 0

    @property
    def sender(self) -> str | None:
        """Whose first packet in a window readings are of; None: the first packet of all."""
        found = _FIRST_FROM.fullmatch(_compact(self.map_function or ""))
        return found[2] if found else None

    @property
    def is_of_gaps(self) -> bool:
        """Whether it is of the times between packets."""
        return _compact(self.map_function or "") == _GAPS

    @property
    def name(self) -> str:
        """What the column is called."""
        parts = [self.what.lstrip("~"), "gaps" * self.is_of_gaps, "first" * (self.sender is not None)]
        return ".".join(part for part in (*parts, self.aggregate) if part)


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """When a sample is taken and what is in it."""

    path: Path
    window_s: float
    interval_s: float
    features: tuple[SampledFeature, ...]


class _NodeConfig(msgspec.Struct, frozen=True):
    hw_addr: str
    tx_config: TxConfig = TxConfig()


_Positive = Annotated[float, msgspec.Meta(gt=0)]
_PayloadBytes = Annotated[int, msgspec.Meta(ge=1, le=65_507)]  #: the longest payload of UDP


class _TrafficModel(msgspec.Struct, frozen=True):
    # Defaults of the original again.
    traffic_type: Literal["bursty", "hawkes", "hawkes_periodic"]
    tx_len_min_bytes: _PayloadBytes = 1
    tx_len_max_bytes: _PayloadBytes = 1500
    arg_bursty_n: Annotated[int, msgspec.Meta(ge=1)] = 5
    arg_bursty_intra: tuple[float, float] = (0.01, 0.07)
    arg_bursty_inter: tuple[float, float] = (0.1, 60.0)
    arg_hawkes: _Positive = 0.05
    weekend_mult: Annotated[float, msgspec.Meta(ge=0)] = 0.5

    def __post_init__(self) -> None:
        if self.tx_len_min_bytes > self.tx_len_max_bytes:
            raise ValueError("tx_len_min_bytes must be at most tx_len_max_bytes")
        if not all(0 <= low <= high for low, high in (self.arg_bursty_intra, self.arg_bursty_inter)):
            raise ValueError("arg_bursty_intra and arg_bursty_inter must be gaps [low, high] from 0 on")

    @property
    def traffic(self) -> Traffic:
        payload = (self.tx_len_min_bytes, self.tx_len_max_bytes)
        match self.traffic_type:
            case "bursty":
                return Bursty(self.arg_bursty_inter, self.arg_bursty_intra, self.arg_bursty_n, payload)
            case "hawkes":
                return Hawkes(self.arg_hawkes, payload)
            case "hawkes_periodic":
                return PeriodicHawkes(self.weekend_mult, payload_bytes=payload)


class _TrafficConfig(msgspec.Struct, frozen=True):
    dst: list[str | float]
    model: _TrafficModel
    packet_source: Literal["get_udp_packet"] = "get_udp_packet"

    def __post_init__(self) -> None:
        if not (self.dst and isinstance(self.dst[0], str)):
            raise ValueError("dst must start with a hardware address")


class _NodeFile(msgspec.Struct, frozen=True):
    config: _NodeConfig
    traffic: list[_TrafficConfig] = []


class _SimGeneral(msgspec.Struct, frozen=True):
    rng_seed: Annotated[int, msgspec.Meta(ge=0)]
    sim_time_s: _Positive


class _SimFile(msgspec.Struct, frozen=True):
    general: _SimGeneral
    nodes: Annotated[list[_NodeFile], msgspec.Meta(min_length=1)]


class _SamplingGeneral(msgspec.Struct, frozen=True):
    sample_duration_s: _Positive
    sample_interval_s: _Positive | None = None
    use_phy: bool = False


class _SamplingFile(msgspec.Struct, frozen=True):
    general: _SamplingGeneral
    features: Annotated[list[SampledFeature], msgspec.Meta(min_length=1)]


def read_sim_config(path: Path | str) -> SimConfig:
    """Read the nodes and their traffic.

    The region gets the number 0. Nothing in the file says which node is the router; the last one is taken for it, as in
    all published files. Sampling does not care: it names the address it wants.
    """
    path = Path(path)
    file = _decoded(path, _SimFile)
    tx_configs: dict[str, TxConfig] = {}
    for node in file.nodes:
        tx_configs.setdefault(node.config.hw_addr, node.config.tx_config)
    for node in file.nodes:
        if node.traffic:  # an address that no node has only ever receives
            tx_configs.setdefault(str(node.traffic[0].dst[0]), TxConfig())
    numbers = {address: number for number, address in enumerate(tx_configs)}
    nodes = []
    for node in file.nodes:
        own, first = numbers[node.config.hw_addr], node.traffic[0] if node.traffic else None
        to = own if first is None else numbers[str(first.dst[0])]
        nodes.append(RegionNode(own, to, None if first is None else first.model.traffic))
    region = Region(0, tuple(numbers), tuple(nodes), router=nodes[-1].address)
    return SimConfig(path, file.general.rng_seed, file.general.sim_time_s, region, tuple(tx_configs.values()))


def read_sampling_config(path: Path | str) -> SamplingConfig:
    """Read when samples are taken and what is in them; an expression that is not known is an error."""
    path = Path(path)
    file = _decoded(path, _SamplingFile)
    for index, feature in enumerate(file.features):
        if feature.n_readings and not file.general.use_phy:
            raise DataFileError(path, f"features[{index}]: asks for readings ('~phy'), but general.use_phy is false")
    window_s = file.general.sample_duration_s
    return SamplingConfig(path, window_s, file.general.sample_interval_s or window_s, tuple(file.features))


_File = TypeVar("_File", bound=msgspec.Struct)


def _decoded(path: Path, kind: type[_File]) -> _File:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise DataFileError(path, f"cannot be read ({error.strerror})") from None
    except msgspec.ValidationError as error:
        what, _, where = str(error).rpartition(" - at `$")
        if not what:
            what, where = where, ""
        where = where.rstrip("`").lstrip(".")
        what = what[:1].lower() + what[1:]
        raise DataFileError(path, f"{where}: {what}" if where else what) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataFileError(path, f"is not a JSON file ({error})") from None


def _compact(expression: str) -> str:
    return "".join(expression.split()).replace('"', "'")


def sample_configs(sim: SimConfig, sampling: SamplingConfig, seed: int | None = None) -> SignalRows:
    """Simulate and sample as two configuration files say; `seed` replaces the one of the file. Readings are magnitudes.

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
    return SignalRows(_numbered(names), windows.start_s[is_kept], np.concatenate(columns, axis=1)[is_kept])


def _numbered(names: list[str]) -> tuple[str, ...]:
    """Return names that occur once: a file may ask for the same feature twice.

    >>> _numbered(["pkt.tcp", "time.min", "pkt.tcp"])
    ('pkt.tcp', 'time.min', 'pkt.tcp (2)')
    """
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(found)


def sequential_windows(packets: Packets, window_s: float, interval_s: float) -> Windows:
    """Cut packets as the original does, which reads them one by one.

    It moves on by one window at most with each packet: after a silence longer than the interval it lags behind, and
    loses packets until it has caught up. It closes a window when a later packet arrives, so the last one is lost.
    """
    if not len(packets):
        return numbered_windows(packets, np.empty(0, np.int64), 0.0, interval_s)
    start_s = float(packets["time_s"][0])
    since = packets["time_s"] - start_s
    due = np.maximum(np.floor((since - window_s) / interval_s).astype(np.int64) + 1, 0)
    # number[i] = min(due[i], number[i - 1] + 1), as a running minimum.
    index = np.arange(len(due))
    number = index + np.minimum.accumulate(due - index)
    offset = since - number * interval_s
    is_inside = (offset >= 0) & (offset < window_s) & (number < number[-1])
    return numbered_windows(packets[is_inside], number[is_inside], start_s, interval_s)


def _feature_values(
    feature: SampledFeature, windows: Windows, sim: SimConfig, sampling: SamplingConfig
) -> tuple[Float, NDArray[np.bool_]]:
    """Return the values of a feature, shape `(n_windows, n_values)`, and which windows have them."""
    is_there = np.ones(len(windows), np.bool_)
    if feature.aggregate != "head":
        return _reduced(feature, windows)[:, None], is_there
    packets, first = windows.packets, windows.first
    if feature.sender is not None:
        addresses = sim.region.addresses
        number = addresses.index(feature.sender) if feature.sender in addresses else -1  # of no node
        is_wanted = packets["source"] == number
        is_there = windows.have(is_wanted)
        first = np.flatnonzero(is_wanted)[np.unique(windows.number[is_wanted], return_index=True)[1]]
    values = np.full((len(windows), feature.n_readings), np.nan)
    if len(first):
        values[is_there] = _readings(packets["source"][first], feature.n_readings, sim, sampling)
    return values, is_there


def _readings(sources: NDArray[np.int32], width: int, sim: SimConfig, sampling: SamplingConfig) -> Float:
    """Return the first readings of frames: what they depend on is only who sends them."""
    table = np.zeros((len(sim.tx_configs), width))
    for source in np.unique(sources):
        config = sim.tx_configs[source]
        if unknown := _unknown(config):
            raise DataFileError(sim.path, f"the tx_config of {sim.region.addresses[source]} has {unknown}")
        field = np.abs(l_stf(int(config.bandwidth.removeprefix("CBW")), config.oversampling))
        if width > len(field):
            raise DataFileError(
                sampling.path, f"head({width}) of '~phy': only the first {len(field)} readings of a frame are known"
            )
        table[source] = field[:width]
    return np.asarray(table[sources])


def _unknown(config: TxConfig) -> str:
    """Return what a node asks for whose readings are not known; nothing if they are."""
    if config.bandwidth not in ("CBW20", "CBW40", "CBW80", "CBW160"):
        return f"ChannelBandwidth {config.bandwidth!r}; known are CBW20, CBW40, CBW80, CBW160"
    if config.frame_format != "VHT":
        return f"FrameFormat {config.frame_format!r}; known is VHT"
    if "".join(config.post_processing.split()) != "@(x,a)x":
        return f"postProcFunc {config.post_processing!r}; known is '@(x, a) x', which changes nothing"
    if config.antennas != 1:
        return f"NumTransmitAntennas {config.antennas:g}; known is 1"
    is_possible = 1 <= config.oversampling < math.inf
    return "" if is_possible else f"oversamplingFactor {config.oversampling:g}; use at least 1"


#: Of each window; those of `nan...` look past NaN, which no window has alone: a lone packet's gap is 0.
_REDUCERS = {
    "min": np.minimum, "nanmin": np.fmin, "max": np.maximum, "nanmax": np.fmax, "mean": np.add, "nanmean": np.add,
}  # fmt: skip


def _reduced(feature: SampledFeature, windows: Windows) -> Float:
    """Return one number per window, as NumPy defines them."""
    if not len(windows):
        return np.empty(0)
    field = {"src": "source", "dst": "destination", "time": "time_s"}.get(feature.what, "wire_bytes")
    values: NDArray[Any] = gaps_s(windows) if feature.is_of_gaps else windows.packets[field]
    match feature.aggregate:
        case "count":
            return windows.sizes.astype(np.float64)
        case "tcp" | "udp":
            protocol = TCP if feature.aggregate == "tcp" else UDP
            return count(windows, windows.packets["protocol"] == protocol).astype(np.float64)
        case "n_unique":  # by rank, which also makes one value of all NaN
            return n_unique(windows, np.unique(values, return_inverse=True)[1]).astype(np.float64)
    values = values.astype(np.float64)
    sizes = windows.sizes
    if feature.aggregate == "nanmean":
        sizes, values = count(windows, ~np.isnan(values)), np.nan_to_num(values)
    found = _REDUCERS[feature.aggregate].reduceat(values, windows.first)
    return np.asarray(found / sizes if "mean" in feature.aggregate else found)
