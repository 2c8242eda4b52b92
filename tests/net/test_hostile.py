"""Hostile messages from an enrolled device, strangers, floods and connections that lead nowhere.

All are refused, counted by kind, and of no consequence: the fleet ends with the model of the simulator.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.net.hostile_peers import Peer, Stream, check_unharmed, framed, in_mid_run, secure_fleet_of, without_stale
from tests.net.nodes import PATIENCE_S, small
from tests.net.test_wire import Spoiler, enclosed, opened, part_of, put
from tolfl.cli.fleet_commands import status
from tolfl.core.contribution import GLOBAL, Contribution, Part, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import TolFLError
from tolfl.core.spec import BlobsSpec
from tolfl.learners import State
from tolfl.learners.learner import digest_of
from tolfl.net.addresses import split_address
from tolfl.net.links import MAX_FRAMES_PER_S, MAX_HALF_OPEN, Meter
from tolfl.net.tls import Credentials
from tolfl.net.wire import (
    CHUNK_BYTES,
    LENGTH,
    MAX_FRAME_BYTES,
    Chunk,
    Done,
    Frame,
    Ping,
    Pong,
    Receipt,
    RefusedMessageError,
    Rejection,
    StatusRequest,
    encode_frame,
)
from tolfl.protocol import device as device_module
from tolfl.protocol import messages
from tolfl.protocol.history import Roster, Version

SPEC = small(timing="lan")
LIAR, TARGET = 3, 2  #: a member, and its head, which closes
HONEST = (0, 1, 2)

Frames = Sequence[Frame | bytes]


# -- messages ---------------------------------------------------------------------------------------------------------


def spoilt(peer: Peer, change: Spoiler) -> Frames:
    """Return the frames of a report of which one thing is wrong."""
    first, *rest = peer.encoded(peer.report())
    message = opened([first[LENGTH.size :]])
    change(message)
    return [framed(enclosed(message)), *rest]


def with_value(peer: Peer, value: float) -> Frames:
    vector = np.ones(peer.n_params, np.float32)
    vector[3] = value
    return list(peer.encoded(peer.report(vector)))


def heartbeat(peer: Peer, **header: object) -> Frames:
    return list(peer.encoded(messages.Heartbeat(*peer.header(**header))))


def older(peer: Peer) -> messages.Report:
    return peer.report(version=Version(0, 0, 0, ""))


BRACKETS = b"\x91" * 3_000
#: What is sent after hello, and under which kind it is refused and counted.
MESSAGES: list[tuple[str, Callable[[Peer], Frames], str]] = [
    ("a frame of 4 GiB announced", lambda _: [LENGTH.pack(2**32 - 1)], "oversize"),
    ("a frame that is too large", lambda _: [framed(b"\0" * (MAX_FRAME_BYTES + 1))], "oversize"),
    ("no frame", lambda _: [framed(b"\xff\xff\xff")], "malformed"),
    ("an empty frame", lambda _: [framed(b"")], "malformed"),
    ("brackets without end", lambda _: [framed(BRACKETS)], "malformed"),
    ("brackets in a message", lambda _: [framed(b"\x82\xa4type\xa7message\xa7message" + BRACKETS)], "malformed"),
    ("a second hello", lambda p: [p.hello()], "malformed"),
    ("a status request after hello", lambda _: [StatusRequest()], "malformed"),
    ("done with nothing", lambda _: [Done()], "malformed"),
    ("a pong that is too large a number", lambda _: [framed(b"\x82\xa4type\xa4pong\xa6number\xcf" + b"\xff" * 8)],
     "malformed"),
    ("a receipt for nothing", lambda _: [Receipt(1)], "malformed"),
    ("a chunk of nothing", lambda _: [Chunk(b"x")], "malformed"),
    ("too many bytes", lambda p: [*p.encoded(p.report())[:1], *[Chunk(b"\0" * CHUNK_BYTES)] * 20], "oversize"),
    ("a message inside another", lambda p: p.encoded(p.report())[:1] * 2, "malformed"),
    ("another length", lambda p: spoilt(p, lambda m: part_of(m).update(vector=["f4", 2**40, 0])), "shape"),
    ("another type", lambda p: spoilt(p, lambda m: part_of(m).update(vector=["f8", p.n_params, 0])), "shape"),
    ("another model", lambda p: spoilt(p, lambda m: m["contribution"].update(parts={"x": part_of(m)})), "shape"),
    ("NaN", lambda p: with_value(p, float("nan")), "non-finite"),
    ("infinity", lambda p: with_value(p, float("inf")), "non-finite"),
    ("a report for another", lambda p: spoilt(p, put("sender", value=1)), "provenance"),
    ("a report of others", lambda p: spoilt(p, put("contribution", "included", value=b"\x0f")), "provenance"),
    ("of an unknown device", lambda p: spoilt(p, put("sender", value=77)), "malformed"),
    ("work beyond counting", lambda p: spoilt(p, put("version", "work", value=2**63)), "malformed"),
    ("in the name of another", lambda p: heartbeat(p, sender=1), "forged"),
    ("the death of a stranger", lambda p: heartbeat(p, dead=frozenset({(9, 0)})), "malformed"),
]  # fmt: skip
#: Hellos that are wrong in one thing.
HELLOS: list[tuple[str, dict[str, Any], str]] = [
    ("an incarnation beyond counting", {"incarnation": 2**62}, "malformed"),
    ("for another device", {"device": 1}, "forged"),
    ("of another run", {"fleet": "another"}, "unexpected"),
    ("to another", {"to": 1}, "unexpected"),
    ("of no device", {"device": 77}, "unexpected"),
    ("of the device itself", {"device": TARGET}, "unexpected"),
    ("of another version", {"wire": 3}, "wire version"),
]
#: What comes in place of a hello.
FIRST: list[tuple[str, bytes, str]] = [
    ("a heartbeat", framed(b"\x81\xa4type\xa4ping"), "malformed"),
    ("a ping", encode_frame(Ping(1)), "malformed"),
    ("a rejection", encode_frame(Rejection("go", "away")), "malformed"),
    ("brackets", framed(b"\x82\xa4type\xa5hello\xa4mood" + BRACKETS), "malformed"),
    ("raw bytes", b"\xff" * 4096, "oversize"),
    ("the wire before", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "wire version"),
]


@pytest.mark.timeout(240)
def test_hostile_messages_are_refused_and_counted_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet, LIAR)
            peer, counts = Peer(fleet, LIAR, TARGET), fleet.nodes[TARGET].links.refused
            found, expected = {}, {}

            async def tried(what: str, kind: str, ended: asyncio.Future[str] | Any) -> None:
                before = counts.copy()
                said = await ended
                expected[what] = (kind, kind)
                found[what] = said, ", ".join(Counter(without_stale(counts - before)).elements())

            for what, frames, kind in MESSAGES:
                await tried(what, kind, peer.tell(*frames(peer)))
            for what, fields, kind in HELLOS:
                await tried(what, kind, peer.tell(hello=peer.hello(**fields)))
            for what, content, kind in FIRST:
                await tried(f"{what} for a hello", kind, peer.tell(first=content))
            me = fleet.authority.folder_of("me")
            await asyncio.to_thread(status, fleet.addresses[TARGET], me, "table")
            shown = capsys.readouterr().out
            gate.set()

            assert found == expected
            for kind, _ in expected.values():
                assert kind in shown
            await check_unharmed(fleet, LIAR)

    asyncio.run(live())


def test_a_hello_with_addresses_of_nowhere_is_taken_without_them(tmp_path: Path) -> None:
    """An address is a hint: what cannot be one is left out, and the rest of the hello counts."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet, LIAR)
            peer = Peer(fleet, LIAR, TARGET)
            before = dict(fleet.nodes[TARGET].addresses)
            addresses = {1: "nowhere", 0: ":7000", 3: "x" * 100_000 + ":1", 2: "127.0.0.1:99999", 77: "elsewhere:1"}
            said = await peer.tell(hello=peer.hello(addresses=addresses))
            gate.set()

            assert said == "open"
            assert dict(fleet.nodes[TARGET].addresses) == before
            await check_unharmed(fleet, LIAR)

    asyncio.run(live())


