"""`tolfl up` as a person types it: the same results as `tolfl simulate`, from real processes; and how it says no."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.net.fleet_processes import nothing_is_left_of
from tests.net.replay import check_run, rounds_of
from tolfl.core.records import Evaluated, FailureHappened, Joined, RoundClosed, Scored
from tolfl.core.spec import RunSpec
from tolfl.datasets import load
from tolfl.net.node_config import NodeConfig
from tolfl.runs.descriptions import samples_lost
from tolfl.runs.failure_history import FailureHistory
from tolfl.runs.run_folder import read_run
from tolfl.runs.run_reader import read_records

SMALL = ["--data", "blobs", "--samples-per-device", "50", "--devices", "4", "--clusters", "2", "--timing", "lan"]


def check_clean(out: Path, survivors: list[int]) -> list[RoundClosed]:
    spec = RunSpec.from_file(out / "spec.toml")
    nothing_is_left_of(out)
    return rounds_of(check_run(out, spec, load(spec), survivors))


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_real_run_leaves_what_a_simulated_one_leaves(tolfl: Command, tmp_path: Path) -> None:
    flags = [*SMALL, "--rounds", "12", "--fail", "client@3/report", "--evaluate-every", "4", "--format", "json"]
    code, told, said = tolfl("up", *flags, "--out", "real")
    _, simulated, _ = tolfl("simulate", *flags, "--out", "simulated")

    assert code == 0, said
    real, expected = json.loads(told), json.loads(simulated)
    assert {*real} - {"wall_s"} == {*expected} - {"virtual_s"}
    for name in ("ended", "rounds_done", "survivors", "baselines", "model_sha256", "devices_in_last_round", "auroc"):
        assert real[name] == expected[name], name
    names = {path.name for path in (tmp_path / "simulated").iterdir()}
    assert names <= {path.name for path in (tmp_path / "real").iterdir()}
    assert json.loads((tmp_path / "real" / "summary.json").read_text()) == real
    records = read_records(tmp_path / "real")
    assert [line.round for line in records if isinstance(line, Evaluated)] == [3, 7, 11]
    assert isinstance(records[-1], Scored)
    deaths = [(line.device, line.round, line.what) for line in records if isinstance(line, FailureHappened)]
    assert deaths == [(1, 3, "died (report)"), (1, 3, "found dead: connection refused")]
    check_clean(tmp_path / "real", real["survivors"])
    alone = [read_run(tmp_path / "real" / "devices" / str(device)) for device in real["survivors"]]
    incidents = [FailureHistory.of(run.records).incidents for run in alone]
    told_by_each = [
        (run.rounds_done, run.is_over, [(one.round, one.devices, samples_lost(one)) for one in of_run])
        for run, of_run in zip(alone, incidents, strict=True)
    ]
    assert told_by_each == [(12, True, [(3, [1], samples_lost(incidents[0][0]))])] * 3
    losses = [line.loss for line in records if isinstance(line, RoundClosed)]
    assert None not in losses
    assert [[line.loss for line in run.records if isinstance(line, RoundClosed)] for run in alone] == [losses] * 3


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_device_comes_back_when_the_plan_says_so(tolfl: Command, tmp_path: Path) -> None:
    # Rounds take long enough for a process to start meanwhile.
    flags = [*SMALL, "--samples-per-device", "400", "--epochs", "3", "--rounds", "150", "--fail", "device:1@3-5"]
    code, told, said = tolfl("up", *flags, "--out", "x", "--format", "json")

    assert code == 0, said
    assert (json.loads(told)["ended"], json.loads(told)["survivors"]) == ("over", [0, 1, 2, 3])
    rounds = check_clean(tmp_path / "x", [0, 1, 2, 3])
    assert [1 in line.included for line in rounds[:5]] == [True, True, True, False, False]
    assert 1 in rounds[-1].included
    assert [line.device for line in read_records(tmp_path / "x" / "records.jsonl") if isinstance(line, Joined)] == [1]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_a_planned_cut_heals_into_one_history(tolfl: Command, tmp_path: Path) -> None:
    code, out, said = tolfl("up", *SMALL, "--rounds", "80", "--fail", "cut:3@5-20", "--out", "x")

    assert code == 0, said
    assert "over" in out
    rounds = check_clean(tmp_path / "x", [0, 1, 2, 3])
    assert rounds[-1].included == (0, 1, 2, 3)
    assert (0, 1, 2) in {line.included for line in rounds}
    told = [
        (line.round, line.what)
        for line in read_records(tmp_path / "x" / "records.jsonl")
        if isinstance(line, FailureHappened)
    ]
    assert (5, "cut 3 | 0,1,2") in told
    assert (20, "healed 3 | 0,1,2") in told


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_a_finished_run_is_shown_again(tolfl: Command) -> None:
    first = tolfl("up", *SMALL, "--rounds", "3", "--out", "x", "--format", "json")
    code, again, said = tolfl("up", "--out", "x", "--resume", "--format", "json")

    assert (first[0], code) == (0, 0)
    assert "is finished already" in said
    assert json.loads(first[1]) == json.loads(again)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
@pytest.mark.parametrize("policy", ["drop", "isolate", "freeze"])
def test_a_lost_head_takes_its_cluster_along_where_the_policy_says_so(
    policy: str, tolfl: Command, tmp_path: Path
) -> None:
    scheme = ["--scheme", "tol-fl"] if policy == "drop" else ["--scheme", "fl"]
    flags = [*SMALL, *scheme, "--rounds", "12", "--fail", "server@4", "--on-head-failure", policy, "--format", "json"]
    if policy != "drop":
        flags = [flag for flag in flags if flag not in ("--clusters", "2")]
    code, told, said = tolfl("up", *flags, "--out", "real")
    _, simulated, _ = tolfl("simulate", *flags, "--out", "simulated")

    assert code == 0, said
    real, expected = json.loads(told), json.loads(simulated)
    for name in ("ended", "survivors", "devices_lost_with_head", "rounds_done", "model_sha256", "auroc_per_model"):
        assert real[name] == expected[name], name


@pytest.mark.processes
def test_a_port_that_is_taken_is_named(tolfl: Command, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(RunSpec(data="blobs", devices=2, clusters=1, rounds=2).to_toml())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = NodeConfig(device=0, listen=address, state="state", insecure=True)
        (tmp_path / "node.toml").write_text(config.to_toml())
        code, told, said = tolfl("node", "--config", "node.toml")

    assert (code, told) == (1, "")
    assert f"device 0 cannot listen on {address} (Address already in use); choose another" in said
    assert "Traceback" not in said
