"""Failure plans: who fails, in which round and phase, and whether they return. Data, not behaviour.

One grammar everywhere, entries joined by `;`. Rounds and devices count from 0, so `@50` means that 50 updates are done:

    client@50          server@50/chain       device:3@50        device:3@50-60  (back once 60 updates are done)
    cluster:2@50       cut:3|4,5@50-55       random:0.01        (per device and round)
    head@50            head:2@50             closer@50          (the first heads of clusters 0 and 2, and of the last)

Where the rounds belong to stages, a round may be named by its stage; rounds of a stage count from 0, too:

    head@thresholds:2                        device:3@scaling:0-thresholds:1/chain
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from tolfl.core.errors import PlanError, SpecError, did_you_mean
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
        """The devices on each side, as records write them: `3 | 4,5`."""
        return " | ".join(",".join(map(str, side)) for side in (self.side, self.other_side))

    def separates(self, a: int, b: int) -> bool:
        """Return whether messages between a and b are lost while the cut lasts."""
        return (a in self.side and b in self.other_side) or (b in self.side and a in self.other_side)

    def lasts(self, round_index: int) -> bool:
        """Return whether messages are lost in a round."""
        return self.round_index <= round_index and (self.heals_at is None or round_index < self.heals_at)


class FailurePlan(msgspec.Struct, frozen=True):
    """Everything that goes wrong in a run, decided before it starts.

    >>> plan = FailurePlan.parse("server@3/chain; device:4@5-7", Topology.contiguous(6, 2), n_rounds=10, seed=0)
    >>> [(f.device, f.round_index, f.phase.value, f.returns_at) for f in plan.failures]
    [(0, 3, 'chain', None), (4, 5, 'train', 7)]
    """

    failures: tuple[Failure, ...] = ()
    cuts: tuple[Cut, ...] = ()

    @classmethod
    def parse(
        cls, text: str, topology: Topology, n_rounds: int, seed: int, stages: Sequence[tuple[str, int]] = ()
    ) -> FailurePlan:
        """Read the grammar above; names become device ids, random failures are drawn by (seed, device, round).

        `stages` are the name and the number of rounds of each stage, in order.

        >>> topology, stages = Topology.contiguous(6, 2), [("scaling", 2), ("thresholds", 3)]
        >>> str(FailurePlan.parse("closer@thresholds:2", topology, n_rounds=5, seed=0, stages=stages))
        'device:3@4'
        """
        failures: list[Failure] = []
        cuts: list[Cut] = []
        for entry in filter(None, (part.strip() for part in text.split(";"))):
            try:
                found = _read(entry, topology, n_rounds, seed, stages)
            except SpecError as problem:
                raise PlanError(entry, str(problem)) from None
            failures += [one for one in found if isinstance(one, Failure)]
            cuts += [one for one in found if isinstance(one, Cut)]
        # A device dies once per incarnation: what a plan says of a device that is gone already cannot happen.
        return cls(_possible(failures), tuple(cuts))

    @property
    def first_round(self) -> int | None:
        """The round that the plan first disturbs: runs that differ only in their plans agree before it."""
        rounds = [failure.round_index for failure in self.failures] + [cut.round_index for cut in self.cuts]
        return min(rounds, default=None)

    @property
    def returns(self) -> dict[int, frozenset[int]]:
        """Who comes back, by the number of updates that are done then.

        >>> FailurePlan((Failure(4, 5, returns_at=7), Failure(1, 2, returns_at=7), Failure(2, 3))).returns
        {7: frozenset({1, 4})}
        """
        back: dict[int, frozenset[int]] = {}
        for failure in self.failures:
            if failure.returns_at is not None:
                back[failure.returns_at] = back.get(failure.returns_at, frozenset()) | {failure.device}
        return back

    def __str__(self) -> str:
        """Return the plan with devices and rounds by number alone: it means the same in every layout.

        >>> str(FailurePlan.parse("cluster:1@3; server@2-5/chain", Topology.contiguous(4, 2), 9, seed=0))
        'device:0@2-5/chain; device:2@3; device:3@3'
        """
        return "; ".join([*map(str, self.failures), *map(str, self.cuts)])

    def of_device(self, device: int) -> tuple[Failure, ...]:
        """Return the failures of one device, earliest first."""
        return tuple(failure for failure in self.failures if failure.device == device)

    def is_cut(self, a: int, b: int, round_index: int) -> bool:
        """Return whether no message passes between two devices in a round."""
        return any(cut.separates(a, b) and cut.lasts(round_index) for cut in self.cuts)


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


# -- the grammar ------------------------------------------------------------------------------------------------

_ROUND = r"((?P<{0}_stage>[a-z][a-z_]*):)?(?P<{0}>[0-9]{{1,18}})"
_WHEN = re.compile(f"{_ROUND.format('first')}(-{_ROUND.format('last')})?")
_NUMBER = re.compile(r"[0-9]{1,18}")


def _read(
    entry: str, topology: Topology, n_rounds: int, seed: int, stages: Sequence[tuple[str, int]]
) -> Sequence[Failure | Cut]:
    body, slash, phase = entry.partition("/")
    who, _, when = body.partition("@")
    if phase and phase not in list(Phase):
        raise SpecError(f"no phase {phase!r}; use one of {', '.join(Phase)}")
    kind, colon, argument = who.strip().partition(":")
    if kind == "random":
        return _random(body.partition(":")[2], topology.n_devices, n_rounds, seed, Phase(phase or "train"))
    if kind == "cut":
        if slash:
            raise SpecError("a cut has no phase; it starts when all devices have the round before it")
        return [Cut(*_sides(argument, topology.n_devices), *_rounds(when, n_rounds, stages))]
    first, last = _rounds(when, n_rounds, stages)
    devices = _devices(kind, argument if colon else None, topology)
    return [Failure(device, first, Phase(phase or "train"), last) for device in devices]


def _rounds(text: str, n_rounds: int, stages: Sequence[tuple[str, int]]) -> tuple[int, int | None]:
    """Return the round of a failure or cut, and the one that ends it."""
    match = _WHEN.fullmatch(text.strip())
    if match is None:
        raise SpecError("say when, as in @50 or @50-60" + (f" or @{stages[0][0]}:0" if stages else ""))
    first = _round(match["first_stage"], int(match["first"]), stages)
    last = None if match["last"] is None else _round(match["last_stage"], int(match["last"]), stages)
    if first >= n_rounds:
        raise SpecError(f"round {first} never comes in a run of {n_rounds} rounds (0 to {n_rounds - 1})")
    if last is not None and last <= first:
        raise SpecError(f"a return at {last} is not after the failure at {first}")
    if last is not None and last > n_rounds:
        raise SpecError(f"round {last} never comes in a run of {n_rounds} rounds; leave out the return")
    return first, last


def _round(stage: str | None, number: int, stages: Sequence[tuple[str, int]]) -> int:
    """Return the number of a round in the run."""
    if stage is None:
        return number
    if not stages:
        raise SpecError(f"no stage {stage!r}, this run has none; name the round by its number, as in @50")
    before, left = 0, number
    for name, n_rounds in stages:  # a stage may come in pieces that take turns with others
        if name == stage and left < n_rounds:
            return before + left
        left -= n_rounds if name == stage else 0
        before += n_rounds
    names = list(dict.fromkeys(name for name, _ in stages))
    sizes = {name: sum(n_rounds for other, n_rounds in stages if other == name) for name in names}
    known = ", ".join(f"{name} ({n_rounds} round{'s' * (n_rounds != 1)})" for name, n_rounds in sizes.items())
    if stage in names:
        raise SpecError(f"stage {stage} has no round {number}; rounds of a stage count from 0: {known}")
    raise SpecError(f"no stage {stage!r}; choose one of: {known}{did_you_mean(stage, names)}")


def _devices(kind: str, argument: str | None, topology: Topology) -> list[int]:
    if kind in ("server", "client", "closer") and argument:
        raise SpecError(f"{kind} takes no id; for another device write device:{argument}")
    match kind:
        case "server":
            return [topology.server]
        case "client":
            if topology.client is None:
                raise SpecError("there is no client in a run with one device")
            return [topology.client]
        case "closer":
            return [topology.clusters[-1][0]]
        case "head":
            return [_cluster(argument, topology)[0]]
        case "device":
            return _ids(argument or "", topology.n_devices)
        case "cluster":
            return list(_cluster(argument or "", topology))
    raise SpecError(
        "start with client, server, device:ID, head:CLUSTER, closer, cluster:ID, cut:IDS|IDS or random:PROBABILITY"
    )


def _cluster(argument: str | None, topology: Topology) -> tuple[int, ...]:
    return topology.clusters[0 if argument is None else _number(argument, "cluster", topology.n_clusters)]


def _sides(text: str, n_devices: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sides = [_ids(side, n_devices) for side in text.split("|")]
    if len(sides) == 1:
        sides.append([device for device in range(n_devices) if device not in sides[0]])
    if len(sides) != 2 or not sides[1] or set(sides[0]) & set(sides[1]):
        raise SpecError("name two sides without a common device, as in cut:3|4,5@50-55")
    return tuple(sides[0]), tuple(sides[1])


def _ids(text: str, n_devices: int) -> list[int]:
    return [_number(part, "device", n_devices) for part in text.split(",")]


def _number(text: str, what: str, n: int) -> int:
    if not _NUMBER.fullmatch(text.strip()):
        raise SpecError(f"{text.strip()!r} is not a {what} id")
    number = int(text)
    if number >= n:
        raise SpecError(f"there is no {what} {number}; ids go from 0 to {n - 1}")
    return number


def _random(text: str, n_devices: int, n_rounds: int, seed: int, phase: Phase) -> list[Failure]:
    try:
        odds = float(text)
    except ValueError:
        odds = -1.0
    if not 0 <= odds <= 1:
        raise SpecError("write a probability per device and round between 0 and 1, as in random:0.01")
    drawn = []
    for device in range(n_devices):
        # One draw per device (its round of death is geometric), so more rounds never change an earlier death.
        died = int(rng_for(seed, Purpose.FAILURES, device).geometric(odds)) - 1 if odds else n_rounds
        if died < n_rounds:
            drawn.append(Failure(device, died, phase))
    return drawn
