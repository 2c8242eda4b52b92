"""One connection to one peer, both directions: small frames overtake the chunks of a model."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

from tolfl.core.contribution import Vector
from tolfl.net.addresses import AddressBook, split_address
from tolfl.net.wire import (
    CHUNK_BYTES,
    LENGTH,
    MAX_FRAME_BYTES,
    Addresses,
    Assembler,
    Chunk,
    Envelope,
    Frame,
    Hello,
    Limits,
    Ping,
    Pong,
    Receipt,
    RefusedMessageError,
    Rejection,
    RevocationList,
    chunks,
    encode_frame,
    frame_length,
    n_bytes_of,
    read_frame,
)
from tolfl.protocol.messages import AnyMessage
from tolfl.runs.ledger import Kind

#: Small messages that may wait for a peer; the oldest are dropped, since the protocol resends everything.
_MAX_WAITING = 256
#: Models that may wait for a peer; more of them are of rounds that are over.
_MAX_PAYLOADS = 8
#: Pings, pongs and receipts that may wait for a peer that reads nothing.
_MAX_URGENT = 64
#: How long a refused peer has to read why.
_REJECTION_S = 1.0


@dataclass(frozen=True)
class Outgoing:
    """A message on its way to a peer."""

    frame: bytes
    history: str = ""  #: that the round extends in which it is counted
    arrays: tuple[Vector | bytes, ...] = ()
    kind: Kind | None = None  #: of the model inside, if any
    name: Hashable = None  #: the same for the same content: no model is queued twice
    is_once: bool = False  #: once it has arrived, the peer needs it no more, whatever it asks

    @property
    def n_bytes(self) -> int:
        """How large it is: the models inside, or the frame."""
        return sum(map(n_bytes_of, self.arrays)) if self.arrays else len(self.frame)


class Queue:
    """What waits for one peer, whichever connection to it stands: a model waits until it has arrived."""

    def __init__(self) -> None:
        self.small: deque[Outgoing] = deque(maxlen=_MAX_WAITING)
        self.payloads: deque[Outgoing] = deque(maxlen=_MAX_PAYLOADS)
        self.under_way: Outgoing | None = None
        self.wake = asyncio.Event()  #: there is something to write
        self._arrived: Outgoing | None = None  #: the last model
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def add(self, message: Outgoing) -> bool:
        """Queue a message, unless it is a model that is on its way already; return whether it was queued."""
        if message.arrays:
            arrived = self._arrived if message.is_once else None
            if any(one is not None and one.name == message.name for one in (*self.payloads, self.under_way, arrived)):
                return False
            self.payloads.append(message)
        else:
            self.small.append(message)
        self._is_idle.clear()
        self.wake.set()
        return True

    def arrived(self) -> None:
        """Take in that the model under way has arrived."""
        self._arrived, self.under_way = self.under_way, None
        self.note_idle()
        self.wake.set()

    def reconnected(self, is_other_process: bool) -> None:
        """Begin anew on another connection: what did not arrive goes first."""
        if self.under_way is not None and len(self.payloads) < _MAX_PAYLOADS:
            self.payloads.appendleft(self.under_way)
        self.under_way = None
        if is_other_process:
            self._arrived = None
        self.note_idle()

    def forget_payloads(self) -> None:
        """Drop what was meant for an incarnation that is over."""
        self.payloads.clear()
        self.note_idle()

    def note_idle(self) -> None:
        """Let whoever waits for everything to have arrived go on, if it has."""
        if self.is_empty:
            self._is_idle.set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self.small and not self.payloads and self.under_way is None

    async def drained(self) -> None:
        """Wait until everything that was queued is written, and every model has arrived."""
        await self._is_idle.wait()


class Receiver(Protocol):
    """What a connection needs of the device that it belongs to."""

    limits: Limits
    addresses: AddressBook

    def note_answer(self, peer: int) -> None:
        """Note a sign of life."""

    def received(self, peer: int, message: AnyMessage) -> None:
        """Take in a message."""

    def learn(self, revocations: bytes) -> None:
        """Take in a list of revocations; refuse one that the authority has not signed."""

    def sent(self, peer: int, message: Outgoing) -> None:
        """Note that a message has been written, a model whole."""


class Connection:
    """Frames to and from one peer over one stream; who dialled it makes no difference."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hello: Hello,
        receiver: Receiver,
        is_dialled: bool,
    ) -> None:
        self.peer, self.hello, self.is_dialled = hello.device, hello, is_dialled
        self._reader, self._writer, self._receiver = reader, writer, receiver
        self._assembler = Assembler(receiver.limits)
        self._urgent: deque[bytes] = deque(maxlen=_MAX_URGENT)
        self._queue: Queue | None = None
        self._wake = asyncio.Event()
        self._chunks: Iterator[bytes] = iter(())
        self._n_receipts = self._n_pings = self._n_payloads = 0
        self._waits_since_s: float | None = None  #: for a pong
        self._is_broken = False
        self._sent_addresses: set[int] = set()  #: devices whose addresses were sent
        self._now_s = asyncio.get_running_loop().time

    async def run(self, queue: Queue, count: Callable[[Frame], None]) -> None:
        """Read and write until the connection breaks; `count` refuses a frame too many."""
        self._queue, self._wake = queue, queue.wake
        self._wake.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(count))
            group.create_task(self._write(queue))

    def abort(self) -> None:
        """Break the connection; closing it in good order would wait for a peer that is frozen."""
        self._is_broken = True
        self._writer.transport.abort()

    async def reject(self, rejection: Rejection) -> None:
        """Say why nothing more is wanted of the peer, before breaking the connection."""
        await reject(self._writer, rejection)

    # -- signs of life ------------------------------------------------------------------------------------------

    def ping(self) -> None:
        """Ask for a sign of life, unless an answer is still due."""
        if self._waits_since_s is None:
            self._n_pings += 1
            self._waits_since_s = self._now_s()
            self.send_now(Ping(self._n_pings))

    @property
    def unanswered_s(self) -> float:
        """For how long the last ping has had no answer."""
        return 0.0 if self._waits_since_s is None else self._now_s() - self._waits_since_s

    # -- out ----------------------------------------------------------------------------------------------------

    def send_now(self, frame: Frame) -> None:
        """Send a frame that is no message of the protocol, before everything that waits."""
        self._urgent.append(encode_frame(frame))
        self._wake.set()

    def send_addresses(self, known: Mapping[int, str]) -> None:
        """Send the addresses of devices that the peer's hello does not name."""
        known_there = self._sent_addresses | self.hello.addresses.keys() | {self.peer}
        new = {one: at for one, at in known.items() if one not in known_there}
        if new:
            self._sent_addresses |= new.keys()
            self.send_now(Addresses(new))

    async def _write(self, queue: Queue) -> None:
        while True:
            self._wake.clear()
            while (frame := self._next_frame(queue)) is not None:
                self._writer.write(frame)
                await self._writer.drain()  # at most one chunk waits here, so a ping never waits for a model
            if not self._is_broken:
                queue.note_idle()
            await self._wake.wait()

    def _next_frame(self, queue: Queue) -> bytes | None:
        if self._is_broken:
            return None  # another connection may have taken over what waits
        if self._urgent:
            return self._urgent.popleft()
        if queue.small:
            message = queue.small.popleft()
            self._receiver.sent(self.peer, message)
            return message.frame
        if queue.under_way is None and queue.payloads:
            queue.under_way = queue.payloads.popleft()
            self._chunks = chunks(queue.under_way.arrays)
            self._n_payloads += 1
            return queue.under_way.frame
        return next(self._chunks, None)

    # -- in -----------------------------------------------------------------------------------------------------

    async def _read(self, count: Callable[[Frame], None]) -> None:
        while True:
            frame = await next_frame(self._reader)
            try:
                count(frame)
                self._take(frame)
            except (RefusedMessageError, EOFError):
                raise
            except Exception as error:  # whatever a peer can send, it is the peer's fault, and ends this connection
                raise RefusedMessageError("impossible", f"a {type(frame).__name__} that raised {error!r}") from error

    def _take(self, frame: Frame) -> None:
        match frame:
            case Ping():
                self.send_now(Pong(frame.number))
            case Pong():
                if frame.number == self._n_pings:
                    self._waits_since_s = None
                    self._receiver.note_answer(self.peer)
            case Envelope():
                self._hand_on(self._assembler.start(frame.message))
            case Chunk():
                self._receiver.note_answer(self.peer)
                self._hand_on(self._assembler.add(frame.content))
            case Receipt():
                self._take_receipt(frame)
            case Addresses():
                self._receiver.addresses.learn_all(self.peer, frame.addresses)
            case RevocationList():
                self._receiver.learn(frame.content)
            case Rejection():
                raise EOFError(frame.reason)
            case _:
                raise RefusedMessageError("malformed", "a frame of a kind that does not belong on this connection")

    def _take_receipt(self, receipt: Receipt) -> None:
        queue = self._queue
        if queue is None or queue.under_way is None or receipt.number != self._n_payloads:
            raise RefusedMessageError("malformed", "a receipt for nothing")
        self._receiver.note_answer(self.peer)
        self._receiver.sent(self.peer, queue.under_way)
        queue.arrived()

    def _hand_on(self, message: AnyMessage | None) -> None:
        if message is None:
            return  # its arrays are still to come
        if message.sender != self.peer:
            raise RefusedMessageError("forged", f"device {self.peer} sends as device {message.sender}")
        self._receiver.received(self.peer, message)
        if self._assembler.n_payloads > self._n_receipts:
            self._n_receipts += 1
            self.send_now(Receipt(self._n_receipts))


