"""One link and one listener: what is said arrives, in order and once; what breaking proves; closing always works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.net.nodes import PATIENCE_S, free_addresses, until
from tests.net.test_wire import FLEET, FREE, VECTOR, closed, plain, report
from tolfl.core.spec import Timing
from tolfl.net.credentials import NoCredentials
from tolfl.net.detector import Detector
from tolfl.net.diary import Diary
from tolfl.net.link import Link, Parcel
from tolfl.net.outbox import Outbox
from tolfl.net.server import Server
from tolfl.net.wire import CHUNK_BYTES, WIRE_VERSION, Codec, CommandRequest, Hello, Limits, StatusReply, kept_in
from tolfl.protocol.history import Version
from tolfl.protocol.messages import AnyMessage, Closed, Heartbeat


class Ear:
    """The device behind a listener and a link: remembers what it was told."""

    def __init__(self, id: int, addresses: dict[int, str], limits: Limits = FLEET) -> None:
        self.id, self.fleet, self.limits, self.timing = id, "a fleet", limits, Timing.localhost()
        self.addresses = addresses
        self.got: list[AnyMessage] = []
        self.n_heard = self.n_refused = self.n_turned_away = self.n_doubts = 0
        self.greetings: list[int] = []

    def hello(self, to: int) -> Hello:
        return Hello(wire=WIRE_VERSION, fleet=self.fleet, device=self.id, to=to)

    def greeted(self, peer: int, hello: Hello) -> None:
        self.greetings.append(peer)

    def heard(self, peer: int) -> None:
        self.n_heard += 1

    def doubt(self, peer: int) -> None:
        self.n_doubts += 1

    def refused(self, peer: int) -> None:
        self.n_refused += 1

    def turned_away(self, peer: int) -> None:
        self.n_turned_away += 1

    def received(self, peer: int, message: AnyMessage) -> None:
        self.got.append(message)

    def address_of(self, peer: int) -> str | None:
        return self.addresses.get(peer)

    def status(self) -> StatusReply:
        return StatusReply(device=self.id)

    def command(self, request: CommandRequest, is_operator: bool) -> bool:
        return False

    def learn(self, revocations: bytes) -> None:
        raise AssertionError("nobody sends any")


class Pair:
    """Device 1 with a link to device 0."""

    def __init__(self, limits: Limits = FLEET) -> None:
        self.addresses = dict(enumerate(free_addresses(2)))
        self.speaker, self.listener = Ear(1, self.addresses, limits), Ear(0, self.addresses, limits)
        self.server: Server | None = None
        self.link = Link(0, self.speaker, NoCredentials().dial)

    async def listen(self) -> None:
        self.server = Server(self.listener, NoCredentials())
        await self.server.start(self.addresses[0])

    async def stop_listening(self) -> None:
        if self.server is not None:
            await self.server.stop()
            self.server = None


@asynccontextmanager
async def pair_of(limits: Limits = FLEET, is_listening: bool = True) -> AsyncIterator[Pair]:
    pair = Pair(limits)
    if is_listening:
        await pair.listen()
    try:
        yield pair
    finally:
        async with asyncio.timeout(PATIENCE_S):
            await pair.link.close()
            await pair.stop_listening()


def numbered(index: int) -> bytes:
    return Codec.encode(Heartbeat(1, index, Version(0, 0, 0, ""), frozenset()))[0]


def parcel(message: AnyMessage, name: str, is_once: bool = False) -> Parcel:
    return Parcel(name, is_once, *Codec.encode(message))


def test_small_messages_arrive_once_and_in_order() -> None:
    async def live() -> None:
        async with pair_of() as pair:
            for index in range(200):
                pair.link.say(numbered(index))
            await until(lambda: len(pair.listener.got) == 200)
            assert [message.incarnation for message in pair.listener.got] == list(range(200))

    asyncio.run(live())


def test_what_waits_for_a_peer_is_bounded_and_the_newest_is_kept() -> None:
    async def live() -> None:
        async with pair_of(is_listening=False) as pair:
            for index in range(1000):
                pair.link.say(numbered(index))
            await pair.listen()
            pair.link.try_now()
            await until(lambda: bool(pair.listener.got) and pair.listener.got[-1].incarnation == 999)
            assert [message.incarnation for message in pair.listener.got] == list(range(744, 1000))

    asyncio.run(live())


def test_a_model_arrives_as_it_was_beside_small_messages() -> None:
    fleet = Limits(FLEET.topology)
    params = np.random.default_rng(0).standard_normal(CHUNK_BYTES).astype(np.float32)
    sent = Closed(
        1, 0, closed().version, frozenset(), msgspec.structs.replace(closed().record, state={"global": params})
    )

    async def live() -> None:
        async with pair_of(fleet) as pair:
            assert pair.link.carry(parcel(sent, "model"))
            assert not pair.link.carry(parcel(sent, "model"))  # on its way already
            pair.link.say(numbered(5))
            async with asyncio.timeout(PATIENCE_S):
                await pair.link.drained()
            await until(lambda: len(pair.listener.got) == 2)
            received = next(message for message in pair.listener.got if isinstance(message, Closed))
            assert plain(received) == plain(sent)

    asyncio.run(live())


@pytest.mark.parametrize("is_once", [True, False])
def test_a_model_that_has_arrived_is_sent_again_only_if_it_may_be_needed(is_once: bool) -> None:
    async def live() -> None:
        async with pair_of() as pair:
            pair.link.carry(parcel(report(), "report", is_once))
            async with asyncio.timeout(PATIENCE_S):
                await pair.link.drained()
            assert pair.link.carry(parcel(report(), "report", is_once)) is not is_once

    asyncio.run(live())


def test_what_did_not_arrive_is_carried_to_the_next_life_of_the_peer() -> None:
    async def live() -> None:
        async with pair_of() as pair:
            await until(lambda: pair.link.is_connected)
            await pair.stop_listening()
            await until(lambda: not pair.link.is_connected)
            pair.link.say(numbered(7))
            pair.link.carry(parcel(report(), "report"))
            await pair.listen()
            pair.link.try_now()
            await until(lambda: len(pair.listener.got) == 2)
            assert {type(message).__name__ for message in pair.listener.got} == {"Heartbeat", "Report"}

    asyncio.run(live())


def test_parcels_for_a_life_that_is_over_are_dropped() -> None:
    async def live() -> None:
        async with pair_of(is_listening=False) as pair:
            pair.link.carry(parcel(report(), "report"))
            pair.link.forget_parcels()
            async with asyncio.timeout(PATIENCE_S):
                await pair.link.drained()
            await pair.listen()
            pair.link.say(numbered(1))
            await until(lambda: len(pair.listener.got) == 1)
            assert isinstance(pair.listener.got[0], Heartbeat)

    asyncio.run(live())


def test_a_refused_connection_is_proof_only_the_second_time() -> None:
    async def live() -> None:
        async with pair_of(is_listening=False) as pair:
            await until(lambda: pair.link._n_refusals == 1)
            assert pair.speaker.n_refused == 0
            await until(lambda: pair.speaker.n_refused > 0)
            assert pair.link._n_refusals >= 2

    asyncio.run(live())


def test_a_peer_whose_address_is_not_known_is_not_held_for_dead() -> None:
    async def live() -> None:
        async with pair_of(is_listening=False) as pair:
            address = pair.addresses.pop(0)
            for _ in range(5):
                pair.link.try_now()
                await asyncio.sleep(0)
            pair.addresses[0] = address
            await pair.listen()
            pair.link.try_now()
            await until(lambda: pair.link.is_connected)
            assert pair.speaker.n_refused == 0

    asyncio.run(live())


def test_a_quiet_link_still_gives_signs_of_life_on_both_sides() -> None:
    async def live() -> None:
        async with pair_of() as pair:
            await until(lambda: pair.listener.n_heard >= 3 and pair.speaker.n_heard >= 3)
            assert pair.listener.got == []

    asyncio.run(live())


def test_a_stream_that_ends_is_doubted_at_once() -> None:
    async def live() -> None:
        async with pair_of() as pair:
            await until(lambda: pair.link.is_connected)
            assert pair.listener.n_doubts == 0
            await pair.link.close()
            await until(lambda: pair.listener.n_doubts == 1)

    asyncio.run(live())


@pytest.mark.parametrize("is_listening", [True, False], ids=["connected", "alone"])
def test_a_link_can_be_closed_at_the_moment_at_which_something_happens(is_listening: bool) -> None:
    """A cancelled wait whose event comes in the same turn of the loop must not go on waiting."""

    async def live() -> None:
        before = asyncio.all_tasks()
        for n_turns in range(12):
            async with pair_of(is_listening=is_listening) as pair:
                if is_listening:
                    await until(partial(getattr, pair.link, "is_connected"))
                for _ in range(n_turns):
                    await asyncio.sleep(0)
                pair.link.try_now()
                pair.link.say(numbered(n_turns))
                pair.link.carry(parcel(report(), "report"))
                async with asyncio.timeout(5):
                    await pair.link.close()
        await until(lambda: asyncio.all_tasks() == before)

    asyncio.run(live())


# -- what the parent has stays at home --------------------------------------------------------------------------------


def test_the_whole_is_sent_after_a_part_of_the_same_record(tmp_path: Path) -> None:
    """A peer that has not the parent pulls; what it gets must not count as already there."""
    state = {"same": VECTOR, "changed": VECTOR + 1}
    sent = msgspec.structs.replace(closed(), record=msgspec.structs.replace(closed().record, state=state))

    async def live() -> None:
        async with pair_of(FREE) as pair:
            outbox = Outbox(pair.speaker, NoCredentials().dial, Detector(Timing.localhost()), Diary(tmp_path, 1))
            try:
                outbox.send(0, sent, {"same": VECTOR})
                await until(lambda: len(pair.listener.got) == 1)
                for _ in range(2):  # the second one is there already
                    outbox.send(0, sent)
                await until(lambda: len(pair.listener.got) == 2)
            finally:
                await outbox.close()
            records = [message.record for message in pair.listener.got if isinstance(message, Closed)]
            assert [kept_in(record) for record in records] == [{"same"}, set()]
            assert outbox.n_sent == 2

    asyncio.run(live())
