"""Clusters of devices and the chain of their heads: whom a device reports to, given who has failed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import msgspec

from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec


class Topology(msgspec.Struct, frozen=True, dict=True, cache_hash=True):
    """Disjoint clusters in chain order; inside a cluster, the order in which devices may become its head.

    >>> Topology.contiguous(n_devices=5, n_clusters=2).clusters
    ((0, 1, 2), (3, 4))
    """

    clusters: tuple[tuple[int, ...], ...]

    @classmethod
    def contiguous(cls, n_devices: int, n_clusters: int) -> Topology:
        """Return clusters of neighbouring ids, the first (n_devices mod n_clusters) of them one larger."""
        if n_devices < 1:
            raise SpecError(f"{n_devices} devices; at least 1 is needed")
        if n_clusters < 1:
            raise SpecError(f"{n_clusters} clusters; at least 1 is needed")
        if n_clusters > n_devices:
            raise SpecError(f"{n_clusters} clusters for {n_devices} devices; use at most {n_devices}")
        size, larger = divmod(n_devices, n_clusters)
        clusters, first = [], 0
        for cluster in range(n_clusters):
            last = first + size + (cluster < larger)
            clusters.append(tuple(range(first, last)))
            first = last
        return cls(tuple(clusters))

    @classmethod
    def parse(cls, text: str, n_devices: int) -> Topology:
        """Read a layout such as `1,0|2,3`: clusters by bars, in each the head first.

        >>> Topology.parse("1,0|2,3", n_devices=4).clusters
        ((1, 0), (2, 3))
        """
        try:
            clusters = tuple(tuple(int(part) for part in cluster.split(",")) for cluster in text.split("|"))
        except ValueError:
            raise SpecError(f"topology {text!r}: write ids as in '1,0|2,3', clusters separated by |") from None
        ids = sorted(device for cluster in clusters for device in cluster)
        if ids != list(range(n_devices)):
            raise SpecError(f"topology {text!r}: name each of the {n_devices} devices (0 to {n_devices - 1}) once")
        return cls(clusters)

    @cached_property
    def n_devices(self) -> int:
        """How many devices there are."""
        return len(self.cluster_of)

    @property
    def n_clusters(self) -> int:
        """How many clusters there are (the paper's k)."""
        return len(self.clusters)

    @cached_property
    def cluster_of(self) -> dict[int, int]:
        """The index of each device's cluster."""
        return {device: index for index, cluster in enumerate(self.clusters) for device in cluster}

    @property
    def server(self) -> int:
        """The device that failure plans call `server`: the head of cluster 0."""
        return self.clusters[0][0]

    @property
    def client(self) -> int | None:
        """The device that failure plans call `client`: the next one after the server; None if there is none."""
        order = [device for cluster in self.clusters for device in cluster]
        return order[1] if len(order) > 1 else None

    def heads(self, live: Iterable[int]) -> list[int]:
        """Return the first live device of every cluster that has one, in chain order."""
        alive = live if isinstance(live, set | frozenset) else set(live)
        firsts = (next((device for device in cluster if device in alive), None) for cluster in self.clusters)
        return [head for head in firsts if head is not None]


#: The paper's k for its pictures.
_USUAL_CLUSTERS = 5


def asked_layout(spec: RunSpec) -> Topology:
    """Return the clusters that a specification asks for, whatever the scheme makes of them."""
    if spec.topology:
        return Topology.parse(spec.topology, spec.devices)
    asked = min(_USUAL_CLUSTERS, spec.devices) if spec.clusters is None else spec.clusters
    return Topology.contiguous(spec.devices, asked)