# -- streams ----------------------------------------------------------------------------------------------------


async def next_frame(reader: asyncio.StreamReader) -> Frame:
    """Return the next frame of a stream, or refuse it."""
    length = frame_length(await reader.readexactly(LENGTH.size))
    return read_frame(await reader.readexactly(length))


def writer_of(
    transport: asyncio.Transport, reader: asyncio.StreamReader, protocol: asyncio.StreamReaderProtocol
) -> asyncio.StreamWriter:
    """Return the writer of a connection, with buffers so small that no ping waits long behind a model."""
    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
    transport.set_write_buffer_limits(high=CHUNK_BYTES)
    plain = transport.get_extra_info("socket")
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, CHUNK_BYTES)
    else:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK_BYTES)
    return writer


async def dialled(address: str, context: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return both halves of a connection to an address; whose certificate is shown there is for the caller to see."""
    (host, port), (reader, protocol) = split_address(address), new_reader()
    try:
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: protocol, host, port, ssl=context, server_hostname=None if context is None else ""
        )
        return reader, writer_of(transport, reader, protocol)
    except BaseException:
        protocol.abort()
        raise


class StreamProtocol(asyncio.StreamReaderProtocol):
    """Can break its connection also where whoever opened it was cancelled at the moment at which it stood."""

    _made: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take in the transport of a connection that stands."""
        self._made = cast("asyncio.Transport", transport)
        super().connection_made(transport)

    def abort(self) -> None:
        """Break the connection, if it stands: one with TLS that is closed waits for the other side."""
        if self._made is not None:
            self._made.abort()


def new_reader() -> tuple[asyncio.StreamReader, StreamProtocol]:
    """Return the reading half of a connection that does not exist yet."""
    reader = asyncio.StreamReader(limit=2 * MAX_FRAME_BYTES)
    return reader, StreamProtocol(reader)


async def reject(writer: asyncio.StreamWriter, rejection: Rejection) -> None:
    """Say why a connection is not wanted, and leave a moment to read it."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_REJECTION_S):
            writer.write(encode_frame(rejection))
            await writer.drain()
            writer.write_eof() if writer.can_write_eof() else writer.close()
            await writer.wait_closed()
