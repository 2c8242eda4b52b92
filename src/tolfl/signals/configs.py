"""The configuration files of the original Comms-ML simulator (`sim_cfgX.json`, `sampling_cfgX.json`), read as they are.

Keys that change nothing here are ignored (IP addresses, positions, output files, `arg_hawkes` of a periodic source);
of several traffic descriptions of a node the first is used, as the original does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from tolfl.core.errors import SpecError
from tolfl.signals.expressions import (
    KNOWN_AGGREGATES,
    KNOWN_MAPS,
    REDUCTIONS,
    Aggregate,
    Mapping,
    parse_aggregate,
    parse_map,
)
from tolfl.signals.network import Node, Region
from tolfl.signals.traffic import Bursty, Hawkes, PeriodicHawkes, Traffic

PROPERTIES = ("time", "wirelen", "src", "dst", "~pkt", "~phy")


class ConfigFileError(SpecError):
    """A configuration file cannot be read, or asks for something that is not known."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


@dataclass(frozen=True, slots=True)
class Transmitter:
    """How the frames of a node look."""

    bandwidth_mhz: int
    oversampling: float
    unknown: str = ""  #: what the node asks for that is not known; only matters if its readings are wanted


@dataclass(frozen=True, slots=True)
class SimConfig:
    """Who sends what, for how long."""

    path: Path
    seed: int
    duration_s: float
    region: Region
    transmitters: tuple[Transmitter, ...]
    """One per address of the region."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: what is looked at, what is done to it, what remains of it."""

    name: str
    property: str
    mapping: Mapping
    aggregate: Aggregate


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """When a sample is taken and what is in it."""

    path: Path
    window_s: float
    interval_s: float
    features: tuple[Feature, ...]


class _TxConfig(msgspec.Struct, frozen=True):
    # Defaults of the original, for nodes that leave them out.
    bandwidth: str = msgspec.field(name="ChannelBandwidth", default="CBW160")
    oversampling: float = msgspec.field(name="oversamplingFactor", default=1.5)
    frame_format: str = msgspec.field(name="FrameFormat", default="VHT")
    post_processing: str = msgspec.field(name="postProcFunc", default="@(x, a) x")
    antennas: float = msgspec.field(name="NumTransmitAntennas", default=1.0)


class _NodeConfig(msgspec.Struct, frozen=True):
    hw_addr: str
    tx_config: _TxConfig = _TxConfig()


class _TrafficModel(msgspec.Struct, frozen=True):
    # Defaults of the original again.
    traffic_type: Literal["bursty", "hawkes", "hawkes_periodic"]
    tx_len_min_bytes: int = 1
    tx_len_max_bytes: int = 1500
    arg_bursty_n: int = 5
    arg_bursty_intra: tuple[float, float] = (0.01, 0.07)
    arg_bursty_inter: tuple[float, float] = (0.1, 60.0)
    arg_hawkes: float = 0.05
    weekend_mult: float = 0.5


class _TrafficConfig(msgspec.Struct, frozen=True):
    dst: list[str | float]
    model: _TrafficModel
    packet_source: str = "get_udp_packet"


class _NodeFile(msgspec.Struct, frozen=True):
    config: _NodeConfig
    traffic: list[_TrafficConfig] = []


class _SimGeneral(msgspec.Struct, frozen=True):
    rng_seed: int
    sim_time_s: float


class _SimFile(msgspec.Struct, frozen=True):
    general: _SimGeneral
    nodes: list[_NodeFile]


class _SamplingGeneral(msgspec.Struct, frozen=True):
    sample_duration_s: float
    sample_interval_s: float | None = None
    use_phy: bool = False


class _FeatureFile(msgspec.Struct, frozen=True):
    property: str
    agg_function: str
    map_function: str | None = None


class _SamplingFile(msgspec.Struct, frozen=True):
    general: _SamplingGeneral
    features: list[_FeatureFile]


