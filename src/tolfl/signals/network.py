"""Nodes around a router, and the packets that they send."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tolfl.core.errors import SpecError
from tolfl.signals.packets import UDP, Packets
from tolfl.signals.streams import Scenario, Use, stream
from tolfl.signals.traffic import Traffic, Transmissions, mean_rate_hz, scaled, transmissions
from tolfl.signals.windows import WindowGrid

_MOST_PACKETS = 5e7  #: about 2 GB; more is a slip of the pen in a configuration


@dataclass(frozen=True, slots=True)
class Node:
    """One sender: the numbers of its own address and of the one it sends to, and when it sends (None: never)."""

    address: int
    destination: int
    traffic: Traffic | None


@dataclass(frozen=True, slots=True)
class Region:
    """A wireless network with nodes of its own. The number chooses its random draws."""

    number: int
    addresses: tuple[str, ...]
    nodes: tuple[Node, ...]
    router: int  #: the number of the router's address

    def with_rate(self, factor: float) -> Region:
        """Return the same region with every node but the router `factor` times as busy."""
        nodes = tuple(
            node if node.address == self.router or node.traffic is None else _busier(node, node.traffic, factor)
            for node in self.nodes
        )
        return replace(self, nodes=nodes)


def simulate(
    region: Region,
    duration_s: float,
    seed: int,
    scenario: Scenario = Scenario.TYPICAL,
    grid: WindowGrid | None = None,
) -> Packets:
    """Return what the nodes of a region send from time 0 (Monday 00:00) until `duration_s`, in order of time.

    A node's packets depend on the seed, the scenario, the region's number and the node's place in it, not on the other
    nodes. With a grid, only the packets inside its windows (from the first packet on) come back: the same ones, without
    the price of merging and sorting the others.
    """
    _check_size(region, duration_s)
    sent = {
        index: transmissions(
            node.traffic, stream(seed, Use.TRAFFIC, region=region.number, node=index, scenario=scenario), duration_s
        )
        for index, node in enumerate(region.nodes)
        if node.traffic is not None
    }
    sent = {index: node_sent for index, node_sent in sent.items() if len(node_sent.start_s)}
    if grid is not None and sent:
        start_s = min(float(node_sent.start_s[0]) for node_sent in sent.values())
        sent = {index: _inside(node_sent, grid, start_s) for index, node_sent in sent.items()}
    return _merged(region, sent)


def _merged(region: Region, sent: dict[int, Transmissions]) -> Packets:
    if not sent:
        none = np.empty(0, np.int32)
        return Packets(np.empty(0), none, none, none, np.empty(0, np.uint8))
    time_s = np.concatenate([node_sent.start_s for node_sent in sent.values()])
    # Stable, so that two packets of the same instant come in the order of their nodes on every machine.
    order = np.argsort(time_s, kind="stable")
    counts = [len(node_sent.start_s) for node_sent in sent.values()]
    sources = np.array([region.nodes[index].address for index in sent], np.int32)
    destinations = np.array([region.nodes[index].destination for index in sent], np.int32)
    return Packets(
        time_s[order],
        np.concatenate([node_sent.payload_bytes for node_sent in sent.values()])[order],
        np.repeat(sources, counts)[order],
        np.repeat(destinations, counts)[order],
        np.full(len(time_s), UDP, np.uint8),
    )


def _inside(sent: Transmissions, grid: WindowGrid, start_s: float) -> Transmissions:
    kept = grid.is_inside(sent.start_s, start_s)
    return Transmissions(sent.start_s[kept], sent.payload_bytes[kept])


def _busier(node: Node, traffic: Traffic, factor: float) -> Node:
    return replace(node, traffic=scaled(traffic, factor))


def _check_size(region: Region, duration_s: float) -> None:
    expected = duration_s * sum(mean_rate_hz(node.traffic) for node in region.nodes if node.traffic is not None)
    if expected > _MOST_PACKETS:
        raise SpecError(
            f"region {region.number} asks for about {expected:.2g} packets; simulate a shorter time or rarer traffic"
        )