def test_reports_of_rounds_that_are_over_are_counted_and_change_nothing(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet, LIAR)
            peer, counts = Peer(fleet, LIAR, TARGET), fleet.nodes[TARGET].links.refused
            before = counts["stale"]
            said = [await peer.tell(*peer.encoded(older(peer))) for _ in range(3)]
            gate.set()

            assert said == ["open"] * 3
            assert counts["stale"] >= before + 3
            await check_unharmed(fleet, LIAR)

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


@pytest.mark.timeout(240)
def test_floods_are_cut_off_and_training_goes_on(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet, LIAR)
            peer, counts = Peer(fleet, LIAR, TARGET), fleet.nodes[TARGET].links.refused
            quick = await peer.tell(*[Ping(n) for n in range(500)])
            before = without_stale(counts)
            head, many = peer.encoded(peer.report())[0], 3 * MAX_FRAMES_PER_S
            floods = [
                await peer.tell(*[Ping(0)] * many),
                await peer.tell(head, *[Chunk(b"")] * many),
                await peer.tell(*list(heartbeat(peer)) * many),
            ]
            counted = counts["flood"]
            gate.set()

            assert (quick, before) == ("open", {})
            assert set(floods) <= {"flood", "closed"}
            assert counted == 3
            await check_unharmed(fleet, LIAR)

    asyncio.run(live())


