"""Hostile messages from an enrolled device, floods and connections that lead nowhere: refused, counted, survived."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest

from tests.net.hostile_peers import Peer, SecureFleet, secure_fleet_of, without_stale
from tests.net.nodes import PATIENCE_S, held_back, is_same, small
from tests.net.test_wire import Spoiler, enclosed, opened, part_of, put
from tests.sim.fleets import params
from tolfl.cli.options import Format
from tolfl.cli.status import status
from tolfl.core.records import FailureHappened
from tolfl.net.addresses import split_address
from tolfl.net.server import MAX_FRAMES_PER_S, MAX_STREAMS, Meter
from tolfl.net.wire import CHUNK_BYTES, MAX_FRAME_BYTES, Chunk, Frame, Hello, Pulse, RefusedMessageError, encode_frame
from tolfl.protocol import messages
from tolfl.protocol.history import Version
from tolfl.sim.simulation import run

ALL = (0, 1, 2, 3)
SPEC = small(timing="lan")
LIAR, TARGET = 3, 2  #: a member, and its head, which closes
PULSE = Pulse()

Frames = Sequence[Frame | bytes]


async def in_mid_run(fleet: SecureFleet) -> threading.Event:
    """Start a fleet and stop it at its second round, until the event that is returned."""
    gate = held_back(fleet.prepare(0), lambda index: index < 1)
    fleet.launch(*ALL)
    await fleet.until_round(1)
    return gate


async def check_unharmed(fleet: SecureFleet) -> None:
    """Check that all end well, with the model of the simulator, and that nobody was lost on the way."""
    assert await fleet.ends(*ALL) == ["over"] * 4
    expected = params(run(SPEC)[0])
    assert all(is_same(fleet.params(device), expected) for device in ALL)
    lines = [line for device in ALL for line in fleet.records(device)]
    assert [line for line in lines if isinstance(line, FailureHappened)] == []


# -- messages ---------------------------------------------------------------------------------------------------------


def spoilt(peer: Peer, change: Spoiler) -> Frames:
    """Return the frames of a report of which one thing is wrong."""
    first, *rest = peer.encoded(peer.report())
    message = opened([first])
    change(message)
    return [enclosed(message), *rest]


def with_value(peer: Peer, value: float) -> Frames:
    vector = np.ones(peer.n_params, np.float32)
    vector[3] = value
    return list(peer.encoded(peer.report(vector)))


def older(peer: Peer) -> messages.Report:
    return peer.report(version=Version(0, 0, 0, ""))


#: What is sent on Bulk after hello, the status with which the stream ends, and under which kind it is counted.
BULK: list[tuple[str, Callable[[Peer], Frames], str, str]] = [
    ("too large", lambda _: [b"\0" * (MAX_FRAME_BYTES + 1)], "INVALID_ARGUMENT", "oversize"),
    ("no frame", lambda _: [b"\xff\xff\xff"], "INVALID_ARGUMENT", "malformed"),
    ("brackets without end", lambda _: [b"\x91" * 3_000], "INVALID_ARGUMENT", "malformed"),
    ("empty", lambda _: [b""], "INVALID_ARGUMENT", "malformed"),
    ("pulse among models", lambda _: [PULSE], "INVALID_ARGUMENT", "malformed"),
    ("chunk of nothing", lambda _: [Chunk(b"x")], "INVALID_ARGUMENT", "malformed"),
    ("too many bytes", lambda p: [*p.encoded(p.report())[:1], Chunk(b"\0" * CHUNK_BYTES)], "INVALID_ARGUMENT",
     "oversize"),
    ("message in another", lambda p: p.encoded(p.report())[:1] * 2, "INVALID_ARGUMENT", "malformed"),
    ("another length", lambda p: spoilt(p, lambda m: part_of(m).update(vector=["f4", 2**40, 0])),
     "INVALID_ARGUMENT", "shape"),
    ("another model", lambda p: spoilt(p, lambda m: m["contribution"].update(parts={"x": part_of(m)})),
     "INVALID_ARGUMENT", "shape"),
    ("NaN", lambda p: with_value(p, float("nan")), "INVALID_ARGUMENT", "non-finite"),
    ("infinity", lambda p: with_value(p, float("inf")), "INVALID_ARGUMENT", "non-finite"),
    ("for another", lambda p: spoilt(p, put("sender", value=1)), "INVALID_ARGUMENT", "provenance"),
    ("of others", lambda p: spoilt(p, put("contribution", "included", value=b"\x0f")),
     "INVALID_ARGUMENT", "provenance"),
    ("of an unknown device", lambda p: spoilt(p, put("sender", value=77)), "INVALID_ARGUMENT", "malformed"),
    ("work beyond counting", lambda p: spoilt(p, put("version", "work", value=2**63)), "INVALID_ARGUMENT",
     "malformed"),
    ("replayed", lambda p: list(p.encoded(older(p))), "OK", "stale"),
]  # fmt: skip
CONTROL: list[tuple[str, Callable[[Peer], Frames], str, str]] = [
    ("in the name of another", lambda p: list(p.encoded(messages.Heartbeat(*p.header(sender=1)))), "INVALID_ARGUMENT",
     "forged"),
    ("model on the wrong stream", lambda p: list(p.encoded(p.report())), "INVALID_ARGUMENT", "malformed"),
    ("second hello", lambda p: [p.hello()], "INVALID_ARGUMENT", "malformed"),
    ("death of a stranger", lambda p: list(p.encoded(messages.Heartbeat(*p.header(dead=frozenset({(9, 0)}))))),
     "INVALID_ARGUMENT", "malformed"),
]  # fmt: skip
HELLO: list[tuple[str, dict[str, Any]]] = [
    ("life beyond counting", {"incarnation": 2**63}),
    ("address of nothing", {"addresses": {1: "nowhere"}}),
    ("address without end", {"addresses": {3: "x" * 100_000 + ":1"}}),
]


async def tried(
    fleet: SecureFleet, method: str, frames: Frames, hello: Hello | None = None, is_stale: bool = False
) -> tuple[str, str]:
    """Return how a stream ended, and under which kind it was counted."""
    counts = fleet.nodes[TARGET].server.refused
    before = counts.copy()
    code = await Peer(fleet, LIAR, TARGET).tell(*frames, method=method, hello=hello)
    new = counts - before
    return code, ", ".join(Counter(without_stale(new)).elements()) or ("stale" if is_stale and new["stale"] else "")


@pytest.mark.timeout(240)
def test_hostile_messages_are_refused_and_counted_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet)
            peer = Peer(fleet, LIAR, TARGET)
            expected, found = {}, {}
            for method, cases in (("Bulk", BULK), ("Control", CONTROL)):
                for what, frames, code, kind in cases:
                    expected[what] = (code, kind)
                    found[what] = await tried(fleet, method, frames(peer), is_stale=kind == "stale")
            for what, fields in HELLO:
                expected[what] = ("FAILED_PRECONDITION", "malformed")
                found[what] = await tried(fleet, "Control", [], peer.hello(**fields))
            # The transport refuses what is larger still, before anybody can count it.
            expected["huge"], found["huge"] = ("RESOURCE_EXHAUSTED", ""), await tried(fleet, "Bulk", [b"\0" * 2**23])
            me = fleet.authority.folder_of("me")
            await asyncio.to_thread(status, fleet.addresses[TARGET], me, Format.TABLE)
            shown = capsys.readouterr().out
            gate.set()

            assert found == expected
            for kind in {kind for _, kind in expected.values() if kind}:
                assert kind in shown
            await check_unharmed(fleet)

    asyncio.run(live())


def test_messages_that_are_no_news_change_nothing(tmp_path: Path) -> None:
    """The first report of a round counts, and none of a round that is over."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet)
            peer = Peer(fleet, LIAR, TARGET)
            node = fleet.nodes[TARGET]
            await fleet.until(lambda: LIAR in node.device.round.received)
            another = peer.report()
            said = [await peer.tell(*peer.encoded(another), method="Bulk") for _ in range(3)]
            said += [await peer.tell(*peer.encoded(older(peer)), method="Bulk") for _ in range(3)]
            gate.set()

            assert said == ["OK"] * 6
            assert node.server.refused["stale"] >= 3
            await check_unharmed(fleet)

    asyncio.run(live())