def read_sim_config(path: Path | str) -> SimConfig:
    """Read who sends what.

    The region gets the number 0. Nothing in the file says which node is the router; the last one is taken for it, as in
    all published files. Sampling does not care: it names the address it wants.
    """
    path = Path(path)
    file = _decoded(path, _SimFile)
    if file.general.rng_seed < 0 or not 0 < file.general.sim_time_s < math.inf:
        raise ConfigFileError(path, "general: rng_seed must be at least 0 and sim_time_s above 0")
    if not file.nodes:
        raise ConfigFileError(path, "nodes: the list is empty")
    transmitters: dict[str, Transmitter] = {}
    for node in file.nodes:
        transmitters.setdefault(node.config.hw_addr, _transmitter(node.config.tx_config))
    for index, node in enumerate(file.nodes):
        if node.traffic:  # an address that no node has only ever receives
            transmitters.setdefault(_destination(path, index, node.traffic[0]), _transmitter(_TxConfig()))
    numbers = {address: number for number, address in enumerate(transmitters)}
    nodes = tuple(_node(path, index, node, numbers) for index, node in enumerate(file.nodes))
    region = Region(0, tuple(numbers), nodes, router=nodes[-1].address)
    return SimConfig(
        path,
        file.general.rng_seed,
        file.general.sim_time_s,
        region,
        tuple(transmitters[address] for address in numbers),
    )


def read_sampling_config(path: Path | str) -> SamplingConfig:
    """Read when samples are taken and what is in them; an expression that is not known is an error."""
    path = Path(path)
    file = _decoded(path, _SamplingFile)
    window_s = file.general.sample_duration_s
    interval_s = window_s if file.general.sample_interval_s is None else file.general.sample_interval_s
    if not (0 < window_s < math.inf and 0 < interval_s < math.inf):
        raise ConfigFileError(path, "general: sample_duration_s and sample_interval_s must be above 0")
    if not file.features:
        raise ConfigFileError(path, "features: the list is empty")
    features = tuple(
        _feature(path, index, feature, file.general.use_phy) for index, feature in enumerate(file.features)
    )
    return SamplingConfig(path, window_s, interval_s, features)


_File = TypeVar("_File", bound=msgspec.Struct)


def _decoded(path: Path, kind: type[_File]) -> _File:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ConfigFileError(path, f"cannot be read ({error.strerror})") from None
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        where = where.rstrip("`").lstrip(".")
        what = what[:1].lower() + what[1:]
        raise ConfigFileError(path, f"{where}: {what}" if where else what) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigFileError(path, f"is not a JSON file ({error})") from None


def _transmitter(config: _TxConfig) -> Transmitter:
    width = config.bandwidth.removeprefix("CBW")
    unknown = ""
    if width not in ("20", "40", "80", "160"):
        unknown = f"ChannelBandwidth {config.bandwidth!r}; known are CBW20, CBW40, CBW80, CBW160"
    elif config.frame_format != "VHT":
        unknown = f"FrameFormat {config.frame_format!r}; known is VHT"
    elif "".join(config.post_processing.split()) != "@(x,a)x":
        unknown = f"postProcFunc {config.post_processing!r}; known is '@(x, a) x', which changes nothing"
    elif config.antennas != 1:
        unknown = f"NumTransmitAntennas {config.antennas:g}; known is 1"
    elif not 1 <= config.oversampling < math.inf:
        unknown = f"oversamplingFactor {config.oversampling:g}; use at least 1"
    return Transmitter(160 if unknown else int(width), 1.5 if unknown else config.oversampling, unknown)


def _destination(path: Path, index: int, traffic: _TrafficConfig) -> str:
    address = traffic.dst[0] if traffic.dst else None
    if not isinstance(address, str):
        raise ConfigFileError(path, f"nodes[{index}].traffic[0].dst: must start with a hardware address")
    return address


def _node(path: Path, index: int, node: _NodeFile, numbers: dict[str, int]) -> Node:
    address = numbers[node.config.hw_addr]
    if not node.traffic:
        return Node(address, address, None)
    traffic = node.traffic[0]
    where = f"nodes[{index}].traffic[0]"
    if traffic.packet_source != "get_udp_packet":
        raise ConfigFileError(
            path, f"{where}.packet_source: {traffic.packet_source!r} is not known; known is 'get_udp_packet'"
        )
    return Node(address, numbers[_destination(path, index, traffic)], _traffic(path, where, traffic.model))


