"""Membership as one device knows it: members, failed and joining devices, and the roles that follow (rule 4).

No messages, no effects. Roles are functions of which devices are alive: no device is appointed, nothing is counted up.

Failure is a horizon: per peer only the last failed incarnation is kept, and it ends all earlier ones. So what is kept
and sent never grows beyond one entry per device, however often devices fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.protocol.history import Incarnation, Roster

#: How far beyond what is known of a device its reported incarnation may be. Nobody restarts so often, and a number
#: near the end of all numbers would leave the device none to come back with.
LEASH = 2**20
#: By how much that grows in every beat in which it was too short: devices that were told different false incarnations
#: agree again.
_SLACK = 4 * LEASH


class DeviceRoles:
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
        "outside",
        "so_far",
        "takes_over",
    )

    def __init__(self, topology: Topology, roster: Roster, failed: DeviceSet, drops_clusters: bool) -> None:
        fallen = set(failed)
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
        #: everybody else, in id order: failed, not in the roster, or dropped
        self.outside = tuple(device for device in sorted(topology.cluster_of) if not live >> device & 1)

    @property
    def closer(self) -> int | None:
        """The last live head: it closes the round."""
        return self.heads[-1] if self.heads else None


@lru_cache(maxsize=256)
def roles_of(topology: Topology, roster: Roster, failed: DeviceSet, drops_clusters: bool) -> DeviceRoles:
    """Return the roles; computed once per membership change and shared by all devices of a simulation."""
    return DeviceRoles(topology, roster, failed, drops_clusters)


class Membership:
    """The beliefs of one device about its fleet."""

    __slots__ = (
        "_horizon",
        "_is_strained",
        "_leash",
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
        self.is_inside = False  #: whether this incarnation of the device is in the roster
        self.drops_clusters = drops_clusters
        # Mappings are never changed in place: copies of a device share them, and messages carry them.
        self._horizon: Mapping[int, int] = {}  #: the last failed incarnation of a device, unless the roster has a later
        self.dead: frozenset[Incarnation] = frozenset()  #: the same as a set, for messages
        self.left: Mapping[int, int] = {}  #: the last incarnation of a device that left
        self.joiners: Mapping[int, int] = {}
        self._leash, self._is_strained = LEASH, False  #: and whether something was beyond it since the last beat
        self._roles: DeviceRoles | None = None
        self._find_oneself()

    @property
    def roles(self) -> DeviceRoles:
        """Who does what, given who is alive."""
        if self._roles is None:
            present = self.roster.incarnations
            failed = (device for device, last in self._horizon.items() if present.get(device, last + 1) <= last)
            self._roles = roles_of(self.topology, self.roster, DeviceSet.of(failed), self.drops_clusters)
        return self._roles

    @property
    def has_losses(self) -> bool:
        """Whether somebody of the roster is known to be gone."""
        return len(self.roles.live) < len(self.roster.incarnations)

    def has_lost_more(self, dead: frozenset[Incarnation]) -> bool:
        """Return whether a roster member that this device takes for alive is among the dead of others."""
        for device, incarnation in dead - self.dead:
            present = self.roster.incarnations.get(device)
            if present is not None and present <= incarnation and not self.has_failed((device, present)):
                return True
        return False

    def has_failed(self, member: Incarnation) -> bool:
        """Return whether an incarnation is over: it or a later one failed, or the roster has a later one (rule 3)."""
        device, incarnation = member
        return incarnation <= self._horizon.get(device, -1) or incarnation < self.roster.incarnations.get(device, 0)

    def mark_failed(self, incarnations: frozenset[Incarnation], is_seen: bool = False) -> bool:
        """Note deaths; return whether that changes who is alive or joining.

        `is_seen`: by this device itself, not reported by others. Nobody believes in the own death: that is for
        `start_incarnation`.
        """
        new = {
            device: incarnation
            for device, incarnation in sorted(incarnations - self.dead)
            if device != self.id
            and not self.has_failed((device, incarnation))
            and (is_seen or self.is_near(device, incarnation))
        }
        if not new:
            return False
        live, joiners = self.roles.live, self.joiners
        self._set_horizon({**self._horizon, **new})
        self.joiners = {
            device: incarnation for device, incarnation in joiners.items() if not self.has_failed((device, incarnation))
        }
        return self.roles.live != live or len(self.joiners) < len(joiners)

    def mark_left(self, member: Incarnation) -> None:
        """Note that a device left."""
        self.left = {**self.left, member[0]: member[1]}

    def pass_beat(self) -> None:
        """Give more leash after a beat in which it was too short, and the usual one after any other."""
        self._leash = self._leash + _SLACK if self._is_strained else LEASH
        self._is_strained = False

    def is_near(self, device: int, incarnation: int) -> bool:
        """Return whether a device can have come to an incarnation, as far as is known here."""
        if incarnation <= LEASH:
            return True
        beliefs = (self.roster.incarnations, self._horizon, self.joiners, {self.id: self.incarnation})
        is_near = incarnation <= max(belief.get(device, 0) for belief in beliefs) + self._leash
        self._is_strained |= not is_near
        return is_near

    def own_death_in(self, dead: frozenset[Incarnation]) -> int | None:
        """Return the latest incarnation of this device that others declared failed, if it is the present or a later."""
        reported = [
            incarnation
            for device, incarnation in dead - self.dead
            if device == self.id and self.is_near(device, incarnation)
        ]
        latest = max(reported, default=-1)
        return latest if latest >= self.incarnation else None

    def cluster_in_roster(self, device: int, incarnation: int) -> int | None:
        """Return the cluster of an incarnation that is in the roster."""
        return self.topology.cluster_of[device] if self.roster.incarnations.get(device) == incarnation else None

    def why_missing(self, device: int) -> str | None:
        """Return why a device of the roster cannot contribute, if there is a reason."""
        incarnation = self.roster.incarnations[device]
        if incarnation <= self._horizon.get(device, -1) and self.left.get(device) != incarnation:
            return "failed"
        if incarnation <= self._horizon.get(device, -1):
            # Whoever is dropped sends a leave message to those who count on it all the same.
            return "left" if self.topology.cluster_of[device] in self.roles.earlier else "dropped"
        return "dropped" if device in self.roles.dropped else None

    def note_joiners(self, joiners: Mapping[int, int]) -> None:
        """Remember who is joining, until a roster has them."""
        new = {
            device: incarnation for device, incarnation in joiners.items() if self._is_new_joiner(device, incarnation)
        }
        if new:
            self.joiners = {**self.joiners, **new}

    def _is_new_joiner(self, device: int, incarnation: int) -> bool:
        known = max(self.roster.incarnations.get(device, -1), self.joiners.get(device, -1))
        is_possible = device != self.id and self.is_near(device, incarnation)
        return incarnation > known and is_possible and not self.has_failed((device, incarnation))

    def next_roster(self) -> Roster:
        """Return the live devices of this roster and those that are joining (rule 2)."""
        live = self.roles.live
        if not self.joiners and len(live) == len(self.roster.incarnations):
            return self.roster
        going_on = {device: incarnation for device, incarnation in self.roster.incarnations.items() if device in live}
        return Roster(dict(sorted({**going_on, **self.joiners}.items())))

    def enter(self, roster: Roster) -> None:
        """Go on with the roster of another record."""
        if roster is self.roster and not self.joiners:
            return  # the usual case: nobody came, nobody went
        self.roster, self._roles = roster, None
        present = roster.incarnations
        self.joiners = {
            device: incarnation for device, incarnation in self.joiners.items() if incarnation > present.get(device, -1)
        }
        self._set_horizon(self._horizon)
        self._find_oneself()

    def believe(self, dead: frozenset[Incarnation], spared: Roster) -> None:
        """Take over the beliefs of others: their dead, and the incarnation of those they count with."""
        counted = spared.incarnations
        horizon = {
            device: incarnation
            for device, incarnation in self._horizon.items()
            if incarnation < counted.get(device, incarnation + 1)
        }
        for device, incarnation in dead:
            if device != self.id and incarnation > horizon.get(device, -1) and self.is_near(device, incarnation):
                horizon[device] = incarnation
        self._set_horizon(horizon)
        self._find_oneself()

    def start_incarnation(self, past: int) -> None:
        """Accept that this device is declared failed, or replaced, up to a past incarnation, and begin the next one."""
        past = max(past, self.incarnation)
        self.incarnation = past + 1
        self.is_inside = False
        self._set_horizon({**self._horizon, self.id: past})

    @property
    def is_replaced(self) -> bool:
        """Whether the roster has a later incarnation of this device than the present."""
        return self.roster.incarnations.get(self.id, -1) > self.incarnation

    def _set_horizon(self, horizon: Mapping[int, int]) -> None:
        """Keep who has failed, without those whom the roster has in a later incarnation."""
        present = self.roster.incarnations
        self._horizon = {
            device: incarnation for device, incarnation in horizon.items() if incarnation >= present.get(device, -1)
        }
        self.dead, self._roles = frozenset(self._horizon.items()), None

    def is_smaller_side(self, their_dead: frozenset[Incarnation]) -> bool:
        """Return whether, of two sides that suspect each other, this one rejoins (rule 9)."""
        mine = [member for member in sorted(self.roster.members) if not self.has_failed(member)]
        horizon: dict[int, int] = {}
        for device, incarnation in their_dead:
            horizon[device] = max(incarnation, horizon.get(device, -1))
        theirs = [member for member in sorted(self.roster.members) if member[1] > horizon.get(member[0], -1)]
        if len(mine) != len(theirs):
            return len(mine) < len(theirs)
        # Sides may overlap, so their lowest ids may be the same; in full they never are: each side lacks the other.
        return mine > theirs

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
        """Return to whom a head sends its version after a death: to the first and last head, and these to all heads.

        A closer sends to the heads in their order, so the first one knows if any does; the last one closes next. All
        heads together send fewer than 4k small messages, and no head is more than two of them away from another.
        """
        heads = self.roles.heads
        ends = (heads[0], heads[-1])
        return [head for head in (heads if self.id in ends else ends) if head != self.id]

    def _find_oneself(self) -> None:
        self.is_inside = self.roster.incarnations.get(self.id) == self.incarnation
        past = self.roster.incarnations.get(self.id, self.incarnation)
        if past < self.incarnation:
            self._set_horizon({**self._horizon, self.id: max(past, self._horizon.get(self.id, past))})