# -- too much of everything -------------------------------------------------------------------------------------------


def test_a_meter_refuses_what_is_too_much_for_one_second_and_one_peer() -> None:
    now = [7.25]
    meter = Meter(lambda: now[0])
    for peer in (1, 2):
        for _ in range(MAX_FRAMES_PER_S):
            meter.count(peer)
    with pytest.raises(RefusedMessageError) as refusal:
        meter.count(1)
    now[0] = 8.0
    meter.count(1)

    assert refusal.value.kind == "flood"


def endless(first: bytes | None, again: bytes) -> Iterator[bytes]:
    """Return ten thousand frames and more: several seconds' worth of what is allowed."""
    if first is not None:
        yield first
    for _ in range(20 * MAX_FRAMES_PER_S):
        yield again


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_floods_are_cut_off_and_training_goes_on(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet)
            peer, counts = Peer(fleet, LIAR, TARGET), fleet.nodes[TARGET].server.refused
            quick = await peer.tell(*[PULSE] * 500)
            before = without_stale(counts)
            head = peer.encoded(peer.report())[0]
            floods = {
                "pulses": await peer.tell(*endless(None, encode_frame(PULSE))),
                "empty chunks": await peer.tell(*endless(head, encode_frame(Chunk(b""))), method="Bulk"),
            }
            counted = counts["flood"]
            gate.set()

            assert (quick, before) == ("OK", {})
            assert "OK" not in floods.values()
            assert counted == 2
            await check_unharmed(fleet)

    asyncio.run(live())


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_streams_without_number_push_out_their_own(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet)
            peer, server = Peer(fleet, LIAR, TARGET), fleet.nodes[TARGET].server
            channels = [peer.channel() for _ in range(3)]
            calls: list[grpc.aio.StreamStreamCall] = []
            for number in range(2 * MAX_STREAMS):
                call = channels[number % 3].stream_stream("/tolfl.v2.Fleet/Control")()
                await call.write(encode_frame(peer.hello()))
                await call.read()
                calls.append(call)
            n_streams = sum(owner == LIAR for owner in server._streams.values())
            await fleet.until(lambda: server.refused["flood"] >= MAX_STREAMS)
            for call in calls:
                call.cancel()
            for channel in channels:
                await channel.close()
            gate.set()

            assert n_streams <= MAX_STREAMS + 1
            await check_unharmed(fleet)

    asyncio.run(live())


