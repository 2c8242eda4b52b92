"""`tolfl plan` as a person types it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import typer
from typer.testing import CliRunner, Result

from tolfl.cli.experiment_commands import plan

ROOT = Path(__file__).resolve().parents[2]
Plan: TypeAlias = Callable[..., Result]

SMALL = (
    "--data", "blobs", "--devices", "4", "--pilot-rounds", "4", "--set", "blobs.samples_per_device=20",
    "--set", "blobs.n_features=8", "--set", "blobs.n_test=60",
)  # fmt: skip


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plan:
    """Run `tolfl plan ...` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(plan)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_a_pilot_run_says_what_it_was(planned: Plan, tmp_path: Path) -> None:
    done = planned(*SMALL, "--repetitions", "2", "--deadline", "5", "--out", "x")

    assert (done.exit_code, done.stderr) == (0, "")
    assert "AUROC: pilot runs on blobs, 4 of 100 rounds, failures after 2, 2 seeds" in done.stdout
    assert "failures: each device fails during the training with probability 0.01;" in done.stdout
    assert "fl (freeze)" in done.stdout
    assert done.stdout.count(" yes") == 7  # fl twice, elect at k = 1, 2 and 4, drop at 2 and 4
    stored = json.loads((tmp_path / "x" / "plan.json").read_text())
    assert f"recommended: tol-fl (elect), k = {stored['recommended']['clusters']}" in done.stdout


def test_a_pilot_run_is_no_longer_than_the_training(planned: Plan) -> None:
    done = planned(*SMALL[:4], *SMALL[6:], "--rounds", "4", "-k", "1")  # by default it has 40

    assert (done.exit_code, done.stderr) == (0, "")
    assert "4 of 4 rounds, failures after 2, 1 seed" in done.stdout


def test_json_is_all_that_standard_output_gets(planned: Plan, tmp_path: Path) -> None:
    done = planned(*SMALL, "--clusters", "1,4", "--format", "json")
    result = json.loads(done.stdout)

    assert (done.exit_code, done.stderr) == (0, "")
    # 8-128-64-32-64-128-8 in float32
    assert result["model_bytes"] == 4 * (2 * 8 * 128 + 8 + 2 * 128 * 64 + 2 * 128 + 2 * 64 * 32 + 2 * 64 + 32)
    assert all(row["meets_deadline"] for row in result["rows"])  # there is none
    assert json.loads((tmp_path / "runs" / "001-plan-blobs" / "plan.json").read_text()) == result


def test_samples_bandwidth_and_epochs_set_the_times(planned: Plan) -> None:
    model = ("-k", "1", "--set", "model.hidden=[]", "--set", "model.code=1")
    links = ("--latency", "0", "--seconds-per-sample", "0.01", "--epochs", "2", "--bandwidth", "400")
    result = json.loads(planned(*SMALL, "-n", "2", *model, *links, "--format", "json").stdout)

    # A model of 8-1-8 has 16 weights and 9 biases: 100 bytes, which take 2 s. Training takes 2 x 20 x 0.01 s.
    assert result["model_bytes"] == 100
    assert result["rows"][0]["round_s"] == pytest.approx(2 + 0.4 + 2)


def test_the_worked_example_of_the_how_to_gives_what_it_shows(planned: Plan) -> None:
    page = (ROOT / "docs" / "how-to" / "choose-k.md").read_text()
    ((command, shown),) = re.findall(r"^```\n(tolfl plan [^\n]*)\n\n([^`]*)^```$", page, flags=re.MULTILINE)
    done = planned(*shlex.split(command)[2:])
    printed = [line.rstrip() for line in done.stdout.splitlines()]

    assert done.exit_code == 0
    assert len(shown.splitlines()) == 13
    assert [line for line in shown.splitlines() if line not in printed] == []
