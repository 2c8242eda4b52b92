"""What others say to this device: streams come in, are checked, and are handed on message by message."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NoReturn, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from tolfl.core.errors import TolFLError
from tolfl.net import wire_pb2 as pb
from tolfl.net.authority import EnrolmentError
from tolfl.net.codec import Expected, RefusedMessageError
from tolfl.net.credentials import Credentials, Identity
from tolfl.net.frames import Assembler
from tolfl.protocol.messages import AnyMessage

WIRE_VERSION = 1
_SERVICE = "tolfl.v1.Fleet"
#: Who says nothing for so long after connecting is sent away.
_GREETING_S = 5.0


class Host(Protocol):
    """What a server needs of the device that it belongs to."""

    id: int
    fleet: str
    expected: Expected

    def hello(self, to: int) -> pb.Hello:
        """Return the first frame of a stream."""

    def greeted(self, peer: int, hello: pb.Hello) -> None:
        """Take in the first frame of the other side."""

    def heard(self, peer: int) -> None:
        """Note a sign of life."""

    def doubt(self, peer: int) -> None:
        """Take in that a stream has ended: find out whether its sender has, too."""

    def received(self, peer: int, message: AnyMessage) -> None:
        """Take in a message."""

    def status(self) -> pb.StatusReply:
        """Return what there is to know."""

    def command(self, request: pb.CommandRequest, is_operator: bool) -> bool:
        """Do what an operator or a launcher asks; tell whether it was allowed to."""

    def learn(self, revocations: bytes) -> None:
        """Take in a list of revocations; raise where the authority has not signed it."""


class Server:
    """The listening half of a device."""

    def __init__(self, host: Host, credentials: Credentials) -> None:
        self.refused: Counter[str] = Counter()  #: what was turned away, by kind
        self._host, self._credentials = host, credentials
        self._server: grpc.aio.Server | None = None
        self._streams: dict[asyncio.Task[Any], int] = {}  #: and whose they are

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
                stream.cancel()

    async def stop(self) -> None:
        """End all streams, then the server: it would wait for them."""
        for stream in list(self._streams):
            stream.cancel()
        if self._server is not None:
            await self._server.stop(0.2)

    def _handlers(self) -> grpc.GenericRpcHandler:
        def stream(handler: Any) -> grpc.RpcMethodHandler:
            return grpc.stream_stream_rpc_method_handler(
                handler, request_deserializer=self._parse, response_serializer=pb.Frame.SerializeToString
            )

        methods = {
            "Control": stream(self._control),
            "Bulk": stream(self._bulk),
            "Status": grpc.unary_unary_rpc_method_handler(
                self._status,
                request_deserializer=pb.StatusRequest.FromString,
                response_serializer=pb.StatusReply.SerializeToString,
            ),
            "Command": grpc.unary_unary_rpc_method_handler(
                self._command,
                request_deserializer=pb.CommandRequest.FromString,
                response_serializer=pb.CommandReply.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler(_SERVICE, methods)

    def _parse(self, content: bytes) -> pb.Frame:
        try:
            frame: pb.Frame = pb.Frame.FromString(content)
        except DecodeError:
            self.refused["malformed"] += 1
            raise
        return frame

    # -- streams ------------------------------------------------------------------------------------------------

    async def _control(self, frames: AsyncIterator[pb.Frame], context: Any) -> AsyncIterator[pb.Frame]:
        peer = await self._greet(frames, context)
        yield pb.Frame(hello=self._host.hello(peer))
        task = self._note_stream(peer)
        assembler = Assembler(self._host.expected)
        try:
            async for frame in frames:
                self._host.heard(peer)
                match frame.WhichOneof("content"):
                    case "pulse":
                        if frame.pulse.wants_answer:
                            yield pb.Frame(pulse=pb.Pulse())
                    case "message":
                        self._hand_on(peer, assembler.start(frame.message))
                    case "revocations":
                        self._learn(frame.revocations)
                    case _:
                        self._hand_on(peer, None)
        except RefusedMessageError as error:
            await self._refuse(context, error)
        finally:
            self._streams.pop(task, None)
            self._host.doubt(peer)

    async def _bulk(self, frames: AsyncIterator[pb.Frame], context: Any) -> AsyncIterator[pb.Frame]:
        peer = await self._greet(frames, context)
        yield pb.Frame(hello=self._host.hello(peer))
        task = self._note_stream(peer)
        assembler, number = Assembler(self._host.expected), 0
        try:
            async for frame in frames:
                self._host.heard(peer)
                match frame.WhichOneof("content"):
                    case "message":
                        message = assembler.start(frame.message)
                    case "chunk":
                        message = assembler.add(frame.chunk)
                    case _:
                        message = None
                        self._hand_on(peer, message)
                if message is not None:
                    number += 1
                    self._hand_on(peer, message)
                    yield pb.Frame(receipt=pb.Receipt(number=number))
        except RefusedMessageError as error:
            await self._refuse(context, error)
        finally:
            self._streams.pop(task, None)

    def _note_stream(self, peer: int) -> asyncio.Task[Any]:
        task = asyncio.current_task()
        assert task is not None
        self._streams[task] = peer
        return task

    def _hand_on(self, peer: int, message: AnyMessage | None) -> None:
        if message is None:
            raise RefusedMessageError("malformed", "a frame of a kind that does not belong on this stream")
        if message.sender != peer:
            raise RefusedMessageError("forged", f"device {peer} speaks for device {message.sender}")
        self._host.received(peer, message)

    async def _greet(self, frames: AsyncIterator[pb.Frame], context: Any) -> int:
        try:
            async with asyncio.timeout(_GREETING_S):
                first = await anext(frames)
        except (TimeoutError, StopAsyncIteration):
            await self._turn_away(context, "silent", "say hello first", grpc.StatusCode.DEADLINE_EXCEEDED)
        if first.WhichOneof("content") != "hello":
            await self._turn_away(context, "malformed", "say hello first")
        hello = first.hello
        if hello.wire != WIRE_VERSION:
            await self._turn_away(context, "wire version", f"this device speaks version {WIRE_VERSION}")
        if hello.fleet != self._host.fleet:
            await self._turn_away(context, "stranger", "this device belongs to another fleet or run")
        if hello.to != self._host.id or hello.device not in self._host.expected.topology.cluster_of:
            await self._turn_away(context, "stranger", f"this is device {self._host.id}")
        identity = self._credentials.identify(context)
        if identity is not None:
            if identity.device != hello.device:
                await self._turn_away(context, "forged", f"this certificate is not that of device {hello.device}")
            await self._check(context, identity)
        self._host.greeted(hello.device, hello)
        return hello.device

    async def _check(self, context: Any, identity: Identity) -> None:
        if self._credentials.is_revoked(identity):
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

    async def _status(self, _request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        identity = self._credentials.identify(context)
        if identity is not None:
            await self._check(context, identity)
        return self._host.status()

    async def _command(self, request: pb.CommandRequest, context: Any) -> pb.CommandReply:
        identity = self._credentials.identify(context)
        if not self._host.command(request, is_operator=identity is not None and identity.is_operator):
            why = "commands are for operators, or for a launcher with its token"
            await self._turn_away(context, "command", why, grpc.StatusCode.PERMISSION_DENIED)
        return pb.CommandReply()
