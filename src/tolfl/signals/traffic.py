"""Simulated traffic: regions of nodes around a router, when each node sends and how much, and where chance comes from.

The laws are those of the Comms-ML simulator (github.com/mkatzef/comms-ml), with what it does beside its description:

- A node sends one packet at a time, and a gap counts from the *end* of the packet before.
- Air time is bits / 10^6 seconds, whatever the modulation says.
- `PeriodicHawkes` has a base rate of its own: the configuration's `arg_hawkes` means nothing to it, so "low" and "high"
  are one process. It draws blocks of 600 s with the base rate frozen at their start. A block begins at the end of the
  last packet of the one before, which forgets its excitation and cuts off the silence after it: the mean rate is a few
  per cent above twice the base rate.
- A plain Hawkes source that has run dry sends one last byte when the simulation ends; that packet is left out here.

The published files differ from their own description. They have no plain Hawkes source at all; region 2's second half
is bursty-high, not Hawkes; region 4 has 2 "low" and 3 "high" periodic Hawkes nodes, which are one process. From the
twelve statistics region 4 can then hardly be told from the others, so the default follows the description: plain Hawkes
sources with the base rates 0.15 (low) and 0.3 (high).

All draws are `rng_for(seed, Purpose.DATA, device=node, round_index=...)`. Other data sets draw with round index 0,
which is never used here; scenario, use and region have a field of their own in the round index: none overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.signals.windows import HEADER_BYTES, PACKET, UDP, Packets, WindowGrid

Float = NDArray[np.float64]

_FIRST = 2**24  #: beyond every round index that anybody else may use
_USES, _REGIONS = 16, 1024


class Scenario(IntEnum):
    """What is simulated. Numbers are part of every stored result: never renumber, only append."""

    TYPICAL = 0
    RATE = 1
    BLUETOOTH = 2
    RARE = 3


class Use(IntEnum):
    """What a draw is for. Numbers are part of every stored result: never renumber, only append."""

    TRAFFIC = 0
    TAPS = 1
    CHANNEL = 2
    BLUETOOTH = 3
    PLACE = 4
    FADING = 5
    NOISE = 6
    EMISSIONS = 7


def stream(
    seed: int, use: Use, *, region: int, node: int = 0, scenario: Scenario = Scenario.TYPICAL
) -> np.random.Generator:
    """Return the generator of one node (or of a whole region: node 0) for one use.

    >>> one, same = (stream(7, Use.TRAFFIC, region=2, node=3).integers(1000) for _ in range(2))
    >>> bool(one == same), bool(one == stream(7, Use.TRAFFIC, region=3, node=3).integers(1000))
    (True, False)
    """
    if not 0 <= region < _REGIONS:
        raise ValueError(f"region {region}; use 0 to {_REGIONS - 1}")
    index = _FIRST + (int(scenario) * _USES + int(use)) * _REGIONS + region
    return rng_for(seed, Purpose.DATA, device=node, round_index=index)


# -- when a node sends, and how much ----------------------------------------------------------------------------------

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
AIR_RATE_BPS = 1e6
MEAN_CHILDREN = 0.5  #: alpha of the excitation alpha * omega * exp(-omega * t): what one packet brings on, on average
DECAY_HZ = 1.0  #: omega
BLOCK_S = 600.0

#: How much is drawn at once. Fixed, so that a longer simulation starts with the packets of a shorter one.
_BURSTS_AT_ONCE, _FIRST_AT_ONCE, _BLOCKS_AT_ONCE = 4096, 8192, 256


class Transmissions(NamedTuple):
    """Start times, ascending, and payloads of what one node sends."""

    start_s: Float
    payload_bytes: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Bursty:
    """Bursts of 1 to `longest_burst` packets, all lengths alike; the gaps between and inside bursts are uniform.

    >>> sent = Bursty().transmissions(np.random.default_rng(0), 3600.0)
    >>> bool((np.diff(sent.start_s) > 0).all()), int(sent.payload_bytes.min()) >= 1
    (True, True)
    """

    inter_s: tuple[float, float] = (1.0, 120.0)
    intra_s: tuple[float, float] = (0.01, 0.07)
    longest_burst: int = 5
    payload_bytes: tuple[int, int] = (1, 1500)

    def transmissions(self, rng: np.random.Generator, duration_s: float) -> Transmissions:
        """Draw what a node sends from time 0 until `duration_s`."""
        sent: list[Transmissions] = []
        now = 0.0
        while now < duration_s:
            lengths = rng.integers(1, self.longest_burst + 1, _BURSTS_AT_ONCE)
            n_packets = int(lengths.sum())
            gaps = rng.uniform(*self.intra_s, n_packets)
            gaps[np.cumsum(lengths) - lengths] = rng.uniform(*self.inter_s, _BURSTS_AT_ONCE)
            payload = _payloads(self.payload_bytes, rng, n_packets)
            air_s = _air_s(payload)
            ends = now + np.cumsum(gaps + air_s)
            sent.append(Transmissions(ends - air_s, payload))
            now = float(ends[-1])
        return _until(duration_s, sent)

    def scaled(self, factor: float) -> Bursty:
        """Return the same source, `factor` times as busy: shorter gaps between bursts."""
        return replace(self, inter_s=(self.inter_s[0] / factor, self.inter_s[1] / factor))

    @property
    def mean_rate_hz(self) -> float:
        """How many packets per second to expect."""
        per_burst = (1 + self.longest_burst) / 2
        between = sum(self.inter_s) / 2 + (per_burst - 1) * sum(self.intra_s) / 2
        return per_burst / (between + per_burst * 8 * sum(self.payload_bytes) / 2 / AIR_RATE_BPS)


@dataclass(frozen=True, slots=True)
class Hawkes:
    """A self-exciting process: each packet brings on half a packet, about a second later; mean rate 2 `base_hz`."""

    base_hz: float = 0.05
    payload_bytes: tuple[int, int] = (1, 1500)

    def transmissions(self, rng: np.random.Generator, duration_s: float) -> Transmissions:
        """Draw it as a branching process, which has the same law (Hawkes and Oakes 1974).

        Piece by piece of time, so that the arrays stay in the processor's cache; who is born after the end of a piece
        has children in the next one.
        """
        piece_s = _FIRST_AT_ONCE / self.base_hz
        sent: list[Transmissions] = []
        waiting, free_s, begin_s = np.empty(0), 0.0, 0.0
        while begin_s < duration_s:
            end_s = begin_s + piece_s
            first = rng.uniform(begin_s, end_s, rng.poisson(self.base_hz * piece_s))
            born, waiting = _with_descendants(np.concatenate([waiting, first]), rng, end_s)
            payload = _payloads(self.payload_bytes, rng, len(born))
            starts = _one_at_a_time(born, _air_s(payload), free_s)
            if len(starts):
                free_s = float(starts[-1] + 8.0 * payload[-1] / AIR_RATE_BPS)
            sent.append(Transmissions(starts, payload))
            begin_s = end_s
        return _until(duration_s, sent)

    def scaled(self, factor: float) -> Hawkes:
        """Return the same source, `factor` times as busy."""
        return replace(self, base_hz=self.base_hz * factor)

    @property
    def mean_rate_hz(self) -> float:
        """How many packets per second to expect."""
        return self.base_hz / (1 - MEAN_CHILDREN)


@dataclass(frozen=True, slots=True)
class PeriodicHawkes:
    """A Hawkes process with a base rate that peaks at 18:00 and is lower at weekends; time 0 is Monday 00:00."""

    weekend_factor: float = 0.5
    scale: float = 1.0  #: multiplies the base rate; the published process has 1
    payload_bytes: tuple[int, int] = (1, 1500)

    def base_hz(self, time_s: float) -> float:
        """Return the base rate: 0.021 to 0.061 per second on weekdays, less at weekends."""
        swing = self.weekend_factor if time_s % WEEK_S >= 5 * DAY_S else 1.0
        rate = 0.021 + 0.02 * swing * (1.0 + math.sin(math.pi * (2.0 * (time_s % DAY_S) / DAY_S - 1.0)))
        return self.scale * rate

    @property
    def highest_base_hz(self) -> float:
        """The base rate at its highest."""
        return self.scale * (0.021 + 0.04 * max(1.0, self.weekend_factor))

    def transmissions(self, rng: np.random.Generator, duration_s: float) -> Transmissions:
        """Draw block after block: one starts where the one before ended.

        Many blocks get their candidates at once: clusters at the highest base rate, of which each keeps its share.
        """
        sent: list[Transmissions] = []
        now = 0.0
        while now < duration_s:
            offsets, marks, bounds = _clusters(self.highest_base_hz, _BLOCKS_AT_ONCE, rng)
            payload = _payloads(self.payload_bytes, rng, len(offsets))
            air_s = _air_s(payload)
            for begin, end in pairwise(bounds):
                if now >= duration_s:
                    break
                rows = begin + np.flatnonzero(marks[begin:end] < self.base_hz(now))
                if not len(rows):
                    now += BLOCK_S
                    continue
                starts = _one_at_a_time(now + offsets[rows], air_s[rows])
                sent.append(Transmissions(starts, payload[rows]))
                now = float(starts[-1] + air_s[rows[-1]])
        return _until(duration_s, sent)

    def scaled(self, factor: float) -> PeriodicHawkes:
        """Return the same source, `factor` times as busy."""
        return replace(self, scale=self.scale * factor)

    @property
    def mean_rate_hz(self) -> float:
        """How many packets per second to expect at its busiest."""
        return self.highest_base_hz / (1 - MEAN_CHILDREN)


Traffic = Bursty | Hawkes | PeriodicHawkes


def _with_descendants(first: Float, rng: np.random.Generator, end_s: float) -> tuple[Float, Float]:
    """Add children, grandchildren, ...; return who is born before `end_s`, in order, and who after, still childless."""
    born, later = [], []
    generation = first
    while len(generation):
        is_later = generation >= end_s
        later.append(generation[is_later])
        parents = generation[~is_later]
        born.append(parents)
        # Poisson(0.5) children for each parent: their sum is Poisson too, and each child's parent is then any of them.
        chosen = rng.integers(0, max(len(parents), 1), rng.poisson(MEAN_CHILDREN * len(parents)), dtype=np.int32)
        generation = parents[chosen] + rng.standard_exponential(len(chosen)) / DECAY_HZ
    return np.sort(np.concatenate(born or [first])), np.concatenate(later or [first])


def _one_at_a_time(arrivals: Float, air_s: Float, free_s: float = 0.0) -> Float:
    """Delay each arrival until the packet before it has ended (Lindley's recursion as a running maximum)."""
    before = np.cumsum(air_s) - air_s
    return before + np.maximum(np.maximum.accumulate(arrivals - before), free_s)


def _clusters(highest_hz: float, n_blocks: int, rng: np.random.Generator) -> tuple[Float, Float, list[int]]:
    """Return offsets inside their block, ascending, the mark of their first ancestor, and where each block begins."""
    n_first = rng.poisson(highest_hz * BLOCK_S * n_blocks)
    offsets = [rng.uniform(0.0, BLOCK_S, n_first)]
    blocks = [rng.integers(0, n_blocks, n_first)]
    marks = [rng.uniform(0.0, highest_hz, n_first)]
    while len(offsets[-1]):
        chosen = rng.integers(0, len(offsets[-1]), rng.poisson(MEAN_CHILDREN * len(offsets[-1])))
        children = offsets[-1][chosen] + rng.standard_exponential(len(chosen)) / DECAY_HZ
        kept = children < BLOCK_S
        offsets.append(children[kept])
        blocks.append(blocks[-1][chosen][kept])
        marks.append(marks[-1][chosen][kept])
    offset, block, mark = np.concatenate(offsets), np.concatenate(blocks), np.concatenate(marks)
    order = np.lexsort((offset, block))
    bounds = np.searchsorted(block[order], np.arange(n_blocks + 1))
    return offset[order], mark[order], bounds.tolist()


def _payloads(between: tuple[int, int], rng: np.random.Generator, n_packets: int) -> NDArray[np.int32]:
    return rng.integers(between[0], between[1] + 1, n_packets, dtype=np.int32)


def _air_s(payload_bytes: NDArray[np.int32]) -> Float:
    return payload_bytes.astype(np.float64) * (8.0 / AIR_RATE_BPS)


def _until(duration_s: float, sent: list[Transmissions]) -> Transmissions:
    if not sent:
        return Transmissions(np.empty(0), np.empty(0, np.int32))
    start_s = np.concatenate([piece.start_s for piece in sent])
    end = int(np.searchsorted(start_s, duration_s))
    return Transmissions(start_s[:end], np.concatenate([piece.payload_bytes for piece in sent])[:end])


# -- regions ----------------------------------------------------------------------------------------------------------

_MOST_PACKETS = 5e7  #: about 2 GB; more is a typing error in a configuration


@dataclass(frozen=True, slots=True)
class RegionNode:
    """One sender: the numbers of its own address and of the one it sends to, and when it sends (None: never)."""

    address: int
    destination: int
    traffic: Traffic | None


@dataclass(frozen=True, slots=True)
class Region:
    """A wireless network with nodes of its own. The number chooses its random draws."""

    number: int
    addresses: tuple[str, ...]
    nodes: tuple[RegionNode, ...]
    router: int  #: the number of the router's address

    def with_rate(self, factor: float) -> Region:
        """Return the same region with every node but the router `factor` times as busy."""
        nodes = tuple(
            node
            if node.address == self.router or node.traffic is None
            else replace(node, traffic=node.traffic.scaled(factor))
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
        index: node.traffic.transmissions(
            stream(seed, Use.TRAFFIC, region=region.number, node=index, scenario=scenario), duration_s
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
    packets = np.empty(sum(len(node_sent.start_s) for node_sent in sent.values()), PACKET)
    packets["protocol"] = UDP
    end = 0
    for index, node_sent in sent.items():
        own = packets[end : (end := end + len(node_sent.start_s))]
        own["time_s"], own["wire_bytes"] = node_sent.start_s, node_sent.payload_bytes + HEADER_BYTES
        own["source"], own["destination"] = region.nodes[index].address, region.nodes[index].destination
    # Stable, so that two packets of the same instant come in the order of their nodes on every machine.
    return packets.take(np.argsort(packets["time_s"], kind="stable"))


def _inside(sent: Transmissions, grid: WindowGrid, start_s: float) -> Transmissions:
    kept = grid.is_inside(sent.start_s, start_s)
    return Transmissions(sent.start_s[kept], sent.payload_bytes[kept])


def _check_size(region: Region, duration_s: float) -> None:
    expected = duration_s * sum(node.traffic.mean_rate_hz for node in region.nodes if node.traffic is not None)
    if expected > _MOST_PACKETS:
        raise SpecError(
            f"region {region.number} asks for about {expected:.2g} packets; simulate a shorter time or rarer traffic"
        )


BURSTY_LOW = Bursty(inter_s=(1.0, 120.0))
BURSTY_HIGH = Bursty(inter_s=(1.0, 10.0))
HAWKES_LOW = Hawkes(base_hz=0.15)
HAWKES_HIGH = Hawkes(base_hz=0.3)
PERIODIC = PeriodicHawkes()
#: `general.rng_seed` of the four published files. They choose streams here, they do not repeat the authors' draws.
PUBLISHED_SEEDS = (105, 1251, 1919, 208)
PUBLISHED_DURATION_S = 604_800.0


def default_regions() -> tuple[Region, Region, Region, Region]:
    """Return the regions of the benchmark: 1 to 3 are typical, 4 is anomalous."""
    return (
        star(1, 10 * (BURSTY_LOW,)),
        star(2, 10 * (BURSTY_LOW,) + 10 * (HAWKES_LOW,)),
        star(3, 10 * (BURSTY_LOW,) + 5 * (HAWKES_HIGH,)),
        star(4, 5 * (BURSTY_HIGH,) + 5 * (HAWKES_HIGH,)),
    )


def published_regions() -> tuple[Region, Region, Region, Region]:
    """Return the regions of the published configuration files."""
    return (
        star(1, 10 * (BURSTY_LOW,)),
        star(2, 10 * (BURSTY_LOW,) + 10 * (BURSTY_HIGH,)),
        star(3, 10 * (BURSTY_LOW,) + 5 * (PERIODIC,)),
        star(4, 5 * (PERIODIC,)),
    )


def star(number: int, devices: Sequence[Traffic]) -> Region:
    """Return a region where all devices send to a router, and the router to the first device.

    >>> region = star(1, [BURSTY_LOW, BURSTY_LOW])
    >>> [node.destination for node in region.nodes], region.router
    ([2, 2, 0], 2)
    """
    n_devices = len(devices)
    addresses = tuple(f"02:00:00:00:{number:02x}:{index:02x}" for index in range(n_devices + 1))
    nodes = [RegionNode(index, n_devices, traffic) for index, traffic in enumerate(devices)]
    return Region(number, addresses, (*nodes, RegionNode(n_devices, 0, BURSTY_HIGH)), router=n_devices)
