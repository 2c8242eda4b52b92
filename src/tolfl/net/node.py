"""One device as a process: the driver around `protocol.Device`. No aggregation and no failure policy here."""

from __future__ import annotations

import asyncio
import hmac
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import msgspec

from tolfl.core.contribution import Contribution, Vector
from tolfl.core.errors import RunDirectoryError
from tolfl.core.failures import Failure, FailurePlan
from tolfl.core.records import RunStarted
from tolfl.core.spec import RunSpec
from tolfl.core.timing import Timing
from tolfl.net import wire_pb2 as pb
from tolfl.net.arrival import Arrival
from tolfl.net.authority import REVOCATIONS, EnrolmentError
from tolfl.net.codec import Expected, encode
from tolfl.net.config import NodeConfig
from tolfl.net.credentials import Credentials
from tolfl.net.cuts import Cuts
from tolfl.net.detector import Detector
from tolfl.net.diary import Diary
from tolfl.net.discovery import Discovery
from tolfl.net.disk import DeviceDisk
from tolfl.net.link import Link, Parcel
from tolfl.net.metrics import Metrics
from tolfl.net.server import WIRE_VERSION, Server
from tolfl.net.status import status_of
from tolfl.net.trainer import Trainer
from tolfl.protocol.device import Device
from tolfl.protocol.effects import Announce, Effect, KeepIncarnation, Send, SetDeadline, Stop, TakeOver, Train
from tolfl.protocol.events import DeadlinePassed, Event, LeaveAsked, PeerFailed, Received, Started, Ticked, Trained
from tolfl.protocol.history import ClosedRound, Roster, Version
from tolfl.protocol.injector import Die, Injector
from tolfl.protocol.messages import AnyMessage, Closed, Heartbeat, Mean, Report
from tolfl.protocol.rules import Rules
from tolfl.runs.directory import write_file
from tolfl.runs.ledger import Kind

#: A link that nobody has used for so long is closed; the next message opens it again.
_IDLE_S = 10.0
#: How long a device that dies or leaves waits for its last words to arrive.
_LAST_WORDS_S = 2.0
#: What may come in before this device starts; the oldest is dropped, since the protocol says everything again.
_MAX_EARLY = 256
_REVOKED = "device {} was revoked; enrol it anew to let it in again"


@dataclass(frozen=True)
class Setting:
    """What a device brings along: its part of the run."""

    config: NodeConfig
    spec: RunSpec
    plan: FailurePlan
    rules: Callable[[Trainer], Rules]
    expected: Expected
    fleet: str
    n_samples: int
    data: str


