"""What others say to this device: streams come in, are checked, and are handed on message by message."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, Protocol

import grpc
import grpc.aio

from tolfl.core.errors import TolFLError
from tolfl.net.authority import EnrolmentError
from tolfl.net.credentials import Credentials, Identity
from tolfl.net.wire import (
    CHUNK_BYTES,
    WIRE_VERSION,
    Assembler,
    Chunk,
    CommandRequest,
    Envelope,
    Hello,
    Limits,
    Pulse,
    Receipt,
    RefusedMessageError,
    RevocationList,
    StatusReply,
    check_hello,
    encode_frame,
    read_as,
    read_frame,
)
from tolfl.protocol.messages import AnyMessage

_SERVICE = "tolfl.v2.Fleet"
#: Who says nothing for so long after connecting is sent away.
_GREETING_S = 5.0
#: Frames and questions of one peer within a second; a fleet of fifty on one machine needs a few dozen.
MAX_FRAMES_PER_S = 2_000
#: Streams of one peer at a time: two, and those that a cut connection has left behind.
MAX_STREAMS = 16


#: Where the list of revocations goes for who has asked and was refused; gRPC has room for 8 KiB.
PROOF, _MAX_PROOF = "tolfl-revocations-bin", 4096


class Host(Protocol):
    """What a server needs of the device that it belongs to."""

    id: int
    fleet: str
    limits: Limits

    def hello(self, to: int) -> Hello:
        """Return the first frame of a stream."""

    def greeted(self, peer: int, hello: Hello) -> None:
        """Take in the first frame of the other side."""

    def heard(self, peer: int) -> None:
        """Note a sign of life."""

    def doubt(self, peer: int) -> None:
        """Take in that a stream has ended: find out whether its sender has, too."""

    def received(self, peer: int, message: AnyMessage) -> None:
        """Take in a message."""

    def status(self) -> StatusReply:
        """Return what there is to know."""

    def command(self, request: CommandRequest, is_operator: bool) -> bool:
        """Do what an operator or a launcher asks; tell whether it was allowed to."""

    def learn(self, revocations: bytes) -> None:
        """Take in a list of revocations; raise where the authority has not signed it."""


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


class Server:
    """The listening half of a device."""

    def __init__(self, host: Host, credentials: Credentials) -> None:
        self.refused: Counter[str] = Counter()  #: what was turned away, by kind
        self._host, self._credentials = host, credentials
        self._server: grpc.aio.Server | None = None
        self._streams: dict[asyncio.Task[Any], int] = {}  #: and whose they are, the oldest first
        self._unwanted: set[asyncio.Task[Any]] = set()  #: streams that this side ends
        self._meter = Meter()

    async def start(self, address: str) -> int:
        """Listen; return the port."""
        self._server = self._credentials.server()
        self._server.add_generic_rpc_handlers((self._handlers(),))
        try:
            port = self._credentials.listen(self._server, address)
        except RuntimeError:
            port = 0
        if not port:
            raise TolFLError(f"device {self._host.id} cannot listen on {address}; is the port taken? choose another")
        await self._server.start()
        return port

    def drop(self, peer: int) -> None:
        """End the streams of a peer, which may come again if it is allowed to."""
        for stream, owner in list(self._streams.items()):
            if owner == peer:
                self._end(stream)

    def _end(self, stream: asyncio.Task[Any]) -> None:
        self._unwanted.add(stream)
        stream.cancel()

    async def stop(self) -> None:
        """End all streams, then the server: it would wait for them."""
        for stream in list(self._streams):
            stream.cancel()
        if self._server is not None:
            await self._server.stop(0.2)

    def _handlers(self) -> grpc.GenericRpcHandler:
        methods = {
            "Control": grpc.stream_stream_rpc_method_handler(self._control),
            "Bulk": grpc.stream_stream_rpc_method_handler(self._bulk),
            "Status": grpc.unary_unary_rpc_method_handler(self._status),
            "Command": grpc.unary_unary_rpc_method_handler(self._command),
        }
        return grpc.method_handlers_generic_handler(_SERVICE, methods)

    # -- streams ------------------------------------------------------------------------------------------------

    async def _control(self, frames: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        peer = await self._greet(frames, context)
        yield encode_frame(self._host.hello(peer))
        task = self._note_stream(peer)
        assembler = Assembler(self._host.limits)
        try:
            async for content in frames:
                frame = read_frame(content)
                self._meter.count(peer)
                self._host.heard(peer)
                match frame:
                    case Pulse():
                        if frame.wants_answer:
                            yield encode_frame(Pulse())
                    case Envelope():
                        self._hand_on(peer, assembler.start(frame.message))
                    case RevocationList():
                        self._learn(frame.content)
                    case _:
                        self._hand_on(peer, None)
        except RefusedMessageError as error:
            await self._refuse(context, error)
        except asyncio.CancelledError:
            await self._part(task, context)
        finally:
            self._forget(task)
            self._host.doubt(peer)

    async def _bulk(self, frames: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        peer = await self._greet(frames, context)
        yield encode_frame(self._host.hello(peer))
        task = self._note_stream(peer)
        assembler, number = Assembler(self._host.limits), 0
        try:
            async for content in frames:
                frame = read_frame(content)
                # Chunks that are full are as many as the link can carry.
                if not isinstance(frame, Chunk) or len(frame.content) < CHUNK_BYTES:
                    self._meter.count(peer)
                self._host.heard(peer)
                match frame:
                    case Envelope():
                        message = assembler.start(frame.message)
                    case Chunk():
                        message = assembler.add(frame.content)
                    case _:
                        message = None
                        self._hand_on(peer, message)
                if message is not None:
                    number += 1
                    self._hand_on(peer, message)
                    yield encode_frame(Receipt(number))
        except RefusedMessageError as error:
            await self._refuse(context, error)
        except asyncio.CancelledError:
            await self._part(task, context)
        finally:
            self._forget(task)

    async def _part(self, stream: asyncio.Task[Any], context: Any) -> NoReturn:
        """Tell the other side that its stream has ended: gRPC would let it talk to nobody."""
        if stream in self._unwanted:
            await context.abort(grpc.StatusCode.ABORTED, "this stream has ended; dial again, if you may")
        raise asyncio.CancelledError

    def _forget(self, stream: asyncio.Task[Any]) -> None:
        self._streams.pop(stream, None)
        self._unwanted.discard(stream)

    def _note_stream(self, peer: int) -> asyncio.Task[Any]:
        task = asyncio.current_task()
        assert task is not None
        own = [stream for stream, owner in self._streams.items() if owner == peer]
        if len(own) >= MAX_STREAMS:
            self.refused["flood"] += 1
            self._end(own[0])
        self._streams[task] = peer
        return task

    def _hand_on(self, peer: int, message: AnyMessage | None) -> None:
        if message is None:
            raise RefusedMessageError("malformed", "a frame of a kind that does not belong on this stream")
        if message.sender != peer:
            raise RefusedMessageError("forged", f"device {peer} speaks for device {message.sender}")
        self._host.received(peer, message)

    async def _greet(self, frames: AsyncIterator[bytes], context: Any) -> int:
        try:
            async with asyncio.timeout(_GREETING_S):
                hello = read_frame(await anext(frames))
        except (TimeoutError, StopAsyncIteration):
            await self._turn_away(context, "silent", "say hello first", grpc.StatusCode.DEADLINE_EXCEEDED)
        except RefusedMessageError as error:
            await self._turn_away(context, error.kind, str(error))
        if not isinstance(hello, Hello):
            await self._turn_away(context, "malformed", "say hello first")
        if hello.wire != WIRE_VERSION:
            await self._turn_away(context, "wire version", f"this device speaks version {WIRE_VERSION}")
        if hello.fleet != self._host.fleet:
            await self._turn_away(context, "stranger", "this device belongs to another fleet or run")
        others = self._host.limits.topology.cluster_of.keys() - {self._host.id}
        if hello.to != self._host.id or hello.device not in others:
            await self._turn_away(context, "stranger", f"this is device {self._host.id}")
        identity = self._credentials.identify(context)
        if identity is not None:
            if identity.device != hello.device:
                await self._turn_away(context, "forged", f"this certificate is not that of device {hello.device}")
            if self._credentials.is_revoked(identity):
                # The signed list is all that it is told: proof that it need not try again.
                proof = Hello(wire=WIRE_VERSION, device=self._host.id, revocations=self._credentials.revocations)
                await context.write(encode_frame(proof))
            await self._check(context, identity)
        try:
            self._meter.count(hello.device)
            check_hello(hello)
        except RefusedMessageError as error:
            await self._turn_away(context, error.kind, str(error))
        self._host.greeted(hello.device, hello)
        return hello.device

    async def _check(self, context: Any, identity: Identity) -> None:
        if self._credentials.is_revoked(identity):
            # Who only asks gets the signed list, too, if it fits beside an answer: proof that it need not ask again.
            proof = self._credentials.revocations
            context.set_trailing_metadata(((PROOF, proof),) if len(proof) <= _MAX_PROOF else ())
            await self._turn_away(context, "revoked", "this certificate was revoked", grpc.StatusCode.PERMISSION_DENIED)

    def _learn(self, revocations: bytes) -> None:
        try:
            self._host.learn(revocations)
        except EnrolmentError as error:
            raise RefusedMessageError("forged", str(error)) from None

    async def _turn_away(
        self, context: Any, kind: str, why: str, code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION
    ) -> NoReturn:
        self.refused[kind] += 1
        await context.abort(code, why)
        raise AssertionError("abort does not return")

    async def _refuse(self, context: Any, error: RefusedMessageError) -> None:
        self.refused[error.kind] += 1
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    # -- questions ----------------------------------------------------------------------------------------------

    async def _status(self, _request: bytes, context: Any) -> bytes:
        identity = self._credentials.identify(context)
        try:
            self._meter.count(None if identity is None else identity.device)
        except RefusedMessageError as error:
            await self._turn_away(context, error.kind, str(error), grpc.StatusCode.RESOURCE_EXHAUSTED)
        if identity is not None:
            await self._check(context, identity)
        return encode_frame(self._host.status())

    async def _command(self, content: bytes, context: Any) -> bytes:
        identity = self._credentials.identify(context)
        try:
            request = read_as(CommandRequest, content)
        except RefusedMessageError:
            request = CommandRequest()  # no token, and asks for nothing
        if not self._host.command(request, is_operator=identity is not None and identity.is_operator):
            why = "commands are for operators, or for a launcher with its token"
            await self._turn_away(context, "command", why, grpc.StatusCode.PERMISSION_DENIED)
        return b""
