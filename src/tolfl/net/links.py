"""The connections of one device: it listens and dials, and keeps at most one connection to each peer.

A device that can dial does so, and both sides send over the connection that stands, whichever opened it. So a device
behind a firewall that admits no connections takes part like any other.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, cast

from tolfl.core.errors import TolFLError
from tolfl.core.spec import Timing
from tolfl.net.addresses import split_address
from tolfl.net.connection import (
    Connection,
    Outgoing,
    Queue,
    Receiver,
    dialled,
    new_reader,
    next_frame,
    reject,
    writer_of,
)
from tolfl.net.failure_detector import FailureDetector
from tolfl.net.tls import Credentials, Identity
from tolfl.net.wire import (
    CHUNK_BYTES,
    WIRE_VERSION,
    Chunk,
    CommandRequest,
    Done,
    Envelope,
    Frame,
    Hello,
    Records,
    RecordsRequest,
    RefusedMessageError,
    Rejection,
    RevocationList,
    StatusReply,
    StatusRequest,
    encode_frame,
)

#: A peer that has not sent its hello so long after connecting is disconnected.
HELLO_S = 5.0
#: Connections without a hello so far; the oldest goes when one more comes.
MAX_HALF_OPEN = 256
#: Frames of one peer within a second; a fleet of fifty on one machine needs a few dozen.
MAX_FRAMES_PER_S = 2_000
#: A connection without a message for so long is closed; the next message opens it again.
_IDLE_S = 10.0
#: Answers are expected of a peer for so many times `silence_detection_s` after the last message to it.
_WATCHED_PERIODS = 3
#: Connections that are opened at the same time: a fleet that starts must not keep itself busy with time-outs.
_MAX_DIALS = 8
#: How long a device that dies or leaves waits for its last messages to arrive.
_FLUSH_S = 2.0
_SLOWEST_RETRY_S = 1.0
_SEED_RETRY_S = 0.5
_ITSELF = "itself"  #: why a device rejects itself


class Host(Receiver, Protocol):
    """What the connections need of the device that they belong to."""

    id: int
    fleet: str
    timing: Timing
    detector: FailureDetector

    def hello(self, to: int | None) -> Hello:
        """Return the first frame of a connection."""

    def handshake_done(self, peer: int, hello: Hello) -> None:
        """Take in the first frame of the other side."""

    def was_refused(self, peer: int) -> None:
        """Take in the proof that the process that was last connected, and was reached at its address, is gone."""

    def was_rejected(self, peer: int | None, rejection: Rejection) -> None:
        """Take in that a peer rejects this device."""

    def status(self) -> StatusReply:
        """Return what there is to know."""

    def records(self, first: int) -> bytes:
        """Return a piece of what was written down, from a byte on; called in a thread."""

    def command(self, request: CommandRequest, is_operator: bool) -> bool:
        """Do what an operator or a launcher asks; return whether it was allowed to."""


class Meter:
    """How much each peer says in the second that runs."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s, self._second = now_s, 0
        self._counts: Counter[int | None] = Counter()

    def count(self, peer: int | None) -> None:
        """Count a frame, or refuse it if it is one too many."""
        second = int(self._now_s())
        if second != self._second:
            self._second = second
            self._counts.clear()
        self._counts[peer] += 1
        if self._counts[peer] > MAX_FRAMES_PER_S:
            raise RefusedMessageError("flood", f"more than {MAX_FRAMES_PER_S} frames in a second")


@dataclass
class _Peer:
    queue: Queue = field(default_factory=Queue)
    connection: Connection | None = None
    process: int = 0  #: that was last connected
    dialling: asyncio.Task[None] | None = None
    used_s: float = -_IDLE_S  #: when there was last something to say, in either direction
    expected_s: float = -_IDLE_S  #: when there was last something to say to it
    reached: tuple[str, int] | None = None  #: an address at which somebody listened, and the process that did
    looked_back: tuple[str, int] | None = None  #: where it was last tried whether this process could be dialled
    dialled_s: float = -_IDLE_S  #: when a connection was last opened by this side
    pause_s: float = 0.0  #: before it is dialled again, if the last connection did not last


