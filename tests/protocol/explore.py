"""The protocol's checker: it drives the shipped `Device.handle` through schedules that nobody would think of.

A `World` is some devices, the messages in flight, and whatever else may happen next (training done, a death noticed,
a deadline, a heartbeat). `random_schedule` walks one path through it, `explore_all` every path of a small world. What
travels is symbolic: a count per device, so a sample counted twice shows as a 2.

    python -m tests.protocol.explore --schedules 1000000     (make explore)
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from tolfl.core.contribution import Contribution, Pending
from tolfl.core.devices import DeviceSet
from tolfl.core.topology import Topology
from tolfl.protocol.device import Device
from tolfl.protocol.effects import Announce, Effect, KeepIncarnation, Send, SetDeadline, Stop, Train
from tolfl.protocol.events import DeadlinePassed, Event, PeerFailed, Received, Started, Ticked, Trained
from tolfl.protocol.history import ClosedRound, Life, Roster, Version
from tolfl.protocol.messages import Ack, AnyMessage
from tolfl.protocol.rules import Rules


class Violation(AssertionError):  # noqa: N818  (it is a finding, not an error of the checker)
    """The protocol broke a promise."""


class Symbol(msgspec.Struct, frozen=True):
    """A contribution that remembers how often each device's samples are inside, and on which version they trained."""

    included: DeviceSet
    n_samples: int
    counts: tuple[tuple[tuple[int, Version], int], ...]

    def resolve(self) -> Contribution:
        raise AssertionError("the protocol never looks inside a contribution")


def merge(parts: Sequence[Pending]) -> Pending:
    counts: Counter[tuple[int, Version]] = Counter()
    bits = n_samples = 0
    for part in parts:
        counts.update(dict(part.counts) if isinstance(part, Symbol) else {})
        bits |= part.included.bits
        n_samples += part.n_samples
    return Symbol(DeviceSet(bits), n_samples, tuple(sorted(counts.items())))


def append(upstream: Pending | None, cluster: Sequence[Pending]) -> Pending:
    return merge(cluster if upstream is None else [upstream, *cluster])


def apply(models: object, total: Pending, version: Version, present: DeviceSet) -> object:
    """Append a round to the model: here a model *is* the list of what went into it."""
    assert isinstance(models, tuple)
    assert isinstance(total, Symbol)
    devices = [device for (device, _), count in total.counts for _ in range(count)]
    if len(devices) > len(set(devices)):
        raise Violation(f"a sample is counted twice: {total.counts}")
    if any(trained_on != version for (_, trained_on), _ in total.counts):
        raise Violation(f"a contribution to another version than {version} is inside: {total.counts}")
    if set(devices) != set(total.included):
        raise Violation(f"provenance {list(total.included)} does not match what is inside: {total.counts}")
    return (*models, (version, tuple(total.included)))


@dataclass(frozen=True)
class Setting:
    """What may happen in a world."""

    n_devices: int = 3
    n_clusters: int = 1
    rounds: int = 1
    policy: str = "elect"
    crashes: int = 1
    has_deadline: bool = False
    duplicates: bool = False
    ticks: int = 0  #: heartbeats at arbitrary moments
    false_suspicions: int = 0
    partitions: int = 0
    restarts: int = 0
    blackouts: int = 0  #: everybody dies at once and comes back
    min_devices: int = 1

    @property
    def is_crash_stop(self) -> bool:
        return not (self.false_suspicions or self.partitions)


DeviceType = type[Device]


