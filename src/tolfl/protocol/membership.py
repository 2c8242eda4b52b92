"""Who is in, who has failed and who is joining, as far as one device knows; and who does what (rule 4).

Beliefs only: no messages, no effects. Roles are functions of who is alive: nobody is appointed, nothing is counted up.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class Membership:
    """The beliefs of one device about its fleet."""

    __slots__ = (
        "_roles",
        "cluster",
        "dead",
        "drops_clusters",
        "id",
        "incarnation",
        "is_inside",
        "joiners",
        "left",
        "roster",
        "topology",
    )

    def __init__(self, device: int, incarnation: int, roster: Roster, topology: Topology, drops_clusters: bool) -> None:
        self.id, self.incarnation, self.roster, self.topology = device, incarnation, roster, topology
        self.cluster = topology.cluster_of[device]
        self.is_inside = False  #: whether this life of the device is in the roster
        self.drops_clusters = drops_clusters
        self.dead: frozenset[Life] = frozenset()
        self.left: frozenset[Life] = frozenset()  #: of the dead, those who said goodbye
        self.joiners: dict[int, int] = {}  #: never changed in place: messages carry it
        self._roles: Roles | None = None
        self._find_oneself()

    @property
    def roles(self) -> Roles:
        """Who does what, given who is alive."""
        if self._roles is None:
            self._roles = roles_of(self.topology, self.roster, self.dead, self.drops_clusters)
        return self._roles

    @property
    def has_losses(self) -> bool:
        """Whether somebody of the roster is known to be gone."""
        return len(self.roles.live) < len(self.roster.incarnations)

    def has_lost_more(self, dead: frozenset[Life]) -> bool:
        """Tell whether somebody of the roster who is alive as far as this device knows is among the dead of others."""
        return not (dead - self.dead).isdisjoint(self.roster.lives)

    def has_failed(self, life: Life) -> bool:
        """Tell whether a life is over: known dead, or followed by a later one in the roster (rule 3)."""
        return life in self.dead or life[1] < self.roster.incarnations.get(life[0], 0)

    def mark_failed(self, lives: frozenset[Life]) -> bool:
        """Note deaths; tell whether any is news. Nobody believes in the own death: that is for `start_incarnation`."""
        new = lives - self.dead - {(self.id, self.incarnation)}
        if not new:
            return False
        self.dead |= new
        self.joiners = {device: life for device, life in self.joiners.items() if (device, life) not in new}
        self._roles = None
        return True

    def cluster_in_roster(self, device: int, incarnation: int) -> int | None:
        """Return the cluster of a life that is in the roster."""
        return self.topology.cluster_of[device] if self.roster.incarnations.get(device) == incarnation else None

    def why_missing(self, device: int) -> str | None:
        """Return why a device of the roster cannot contribute, if there is a reason."""
        life = (device, self.roster.incarnations[device])
        if life in self.dead:
            return "left" if life in self.left else "failed"
        return "dropped" if device in self.roles.dropped else None

    def note_joiners(self, joiners: Mapping[int, int]) -> None:
        """Remember who wants in, until a roster has them."""
        new = {device: life for device, life in joiners.items() if self._is_new_joiner(device, life)}
        if new:
            self.joiners = {**self.joiners, **new}

    def _is_new_joiner(self, device: int, life: int) -> bool:
        known = max(self.roster.incarnations.get(device, -1), self.joiners.get(device, -1))
        return life > known and (device, life) not in self.dead

    def next_roster(self) -> Roster:
        """Return the live devices of this roster and those who want in (rule 2)."""
        live = self.roles.live
        if not self.joiners and len(live) == len(self.roster.incarnations):
            return self.roster
        going_on = {device: life for device, life in self.roster.incarnations.items() if device in live}
        return Roster(dict(sorted({**going_on, **self.joiners}.items())))

    def enter(self, roster: Roster) -> None:
        """Go on with the roster of another record."""
        if roster is self.roster and not self.joiners:
            return  # the usual case: nobody came, nobody went
        self.roster, self._roles = roster, None
        self.joiners = {
            device: life for device, life in self.joiners.items() if life > roster.incarnations.get(device, -1)
        }
        self._find_oneself()

    def believe(self, dead: frozenset[Life], spared: frozenset[Life] = frozenset()) -> None:
        """Take over the beliefs of others: their dead, and the life of those they count with."""
        self.dead = (self.dead - spared) | dead - {(self.id, self.incarnation)}
        self._roles = None
        self._find_oneself()

    def start_incarnation(self) -> None:
        """Accept to be dead and begin the next life (rule 3)."""
        self.dead |= {(self.id, self.incarnation)}
        self.incarnation += 1
        self.is_inside = False
        self._roles = None

    def is_smaller_side(self, their_dead: frozenset[Life]) -> bool:
        """Tell whether, of two sides that hold each other for dead, this one steps aside (rule 9)."""
        mine, theirs = self.roster.lives - self.dead, self.roster.lives - their_dead
        if len(mine) != len(theirs):
            return len(mine) < len(theirs)
        # Sides may overlap, so their lowest ids may be the same; in full they never are: each side lacks the other.
        return sorted(mine) > sorted(theirs)

    def neighbours(self) -> list[int]:
        """Return the peers on links at rest: the head; for a head its members and the heads next to it."""
        head = self.roles.head_of.get(self.cluster)
        if head != self.id:
            return [] if head is None else [head]
        return sorted({*self.members(), *self.heads_beside()})

    def members(self) -> list[int]:
        """Return the live devices of the own cluster but for this one."""
        return [device for device in self.roles.member_lists.get(self.cluster, ()) if device != self.id]

    def heads_beside(self) -> list[int]:
        """Return the heads before and after this one in the chain."""
        heads = self.roles.heads
        place = heads.index(self.id)
        return [*heads[max(0, place - 1) : place], *heads[place + 1 : place + 2]]

    def heads_to_tell(self) -> list[int]:
        """Return whom a head tells its version after a death: the first and the last head, and these tell all heads.

        A closer tells the heads in their order, so the first one knows if anybody does; the last one closes next. All
        heads together send fewer than 4k small messages, and no head is more than two of them away from another.
        """
        heads = self.roles.heads
        ends = (heads[0], heads[-1])
        return [head for head in (heads if self.id in ends else ends) if head != self.id]

    def _find_oneself(self) -> None:
        self.is_inside = self.roster.incarnations.get(self.id) == self.incarnation
        past = self.roster.incarnations.get(self.id, self.incarnation)
        if past < self.incarnation:
            self.dead |= {(self.id, past)}
            self._roles = None
