"""The command as a person types it: what it prints, what it leaves behind, and how it says no."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tolfl as tolfl_api
from tests.cli.conftest import Command, wait_for
from tests.runs.test_tracking import read
from tolfl.core.records import RoundClosed, RunStarted
from tolfl.core.spec import RunSpec
from tolfl.detect import Detector
from tolfl.runs.run_reader import read_records

SMALL = (
    "--data",
    "blobs",
    "--devices",
    "6",
    "--clusters",
    "3",
    "--rounds",
    "4",
    "--samples-per-device",
    "20",
    "--features",
    "8",
)


def test_json_is_all_that_standard_output_gets(tolfl: Command) -> None:
    code, out, err = tolfl("simulate", *SMALL, "--fail", "server@2", "--format", "json")

    summary = json.loads(out)
    wanted = [
        "scheme", "data", "n_devices", "n_clusters", "rounds", "seed", "auroc", "auroc_per_model", "auroc_all_models",
        "train_loss", "survivors", "failures", "messages", "bytes", "stall_s", "seconds_per_round", "model_sha256",
    ]  # fmt: skip
    assert code == 0
    assert err == ""
    assert not [key for key in wanted if key not in summary]
    assert summary["survivors"] == [1, 2, 3, 4, 5]
    assert set(summary["messages"]) == {"unicast", "broadcast", "per_cluster", "hops", "paper"}


def test_a_typical_class_is_named_by_a_flag_and_what_is_left_out_is_said_once(tolfl: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"{place},{x:.3f},{y:.3f},{'leak' if place % 9 == 0 else 'runs'}"
        for place, (x, y) in enumerate(rng.normal(size=(90, 2)))
    ]
    (tmp_path / "readings.csv").write_text("\n".join(["serial,x,y,state", *rows]) + "\n")
    data = ("simulate", "--data", "readings.csv", "--label-column", "state", "--devices", "3", "--rounds", "2")

    code, _, err = tolfl(*data)
    assert code == 2
    assert "has the classes leak, runs; name the typical ones, as in --typical runs" in err
    code, _, err = tolfl(*data, "--typical", "runs", "--out", "x")
    assert code == 0
    assert err.count("not learned from: serial") <= 1  # though a table that was just written is read several times
    assert RunSpec.from_file(tmp_path / "x" / "spec.toml").dataset.typical == ("runs",)


def test_a_table_is_read_with_the_flags_that_its_errors_name(tolfl: Command, tmp_path: Path) -> None:
    lines = [f"{'süd' if row % 2 else 'nord'},{row % 7}.5,{row % 5}.5,{row}" for row in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["ort,a,b,c", *lines]), encoding="latin-1")
    run = ("simulate", "--learn", "detector", "--data", "t.csv", "--device-column", "ort", "--devices", "2")

    assert "--encoding latin-1" in tolfl(*run)[2]
    code, _, _ = tolfl(*run, "--encoding", "latin-1", "--columns", "a,b", "--ignore", "b", "--out", "run")
    assert code == 0
    assert Detector.load(tmp_path / "run" / "detector.tolfl").features.names == ("a",)


def test_a_run_directory_holds_everything(tolfl: Command, tmp_path: Path) -> None:
    tolfl("simulate", *SMALL, "--out", "x")

    assert {path.name for path in (tmp_path / "x").iterdir()} == {
        "spec.toml", "records.jsonl", "model.safetensors", "summary.json",
    }  # fmt: skip
    assert RunSpec.from_file(tmp_path / "x" / "spec.toml").devices == 6
    assert len(read_records(tmp_path / "x")) == 8  # the last line: what the model is worth


def test_a_detector_tells_its_stages(tolfl: Command, tmp_path: Path) -> None:
    rows = [f"{site},{(7 * place) % 11},{(5 * place) % 13}" for site in "abcd" for place in range(20)]
    (tmp_path / "readings.csv").write_text("\n".join(["site,x,y", *rows]) + "\n")
    data = ("--learn", "detector", "--data", "readings.csv", "--device-column", "site", "--clusters", "2")
    code, out, _ = tolfl("simulate", *data, "--fail", "device:1@thresholds:1", "--out", "x")

    started = read_records(tmp_path / "x")[0]
    assert isinstance(started, RunStarted)
    assert (code, started.learn) == (0, "detector")
    assert started.stages == (("scaling", 5), ("cells", 14), ("scatter", 1), ("thresholds", 2))
    assert "round 21 (thresholds:1): device 1 died (train)" in out
    assert "mean score of the training rows" in out


def test_a_learner_of_ones_own_scores_its_rows_and_has_no_loss(tolfl: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        """
import numpy as np
from tolfl.learners import Learner, ScoringFunction