@dataclass
class World:
    """Devices, messages in flight, and everything else that may happen next."""

    setting: Setting
    rules: Rules
    devices: dict[int, Device]
    flying: list[tuple[int, AnyMessage]] = field(default_factory=list)
    training: list[tuple[int, Version]] = field(default_factory=list)  #: also what nobody waits for any more
    deadlines: list[tuple[int, Version]] = field(default_factory=list)
    unnoticed: set[tuple[int, Life]] = field(default_factory=set)  #: (observer, life that is over)
    disk: dict[int, tuple[int, ClosedRound]] = field(default_factory=dict)  #: what a dead device left behind
    cut: frozenset[int] = frozenset()  #: one side of a partition
    crashes: int = 0
    suspicions: int = 0
    cuts: int = 0
    restarts: int = 0
    ticks: int = 0
    blackouts: int = 0
    fair_from: int = 0  #: the round in which luck ended
    kind: DeviceType = Device

    @classmethod
    def new(cls, setting: Setting, kind: DeviceType = Device) -> World:
        topology = Topology.contiguous(setting.n_devices, setting.n_clusters)
        rules = Rules(
            topology, setting.rounds, apply, append, setting.policy, setting.min_devices, 1, setting.has_deadline
        )
        record = ClosedRound.first(Roster(dict.fromkeys(range(setting.n_devices), 0)), ())
        devices = {device: kind(device, 0, record, rules) for device in range(setting.n_devices)}
        world = cls(setting, rules, devices, kind=kind)
        for device in devices:
            world.happen(device, Started())
        return world

    def clone(self) -> World:
        devices = {device: state.clone() for device, state in self.devices.items()}
        return World(
            self.setting, self.rules, devices, list(self.flying), list(self.training), list(self.deadlines),
            set(self.unnoticed), dict(self.disk), self.cut, self.crashes, self.suspicions, self.cuts, self.restarts,
            self.ticks, self.blackouts, self.fair_from, self.kind,
        )  # fmt: skip

    # -- one step -----------------------------------------------------------------------------------------------

    def happen(self, device: int, event: Event, survive: int | None = None) -> int:
        """Let a device handle an event; with `survive`, it dies after that many effects. Return their number."""
        effects = self.devices[device].handle(event)
        for effect in effects[:survive]:
            self._do(device, effect)
        if survive is not None:
            self.die(device)
        return len(effects)

    def _do(self, device: int, effect: Effect) -> None:
        match effect:
            case Send():
                if (device in self.cut and effect.to not in self.cut) or (
                    device not in self.cut and effect.to in self.cut
                ):
                    return
                if effect.to in self.devices:
                    self.flying.append((effect.to, effect.message))
                else:  # a refused connection is proof of death
                    incarnation, _ = self.disk[effect.to]
                    self.unnoticed.add((device, (effect.to, incarnation)))
            case Train():
                self.training.append((device, effect.version))
            case SetDeadline():
                self.deadlines.append((device, effect.version))
            case Announce() | KeepIncarnation() | Stop() | _:
                pass

    def die(self, device: int) -> None:
        state = self.devices.pop(device)
        self.disk[device] = (state.incarnation, state.record)
        self.training = [(trainee, version) for trainee, version in self.training if trainee != device]
        self.flying = [(to, message) for to, message in self.flying if to != device]
        life = (device, state.incarnation)
        self.unnoticed |= {(observer, life) for observer in self.devices}
        self.unnoticed = {(observer, dead) for observer, dead in self.unnoticed if observer != device}
        self.crashes += 1

    def restart(self, device: int) -> None:
        incarnation, record = self.disk.pop(device)
        self.devices[device] = self.kind(device, incarnation + 1, record, self.rules)
        self.restarts += 1
        self.happen(device, Started())

    # -- what may happen next -----------------------------------------------------------------------------------

    def choices(self) -> Iterator[tuple[str, int, object]]:
        for index in range(len(self.flying)):
            yield "deliver", index, None
        for index in range(len(self.training)):
            yield "train", index, None
        for device, life in sorted(self.unnoticed):
            yield "notice", device, life
        for index in range(len(self.deadlines)):
            yield "deadline", index, None

    def target(self, choice: tuple[str, int, object]) -> tuple[int, Event] | None:
        """Take the choice out of the world and return who handles what."""
        what, index, detail = choice
        match what:
            case "deliver":
                to, message = self.flying.pop(index)
                return to, Received(message)
            case "train":
                device, version = self.training.pop(index)
                symbol = Symbol(DeviceSet.of([device]), device + 1, (((device, version), 1),))
                return device, Trained(version, symbol)
            case "notice":
                assert isinstance(detail, tuple)
                self.unnoticed.discard((index, detail))
                return index, PeerFailed(*detail)
            case _:
                device, version = self.deadlines.pop(index)
                return (device, DeadlinePassed(version)) if device in self.devices else None

    # -- the end ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Heal everything, let everything in flight arrive, and a few heartbeats pass."""
        self.cut = frozenset()
        self.fair_from = max((state.version.round for state in self.devices.values()), default=0)
        if self.restarts:
            self._let_everybody_ask_again()
        for _ in range(40):
            steps = 0
            while (choice := next(self.choices(), None)) is not None:
                if (step := self.target(choice)) is not None:
                    self.happen(*step)
                steps += 1
                if steps > 20_000:
                    raise Violation("messages never cease")
            running = [state for state in self.devices.values() if state.stopped != "dropped" and not state.is_private]
            if all(state.stopped for state in running) and len({state.version for state in running}) < 2:
                return
            for device in sorted(self.devices):
                self.happen(device, Ticked())

    def _let_everybody_ask_again(self) -> None:
        """Who came back may have asked somebody who is dead: fair rounds begin with what it does about that."""
        for observer, life in sorted(self.unnoticed):
            self.unnoticed.discard((observer, life))
            self.happen(observer, PeerFailed(*life))
        for device in sorted(self.devices):
            self.happen(device, Ticked())

    def check(self) -> None:
        """Compare what came out with what is promised."""
        running = [state for state in self.devices.values() if state.stopped != "dropped" and not state.is_private]
        if not running:
            return
        stuck = [state.id for state in running if state.stopped != "over"]
        if stuck and self.setting.min_devices == 1:
            raise Violation(f"devices {stuck} never finished")
        if len({state.record.version for state in running}) > 1:
            raise Violation(f"histories differ: {[(state.id, str(state.record.version)) for state in running]}")
        history = running[0].record.models
        assert isinstance(history, tuple)
        for version, included in history:
            if len(set(included)) != len(included):
                raise Violation(f"round {version} counts a device twice")
        if self.setting.is_crash_stop and self.setting.rounds - self.fair_from >= 3 and self.setting.policy == "elect":
            outside = {state.id for state in running} - set(history[-1][1])
            if outside and not self.setting.has_deadline:
                raise Violation(f"devices {sorted(outside)} were never let in")
        if self.setting.policy != "elect":
            self._check_dropped_clusters(history)
        if self.setting.is_crash_stop and not self.setting.has_deadline and not self.restarts:
            for version, included in history:
                absent = {state.id for state in running} - set(included)
                if absent:
                    raise Violation(f"survivors {sorted(absent)} are missing from round {version}")

    def _check_dropped_clusters(self, history: tuple[tuple[Version, tuple[int, ...]], ...]) -> None:
        for version, included in history:
            for head, *members in self.rules.topology.clusters:
                if head not in included and set(members) & set(included):
                    raise Violation(f"a cluster without its head {head} went on in round {version}")


