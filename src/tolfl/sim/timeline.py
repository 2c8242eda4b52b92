"""A run in virtual time: the devices' events in order, failures inside rounds, closed rounds with deferred states.

No aggregation and no failure policy here: the devices decide, this is the world around them. Rounds in which nothing
happens but training are closed without events (`quiet_rounds`), from one disturbance to the next; the record lines, the
ledger and the clock are the same to the last bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from tolfl.core.device_set import DeviceSet
from tolfl.core.failures import Cut, Failure, FailurePlan
from tolfl.core.records import AnyRecord, FailureHappened, RoundClosed, RunEnded
from tolfl.protocol.device import Device
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
from tolfl.protocol.history import ClosedRound, Incarnation, Roster, Version
from tolfl.protocol.injector import Die, Injector, PlannedEffect, ReportAbsence
from tolfl.protocol.messages import Ack, AnyMessage, Closed, Mean, Report
from tolfl.protocol.record_lines import joined_lines, roster_line, round_line, takeover_line
from tolfl.runs.ledger import Kind, Ledger, QuietRound, SentMessage, closed_rounds, reports_and_means
from tolfl.sim.deferred import DeferredState, DeferredUpdate, apply
from tolfl.sim.quiet_rounds import QuietFleet, has_closed_form, quiet_durations, spreads_within
from tolfl.sim.world import CONTROL_BYTES, LinkClock, World

#: Heartbeats in a row without any progress after which nobody can be helped any more.
_MAX_IDLE_TICKS = 50
_EVERYBODY = -1  #: in place of the device that an event is for


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

    def __init__(
        self,
        world: World,
        plan: FailurePlan,
        first: DeferredState,
        roster: Roster | None = None,
        by_events: bool = False,
    ) -> None:
        self.world, self.plan = world, plan
        self.now = 0.0
        self.ledger = Ledger(world.rules.topology, world.scheme)
        self.dead: dict[int, tuple[int, ClosedRound]] = {}  #: what each dead device left on its disk
        everybody = roster or Roster(dict.fromkeys(sorted(world.rules.topology.cluster_of), 0))
        self._record = ClosedRound.first(everybody, first)  #: what everybody holds while rounds have no events
        self._has_closed_form = not by_events and has_closed_form(world)
        # Where a death is noticed before the last record is with everybody, they still have the round before it to end.
        self._n_rounds_before = 1 if spreads_within(world, world.timing.crash_detection_s) else 2
        self._quiet_close: tuple[int, Apply] | None = None  #: by whom, and what: the next rounds need no events
        self.n_quiet_rounds = 0  #: that were closed without events
        self.devices: dict[int, Injector] = {}
        self._queue: list[tuple[float, int, int, Event | Cut]] = []
        self._sent = 0
        self._links = LinkClock(world.links)
        self._out: list[AnyRecord | ClosedStep] = []
        self._cuts: list[Cut] = []
        self._planned_cuts = list(plan.cuts)
        self._returns: list[Failure] = []
        self._happened: set[Failure] = set()
        self._beats_left = 0  #: in which those that a cut has kept apart may still find together
        self._latest_round = 0
        self._closed_at: dict[str, float] = {"": 0.0}  #: by history; for the duration of rounds
        self._parents: dict[str, str] = {}  #: the history that each history extends
        self._last: ClosedStep | None = None
        self._disturbed_until_s = -1.0  #: rounds that start later have nothing to do with any failure so far
        self._quiet: dict[Roster, tuple[float, float]] = {}
        if not self._is_quiet_at_first():
            self._wake(self._record)

    def _wake(self, record: ClosedRound) -> None:
        """Let every device begin with a record."""
        for device, incarnation in record.roster.incarnations.items():
            one = Device(device, incarnation, record, self.world.rules)
            self.devices[device] = self._planned(one, self.plan.of_device(device))

    def _planned(self, device: Device, failures: Sequence[Failure]) -> Injector:
        return Injector(device, failures, self.plan.returns, self.world.timing.heartbeat_s)

    # -- the loop -----------------------------------------------------------------------------------------------

    def play(self) -> Iterator[AnyRecord | ClosedStep]:
        """Yield what happens, in order, until everybody is done or nobody can go on."""
        if not self.devices:
            yield from self._quiet_rounds(QuietFleet(self.world, self._record.roster))
            if self._record.is_over:
                return
        else:
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
                idle += not self._is_awaiting_a_return()
                if idle > _MAX_IDLE_TICKS and not self._lift_what_would_end():
                    break
                self._tick_everybody(self.world.timing.heartbeat_s)
                continue
            time_s, _, device, event = heapq.heappop(self._queue)
            if device == _EVERYBODY and isinstance(event, Ticked) and self._is_whole():
                continue  # nothing happens then, and no time passes
            self.now = time_s
            self._happen(device, event)
            if self._quiet_close is not None:
                yield from self._close_quietly(*self._quiet_close)
            if self._returns:
                self._bring_back()  # whoever dies while the update spreads that it would return with
        self._settle(None)
        yield RunEnded(time_s=self.now, reason=self._reason(), survivors=tuple(sorted(self.devices)))

    def ends(self) -> list[EndState]:
        """Return what the live devices hold in the end."""
        if self._record.is_over:
            return [EndState(device, self._record, False, "over") for device in self._record.roster.incarnations]
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

    def _is_awaiting_a_return(self) -> bool:
        """Return whether somebody waits for a device to come back, which ends by itself."""
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
        elif device == _EVERYBODY:
            self._beats_left -= 1
            self._tick_everybody(0.0)
            self._push(self.now + self.world.timing.heartbeat_s, _EVERYBODY, Ticked())
        elif device in self.devices:
            if isinstance(event, Received) and self._is_cut(device, event.message.sender):
                return
            self._handle(device, event)

    def _handle(self, device: int, event: Event) -> None:
        effects = self.devices[device].handle(event)
        for effect in effects:
            self._do(device, effect)
        for effect in effects:
            if not isinstance(effect, Apply) or device not in self.devices:
                continue
            if self._is_quiet_from(device, effect):
                self._quiet_close = device, effect
            else:
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
            case ReportAbsence():
                self._note(effect.device, effect.round_index, effect.what)
            case Apply() | KeepIncarnation() | Stop():
                pass

    def _push(self, time_s: float, device: int, event: Event | Cut) -> None:
        self._sent += 1
        heapq.heappush(self._queue, (time_s, self._sent, device, event))

    # -- rounds without events ----------------------------------------------------------------------------------

    def _next_disturbance(self) -> int:
        """Return after how many updates the plan next has something happen; the end of the run, if it never does."""
        done = self._latest_round
        failing = (f for f in self.plan.failures if f not in self._happened and f.device not in self.dead)
        rounds = [self.world.rules.rounds, *(failure.round_index for failure in failing)]
        rounds += [cut.round_index for cut in self._planned_cuts]
        rounds += [failure.returns_at for failure in self._returns if failure.returns_at is not None]
        return min(rounds + [awaited for awaited in self.plan.returns if awaited > done])

    def _is_quiet_at_first(self) -> bool:
        """Return whether no device is needed before the first round is closed, or at all."""
        rules, roster = self.world.rules, self._record.roster
        n_samples = sum(self.world.n_samples[device] for device in roster.incarnations)
        is_enough = rules.min_devices <= len(roster.incarnations) and rules.min_samples <= n_samples
        return (
            self._has_closed_form
            and is_enough
            and (self._is_unplanned or self._next_disturbance() >= self._n_rounds_before)
        )

    @property
    def _is_unplanned(self) -> bool:
        return not self.plan.failures and not self.plan.cuts

    def _is_quiet_from(self, closer: int, closing: Apply) -> bool:
        """Return whether nothing is on its way, and nothing will happen before the round after the next is closed.

        Then everybody has the version that is being closed, and will have whatever is sent from here on.
        """
        first_played = closing.version.round + 1 + self._n_rounds_before
        if not self._has_closed_form or self._cuts or self._next_disturbance() < first_played:
            return False
        fleet, included = self.devices[closer].device.fleet, closing.total.included
        if fleet.joiners or fleet.has_losses or included != fleet.roster.devices:
            return False
        states = [injector.device for injector in self.devices.values()]
        return all(
            state.is_settled_with(fleet, closing.version) for state in states if state.stopped != "dropped"
        ) and all(  # who is to see whether all have found together will see it
            (isinstance(event, Received) and isinstance(event.message, Ack))
            or (device, event) == (_EVERYBODY, Ticked())
            for _, _, device, event in self._queue
        )

    def _close_quietly(self, closer: int, closing: Apply) -> Iterator[AnyRecord | ClosedStep]:
        """Close the round at hand, and the following ones, without events."""
        self._quiet_close = None
        record, history = self.devices[closer].device.record, closing.version.history
        fleet, (_, down) = QuietFleet(self.world, record.roster), self.world.nbytes[closing.version.round]
        self._record = record.after(closing.total, {}, record.roster, apply(closing))
        self._announce(closer, Announce(self._record, closing.total, fleet.heads, ()))
        for entry in closed_rounds(fleet.clusters, closing.version.round, down):
            self.ledger.add(history, entry)
        fleet.distribute(self.now, down)
        yield from self._quiet_rounds(fleet)

    def _quiet_rounds(self, fleet: QuietFleet) -> Iterator[AnyRecord | ClosedStep]:
        """Close rounds without events; wake the devices when the last one before a disturbance closes."""
        rules, roster, closer = self.world.rules, self._record.roster, fleet.heads[-1]
        is_failure_free = self._is_unplanned and not self.devices
        until = rules.rounds + self._n_rounds_before if is_failure_free else self._next_disturbance()
        while self._record.version.round < rules.rounds:
            record, before = self._record, self._record.state
            round_index, history = record.version.round, record.version.history
            up, down = self.world.nbytes[round_index]
            self.now = fleet.closes(up)
            self._count_small(len(roster.incarnations) - 1)  # each report and each sum is acknowledged
            assert isinstance(before, DeferredState)
            state = DeferredState(record.version, before, fleet.total, roster.devices)
            if round_index + self._n_rounds_before == until:
                for entry in reports_and_means(fleet.clusters, round_index, up):
                    self.ledger.add(history, entry)
                self._go_on_by_events(closer, fleet, state)
                return
            self.n_quiet_rounds += 1
            self.ledger.quiet[history] = QuietRound(round_index, up, down, fleet.clusters)
            self._record = record.after(fleet.total, {}, roster, state)
            self._announce(closer, Announce(self._record, fleet.total, fleet.heads, ()))
            yield from self._flush()
            fleet.distribute(self.now, down)
        yield from self._end_quietly(fleet)

    def _go_on_by_events(self, closer: int, fleet: QuietFleet, state: DeferredState) -> None:
        """Put the devices where they would be had they played every event, and let the closer close its round."""
        record = self._record
        # Acknowledgements that are still on their way change nothing, but time passes until they arrive.
        self._queue = [entry for entry in self._queue if entry[0] > self.now]
        heapq.heapify(self._queue)
        if not self.devices:
            self._wake(record)
        for device in record.roster.incarnations:
            self.devices[device].device.skip_to(record)
        self.devices[closer].device.round.closing = (fleet.total, {}, record.roster)
        self._handle(closer, Applied(record.version, state))

    def _end_quietly(self, fleet: QuietFleet) -> Iterator[AnyRecord | ClosedStep]:
        """Yield the last lines: all confirm in small messages that they hold the last model, and learn of the end."""
        self._settle(None)
        roster = self._record.roster
        # Reports and sums, their acknowledgements, and the record of the end.
        self._count_small(3 * (len(roster.incarnations) - 1))
        self._record = self._record.with_roster(roster, is_over=True)
        closed_s, self.now = fleet.ends()
        yield roster_line(self._record, closed_s, fleet.heads[-1])
        yield RunEnded(time_s=self.now, reason="over", survivors=tuple(roster.incarnations))

    def _count_small(self, n_messages: int) -> None:
        self.ledger.control_messages += n_messages
        self.ledger.control_bytes += n_messages * CONTROL_BYTES

    # -- messages and training ----------------------------------------------------------------------------------

    def _send(self, source: int, to: int, message: AnyMessage) -> None:
        if self._is_cut(source, to):
            return
        if to not in self.devices:
            if to in self.dead:  # a refused connection is proof of death; a device that never was there is none
                failed = PeerFailed(to, self.dead[to][0])
                self._push(self.now + self.world.timing.crash_detection_s, source, failed)
            return
        kind = self._kind_of_model_inside(message)
        if kind is None:
            self._count_small(1)
            arrival_s = self._links.arrival(self.now, to, CONTROL_BYTES, has_model=False)
        else:
            started_from = message.version.history
            if kind is Kind.MODEL:
                started_from = self._parents.get(started_from, started_from)
            round_index = max(0, message.version.round - (kind is Kind.MODEL))
            n_bytes = self.world.nbytes[round_index][kind is Kind.MODEL]
            self.ledger.add(started_from, SentMessage(round_index, source, to, kind, n_bytes))
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
        """Return how much longer a disturbed round took than the same round without failures."""
        if started_s > self._disturbed_until_s:
            return 0.0
        roster = Roster(dict.fromkeys(sorted([*record.included, *record.missing]), 0))
        if roster not in self._quiet:
            durations = quiet_durations if self._has_closed_form else _played_durations
            self._quiet[roster] = durations(self.world, roster)
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
        """Return whether all devices have so many updates; a cut while the last one spreads would disturb it."""
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
        self._push(self.now + self.world.timing.silence_detection_s, _EVERYBODY, cut)

    def _suspect_across(self, cut: Cut) -> None:
        incarnations: dict[int, Incarnation] = {
            d: (d, injector.device.incarnation) for d, injector in self.devices.items()
        }
        for observer in incarnations:
            for device, incarnation in incarnations.items():
                if cut.separates(observer, device) and observer in self.devices:
                    self._handle(observer, PeerFailed(*incarnation))

    def _is_cut(self, a: int, b: int) -> bool:
        return bool(self._cuts) and any(cut.separates(a, b) for cut in self._cuts)

    def _heal(self, cut: Cut, why: str = "") -> None:
        self._cuts.remove(cut)
        self._note(None, self._latest_round, f"healed {cut.sides}{why}")
        heartbeat_s, self._beats_left = self.world.timing.heartbeat_s, _MAX_IDLE_TICKS
        self._tick_everybody(heartbeat_s)
        self._push(self.now + 2 * heartbeat_s, _EVERYBODY, Ticked())

    def _lift_what_would_end(self) -> bool:
        """End what keeps the fleet from ever reaching the round in which it would end; return whether there was any."""
        cuts, returns = [cut for cut in self._cuts if cut.heals_at is not None], list(self._returns)
        for cut in cuts:
            self._heal(cut, " (nobody could go on)")
        for failure in returns:
            self._returns.remove(failure)
            self._restart(failure.device, " (nobody could go on)")
        return bool(cuts or returns)

    def _is_whole(self) -> bool:
        """Return whether no device is out that could be in, or all had time enough to find together by heartbeats."""
        states = [injector.device for injector in self.devices.values()]
        training = [state for state in states if state.stopped != "dropped" and not state.is_private]
        if not training or not self._beats_left:
            return True
        present = max(training, key=lambda state: state.version).fleet.roster.incarnations
        return all(present.get(state.id) == state.incarnation for state in training)

    def _tick_everybody(self, wait_s: float) -> None:
        for device in self.devices:
            self._push(self.now + wait_s, device, Ticked())


def _played_durations(world: World, roster: Roster) -> tuple[float, float]:
    """Return how long the first and any later round of a roster last when nothing happens, by events."""
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
