"""A world of devices without a network: what may happen next, and what must never happen."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from tolfl.core.contribution import Contribution, Pending
from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.protocol.device import Device, Rules
from tolfl.protocol.events import (
    Announce,
    Applied,
    Apply,
    DeadlinePassed,
    Effect,
    Event,
    KeepIncarnation,
    PeerFailed,
    Received,
    Send,
    SetDeadline,
    Started,
    Stop,
    Ticked,
    Train,
    Trained,
)
from tolfl.protocol.history import ClosedRound, Incarnation, Roster, Version
from tolfl.protocol.messages import AnyMessage

#: In how many beats everybody comes to the end once nothing fails any more, where nobody lied.
PROMPT = 8


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


def apply(effect: Apply) -> object:
    """Append a round to the state: here a state *is* the list of what went into it."""
    version, total = effect.version, effect.total
    assert isinstance(effect.state, tuple)
    assert isinstance(total, Symbol)
    devices = [device for (device, _), count in total.counts for _ in range(count)]
    if len(devices) > len(set(devices)):
        raise Violation(f"a sample is counted twice: {total.counts}")
    if any(trained_on != version for (_, trained_on), _ in total.counts):
        raise Violation(f"a contribution to another version than {version} is inside: {total.counts}")
    if set(devices) != set(total.included):
        raise Violation(f"provenance {list(total.included)} does not match what is inside: {total.counts}")
    return (*effect.state, (version, tuple(total.included)))


def digest(state: object) -> str:
    """Name a state by its content, as a driver does."""
    return f"{zlib.crc32(repr(state).encode()):08x}"


def refusing(device: int | None) -> Callable[[Version, object, Pending | None, Pending], bool] | None:
    """Return a rule that admits nothing with the samples of a device inside; None: everything is admitted."""
    return None if device is None else lambda version, state, own, other: device not in other.included


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
    refused: int | None = None  #: whose samples no other head admits
    lies: int = 0  #: messages that one device makes up
    is_liar_gone: bool = True  #: in the end; otherwise it goes on as it should
    is_liar_silent: bool = False  #: it makes up one roster with few of the others in it, and does nothing more
    one_way: int = 0  #: directions of links that fail
    is_one_way_for_good: bool = False
    old_disks: int = 0  #: devices that are started from a disk of earlier, or from none
    sleeps: bool = False  #: a device does nothing until all others have ended
    is_woken_late: bool = False  #: when the others are gone

    @property
    def is_crash_stop(self) -> bool:
        has_lies = self.lies or self.one_way or self.old_disks or self.sleeps
        return not (self.false_suspicions or self.partitions or has_lies)


DeviceType = type[Device]


@dataclass
class World:
    """Devices, messages in flight, and everything else that may happen next."""

    setting: Setting
    rules: Rules
    devices: dict[int, Device]
    flying: list[tuple[int, AnyMessage]] = field(default_factory=list)
    training: list[tuple[int, Version]] = field(default_factory=list)  #: also what nobody waits for any more
    applying: list[tuple[int, Apply]] = field(default_factory=list)
    deadlines: list[tuple[int, Version]] = field(default_factory=list)
    unnoticed: set[tuple[int, Incarnation]] = field(default_factory=set)  #: (observer, life that is over)
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
    lies: int = 0
    liar: int | None = None
    blocked: frozenset[tuple[int, int]] = frozenset()  #: directions in which nothing arrives: from, to
    silent: set[tuple[int, int]] = field(default_factory=set)  #: (observer, whose answer is due) over such a link
    asleep: int | None = None
    old_disks: int = 0
    snapshots: list[tuple[int, int, ClosedRound]] = field(default_factory=list)  #: disks of earlier
    heard: dict[int, dict[int, int]] = field(default_factory=dict)  #: per observer, the newest life of each device
    ended: set[Version] = field(default_factory=set)  #: with what those who are gone by now have ended
    beats: int = 0  #: that it took to settle

    @classmethod
    def new(cls, setting: Setting, kind: DeviceType = Device) -> World:
        topology = Topology.contiguous(setting.n_devices, setting.n_clusters)
        rules = Rules(
            topology,
            setting.rounds,
            append,
            setting.policy,
            setting.min_devices,
            1,
            setting.has_deadline,
            refusing(setting.refused),
            digest,
        )
        record = ClosedRound.first(Roster(dict.fromkeys(range(setting.n_devices), 0)), ())
        devices = {device: kind(device, 0, record, rules) for device in range(setting.n_devices)}
        world = cls(setting, rules, devices, kind=kind)
        world.heard = {observer: dict.fromkeys(devices, 0) for observer in devices}
        for device in devices:
            world.happen(device, Started())
        return world

    def clone(self) -> World:
        devices = {device: state.clone() for device, state in self.devices.items()}
        return World(
            self.setting, self.rules, devices, list(self.flying), list(self.training), list(self.applying),
            list(self.deadlines), set(self.unnoticed), dict(self.disk), self.cut, self.crashes, self.suspicions,
            self.cuts, self.restarts, self.ticks, self.blackouts, self.fair_from, self.kind, self.lies, self.liar,
            self.blocked, set(self.silent), self.asleep, self.old_disks, self.snapshots, self.heard, self.ended,
        )  # fmt: skip

    # -- one step -----------------------------------------------------------------------------------------------

    def happen(self, device: int, event: Event, survive: int | None = None) -> int:
        """Let a device handle an event; with `survive`, it dies after that many effects. Return their number."""
        try:
            effects = self.devices[device].handle(event)
        except Exception as error:
            raise Violation(f"device {device} raised {error!r} at {event}") from error
        for effect in effects[:survive]:
            self._do(device, effect)
        if survive is not None:
            self.die(device)
        return len(effects)

    @property
    def mute(self) -> int | None:
        """Who is connected and alive, and says nothing more."""
        return self.liar if self.setting.is_liar_silent and self.lies else None

    def _do(self, device: int, effect: Effect) -> None:
        if device == self.mute:
            return
        match effect:
            case Send():
                if (device in self.cut and effect.to not in self.cut) or (
                    device not in self.cut and effect.to in self.cut
                ):
                    return
                if self.blocked and {(device, effect.to), (effect.to, device)} & self.blocked:
                    self.silent.add((device, effect.to))
                    if (device, effect.to) in self.blocked:
                        return
                if effect.to in self.devices:
                    self.flying.append((effect.to, effect.message))
                else:  # a refused connection is proof of death
                    incarnation, _ = self.disk[effect.to]
                    self.unnoticed.add((device, (effect.to, incarnation)))
            case Train():
                self.training.append((device, effect.version))
            case Apply():
                self.applying.append((device, effect))
            case SetDeadline():
                self.deadlines.append((device, effect.version))
            case Announce() | KeepIncarnation() | Stop() | _:
                pass

    def die(self, device: int) -> None:
        state = self.devices.pop(device)
        self.disk[device] = (state.incarnation, state.record)
        self.training = [(trainee, version) for trainee, version in self.training if trainee != device]
        self.applying = [(closer, effect) for closer, effect in self.applying if closer != device]
        self.flying = [(to, message) for to, message in self.flying if to != device]
        life = (device, state.incarnation)
        self.unnoticed |= {(observer, life) for observer in self.devices}
        self.unnoticed = {(observer, dead) for observer, dead in self.unnoticed if observer != device}
        self.crashes += 1

    def restart(self, device: int) -> None:
        incarnation, record = self.disk.pop(device)
        self.start(device, incarnation + 1, record)
        self.restarts += 1

    def start(self, device: int, incarnation: int, record: ClosedRound) -> None:
        """Start a process; whoever has heard of the same life in another process holds that life for over."""
        self.devices[device] = self.kind(device, incarnation, record, self.rules)
        self.heard[device] = {}
        for other in self.devices:
            if self.heard[other].get(device) == incarnation:
                self.unnoticed.add((other, (device, incarnation)))
            self.heard[device][other] = self.devices[other].incarnation
        self.happen(device, Started())

    def newest_life(self, observer: int, device: int) -> int:
        """Return what an observer holds for the present life of a device."""
        roster = self.devices[observer].fleet.roster.incarnations
        return max(self.heard[observer].get(device, 0), roster.get(device, 0))

    def notice_silence(self) -> None:
        """Let a beat pass: whoever waits for an answer over a link that fails in one direction gives up."""
        for observer, device in sorted(self.silent):
            if observer in self.devices and device in self.devices:
                self.unnoticed.add((observer, (device, self.newest_life(observer, device))))
        self.silent.clear()

    def fall_asleep(self, device: int) -> None:
        self.asleep = device
        life = (device, self.devices[device].incarnation)
        self.unnoticed |= {(observer, life) for observer in self.devices if observer != device}

    # -- what may happen next -----------------------------------------------------------------------------------

    def choices(self) -> Iterator[tuple[str, int, object]]:
        if self.asleep is None:
            yield from self._all_choices()
            return
        for what, index, detail in self._all_choices():
            queue = {"deliver": self.flying, "train": self.training, "apply": self.applying, "deadline": self.deadlines}
            if (index if what == "notice" else queue[what][index][0]) != self.asleep:  # type: ignore[index]
                yield what, index, detail

    def _all_choices(self) -> Iterator[tuple[str, int, object]]:
        for index in range(len(self.flying)):
            yield "deliver", index, None
        for index in range(len(self.training)):
            yield "train", index, None
        for index in range(len(self.applying)):
            yield "apply", index, None
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
                known = self.heard[to]
                if message.incarnation > known.get(message.sender, -1):
                    self.heard[to] = {**known, message.sender: message.incarnation}
                return to, Received(message)
            case "train":
                device, version = self.training.pop(index)
                symbol = Symbol(DeviceSet.of([device]), device + 1, (((device, version), 1),))
                return device, Trained(version, symbol)
            case "apply":
                device, effect = self.applying.pop(index)
                if self.setting.refused is not None and self.setting.refused in set(effect.total.included) - {device}:
                    raise Violation(f"device {self.setting.refused} is in the total of device {device}")
                return device, Applied(effect.version, apply(effect) if self.liar is None else _apply_anything(effect))
            case "notice":
                assert isinstance(detail, tuple)
                self.unnoticed.discard((index, detail))
                gone, life = detail
                if gone not in self.devices:
                    life = max(life, self.newest_life(index, gone))
                return index, PeerFailed(gone, life)
            case _:
                device, version = self.deadlines.pop(index)
                return (device, DeadlinePassed(version)) if device in self.devices else None

    # -- the end ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Heal everything, let everything in flight arrive, and as many heartbeats pass as it takes."""
        self.cut = frozenset()
        if not self.setting.is_one_way_for_good:
            self.blocked = frozenset()
        if self.liar in self.devices and self.setting.is_liar_gone and self.mute is None:
            self.die(self.liar)
        self.fair_from = max((state.version.round for state in self.devices.values()), default=0)
        if self.restarts:
            self._let_everybody_ask_again()
        for beat in range(1_500):
            self.beats = beat
            steps = 0
            while (choice := next(self.choices(), None)) is not None:
                if (step := self.target(choice)) is not None:
                    self.happen(*step)
                steps += 1
                if steps > 20_000:
                    raise Violation("messages never cease")
            running = [state for state in self.running if state.id != self.asleep]
            if all(state.stopped for state in running) and len({state.version for state in running}) < 2:
                if self.asleep is None:
                    return
                self._wake(running)
            if len(running) < self.setting.min_devices and beat > 40:
                return  # too few are left to go on
            self.notice_silence()
            for device in sorted(self.devices):
                if device != self.asleep:
                    self.happen(device, Ticked())

    def _wake(self, others: Sequence[Device]) -> None:
        """Wake up the device that slept through the end; the others are still there, or gone."""
        self.asleep = None
        if self.setting.is_woken_late:
            self.ended = {state.version for state in others}
            for state in others:
                self.die(state.id)

    @property
    def running(self) -> list[Device]:
        """Those who train together."""
        together = (state for state in self.devices.values() if state.stopped != "dropped" and not state.is_private)
        return [state for state in together if state.id != self.mute]

    def _let_everybody_ask_again(self) -> None:
        """Who came back may have asked somebody who is dead: fair rounds begin with what it does about that."""
        for observer, life in sorted(self.unnoticed):
            self.unnoticed.discard((observer, life))
            self.happen(observer, PeerFailed(*life))
        for device in sorted(self.devices):
            self.happen(device, Ticked())

    def check(self) -> None:
        """Compare what came out with what is promised."""
        running = [state for state in self.running if state.id != self.liar]
        if not running:
            return
        for state in running:
            if len({device for device, _ in state.fleet.dead}) < len(state.fleet.dead):
                raise Violation(f"device {state.id} keeps more than one death per device: {sorted(state.fleet.dead)}")
            if state.incarnation > 2**40 or state.version.revision >= 2**31:
                raise Violation(f"device {state.id} runs out of numbers: {state.incarnation}, {state.version}")
            if state.version.work > state.version.round * 2**62 // (self.setting.rounds + 1):
                raise Violation(f"{state.version} has more work than can be counted")
            if state.record.is_over and state.version.round < self.setting.rounds:
                raise Violation(f"device {state.id} has ended after round {state.version.round}")
        stuck = [state.id for state in running if state.stopped != "over"]
        if stuck and len(running) >= self.setting.min_devices:
            raise Violation(f"devices {stuck} never finished")
        running = self._without_those_out_of_reach(running)
        if len({state.record.version for state in running}) > 1:
            raise Violation(f"histories differ: {[(state.id, str(state.record.version)) for state in running]}")
        if len({(digest(state.record.state), state.record.roster) for state in running}) > 1:
            raise Violation(f"{running[0].version} is the name of two states, or of two rosters")
        if self.beats > PROMPT and not (self.setting.lies or self.setting.one_way):
            raise Violation(f"it took {self.beats} beats to settle")
        if self.ended - {running[0].version} and not all(state.is_unconfirmed for state in running):
            raise Violation(f"{running[0].version}, and not {max(self.ended)}, is taken for the end of all")
        if self.liar is not None:
            return
        history = running[0].record.state
        assert isinstance(history, tuple)
        if [version.round for version, _ in history] != list(range(running[0].version.round)):
            raise Violation(f"the state of {running[0].version} is that of another: {history}")
        for version, included in history:
            if len(set(included)) != len(included):
                raise Violation(f"round {version} counts a device twice")
        if self.setting.is_crash_stop and self.setting.rounds - self.fair_from >= 3 and self.setting.policy == "elect":
            outside = {state.id for state in running} - set(history[-1][1])
            if outside and self.setting.refused is None and not self.setting.has_deadline:
                raise Violation(f"devices {sorted(outside)} were never let in")
        if self.setting.policy != "elect":
            self._check_dropped_clusters(history)
        if self.setting.is_crash_stop and not self.setting.has_deadline and not self.restarts:
            for version, included in history:
                absent = {state.id for state in running} - set(included) - {self.setting.refused}
                # A head that is refused takes with it whoever is in its mean; in a star nobody is.
                if absent and (self.setting.refused is None or self.setting.n_clusters == 1):
                    raise Violation(f"survivors {sorted(absent)} are missing from round {version}")

    def _without_those_out_of_reach(self, running: list[Device]) -> list[Device]:
        """Return who is in touch with more than half of the fleet; whoever else ends apart must know that it may."""
        together = [state for state in running if 2 * self._n_in_touch(state.id) > self.setting.n_devices]
        versions = {state.version for state in together}
        for state in running:
            if together and state.version not in versions and not state.is_unconfirmed:
                raise Violation(f"device {state.id} is out of reach and takes {state.version} for the end of all")
        return together or running

    def _n_in_touch(self, device: int) -> int:
        """Return with how many a device is connected by links that work both ways, by way of others too."""
        found = {device}
        for _ in self.devices:
            found |= {b for b in self.devices if any(not {(a, b), (b, a)} & self.blocked for a in found)}
        return len(found)

    def _check_dropped_clusters(self, history: tuple[tuple[Version, tuple[int, ...]], ...]) -> None:
        for version, included in history:
            for head, *members in self.rules.topology.clusters:
                if head not in included and set(members) & set(included):
                    raise Violation(f"a cluster without its head {head} went on in round {version}")


def _apply_anything(effect: Apply) -> object:
    """Append a round to the state, whatever went into it: a liar may have made it up."""
    assert isinstance(effect.state, tuple)
    return (*effect.state, (effect.version, tuple(effect.total.included)))