def _traffic(path: Path, where: str, model: _TrafficModel) -> Traffic:
    payload = (model.tx_len_min_bytes, model.tx_len_max_bytes)
    if not 1 <= payload[0] <= payload[1] <= 65_507:  # the longest payload of UDP
        raise ConfigFileError(path, f"{where}.model: tx_len_min_bytes to tx_len_max_bytes must lie in 1 to 65507")
    if model.traffic_type == "bursty":
        gaps = (model.arg_bursty_intra, model.arg_bursty_inter)
        if model.arg_bursty_n < 1 or not all(0 <= low <= high < math.inf for low, high in gaps):
            raise ConfigFileError(
                path, f"{where}.model: arg_bursty_n must be at least 1, and gaps [low, high] from 0 on"
            )
        return Bursty(model.arg_bursty_inter, model.arg_bursty_intra, model.arg_bursty_n, payload)
    if model.traffic_type == "hawkes":
        if not 0 < model.arg_hawkes < math.inf:
            raise ConfigFileError(path, f"{where}.model: arg_hawkes must be above 0")
        return Hawkes(model.arg_hawkes, payload)
    if not 0 <= model.weekend_mult < math.inf:
        raise ConfigFileError(path, f"{where}.model: weekend_mult must be at least 0")
    return PeriodicHawkes(model.weekend_mult, payload_bytes=payload)


def _feature(path: Path, index: int, feature: _FeatureFile, has_readings: bool) -> Feature:
    where = f"features[{index}]"
    if feature.property not in PROPERTIES:
        raise ConfigFileError(
            path, f"{where}: property {feature.property!r} is not known; known are: {', '.join(PROPERTIES)}"
        )
    mapping = parse_map(feature.map_function)
    if mapping is None:
        raise ConfigFileError(
            path, f"{where}: map_function {feature.map_function!r} is not known; known are: {KNOWN_MAPS}"
        )
    aggregate = parse_aggregate(feature.agg_function)
    if aggregate is None:
        raise ConfigFileError(
            path, f"{where}: agg_function {feature.agg_function!r} is not known; known are: {KNOWN_AGGREGATES}"
        )
    if problem := _mismatch(feature.property, mapping, aggregate, has_readings):
        raise ConfigFileError(path, f"{where}: agg_function {feature.agg_function!r} {problem}")
    parts = [feature.property.lstrip("~"), mapping.kind, ("nan" if aggregate.skips_nan else "") + aggregate.kind]
    return Feature(".".join(part for part in parts if part != "all"), feature.property, mapping, aggregate)


def _mismatch(what: str, mapping: Mapping, aggregate: Aggregate, has_readings: bool) -> str:
    """Return why property, map and aggregation do not go together; empty if they do."""
    kind, condition = aggregate.kind, aggregate.condition
    is_readings, is_packet = what == "~phy", what == "~pkt" and mapping.kind != "lengths"
    is_number = what in ("time", "wirelen") or mapping.kind == "lengths"
    problems = {
        "asks for readings ('~phy'), but general.use_phy is false": is_readings and not has_readings,
        "does not go with '~phy'; use aggregators.head(n)": is_readings and kind != "head",
        f"takes readings; use it with the property '~phy', not {what!r}": kind == "head" and not is_readings,
        f"after iat() needs the property 'time', not {what!r}": mapping.kind == "gaps" and what != "time",
        f"after len() needs the property '~pkt', not {what!r}": mapping.kind == "lengths" and what != "~pkt",
        f"needs numbers; {what!r} has none": not is_number and kind in REDUCTIONS,
        "does not go with whole packets; use a property of theirs": is_packet and kind == "n_unique",
    }
    if condition:
        is_address = isinstance(condition.value, str)
        question = f"asks a question that does not go with the property {what!r}"
        problems[question] = is_packet != bool(condition.field) or (not condition.field and is_address == is_number)
    return next((problem for problem, is_so in problems.items() if is_so), "")
