"""One device as a process: the driver around `protocol.Device`. No aggregation and no failure policy here."""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import os
import secrets
import signal
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from tolfl.core.contribution import Contribution, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import TolFLError
from tolfl.core.failures import Failure, FailurePlan
from tolfl.core.records import AlarmSent, RunStarted
from tolfl.core.spec import RunSpec, Timing
from tolfl.learners import Account
from tolfl.learners.registry import what_of
from tolfl.net.addresses import AddressBook
from tolfl.net.connection import Outgoing
from tolfl.net.enrolment import REVOCATIONS, EnrolmentError
from tolfl.net.failure_detector import FailureDetector
from tolfl.net.links import Links, spawned
from tolfl.net.node_config import NodeConfig
from tolfl.net.record_log import RecordLog, clock_since
from tolfl.net.status import REJECTED_KINDS, Metrics, Watching, page, rejection_sentence, status_of
from tolfl.net.storage import BackgroundWriter, DeviceStorage, kept_name, kept_update
from tolfl.net.tls import Credentials
from tolfl.net.trainer import Trainer
from tolfl.net.wire import (
    WIRE_VERSION,
    Codec,
    CommandRequest,
    Hello,
    Limits,
    RefusedMessageError,
    Rejection,
    RevocationList,
    StatusReply,
    kept_in,
)
from tolfl.protocol.device import Device, Rules
from tolfl.protocol.events import (
    Announce,
    Applied,
    Apply,
    DeadlinePassed,
    Event,
    KeepIncarnation,
    LeaveAsked,
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
from tolfl.protocol.history import ClosedRound, Roster, State, Version
from tolfl.protocol.injector import Die, Injector, PlannedEffect, ReportAbsence
from tolfl.protocol.messages import AnyMessage, Closed, Heartbeat, Mean, Report
from tolfl.runs.ledger import Kind

if TYPE_CHECKING:
    from tolfl.net.discovery import Discovery

#: How often a device that waits for the others looks who has come.
_LOOK_S = 0.1
_LOG = logging.getLogger("tolfl")
_REVOKED = "device {} was revoked; enrol it anew to let it in again"


@dataclass(frozen=True)
class Assignment:
    """What a device brings along: its part of the run."""

    config: NodeConfig
    spec: RunSpec
    plan: FailurePlan
    rules: Rules
    limits: Limits
    fleet: str
    n_samples: int
    data: str


class Node:
    """A device on a network; `run` runs it from start to end."""

    def __init__(self, assignment: Assignment, trainer: Trainer, credentials: Credentials) -> None:
        config = assignment.config
        if credentials.is_revoked(credentials.identity):
            raise EnrolmentError(_REVOKED.format(config.device))
        self.id, self.fleet, self.limits = config.device, assignment.fleet, assignment.limits
        self.config, self.spec, self.rules = config, assignment.spec, assignment.rules
        self.n_samples, self.timing = assignment.n_samples, Timing.preset(assignment.spec.timing)
        self._data, self._plan = assignment.data, assignment.plan
        self._storage = DeviceStorage(Path(config.state), self.id, self.fleet)
        self.log = RecordLog(Path(config.state), self.id)
        self.trainer, self.credentials = trainer, credentials
        incarnation = self._storage.next_incarnation()
        record = self._storage.newest() or self._first_record()
        self.device = Device(self.id, incarnation, record, self.rules)
        failures = self._failures_to_come(record)
        self._injector = Injector(self.device, failures, self._plan.returns, self.timing.heartbeat_s)
        self._cut_off: frozenset[int] = frozenset()  #: whom a launcher has commanded not to reach
        self.addresses = AddressBook(config.peers, self.id, self.limits.topology.cluster_of)
        self.detector = FailureDetector(self.timing)
        self.links = Links(self, credentials)
        self.writer = BackgroundWriter(self._storage)
        self.loss: float | None = None
        self._started_unix = config.started_unix or time.time()
        self._clock = clock_since(self._started_unix)
        self.began_s = time.monotonic()
        self.went_on_s = self.began_s  #: when it took over the round that it holds
        self._process = secrets.randbits(48)
        self.absent = set(config.absent)  #: whom nobody waits for
        self._incarnations: dict[int, int] = {}  #: the latest incarnation of each peer that is known
        self._processes: dict[int, int] = {}  #: and its process
        self._versions: dict[int, Version] = {}  #: the version that each peer last had
        self._alive: set[tuple[int, int]] = set()  #: who took part and was not suspected at the last beat
        #: what came before this device started: the last of each kind of each peer, since the protocol says all again
        self._early: dict[tuple[int, type], AnyMessage] | None = {}
        self.rejections: dict[int, str] = {}  #: peers that reject this device, with a sentence
        self.n_sent = self.bytes_sent = 0
        self._is_dying = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._record_before = record
        self._last_encoded: tuple[AnyMessage, object, bytes, tuple[Vector | bytes, ...]] | None = None
        self._ended = asyncio.Event()
        self._error: Exception | None = None
        self.learner_error: TolFLError | None = None  #: the first that it did not end with at once
        self._sending: set[asyncio.Task[None]] = set()  #: sums that are sent once they are added up
        self._held: list[tuple[int, AnyMessage]] | None = None  #: what waits for an incarnation to be stored
        self._account = Account()  #: of the round that was applied last
        self.watching: Watching | None = None  #: it goes on after the end, and so does this device
        self._was_asked_to_leave = asyncio.Event()

    def _first_record(self) -> ClosedRound:
        roster = Roster(dict.fromkeys(sorted(self.limits.topology.cluster_of), 0))
        return ClosedRound.first(roster, self.trainer.first_state())

    def _failures_to_come(self, record: ClosedRound) -> list[Failure]:
        """Return the planned failures that have not happened; those of rounds that are over never will."""
        mine = list(self._plan.of_device(self.id))[self._storage.planned_deaths :]
        return [failure for failure in mine if failure.round_index >= record.version.round]

    # -- start and end ------------------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Run the device until the training ends; return why it ended."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as self._group:  # whatever fails unseen ends the device with its error
                try:
                    return await self._live()
                finally:
                    for task in self._tasks:
                        task.cancel()
                    await self.links.stop()
        except BaseExceptionGroup as errors:
            raise _first_of(errors) from None
        finally:
            self.trainer.close()
            self.writer.close()

    async def _live(self) -> str:
        port = await self.links.start(self._group, self.config.listen)
        host = self.config.listen.rpartition(":")[0]
        self.addresses[self.id] = self.config.advertise or f"{host}:{port}"
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._leave)
        metrics = Metrics(self._metrics)
        discovery = self._discovery() if self.config.discover else None
        try:
            if self.config.metrics:
                await metrics.start(self.config.metrics)
            if discovery is not None:
                await discovery.start(self.addresses[self.id])
            await self._wait_for_peers()
            if self._was_asked_to_leave.is_set():
                return "left"
            self._start()
            self._spawn(self._beat())
            return await self._until_the_end()
        finally:
            if discovery is not None:
                await discovery.stop()
            await metrics.stop()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        return spawned(self._group, work, self._tasks)

    def _discovery(self) -> Discovery:
        from tolfl.net.discovery import Discovery  # noqa: PLC0415  (zeroconf is an extra)

        return Discovery(self.fleet, self.id, self.addresses)

    async def _wait_for_peers(self) -> None:
        """Return when this device should begin.

        That is when all others are connected; when somebody trains already, who has given up those that are not there;
        when enough are there and nobody new has come for a while; or when it has taken too long.
        """
        all_others = set(self.limits.topology.cluster_of) - {self.id}
        there: set[int] = set()
        last_came_s = self._loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.start_timeout_s):
                while not (self._is_late or all_others - self.absent <= there):
                    others = all_others - self.absent
                    self.links.find(self.config.seeds)
                    self.links.pass_on_addresses()
                    for peer in sorted(others & self.addresses.keys()):
                        self.links.connect(peer)
                    if not self.links.connected.keys() <= there:
                        last_came_s = self._loop.time()
                    there = set(self.links.connected)
                    is_enough = len(there) + 1 >= self.rules.min_devices
                    if is_enough and self._loop.time() - last_came_s >= self.config.start_quiet_s:
                        return
                    await asyncio.sleep(_LOOK_S if others - there else 0)

    @property
    def _is_late(self) -> bool:
        """Whether others train already, or there is nothing to begin: it has left, or must not take part."""
        is_training = bool(self._early) or any(hello.is_inside for hello in self.links.connected.values())
        return is_training or self._ended.is_set() or self.device.stopped is not None

    def _start(self) -> None:
        hellos = [self.hello(None), *self.links.connected.values()]
        self.log.started(
            self.now_s,
            RunStarted(
                time_s=self.now_s,
                device=self.id,
                scheme=self.spec.scheme,
                data=self._data,
                seed=self.spec.seed,
                clusters=self.limits.topology.clusters,
                model_bytes=self.trainer.learner.model_bytes,
                defence=str(self.spec.defence),
                liars=self.spec.liars,
                learn=what_of(self.spec),
                stages=self.trainer.learner.all_stages(),
                unix_s=self._started_unix,
                processes=tuple((one.device, one.incarnation, one.process) for one in hellos),
            ),
        )
        early, self._early = self._early or {}, None
        self._handle(Started())
        for (peer, _), message in early.items():
            self.received(peer, message)

    async def _until_the_end(self) -> str:
        while True:
            await self._ended.wait()
            if self._error is not None:
                raise self._error
            reason = self.device.stopped
            if reason != "left":
                await self._linger()
            if self.device.stopped != reason or reason is None:
                self._ended.clear()
                continue
            await self._flush()
            self.log.flush_traffic(self.now_s)
            self.log.ended(self.now_s, self.device.record, reason)
            try:
                results = self.trainer.results(self.device.record.state)
            except TolFLError as error:
                self._note_failure(error)
                results = {}
            await asyncio.to_thread(
                self.writer.leave_behind, self.device.record, reason, self.device.is_private, results
            )
            if self.learner_error is not None:
                raise self.learner_error
            if self.watching is None or reason == "left":
                return reason
            self.watching.learned(Path(self.config.state))
            if not await self._serve_on():
                return reason

    async def _serve_on(self) -> bool:
        """Go on answering while the device watches, until it is asked to leave; return whether the run has changed."""
        record = self.device.record
        while self._error is None and self.device.record is record:
            if await self._pause(self.timing.heartbeat_s):
                return False
        self._ended.set()
        return True

    def _leave(self) -> None:
        self._was_asked_to_leave.set()
        if self.device.stopped is None:  # else the run is over, and nobody waits for this device
            self._handle(LeaveAsked())

    def _metrics(self) -> str:
        return page(self.status()) + ("" if self.watching is None else self.watching.metrics())

    async def _linger(self) -> None:
        """Go on answering: somebody may not know of the end, may have a heavier record, or may wake up after it."""
        record, linger_s = self.device.record, self.config.linger_s
        silence_s = min(self.timing.silence_detection_s, linger_s)
        await self._pause(silence_s)
        for _ in range(round((linger_s - silence_s) / self.timing.heartbeat_s)):
            if self.device.record is not record or not self._missing() or await self._pause(self.timing.heartbeat_s):
                return

    async def _pause(self, seconds: float) -> bool:
        """Wait, but not for a device that is asked to leave; return whether it is."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._was_asked_to_leave.wait(), seconds)
        return self._was_asked_to_leave.is_set()

    def _missing(self) -> set[int]:
        """Return the devices of the fleet that may not know how the run ended."""
        version = self.device.version
        served = {peer for peer, known in self._versions.items() if known == version}
        everybody = self.limits.topology.cluster_of.keys()
        return everybody - self.device.record.roster.incarnations.keys() - served - self.absent - {self.id}

    async def _beat(self) -> None:
        """Every heartbeat: who has missed too many heartbeats, what must be resent, which connections are of no use."""
        while True:
            await asyncio.sleep(self.timing.heartbeat_s)
            self._watch_afresh()
            for peer in self.detector.tick(self._loop.time()):
                incarnation = self._newest_incarnation(peer)
                self._alive.discard((peer, incarnation))
                self._mark_failed(peer, incarnation, f"silent for {self.timing.silence_detection_s:g} s")
                self.links.disconnect(peer)
            self._handle(Ticked())
            if overdue := self.trainer.overdue():
                _LOG.warning("tolfl: %s", overdue)
            self._exclude(self.credentials.reread())
            self.links.find(self.config.seeds)  # who could not be reached at the start
            self.links.beat()

    def _watch_afresh(self) -> None:
        """Count missed heartbeats anew for a device that is alive (again): earlier ones must not end it at once."""
        fleet = self.device.fleet
        alive = {member for member in fleet.roster.members if not fleet.has_failed(member)}
        for peer, _ in alive - self._alive:
            self.detector.note_answer(peer)
        self._alive = alive

    async def _flush(self) -> None:
        """Wait a little until what this device has said has arrived."""
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self.links.flush(without={device for device, _ in self.device.fleet.dead})

    @property
    def has_begun(self) -> bool:
        """Whether it takes part; before that it waits for the others."""
        return self._early is None

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        return self._clock()

    # -- events and effects -------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if self._is_dying or self._error is not None:
            return
        before = self._record_before = self.device.record
        earlier = self.device.clone() if isinstance(event, Received) else None
        try:
            effects = self._injector.handle(event)
        except Exception as error:
            if earlier is None:
                self._fail(error)
            else:
                # What a peer sends cannot end this device: it is as if it had never come.
                self.device.restore(earlier)
                self.links.refused["impossible"] += 1
            return
        try:
            for effect in effects:
                self._do(effect)
        except Exception as error:
            self._fail(error)
            return
        if self.device.record is not before and not self._is_dying:
            self._go_on_from(self.device.record)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._ended.set()

    def _do(self, effect: PlannedEffect) -> None:
        match effect:
            case Send():
                self._send(effect.to, effect.message)
            case Train():
                # Everybody begins with the same state: whoever cannot train from that one never can.
                nothing = Contribution(DeviceSet.of([self.id]), self.n_samples, {}) if effect.version.round else None
                self._when_computed(
                    self.trainer.start(effect.version, effect.state), partial(self._trained, effect.version), nothing
                )
            case Apply():
                self._when_computed(
                    self.trainer.compute(partial(self.trainer.apply, effect)),
                    partial(self._applied, effect.version),
                    (effect.state, Account()),
                )
            case SetDeadline():
                if self.spec.deadline_s is not None:
                    self._loop.call_later(self.spec.deadline_s, self._handle, DeadlinePassed(effect.version))
            case Announce():
                self._announce(effect)
            case TakeOver():
                self.log.disturbed()
                self.log.took_over(self.now_s, self.device.record, effect)
            case KeepIncarnation():
                self._held = [] if self._held is None else self._held
                self._spawn(self._store(effect.incarnation))
            case Stop():
                self._ended.set()
            case Die():
                self._is_dying = True
                self._spawn(self._die(effect))
            case ReportAbsence():
                self.log.disturbed()
                self.log.failed(self.now_s, effect.device, effect.round_index, effect.what)

    async def _store(self, incarnation: int) -> None:
        """Store an incarnation, then say what was held back: nobody learns of one that is on no disk."""
        await asyncio.wrap_future(self.writer.keep_incarnation(incarnation))
        if incarnation == self.device.incarnation and self._held is not None:
            held, self._held = self._held, None
            for to, message in held:
                self._send(to, message)

    def _when_computed(
        self, computing: Future[Any], then: Callable[[Any], None], instead: object = None
    ) -> asyncio.Task[None]:
        """Go on with what the training thread computes, on the event loop.

        A learner that fails there ends the device, unless there is something to go on with `instead`: what it failed on
        came from others, and nobody may end a device.
        """
        return self._spawn(self._await(computing, then, instead))

    async def _await(self, computing: Future[Any], then: Callable[[Any], None], instead: object) -> None:
        try:
            result = await asyncio.wrap_future(computing)
        except TolFLError as error:
            if instead is None or error.ends_run:
                raise
            self._note_failure(error)
            result = instead
        then(result)

    def _note_failure(self, error: TolFLError) -> None:
        """Keep why the learner could not go on from what others sent; say so now, and when the run is over."""
        if self.learner_error is None:
            self.learner_error = error
            _LOG.warning("tolfl: %s; the run goes on without what it was to add", error)

    def _trained(self, version: Version, contribution: Contribution) -> None:
        self.loss = contribution.loss
        if self.config.keep_updates:
            self.writer.keep_file(*kept_update(self.id, self.device.incarnation, version, contribution))
        self._handle(Trained(version, contribution))

    def _applied(self, version: Version, result: tuple[State, Account]) -> None:
        state, self._account = result
        loss = self._account.loss
        self._handle(Applied(version, state, loss if loss is not None and math.isfinite(loss) else None))

    def _announce(self, announced: Announce) -> None:
        record, every = announced.record, self.config.keep_models_every
        self.log.closed(self.now_s, announced, self._account)
        if announced.total is not None and every and record.version.round % every == 0:
            self.writer.keep_as(record, kept_name(record.version))

    def _go_on_from(self, record: ClosedRound) -> None:
        self.log.next_round(self.now_s, record)
        self.went_on_s = time.monotonic()
        self.writer.keep(record, self.device.is_private)

    async def _die(self, death: Die) -> None:
        """Die as planned: flush what was sent, and send nothing more."""
        failure = death.failure
        self.log.failed(self.now_s, self.id, failure.round_index, f"died ({failure.phase.value})")
        await self._flush()
        self.log.flush_traffic(self.now_s)
        self.writer.last_of_incarnation(death.record, self.device.incarnation)
        os.kill(os.getpid(), signal.SIGKILL)

    # -- messages -----------------------------------------------------------------------------------------------

    def _is_cut(self, peer: int, round_index: int) -> bool:
        """Return whether nothing may pass between this device and a peer in a round.

        Each side goes by the rounds that it knows of. A message of the round in which a cut ends ends it for whoever
        gets it: the side that was left behind has no other way to learn of it.
        """
        return peer in self._cut_off or self._plan.is_cut(self.id, peer, round_index)

    def _send(self, to: int, message: AnyMessage) -> None:
        if self._held is not None:
            self._held.append((to, message))
            return
        if self._is_cut(to, self.device.version.round):
            self.links.expect(to)  # nothing passes, but somebody waits for an answer and must notice that none comes
            return
        if isinstance(message, Mean) and not isinstance(message.total, Contribution):
            sending = self._when_computed(
                self.trainer.compute(partial(self.trainer.total, message.total, message.version.round)),
                lambda total: self._queue(to, msgspec.structs.replace(message, total=total)),
                Contribution(message.total.included, message.total.n_samples, {}),
            )
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
            return
        self._queue(to, message, self._known_of(message.record) if isinstance(message, Closed) else None)

    def _queue(self, to: int, message: AnyMessage, parent: dict[str, Vector] | None = None) -> None:
        """Queue a message; of a closed round only what is not in the `parent` state, which the peer should have."""
        frame, arrays = self._encoded(message, parent)
        history, kind = self._record_before.version.history, _kind_of(message)
        if not arrays:
            self.links.send(to, Outgoing(frame, history))
            return
        # A peer that cannot use a part pulls the whole, which must not count as already there.
        name = (kind, message.version, _included(message), parent is None)
        self.links.send(to, Outgoing(frame, history, arrays, kind, name, kind is Kind.MODEL))

    def _encoded(
        self, message: AnyMessage, parent: dict[str, Vector] | None
    ) -> tuple[bytes, tuple[Vector | bytes, ...]]:
        """Encode once what goes to many."""
        last = self._last_encoded
        if last is None or last[0] is not message or last[1] is not parent:
            frame, arrays = Codec.encode(message, parent)
            last = self._last_encoded = (message, parent, frame, tuple(arrays))
        return last[2], last[3]

    def sent(self, peer: int, message: Outgoing) -> None:
        """Count a message that has left."""
        self.log.sent(message.history, peer, message.kind, message.n_bytes)
        self.n_sent += 1
        self.bytes_sent += message.n_bytes

    def _known_of(self, record: ClosedRound) -> dict[str, Vector] | None:
        """Return the state that a receiver of a new record has, as a rule; who asks for it may have none."""
        before = self._record_before
        if self.device.record is before:
            return None
        if record.is_over:
            return _arrays(record)
        # A new roster alone is for those who come, and they lack everything.
        is_update = record.parent == before.version.history and record.state is not before.state
        return _arrays(before) if is_update else None

    def received(self, peer: int, message: AnyMessage) -> None:
        """Take in a message of a peer; whatever it is, it cannot end this device."""
        if self._early is not None:
            self._early[peer, type(message)] = message
            return
        if self._is_cut(peer, max(self.device.version.round, message.version.round)):
            return
        is_old = isinstance(message, Report | Mean) and message.version < self.device.version
        if is_old or message.incarnation < self._incarnations.get(peer, 0):
            self.links.refused["stale"] += 1  # of no use; the protocol sends its sender the newer record
        self._incarnations[peer] = max(self._incarnations.get(peer, 0), message.incarnation)
        self._versions[peer] = message.version
        if isinstance(message, Closed) and kept_in(message.record):
            message = self._with_kept(message)
        self._handle(Received(message))

    def _with_kept(self, message: Closed) -> AnyMessage:
        """Fill in what a record keeps of its parent's state; without the parent it only announces the record."""
        own, record = self.device.record, message.record
        sent, had, kept = _arrays(record), _arrays(own), kept_in(record)
        if own.version.history in (record.parent, record.version.history) and kept <= had.keys():
            models = {key: had[key] if key in kept else array for key, array in sent.items()}
            return msgspec.structs.replace(message, record=msgspec.structs.replace(record, state=models))
        return Heartbeat(message.sender, message.incarnation, message.version, message.dead)

    # -- what the connections ask for -----------------------------------------------------------------------------

    def hello(self, to: int | None) -> Hello:
        """Return the first frame of a connection."""
        return Hello(
            wire=WIRE_VERSION,
            fleet=self.fleet,
            device=self.id,
            incarnation=self.device.incarnation,
            to=to,
            process=self._process,
            is_inside=self.device.fleet.is_inside and self.has_begun,
            addresses=dict(self.addresses),
            revocations=self.credentials.revocations,
        )

    def handshake_done(self, peer: int, hello: Hello) -> None:
        """Take in the first frame of a peer: where others are, and that an earlier incarnation of it is over."""
        before, process = self._incarnations.get(peer), self._processes.get(peer)
        is_over = before is not None and hello.incarnation < before  # and it may have moved since
        self.addresses.learn_all(peer, hello.addresses, is_outdated=is_over)
        try:
            self.learn(hello.revocations)
        except RefusedMessageError as error:  # a list that nobody signed teaches nothing
            self.links.refused[error.kind] += 1
        self.rejections.pop(peer, None)
        self._incarnations[peer], self._processes[peer] = max(before or 0, hello.incarnation), hello.process
        self.note_answer(peer)
        if before is None or not self.has_begun:
            return
        if hello.incarnation > before:
            self._handle(PeerFailed(peer, before))
        elif hello.incarnation == before and hello.process != process:
            # The same incarnation in another process: its disk was lost or put back, and what it had promised with it.
            self._handle(PeerFailed(peer, before))

    def note_answer(self, peer: int) -> None:
        """Note an answer."""
        if not self._is_cut(peer, self.device.version.round):
            self.detector.note_answer(peer)

    def was_refused(self, peer: int) -> None:
        """Take in the proof that a process is gone, and with it the last incarnation that it answered in."""
        incarnation = self._incarnations.get(peer, 0)
        if incarnation >= self._newest_incarnation(peer):
            self._mark_failed(peer, incarnation, "connection refused")

    def was_rejected(self, peer: int | None, rejection: Rejection) -> None:
        """Take in that a peer rejects this device: only a person can put that right."""
        if rejection.kind == "revoked":
            with suppress(RefusedMessageError):  # a list that nobody signed proves nothing
                self.learn(rejection.revocations)
        elif peer is not None and peer not in self.rejections and rejection.kind in REJECTED_KINDS:
            self.rejections[peer] = rejection_sentence(self.id, peer, rejection.kind)
            _LOG.warning("tolfl: %s", self.rejections[peer])

    def _newest_incarnation(self, peer: int) -> int:
        return max(self._incarnations.get(peer, 0), self.device.fleet.roster.incarnations.get(peer, 0))

    def _mark_failed(self, peer: int, incarnation: int, how: str) -> None:
        """Declare an incarnation of a peer failed."""
        if not self.has_begun or self.device.stopped not in (None, "over"):
            return
        self.links.forget_payloads(peer)
        if self.device.stopped is None and not self.device.fleet.has_failed((peer, incarnation)):
            self.log.disturbed()
            self.log.failed(self.now_s, peer, self.device.version.round, f"found dead: {how}")
        self._handle(PeerFailed(peer, incarnation))

    def status(self) -> StatusReply:
        """Return what there is to know of this device."""
        return status_of(self)

    def alarmed(self, line: AlarmSent) -> None:
        """Write down that this device has raised an alarm; from any thread."""
        with suppress(RuntimeError):  # the loop is closed: the alarm is on its way all the same
            self._loop.call_soon_threadsafe(self.log.write, msgspec.structs.replace(line, time_s=self.now_s))

    def records(self, first: int) -> bytes:
        """Return a piece of what was written down, from a byte on."""
        return self.log.piece(first)

    def learn(self, revocations: bytes) -> None:
        """Take in a list of revocations that somebody sent."""
        try:
            news = self.credentials.learn(revocations)
        except EnrolmentError as error:
            raise RefusedMessageError("forged", str(error)) from None
        self._exclude(news)

    def _exclude(self, revoked: frozenset[int] | None) -> None:
        """Cut off whom a newer list of revocations names, and pass the list on."""
        if revoked is None:
            return
        self.writer.keep_file(REVOCATIONS, self.credentials.revocations)
        if self.id in revoked and self.credentials.is_revoked(self.credentials.identity):
            self._error = EnrolmentError(_REVOKED.format(self.id))
            self._ended.set()
        for peer in revoked:
            self.links.disconnect(peer)  # dialled again, it must show a certificate that counts
        self.links.send_to_all(RevocationList(self.credentials.revocations))

    def command(self, request: CommandRequest, is_operator: bool) -> bool:
        """Do what an operator or a launcher asks; return whether it was allowed to."""
        token = self.config.token
        if not is_operator and not (token and hmac.compare_digest(request.token.encode(), token.encode())):
            return False
        if request.cut is not None:
            self._cut_off = frozenset(request.cut)
        self.absent |= set(request.absent)
        if request.leave:
            self._leave()
        return True


def _arrays(record: ClosedRound) -> dict[str, Vector]:
    """Return the state of a record."""
    return cast("dict[str, Vector]", record.state)


def _kind_of(message: AnyMessage) -> Kind:
    if isinstance(message, Report):
        return Kind.REPORT
    return Kind.MEAN if isinstance(message, Mean) else Kind.MODEL


def _included(message: AnyMessage) -> int:
    """Return whose samples are in the payload of a message, as bits."""
    if isinstance(message, Report):
        return message.contribution.included.bits
    return message.total.included.bits if isinstance(message, Mean) else 0


def _first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what went wrong first."""
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
