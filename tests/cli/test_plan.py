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

PAPER = ("--auroc-from", "paper")
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


def test_the_papers_numbers_stand_in_the_table_and_the_folder(planned: Plan, tmp_path: Path) -> None:
    done = planned(*PAPER, "--odds", "0.90,0.08,0.02", "--clusters", "1,5", "--out", "x")

    assert (done.exit_code, done.stderr) == (0, "")
    assert re.search(r"^fl \(isolate\) .* 0\.7960 ", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^tol-fl \(drop\) +5 .* 0\.7974 ", done.stdout, flags=re.MULTILINE)
    assert "AUROC: from the paper's tables for comms-ml" in done.stdout
    assert "recommended: tol-fl (elect), k = 5" in done.stdout
    assert " yes" not in done.stdout  # there is no deadline
    assert json.loads((tmp_path / "x" / "plan.json").read_text())["recommended"]["clusters"] == 5


def test_json_is_all_that_standard_output_gets(planned: Plan, tmp_path: Path) -> None:
    done = planned(*PAPER, "--one-of-n", "--data", "fashion-mnist", "--deadline", "9", "--format", "json")
    result = json.loads(done.stdout)

    assert (done.exit_code, done.stderr) == (0, "")
    assert result["data"] == "fashion-mnist"
    # 784-128-64-32-64-128-784 in float32
    assert result["model_bytes"] == 4 * (2 * 784 * 128 + 784 + 2 * 128 * 64 + 2 * 128 + 2 * 64 * 32 + 2 * 64 + 32)
    assert all(row["meets_deadline"]["serial"] == (row["round_s"]["serial"] <= 9) for row in result["rows"])
    assert json.loads((tmp_path / "runs" / "001-plan-fashion-mnist" / "plan.json").read_text()) == result


def test_a_pilot_run_says_what_it_was(planned: Plan) -> None:
    done = planned(*SMALL, "--repetitions", "2", "--deadline", "5")

    assert (done.exit_code, done.stderr) == (0, "")
    assert "AUROC: from a pilot run on blobs: 4 rounds with the failure after 2, 2 seeds" in done.stdout
    assert "the pilot run has 4 of 100 rounds" in done.stdout
    assert "failures: each device fails during the training with probability 0.01" in done.stdout
    assert "fl (freeze)" in done.stdout
    assert done.stdout.count(" yes") == 7  # fl twice, elect at k = 1, 2 and 4, drop at 2 and 4


def test_sizes_bandwidth_and_epochs_set_the_times(planned: Plan) -> None:
    usual = ("-n", "2", "-k", "1", "--features", "1", "--set", "model.hidden=[]", "--set", "model.code=1")
    links = ("--latency", "0", "--seconds-per-sample", "0.01", "--epochs", "2", "--sizes", "300")
    done = planned(*PAPER, *usual, *links, "--bandwidth", "64", "--format", "json")
    result = json.loads(done.stdout)

    # A model of 1-1-1 has two weights and two biases: 16 bytes, which take 2 s at 64 bit/s. Training takes 2 x 3 s.
    assert result["model_bytes"] == 16
    assert result["train_s"] == 6.0
    assert result["rows"][0]["round_s"] == pytest.approx({"serial": 2 + 6 + 2, "parallel": 2 + 6 + 2})


def test_an_mtbf_makes_slow_layouts_riskier(planned: Plan) -> None:
    result = json.loads(planned(*PAPER, "--mtbf", "1", "--head-mtbf", "0.5", "--format", "json").stdout)
    by_pace = sorted(
        (row["round_s"]["serial"], row["odds"]["none"]) for row in result["rows"] if row["clusters"] in (3, 5, 10)
    )

    assert result["failures"].startswith("each device fails every 1 h on average (0.5 h as a head)")
    assert [odds for _, odds in by_pace] == sorted((odds for _, odds in by_pace), reverse=True)


def test_the_worked_example_of_the_how_to_gives_what_it_shows(planned: Plan) -> None:
    page = (ROOT / "docs" / "how-to" / "choose-k.md").read_text()
    ((command, shown),) = re.findall(r"^```\n(tolfl plan [^\n]*)\n\n([^`]*)^```$", page, flags=re.MULTILINE)
    done = planned(*shlex.split(command)[2:])
    printed = [line.rstrip() for line in done.stdout.splitlines()]

    assert done.exit_code == 0
    assert len(shown.splitlines()) == 11
    assert [line for line in shown.splitlines() if line not in printed] == []
