"""The protocol's checker: it drives the shipped `Device.handle` through schedules that nobody would think of.

A `World` is some devices, the messages in flight, and whatever else may happen next (training done, a death noticed,
a deadline, a heartbeat). `random_schedule` walks one path through it, `explore_all` every path of a small world. What
travels is symbolic: a count per device, so a sample counted twice shows as a 2.

    python -m tests.protocol.explore --schedules 1000000     (make explore)
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from tests.protocol.lies import Liar
from tests.protocol.world import DeviceType, Setting, Violation, World
from tolfl.protocol.device import Device
from tolfl.protocol.events import PeerFailed, Received, Ticked
from tolfl.protocol.messages import Ack


def random_schedule(setting: Setting, seed: int, kind: DeviceType = Device) -> World:
    """Walk one random path, settle, and check. Everything is decided by the seed."""
    rng = random.Random(seed)
    world = World.new(setting, kind)
    liar = Liar(world, rng.randrange(setting.n_devices), rng) if setting.lies else None
    if liar is not None:
        world.liar = liar.device
    # Sometimes luck ends early: fair rounds must be left in which those who came back are let in.
    ends_early = setting.restarts or setting.lies or setting.one_way or setting.old_disks or setting.sleeps
    for _ in range(rng.choice((40, 100, 400)) if ends_early else 400):
        _misfortune(world, rng)
        _deception(world, rng, liar)
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


def _deception(world: World, rng: random.Random, liar: Liar | None) -> None:
    """Let happen what no device should be able to rely on: lies, half a link, another disk, a long sleep."""
    setting, luck = world.setting, rng.random()
    if liar is not None and liar.device in world.devices and world.lies < setting.lies and luck < 0.3:
        world.lies += 1
        world.flying += liar.messages()
    elif luck < 0.03 and len(world.blocked) < setting.one_way:
        world.blocked |= {tuple(rng.sample(range(setting.n_devices), 2))}  # type: ignore[arg-type]
    elif luck < 0.04 and world.blocked and not setting.is_one_way_for_good:
        world.blocked = frozenset()
    elif luck < 0.10 and world.silent:
        world.notice_silence()
    elif luck < 0.15 and setting.old_disks:
        device = rng.choice(sorted(world.devices))
        world.snapshots.append((device, world.devices[device].incarnation, world.devices[device].record))
    elif luck < 0.18 and world.old_disks < setting.old_disks and len(world.devices) > 1:
        world.old_disks += 1
        device = rng.choice(sorted(world.devices))
        first = World.new(setting).devices[device].record
        old = [(incarnation + 1, record) for owner, incarnation, record in world.snapshots if owner == device]
        world.die(device)
        del world.disk[device]
        world.start(device, *rng.choice([(0, first), *old]))
    elif luck < 0.2 and setting.sleeps and world.asleep is None and len(world.devices) > 1:
        world.fall_asleep(rng.choice(sorted(world.devices)))


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
            tuple(sorted(names.of(message) for message in state._newer.values())),
            state._asked_for and names.of(state._asked_for), round_.own is None, round_.received_bits,
            round_.upstream and names.of(round_.upstream), round_.is_late, round_.reported_to, round_.passed_to,
            round_.passed_bits, round_.has_taken_over, round_.closing and names.of(round_.closing),
            round_.judged_bits, round_.refused_bits, round_.refused_upstream_bits,
            tuple((sender, names.of(mean)) for sender, mean in round_.upstream_means.items()),
            state.fleet._leash, state.fleet._is_strained, tuple(sorted(state.fleet.left.items())),
            state._next_probed, state._next_anybody, state._next_pulled, state._beat, state._n_enforced,
            state._beats_to_wait, state._past, state._n_holding, state._ticks_outside,
            tuple(sorted(state._outside.items())),
            tuple(sorted(names.of(mean) for mean in round_.offered.values())),
        )  # fmt: skip

    return (
        tuple(of_device(state) for _, state in sorted(world.devices.items())),
        tuple(sorted((to, names.of(message)) for to, message in world.flying)),
        tuple(sorted((device, names.of(version)) for device, version in world.training)),
        tuple(sorted((device, names.of(effect)) for device, effect in world.applying)),
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
    "refusals": lambda rng: _drawn(
        rng, refused=rng.randint(0, 5), crashes=rng.randint(0, 2), ticks=3, duplicates=rng.random() < 0.5
    ),
    "refusals and returns": lambda rng: _drawn(
        rng, refused=rng.randint(0, 5), crashes=rng.randint(1, 2), restarts=1, false_suspicions=1, ticks=4
    ),
    "partitions": lambda rng: _drawn(rng, crashes=rng.randint(0, 1), partitions=2, ticks=6, duplicates=True),
}

#: The same for what goes beyond failures: links that fail in one direction, disks put back, sleep, and lies.
HARSH_CAMPAIGNS: dict[str, Callable[[random.Random], Setting]] = {
    "a liar, then gone": lambda rng: _drawn(rng, at_least=3, lies=12, crashes=rng.randint(0, 1), ticks=4),
    "a liar that goes on": lambda rng: _drawn(rng, at_least=3, lies=12, crashes=0, ticks=4, is_liar_gone=False),
    "a liar that takes the fleet for itself": lambda rng: _drawn(
        rng, at_least=3, lies=1, crashes=0, ticks=4, is_liar_silent=True
    ),
    "one-way for a while": lambda rng: _drawn(rng, at_least=3, one_way=2, crashes=rng.randint(0, 1), ticks=6),
    "one-way for good": lambda rng: _drawn(rng, at_least=3, one_way=1, crashes=0, ticks=6, is_one_way_for_good=True),
    "two directions for good": lambda rng: _drawn(
        rng, at_least=3, one_way=2, crashes=0, ticks=6, is_one_way_for_good=True
    ),
    "a liar where heads have no successors": lambda rng: _drawn(
        rng,
        at_least=3,
        lies=12,
        crashes=0,
        ticks=4,
        policy=rng.choice(("drop", "isolate")),
        is_liar_gone=rng.random() < 0.5,
    ),
    "old disks": lambda rng: _drawn(rng, at_least=2, old_disks=rng.randint(1, 3), crashes=0, ticks=6),
    "asleep through the end": lambda rng: _drawn(rng, at_least=2, sleeps=True, crashes=rng.randint(0, 1), ticks=4),
    "awake when all are gone": lambda rng: _drawn(
        rng, at_least=2, sleeps=True, is_woken_late=True, crashes=rng.randint(0, 1), ticks=4
    ),
    "majority": lambda rng: _majority(
        rng, false_suspicions=2, partitions=1, crashes=1, restarts=2, blackouts=rng.randint(0, 1), ticks=6
    ),
}
ALL_CAMPAIGNS = CAMPAIGNS | HARSH_CAMPAIGNS


def _majority(rng: random.Random, **fields: object) -> Setting:
    setting = _drawn(rng, at_least=3, **fields)
    return dataclasses.replace(setting, min_devices=setting.n_devices // 2 + 1)


def _drawn(rng: random.Random, at_least: int = 2, **fields: object) -> Setting:
    n_devices = rng.randint(at_least, 6)
    drawn = {"n_devices": n_devices, "n_clusters": rng.randint(1, n_devices), "rounds": rng.randint(1, 4)}
    return Setting(**{**drawn, **fields})  # type: ignore[arg-type]


def campaign(name: str, n_schedules: int, first_seed: int = 0, kind: DeviceType = Device) -> None:
    """Run random schedules of one kind; a violation names the seed that repeats it."""
    for seed in range(first_seed, first_seed + n_schedules):
        setting = ALL_CAMPAIGNS[name](random.Random(seed))
        try:
            random_schedule(setting, seed, kind)
        except Violation as violation:
            raise Violation(f"{name}, seed {seed}, {setting}: {violation}") from None


def main() -> int:
    """Run every campaign for a number of schedules and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1_000_000, help="random schedules in all")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", choices=sorted(ALL_CAMPAIGNS), help="one campaign only")
    parser.add_argument("--harsh", action="store_true", help="the kinds with liars, half links, old disks and sleep")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(HARSH_CAMPAIGNS if arguments.harsh else CAMPAIGNS)
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
