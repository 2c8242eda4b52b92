"""What this device has to say to one peer: two connections, two queues, and what their breaking proves."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

import grpc
import grpc.aio

from tolfl.core.contribution import Vector
from tolfl.core.spec import Timing
from tolfl.net.addresses import split_address
from tolfl.net.wire import Frame, Hello, Pulse, RefusedMessageError, check_hello, chunks, encode_frame, read_frame

CONTROL, BULK = "/tolfl.v2.Fleet/Control", "/tolfl.v2.Fleet/Bulk"
#: Small messages that may wait for a peer; the oldest are dropped, since the protocol says everything again.
_MAX_WAITING = 256
#: Models that may wait for a peer; more of them are of rounds that are over.
_MAX_PARCELS = 8
_SLOWEST_RETRY_S = 1.0

Dial = Callable[[str, int | None], grpc.aio.Channel]
_Call: TypeAlias = grpc.aio.StreamStreamCall


class Host(Protocol):
    """What a link needs of the device that it belongs to."""

    timing: Timing

    def hello(self, to: int) -> Hello:
        """Return the first frame of a stream."""

    def greeted(self, peer: int, hello: Hello) -> None:
        """Take in the first frame of the other side."""

    def heard(self, peer: int) -> None:
        """Note a sign of life."""

    def refused(self, peer: int) -> None:
        """Take in the proof that there is no process any more."""

    def turned_away(self, peer: int) -> None:
        """Take in that there is a process, and that it does not count this device among its own."""

    def address_of(self, peer: int) -> str | None:
        """Return where to find a peer, if that is known."""


@dataclass(frozen=True)
class Parcel:
    """A message with arrays on its way to a peer."""

    name: Hashable  #: the same for the same content: nothing is queued twice
    is_once: bool  #: once it has arrived, the peer needs it no more, whatever it asks
    message: bytes  #: its frame
    arrays: list[Vector | bytes]


class _Outcome(Enum):
    OPEN = "open"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


class Link:
    """The outgoing half of the connection to one peer; it dials again until it is closed."""

    def __init__(self, peer: int, host: Host, dial: Dial) -> None:
        self.peer, self.is_connected, self.used_s = peer, False, 0.0
        self._host, self._dial = host, dial
        self._waiting: deque[bytes] = deque(maxlen=_MAX_WAITING)
        self._parcels: deque[Parcel] = deque(maxlen=_MAX_PARCELS)
        self._under_way: Parcel | None = None
        self._arrived: Parcel | None = None  #: the last one
        self._something_to_say, self._something_to_carry = asyncio.Event(), asyncio.Event()
        self._connected = asyncio.Event()
        self._retry_now = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._n_refusals, self._has_spoken = 0, False
        self._tasks = [asyncio.create_task(self._keep_talking()), asyncio.create_task(self._keep_carrying())]

    # -- for the device -----------------------------------------------------------------------------------------

    def say(self, message: bytes) -> None:
        """Queue the frame of a small message."""
        self._waiting.append(message)
        self._is_idle.clear()
        self._something_to_say.set()

    def tell(self, frame: Frame) -> None:
        """Queue something that is no message of the protocol."""
        self._waiting.append(encode_frame(frame))
        self._something_to_say.set()

    def carry(self, parcel: Parcel) -> bool:
        """Queue a message with arrays, unless the same is on its way; tell whether it was queued."""
        arrived = self._arrived if parcel.is_once else None
        if any(one is not None and one.name == parcel.name for one in (*self._parcels, self._under_way, arrived)):
            return False
        self._parcels.append(parcel)
        self._is_idle.clear()
        self._something_to_carry.set()
        return True

    def forget_parcels(self) -> None:
        """Drop what was meant for a life that is over."""
        self._parcels.clear()
        self._note_idle()

    def spoken(self) -> None:
        """Take in that the peer is there, though it may not have answered here yet."""
        self._has_spoken = True
        self._retry_now.set()

    def try_now(self) -> None:
        """Dial again at once: there is a reason to doubt, or to hope."""
        self._retry_now.set()

    async def drained(self) -> None:
        """Wait until everything that was queued has arrived."""
        await self._is_idle.wait()

    async def close(self) -> None:
        """Stop, leaving no task and no connection behind."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.is_connected = False

    # -- the connection for small messages ----------------------------------------------------------------------

    async def _keep_talking(self) -> None:
        pause_s = self._host.timing.crash_detection_s / 2
        while True:
            address = self._host.address_of(self.peer)
            outcome = _Outcome.UNREACHABLE if address is None else await self._probe(address)
            if outcome is _Outcome.OPEN and address is not None:
                self._n_refusals, self._has_spoken, began_s = 0, False, time.monotonic()
                if not await self._converse(address):
                    # Somebody is there who is not wanted, or who does not want.
                    pause_s = min(2 * pause_s, _SLOWEST_RETRY_S)
                else:
                    pause_s = self._host.timing.crash_detection_s / 2
                    if time.monotonic() - began_s > pause_s:  # or a peer that hangs up each time would keep us busy
                        continue  # it worked until it broke: find out at once what that means
            elif outcome is _Outcome.REFUSED:
                # An attempt that was under way when the peer spoke, or moved, proves nothing against it.
                self._n_refusals = 0 if self._has_spoken else self._n_refusals + 1
                self._has_spoken = False
                if self._n_refusals >= 2:
                    self._host.refused(self.peer)
                    pause_s = min(2 * pause_s, _SLOWEST_RETRY_S)
            self._retry_now.clear()
            # Never `wait_for` here: in Python 3.11 it forgets that it was cancelled if the event comes at that moment.
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._retry_now.wait()

    async def _probe(self, address: str) -> _Outcome:
        """Tell what a connection attempt says: gRPC itself would hide a refusal behind its own patience."""
        try:
            async with asyncio.timeout(self._host.timing.silence_detection_s):
                _, writer = await asyncio.open_connection(*split_address(address))
        except ConnectionRefusedError:
            return _Outcome.REFUSED
        except (OSError, TimeoutError, ValueError):  # an address that a peer made up may be no name at all
            return _Outcome.UNREACHABLE
        writer.close()
        return _Outcome.OPEN

    async def _converse(self, address: str) -> bool:
        """Talk until the connection breaks; tell whether it ever worked."""
        async with self._dial(address, self.peer) as channel:
            call = _stream(channel, CONTROL)
            try:
                self._arrived = None  # another process may be there now
                await self._greet(call)
                self.is_connected = True
                self._connected.set()
                await self._talk(call)
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, TimeoutError, EOFError):
                if not self.is_connected and call.done() and await call.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    self._host.turned_away(self.peer)
                return self.is_connected
            finally:
                self.is_connected = False
                self._connected.clear()
                call.cancel()
        return True

    async def _greet(self, call: _Call) -> None:
        await call.write(encode_frame(self._host.hello(self.peer)))
        async with asyncio.timeout(max(1.0, self._host.timing.silence_detection_s)):
            answer = await _read(call)
        match answer:
            case Hello():
                self._host.greeted(self.peer, answer)
            case _:
                raise EOFError

    async def _talk(self, call: _Call) -> None:
        listening = asyncio.create_task(self._listen(call))
        listening.add_done_callback(lambda _: self._something_to_say.set())
        beat_s = self._host.timing.heartbeat_s
        now_s = asyncio.get_running_loop().time
        # By a clock of its own: only a pulse asks for an answer, and a message every beat would put it off for ever.
        pulse_due_s = now_s() + beat_s
        try:
            while not listening.done():
                self._something_to_say.clear()
                while self._waiting:
                    frame = self._waiting[0]
                    await call.write(frame)
                    if self._waiting and self._waiting[0] is frame:
                        self._waiting.popleft()
                self._note_idle()
                try:
                    async with asyncio.timeout_at(pulse_due_s):
                        await self._something_to_say.wait()
                except TimeoutError:
                    await call.write(encode_frame(Pulse(wants_answer=True)))
                    pulse_due_s = now_s() + beat_s
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, call: _Call) -> None:
        while True:
            await _read(call)
            self._host.heard(self.peer)

    # -- the connection for models ------------------------------------------------------------------------------

    async def _keep_carrying(self) -> None:
        while True:
            await self._something_to_carry.wait()
            await self._connected.wait()
            address = self._host.address_of(self.peer)
            if address is None:
                continue
            async with self._dial(address, self.peer) as channel:
                call = _stream(channel, BULK)
                try:
                    await self._greet(call)
                    await self._carry_all(call)
                except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, TimeoutError, EOFError):
                    await asyncio.sleep(self._host.timing.crash_detection_s / 2)
                finally:
                    self._give_back()
                    call.cancel()

    async def _carry_all(self, call: _Call) -> None:
        """Carry parcels one after the other, each until it has arrived."""
        while True:
            self._something_to_carry.clear()
            while self._parcels:
                parcel = self._under_way = self._parcels.popleft()
                await call.write(parcel.message)
                for frame in chunks(parcel.arrays):
                    await call.write(frame)
                await _read(call)
                self._host.heard(self.peer)
                self._arrived, self._under_way = parcel, None
            self._note_idle()
            await self._something_to_carry.wait()

    def _give_back(self) -> None:
        """Put what did not arrive back to the front of the queue."""
        if self._under_way is not None:
            if len(self._parcels) < _MAX_PARCELS:
                self._parcels.appendleft(self._under_way)
                self._something_to_carry.set()
            self._under_way = None

    def _note_idle(self) -> None:
        if not self._waiting and not self._parcels and self._under_way is None:
            self._is_idle.set()


def _stream(channel: grpc.aio.Channel, method: str) -> _Call:
    return channel.stream_stream(method)()


async def _read(call: _Call) -> Frame:
    """Return the next frame of the other side; what is none ends the stream."""
    content = await call.read()
    if content is grpc.aio.EOF:
        raise EOFError
    try:
        frame = read_frame(content)
        if isinstance(frame, Hello):
            check_hello(frame)
    except RefusedMessageError:
        raise EOFError from None
    return frame
