"""A run in virtual time: the devices' events in order, failures inside rounds, closed rounds with deferred states.

No aggregation and no failure policy here: the devices decide, this is the world around them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from tolfl.core.device_set import DeviceSet
from tolfl.core.failures import Cut, Failure, FailurePlan
from tolfl.core.records import AnyRecord, FailureHappened, RoundClosed, RunEnded
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import LinkModel, Timing
from tolfl.protocol.device import Device, Rules
from tolfl.protocol.events import (
    Announce,
    Applied,
    Apply,
    DeadlinePassed,
    Event,
    KeepIncarnation,
    PeerFailed,
    Received,
    Send,
    SetDeadline,
    Started,
    Stop,
    TakeOver,
    Ticked,
    Train,
    Trained,
)
from tolfl.protocol.history import ClosedRound, Life, Roster, Version
from tolfl.protocol.injector import Die, GiveUp, Injector, PlannedEffect
from tolfl.protocol.messages import AnyMessage, Closed, Mean, Report
from tolfl.protocol.record_lines import joined_lines, roster_line, round_line, takeover_line
from tolfl.runs.ledger import Entry, Kind, Ledger
from tolfl.sim.deferred import DeferredState, DeferredUpdate, apply

#: Heartbeats in a row without any progress after which nobody can be helped any more.
_PATIENCE = 50

#: Bytes of a message without a model.
CONTROL_BYTES = 64


@dataclass(frozen=True)
class World:
    """What a timeline needs to know of devices, links and data; no sample and no model."""

    rules: Rules
    n_samples: tuple[int, ...]  #: as devices claim them
    counted: tuple[int, ...]  #: as they count in a mean
    train_s: tuple[float, ...]  #: duration of local training, by device
    nbytes: tuple[tuple[int, int], ...]  #: of a contribution and of a closed round, by round
    links: LinkModel
    timing: Timing
    scheme: str
    deadline_s: float | None = None
    has_defence: bool = False

    @cached_property
    def is_one_machine(self) -> bool:
        """Whether all rows are on one machine, and nothing travels in any round."""
        return not any(up for up, _ in self.nbytes)


def training_speeds(links: LinkModel, n_devices: int, seed: int) -> list[float]:
    """Return how fast each device trains; 1 is the nominal speed."""
    if not links.speed_spread:
        return [1.0] * n_devices
    draws = rng_for(seed, Purpose.COMPUTE_SPEED).uniform(0, links.speed_spread, n_devices)
    return [float(1 / (1 + draw)) for draw in draws]


class LinkClock:
    """Arrival times. With serial uplinks a receiver takes one model at a time; small messages pass between them."""

    def __init__(self, links: LinkModel) -> None:
        self._links = links
        self._free_at: dict[int, float] = {}

    def arrival(self, now: float, destination: int, n_bytes: int, has_model: bool) -> float:
        """Return when a message of this size, sent now, is with its receiver."""
        transfer_s = n_bytes * 8 / self._links.bandwidth_bps
        if self._links.uplink == "parallel" or not has_model:
            return now + transfer_s + self._links.latency_s
        start = max(now, self._free_at.get(destination, 0.0))
        self._free_at[destination] = start + transfer_s
        return start + transfer_s + self._links.latency_s


@dataclass(frozen=True, slots=True)
class EndState:
    """What a live device holds in the end."""

    device: int
    record: ClosedRound
    is_private: bool  #: it went on alone
    stopped: str  #: why it stopped


@dataclass
class ClosedStep:
    """A closed round: its state, computed later, and its record once all its messages are sent."""

    step: DeferredState
    record: ClosedRound
    time_s: float
    device: int
    heads: tuple[int, ...]
    stall_s: float
    ledger: Ledger
    n_samples: tuple[int, ...]  #: by device
    traffic: tuple[int, dict[str, int]] | None = None  #: bytes and messages, once the next round is closed

    @property
    def round_index(self) -> int:
        """The round that was closed, from 0."""
        return self.record.version.round - 1

    def settle(self) -> None:
        """Count the messages, now that the next round is closed; what is sent later is in the totals only.

        The moment belongs to the timeline, not to whoever writes records: a resumed run writes them later.
        """
        if self.traffic is None:
            parent = self.record.parent
            self.traffic = self.ledger.bytes_of(parent), self.ledger.counts(parent)

    def line(self) -> RoundClosed:
        """Return the record line; not before the round has settled."""
        assert self.traffic is not None
        n_bytes, messages = self.traffic
        n_left_out = sum(self.n_samples[device] for device in self.step.account.left_out)
        line = round_line(
            self.record, self.heads, self.time_s, self.device, self.step.account, self.stall_s, n_left_out
        )
        return msgspec.structs.replace(line, bytes=n_bytes, messages=messages)


class Timeline:
    """One run of the protocol in virtual time."""

    def __init__(self, world: World, plan: FailurePlan, first: DeferredState, roster: Roster | None = None) -> None:
        self.world, self.plan = world, plan
        self.now = 0.0
        self.ledger = Ledger(world.rules.topology, world.scheme)
        self.dead: dict[int, tuple[int, ClosedRound]] = {}  #: what each dead device left on its disk
        everybody = roster or Roster(dict.fromkeys(sorted(world.rules.topology.cluster_of), 0))
        record = ClosedRound.first(everybody, first)
        self.devices = {
            device: self._planned(Device(device, life, record, world.rules), plan.of_device(device))
            for device, life in everybody.incarnations.items()
        }
        self._queue: list[tuple[float, int, int, Event | Cut]] = []
        self._sent = 0
        self._links = LinkClock(world.links)
        self._out: list[AnyRecord | ClosedStep] = []
        self._cuts: list[Cut] = []
        self._planned_cuts = list(plan.cuts)
        self._returns: list[Failure] = []
        self._happened: set[Failure] = set()
        self._latest_round = 0
        self._closed_at: dict[str, float] = {"": 0.0}  #: by history; for the duration of rounds
        self._parents: dict[str, str] = {}  #: the history that each history extends
        self._last: ClosedStep | None = None
        self._disturbed_until_s = -1.0  #: rounds that start later have nothing to do with any failure so far
        self._quiet: dict[Roster, tuple[float, float]] = {}

    def _planned(self, device: Device, failures: Sequence[Failure]) -> Injector:
        return Injector(device, failures, self.plan.returns, self.world.timing.heartbeat_s)

    # -- the loop -----------------------------------------------------------------------------------------------

    def play(self) -> Iterator[AnyRecord | ClosedStep]:
        """Yield what happens, in order, until everybody is done or nobody can go on."""
        for device in list(self.devices):
            self._handle(device, Started())
        self._follow_plan(0)
        idle = 0
        while True:
            if self._out:
                idle = 0
                yield from self._flush()
            if not self._queue:
                if self._is_finished():
                    break
                idle += not self._is_held_back()
                if idle > _PATIENCE and not self._lift_what_would_end():
                    break
                self._tick_everybody()
                continue
            self.now, _, device, event = heapq.heappop(self._queue)
            self._happen(device, event)
            if self._returns:
                self._bring_back()  # whoever dies while the update spreads that it would return with
        self._settle(None)
        yield RunEnded(time_s=self.now, reason=self._reason(), survivors=tuple(sorted(self.devices)))

    def ends(self) -> list[EndState]:
        """Return what the live devices hold in the end."""
        states = [injector.device for injector in self.devices.values()]
        return [EndState(state.id, state.record, state.is_private, state.stopped or "") for state in states]

    def _flush(self) -> Iterator[AnyRecord | ClosedStep]:
        out, self._out = self._out, []
        yield from out

    def _is_finished(self) -> bool:
        states = [injector.device for injector in self.devices.values()]
        if not all(state.stopped for state in states):
            return False
        return len(self._branches()) < 2 or bool(self._cuts)

    def _is_held_back(self) -> bool:
        """Tell whether somebody waits for a device to come back, which ends by itself."""
        return any(injector.device.is_holding_back for injector in self.devices.values())

    def _branches(self) -> set[Version]:
        """Return the versions at which devices that train together have ended."""
        states = [injector.device for injector in self.devices.values()]
        return {state.version for state in states if state.stopped == "over" and not state.is_private}

    def _reason(self) -> str:
        if not self.devices:
            return "no device is left"
        if all(injector.device.stopped == "dropped" for injector in self.devices.values()):
            return "the server is gone, training stopped"
        if self._is_finished() and len(self._branches()) > 1:
            return f"over, in {len(self._branches())} branches that a cut keeps apart"
        return "over" if self._is_finished() else "halted: too few devices or samples are left to train"

    def _happen(self, device: int, event: Event | Cut) -> None:
        if isinstance(event, Cut):
            if event in self._cuts:
                self._suspect_across(event)
        elif device in self.devices:
            if isinstance(event, Received) and self._is_cut(device, event.message.sender):
                return
            self._handle(device, event)

    def _handle(self, device: int, event: Event) -> None:
        effects = self.devices[device].handle(event)
        for effect in effects:
            self._do(device, effect)
        for effect in effects:
            if isinstance(effect, Apply) and device in self.devices:
                # Applying a mean takes no virtual time, and its state is computed later.
                self._handle(device, Applied(effect.version, apply(effect)))

    def _do(self, device: int, effect: PlannedEffect) -> None:
        match effect:
            case Send():
                self._send(device, effect.to, effect.message)
            case Train():
                self._train(device, effect.version)
            case SetDeadline():
                if self.world.deadline_s is not None:
                    self._push(self.now + self.world.deadline_s, device, DeadlinePassed(effect.version))
            case Announce():
                self._announce(device, effect)
            case TakeOver():
                version = self.devices[device].device.version
                self._out.append(takeover_line(effect, version, self.now, device))
            case Die():
                self._die(device, effect.failure, effect.record)
            case GiveUp():
                self._note(effect.device, effect.round_index, effect.what)
            case Apply() | KeepIncarnation() | Stop():
                pass

    def _push(self, time_s: float, device: int, event: Event | Cut) -> None:
        self._sent += 1
        heapq.heappush(self._queue, (time_s, self._sent, device, event))

    # -- messages and training ----------------------------------------------------------------------------------

    def _send(self, source: int, to: int, message: AnyMessage) -> None:
        if self._is_cut(source, to):
            return
        if to not in self.devices:
            if to in self.dead:  # a refused connection is proof of death; who never was there is no news
                life = PeerFailed(to, self.dead[to][0])
                self._push(self.now + self.world.timing.crash_detection_s, source, life)
            return
        kind = self._kind_of_model_inside(message)
        if kind is None:
            self.ledger.control_messages += 1
            self.ledger.control_bytes += CONTROL_BYTES
            arrival_s = self._links.arrival(self.now, to, CONTROL_BYTES, has_model=False)
        else:
            started_from = message.version.history
            if kind is Kind.MODEL:
                started_from = self._parents.get(started_from, started_from)
            round_index = max(0, message.version.round - (kind is Kind.MODEL))
            n_bytes = self.world.nbytes[round_index][kind is Kind.MODEL]
            self.ledger.add(started_from, Entry(round_index, source, to, kind, n_bytes))
            arrival_s = self._links.arrival(self.now, to, n_bytes, has_model=True)
        self._push(arrival_s, to, Received(message))

    def _kind_of_model_inside(self, message: AnyMessage) -> Kind | None:
        if self.world.is_one_machine:
            return None
        if isinstance(message, Closed):
            return None if message.record.is_over else Kind.MODEL
        if message.version.round >= self.world.rules.rounds:
            return None  # it only says "I hold the last model"
        if isinstance(message, Report):
            return Kind.REPORT
        return Kind.MEAN if isinstance(message, Mean) else None

    def _train(self, device: int, version: Version) -> None:
        update = DeferredUpdate(device, DeviceSet.of([device]), self.world.n_samples[device])
        self._push(self.now + self.world.train_s[device], device, Trained(version, update))
        self._start_cuts()

    # -- rounds -------------------------------------------------------------------------------------------------

    def _announce(self, device: int, announced: Announce) -> None:
        record, step = announced.record, announced.record.state
        assert isinstance(step, DeferredState)
        version = record.version
        started_s = self._closed_at.get(record.parent, 0.0)
        # A record that only changes the roster closes no round: the clock of the round goes on.
        self._closed_at[version.history] = started_s if announced.total is None else self.now
        self._parents[version.history] = record.parent
        self._out += joined_lines(announced, self.now)
        if announced.total is None:
            self._out.append(roster_line(record, self.now, device))
            return
        stall_s = self._stall(record, started_s)
        closing = ClosedStep(step, record, self.now, device, announced.heads, stall_s, self.ledger, self.world.counted)
        self._settle(closing)
        self._out.append(closing)
        self._follow_plan(version.round)

    def _settle(self, following: ClosedStep | None) -> None:
        if self._last is not None:
            self._last.settle()
        self._last = following

    def _stall(self, record: ClosedRound, started_s: float) -> float:
        """Return how much longer a disturbed round took than the same round undisturbed."""
        if started_s > self._disturbed_until_s:
            return 0.0
        roster = Roster(dict.fromkeys(sorted([*record.included, *record.missing]), 0))
        if roster not in self._quiet:
            self._quiet[roster] = quiet_durations(self.world, roster)
        first, later = self._quiet[roster]
        return max(0.0, self.now - started_s - (later if record.version.round > 1 else first))

    def _follow_plan(self, updates_done: int) -> None:
        """Bring devices back, cut links and heal them, as the plan says for this many updates."""
        if updates_done < self._latest_round:
            return
        self._latest_round = updates_done
        self._bring_back()
        for failure in self.plan.failures:
            # A device that stopped with its cluster has no rounds of its own any more to die in.
            injector = self.devices.get(failure.device)
            is_due = failure.round_index <= updates_done
            if injector is not None and injector.device.stopped == "dropped" and is_due:
                self._die(failure.device, failure, injector.device.record)
        self._start_cuts()
        for cut in [c for c in self._cuts if c.heals_at is not None and c.heals_at <= updates_done]:
            self._heal(cut)

    def _bring_back(self) -> None:
        for failure in [f for f in self._returns if f.returns_at is not None and f.returns_at <= self._latest_round]:
            self._returns.remove(failure)
            self._restart(failure.device)

    def _start_cuts(self) -> None:
        for cut in [c for c in self._planned_cuts if self._is_distributed(c.round_index)]:
            self._planned_cuts.remove(cut)
            self._cut(cut)

    def _is_distributed(self, updates_done: int) -> bool:
        """Tell whether all devices have so many updates; a cut while the last one spreads would disturb it."""
        if self._latest_round != updates_done:
            return self._latest_round > updates_done
        states = [injector.device for injector in self.devices.values()]
        return all(s.version.round >= updates_done or s.stopped or not s.fleet.is_inside for s in states)

    # -- failures -----------------------------------------------------------------------------------------------

    def _note(self, device: int | None, round_index: int, what: str) -> None:
        timing = self.world.timing
        self._disturbed_until_s = self.now + max(timing.crash_detection_s, timing.silence_detection_s)
        self._out.append(FailureHappened(time_s=self.now, device=device, round=round_index, what=what))

    def _die(self, device: int, failure: Failure, record: ClosedRound) -> None:
        state = self.devices.pop(device).device
        self.dead[device] = (state.incarnation, record)
        self._happened.add(failure)
        self._note(device, failure.round_index, f"died ({failure.phase.value})")
        noticed = self.now + self.world.timing.crash_detection_s
        for observer in self.devices:
            self._push(noticed, observer, PeerFailed(device, state.incarnation))
        if failure.returns_at is not None:
            self._returns.append(failure)

    def _restart(self, device: int, why: str = "") -> None:
        incarnation, record = self.dead.pop(device)
        later = [f for f in self.plan.of_device(device) if f not in self._happened]
        self.devices[device] = self._planned(Device(device, incarnation + 1, record, self.world.rules), later)
        self._note(device, self._latest_round, f"came back{why}")
        self._handle(device, Started())

    def _cut(self, cut: Cut) -> None:
        self._cuts.append(cut)
        self._note(None, self._latest_round, f"cut {cut.sides}")
        self._push(self.now + self.world.timing.silence_detection_s, -1, cut)

    def _suspect_across(self, cut: Cut) -> None:
        lives: dict[int, Life] = {d: (d, injector.device.incarnation) for d, injector in self.devices.items()}
        for observer in lives:
            for device, life in lives.items():
                if cut.separates(observer, device) and observer in self.devices:
                    self._handle(observer, PeerFailed(*life))

    def _is_cut(self, a: int, b: int) -> bool:
        return bool(self._cuts) and any(cut.separates(a, b) for cut in self._cuts)

    def _heal(self, cut: Cut, why: str = "") -> None:
        self._cuts.remove(cut)
        self._note(None, self._latest_round, f"healed {cut.sides}{why}")
        self._tick_everybody()

    def _lift_what_would_end(self) -> bool:
        """End what keeps the fleet from ever reaching the round in which it would end; tell whether there was any."""
        cuts, returns = [cut for cut in self._cuts if cut.heals_at is not None], list(self._returns)
        for cut in cuts:
            self._heal(cut, " (nobody could go on)")
        for failure in returns:
            self._returns.remove(failure)
            self._restart(failure.device, " (nobody could go on)")
        return bool(cuts or returns)

    def _tick_everybody(self) -> None:
        for device in self.devices:
            self._push(self.now + self.world.timing.heartbeat_s, device, Ticked())


def quiet_durations(world: World, roster: Roster) -> tuple[float, float]:
    """Return how long the first and any later round of a roster last when nothing happens."""
    # A device on its own trains whatever the fleet would need.
    rules = msgspec.structs.replace(world.rules, min_devices=1, min_samples=0)
    timeline = Timeline(replace(world, rules=rules), FailurePlan(), DeferredState(None, None, None), roster)
    times = [item.time_s for item in _first_closings(timeline, 2)]
    return times[0], (times[1] - times[0]) if len(times) > 1 else times[0]


def _first_closings(timeline: Timeline, n: int) -> Iterator[ClosedStep]:
    for item in timeline.play():
        if isinstance(item, ClosedStep):
            yield item
            n -= 1
            if not n:
                return
