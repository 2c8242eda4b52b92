"""Histories: each closed round extends one, every model is named by its place in it, and the heaviest wins."""

from __future__ import annotations

import hashlib
from functools import cached_property

import msgspec

from tolfl.core.contribution import Pending
from tolfl.core.device_set import DeviceSet

#: What a driver means by the state of training: arrays, or a handle to what is not computed yet. Devices pass it on
#: unopened.
State = object

#: One incarnation of a device: its id and the number. A failure is of an incarnation and is final.
Incarnation = tuple[int, int]


class Version(msgspec.Struct, frozen=True, order=True, gc=False, omit_defaults=True):
    """The name of a model. Versions are totally ordered: more work first, and the larger one wins (rule 1)."""

    work: int  #: samples used in all rounds of the history
    round: int  #: updates done
    revision: int  #: roster changes without an update since the last round
    history: str  #: hash chain of the included sets and rosters
    model: str = ""  #: digest of the state, so that two models never have one name; empty where it is not computed yet

    def conflicts_with(self, other: Version) -> bool:
        """Return whether this version, the heavier one, is surely on another branch: to extend is to count further."""
        return (self.round, self.revision) <= (other.round, other.revision)

    def __str__(self) -> str:
        return f"{self.work}.{self.round}.{self.revision}.{self.history}"


class Roster(msgspec.Struct, frozen=True, dict=True):
    """Who takes part in a round, and in which incarnation (rule 2)."""

    incarnations: dict[int, int]

    @cached_property
    def devices(self) -> DeviceSet:
        """The ids alone."""
        return DeviceSet.of(self.incarnations)

    @cached_property
    def members(self) -> frozenset[Incarnation]:
        """The (id, incarnation) pairs."""
        return frozenset(self.incarnations.items())

    @cached_property
    def latest(self) -> int:
        """The latest incarnation of any device."""
        return max(self.incarnations.values(), default=0)

    @cached_property
    def digest(self) -> bytes:
        """Bytes that differ whenever the roster does."""
        later = sorted((device, incarnation) for device, incarnation in self.incarnations.items() if incarnation)
        return f"{self.devices.bits:x}/{later}".encode()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Roster) and self.digest == other.digest)


class ClosedRound(msgspec.Struct, frozen=True, dict=True):
    """The record that a closed round leaves behind, with the model it led to (rule 7)."""

    version: Version
    roster: Roster  #: of the next round
    state: State
    parent: str = ""  #: the history that this record extends
    included: DeviceSet = DeviceSet()
    missing: dict[int, str] = {}
    n_samples: int = 0
    is_over: bool = False  #: the run is finished: everybody holds the last model
    loss: float | None = None  #: mean over the round's samples, for its log alone; None where the driver has it later

    @classmethod
    def first(cls, roster: Roster, state: State) -> ClosedRound:
        """Return what everybody holds before the first round."""
        return cls(Version(0, 0, 0, ""), roster, state)

    def after(
        self,
        total: Pending,
        missing: dict[int, str],
        roster: Roster,
        state: State,
        model: str = "",
        loss: float | None = None,
    ) -> ClosedRound:
        """Return the record of the next round: `total` led to `state`, whose digest is `model`; `roster` goes on."""
        parent = self.version.history
        history = _name(parent, "update", total.included, roster)
        version = Version(self.version.work + total.n_samples, self.version.round + 1, 0, history, model)
        return ClosedRound(version, roster, state, parent, total.included, missing, total.n_samples, loss=loss)

    def with_roster(self, roster: Roster, is_over: bool = False) -> ClosedRound:
        """Return a record that changes the roster and not the model (rule 10)."""
        parent = self.version.history
        history = _name(parent, "over" if is_over else "roster", DeviceSet(), roster)
        version = msgspec.structs.replace(self.version, revision=self.version.revision + 1, history=history)
        return ClosedRound(version, roster, self.state, parent, is_over=is_over)

    @cached_property
    def is_consistent(self) -> bool:
        """Whether its name is the hash of its content, and its numbers fit each other."""
        version = self.version
        if version.revision == 0:
            kind, fits = "update", not self.is_over and version.round > 0 and 0 <= self.n_samples <= version.work
        else:
            kind, fits = "over" if self.is_over else "roster", not self.included and not self.n_samples
        name = _name(self.parent, kind, self.included, self.roster)
        return fits and bool(self.roster.incarnations) and version.history == name


def _name(parent: str, kind: str, included: DeviceSet, roster: Roster) -> str:
    # The roster is part of the name: two records with one name and two rosters would never be reconciled.
    digest = hashlib.sha256(f"{parent}/{kind}/{included.bits:x}/".encode())
    digest.update(roster.digest)
    return digest.hexdigest()[:16]
