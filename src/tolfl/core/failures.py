"""Failure plans: who fails, in which round and phase, and whether they return. Data, not behaviour.

One grammar everywhere, entries joined by `;`. Rounds and devices count from 0, so `@50` means that 50 updates are done:

    client@50          server@50/chain       device:3@50        device:3@50-60  (back once 60 updates are done)
    cluster:2@50       cut:3|4,5@50-55       random:0.01        (per device and round)
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from tolfl.core.errors import PlanError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.topology import Topology


class Phase(StrEnum):
    """Where in its round a device dies: events of the state machine, not moments of a clock."""

    TRAIN = "train"  #: at the start of the round
    REPORT = "report"  #: before its contribution leaves
    CHAIN = "chain"  #: before its running mean or closed record leaves; a member: once its report is acknowledged
    DISTRIBUTE = "distribute"  #: the closer once one device has the record, others on receiving it


class Failure(msgspec.Struct, frozen=True):
    """One device dies in one round."""

    device: int
    round_index: int
    phase: Phase = Phase.TRAIN
    returns_at: int | None = None  #: restarted as soon as this many updates are done

    def __str__(self) -> str:
        phase = "" if self.phase is Phase.TRAIN else f"/{self.phase}"
        return f"device:{self.device}@{self.round_index}{_until(self.returns_at)}{phase}"


class Cut(msgspec.Struct, frozen=True):
    """No message passes between the two sides from one round until another."""

    side: tuple[int, ...]
    other_side: tuple[int, ...]
    round_index: int
    heals_at: int | None = None

    def __str__(self) -> str:
        sides = "|".join(",".join(map(str, side)) for side in (self.side, self.other_side))
        return f"cut:{sides}@{self.round_index}{_until(self.heals_at)}"

    @property
    def sides(self) -> str:
        """Who is on which side, as records tell it: `3 | 4,5`."""
        return " | ".join(",".join(map(str, side)) for side in (self.side, self.other_side))

    def separates(self, a: int, b: int) -> bool:
        """Tell whether messages between a and b are lost while the cut lasts."""
        return (a in self.side and b in self.other_side) or (b in self.side and a in self.other_side)


class FailurePlan(msgspec.Struct, frozen=True):
    """Everything that goes wrong in a run, decided before it starts.

    >>> plan = FailurePlan.parse("server@3/chain; device:4@5-7", Topology.contiguous(6, 2), n_rounds=10, seed=0)
    >>> [(f.device, f.round_index, f.phase.value, f.returns_at) for f in plan.failures]
    [(0, 3, 'chain', None), (4, 5, 'train', 7)]
    """

    failures: tuple[Failure, ...] = ()
    cuts: tuple[Cut, ...] = ()

    @classmethod
    def parse(cls, text: str, topology: Topology, n_rounds: int, seed: int) -> FailurePlan:
        """Read the grammar above; names become device ids, random failures are drawn by (seed, device, round)."""
        failures: list[Failure] = []
        cuts: list[Cut] = []
        for raw in filter(None, (entry.strip() for entry in text.split(";"))):
            entry = _Entry(raw, topology, n_rounds, seed)
            failures += entry.failures()
            cuts += entry.cuts()
        # A device dies once per life: what a plan says of a device that is gone already cannot happen.
        return cls(_possible(failures), tuple(cuts))

    @property
    def first_round(self) -> int | None:
        """The round that the plan first disturbs: runs that differ only in their plans agree before it."""
        rounds = [failure.round_index for failure in self.failures] + [cut.round_index for cut in self.cuts]
        return min(rounds, default=None)

    def __str__(self) -> str:
        """Return a plan in the grammar above that names devices alone: it means the same in every layout.

        >>> str(FailurePlan.parse("cluster:1@3; server@2-5/chain", Topology.contiguous(4, 2), 9, seed=0))
        'device:0@2-5/chain; device:2@3; device:3@3'
        """
        return "; ".join([*map(str, self.failures), *map(str, self.cuts)])

    def of_device(self, device: int) -> tuple[Failure, ...]:
        """Return the failures of one device, earliest first."""
        return tuple(failure for failure in self.failures if failure.device == device)


def _until(round_index: int | None) -> str:
    return "" if round_index is None else f"-{round_index}"


def _possible(failures: list[Failure]) -> tuple[Failure, ...]:
    kept: list[Failure] = []
    alive_from: dict[int, int | None] = {}
    for failure in sorted(failures, key=lambda f: (f.round_index, f.device)):
        back = alive_from.get(failure.device, 0)
        if back is None or failure.round_index < back:
            continue
        alive_from[failure.device] = failure.returns_at
        kept.append(failure)
    return tuple(kept)


_WHEN = re.compile(r"(?P<first>\d+)(-(?P<last>\d+))?")


class _Entry:
    """One entry of a plan, taken apart."""

    def __init__(self, text: str, topology: Topology, n_rounds: int, seed: int) -> None:
        self.text, self.topology, self.n_rounds, self.seed = text, topology, n_rounds, seed
        body, _, phase = text.partition("/")
        if phase and phase not in list(Phase):
            raise self._error(f"no phase {phase!r}; use one of {', '.join(Phase)}")
        self.phase = Phase(phase or "train")
        who, _, when = body.partition("@")
        self.kind, _, self.argument = who.strip().partition(":")
        self.when = when.strip()

    def _error(self, problem: str) -> PlanError:
        return PlanError(self.text, problem)

    def failures(self) -> list[Failure]:
        if self.kind == "cut":
            return []
        if self.kind == "random":
            return self._random()
        first, last = self._rounds()
        return [Failure(device, first, self.phase, last) for device in self._devices()]

    def cuts(self) -> list[Cut]:
        if self.kind != "cut":
            return []
        if "/" in self.text:
            raise self._error("a cut has no phase; it starts when the round before it is with everybody")
        sides = [self._ids(side) for side in self.argument.split("|")]
        if len(sides) == 1:
            sides.append([device for device in range(self.topology.n_devices) if device not in sides[0]])
        if len(sides) != 2 or not sides[1] or set(sides[0]) & set(sides[1]):
            raise self._error("name two sides without a common device, as in cut:3|4,5@50-55")
        first, last = self._rounds()
        return [Cut(tuple(sides[0]), tuple(sides[1]), first, last)]

    def _rounds(self) -> tuple[int, int | None]:
        match = _WHEN.fullmatch(self.when)
        if match is None:
            raise self._error("say when, as in @50 or @50-60")
        first, last = int(match["first"]), None if match["last"] is None else int(match["last"])
        if first >= self.n_rounds:
            raise self._error(
                f"round {first} never comes in a run of {self.n_rounds} rounds (0 to {self.n_rounds - 1})"
            )
        if last is not None and last <= first:
            raise self._error(f"a return at {last} is not after the failure at {first}")
        if last is not None and last > self.n_rounds:
            raise self._error(f"round {last} never comes in a run of {self.n_rounds} rounds; leave out the return")
        return first, last

    def _devices(self) -> list[int]:
        if self.kind in ("server", "client") and self.argument:
            raise self._error(f"{self.kind} takes no id; for another device write device:{self.argument}")
        match self.kind:
            case "server":
                return [self.topology.server]
            case "client":
                if self.topology.client is None:
                    raise self._error("there is no client in a run with one device")
                return [self.topology.client]
            case "device":
                return self._ids(self.argument)
            case "cluster":
                return list(self.topology.clusters[self._number(self.argument, "cluster", self.topology.n_clusters)])
        raise self._error("start with client, server, device:ID, cluster:ID, cut:IDS|IDS or random:PROBABILITY")

    def _ids(self, text: str) -> list[int]:
        return [self._number(part, "device", self.topology.n_devices) for part in text.split(",")]

    def _number(self, text: str, what: str, n: int) -> int:
        if not text.strip().isdecimal():
            raise self._error(f"{text.strip()!r} is not a {what} id")
        number = int(text)
        if number >= n:
            raise self._error(f"there is no {what} {number}; ids go from 0 to {n - 1}")
        return number

    def _random(self) -> list[Failure]:
        try:
            odds = float(self.argument)
        except ValueError:
            odds = -1.0
        if not 0 <= odds <= 1 or self.when:
            raise self._error("write a probability per device and round between 0 and 1, as in random:0.01")
        drawn = []
        for device in range(self.topology.n_devices):
            # One draw per device (its round of death is geometric), so more rounds never change an earlier death.
            died = int(rng_for(self.seed, Purpose.FAILURES, device).geometric(odds)) - 1 if odds else self.n_rounds
            if died < self.n_rounds:
                drawn.append(Failure(device, died, self.phase))
        return drawn
