"""Configuration files in the form of the original simulator, small enough for a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROUTER = "02:aa:00:00:00:ff"

Json = dict[str, Any]


def model(traffic_type: str = "bursty", inter: tuple[float, float] = (1, 120)) -> Json:
    return {
        "traffic_type": traffic_type,
        "tx_len_min_bytes": 1,
        "tx_len_max_bytes": 1500,
        "arg_bursty_n": 5,
        "arg_bursty_intra": [0.01, 0.07],
        "arg_bursty_inter": list(inter),
        "arg_hawkes": 0.15,
        "weekend_mult": 0.5,
    }


def node(address: str, traffic: list[Json]) -> Json:
    transmitter = {
        "ChannelBandwidth": "CBW160",
        "NumTransmitAntennas": 1.0,
        "NumSpaceTimeStreams": 1.0,
        "MCS": 1.0,
        "idleTime": 2e-05,
        "oversamplingFactor": 1.5,
        "FrameFormat": "VHT",
        "postProcFunc": "@(x, a) x",
    }
    config = {"hw_addr": address, "ip_addr": "192.168.1.2", "pos_xyz": [0, 0, 0], "tx_config": transmitter}
    return {"config": config, "traffic": traffic}


def towards(address: str, traffic_model: Json) -> Json:
    return {
        "dst": [address, "192.168.1.3", 8080, 10234],
        "model": traffic_model,
        "packet_source": "get_udp_packet",
    }


def sim_file(duration_s: float = 86_400) -> Json:
    """Three devices, one of each source, and a router."""
    devices = [f"02:aa:00:00:00:{index:02x}" for index in range(3)]
    kinds = ("bursty", "hawkes", "hawkes_periodic")
    nodes = [node(address, [towards(ROUTER, model(kind))]) for address, kind in zip(devices, kinds, strict=True)]
    nodes.append(node(ROUTER, [towards(devices[0], model(inter=(1, 10)))]))
    general = {"rng_seed": 105, "sim_time_s": duration_s, "output_pcap_dir": "./out1/pcaps/", "pcap_max_size": 100000}
    return {"general": general, "nodes": nodes}


def feature(what: str, aggregate: str, mapping: str | None = None) -> Json:
    return {"property": what, "map_function": mapping, "agg_function": aggregate}


def sampling_file(n_readings: int = 200) -> Json:
    """The features of the published files: twelve statistics and the router's readings."""
    iat = "aggregators.iat()"
    general = {
        "sample_duration_s": 1,
        "sample_interval_s": 60,
        "use_phy": True,
        "pos_xyz": [0, 0, 0],
        "output_name": "./out1/samples.npy",
    }
    features = [
        feature("time", "aggregators.count()"),
        *(feature("time", f"np.nan{name}", iat) for name in ("min", "max", "mean")),
        feature("~pkt", "aggregators.count_if(lambda x: TCP in x)"),
        feature("~pkt", "aggregators.count_if(lambda x: UDP in x)"),
        *(feature("wirelen", f"np.{name}") for name in ("min", "max", "mean")),
        *(feature(what, "aggregators.n_unique()") for what in ("wirelen", "src", "dst")),
        feature(
            "~phy",
            f"aggregators.head({n_readings})",
            f"aggregators.keep_if(lambda rec: rec[0].src == '{ROUTER}')",
        ),
    ]
    return {"general": general, "features": features}


def written(folder: Path, content: Json | str, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    return path
