"""One device as a process: the driver around `protocol.Device`. No aggregation and no failure policy here."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import grpc.aio
import msgspec

from tolfl.core.contribution import Contribution, Vector
from tolfl.core.errors import RunDirectoryError
from tolfl.core.failures import Failure
from tolfl.core.records import RunStarted
from tolfl.core.spec import Timing
from tolfl.learners import Account, Learner
from tolfl.learners.registry import what_of
from tolfl.net.addresses import Addresses
from tolfl.net.arrival import Arrival
from tolfl.net.authority import REVOCATIONS, EnrolmentError
from tolfl.net.credentials import Credentials
from tolfl.net.cuts import Cuts
from tolfl.net.detector import Detector
from tolfl.net.diary import Diary
from tolfl.net.discovery import Discovery
from tolfl.net.disk import DeviceDisk, kept_name
from tolfl.net.keeping import Keeper
from tolfl.net.metrics import Metrics
from tolfl.net.outbox import Outbox
from tolfl.net.server import Server
from tolfl.net.setting import Setting
from tolfl.net.status import status_of, stranger_sentence
from tolfl.net.trainer import Trainer
from tolfl.net.wire import WIRE_VERSION, CommandRequest, Hello, RevocationList, StatusReply, kept_in
from tolfl.protocol.device import Device
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
from tolfl.protocol.injector import Die, GiveUp, Injector, PlannedEffect
from tolfl.protocol.messages import AnyMessage, Closed, Heartbeat, Mean, Report
from tolfl.runs.directory import write_file

#: What may come in before this device starts; the oldest is dropped, since the protocol says everything again.
_MAX_EARLY = 256
T = TypeVar("T")
_LOG = logging.getLogger("tolfl")
_REVOKED = "device {} was revoked; enrol it anew to let it in again"


class Node:
    """A device on a network; `run` is its whole life."""

    def __init__(self, setting: Setting, trainer: Trainer, credentials: Credentials) -> None:
        config = setting.config
        self.id, self.fleet, self.limits = config.device, setting.fleet, setting.limits
        self.setting, self.timing = setting, Timing.preset(setting.spec.timing)
        self.rules = setting.rules
        self._disk = DeviceDisk(Path(config.state), self.id, self.fleet)
        self.diary = Diary(Path(config.state), self.id)
        self._trainer, self._credentials = trainer, credentials
        if credentials.is_revoked(credentials.identity):
            raise EnrolmentError(_REVOKED.format(self.id))
        incarnation = self._disk.next_life()
        record = self._disk.newest() or self._first_record()
        self.device = Device(self.id, incarnation, record, self.rules)
        self._injector = Injector(
            self.device, self._failures_to_come(record), setting.plan.returns, self.timing.heartbeat_s
        )
        self.cuts = Cuts(self.id, setting.plan)
        self.addresses = Addresses(config.peers, self.id, self.limits.topology.cluster_of)
        self.detector = Detector(self.timing)
        self.outbox = Outbox(self, credentials.dial, self.detector, self.diary)
        self.keeper = Keeper(self._disk)
        self.server = Server(self, credentials)
        self.loss: float | None = None
        self._started_unix = config.started_unix or time.time()
        self.began_s = time.monotonic()
        self._lives: dict[int, int] = {}  #: the latest life of each peer that was heard of
        #: what came before this device started
        self._early: deque[tuple[int, AnyMessage]] | None = deque(maxlen=_MAX_EARLY)
        self.strangers: set[int] = set()  #: peers that answer and do not count this device among their fleet
        self._is_dying = False
        self._record_before = record
        self._ended = asyncio.Event()
        self._error: Exception | None = None
        self._computing: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()  #: of these, sums that are sent once they are added up
        self._account = Account()  #: of the round that was applied last

    def _first_record(self) -> ClosedRound:
        roster = Roster(dict.fromkeys(sorted(self.limits.topology.cluster_of), 0))
        return ClosedRound.first(roster, self._trainer.first_state())

    def _failures_to_come(self, record: ClosedRound) -> list[Failure]:
        """Return the planned failures that have not happened; those of rounds that are over never will."""
        mine = list(self.setting.plan.of_device(self.id))[self._disk.planned_deaths :]
        return [failure for failure in mine if failure.round_index >= record.version.round]

    # -- life ---------------------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Live: listen, gather, take part until the end; return why it ended."""
        self._loop = asyncio.get_running_loop()
        port = await self.server.start(self.setting.config.listen)
        host = self.setting.config.listen.rpartition(":")[0]
        self.addresses[self.id] = self.setting.config.advertise or f"{host}:{port}"
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._handle, LeaveAsked())
        beat: asyncio.Task[None] | None = None
        metrics = Metrics(self.status)
        discovery = Discovery(self.fleet, self.id, self.addresses.found) if self.setting.config.discover else None
        try:
            if self.setting.config.metrics:
                await metrics.start(self.setting.config.metrics)
            if discovery is not None:
                await discovery.start(self.addresses[self.id])
            await Arrival(self).wait()
            self._start()
            beat = asyncio.create_task(self._beat())
            return await self._until_the_end()
        finally:
            if beat is not None:
                beat.cancel()
            for task in self._computing:
                task.cancel()
            await asyncio.gather(*self._computing, return_exceptions=True)
            if discovery is not None:
                await discovery.stop()
            await metrics.stop()
            await self.outbox.close()
            await self.server.stop()
            self._trainer.close()
            self.keeper.close()

    @property
    def learner(self) -> Learner:
        """What the fleet learns."""
        return self._trainer.learner

    def _start(self) -> None:
        self.diary.started(
            self.now_s,
            RunStarted(
                time_s=self.now_s,
                device=self.id,
                scheme=self.setting.spec.scheme,
                data=self.setting.data,
                seed=self.setting.spec.seed,
                clusters=self.limits.topology.clusters,
                model_bytes=self.learner.model_bytes,
                defence=str(self.setting.spec.defence),
                liars=self.setting.spec.liars,
                learn=what_of(self.setting.spec),
                stages=self.learner.all_stages(),
            ),
        )
        early, self._early = self._early or deque(), None
        self._handle(Started())
        for peer, message in early:
            self.received(peer, message)

    async def _until_the_end(self) -> str:
        while True:
            await self._ended.wait()
            if self._error is not None:
                raise self._error
            reason = self.device.stopped
            if reason != "left":
                # Somebody may not have heard yet, or may know better; a device that is over still listens.
                await asyncio.sleep(self.timing.silence_detection_s)
            if self.device.stopped != reason or reason is None:
                self._ended.clear()
                continue
            await self._say_last_words()
            self.diary.flush_traffic(self.now_s, self.device.record.parent)
            self.diary.ended(self.now_s, self.device.record, reason)
            results = self._trainer.results(self.device.record.state)
            self.keeper.leave_behind(self.device.record, reason, self.device.is_private, results)
            return reason

    async def _beat(self) -> None:
        """Every heartbeat: who has fallen silent, what must be said again, which links are of no use."""
        while True:
            await asyncio.sleep(self.timing.heartbeat_s)
            for peer in self.detector.tick(self._loop.time()):
                self._give_up(peer, f"silent for {self.timing.silence_detection_s:g} s")
            self._handle(Ticked())
            self._cut_off(self._credentials.reread())
            await self.outbox.close_idle()

    async def _say_last_words(self) -> None:
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self.outbox.say_last_words({device for device, _ in self.device.fleet.dead})

    @property
    def has_begun(self) -> bool:
        """Whether it takes part; before that it waits for the others."""
        return self._early is None

    @property
    def n_misshapen(self) -> int:
        """How many contributions of others could not be added up, and were left out."""
        return self._trainer.n_refused

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.time() - self._started_unix

    # -- events and effects -------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if self._is_dying or self._error is not None:
            return
        before = self._record_before = self.device.record
        try:
            for effect in self._injector.handle(event):
                self._do(effect)
        except Exception as error:
            self._error = error
            self._ended.set()
            return
        if self.device.record is not before and not self._is_dying:
            self._go_on_from(self.device.record)

    def _do(self, effect: PlannedEffect) -> None:
        match effect:
            case Send():
                self._send(effect.to, effect.message)
            case Train():
                self._when_computed(
                    self._trainer.start(effect.version, effect.state), partial(self._trained, effect.version)
                )
            case Apply():
                self._when_computed(
                    self._trainer.compute(partial(self._trainer.apply, effect)), partial(self._applied, effect.version)
                )
            case SetDeadline():
                if self.setting.spec.deadline_s is not None:
                    self._loop.call_later(self.setting.spec.deadline_s, self._handle, DeadlinePassed(effect.version))
            case Announce():
                self._announce(effect)
            case TakeOver():
                self.diary.disturbed()
                self.diary.took_over(self.now_s, self.device.record, effect)
            case KeepIncarnation():
                self._lives[self.id] = effect.incarnation
                self.keeper.keep_incarnation(effect.incarnation)
            case Stop():
                self._ended.set()
            case Die():
                self._is_dying = True
                self._dying = asyncio.create_task(self._die(effect))
            case GiveUp():
                self.diary.disturbed()
                self.diary.failed(self.now_s, effect.device, effect.round_index, effect.what)

    def _when_computed(self, computing: Future[T], then: Callable[[T], None]) -> asyncio.Task[None]:
        """Go on with what the training thread computes, on the event loop; an error there ends the device."""
        task = asyncio.create_task(self._await(computing, then))
        self._computing.add(task)
        task.add_done_callback(self._computing.discard)
        return task

    async def _await(self, computing: Future[T], then: Callable[[T], None]) -> None:
        try:
            then(await asyncio.wrap_future(computing))
        except Exception as error:
            self._error = error
            self._ended.set()

    def _trained(self, version: Version, contribution: Contribution) -> None:
        self.loss = contribution.loss
        self._handle(Trained(version, contribution))

    def _applied(self, version: Version, result: tuple[State, Account]) -> None:
        state, self._account = result
        self._handle(Applied(version, state))

    def _announce(self, announced: Announce) -> None:
        record, every = announced.record, self.setting.config.keep_models_every
        self.diary.closed(self.now_s, announced, self._account)
        if announced.total is not None and every and record.version.round % every == 0:
            self.keeper.keep_as(record, kept_name(record.version))

    def _go_on_from(self, record: ClosedRound) -> None:
        self.diary.next_round(self.now_s, record.parent, record)
        self.keeper.keep(record, self.device.is_private)

    async def _die(self, death: Die) -> None:
        """Die as planned: after the last words, without another one."""
        failure = death.failure
        self.diary.flush_traffic(self.now_s, death.record.parent)
        self.diary.failed(self.now_s, self.id, failure.round_index, f"died ({failure.phase.value})")
        await self._say_last_words()
        self.keeper.last_of_life(death.record, self.device.incarnation)
        os.kill(os.getpid(), signal.SIGKILL)

    # -- messages -----------------------------------------------------------------------------------------------

    def _send(self, to: int, message: AnyMessage) -> None:
        if self.cuts.is_cut(to, self.device.version.round):
            self.outbox.link_to(to)  # nothing passes, but somebody waits for an answer and must notice that none comes
            return
        if isinstance(message, Mean) and not isinstance(message.total, Contribution):
            sending = self._when_computed(
                self._trainer.compute(message.total.resolve), partial(self._send_total, to, message)
            )
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
            return
        self.outbox.send(to, message, self._known_of(message.record) if isinstance(message, Closed) else None)

    def _known_of(self, record: ClosedRound) -> dict[str, Vector] | None:
        """Return the state that whoever hears the news of a record has, as a rule; who asks for it may have none."""
        before = self._record_before
        if self.device.record is before:
            return None
        if record.is_over:
            return _arrays(record)
        # A new roster alone is for those who come, and they lack everything.
        is_update = record.parent == before.version.history and record.state is not before.state
        return _arrays(before) if is_update else None

    def _send_total(self, to: int, message: Mean, total: Contribution) -> None:
        self.outbox.send(to, msgspec.structs.replace(message, total=total), None)

    def dial(self, address: str) -> grpc.aio.Channel:
        """Return a channel to an address of which it is not known who answers there."""
        return self._credentials.dial(address, None)

    def received(self, peer: int, message: AnyMessage) -> None:
        """Take in a message of a peer."""
        if self._early is not None:
            self._early.append((peer, message))
            return
        if self.cuts.is_cut(peer, max(self.device.version.round, message.version.round)):
            return
        is_old = isinstance(message, Report | Mean) and message.version < self.device.version
        if is_old or message.incarnation < self._lives.get(peer, 0):
            self.server.refused["stale"] += 1  # of no use; the protocol tells its sender what is newer
        self._lives[peer] = max(self._lives.get(peer, 0), message.incarnation)
        if isinstance(message, Closed) and kept_in(message.record):
            message = self._with_kept(message)
        self._handle(Received(message))

    def _with_kept(self, message: Closed) -> AnyMessage:
        """Fill in what a record keeps of its parent's state; without the parent it is only news of it."""
        own, record = self.device.record, message.record
        told, had, kept = _arrays(record), _arrays(own), kept_in(record)
        if own.version.history in (record.parent, record.version.history) and kept <= had.keys():
            models = {key: had[key] if key in kept else array for key, array in told.items()}
            return msgspec.structs.replace(message, record=msgspec.structs.replace(record, state=models))
        return Heartbeat(message.sender, message.incarnation, message.version, message.dead)

    # -- what links and the server ask for ----------------------------------------------------------------------

    def hello(self, to: int) -> Hello:
        """Return the first frame of a stream."""
        return Hello(
            wire=WIRE_VERSION,
            fleet=self.fleet,
            device=self.id,
            incarnation=self.device.incarnation,
            to=to,
            is_inside=self.device.fleet.is_inside and self._early is None,
            addresses=dict(self.addresses),
            revocations=self._credentials.revocations,
        )

    def greeted(self, peer: int, hello: Hello) -> None:
        """Take in the first frame of a peer: where others are, and that an earlier life of it is over."""
        self.addresses.learn(peer, hello)
        try:
            self.learn(hello.revocations)
        except EnrolmentError:  # a list that nobody signed teaches nothing
            self.server.refused["forged"] += 1
        self.strangers.discard(peer)
        before, self._lives[peer] = self._lives.get(peer), max(self._lives.get(peer, 0), hello.incarnation)
        self.heard(peer)
        if peer in self.outbox.links and not self.outbox.links[peer].is_connected:
            self.outbox.links[peer].spoken()
        if before is not None and hello.incarnation > before and self._early is None:
            self._handle(PeerFailed(peer, before))

    def heard(self, peer: int) -> None:
        """Note a sign of life."""
        if not self.cuts.is_cut(peer, self.device.version.round):
            self.detector.heard(peer)

    def doubt(self, peer: int) -> None:
        """Dial a peer whose stream has ended: if it is gone, the answer comes at once."""
        if peer in self.outbox.links:
            self.outbox.links[peer].try_now()

    def refused(self, peer: int) -> None:
        """Take in the proof that there is no process any more, unless the device may have moved since."""
        if self.addresses.life_at(peer) >= self._newest_life(peer):
            self._give_up(peer, "connection refused")

    def turned_away(self, peer: int) -> None:
        """Tell the operator, once, that a peer belongs to another fleet: only a person can put that right."""
        if peer not in self.strangers:
            self.strangers.add(peer)
            _LOG.warning("tolfl: %s", stranger_sentence(peer))

    def address_of(self, peer: int) -> str | None:
        """Return where to find a peer, if that is known."""
        return self.addresses.get(peer)

    def _newest_life(self, peer: int) -> int:
        return max(self._lives.get(peer, 0), self.device.fleet.roster.incarnations.get(peer, 0))

    def _give_up(self, peer: int, how: str) -> None:
        """Hold a life of a peer for over."""
        if self._early is not None or self.device.stopped is not None:
            return
        life = self._newest_life(peer)
        if peer in self.outbox.links:
            self.outbox.links[peer].forget_parcels()
        if (peer, life) not in self.device.fleet.dead:
            self.diary.disturbed()
            self.diary.failed(self.now_s, peer, self.device.version.round, f"found dead: {how}")
        self._handle(PeerFailed(peer, life))

    def status(self) -> StatusReply:
        """Return what there is to know of this device."""
        return status_of(self)

    def learn(self, revocations: bytes) -> None:
        """Take in a list of revocations that somebody sent."""
        self._cut_off(self._credentials.learn(revocations))

    def _cut_off(self, revoked: frozenset[int] | None) -> None:
        """Cut off whom a newer list of revocations names, and pass the list on."""
        if revoked is None:
            return
        with suppress(RunDirectoryError):
            write_file(self._disk.folder, REVOCATIONS, self._credentials.revocations)
        if self.id in revoked and self._credentials.is_revoked(self._credentials.identity):
            self._error = EnrolmentError(_REVOKED.format(self.id))
            self._ended.set()
        for peer in revoked:
            self.server.drop(peer)
            self.outbox.hang_up(peer)  # dialled again, it must show a certificate that counts
        for link in self.outbox.links.values():
            link.tell(RevocationList(self._credentials.revocations))

    def command(self, request: CommandRequest, is_operator: bool) -> bool:
        """Do what an operator or a launcher asks; tell whether it was allowed to."""
        token = self.setting.config.token
        if not is_operator and not (token and hmac.compare_digest(request.token.encode(), token.encode())):
            return False
        if request.cut is not None:
            self.cuts.command(request.cut)
        if request.leave:
            self._handle(LeaveAsked())
        return True


def _arrays(record: ClosedRound) -> dict[str, Vector]:
    """Return the state of a record."""
    return cast("dict[str, Vector]", record.state)
