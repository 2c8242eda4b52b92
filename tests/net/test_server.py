"""Strangers and liars: turned away, counted under their kind, and of no consequence for the training."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import numpy as np
import pytest

from tests.net.nodes import PATIENCE_S, SMALL, TOKEN, Fleet, fleet_of, held_back, is_same, stream
from tests.sim.fleets import params
from tolfl.core.contribution import GLOBAL, Contribution, Part
from tolfl.core.device_set import DeviceSet
from tolfl.net import server
from tolfl.net.addresses import split_address
from tolfl.net.credentials import NoCredentials
from tolfl.net.wire import (
    CHUNK_BYTES,
    MAX_FRAME_BYTES,
    WIRE_VERSION,
    Chunk,
    Codec,
    CommandRequest,
    Frame,
    Hello,
    chunks,
    encode_frame,
)
from tolfl.protocol.history import Version
from tolfl.protocol.messages import Heartbeat, Report
from tolfl.sim.simulation import run

FIRST = Version(0, 0, 0, "")


def hello(fleet: Fleet, /, **changes: Any) -> Hello:
    """Return what device 3 would say to device 0, but for some changes."""
    said = Hello(wire=WIRE_VERSION, fleet=fleet.nodes[0].fleet, device=3, incarnation=0, to=0)
    return msgspec.structs.replace(said, **changes)


def hello_from(fleet: Fleet, address: str) -> Hello:
    return hello(fleet, addresses={3: address})


def heartbeat(sender: int = 3) -> bytes:
    return Codec.encode(Heartbeat(sender, 0, FIRST, frozenset()))[0]


def report_with(fleet: Fleet, value: float) -> list[bytes]:
    """Return a report of device 3 whose numbers are all this one."""
    vector, inside = np.full(n_params(fleet), value, np.float32), DeviceSet.of([3])
    contribution = Contribution(inside, 40, {GLOBAL: Part(40, vector, 40, inside, 1.0, 40)})
    message, arrays = Codec.encode(Report(3, 0, FIRST, frozenset(), contribution, {}))
    return [message, *chunks(arrays)]


async def talk(fleet: Fleet, frames: Sequence[Frame | bytes], method: str = "Control") -> grpc.StatusCode:
    """Say something to device 0 and wait until it ends the stream; return how it does."""
    async with NoCredentials().dial(fleet.addresses[0], None) as channel, asyncio.timeout(PATIENCE_S):
        call = stream(channel, method)
        try:
            for frame in frames:
                await call.write(frame if isinstance(frame, bytes) else encode_frame(frame))
            while (await call.read()) is not grpc.aio.EOF:
                pass
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream has been ended; the code says why
        code: grpc.StatusCode = await call.code()
        return code


@asynccontextmanager
async def training_fleet(folder: Path) -> AsyncIterator[Fleet]:
    """Give a fleet in mid-run; in the end it must have the model that it has without visitors."""
    async with fleet_of(folder) as fleet:
        gate = held_back(fleet.prepare(1), lambda index: index < 1)
        fleet.launch(0, 1, 2, 3)
        await fleet.until_round(1)
        try:
            yield fleet
        finally:
            gate.set()
        assert await fleet.ends(0, 1, 2, 3) == ["over"] * 4
        expected = params(run(SMALL)[0])
        assert all(is_same(fleet.params(device), expected) for device in range(4))


Frames = Callable[[Fleet], Sequence[Frame | bytes]]
VISITORS: list[tuple[str, str, Frames, str]] = [
    ("another fleet", "Control", lambda f: [hello(f, fleet="b" * 16)], "stranger"),
    ("another fleet with models", "Bulk", lambda f: [hello(f, fleet="")], "stranger"),
    ("another wire version", "Control", lambda f: [hello(f, wire=3)], "wire version"),
    ("wants another device", "Control", lambda f: [hello(f, to=1)], "stranger"),
    ("a device that does not exist", "Control", lambda f: [hello(f, device=4)], "stranger"),
    ("says it is me", "Control", lambda f: [hello(f, device=0)], "stranger"),
    ("a life beyond counting", "Control", lambda f: [hello(f, incarnation=2**62)], "malformed"),
    ("an address that is none", "Control", lambda f: [hello_from(f, "nonsense")], "malformed"),
    ("an empty address", "Bulk", lambda f: [hello_from(f, "")], "malformed"),
    ("an address without a host", "Control", lambda f: [hello_from(f, ":7000")], "malformed"),
    ("a port that does not exist", "Control", lambda f: [hello_from(f, "127.0.0.1:99999")], "malformed"),
    ("an endless address", "Control", lambda f: [hello_from(f, "a" * 10_000 + ":7")], "malformed"),
    ("no hello", "Control", lambda f: [heartbeat()], "malformed"),
    ("no hello but bytes", "Bulk", lambda f: [Chunk(b"abc")], "malformed"),
    ("an empty frame", "Control", lambda f: [b""], "malformed"),
    ("brackets without end", "Control", lambda f: [b"\x91" * 3_000], "malformed"),
    ("a hello of brackets", "Control", lambda f: [b"\x82\xa4type\xa5hello\xa4mood" + b"\x91" * 3_000], "malformed"),
    ("brackets after the hello", "Bulk", lambda f: [hello(f), b"\x91" * 3_000], "malformed"),
    ("garbage for a hello", "Control", lambda f: [b"\xff" * 40], "malformed"),
    ("garbage after the hello", "Control", lambda f: [hello(f), b"\xff" * 40], "malformed"),
    ("two hellos", "Control", lambda f: [hello(f), hello(f)], "malformed"),
    ("bytes of no message", "Bulk", lambda f: [hello(f), Chunk(b"abc")], "malformed"),
    ("bytes on the wrong stream", "Control", lambda f: [hello(f), Chunk(b"abc")], "malformed"),
    ("a model on the wrong stream", "Control", lambda f: [hello(f), *report_with(f, 0.0)], "malformed"),
    ("speaks for another", "Control", lambda f: [hello(f), heartbeat(2)], "forged"),
    ("speaks for a device that does not exist", "Control", lambda f: [hello(f), heartbeat(7)], "malformed"),
    ("a model that is not finite", "Bulk", lambda f: [hello(f), *report_with(f, float("nan"))], "non-finite"),
    ("too many bytes", "Bulk", lambda f: [hello(f), *report_with(f, 0.0)[:1], *overflow(f)], "oversize"),
]  # fmt: skip


def n_params(fleet: Fleet) -> int:
    shapes = fleet.nodes[0].limits.shapes
    assert shapes is not None
    return shapes[GLOBAL][1]


def overflow(fleet: Fleet) -> list[Frame | bytes]:
    n_bytes = 4 * n_params(fleet)
    return [Chunk(b"\0" * (n_bytes + 1))] if n_bytes < CHUNK_BYTES else []


def test_strangers_and_liars_are_turned_away_and_change_nothing(tmp_path: Path) -> None:
    """All in one fleet: starting it takes longer than sending them all away."""

    async def live() -> None:
        async with training_fleet(tmp_path) as fleet:
            for name, method, frames, kind in VISITORS:
                before = (await fleet.status(0)).refused
                code = await talk(fleet, frames(fleet), method)
                after = (await fleet.status(0)).refused
                new = {one: count - before.get(one, 0) for one, count in after.items() if count != before.get(one, 0)}
                assert (name, new) == (name, {kind: 1})
                assert (name, code) != (name, grpc.StatusCode.OK)

    asyncio.run(live())


@pytest.mark.parametrize("n_bytes", [MAX_FRAME_BYTES + 1, 20 * MAX_FRAME_BYTES])
def test_a_frame_larger_than_any_is_refused(tmp_path: Path, n_bytes: int) -> None:
    async def live() -> None:
        no_limit = [("grpc.max_send_message_length", -1)]
        async with training_fleet(tmp_path) as fleet:
            async with grpc.aio.insecure_channel(fleet.addresses[0], options=no_limit) as channel:
                call = stream(channel)
                with suppress(grpc.aio.AioRpcError):
                    await call.write(b"\0" * n_bytes)
                code = await call.code()
            assert code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.RESOURCE_EXHAUSTED)

    asyncio.run(live())


async def junk(address: str) -> bytes:
    reader, writer = await asyncio.open_connection(*split_address(address))
    writer.write(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 40)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


def test_garbage_on_the_port_and_connections_that_say_nothing_do_no_harm(tmp_path: Path) -> None:
    async def live() -> None:
        async with training_fleet(tmp_path) as fleet:
            silent = [socket.create_connection(split_address(fleet.addresses[0])) for _ in range(50)]
            async with asyncio.timeout(PATIENCE_S):
                answers = await asyncio.gather(*(junk(fleet.addresses[0]) for _ in range(20)), return_exceptions=True)
            status = await fleet.status(0)
            for one in silent:
                one.close()

            assert not any(isinstance(answer, bytes) and b"200 OK" in answer for answer in answers)
            assert status.role == "head"

    asyncio.run(live())


def test_whoever_opens_a_stream_and_says_nothing_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_GREETING_S", 0.2)

    async def live() -> None:
        async with training_fleet(tmp_path) as fleet:
            async with NoCredentials().dial(fleet.addresses[0], None) as channel:
                call = stream(channel)
                await call.wait_for_connection()
                code = await call.code()
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
            assert (await fleet.status(0)).refused["silent"] == 1

    asyncio.run(live())


# -- commands ---------------------------------------------------------------------------------------------------------


async def code_of(command: Awaitable[None]) -> grpc.StatusCode:
    try:
        await command
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("token", ["", "let me out", TOKEN + "\0"])
def test_a_command_without_the_token_is_refused(tmp_path: Path, token: str) -> None:
    async def live() -> None:
        async with training_fleet(tmp_path) as fleet:
            request = CommandRequest(token=token, leave=True)
            assert await code_of(fleet.command(0, request)) is grpc.StatusCode.PERMISSION_DENIED
            assert (await fleet.status(0)).refused["command"] == 1

    asyncio.run(live())


def test_a_device_without_a_token_obeys_nobody(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            fleet.prepare(0, token="")
            fleet.launch(0)
            await fleet.until(lambda: 0 in fleet.nodes[0].addresses)
            request = CommandRequest(token="", leave=True)
            assert await code_of(fleet.command(0, request)) is grpc.StatusCode.PERMISSION_DENIED

    asyncio.run(live())


def test_a_command_that_asks_for_nothing_does_nothing(tmp_path: Path) -> None:
    async def live() -> None:
        async with training_fleet(tmp_path) as fleet:
            assert await code_of(fleet.command(0, CommandRequest(token=TOKEN))) is grpc.StatusCode.OK

    asyncio.run(live())
