"""Whole devices in one process: what they compute together, and what they make of slow, leaving and returning ones."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.net.nodes import SMALL, TOKEN, Fleet, fleet_of, held_back, is_same, small, until
from tests.sim.fleets import params
from tolfl.core.contribution import GLOBAL, Vector
from tolfl.core.records import FailureHappened, Joined, RunEnded, Traffic
from tolfl.net.node import Node
from tolfl.net.wire import CommandRequest
from tolfl.protocol.events import PeerFailed
from tolfl.protocol.history import ClosedRound, Version
from tolfl.protocol.messages import Closed, Heartbeat
from tolfl.sim.simulation import run

ALL = (0, 1, 2, 3)


def found_dead(fleet: Fleet, device: int) -> list[FailureHappened]:
    lines = [line for one in ALL for line in fleet.records(one)]
    return [line for line in lines if isinstance(line, FailureHappened) and line.device == device]


@pytest.mark.parametrize("scheme", ["tol-fl", "fl", "sbt"])
def test_real_devices_end_with_the_bits_of_the_simulation(tmp_path: Path, scheme: str) -> None:
    spec = small(scheme=scheme, clusters=2 if scheme == "tol-fl" else None)

    async def live() -> None:
        async with fleet_of(tmp_path, spec) as fleet:
            fleet.launch(*ALL)
            reasons = await fleet.ends(*ALL)

            expected = params(run(spec)[0])
            assert reasons == ["over"] * 4
            assert len(fleet.histories()) == 1
            assert all(is_same(fleet.params(device), expected) for device in ALL)
            assert [line.included for line in fleet.closed()] == [ALL] * spec.rounds

    asyncio.run(live())


def test_every_device_says_what_it_sent_and_how_it_ended(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            fleet.launch(*ALL)
            await fleet.ends(*ALL)

            for device in ALL:
                *_, ending = fleet.records(device)
                assert isinstance(ending, RunEnded)
                assert ending.reason == "over"
            # 0 and 2 are heads: one report each from 1 and 3, one mean, the model to one head and two members.
            sent = [line for one in ALL for line in fleet.records(one) if isinstance(line, Traffic)]
            models = {(line.history, line.device, to, kind) for line in sent for to, kind, _ in line.sent}
            a_round = [(0, 1, "model"), (0, 2, "mean"), (1, 0, "report")]
            a_round += [(2, 0, "model"), (2, 3, "model"), (3, 2, "report")]
            # No more than a set of them is promised: what is asked for while it is on its way may come twice.
            assert models >= {(line.parent, *one) for line in fleet.closed() for one in a_round}

    asyncio.run(live())


def test_a_device_that_leaves_is_reported_as_left_and_not_as_dead(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            gate = held_back(fleet.prepare(3), lambda index: index < 2)
            fleet.launch(*ALL)
            await fleet.until_round(2)
            await fleet.command(3, CommandRequest(token=TOKEN, leave=True))
            reasons = await fleet.ends(*ALL)
            gate.set()

            assert reasons == ["over", "over", "over", "left"]
            assert [line.missing for line in fleet.closed()] == [{}, {}, {"3": "left"}, {}]
            assert [line.included for line in fleet.closed()] == [ALL, ALL, (0, 1, 2), (0, 1, 2)]
            assert not found_dead(fleet, 3)

    asyncio.run(live())


def test_a_process_that_is_gone_is_proved_by_refusals_whatever_incarnations_it_had(tmp_path: Path) -> None:
    """It took another incarnation while connected: refusals proved the end of the first one only."""

    async def live() -> None:
        async with fleet_of(tmp_path, small(rounds=100_000, timing="lan")) as fleet:
            fleet.launch(*ALL)
            await fleet.until_round(2)
            for device in (0, 1, 2):
                fleet.nodes[device]._handle(PeerFailed(3, 0))
            await fleet.until(
                lambda: all(node.device.record.roster.incarnations.get(3) == 1 for node in fleet.nodes.values())
            )
            await fleet.until_round(fleet.nodes[0].device.version.round + 3)
            assert not found_dead(fleet, 3)
            await fleet.kill(3)
            await fleet.until(lambda: bool(found_dead(fleet, 3)))

            assert {line.what for line in found_dead(fleet, 3)} == {"found dead: connection refused"}

    asyncio.run(live())


def test_a_straggler_is_cut_off_at_the_deadline_and_catches_up(tmp_path: Path) -> None:
    spec = small(deadline_s=0.5, rounds=7)

    async def live() -> None:
        async with fleet_of(tmp_path, spec) as fleet:
            gate = held_back(fleet.prepare(1), lambda index: index < 1)
            fleet.launch(*ALL)
            await fleet.until_round(3, [0, 2, 3])
            gate.set()
            reasons = await fleet.ends(*ALL)

            late = [line.missing == {"1": "late"} for line in fleet.closed()]
            assert reasons == ["over"] * 4
            assert len(fleet.histories()) == 1
            assert late[:3] == [False, True, True]
            assert not late[-1]
            assert not found_dead(fleet, 1)

    asyncio.run(live())


@pytest.mark.parametrize("min_devices", [1, 3], ids=["both sides train", "the minority waits"])
def test_a_planned_cut_heals_to_one_history(tmp_path: Path, min_devices: int) -> None:
    spec = small(fail="cut:3@1-3", rounds=6, min_devices=min_devices)

    async def live() -> None:
        async with fleet_of(tmp_path, spec) as fleet:
            fleet.launch(*ALL)
            reasons = await fleet.ends(*ALL)

            included = [line.included for line in fleet.closed()]
            assert reasons == ["over"] * 4
            assert len(fleet.histories()) == 1
            assert included[:3] == [ALL, (0, 1, 2), (0, 1, 2)]
            assert len(included) == spec.rounds

    asyncio.run(live())


def test_a_member_that_was_cut_off_before_its_head_ever_wrote_to_it_is_found_dead(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            fleet.prepare(2).command(CommandRequest(cut=(3,)), is_operator=True)
            fleet.launch(*ALL)
            await fleet.until(lambda: fleet.nodes[2].device.fleet.has_failed((3, 0)))
            await fleet.until_round(1, [0, 1, 2])

            assert fleet.closed()[0].included == (0, 1, 2)

    asyncio.run(live())


def test_a_device_that_died_comes_back_as_its_next_life(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            gate = held_back(fleet.prepare(0), lambda index: index < 2)
            fleet.launch(*ALL)
            await fleet.until_round(2)
            await fleet.kill(3)
            await fleet.until(lambda: fleet.nodes[2].device.fleet.has_failed((3, 0)))
            fleet.launch(3)
            assert fleet.nodes[3].device.incarnation == 1
            assert fleet.nodes[3].device.version.round == 2
            await fleet.until(lambda: fleet.nodes[2].device.fleet.joiners == {3: 1})
            gate.set()
            reasons = await fleet.ends(*ALL)

            assert reasons == ["over"] * 4
            assert len(fleet.histories()) == 1
            assert [line.included for line in fleet.closed()][3:] == [ALL]
            lines = [line for one in ALL for line in fleet.records(one)]
            assert [(line.device, line.incarnation) for line in lines if isinstance(line, Joined)] == [(3, 1)]
            assert {line.by for line in found_dead(fleet, 3)} == {2}

    asyncio.run(live())


def test_all_start_again_after_a_power_cut_where_they_were(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            gates = [held_back(fleet.prepare(device), lambda index: index < 2) for device in ALL]
            fleet.launch(*ALL)
            await fleet.until_round(2)
            for device in ALL:
                await fleet.kill(device)
            for gate in gates:
                gate.set()
            fleet.launch(*ALL)
            lives = [fleet.nodes[device].device.incarnation for device in ALL]
            reasons = await fleet.ends(*ALL)

            expected = params(run(SMALL)[0])
            assert lives == [1, 1, 1, 1]
            assert reasons == ["over"] * 4
            assert all(is_same(fleet.params(device), expected) for device in ALL)

    asyncio.run(live())


def test_training_that_fails_ends_the_device_with_its_error(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:

            def overflow(index: int) -> bool:
                raise ArithmeticError("diverged")

            gate = held_back(fleet.prepare(3), overflow)
            fleet.launch(*ALL)
            with pytest.raises(ArithmeticError, match="diverged"):
                await fleet.ends(3)
            gate.set()
            assert await fleet.ends(0, 1, 2) == ["over"] * 3

    asyncio.run(live())


# -- nothing is left behind -------------------------------------------------------------------------------------------


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def own_threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith(("training", "disk"))}


def test_a_fleet_leaves_no_task_no_thread_no_socket_and_no_file_behind(tmp_path: Path) -> None:
    async def live() -> None:
        before, counts = own_threads(), []
        for repetition in range(3):
            (tmp_path / str(repetition)).mkdir()
            async with fleet_of(tmp_path / str(repetition), small(rounds=2)) as fleet:
                fleet.launch(*ALL)
                await fleet.until_round(1)
                await fleet.kill(3)
                await fleet.ends(0, 1, 2)
                fleet.nodes.clear()
                fleet.tasks.clear()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            await until(lambda: not own_threads() - before)  # a round of training under way is let to its end
            counts.append(open_files())
        await until(lambda: open_files() <= counts[1])

    asyncio.run(live())


def test_a_port_that_is_taken_is_said_in_one_sentence(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            fleet.prepare(0)
            fleet.prepare(1, listen=fleet.addresses[0])
            fleet.launch(0)
            await fleet.until(lambda: 0 in fleet.nodes[0].addresses)
            with pytest.raises(
                Exception, match=r"device 1 cannot listen on 127\.0\.0\.1:\d+ .Address already in use.; choose"
            ):
                await fleet.nodes[1].run()

    asyncio.run(live())


def test_killed_devices_do_not_keep_the_others_from_their_end(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path, small(rounds=3)) as fleet:
            ready: list[Node] = [fleet.prepare(device) for device in ALL]
            gates = [held_back(node, lambda index: index < 1) for node in ready]
            fleet.launch(*ALL)
            await fleet.until_round(1)
            for device in (2, 0):  # the closer, then the head that is left
                await fleet.kill(device)
            for gate in gates:
                gate.set()

            assert await fleet.ends(1, 3) == ["over"] * 2
            assert [line.included for line in fleet.closed()][1:] == [(1, 3), (1, 3)]
            assert fleet.nodes[1].device.fleet.roles.heads == (1, 3)

    asyncio.run(live())


# -- records that keep a part of their parent's state -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("parent", "state", "expected"),
    [
        ("", {GLOBAL: None}, Closed),
        ("", {GLOBAL: None, "new": np.ones(2)}, Closed),
        ("abc0", {GLOBAL: None}, Heartbeat),
        ("", {"unheard of": None}, Heartbeat),
    ],
    ids=["all of it kept", "one kept and one new", "of a parent that it has not", "of an array that it has not"],
)
def test_what_a_record_keeps_is_filled_in_by_who_has_the_parent(
    tmp_path: Path, parent: str, state: dict[str, Vector | None], expected: type
) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            node = fleet.prepare(0)
            own = fleet.params(0)
            record = ClosedRound(Version(9, 1, 0, "ff"), node.device.record.roster, state, parent)
            message = node._with_kept(Closed(1, 0, record.version, frozenset(), record))

            assert type(message) is expected
            assert message.version == record.version
            if isinstance(message, Closed):
                assert isinstance(message.record.state, dict)
                assert message.record.state[GLOBAL] is own
                assert list(message.record.state) == list(state)

    asyncio.run(live())