def random_schedule(setting: Setting, seed: int, kind: DeviceType = Device) -> World:
    """Walk one random path, settle, and check. Everything is decided by the seed."""
    rng = random.Random(seed)
    world = World.new(setting, kind)
    # Sometimes luck ends early: fair rounds must be left in which those who came back are let in.
    for _ in range(rng.choice((40, 100, 400)) if setting.restarts else 400):
        _misfortune(world, rng)
        choices = list(world.choices())
        if not choices:
            break
        # Mostly in some order; sometimes the newest first, which is where reordering hurts most.
        choice = choices[-1] if rng.random() < 0.1 else rng.choice(choices)
        if setting.duplicates and choice[0] == "deliver" and rng.random() < 0.1:
            world.flying.append(world.flying[choice[1]])
        if (step := world.target(choice)) is None:
            continue
        dies = world.crashes < setting.crashes and len(world.devices) > 1 and rng.random() < 0.06
        world.happen(*step, survive=rng.choice([0, 0, 1, 1, 2, 3, 4]) if dies else None)
    world.settle()
    world.check()
    return world


def _misfortune(world: World, rng: random.Random) -> None:
    setting, luck = world.setting, rng.random()
    if not world.devices:
        return
    if luck < 0.02 and world.suspicions < setting.false_suspicions:
        observer, suspect = rng.choice(sorted(world.devices)), rng.choice(sorted(world.devices))
        if observer != suspect:
            world.suspicions += 1
            world.happen(observer, PeerFailed(suspect, world.devices[suspect].incarnation))
    elif luck < 0.04 and world.cuts < setting.partitions:
        world.cuts += 1
        world.cut = frozenset(device for device in range(setting.n_devices) if rng.random() < 0.5)
        for a in sorted(world.devices):
            for b in sorted(world.devices):
                if (a in world.cut) != (b in world.cut):
                    world.unnoticed.add((a, (b, world.devices[b].incarnation)))
    elif luck < 0.06 and world.cut:
        world.cut = frozenset()
    elif luck < 0.08 and world.ticks < setting.ticks:
        world.ticks += 1
        world.happen(rng.choice(sorted(world.devices)), Ticked())
    elif 0.10 < luck < 0.12 and world.blackouts < setting.blackouts:
        world.blackouts += 1
        for device in sorted(world.devices):
            world.die(device)
        for device in rng.sample(sorted(world.disk), len(world.disk)):
            world.restart(device)
    elif luck < 0.10 and world.restarts < setting.restarts and world.disk:
        world.restart(rng.choice(sorted(world.disk)))