# -- connections that lead nowhere ------------------------------------------------------------------------------------


@contextmanager
def connections(address: str, n: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """Give connections on which nothing follows."""
    sockets = [socket.create_connection(split_address(address), timeout=PATIENCE_S) for _ in range(n)]
    try:
        for one in sockets:
            one.sendall(first)
            one.setblocking(False)
        yield sockets
    finally:
        for one in sockets:
            one.close()


async def hung_up(one: socket.socket) -> bool:
    """Tell whether the other side ends a connection by itself."""
    loop = asyncio.get_running_loop()
    try:
        while await loop.sock_recv(one, 65536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_connections_that_never_finish_are_closed_and_harm_nobody(tmp_path: Path) -> None:
    """200 that say nothing, 50 with half a handshake, 20 streams that never say hello."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet)
            address, peer = fleet.addresses[TARGET], Peer(fleet, LIAR, TARGET)
            hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the first bytes of a client's handshake
            with connections(address, 200) as silent, connections(address, 50, hello) as halved:
                async with peer.channel() as one, peer.channel() as other:
                    calls = [
                        channel.stream_stream("/tolfl.v2.Fleet/Control")()
                        for channel in (one, other)
                        for _ in range(10)
                    ]
                    async with asyncio.timeout(PATIENCE_S):
                        codes = {(await call.code()).name for call in calls}
                        ended = await asyncio.gather(*(hung_up(each) for each in (*silent, *halved)))
                refused = await fleet.refused(TARGET)
            gate.set()

            assert codes == {"DEADLINE_EXCEEDED"}
            assert refused == {"silent": 20}
            assert len(ended) == 250
            await check_unharmed(fleet)

    asyncio.run(live())


def test_a_reset_in_mid_message_leaves_nothing_behind(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet)
            peer, server = Peer(fleet, LIAR, TARGET), fleet.nodes[TARGET].server
            before = sorted(server._streams.values())
            for _ in range(5):
                channel = peer.channel()
                call = channel.stream_stream("/tolfl.v2.Fleet/Bulk")()
                await call.write(encode_frame(peer.hello()))
                await call.read()
                await call.write(peer.encoded(peer.report())[0])
                await channel.close()
            await fleet.until(lambda: sorted(server._streams.values()) == before)
            gate.set()

            assert without_stale(server.refused) == {}
            await check_unharmed(fleet)

    asyncio.run(live())


def test_an_address_that_nobody_can_dial_stops_no_device(tmp_path: Path) -> None:
    """A name with a label that is too long for DNS, said of a device that is not known yet."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            places = {str(device): fleet.addresses[device] for device in (0, LIAR)}
            fleet.prepare(TARGET, peers=places, start_timeout_s=2.0)
            fleet.launch(TARGET)
            await fleet.status(TARGET)
            liar = Peer(fleet, LIAR, TARGET)
            poison = "x" * 70 + ":1"
            said = await liar.tell(hello=liar.hello(addresses={1: poison}))
            poisoned = fleet.nodes[TARGET].addresses[1]
            fleet.launch(0, 1, LIAR)

            assert (said, poisoned) == ("OK", poison)
            assert await fleet.ends(*ALL) == ["over"] * 4
            assert len(fleet.histories()) == 1

    asyncio.run(live())
