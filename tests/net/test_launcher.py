"""The launcher is a convenience: killed or frozen in mid-run, it delays no round; interrupted, it leaves nothing."""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import Command
from tests.net.fleet_processes import nothing_is_left_of, running_up, wait_until
from tests.net.replay import check_run, lines_of_devices
from tolfl.core.records import RoundClosed, RunStarted
from tolfl.core.spec import RunSpec
from tolfl.datasets import load
from tolfl.net.launcher import Launcher

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
FLAGS = ["--data", "blobs", "--samples-per-device", "50", "--devices", "3", "--clusters", "2", "--timing", "lan"]
#: A round may take so much longer than the longest one before, on a machine that has other things to do.
SLACK_S = 1.0


def round_times_s(out: Path) -> list[float]:
    return [line.time_s for line in lines_of_devices(out) if isinstance(line, RoundClosed)]


def check_no_pause(out: Path, n_before: int) -> None:
    """Check that no round after so many took much longer than the longest before."""
    durations_s = [later - earlier for earlier, later in pairwise(round_times_s(out))]
    assert max(durations_s[n_before - 1 :]) <= max(durations_s[: n_before - 1]) + SLACK_S


def check_finished(out: Path) -> None:
    spec = RunSpec.from_file(out / "spec.toml")
    check_run(out, spec, load(spec), range(3))
    nothing_is_left_of(out)


def lives(out: Path) -> int:
    """Return how many times a device has started."""
    return sum(isinstance(line, RunStarted) for line in lines_of_devices(out))


def test_nobody_else_can_read_the_token_of_the_launcher(tmp_path: Path) -> None:
    Launcher(RunSpec(data="blobs", devices=2, clusters=1), tmp_path / "run", is_insecure=True)

    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "run").rglob("node.toml")}
    assert modes == {0o600}


def test_only_the_built_in_autoencoder_gets_its_usual_step_from_the_launcher(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("""
from tolfl.learners.registry import learner_of
from tolfl.learners import Fleet
from tolfl.core.spec import RunSpec

def mine(fleet):
    return learner_of(Fleet(RunSpec(devices=2), fleet.sample_shape, usual_rows=fleet.usual_rows))
""")
    usual = RunSpec(data="blobs", devices=2, clusters=1)
    own = msgspec.structs.replace(usual, learn={"what": f"{tmp_path}/mine.py:mine"})
    settled = []
    for spec, out in ((usual, tmp_path / "usual"), (own, tmp_path / "own")):
        out.mkdir()
        Launcher(spec, out, is_insecure=True)
        settled.append(RunSpec.from_file(out / "devices" / "spec.toml").train)

    assert [train.lr for train in settled] == [0.02, None]
    assert [train.batch_size for train in settled] == [16, 16]


@pytest.mark.slow
def test_devices_need_no_launcher_and_resume_collects_what_they_did(tolfl: Command, tmp_path: Path) -> None:
    with running_up(tmp_path, *FLAGS, "--rounds", "80") as up:
        up.until_round(10)
        up.process.kill()
        n_before = up.rounds_done()
        up.until_devices_have_ended()
    n_lives = lives(up.out)
    code, told, said = tolfl("up", "--out", str(up.out), "--resume", "--format", "json")

    assert code == 0, said
    summary = json.loads(told)
    assert (summary["ended"], summary["rounds_done"], summary["survivors"]) == ("over", 80, [0, 1, 2])
    assert summary["auroc"] is not None
    assert lives(up.out) == n_lives == 3, "a run that is over was started again"
    check_no_pause(up.out, n_before)
    check_finished(up.out)


@pytest.mark.slow
def test_a_frozen_launcher_delays_no_round(tmp_path: Path) -> None:
    with running_up(tmp_path, *FLAGS, "--rounds", "80", "--format", "json") as up:
        up.until_round(10)
        up.process.send_signal(signal.SIGSTOP)
        n_before = up.rounds_done()
        try:
            # Nobody reaps them while the launcher is frozen, so they do not vanish: their own lines tell.
            wait_until(lambda: up.count("run_ended") == 3, "all devices have ended")
        finally:
            up.process.send_signal(signal.SIGCONT)
        code, told, said = up.result()

    assert code == 0, said
    assert json.loads(told)["rounds_done"] == 80
    check_no_pause(up.out, n_before)
    check_finished(up.out)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_run_leaves_nothing_and_can_be_resumed(
    number: signal.Signals, tolfl: Command, tmp_path: Path
) -> None:
    with running_up(tmp_path, *FLAGS, "--rounds", "60") as up:
        up.until_round(5)
        up.process.send_signal(number)
        code, told, said = up.result()

        assert (code, told) == (130, "")
        assert [line for line in said.splitlines() if line.startswith("tolfl: ")] == said.splitlines()[-1:]
        assert said.endswith(f"to go on: tolfl up --out {up.out} --resume\n")
        nothing_is_left_of(up.out)
    code, told, said = tolfl("up", "--out", str(up.out), "--resume", "--format", "json")

    assert code == 0, said
    summary = json.loads(told)
    assert (summary["ended"], summary["rounds_done"], summary["survivors"]) == ("over", 60, [0, 1, 2])
    check_finished(up.out)


@pytest.mark.slow
def test_a_run_whose_devices_still_train_is_not_started_a_second_time(tolfl: Command, tmp_path: Path) -> None:
    with running_up(tmp_path, *FLAGS, "--rounds", "100000") as up:
        up.until_round(3)
        up.process.kill()
        up.process.wait()
        code, _, said = tolfl("up", "--out", str(up.out), "--resume")

        assert code == 1
        assert "still running" in said
        assert len(said.splitlines()) == 1
        assert len(up.devices()) == 3


@pytest.mark.slow
def test_an_interrupted_run_keeps_to_its_plan(tolfl: Command, tmp_path: Path) -> None:
    plan = "device:1@3; device:2@40"
    with running_up(tmp_path, *FLAGS, "--rounds", "60", "--fail", plan) as up:
        up.until_round(8)
        up.process.send_signal(signal.SIGINT)
        up.result()
    code, told, said = tolfl("up", "--out", str(up.out), "--resume", "--format", "json")

    assert code == 0, said
    summary = json.loads(told)
    assert (summary["ended"], summary["rounds_done"], summary["survivors"]) == ("over", 60, [0])