class Links:
    """All connections of a device; each of its tasks belongs to the group that it was started with."""

    def __init__(self, host: Host, credentials: Credentials) -> None:
        self.refused: Counter[str] = Counter()  #: what was rejected, by kind
        self._host, self._credentials = host, credentials
        self._peers: dict[int, _Peer] = {}
        self._meter = Meter()
        self._half_open: dict[asyncio.Task[None], None] = {}  #: the oldest first
        self._dials = asyncio.Semaphore(_MAX_DIALS)
        self._unclaimed: set[socket.socket] = set()  #: accepted, and no task has begun to answer them
        self._seeds: dict[str, asyncio.Task[None] | int] = {}  #: the device at an address, or the task that asks it
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    # -- for the device -----------------------------------------------------------------------------------------

    async def start(self, group: asyncio.TaskGroup, address: str) -> int:
        """Listen; return the port."""
        self._group, self._loop = group, asyncio.get_running_loop()
        host, port = split_address(address)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=MAX_HALF_OPEN)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error)
            raise TolFLError(f"device {self._host.id} cannot listen on {address} ({why}); choose another") from None
        self._listener.setblocking(False)
        self._spawn(self._accept_all(self._listener))
        return int(self._listener.getsockname()[1])

    @property
    def connected(self) -> dict[int, Hello]:
        """The peers to which a connection stands, and how they introduced themselves."""
        return {peer: one.connection.hello for peer, one in self._peers.items() if one.connection is not None}

    def connect(self, peer: int) -> None:
        """See to it that there is a connection to a peer, if it can be had."""
        one = self._peer(peer)
        one.used_s = self._loop.time()
        self._dial_if_needed(peer)

    def expect(self, peer: int) -> None:
        """Ensure that there is a connection to a peer that answers, or that its missing answers are noticed."""
        self._peer(peer).expected_s = self._loop.time()
        self._host.detector.watch(peer)
        self.connect(peer)

    def find(self, seeds: Iterable[str]) -> None:
        """Introduce this device to whoever listens at these addresses, unless it is known who that is."""
        for address in seeds:
            known = self._seeds.get(address)
            if known is None or (isinstance(known, asyncio.Task) and known.done()):
                self._seeds[address] = self._spawn(self._dial_seed(address))

    def send(self, to: int, message: Outgoing) -> bool:
        """Queue a message to a peer; return whether it was queued, and not on its way already."""
        self.expect(to)
        return self._peer(to).queue.add(message)

    def send_to_all(self, frame: RevocationList) -> None:
        """Send a frame to everybody to whom a connection stands."""
        for one in self._peers.values():
            if one.connection is not None:
                one.connection.send_now(frame)

    def pass_on_addresses(self) -> None:
        """Tell everybody to whom a connection stands where devices are that it may not know of."""
        for one in self._peers.values():
            if one.connection is not None:
                one.connection.send_addresses(self._host.addresses)

    def disconnect(self, peer: int) -> None:
        """Break the connection to a peer; it may come again, and so may the next message to it."""
        one = self._peer(peer)
        if one.connection is not None:
            one.connection.abort()

    def forget_payloads(self, peer: int) -> None:
        """Drop the models that wait for an incarnation that is over."""
        self._peer(peer).queue.forget_payloads()

    def beat(self) -> None:
        """At every heartbeat: ask for signs of life where they are due, pass on what is new, close what nobody uses."""
        self.pass_on_addresses()
        for peer, one in self._peers.items():
            if self._is_expected(one):
                if one.connection is not None:
                    one.connection.ping()
                    self._look_back_once(peer, one, one.connection.hello.process)
                self._dial_if_needed(peer)
                continue
            self._host.detector.unwatch(peer)  # until there is another message for it
            if self._loop.time() - one.used_s > _IDLE_S:
                self.disconnect(peer)

    async def flush(self, without: Container[int] = ()) -> None:
        """Wait a little until everything has arrived at those who are alive."""
        queues = [one.queue.drained() for peer, one in self._peers.items() if peer not in without]
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await asyncio.gather(*queues)

    async def stop(self) -> None:
        """Leave no task and no connection behind."""
        self._is_stopping = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:  # a task that fails meanwhile cancels this wait
            for accepted in self._unclaimed:
                accepted.close()
            if self._listener is not None:
                self._listener.close()

    # -- dialling -----------------------------------------------------------------------------------------------

    def _peer(self, peer: int) -> _Peer:
        if peer not in self._peers:
            self._peers[peer] = _Peer()
        return self._peers[peer]

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        return spawned(self._group, work, self._tasks)

    def _is_stalled(self, connection: Connection) -> bool:
        """Return whether nothing passes on a connection: another one may, in the other direction."""
        return connection.unanswered_s > self._host.timing.silence_detection_s / 2

    def _is_expected(self, one: _Peer) -> bool:
        """Return whether a peer should answer: there was something to say to it not long ago."""
        wait_s = _WATCHED_PERIODS * self._host.timing.silence_detection_s
        return not one.queue.is_empty or self._loop.time() - one.expected_s <= wait_s

    def _needs_dial(self, one: _Peer) -> bool:
        return one.connection is None or self._is_stalled(one.connection)

    def _dial_if_needed(self, peer: int) -> None:
        one = self._peer(peer)
        if self._needs_dial(one) and (one.dialling is None or one.dialling.done()) and not self._is_stopping:
            one.dialling = self._spawn(self._keep_dialling(peer, one))

    async def _keep_dialling(self, peer: int, one: _Peer) -> None:
        """Dial until there is a connection, whoever opened it, or no need for one."""
        timing, n_refusals = self._host.timing, 0
        if self._host.id > peer and not one.process:
            # Both know of each other and start at the same time: the lower id dials first, the other if it cannot.
            await asyncio.sleep(timing.silence_detection_s / 2)
        if self._loop.time() - one.dialled_s < one.pause_s:  # a peer that disconnects each time must not keep us busy
            await asyncio.sleep(one.pause_s)
        while self._needs_dial(one):
            address = self._host.addresses.get(peer)
            try:
                async with self._dials:
                    if address is not None and self._needs_dial(one):
                        await self._dial(address, peer)
                        return
            except ConnectionRefusedError:
                n_refusals += 1
            except (OSError, EOFError, TimeoutError, ValueError):  # a forged address may be no name
                n_refusals = 0
            if n_refusals >= 2 and one.connection is None and one.reached == (address, one.process):
                # The process that was connected listened there, and is gone, whatever its last incarnation was. A
                # refusal where nobody was ever reached may come from a firewall in between.
                self._host.was_refused(peer)
            if not self._is_expected(one):
                return
            if n_refusals == 1:
                one.pause_s = 0.0  # the second refusal is proof
            self._lengthen_pause(one)
            await asyncio.sleep(one.pause_s)

    def _lengthen_pause(self, one: _Peer) -> None:
        one.pause_s = max(self._host.timing.crash_detection_s / 2, min(2 * one.pause_s, _SLOWEST_RETRY_S))

    async def _dial(self, address: str, peer: int | None) -> int:
        """Open a connection, and return to whom; raise what kept it from being one."""
        wait_s = max(1.0, self._host.timing.silence_detection_s)
        async with asyncio.timeout(wait_s):
            reader, writer = await dialled(address, self._credentials.client_context)
        try:
            async with asyncio.timeout(wait_s):
                writer.write(encode_frame(self._host.hello(peer)))
                answer = await next_frame(reader)
            identity = self._credentials.identify(writer)
            if (
                isinstance(answer, Rejection)
                and answer.kind == _ITSELF
                and (identity is None or identity.device == self._host.id)
            ):
                writer.transport.abort()
                return self._host.id
            hello = self._welcome(answer, identity, peer)
            one = self._peer(hello.device)
            one.reached, one.dialled_s = (address, hello.process), self._loop.time()
            self._lengthen_pause(one)
            self._spawn(self._keep(Connection(reader, writer, hello, self._host, is_dialled=True)))
        except BaseException as error:
            if isinstance(error, RefusedMessageError):
                self.refused[error.kind] += 1
            writer.transport.abort()
            raise
        return hello.device

    def _welcome(self, answer: Frame, identity: Identity | None, peer: int | None) -> Hello:
        """Return the hello of whoever was dialled."""
        if isinstance(answer, Rejection):
            # A seed is dialled by its address: its certificate names the device.
            self._host.was_rejected(identity.device if peer is None and identity is not None else peer, answer)
            raise EOFError(answer.reason)  # noqa: TRY004  (the peer disconnects)
        if not isinstance(answer, Hello):
            raise RefusedMessageError("malformed", "an answer that is no hello")
        self._check_hello(answer, identity, peer)
        return answer

    async def _dial_seed(self, address: str) -> None:
        with suppress(OSError, EOFError, TimeoutError, ValueError):
            self._seeds[address] = await self._dial(address, None)
            return
        await asyncio.sleep(_SEED_RETRY_S)

    def _look_back_once(self, peer: int, one: _Peer, process: int) -> None:
        address = self._host.addresses.get(peer)
        if address is not None and one.looked_back != (address, process) != one.reached:
            one.looked_back = (address, process)
            self._spawn(self._look_back(one, address, process))

    async def _look_back(self, one: _Peer, address: str, process: int) -> None:
        """Find out whether a peer that has dialled could be dialled: only then will a refusal prove anything."""
        with suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(self._host.timing.silence_detection_s):
                _, writer = await asyncio.open_connection(*split_address(address))
            writer.transport.abort()
            one.reached = (address, process)

    # -- listening ----------------------------------------------------------------------------------------------

    async def _accept_all(self, listener: socket.socket) -> None:
        is_ready = asyncio.Event()  # `sock_accept` loses a connection that comes while it is cancelled
        self._loop.add_reader(listener, is_ready.set)
        try:
            while True:
                await is_ready.wait()
                is_ready.clear()
                await self._accept_waiting(listener)
        finally:
            self._loop.remove_reader(listener)

    async def _accept_waiting(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no file is left to open, or the caller has gone
                await asyncio.sleep(self._host.timing.heartbeat_s)
                return
            accepted.setblocking(False)
            self._unclaimed.add(accepted)
            if len(self._half_open) >= MAX_HALF_OPEN:
                oldest = next(iter(self._half_open))
                self._half_open.pop(oldest)
                oldest.cancel()
                self.refused["silent"] += 1
            task = self._spawn(self._answer(accepted))
            self._half_open[task] = None
            task.add_done_callback(lambda done: self._half_open.pop(done, None))
            await asyncio.sleep(0)  # or many new connections would keep everything else waiting

    async def _answer(self, accepted: socket.socket) -> None:
        """Find out what somebody wants who has connected, and keep the connection if it is a peer's."""
        self._unclaimed.discard(accepted)
        reader, protocol = new_reader()
        transport: asyncio.Transport | None = None
        try:
            async with asyncio.timeout(HELLO_S):
                transport, _ = await self._loop.connect_accepted_socket(
                    lambda: protocol, accepted, ssl=self._credentials.server_context
                )
                writer = writer_of(transport, reader, protocol)
                first = await next_frame(reader)
            await self._serve(reader, writer, first)
        except RefusedMessageError as error:
            self.refused[error.kind] += 1
            await reject(writer, Rejection(error.kind, str(error), error.proof))
        except TimeoutError:
            self.refused["silent"] += 1
        except (OSError, EOFError):
            pass  # who goes before saying anything has looked whether somebody is here, or has no certificate
        finally:
            protocol.abort()
            if transport is None:
                accepted.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: Frame) -> None:
        identity = self._credentials.identify(writer)
        if self._credentials.is_revoked(identity):
            # The signed list is all that it is sent: proof that it need not come again.
            proof = self._credentials.revocations
            raise RefusedMessageError("revoked", "this certificate was revoked", proof)
        self._meter.count(None if identity is None else identity.device)
        match first:
            case Hello(to=None) if first.process == self._host.hello(None).process:  # one list of seeds serves all
                writer.write(encode_frame(Rejection(_ITSELF, "this is the device that dialled")))
                await self._part(writer)
            case Hello():
                self._check_hello(first, identity, None)
                writer.write(encode_frame(self._host.hello(first.device)))
                await self._keep(Connection(reader, writer, first, self._host, is_dialled=False))
            case StatusRequest():
                writer.write(encode_frame(self._host.status()))
                await self._part(writer)
            case RecordsRequest():
                writer.write(encode_frame(Records(await asyncio.to_thread(self._host.records, first.first))))
                await self._part(writer)
            case CommandRequest():
                if not self._host.command(first, is_operator=identity is not None and identity.is_operator):
                    why = "commands are for operators, or for a launcher with its token"
                    raise RefusedMessageError("command", why)
                writer.write(encode_frame(Done()))
                await self._part(writer)
            case _:
                raise RefusedMessageError("malformed", "say hello first")

    async def _part(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(HELLO_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()

    # -- connections --------------------------------------------------------------------------------------------

    def _check_hello(self, hello: Hello, identity: Identity | None, expected: int | None) -> None:
        host = self._host
        if hello.wire != WIRE_VERSION:
            raise RefusedMessageError("wire version", f"this device uses version {WIRE_VERSION}, not {hello.wire}")
        if hello.fleet != host.fleet:
            raise RefusedMessageError("unexpected", "this device belongs to another fleet or run")
        if hello.to not in (host.id, None) or hello.device == host.id:
            raise RefusedMessageError("unexpected", f"this is device {host.id}")
        if hello.device not in host.limits.topology.cluster_of or expected not in (hello.device, None):
            raise RefusedMessageError("unexpected", f"device {hello.device} is not expected here")
        if identity is not None and identity.device != hello.device:
            raise RefusedMessageError("forged", f"this certificate is not that of device {hello.device}")
        if self._credentials.is_revoked(identity):
            raise RefusedMessageError("revoked", f"the certificate of device {hello.device} was revoked")
        self._check_only_one(hello)

    def _check_only_one(self, hello: Hello) -> None:
        """Refuse a second process of an incarnation while the first one answers: two must not share an id."""
        standing = self._peer(hello.device).connection
        if standing is None or standing.hello.process == hello.process:
            return
        if hello.incarnation <= standing.hello.incarnation and not self._is_stalled(standing):
            standing.ping()  # or nobody would notice that the first one is gone
            raise RefusedMessageError("taken", f"another process runs as device {hello.device} already")

    async def _keep(self, connection: Connection) -> None:
        """Use a connection until it breaks, if it is the one to use."""
        peer, one = connection.peer, self._peer(connection.peer)
        try:
            if not self._adopt(one, connection):
                return
            self._half_open.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)
            self._greet(connection)
            await connection.run(one.queue, lambda frame: self._count(peer, one, frame))
        except* RefusedMessageError as errors:
            self._drop(one, connection)  # before the peer, which need not hurry to read why, comes again
            for error in _leaves(errors):
                self.refused[error.kind] += 1
                await connection.reject(Rejection(error.kind, str(error)))
        except* (OSError, EOFError):
            pass  # it broke: whoever has something to say dials again
        finally:
            connection.abort()
            self._drop(one, connection)

    def _drop(self, one: _Peer, connection: Connection) -> None:
        """Do without a connection; dial if there is something to say."""
        if one.connection is connection:
            one.connection = None
            if self._is_expected(one):
                self._dial_if_needed(connection.peer)

    def _greet(self, connection: Connection) -> None:
        """Hand on a hello; whatever it holds, it cannot end this device."""
        try:
            self._host.handshake_done(connection.peer, connection.hello)
        except Exception as error:
            raise RefusedMessageError("impossible", f"a hello that raised {error!r}") from error

    def _adopt(self, one: _Peer, connection: Connection) -> bool:
        """Take a connection for the one to use, unless another is better; of two both sides take the same."""
        standing, hello = one.connection, connection.hello
        is_other_process = hello.process != one.process
        if standing is not None:
            # Who dials again has lost what it had. Of two that cross, the one that the lower id dialled stays.
            is_crossing = not is_other_process and standing.is_dialled != connection.is_dialled
            is_by_lower_id = connection.is_dialled == (self._host.id < connection.peer)
            if is_crossing and not is_by_lower_id and not self._is_stalled(standing):
                return False
            standing.abort()
        one.queue.reconnected(is_other_process)
        one.connection, one.process, one.used_s = connection, hello.process, self._loop.time()
        return True

    def _count(self, peer: int, one: _Peer, frame: Frame) -> None:
        # Chunks that are full are as many as the link can carry.
        if not isinstance(frame, Chunk) or len(frame.content) < CHUNK_BYTES:
            self._meter.count(peer)
        if isinstance(frame, Envelope):
            one.used_s, one.pause_s = self._loop.time(), 0.0


def spawned(
    group: asyncio.TaskGroup, work: Coroutine[None, None, None], tasks: set[asyncio.Task[None]]
) -> asyncio.Task[None]:
    """Start a task of a group, which is among `tasks` until it is done; a group that shuts down takes no more."""
    try:
        task = group.create_task(work)
    except RuntimeError:
        work.close()  # or Python would warn that nobody has awaited it
        raise
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def _leaves(group: ExceptionGroup[RefusedMessageError]) -> Iterator[RefusedMessageError]:
    for error in group.exceptions:
        if isinstance(error, ExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