class Mean(Learner):
    rounds = 1
    def __init__(self, fleet): self.n = fleet.n_features
    def start(self, state): return {**state, "mean": np.zeros(self.n)}
    def contribute(self, turns): return [{"mean": turn.mean(turn.rows.mean(axis=0, dtype=float))} for turn in turns]
    def apply(self, state, total, closing): return {**state, **{key: part.mean for key, part in total.parts.items()}}
    def results(self, state):
        return {"mean": ScoringFunction(lambda rows: np.abs(rows - state["mean"]).sum(axis=1), state)}
"""
    )
    code, out, err = tolfl("simulate", *SMALL, "--learn", "mine.py:Mean")

    assert (code, err) == (0, "")
    assert "mean score of the training rows" in out
    assert "training loss" not in out


def test_devices_that_go_on_alone_leave_a_model_each(tolfl: Command, tmp_path: Path) -> None:
    code, out, _ = tolfl("simulate", *SMALL, "--scheme", "fl", "--fail", "server@2", "--out", "x")

    assert code == 0
    assert sorted(path.stem for path in (tmp_path / "x" / "models").iterdir()) == [f"device-{d}" for d in range(1, 6)]
    assert "mean over devices" in out
    assert "mean-vector" in out


def test_runs_get_the_next_free_folder(tolfl: Command, tmp_path: Path) -> None:
    tolfl("simulate", *SMALL)
    tolfl("simulate", *SMALL, "--scheme", "sbt")

    assert [path.name for path in sorted((tmp_path / "runs").iterdir())] == ["001-tol-fl-blobs", "002-sbt-blobs"]


def test_a_stored_specification_repeats_its_run(tolfl: Command) -> None:
    _, first, _ = tolfl("simulate", *SMALL, "--fail", "random:0.2", "--seed", "7", "--out", "x", "--format", "json")
    _, again, _ = tolfl("simulate", "x/spec.toml", "--out", "y", "--format", "json")

    assert json.loads(first)["model_sha256"] == json.loads(again)["model_sha256"]


def test_flags_override_the_file(tolfl: Command, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("devices = 4\nclusters = 2\nrounds = 2\n[blobs]\nsamples_per_device = 10\n")

    _, out, _ = tolfl("simulate", "run.toml", "--clusters", "4", "--format", "json")

    assert (json.loads(out)["n_devices"], json.loads(out)["n_clusters"]) == (4, 4)


def test_repetitions_are_averaged_and_kept_apart(tolfl: Command, tmp_path: Path) -> None:
    _, out, _ = tolfl("simulate", *SMALL, "--repetitions", "2", "--seed", "5", "--out", "x", "--format", "json")

    summary = json.loads(out)
    assert [one["seed"] for one in summary["repetitions"]] == [5, 6]
    assert summary["auroc"] == pytest.approx(sum(one["auroc"] for one in summary["repetitions"]) / 2)
    assert (tmp_path / "x" / "repetition-1" / "model.safetensors").is_file()


def test_repetitions_stand_in_one_table_with_their_spread(tolfl: Command) -> None:
    code, out, _ = tolfl("simulate", *SMALL, "--repetitions", "3", "--out", "x")

    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("0 ", "1 ", "2 "))] == ["0", "1", "2"]
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("mean ", "std "))] == ["mean", "std"]
    assert "mean-vector (plain)" in out


def test_plain_baselines_run_on_their_own(tolfl: Command) -> None:
    code, out, _ = tolfl("simulate", *SMALL, "--scheme", "mean-vector", "--format", "json")

    assert code == 0
    assert json.loads(out)["auroc"] == json.loads(out)["baselines"]["mean-vector"]


@pytest.mark.parametrize("step", ["--lr 50 --rounds 3", "--rounds 1 --batch-size 0 --lr 1e9"])
def test_a_training_that_diverges_is_named(tolfl: Command, step: str) -> None:
    code, out, err = tolfl("simulate", *SMALL, *step.split())

    assert (code, out) == (1, "")
    assert "is not finite: training diverged; use a smaller step (--lr" in err
    assert err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the full disk is Linux's /dev/full")
def test_a_full_disk_is_reported_in_one_sentence(tolfl: Command, tmp_path: Path) -> None:
    _, whole, _ = tolfl("simulate", *SMALL, "--out", "y", "--format", "json")
    (tmp_path / "y" / "summary.json").unlink()
    (tmp_path / "y" / "model.safetensors.part").symlink_to("/dev/full")

    code, _, err = tolfl("simulate", "--out", "y", "--resume")
    after_making_room, out, _ = tolfl("simulate", "--out", "y", "--resume", "--format", "json")

    assert code == 1
    assert "run directory y: cannot be written (No space left on device); make room" in err
    assert after_making_room == 0
    assert json.loads(out)["model_sha256"] == json.loads(whole)["model_sha256"]


def test_a_finished_run_is_shown_again(tolfl: Command) -> None:
    _, first, _ = tolfl("simulate", *SMALL, "--out", "x", "--format", "json")
    code, again, err = tolfl("simulate", "--out", "x", "--resume", "--format", "json")

    assert code == 0
    assert "is finished already" in err
    assert json.loads(first) == json.loads(again)


def test_a_torn_checkpoint_costs_no_records(tolfl: Command, tmp_path: Path) -> None:
    tolfl("simulate", *SMALL, "--out", "x")
    (tmp_path / "x" / "summary.json").unlink()
    (tmp_path / "x" / "checkpoint.safetensors").write_bytes(b"torn")
    before = (tmp_path / "x" / "records.jsonl").read_bytes()

    code, _, err = tolfl("simulate", "--out", "x", "--resume")

    assert code == 1
    assert "is no checkpoint that can be read" in err
    assert len(err.splitlines()) == 1
    assert (tmp_path / "x" / "records.jsonl").read_bytes() == before


@pytest.mark.processes
@pytest.mark.slow  # test_first_hour.py has Ctrl-C, tests/sim/test_resume.py going on
def test_ctrl_c_leaves_a_run_that_resume_continues(tmp_path: Path) -> None:
    arguments = ["--data", "blobs", "--rounds", "60", "--fail", "server@3", "--samples-per-device", "50", "--out", "x"]
    command = [sys.executable, "-m", "tolfl", "simulate"]
    process = subprocess.Popen([*command, *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    records = tmp_path / "x" / "records.jsonl"
    wait_for(process, lambda: records.exists() and records.stat().st_size >= 1000)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "to go on: tolfl simulate --out x --resume" in err
    resumed = subprocess.run([*command, "--out", "x", "--resume", "--format", "json"],
                             cwd=tmp_path, capture_output=True, text=True, check=True)  # fmt: skip
    whole = subprocess.run([*command, *arguments[:-1], "y", "--format", "json"],
                           cwd=tmp_path, capture_output=True, text=True, check=True)  # fmt: skip
    assert json.loads(resumed.stdout)["model_sha256"] == json.loads(whole.stdout)["model_sha256"]
    assert records.read_bytes() == (tmp_path / "y" / "records.jsonl").read_bytes()


def test_a_small_fleet_needs_no_word_about_clusters(tolfl: Command) -> None:
    code, out, _ = tolfl("simulate", "--devices", "3", "--rounds", "1", "--format", "json")

    assert code == 0
    assert json.loads(out)["n_clusters"] == 3


def test_finished_repetitions_are_shown_again_as_repetitions(tolfl: Command, tmp_path: Path) -> None:
    _, first, _ = tolfl("simulate", *SMALL, "--repetitions", "2", "--out", "x", "--format", "json")
    code, again, _ = tolfl("simulate", "--out", "x", "--resume", "--format", "json")

    assert code == 0
    assert json.loads(first) == json.loads(again)
    assert json.loads(first)["survivors"] is None
    assert RunSpec.from_file(tmp_path / "x" / "spec.toml").repetitions == 2


@pytest.mark.parametrize("what", ["data 'arrays'", pytest.param("model 'Linear'", marks=pytest.mark.slow)])
def test_what_was_handed_in_from_python_must_be_repeated_there(what: str, tolfl: Command, tmp_path: Path) -> None:
    if "data" in what:
        tolfl_api.simulate(data=[np.ones((3, 2))], rounds=1, out=tmp_path / "x")
    else:
        from torch import nn

        tolfl_api.simulate(data="blobs", model=nn.Linear(32, 32), rounds=1, out=tmp_path / "x")
    code, _, err = tolfl("simulate", "x/spec.toml")

    assert code == 2
    assert f"{what} was given from Python; repeat the run there" in err


def test_the_version_is_told(tolfl: Command) -> None:
    assert tolfl("--version")[1] == "tolfl 0.1.0\n"


def test_a_run_is_tracked_as_it_goes(tolfl: Command, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    flags = ["--data", "blobs", "--devices", "4", "--clusters", "2", "--rounds", "4", "--repetitions", "2"]
    code, *_ = tolfl(
        "simulate", *flags, "--fail", "client@2", "--out", "run", "--track", "tensorboard", "--track-to", "tb"
    )

    assert code == 0
    events = read(tmp_path / "tb" / "run")
    for seed, records in ((0, "run/repetition-0"), (1, "run/repetition-1")):
        closed = [record for record in read_records(tmp_path / records) if isinstance(record, RoundClosed)]
        tracked = [event.value for event in events.Scalars(f"seed-{seed}/loss")]
        assert tracked == pytest.approx([record.loss for record in closed])
    code, _, said = tolfl("simulate", *flags, "--out", "other", "--track", "paper")
    assert (code, "choose one of: tensorboard, mlflow" in said) == (2, True)
