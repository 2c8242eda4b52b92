"""Coming to a fleet: late, knowing one address only, or together with nobody else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from tests.net.nodes import SMALL, Fleet, fleet_of, free_addresses, held_back, is_same, small
from tests.sim.fleets import params
from tolfl.core.errors import SpecError
from tolfl.core.records import Joined
from tolfl.core.spec import RunSpec
from tolfl.net.addresses import split_address
from tolfl.net.client import ask
from tolfl.net.node_config import NodeConfig
from tolfl.net.tls import Credentials
from tolfl.sim.simulation import run


@pytest.mark.parametrize("knows", ["all", "one"], ids=["knows everybody", "knows one address"])
def test_a_device_that_starts_late_gets_in(tmp_path: Path, knows: str) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path, small(rounds=6)) as fleet:
            for device in range(3):
                fleet.prepare(device, start_timeout_s=0.3)
            gate = held_back(fleet.nodes[0], lambda index: index < 3)
            fleet.launch(0, 1, 2)
            await fleet.until_round(3)
            if knows == "one":
                # A port of its own choice too: the others learn from its hello where it is.
                fleet.prepare(3, peers={}, seeds=(fleet.addresses[1],), listen="127.0.0.1:0")
            fleet.launch(3)
            await fleet.until(lambda: 3 in fleet.nodes[2].device.fleet.joiners)
            gate.set()
            reasons = await fleet.ends(0, 1, 2, 3)

            included = [line.included for line in fleet.closed()]
            assert reasons == ["over"] * 4
            assert len(fleet.histories()) == 1
            assert included == [(0, 1, 2)] * 4 + [(0, 1, 2, 3)] * 2
            lines = [line for device in range(4) for line in fleet.records(device)]
            assert {line.device for line in lines if isinstance(line, Joined)} == {3}

    asyncio.run(live())


def test_a_fleet_finds_itself_by_one_seed(tmp_path: Path) -> None:
    spec = small(rounds=2)

    async def live() -> None:
        async with fleet_of(tmp_path, spec) as fleet:
            fleet.prepare(0, peers={})
            for device in (1, 2, 3):
                fleet.prepare(device, peers={}, seeds=(fleet.addresses[0],), listen="127.0.0.1:0")
            fleet.launch(0, 1, 2, 3)
            reasons = await fleet.ends(0, 1, 2, 3)

            expected = params(run(spec)[0])
            assert reasons == ["over"] * 4
            assert all(is_same(fleet.params(device), expected) for device in range(4))

    asyncio.run(live())


@pytest.mark.parametrize("nobody_dials", [None, 0])
def test_two_devices_whose_hellos_cross_at_a_third_find_each_other(tmp_path: Path, nobody_dials: int | None) -> None:
    """1 has said hello to 0, whose answer is on its way, when 2 says hello to 1: neither hello names the third."""
    (nowhere,) = free_addresses(1)

    async def live() -> None:
        async with fleet_of(tmp_path, small(devices=3, rounds=2)) as fleet:
            answer_may_pass = asyncio.Event()
            async with slow_answers(fleet.addresses[0], answer_may_pass) as way_to_0:
                advertise = {device: nowhere if device == nobody_dials else "" for device in range(3)}
                fleet.prepare(0, peers={}, advertise=advertise[0])
                fleet.prepare(1, peers={}, seeds=(way_to_0,))
                fleet.prepare(2, peers={}, seeds=(fleet.addresses[1],), advertise=advertise[2])
                fleet.launch(0, 1)
                await fleet.until(lambda: 1 in fleet.nodes[0].links.connected)
                fleet.launch(2)
                await fleet.until(lambda: 1 in fleet.nodes[2].links.connected)
                assert [set(fleet.nodes[device].addresses) for device in (0, 2)] == [{0, 1}, {1, 2}]
                answer_may_pass.set()

                await fleet.until(lambda: 2 in fleet.nodes[0].links.connected)

    asyncio.run(live())


def test_a_seed_that_comes_after_the_start_is_found(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path, small(devices=2, clusters=1, rounds=3)) as fleet:
            fleet.prepare(1, peers={}, seeds=(fleet.addresses[0],), start_timeout_s=0.1)
            gate = held_back(fleet.nodes[1], lambda _: False)
            fleet.launch(1)
            await fleet.until(lambda: fleet.nodes[1].has_begun)
            fleet.prepare(0, peers={})
            fleet.launch(0)
            await fleet.until(lambda: 1 in fleet.nodes[0].links.connected)
            gate.set()

            assert await fleet.ends(0, 1) == ["over"] * 2
            assert len(fleet.histories()) == 1

    asyncio.run(live())


@asynccontextmanager
async def slow_answers(address: str, may_pass: asyncio.Event) -> AsyncIterator[str]:
    """Give an address that leads to another one, from which nothing comes back until it may."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await reader.read(1 << 16):
                writer.write(content)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond, to_beyond = await asyncio.open_connection(*split_address(address))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(forward(reader, to_beyond))
                await may_pass.wait()
                group.create_task(forward(beyond, writer))
        finally:  # also where the test is over, and this is cancelled
            writer.transport.abort()
            to_beyond.transport.abort()

    async with await asyncio.start_server(connect, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


def test_whoever_waits_in_vain_starts_alone(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path, small(rounds=2)) as fleet:
            fleet.prepare(1, start_timeout_s=0.2)
            fleet.launch(1)
            assert await fleet.ends(1) == ["over"]
            assert [line.included for line in fleet.closed()] == [(1,), (1,)]

    asyncio.run(live())


def test_nobody_waits_for_a_device_that_is_known_to_be_gone(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path, small(rounds=2)) as fleet:
            for device in range(3):
                fleet.prepare(device, start_timeout_s=3600.0, absent=(3,))
            fleet.launch(0, 1, 2)
            assert await fleet.ends(0, 1, 2) == ["over"] * 3
            assert [line.included for line in fleet.closed()] == [(0, 1, 2)] * 2

    asyncio.run(live())


def test_a_seed_of_another_fleet_teaches_nothing(tmp_path: Path) -> None:
    async def live() -> None:
        (tmp_path / "ours").mkdir()
        (tmp_path / "theirs").mkdir()
        async with (
            fleet_of(tmp_path / "ours", small(rounds=2)) as ours,
            fleet_of(tmp_path / "theirs", small(rounds=2, seed=1)) as theirs,
        ):
            theirs.prepare(0)
            theirs.launch(0)
            await theirs.until(lambda: 0 in theirs.nodes[0].addresses)
            ours.prepare(1, peers={}, seeds=(theirs.addresses[0],), start_timeout_s=0.5)
            ours.launch(1)
            assert await ours.ends(1) == ["over"]
            assert set(ours.nodes[1].addresses) == {1}
            assert theirs.nodes[0].device.version.round == 0

    asyncio.run(live())


def test_a_device_that_listens_everywhere_must_say_where_it_is_reached(tmp_path: Path) -> None:
    """Its own word replaced the right address everywhere, and nobody can dial every interface."""
    config = Fleet(tmp_path).config(0, listen="0.0.0.0:7000")
    with pytest.raises(SpecError, match="which nobody can dial; say where others reach it, as in advertise"):
        config.check(tmp_path / "node.toml")

    reached = Fleet(tmp_path).config(0, listen="0.0.0.0:7000", advertise="10.0.0.3:7000")
    assert reached.check(tmp_path / "node.toml") == reached


def test_a_clock_that_is_set_back_during_the_run_changes_nothing(tmp_path: Path) -> None:
    """The run began in an hour, as one of two clocks has it."""

    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            fleet.prepare(2, started_unix=time.time() + 3600)
            fleet.launch(0, 1, 2, 3)
            assert await fleet.ends(0, 1, 2, 3) == ["over"] * 4

            assert is_same(fleet.params(2), params(run(SMALL)[0]))

    asyncio.run(live())


def test_nobody_answers_at_a_closed_port(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            assert await ask(fleet.addresses[0], Credentials()) is None

    asyncio.run(live())


#: Prints by how much memory has grown, in bytes: when a device has read its rows, and at most while it trained on them.
MEMORY = """
import sys
from pathlib import Path
import numpy as np
from tolfl.learners import Turn
from tolfl.net.node_config import NodeConfig
from tolfl.net.prepare import prepare

def now(what):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(what))

before = now("VmRSS")
trainer = prepare(NodeConfig.from_file(Path("node.toml"))).trainer
held, peak = now("VmRSS") - before, now("VmHWM") - before
state = {"scaler/shift": np.zeros(64), "scaler/factor": np.full(64, 0.01)}
state = trainer.learner.stages["autoencoder"].start(state)
turn = Turn(0, 0, trainer.learner.rounds - 1, state, trainer._rows)
trainer.learner.contribute([turn])
print(len(trainer._rows), held, peak, now("VmHWM") - before)
"""


def test_a_device_holds_its_rows_once_and_scales_them_in_pieces(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(40_000, 64)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    columns = [f"x{place}" for place in range(64)]
    spec = RunSpec(data="rows.npy", devices=1, clusters=1, rounds=1, learn={"what": "autoencoder", "columns": columns})
    (tmp_path / "spec.toml").write_text(spec.to_toml())
    config = NodeConfig(device=0, listen="127.0.0.1:0", state="state", data="rows.npy", insecure=True)
    (tmp_path / "node.toml").write_text(config.to_toml())

    found = subprocess.run([sys.executable, "-c", MEMORY], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert found.returncode == 0, found.stderr
    n_rows, held, reading, training = map(int, found.stdout.split())
    assert n_rows == len(rows)
    few = 8 * 2**20  # modules that are imported meanwhile, and what rows are trained with
    assert held < rows.nbytes + few
    assert reading < 4 * rows.nbytes + few
    assert training < reading + few
