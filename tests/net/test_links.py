"""Two devices and the connection between them: what is sent arrives, in order and once; what breaking proves.

Crosses `net.links` and `net.connection`, over real sockets on loopback.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import numpy as np
import pytest

from tests.net.nodes import PATIENCE_S, free_addresses, until
from tests.net.test_wire import FLEET, FREE, VECTOR, closed, plain, report
from tolfl.core.spec import Timing
from tolfl.net.addresses import AddressBook
from tolfl.net.connection import Outgoing, Queue
from tolfl.net.failure_detector import FailureDetector
from tolfl.net.links import Links
from tolfl.net.tls import Credentials
from tolfl.net.wire import (
    CHUNK_BYTES,
    WIRE_VERSION,
    Codec,
    CommandRequest,
    Hello,
    Limits,
    Rejection,
    StatusReply,
    kept_in,
)
from tolfl.protocol.history import Version
from tolfl.protocol.messages import AnyMessage, Closed, Heartbeat
from tolfl.runs.ledger import Kind

FIRST = Version(0, 0, 0, "")


class Ear:
    """A device that remembers what it is told."""

    def __init__(self, id: int, places: list[str], limits: Limits = FLEET) -> None:
        self.id, self.fleet, self.limits, self.timing = id, "a fleet", limits, Timing.localhost()
        self.addresses = AddressBook({str(peer): place for peer, place in enumerate(places) if peer != id}, id, (0, 1))
        self.place, self.process, self.incarnation = places[id], 10 + id, 0
        self.detector = FailureDetector(self.timing)
        self.links = Links(self, Credentials())
        self.got: list[AnyMessage] = []
        self.n_heard = 0
        self.greetings: list[int] = []
        self.refused: list[int] = []
        self.rejections: list[str] = []
        self.n_sent = 0
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        is_listening = asyncio.Event()

        async def live() -> None:
            async with asyncio.TaskGroup() as group:
                await self.links.start(group, self.place)
                is_listening.set()
                await self._closing.wait()
                await self.links.stop()

        self._task = asyncio.create_task(live())
        await is_listening.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._closing.set()
            async with asyncio.timeout(PATIENCE_S):
                await self._task
            self._task = None

    async def restart(self) -> None:
        """Come back as another process."""
        await self.stop()
        self.process, self.incarnation = self.process + 10, self.incarnation + 1
        self.links, self._closing = Links(self, Credentials()), asyncio.Event()
        await self.start()

    def hello(self, to: int | None) -> Hello:
        return Hello(
            wire=WIRE_VERSION,
            fleet=self.fleet,
            device=self.id,
            incarnation=self.incarnation,
            to=to,
            process=self.process,
        )

    def handshake_done(self, peer: int, hello: Hello) -> None:
        self.greetings.append(hello.incarnation)

    def note_answer(self, peer: int) -> None:
        self.n_heard += 1

    def was_refused(self, peer: int) -> None:
        self.refused.append(peer)

    def was_rejected(self, peer: int | None, rejection: Rejection) -> None:
        self.rejections.append(rejection.kind)

    def received(self, peer: int, message: AnyMessage) -> None:
        self.got.append(message)

    def sent(self, peer: int, message: Outgoing) -> None:
        self.n_sent += 1

    def status(self) -> StatusReply:
        return StatusReply(device=self.id)

    def command(self, request: CommandRequest, is_operator: bool) -> bool:
        return False

    def learn(self, revocations: bytes) -> None:
        raise AssertionError("nobody sends any")

    def records(self, first: int) -> bytes:
        raise AssertionError("nobody asks for any")

    @property
    def is_connected(self) -> bool:
        return bool(self.links.connected)


@asynccontextmanager
async def pair_of(limits: Limits = FLEET, is_listening: bool = True) -> AsyncIterator[tuple[Ear, Ear]]:
    """Give device 1, which speaks, and device 0, which may listen."""
    places = free_addresses(2)
    speaker, listener = Ear(1, places, limits), Ear(0, places, limits)
    await speaker.start()
    if is_listening:
        await listener.start()
    try:
        yield speaker, listener
    finally:
        await speaker.stop()
        await listener.stop()


def numbered(index: int) -> Outgoing:
    return Outgoing(Codec.encode(Heartbeat(1, index, FIRST, frozenset()))[0])


def payload(message: AnyMessage, name: object, is_once: bool = False) -> Outgoing:
    frame, arrays = Codec.encode(message)
    return Outgoing(frame, "", tuple(arrays), Kind.MODEL, name, is_once)


async def drained(ear: Ear, peer: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await ear.links._peer(peer).queue.drained()


# -- what is sent arrives ---------------------------------------------------------------------------------------------


def test_small_messages_arrive_once_and_in_order() -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            for index in range(200):
                speaker.links.send(0, numbered(index))
            await until(lambda: len(listener.got) == 200)
            assert [message.incarnation for message in listener.got] == list(range(200))

    asyncio.run(live())


def test_what_waits_for_a_peer_is_bounded_and_the_newest_is_kept() -> None:
    async def live() -> None:
        async with pair_of(is_listening=False) as (speaker, listener):
            for index in range(1000):
                speaker.links.send(0, numbered(index))
            await listener.start()
            await until(lambda: bool(listener.got) and listener.got[-1].incarnation == 999)
            assert [message.incarnation for message in listener.got] == list(range(744, 1000))

    asyncio.run(live())


def test_a_model_arrives_as_it_was_beside_small_messages() -> None:
    params = np.random.default_rng(0).standard_normal(CHUNK_BYTES).astype(np.float32)
    sent = Closed(
        1, 0, closed().version, frozenset(), msgspec.structs.replace(closed().record, state={"global": params})
    )

    async def live() -> None:
        async with pair_of(Limits(FLEET.topology)) as (speaker, listener):
            assert speaker.links.send(0, payload(sent, "model"))
            assert not speaker.links.send(0, payload(sent, "model"))  # on its way already
            speaker.links.send(0, numbered(5))
            await drained(speaker, 0)
            await until(lambda: len(listener.got) == 2)
            received = next(message for message in listener.got if isinstance(message, Closed))
            assert plain(received) == plain(sent)
            assert speaker.n_sent == 2

    asyncio.run(live())


@pytest.mark.parametrize("is_once", [True, False])
def test_a_model_that_has_arrived_is_sent_again_only_if_it_may_be_needed(is_once: bool) -> None:
    async def live() -> None:
        async with pair_of() as (speaker, _):
            speaker.links.send(0, payload(report(), "report", is_once))
            await drained(speaker, 0)
            assert speaker.links.send(0, payload(report(), "report", is_once)) is not is_once

    asyncio.run(live())


def test_the_whole_is_sent_after_a_part_of_the_same_record() -> None:
    """A peer that has not the parent pulls; what it gets must not count as already there."""
    state = {"same": VECTOR, "changed": VECTOR + 1}
    sent = msgspec.structs.replace(closed(), record=msgspec.structs.replace(closed().record, state=state))
    part, arrays = Codec.encode(sent, {"same": VECTOR})

    async def live() -> None:
        async with pair_of(FREE) as (speaker, listener):
            speaker.links.send(0, Outgoing(part, "", tuple(arrays), Kind.MODEL, "part", is_once=True))
            await until(lambda: len(listener.got) == 1)
            for _ in range(2):  # the second one is there already
                speaker.links.send(0, payload(sent, "whole", is_once=True))
            await until(lambda: len(listener.got) == 2)
            records = [message.record for message in listener.got if isinstance(message, Closed)]
            assert [kept_in(record) for record in records] == [{"same"}, set()]
            assert speaker.n_sent == 2

    asyncio.run(live())


def test_what_did_not_arrive_is_sent_to_the_next_incarnation_of_the_peer() -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            speaker.links.connect(0)
            await until(lambda: speaker.is_connected)
            await listener.stop()
            await until(lambda: not speaker.is_connected)
            speaker.links.send(0, numbered(7))
            speaker.links.send(0, payload(report(), "report"))
            await listener.restart()
            await until(lambda: len(listener.got) == 2)
            assert {type(message).__name__ for message in listener.got} == {"Heartbeat", "Report"}

    asyncio.run(live())


def test_models_for_an_incarnation_that_is_over_are_dropped() -> None:
    async def live() -> None:
        async with pair_of(is_listening=False) as (speaker, listener):
            speaker.links.send(0, payload(report(), "report"))
            speaker.links.forget_payloads(0)
            await drained(speaker, 0)
            await listener.start()
            speaker.links.send(0, numbered(1))
            await until(lambda: len(listener.got) == 1)
            assert isinstance(listener.got[0], Heartbeat)

    asyncio.run(live())


def test_an_interrupted_model_is_sent_first_and_a_full_queue_forgets_the_oldest() -> None:
    async def live() -> None:
        queue = Queue()
        for index in range(10):
            queue.add(payload(report(), index))
        assert [one.name for one in queue.payloads] == list(range(2, 10))
        queue.under_way = queue.payloads.popleft()
        assert not queue.add(payload(report(), 2))
        queue.reconnected(is_other_process=False)
        assert [one.name for one in queue.payloads] == list(range(2, 10))
        assert not queue.is_empty

    asyncio.run(live())


def test_a_device_that_ends_by_an_error_dials_nobody_and_leaves_nothing_behind() -> None:
    """The connection breaks with its tasks, there is something to say to the peer, and no task can begin any more."""

    async def fail() -> None:
        raise OSError("no disk")

    async def live() -> None:
        async with pair_of() as (speaker, listener):
            speaker.links.expect(0)
            await until(lambda: speaker.is_connected and listener.is_connected)
            task, speaker._task = speaker._task, None
            assert task is not None
            speaker.links._spawn(fail())
            with pytest.raises(ExceptionGroup) as raised:
                await task
            assert str(raised.value.exceptions[0]) == "no disk"
            await speaker.links.stop()
            await until(lambda: not listener.is_connected)

    asyncio.run(live())
    gc.collect()  # a task that was made and never begun would be told of now, and fail this test


# -- one connection, whoever dials ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialler", [0, 1])
def test_both_directions_use_the_one_connection_whoever_dialled_it(dialler: int) -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            ears = {0: listener, 1: speaker}
            del ears[1 - dialler].addresses[dialler]  # it does not know where to dial
            ears[dialler].links.connect(1 - dialler)
            await until(lambda: speaker.is_connected and listener.is_connected)
            for ear in (speaker, listener):
                ear.links.send(1 - ear.id, Outgoing(Codec.encode(Heartbeat(ear.id, 0, FIRST, frozenset()))[0]))
            await until(lambda: bool(speaker.got and listener.got))
            assert (speaker.greetings, listener.greetings) == ([0], [0])

    asyncio.run(live())


def test_two_that_dial_at_the_same_time_keep_the_same_connection() -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            await asyncio.gather(speaker.links._dial(listener.place, 0), listener.links._dial(speaker.place, 1))
            await asyncio.sleep(0.2)  # for the one that loses to be closed
            ports = [
                {one.connection._writer.get_extra_info(end) for end in ("sockname", "peername")}
                for ear in (speaker, listener)
                for one in ear.links._peers.values()
                if one.connection is not None
            ]
            assert len(ports) == 2
            assert ports[0] == ports[1]

    asyncio.run(live())


def test_a_second_process_of_one_incarnation_is_refused_while_the_first_answers() -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            speaker.links.connect(0)
            await until(lambda: speaker.is_connected and listener.is_connected)
            twin = Ear(1, [listener.place, free_addresses(1)[0]])
            twin.process = 99
            await twin.start()
            twin.links.connect(0)
            await until(lambda: "taken" in twin.rejections)
            still = listener.links.connected[1].process
            await speaker.stop()
            twin.links.connect(0)
            await until(lambda: twin.is_connected)
            await twin.stop()

            assert still == speaker.process
            assert listener.links.refused["taken"] >= 1

    asyncio.run(live())


def test_a_restarted_peer_replaces_its_old_connection_at_once() -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            speaker.links.connect(0)
            await until(lambda: listener.is_connected)
            successor = Ear(1, [listener.place, free_addresses(1)[0]])
            successor.process, successor.incarnation = 99, 1
            await successor.start()
            successor.links.connect(0)
            await until(lambda: listener.greetings == [0, 1])
            assert listener.links.connected[1].process == 99
            await successor.stop()

    asyncio.run(live())


# -- what breaking proves ---------------------------------------------------------------------------------------------


def test_a_refusal_where_nobody_was_ever_reached_proves_nothing() -> None:
    async def live() -> None:
        async with pair_of(is_listening=False) as (speaker, _):
            speaker.links.expect(0)
            await asyncio.sleep(10 * speaker.timing.crash_detection_s)
            assert speaker.refused == []

    asyncio.run(live())


def test_two_refusals_where_a_process_was_reached_prove_that_it_is_gone() -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            speaker.links.expect(0)
            await until(lambda: speaker.is_connected)
            await listener.stop()
            await until(lambda: bool(speaker.refused))
            assert set(speaker.refused) == {0}

    asyncio.run(live())


def test_a_refusal_at_another_address_proves_nothing() -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            speaker.links.expect(0)
            await until(lambda: speaker.is_connected)
            speaker.addresses[0] = free_addresses(1)[0]
            await listener.stop()
            await asyncio.sleep(10 * speaker.timing.crash_detection_s)
            assert speaker.refused == []

    asyncio.run(live())


def test_pings_are_answered_on_both_sides_of_a_quiet_connection() -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            speaker.links.expect(0)
            await until(lambda: speaker.is_connected and listener.is_connected)
            listener.links.expect(1)
            for n in range(1, 4):
                speaker.links.beat()
                listener.links.beat()
                await until(lambda n=n: min(speaker.n_heard, listener.n_heard) >= n)  # type: ignore[misc]
            assert listener.got == []

    asyncio.run(live())


def test_what_a_peer_only_says_is_no_sign_that_it_hears() -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            for index in range(50):
                speaker.links.send(0, numbered(index))
            await until(lambda: len(listener.got) == 50)
            assert listener.n_heard == 0

    asyncio.run(live())


# -- closing, and what raises -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_listening", [True, False], ids=["connected", "alone"])
def test_links_can_be_closed_at_the_moment_at_which_something_happens(is_listening: bool) -> None:
    """A cancelled wait whose event comes in the same turn of the loop must not go on waiting."""

    async def live() -> None:
        before = asyncio.all_tasks()
        for n_turns in range(12):
            async with pair_of(is_listening=is_listening) as (speaker, _):
                if is_listening:
                    speaker.links.connect(0)
                    await until(lambda speaker=speaker: speaker.is_connected)  # type: ignore[misc]
                for _ in range(n_turns):
                    await asyncio.sleep(0)
                speaker.links.send(0, numbered(n_turns))
                speaker.links.send(0, payload(report(), "report"))
        await until(lambda: asyncio.all_tasks() == before)

    asyncio.run(live())


def test_the_port_is_free_again_although_closing_was_cut_short() -> None:
    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            await asyncio.sleep(0.05)

    async def live() -> None:
        async with pair_of(is_listening=False) as (speaker, _):
            speaker.links._spawn(slow_to_end())
            await asyncio.sleep(0)
            closing = asyncio.create_task(speaker.links.stop())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            socket.create_server(("127.0.0.1", int(speaker.place.rpartition(":")[2]))).close()

    asyncio.run(live())


@pytest.mark.parametrize("what", ["received", "handshake_done"])
def test_an_exception_while_a_message_is_handled_is_a_counted_refusal(what: str) -> None:
    async def live() -> None:
        async with pair_of() as (speaker, listener):
            raised: Callable[..., None] = _raise
            setattr(listener, what, raised)
            speaker.links.send(0, numbered(0))
            await until(lambda: listener.links.refused["impossible"] >= 1)
            delattr(listener, what)
            await until(lambda: speaker.links.send(0, numbered(1)) and bool(listener.got))
            assert len(listener.greetings) < 20  # nobody dials without a pause

    asyncio.run(live())


def _raise(*_: object) -> None:
    raise KeyError("something that nobody foresaw")


def test_an_exception_of_this_device_itself_ends_it() -> None:
    async def live() -> None:
        async with pair_of() as (speaker, _):
            setattr(speaker, "sent", _raise)  # noqa: B010
            speaker.links.send(0, numbered(0))
            assert speaker._task is not None
            with pytest.raises(BaseExceptionGroup) as raised:
                async with asyncio.timeout(PATIENCE_S):
                    await speaker._task
            speaker._task = None
            await speaker.links.stop()

            assert raised.value.subgroup(KeyError) is not None

    asyncio.run(live())