class Node:
    """A device on a network; `run` is its whole life."""

    def __init__(self, setting: Setting, trainer: Trainer, credentials: Credentials) -> None:
        config = setting.config
        self.id, self.fleet, self.expected = config.device, setting.fleet, setting.expected
        self.setting, self.timing = setting, Timing.preset(setting.spec.timing)
        self.rules = setting.rules(trainer)
        self._disk = DeviceDisk(Path(config.state), self.id)
        self.diary = Diary(Path(config.state), self.id)
        self._trainer, self._credentials = trainer, credentials
        if (self._disk.folder / REVOCATIONS).exists():
            self._remember_revocations()
        if credentials.is_revoked(credentials.identity):
            raise EnrolmentError(_REVOKED.format(self.id))
        incarnation = self._disk.next_life()
        record = self._disk.newest() or self._first_record()
        self.is_restart = incarnation > 0
        self.device = Device(self.id, incarnation, record, self.rules)
        self._injector = Injector(self.device, self._failures_to_come(record, incarnation))
        self.cuts = Cuts(self.id, setting.plan.cuts)
        self.addresses = {int(device): address for device, address in config.peers.items()}
        self.links: dict[int, Link] = {}
        self.detector = Detector(self.timing)
        self.server = Server(self, credentials)
        self.trouble, self.loss = "", None  # type: str, float | None
        self.n_sent, self.bytes_sent = 0, 0
        self._started_unix = config.started_unix or time.time()
        self.began_s = time.monotonic()
        self._lives: dict[int, int] = {}  #: the latest life of each peer that was heard of
        self._early: deque[tuple[int, AnyMessage]] | None = deque(
            maxlen=_MAX_EARLY
        )  #: what came before this device started
        self._closing: list[asyncio.Future[None]] = []
        self._is_dying = False
        self._record_before = record
        self._ended = asyncio.Event()
        self._error: Exception | None = None
        self._io = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._unsaved: ClosedRound | None = None
        self._saved_version: Version | None = None
        self._last_encoded: tuple[AnyMessage, bool, pb.Message, list[Vector]] | None = None

    def _first_record(self) -> ClosedRound:
        roster = Roster(dict.fromkeys(sorted(self.expected.topology.cluster_of), 0))
        return ClosedRound.first(roster, self._trainer.first_models())

    def _remember_revocations(self) -> None:
        try:
            self._credentials.learn((self._disk.folder / REVOCATIONS).read_bytes())
        except (OSError, EnrolmentError) as error:
            raise RunDirectoryError(self._disk.folder, f"{REVOCATIONS}: {error}; choose another folder") from None

    def _failures_to_come(self, record: ClosedRound, incarnation: int) -> list[Failure]:
        """Return the planned failures that have not happened: one for each life, those of rounds that are over gone."""
        mine = list(self.setting.plan.of_device(self.id))[incarnation:]
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
        discovery = Discovery(self.fleet, self.id, self._found) if self.setting.config.discover else None
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
            if discovery is not None:
                await discovery.stop()
            await metrics.stop()
            await asyncio.gather(*(link.close() for link in self.links.values()), *self._closing)
            await self.server.stop()
            self._trainer.close()
            self._io.shutdown()

    def _start(self) -> None:
        self.diary.started(
            self.now_s,
            RunStarted(
                time_s=self.now_s,
                device=self.id,
                scheme=self.setting.spec.scheme,
                data=self.setting.data,
                seed=self.setting.spec.seed,
                clusters=self.expected.topology.clusters,
                model_bytes=self.expected.n_params * self.expected.dtype.itemsize,
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
            self._leave_behind(reason)
            return reason

    def _leave_behind(self, reason: str) -> None:
        """Write the last record and, for whoever uses it, the model."""
        record = self.device.record
        try:
            self._disk.save(record, reason, self.device.is_private)
            for tensors in self._trainer.tensors(record.models).values():
                self._disk.save_model(tensors)
        except RunDirectoryError as error:
            self.trouble = str(error)

    async def _beat(self) -> None:
        """Every heartbeat: who has fallen silent, what must be said again, which links are of no use."""
        while True:
            await asyncio.sleep(self.timing.heartbeat_s)
            for peer in self.detector.tick(self._loop.time()):
                self._give_up(peer, f"silent for {self.timing.silence_detection_s:g} s")
            self._handle(Ticked())
            self._cut_off(self._credentials.reread())
            for peer, link in list(self.links.items()):
                if self._loop.time() - link.used_s > _IDLE_S:
                    del self.links[peer]
                    self.detector.unwatch(peer)
                    await link.close()

    async def _say_last_words(self) -> None:
        dead = {device for device, _ in self.device.fleet.dead}
        words = [link.drained() for peer, link in self.links.items() if peer not in dead]
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await asyncio.gather(*words)

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

    def _do(self, effect: Effect | Die) -> None:
        match effect:
            case Send():
                self._send(effect.to, effect.message)
            case Train():
                self._trainer.start(effect.version, effect.models, lambda done: self._from_thread(effect.version, done))
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
                try:
                    self._disk.keep_incarnation(effect.incarnation)
                except RunDirectoryError as error:
                    self.trouble = str(error)
            case Stop():
                self._ended.set()
            case Die():
                self._is_dying = True
                self._dying = asyncio.create_task(self._die(effect))

    def _from_thread(self, version: Version, done: Future[Contribution]) -> None:
        if not done.cancelled():
            with suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
                self._loop.call_soon_threadsafe(self._trained, version, done)

    def _trained(self, version: Version, done: Future[Contribution]) -> None:
        error = done.exception()
        if error is not None:
            self._error = error if isinstance(error, Exception) else RuntimeError(str(error))
            self._ended.set()
            return
        self.loss = done.result().loss
        self._handle(Trained(version, done.result()))

    def _announce(self, announced: Announce) -> None:
        record, every = announced.record, self.setting.config.keep_models_every
        self.diary.closed(self.now_s, announced)
        if announced.total is not None and every and record.version.round % every == 0:
            name = f"models/round-{record.version.round}-{record.version.history}.safetensors"
            self._io.submit(self._write, record, name)

    def _go_on_from(self, record: ClosedRound) -> None:
        """Keep the newest record on disk, never on the event loop and never two at a time."""
        self.diary.next_round(self.now_s, record.parent, record)
        is_busy, self._unsaved = self._unsaved is not None, record
        if not is_busy:
            self._io.submit(self._save_newest)

    def _save_newest(self) -> None:
        record = self._unsaved
        while record is not None and record.version != self._saved_version:
            self._write(record)
            self._saved_version = record.version
            record = self._unsaved
        self._unsaved = None

    def _write(self, record: ClosedRound, name: str | None = None) -> None:
        try:
            if name is None:
                self._disk.save(record, is_private=self.device.is_private)
            else:
                self._disk.save(record, name=name)
            self.trouble = ""
        except RunDirectoryError as error:
            self.trouble = f"{error}; training goes on"

    async def _die(self, death: Die) -> None:
        """Die as planned: after the last words, without another one."""
        failure = death.failure
        self.diary.flush_traffic(self.now_s, death.record.parent)
        self.diary.failed(self.now_s, self.id, failure.round_index, f"died ({failure.phase.value})")
        await self._say_last_words()
        self._io.submit(self._write, death.record).result()
        os.kill(os.getpid(), signal.SIGKILL)

    # -- messages -----------------------------------------------------------------------------------------------

    def _send(self, to: int, message: AnyMessage) -> None:
        if self.cuts.is_cut(to, self.device.version.round):
            return
        # Whoever is told of the end has the last model, as a rule; whoever asks afterwards may not.
        is_news = self.device.record is not self._record_before
        is_light = isinstance(message, Closed) and message.record.is_over and is_news
        encoded, tensors = self._encoded(message, is_light)
        link = self.link_to(to)
        kind = _kind_of(message) if tensors else None
        n_bytes = sum(tensor.nbytes for tensor in tensors) if tensors else encoded.ByteSize()
        if tensors:
            if not link.carry(
                Parcel((kind, message.version, _included(message)), kind is Kind.MODEL, encoded, tensors)
            ):
                return
        else:
            link.say(encoded)
        self.diary.sent(to, kind, n_bytes)
        self.n_sent += 1
        self.bytes_sent += n_bytes

    def _encoded(self, message: AnyMessage, is_light: bool) -> tuple[pb.Message, list[Vector]]:
        """Encode once what goes to many."""
        last = self._last_encoded
        if last is None or last[0] is not message or last[1] is not is_light:
            last = self._last_encoded = (message, is_light, *encode(message, is_light))
        return last[2], last[3]

    def dial(self, address: str) -> grpc.aio.Channel:
        """Return a channel to an address of which it is not known who answers there."""
        return self._credentials.dial(address, None)

    def link_to(self, peer: int) -> Link:
        """Return the link to a peer, opened if need be; from now on signs of life are expected."""
        if peer not in self.links:
            self.links[peer] = Link(peer, self, self._credentials.dial)
            self.detector.watch(peer)
        self.links[peer].used_s = self._loop.time()
        return self.links[peer]

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
        if isinstance(message, Closed) and not message.record.models:
            message = self._with_models(message)
        self._handle(Received(message))

    def _with_models(self, message: Closed) -> AnyMessage:
        """Fill in the models of a record that has those of its parent; without the parent it is only news of it."""
        own, record = self.device.record, message.record
        if own.version.history in (record.parent, record.version.history):
            return msgspec.structs.replace(message, record=msgspec.structs.replace(record, models=own.models))
        return Heartbeat(message.sender, message.incarnation, message.version, message.dead)

    # -- what links and the server ask for ----------------------------------------------------------------------

    def hello(self, to: int) -> pb.Hello:
        """Return the first frame of a stream."""
        return pb.Hello(
            wire=WIRE_VERSION,
            fleet=self.fleet,
            device=self.id,
            incarnation=self.device.incarnation,
            to=to,
            is_inside=self.device.fleet.is_inside and self._early is None,
            addresses=self.addresses,
            revocations=self._credentials.revocations,
        )

    def greeted(self, peer: int, hello: pb.Hello) -> None:
        """Take in the first frame of a peer: where others are, and that an earlier life of it is over."""
        for device, address in hello.addresses.items():
            if device != self.id and device in self.expected.topology.cluster_of:
                self.addresses[device] = address if device == peer else self.addresses.get(device, address)
        try:
            self.learn(hello.revocations)
        except EnrolmentError:  # a list that nobody signed teaches nothing
            self.server.refused["forged"] += 1
        before, self._lives[peer] = self._lives.get(peer), max(self._lives.get(peer, 0), hello.incarnation)
        self.heard(peer)
        if before is not None and hello.incarnation > before and self._early is None:
            self._handle(PeerFailed(peer, before))

    def _found(self, device: int, address: str) -> None:
        """Take in where a device announces itself."""
        if device != self.id and device in self.expected.topology.cluster_of:
            self.addresses[device] = address

    def heard(self, peer: int) -> None:
        """Note a sign of life."""
        if not self.cuts.is_cut(peer, self.device.version.round):
            self.detector.heard(peer)

    def doubt(self, peer: int) -> None:
        """Dial a peer whose stream has ended: if it is gone, the answer comes at once."""
        if peer in self.links:
            self.links[peer].try_now()

    def refused(self, peer: int) -> None:
        """Take in the proof that there is no process any more."""
        self._give_up(peer, "connection refused")

    def address_of(self, peer: int) -> str | None:
        """Return where to find a peer, if that is known."""
        return self.addresses.get(peer)

    def _give_up(self, peer: int, how: str) -> None:
        """Hold a life of a peer for over."""
        if self._early is not None or self.device.stopped is not None:
            return
        life = max(self._lives.get(peer, 0), self.device.fleet.roster.incarnations.get(peer, 0))
        if peer in self.links:
            self.links[peer].forget_parcels()
        if (peer, life) not in self.device.fleet.dead:
            self.diary.disturbed()
            self.diary.failed(self.now_s, peer, self.device.version.round, f"found dead: {how}")
        self._handle(PeerFailed(peer, life))

    def status(self) -> pb.StatusReply:
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
        for peer, link in list(self.links.items()):
            if peer in revoked:
                # Dialled again, it must show a certificate that counts.
                del self.links[peer]
                self._closing.append(asyncio.ensure_future(link.close()))
            else:
                link.tell(pb.Frame(revocations=self._credentials.revocations))

    def command(self, request: pb.CommandRequest, is_operator: bool) -> bool:
        """Do what an operator or a launcher asks; tell whether it was allowed to."""
        token = self.setting.config.token
        if not is_operator and not (token and hmac.compare_digest(request.token.encode(), token.encode())):
            return False
        match request.WhichOneof("command"):
            case "cut":
                self.cuts.command(request.cut.devices)
            case "leave":
                self._handle(LeaveAsked())
        return True


def _kind_of(message: AnyMessage) -> Kind:
    if isinstance(message, Report):
        return Kind.REPORT
    return Kind.MEAN if isinstance(message, Mean) else Kind.MODEL


def _included(message: AnyMessage) -> int:
    """Return whose samples are in the payload of a message, as bits."""
    if isinstance(message, Report):
        return message.contribution.included.bits
    return message.total.included.bits if isinstance(message, Mean) else 0