@pytest.mark.timeout(240)
def test_a_peer_that_reads_nothing_costs_a_bounded_queue(tmp_path: Path) -> None:
    """It asks without end and takes no answer: what waits for it is bounded, and the others are served."""

    async def live() -> None:
        wide = BlobsSpec(samples_per_device=40, n_features=1_000, n_groups=2, n_test=20, n_validation=10)
        async with secure_fleet_of(tmp_path, small(blobs=wide, rounds=2, timing="wireless")) as fleet:
            gate = await in_mid_run(fleet, LIAR)
            peer, node = Peer(fleet, LIAR, TARGET), fleet.nodes[TARGET]
            sender, life, version, dead = peer.header(incarnation=1)
            pull = messages.Pull(sender, life, version, dead)
            offer = messages.Offer(sender, life, version, dead, messages.Payload.REPORT, DeviceSet.of([LIAR]))
            asked = [*peer.encoded(offer) * 600, *(encode_frame(Ping(n)) for n in range(200))]
            greeting = encode_frame(peer.hello(incarnation=1))
            with await asyncio.to_thread(deaf, peer) as connection:
                await asyncio.to_thread(connection.sendall, greeting + b"".join(peer.encoded(pull)))
                await fleet.until(lambda: LIAR in node.links.connected)
                one, standing = node.links._peers[LIAR], node.links._peers[LIAR].connection
                assert standing is not None
                transport = standing._writer.transport
                await fleet.until(lambda: transport.get_write_buffer_size() >= CHUNK_BYTES)  # nothing more goes out
                await asyncio.to_thread(connection.sendall, b"".join(asked))
                await fleet.until(lambda: len(standing._urgent) == 64)
                assert (len(one.queue.small), len(one.queue.payloads)) == (256, 0)
                assert transport.get_write_buffer_size() < 3 * CHUNK_BYTES
                gate.set()
                await check_unharmed(fleet, LIAR)

    asyncio.run(live())


