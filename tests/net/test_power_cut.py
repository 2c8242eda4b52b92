"""Everything dies at once and is started again: training goes on from the last closed round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.net.fleet_processes import (
    PATIENCE_S,
    addresses_below,
    is_listening,
    kill_all,
    nothing_is_left_of,
    running_up,
    wait_until,
)
from tests.net.replay import check_run, held_by, name_of, rounds_of
from tolfl.core.spec import RunSpec
from tolfl.datasets import load

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
FLAGS = ["--data", "blobs", "--samples-per-device", "50", "--devices", "3", "--clusters", "2", "--timing", "lan"]


def cut_the_power(folder: Path, rounds: int) -> Path:
    """Start `tolfl up` and kill everything in the middle of it."""
    with running_up(folder, *FLAGS, "--rounds", str(rounds)) as up:
        up.until_round(5)
        kill_all([up.process.pid, *up.devices()])
        wait_until(lambda: not up.devices(), "what was killed is gone")
    return up.out


def check_went_on(out: Path, last_before: set[str]) -> None:
    """Check that the rounds before the power cut are part of the history, and that none was trained again."""
    spec = RunSpec.from_file(out / "spec.toml")
    chain = check_run(out, spec, load(spec), range(3))
    histories = [name_of(link).history for link in chain]
    assert [line.round for line in rounds_of(chain)] == list(range(spec.rounds))
    assert last_before <= {"", *histories}


@pytest.mark.slow
def test_a_fleet_goes_on_after_a_power_cut(tolfl: Command, tmp_path: Path) -> None:
    out = cut_the_power(tmp_path, rounds=60)
    held = held_by(out, range(3))
    code, told, said = tolfl("up", "--out", str(out), "--resume", "--format", "json")

    assert code == 0, said
    summary = json.loads(told)
    assert (summary["ended"], summary["rounds_done"], summary["survivors"]) == ("over", 60, [0, 1, 2])
    check_went_on(out, {max(one.name for one in held).history})
    nothing_is_left_of(out)


@pytest.mark.slow
def test_devices_started_one_by_one_need_no_launcher(tolfl: Command, tmp_path: Path) -> None:
    out = cut_the_power(tmp_path, rounds=60)
    held = held_by(out, range(3))
    nodes = []
    try:
        for device, address in addresses_below(out).items():
            node = [sys.executable, "-m", "tolfl", "node", "--config", str(out / "devices" / str(device) / "node.toml")]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            nodes.append(subprocess.Popen(node, stderr=subprocess.PIPE, text=True, env=environment))
            wait_until(lambda address=address: is_listening(address), f"device {device} listens")  # type: ignore[misc]
        ends = [node.communicate(timeout=PATIENCE_S)[1] for node in nodes]
    finally:
        kill_all([node.pid for node in nodes if node.poll() is None])

    assert [node.returncode for node in nodes] == [0, 0, 0]
    assert [said.splitlines()[-1] for said in ends] == [f"tolfl: device {device}: over" for device in range(3)]
    check_went_on(out, {max(one.name for one in held).history})
    code, told, said = tolfl("up", "--out", str(out), "--resume", "--format", "json")
    assert code == 0, said
    assert json.loads(told)["ended"] == "over"
    nothing_is_left_of(out)
