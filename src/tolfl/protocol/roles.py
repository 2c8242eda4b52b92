"""Roles as functions of who is alive (rule 4): nobody is appointed, nothing is counted up."""

from __future__ import annotations

from functools import lru_cache

from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.protocol.history import Life, Roster


class Roles:
    """Who heads which cluster, in what order the chain runs, and who closes the round."""

    __slots__ = (
        "dropped",
        "earlier",
        "head_of",
        "heads",
        "live",
        "member_lists",
        "members",
        "next_head",
        "so_far",
        "takes_over",
    )

    def __init__(self, topology: Topology, roster: Roster, dead: frozenset[Life], drops_clusters: bool) -> None:
        # A later life that is over ends the earlier ones too.
        fallen = {device for device, life in dead if roster.incarnations.get(device, life + 1) <= life}
        self.head_of: dict[int, int] = {}  #: cluster -> its head
        self.members: dict[int, int] = {}  #: cluster -> bits of its live devices
        self.member_lists: dict[int, tuple[int, ...]] = {}  #: the same devices, first the head
        self.earlier: dict[int, int] = {}  #: cluster -> bits of the live devices of earlier clusters
        self.takes_over: dict[int, int] = {}  #: cluster -> the head of the roster, if that one is gone
        self.so_far: dict[int, int] = {}  #: cluster -> bits of the roster's devices up to it, dead ones too
        dropped = live = so_far = 0
        for index, cluster in enumerate(topology.clusters):
            present = [device for device in cluster if device in roster.incarnations]
            alive = [device for device in present if device not in fallen]
            so_far |= DeviceSet.of(present).bits
            self.so_far[index] = so_far
            if drops_clusters and present and present[0] in fallen:
                # Rule 11, the paper's: a dead head takes its cluster with it.
                dropped |= DeviceSet.of(alive).bits
                continue
            self.earlier[index] = live
            if not alive:
                continue
            self.head_of[index] = alive[0]
            if alive[0] != present[0]:
                self.takes_over[index] = present[0]
            self.members[index] = DeviceSet.of(alive).bits
            self.member_lists[index] = tuple(alive)
            live |= self.members[index]
        self.live, self.dropped = DeviceSet(live), DeviceSet(dropped)
        self.heads = tuple(self.head_of.values())
        self.next_head = dict(zip(self.heads, self.heads[1:], strict=False))

    @property
    def closer(self) -> int | None:
        """The last live head: it closes the round."""
        return self.heads[-1] if self.heads else None


@lru_cache(maxsize=256)
def roles_of(topology: Topology, roster: Roster, dead: frozenset[Life], drops_clusters: bool) -> Roles:
    """Return the roles; computed once per membership change and shared by all devices of a simulation."""
    return Roles(topology, roster, dead, drops_clusters)