def deaf(peer: Peer) -> ssl.SSLSocket:
    """Return a connection of which nothing is read, with as little room for answers as the system allows."""
    connection = peer.shown.context().wrap_socket(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    connection.settimeout(PATIENCE_S)
    connection.connect(split_address(peer.address))
    return connection


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
    """200 that say nothing, 50 with half a handshake, 20 that never say hello."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet, LIAR)
            address, peer = fleet.addresses[TARGET], Peer(fleet, LIAR, TARGET)
            hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the first bytes of a client's handshake
            with connections(address, 200) as silent, connections(address, 50, hello) as halved:
                streams = [await peer.dial() for _ in range(20)]
                async with asyncio.timeout(PATIENCE_S):
                    ends = [await stream.answer() for stream in streams]
                    ended = await asyncio.gather(*(hung_up(each) for each in (*silent, *halved)))
                refused = await fleet.refused(TARGET)
            gate.set()

            assert set(ends) == {"closed"}
            assert refused["silent"] >= 20
            assert len(ended) == 250
            await check_unharmed(fleet, LIAR)

    asyncio.run(live())


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ten_thousand_half_open_connections_keep_nobody_out(tmp_path: Path) -> None:
    """The oldest that have said nothing go; operators and devices that speak come through."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet, LIAR)
            links = fleet.nodes[TARGET].links
            most = []

            def press() -> None:
                for _ in range(20):
                    with connections(fleet.addresses[TARGET], 500):
                        most.append(len(links._half_open))

            pressing = asyncio.create_task(asyncio.to_thread(press))
            refused = await fleet.refused(TARGET)
            await pressing
            gate.set()

            assert max(most) <= MAX_HALF_OPEN
            assert set(refused) <= {"silent"}
            assert fleet.nodes[TARGET].links.refused["silent"] > 0
            await check_unharmed(fleet, LIAR)

    asyncio.run(live())


def test_a_reset_in_mid_message_leaves_nothing_behind(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet, LIAR)
            peer, links = Peer(fleet, LIAR, TARGET), fleet.nodes[TARGET].links
            for _ in range(5):
                stream = await peer.dial()
                stream.send(peer.hello(), peer.encoded(peer.report())[0])
                await fleet.until(lambda: LIAR in links.connected)
                stream.close()
                await fleet.until(lambda: LIAR not in links.connected)
            gate.set()

            assert without_stale(links.refused) == {}
            await check_unharmed(fleet, LIAR)

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

            assert (said, poisoned) == ("open", poison)
            assert await fleet.ends(0, 1, 2, 3) == ["over"] * 4
            assert len(fleet.histories()) == 1

    asyncio.run(live())


def test_pongs_to_pings_that_were_never_sent_are_no_sign_of_life(tmp_path: Path) -> None:
    """A device that only talks is silent all the same, and given up in time."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            for device in HONEST:
                fleet.prepare(device)
            fleet.launch(*HONEST)
            peer = Peer(fleet, LIAR, TARGET)
            await fleet.status(TARGET)
            streams = [await Peer(fleet, LIAR, device).dial() for device in HONEST]
            for device, stream in zip(HONEST, streams, strict=True):
                stream.send(Peer(fleet, LIAR, device).hello())

            async def talk() -> None:
                while True:
                    for stream in streams:
                        stream.send(Pong(10**6), *heartbeat(peer, version=Version(0, 0, 0, "")))
                    await asyncio.sleep(0.1)

            talking = asyncio.create_task(talk())
            try:
                assert await fleet.ends(*HONEST) == ["over"] * 3
            finally:
                talking.cancel()
                for stream in streams:
                    stream.close()
            assert fleet.closed()[-1].included == HONEST

    asyncio.run(live())


# -- a peer that lies once and does nothing more ----------------------------------------------------------------------


@pytest.mark.timeout(240)
@pytest.mark.parametrize("patience", [20, pytest.param(None, marks=pytest.mark.slow)])
def test_a_made_up_roster_of_a_device_that_then_does_nothing_stalls_nobody_for_good(
    tmp_path: Path, patience: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record heavier than all names its author alone, which answers every ping and lets nobody in."""
    if patience is not None:
        monkeypatch.setattr(device_module, "_TICKS_OUTSIDE", patience)

    async def live() -> None:
        async with secure_fleet_of(tmp_path, small(timing="localhost")) as fleet:
            gate = await in_mid_run(fleet, LIAR)
            base = fleet.nodes[TARGET].device.record
            weight = Contribution(DeviceSet.of([LIAR]), 10**9, {})
            record = base.after(weight, {}, Roster({LIAR: 0}), base.state, base.version.model)
            streams = [await Peer(fleet, LIAR, device).dial() for device in HONEST]
            for device, stream in zip(HONEST, streams, strict=True):
                lie = messages.Closed(LIAR, 0, record.version, frozenset(), record)
                stream.send(Peer(fleet, LIAR, device).hello(), *Peer(fleet, LIAR, device).encoded(lie))
            answering = [asyncio.create_task(stream.answer()) for stream in streams]
            await fleet.until(lambda: all(fleet.nodes[device].device.role == "outside" for device in HONEST))
            gate.set()
            try:
                assert await fleet.ends(*HONEST) == ["over"] * 3
            finally:
                for task in answering:
                    task.cancel()

            assert len(fleet.histories()) == 1
            assert fleet.nodes[TARGET].device.version.work > 10**9
            assert fleet.nodes[TARGET].device.record.roster.devices == DeviceSet.of(HONEST)

    asyncio.run(live())


# -- a model that nobody can train from -------------------------------------------------------------------------------

Spoilt = Callable[[dict[str, Vector]], dict[str, Vector]]


def enormous(state: dict[str, Vector]) -> dict[str, Vector]:
    return {key: np.full_like(array, 9e17) for key, array in state.items()}


def halved(state: dict[str, Vector]) -> dict[str, Vector]:
    return {key: array[: len(array) // 2] for key, array in state.items()}


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("learn", "spoil"),
    [
        ({}, enormous),
        ({"what": "detector"}, halved),
        pytest.param({"what": "detector"}, enormous, marks=pytest.mark.slow),
        pytest.param({"what": "detector"}, lambda _: {}, marks=pytest.mark.slow),
        pytest.param({"what": "detector", "model": "autoencoder"}, enormous, marks=pytest.mark.slow),
        pytest.param({"what": "detector", "model": "pca"}, halved, marks=pytest.mark.slow),
    ],
)
def test_a_made_up_model_that_no_learner_can_use_ends_nobody_before_the_run_is_over(
    tmp_path: Path, learn: dict[str, object], spoil: Spoilt, caplog: pytest.LogCaptureFixture
) -> None:
    """All take it, since it is heavier, and end with it; whoever finds something wrong with it says so, twice."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, small(learn=learn, timing="lan")) as fleet:
            gate = await in_mid_run(fleet, LIAR)
            base = fleet.nodes[TARGET].device.record
            state = spoil(cast("dict[str, Vector]", base.state))
            weight = Contribution(DeviceSet.of([LIAR]), 10**5, {})
            record = base.after(weight, {}, base.roster, state, digest_of(state))
            lie = messages.Closed(LIAR, 0, record.version, frozenset(), record)
            said = [await Peer(fleet, LIAR, device).tell(*Peer(fleet, LIAR, device).encoded(lie)) for device in HONEST]
            gate.set()
            ended = await asyncio.gather(*(fleet.tasks[device] for device in HONEST), return_exceptions=True)

            assert said == ["open"] * 3
            assert any(isinstance(end, TolFLError) for end in ended)  # of some, only the closer can say
            assert all(end == "over" or isinstance(end, TolFLError) for end in ended)
            assert [node.device.stopped for node in fleet.nodes.values()] == ["over"] * 3
            assert len(fleet.histories()) == 1
            assert fleet.nodes[TARGET].device.version.work > 10**5

    asyncio.run(live())
    assert any("goes on without" in line for line in caplog.messages)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_update_after_which_nobody_can_train_ends_nobody_before_the_run_is_over(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, small()) as fleet:
            node = fleet.prepare(LIAR)
            contribute = node.trainer._contribute

            def enormous_update(version: Version, state: State) -> Contribution:
                own = contribute(version, state)
                part = Part.mean_of(LIAR, own.n_samples, enormous({GLOBAL: own.parts[GLOBAL].vector})[GLOBAL])
                return Contribution(own.included, own.n_samples, {GLOBAL: part})

            node.trainer._contribute = enormous_update  # type: ignore[method-assign]
            fleet.launch(0, 1, 2, 3)
            ended = await asyncio.gather(*fleet.tasks.values(), return_exceptions=True)

            assert any(isinstance(end, TolFLError) for end in ended)
            assert all(end == "over" or isinstance(end, TolFLError) for end in ended)
            assert [node.device.stopped for node in fleet.nodes.values()] == ["over"] * 4
            assert len(fleet.histories()) == 1

    asyncio.run(live())


# -- a peer that answers wrongly --------------------------------------------------------------------------------------

LISTS = b'{"content": ' + b"[" * 3_000
#: What a liar answers to whoever dials it, in place of a hello.
ANSWERS: dict[str, Callable[[Peer], Frames]] = {
    "brackets for a list of revocations": lambda p: [p.hello(to=None, revocations=b"[" * 3_000)],
    "brackets in a list": lambda p: [p.hello(to=None, revocations=LISTS)],
    "brackets": lambda _: [framed(b"\x82\xa4type\xa5hello\xa4mood" + BRACKETS)],
    "too large": lambda _: [LENGTH.pack(2**32 - 1)],
    "half a hello": lambda p: [encode_frame(p.hello(to=None))[:20]],
    "nothing": lambda _: [],
    "a rejection without end": lambda _: [Rejection("k" * 100_000, "r" * 100_000)],
    "an incarnation beyond reason": lambda p: [p.hello(to=None, incarnation=2**62 - 1)],
    "a hello and bytes": lambda p: [p.hello(to=None), b"\xff" * 1_000],
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("liar", [3, pytest.param(0, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_a_device_that_answers_anything_and_talks_on_stops_nobody(tmp_path: Path, liar: int) -> None:
    """It answers wrongly whoever dials it, each time in another way, and its own messages are in good order."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            honest = [device for device in range(4) if device != liar]
            for device in honest:
                fleet.prepare(device)
            peer, answers = Peer(fleet, liar, honest[0]), itertools.cycle(ANSWERS.values())

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with closing(Stream(reader, writer)) as stream, suppress(OSError, EOFError):
                    await reader.readexactly(4)
                    stream.send(*next(answers)(peer))
                    await writer.drain()
                    await reader.read()

            async def talk(device: int) -> None:
                me = Peer(fleet, liar, device)
                while True:
                    with suppress(OSError, EOFError), closing(await me.dial()) as stream:
                        stream.send(me.hello(), *heartbeat(me, version=Version(0, 0, 0, "")), Ping(77))
                        await stream.answer()
                    await asyncio.sleep(0.05)

            host, port = split_address(fleet.addresses[liar])
            server = await asyncio.start_server(
                answer, host, port, ssl=Credentials(fleet.credentials(liar)).server_context
            )
            talking = [asyncio.create_task(talk(device)) for device in honest]
            fleet.launch(*honest)
            try:
                assert await fleet.ends(*honest) == ["over"] * 3
            finally:
                for task in talking:
                    task.cancel()
                await asyncio.gather(*talking, return_exceptions=True)
                server.close()

            assert len(fleet.histories()) == 1
            assert fleet.closed()[-1].included == tuple(honest)
            assert any(fleet.nodes[device].links.refused for device in honest)

    asyncio.run(live())
