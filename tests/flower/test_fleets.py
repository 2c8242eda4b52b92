"""Flower apps on real processes with TLS: whoever is killed, the survivors hold one model, that of the simulator."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.flower.environments import APPS, NEWEST, OLDEST, app_spec, needs_flwr, simulated
from tests.flower.test_against_flower import OF_ALL, OF_THE_MEAN
from tests.net.fleet_processes import Fleet, fleet_of
from tests.net.replay import chain_to, lines_of_devices, rounds_of, state_after
from tests.net.test_kills import whoever_is
from tolfl.core.records import RoundClosed
from tolfl.core.spec import RunSpec
from tolfl.learners.learner import digest_of
from tolfl.learners.registry import learner_of
from tolfl.net.addresses import free_ports
from tolfl.net.collect import collect
from tolfl.net.node_config import NodeConfig
from tolfl.runs import outcome

pytestmark = [needs_flwr, pytest.mark.processes, pytest.mark.timeout(300)]


def check_survivors(fleet: Fleet, spec: RunSpec, survivors: list[int]) -> list[RoundClosed]:
    """Check that survivors hold one state, saved the same files, and that the history replayed leads to it."""
    assert fleet.survivors == survivors
    lines = lines_of_devices(fleet.out)
    summary = collect(fleet.launcher.directory, spec, fleet.data, survivors)
    last = max((line for line in lines if isinstance(line, RoundClosed)), key=lambda line: line.round or 0)
    chain = chain_to(str(last.version).rpartition(".")[2], lines)
    learner = learner_of(outcome.fleet_of(spec, fleet.data))
    state = state_after(chain, learner, spec.seed, fleet.data.slice_of, is_exact=True)
    assert digest_of(state) == summary["state_digest"]
    for name in ("final_weights.npy", "metrics.txt", "model.safetensors"):
        contents = {(fleet.out / "devices" / str(device) / name).read_bytes() for device in survivors}
        assert contents == {learner.results(state)["flower"].files()[name]}
    return rounds_of(chain)


def test_without_failures_the_fleet_holds_the_simulators_state(tmp_path: Path) -> None:
    spec = app_spec(python=OLDEST, config="strategy='Decaying'")
    with fleet_of(spec, tmp_path / "run", is_insecure=False) as fleet:
        fleet.until_the_end()

    check_survivors(fleet, spec, list(range(6)))
    held = collect_digest(fleet, spec)
    assert held == simulated(spec).summary["state_digest"]


def collect_digest(fleet: Fleet, spec: RunSpec) -> object:
    rounds = [line for line in fleet.closed if line.round == learner_of(outcome.fleet_of(spec, fleet.data)).rounds - 1]
    (digest,) = {line.digest for line in rounds}
    return digest


@pytest.mark.parametrize(
    "fail",
    ["server@train:2", "closer@evaluate:1/distribute", pytest.param("head:1@train:3/chain", marks=pytest.mark.slow)],
)
def test_a_planned_death_leaves_what_the_simulator_says(fail: str, tmp_path: Path) -> None:
    spec = app_spec(config="strategy='FedAdam'", fail=fail)
    with fleet_of(spec, tmp_path / "run", is_insecure=False) as fleet:
        fleet.until_the_end()

    assert len(fleet.survivors) == 5
    assert collect_digest(fleet, spec) == simulated(spec).summary["state_digest"]


@pytest.mark.parametrize(
    ("strategy", "roles"),
    [
        ("Keeping", "head closer"),
        *(
            pytest.param(strategy, roles, marks=pytest.mark.slow)
            for strategy, roles in (
                ("Decaying", "member head"),
                *((one, "head closer") for one in (*OF_THE_MEAN, *OF_ALL) if one != "Keeping"),
            )
        ),
    ],
)
def test_survivors_of_kills_hold_one_model_that_the_app_saved(strategy: str, roles: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(zlib.crc32(strategy.encode()))
    spec = app_spec(config=f"num-server-rounds=25 strategy='{strategy}'")
    killed: list[int] = []
    with fleet_of(spec, tmp_path / "run", is_insecure=False) as fleet:
        for role in roles.split():
            fleet.until_round(fleet.rounds_done + int(rng.integers(1, 15)))
            killed.append(whoever_is(role, fleet))
            fleet.launcher.kill(killed[-1])
            fleet.until_all_train(sorted({*range(6)} - {*killed}))
        fleet.until_the_end()

    rounds = check_survivors(fleet, spec, sorted({*range(6)} - {*killed}))
    assert len(rounds) == 51
    assert rounds[-1].included == tuple(sorted({*range(6)} - {*killed}))


@pytest.mark.slow
def test_a_device_that_is_silent_for_a_while_is_missing_and_the_history_says_so(tmp_path: Path) -> None:
    spec = app_spec(config="num-server-rounds=20 strategy='FedAdagrad'", devices=3, clusters=3, timing="localhost")
    with fleet_of(spec, tmp_path / "run", is_insecure=False) as fleet:
        fleet.until_round(3)
        frozen = fleet.launcher.processes[1].process
        assert frozen is not None
        frozen.send_signal(signal.SIGSTOP)
        fleet.until_all_train([0, 2])
        frozen.send_signal(signal.SIGCONT)
        fleet.until_the_end()

    rounds = check_survivors(fleet, spec, [0, 1, 2])
    assert (0, 2) in {line.included for line in rounds}
    # So its model is not that of a run in which nothing happens.
    assert collect_digest(fleet, spec) != simulated(spec).summary["state_digest"]


def app_processes(fleet: Fleet, device: int) -> list[int]:
    """Return the ids of the processes that a device has started."""
    parent = fleet.launcher.processes[device].pid
    children = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(pid) for path in children for pid in path.read_text().split()]


def test_an_app_whose_process_is_killed_misses_one_round_at_most(tmp_path: Path) -> None:
    spec = app_spec(config="num-server-rounds=40 misbehaves='locks' victim=5")
    with fleet_of(spec, tmp_path / "run", is_insecure=False) as fleet:
        fleet.until_round(4)
        (pid,) = app_processes(fleet, 5)
        os.kill(pid, signal.SIGKILL)
        fleet.until_round(10)
        assert pid not in app_processes(fleet, 5)
        fleet.launcher.kill(0)
        fleet.until_all_train([1, 2, 3, 4, 5], rounds=2)
        fleet.launcher.stop()

    # Holding the interpreter's lock, its client was never taken for dead.
    reasons = [reason for line in fleet.closed for device, reason in line.missing.items() if device == "5"]
    assert reasons in ([], ["the process of linear ended by signal 9"])  # nothing, where it was killed at rest


def test_a_device_that_comes_back_goes_on_with_its_clients_state(tmp_path: Path) -> None:
    spec = app_spec(config="num-server-rounds=90 misbehaves='sleeps'", devices=3, clusters=3)
    with fleet_of(spec, tmp_path / "run", is_insecure=False) as fleet:
        fleet.until_round(9)
        fleet.launcher.kill(2)
        fleet.until_all_train([0, 1], rounds=2)
        fleet.launcher.revive(2)
        fleet.until_all_train([0, 1, 2], rounds=4)
        fleet.launcher.stop()

    closed = {line.round: line for line in fleet.closed if line.stage == "train"}
    rounds = [line for _, line in sorted(closed.items()) if line.included == (0, 1, 2)]
    # The clients' own counts differ by the rounds that it missed, and by no more: it had not forgotten the first ones.
    first, last = rounds[0], rounds[-1]
    n_missed = len([line for line in closed.values() if 2 not in line.included])
    n_rows = [20 + 7 * device for device in range(3)]
    counted = (last.round or 0) // 2 + 1
    expected = (counted * (n_rows[0] + n_rows[1]) + (counted - n_missed) * n_rows[2]) / sum(n_rows)
    assert first.metrics["train/seen"] == pytest.approx(1)
    assert n_missed > 0
    assert last.metrics["train/seen"] == pytest.approx(expected)


@pytest.mark.parametrize("strategy", ["FedAdagrad", pytest.param("FedMedian", marks=pytest.mark.slow)])
def test_a_model_of_megabytes_passes_between_devices(strategy: str, tmp_path: Path) -> None:
    spec = app_spec(config=f"padding=600000 num-server-rounds=2 strategy='{strategy}'", devices=3, clusters=3)
    with fleet_of(spec, tmp_path / "run", is_insecure=False) as fleet:
        fleet.until_the_end()

    assert len(check_survivors(fleet, spec, [0, 1, 2])) == 5
    assert collect_digest(fleet, spec) == simulated(spec).summary["state_digest"]


def test_a_client_that_hangs_on_the_closer_keeps_nobody_from_closing(tmp_path: Path) -> None:
    config = "misbehaves='hangs' victim=4 at-round=2 num-server-rounds=4"  # device 4 closes rounds
    spec = app_spec(config=config, deadline_s=4.0)
    with fleet_of(spec, tmp_path / "run", is_insecure=False) as fleet:
        fleet.until_the_end()

    assert fleet.survivors == list(range(6))
    closed = {line.round: line for line in fleet.closed}
    assert 4 not in closed[3].included
    assert closed[8].included == tuple(range(6))


def test_a_device_with_another_version_of_the_app_is_not_let_in(tmp_path: Path) -> None:
    apps = [APPS / "linear", APPS / "linear", tmp_path / "changed"]
    shutil.copytree(APPS / "linear", apps[2], ignore=shutil.ignore_patterns("__pycache__"))
    with (apps[2] / "linear_app" / "task.py").open("a") as file:
        file.write("# another version\n")
    (tmp_path / "spec.toml").write_text("devices = 3\nclusters = 3\n")
    addresses = {str(device): f"127.0.0.1:{port}" for device, port in enumerate(free_ports(3))}
    running = []
    for device, app in enumerate(apps):
        config = NodeConfig(
            device=device,
            listen=addresses[str(device)],
            state=str(device),
            peers={other: address for other, address in addresses.items() if other != str(device)},
            start_timeout_s=15.0,
            insecure=True,
        )
        (tmp_path / f"{device}.toml").write_text(config.to_toml())
        command = [sys.executable, "-m", "tolfl", "node", "--config", f"{device}.toml", "--flower", str(app)]
        with (tmp_path / f"{device}.log").open("wb") as log:
            running.append(subprocess.Popen([*command, "--python", str(NEWEST)], cwd=tmp_path, stderr=log, stdout=log))
    try:
        assert [process.wait(240) for process in running[:2]] == [0, 0]
        assert running[2].poll() is None  # it waits for others that have the same app
    finally:
        for process in running:
            process.kill()
            process.wait()

    contents = {(tmp_path / str(device) / "final_weights.npy").read_bytes() for device in (0, 1)}
    assert len(contents) == 1
    assert not (tmp_path / "2" / "final_weights.npy").exists()
    assert "fleet" in (tmp_path / "2.log").read_text()
