"""What a layout costs: messages and bytes of a round, its time, and the time that a failure takes.

The formulas are those of the simulator, without running it: a round lasts from one closed model to the next. The new
model goes out (to heads, then to members), everybody trains, members report, the running mean goes from head to head.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tolfl.core.errors import SpecError
from tolfl.core.spec import ModelSpec
from tolfl.core.topology import Topology

Uplink = Literal["serial", "parallel"]
UPLINKS: tuple[Uplink, Uplink] = ("serial", "parallel")


@dataclass(frozen=True)
class Network:
    """Devices and links, as far as costs go."""

    train_s: tuple[float, ...]  #: local training in a round, by device
    model_bytes: int
    bandwidth_bps: tuple[float, ...]  #: by device; a transfer has the speed of the slower end
    latency_s: float
    detection_s: float  #: from a crash until everybody knows

    def __post_init__(self) -> None:
        if len(self.bandwidth_bps) != self.n_devices:
            raise SpecError(
                f"{len(self.bandwidth_bps)} bandwidths for {self.n_devices} devices; give one for all, or one each"
            )
        for value in self.bandwidth_bps:
            if not (value > 0 and math.isfinite(value)):
                raise SpecError(f"bandwidth {value:g} bit/s; use a number above 0")

    @property
    def n_devices(self) -> int:
        """How many devices there are."""
        return len(self.train_s)

    def transfer_s(self, source: int, destination: int) -> float:
        """Return how long one model keeps a link busy."""
        return self.model_bytes * 8 / min(self.bandwidth_bps[source], self.bandwidth_bps[destination])

    def hop_s(self, source: int, destination: int) -> float:
        """Return how long one model is on its way."""
        return self.transfer_s(source, destination) + self.latency_s


def model_bytes(n_features: int, model: ModelSpec) -> int:
    """Return the size of the autoencoder that travels, in float32.

    >>> model_bytes(112, ModelSpec())
    198720
    """
    widths = [n_features, *model.hidden, model.code, *reversed(model.hidden), n_features]
    return 4 * sum(before * after + after for before, after in pairwise(widths))


def messages_per_round(scheme: str, n_devices: int, n_clusters: int) -> dict[str, int]:
    """Return the messages with a model inside, under every accounting of docs/reference/run-directory.md.

    >>> messages_per_round("tol-fl", 10, 5)
    {'unicast': 18, 'broadcast': 10, 'per_cluster': 14, 'hops': 14, 'paper': 15}
    """
    up, hops = n_devices - 1, 2 * (n_devices - n_clusters) + n_clusters - 1
    return {
        "unicast": 2 * up,
        "broadcast": up + 1,
        "per_cluster": up + n_clusters,
        "hops": hops,
        "paper": hops + {"fl": 2, "sbt": 0}.get(scheme, 1),
    }


def round_seconds(topology: Topology, network: Network, uplink: Uplink) -> float:
    """Return the time from one closed round to the next while nobody fails.

    With equal devices, training c and a hop h = transfer + latency this is c + in-cluster reception + (k - 1) h + the
    distribution: h for a star and a chain, 2 h for everything between. Serial reception takes (N/k - 1) transfers and
    a latency, so the quickest k is near the root of N; parallel reception takes one hop, so the quickest is a star.
    """
    start_s = _delivery(topology, network)
    ready_s = [start + train for start, train in zip(start_s, network.train_s, strict=True)]
    passed_on_s, before = 0.0, -1
    for head, *members in topology.clusters:
        sent = [(ready_s[member], member) for member in members]
        if before >= 0:
            sent.append((passed_on_s, before))
        passed_on_s, before = max([ready_s[head], *_arrivals(head, sent, network, uplink)]), head
    return passed_on_s


def _delivery(topology: Topology, network: Network) -> list[float]:
    """Return when each device has the model that the last head has just closed."""
    closer = topology.clusters[-1][0]
    delivered_s = [0.0] * network.n_devices
    for head, *members in topology.clusters:
        delivered_s[head] = 0.0 if head == closer else network.hop_s(closer, head)
        for member in members:
            delivered_s[member] = delivered_s[head] + network.hop_s(head, member)
    return delivered_s


def _arrivals(receiver: int, sent: Iterable[tuple[float, int]], network: Network, uplink: Uplink) -> list[float]:
    """Return when models are with their receiver, who with serial uplinks takes one at a time."""
    free_s, arrivals = 0.0, []
    for sent_s, source in sorted(sent):
        begins_s = max(sent_s, free_s) if uplink == "serial" else sent_s
        free_s = begins_s + network.transfer_s(source, receiver)
        arrivals.append(free_s + network.latency_s)
    return arrivals


def stall_seconds(topology: Topology, network: Network, uplink: Uplink, policy: str) -> dict[str, float]:
    """Return how much longer a round takes when a client or a head crashes, mean over heads.

    Everybody waits for the detection. A head is taken to die with its cluster's contributions in hand: with `elect` its
    members then report again, to the next of them, and the head before it sends the running mean again. One that dies
    earlier costs less, down to nothing: it is noticed before anybody waits for it. The last head may cost more in the
    moment in which only some devices have the new model; that moment is short and is not counted.
    """
    redone = [_redone_s(topology, network, uplink, place) for place in range(topology.n_clusters)]
    mean_s = sum(redone) / len(redone) if policy == "elect" else 0.0
    return {"client": network.detection_s, "server": network.detection_s + mean_s}


def _redone_s(topology: Topology, network: Network, uplink: Uplink, place: int) -> float:
    """Return how long it takes until the next device of a cluster has what its dead head had."""
    _, *left = topology.clusters[place]
    if not left:
        return 0.0  # the chain goes around the gap, which saves the hop that it costs
    sent = [(0.0, member) for member in left[1:]]
    if place:
        sent.append((0.0, topology.clusters[place - 1][0]))
    return max([0.0, *_arrivals(left[0], sent, network, uplink)])


def share_cut_off(n_devices: int, n_clusters: int, policy: str) -> float:
    """Return which share of the survivors stops training with the fleet when a head is lost, mean over heads.

    >>> share_cut_off(10, 5, "drop"), share_cut_off(10, 5, "elect"), share_cut_off(10, 1, "freeze")
    (0.1111111111111111, 0.0, 1.0)
    """
    if policy == "elect":
        return 0.0
    return (n_devices / n_clusters - 1) / (n_devices - 1)


def usual_clusters(n_devices: int) -> tuple[int, ...]:
    """Return a few numbers of clusters from star to chain: 1, 2, the root of N (quickest, serial), N / 2, N.

    >>> usual_clusters(10)
    (1, 2, 3, 5, 10)
    """
    return tuple(sorted({1, min(2, n_devices), round(math.sqrt(n_devices)), max(1, n_devices // 2), n_devices}))