# -- every path of a small world ------------------------------------------------------------------------------------


def _freeze(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return (type(value).__name__, *(_freeze(getattr(value, name)) for name in value.__struct_fields__))
    if isinstance(value, dict):
        return tuple(sorted((repr(key), _freeze(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_freeze(item) for item in value)
    return value


class _Names:
    """Short names for messages and records, so that a state is a small tuple."""

    def __init__(self) -> None:
        self._by_identity: dict[int, tuple[object, int]] = {}
        self._by_value: dict[object, int] = {}

    def of(self, value: object) -> int:
        known = self._by_identity.get(id(value))
        if known is None:
            number = self._by_value.setdefault(_freeze(value), len(self._by_value))
            self._by_identity[id(value)] = known = (value, number)
        return known[1]


def _fingerprint(world: World, names: _Names) -> object:
    def of_device(state: Device) -> object:
        round_ = state.round
        return (
            state.id, state.incarnation, names.of(state.record), state.stopped, state.is_private, state.fleet.dead,
            tuple(state.fleet.joiners.items()),
            tuple(sorted(names.of(message) for message in state._ahead._kept.values())),
            state._ahead._asked_for and names.of(state._ahead._asked_for), round_.own is None, round_.received_bits,
            round_.upstream and names.of(round_.upstream), round_.is_late, round_.reported_to, round_.passed_to,
            round_.passed_bits, round_.has_taken_over,
        )  # fmt: skip

    return (
        tuple(of_device(state) for _, state in sorted(world.devices.items())),
        tuple(sorted((to, names.of(message)) for to, message in world.flying)),
        tuple(sorted((device, names.of(version)) for device, version in world.training)),
        frozenset(world.unnoticed),
        tuple(sorted((device, names.of(version)) for device, version in world.deadlines)),
    )


def explore_all(setting: Setting, kind: DeviceType = Device, limit: int = 10_000_000) -> int:
    """Visit every reachable state of a small world (any order, a crash between any two effects); return their number.

    Acknowledgements and heartbeats arrive at once: they change nothing that a later message could not change.
    Every state without a further choice is settled and checked.
    """
    names = _Names()
    seen: set[object] = set()
    stack = [_delivered_small_talk(World.new(setting, kind))]
    while stack:
        world = stack.pop()
        fingerprint = _fingerprint(world, names)
        if fingerprint in seen:
            continue
        seen.add(fingerprint)
        if len(seen) > limit:
            raise Violation(f"more than {limit} states")
        choices = list(world.choices())
        if not choices:
            world.settle()
            world.check()
            continue
        tried: set[object] = set()
        for choice in choices:
            same = (
                (choice[0], world.flying[choice[1]][0], names.of(world.flying[choice[1]][1]))
                if (choice[0] == "deliver")
                else choice
            )
            if same in tried:
                continue
            tried.add(same)
            stack += _successors(world, choice)
    return len(seen)


def _successors(world: World, choice: tuple[str, int, object]) -> Iterator[World]:
    calm = world.clone()
    step = calm.target(choice)
    if step is None:
        yield calm
        return
    n_effects = calm.happen(*step)
    yield _delivered_small_talk(calm)
    if world.crashes >= world.setting.crashes or len(world.devices) == 1:
        return
    for survive in range(n_effects + 1):
        dying = world.clone()
        again = dying.target(choice)
        assert again is not None
        dying.happen(*again, survive=survive)
        yield _delivered_small_talk(dying)


def _delivered_small_talk(world: World) -> World:
    while (
        index := next((i for i, (_, message) in enumerate(world.flying) if isinstance(message, Ack)), None)
    ) is not None:
        to, message = world.flying.pop(index)
        world.happen(to, Received(message))
    return world


# -- campaigns ------------------------------------------------------------------------------------------------------

#: What random schedules are drawn from: every promise of the protocol with the misfortunes it is made for.
CAMPAIGNS: dict[str, Callable[[random.Random], Setting]] = {
    "crashes": lambda rng: _drawn(rng, crashes=rng.randint(0, 3), duplicates=rng.random() < 0.5),
    "drop": lambda rng: _drawn(rng, crashes=rng.randint(0, 3), policy="drop"),
    "isolate": lambda rng: _drawn(rng, crashes=rng.randint(0, 2), policy="isolate"),
    "deadlines": lambda rng: _drawn(rng, crashes=rng.randint(0, 2), has_deadline=True, ticks=3),
    "restarts": lambda rng: _drawn(
        rng, rounds=rng.randint(1, 8), crashes=rng.randint(1, 3), restarts=2, ticks=4, duplicates=rng.random() < 0.5
    ),
    "blackouts": lambda rng: _drawn(rng, crashes=rng.randint(0, 1), restarts=1, blackouts=1, ticks=4),
    "suspicions": lambda rng: _drawn(rng, crashes=rng.randint(0, 1), false_suspicions=2, ticks=4),
    "partitions": lambda rng: _drawn(rng, crashes=rng.randint(0, 1), partitions=2, ticks=6, duplicates=True),
}


def _drawn(rng: random.Random, **fields: object) -> Setting:
    n_devices = rng.randint(2, 6)
    drawn = {"n_devices": n_devices, "n_clusters": rng.randint(1, n_devices), "rounds": rng.randint(1, 4)}
    return Setting(**{**drawn, **fields})  # type: ignore[arg-type]


def campaign(name: str, n_schedules: int, first_seed: int = 0, kind: DeviceType = Device) -> None:
    """Run random schedules of one kind; a violation names the seed that repeats it."""
    for seed in range(first_seed, first_seed + n_schedules):
        setting = CAMPAIGNS[name](random.Random(seed))
        try:
            random_schedule(setting, seed, kind)
        except Violation as violation:
            raise Violation(f"{name}, seed {seed}, {setting}: {violation}") from None


def main() -> int:
    """Run every campaign for a number of schedules and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1_000_000, help="random schedules in all")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", choices=sorted(CAMPAIGNS), help="one campaign only")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(CAMPAIGNS)
    for name in names:
        start = time.perf_counter()
        n_schedules = arguments.schedules // len(names)
        try:
            campaign(name, n_schedules, arguments.seed)
        except Violation as violation:
            print(f"VIOLATION: {violation}")
            return 1
        print(f"{name}: {n_schedules} schedules, no violation, {time.perf_counter() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
