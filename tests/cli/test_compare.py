"""`tolfl compare` as a person types it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command, wait_for

SMALL = (
    "compare", "--data", "blobs", "--devices", "6", "--clusters", "3", "--rounds", "4", "--repetitions", "2",
    "--set", "blobs.samples_per_device=20", "--set", "blobs.n_features=8",
)  # fmt: skip


def test_all_schemes_stand_in_one_table(tolfl: Command, tmp_path: Path) -> None:
    code, out, err = tolfl(*SMALL, "--schemes", "all", "--fail", "server@2", "--out", "x")

    assert (code, err) == (0, "")
    for label in (
        "tol-fl (elect)", "tol-fl (drop)", "sbt (elect)", "fl (isolate)", "fl (freeze)", "batch (freeze)",
        "batch-small (freeze)", "fedgroup (strict)", "fedgroup (rehome)", "ifca (strict)", "ifca (rehome)",
        "fesem (strict)", "fesem (rehome)", "mean-vector (plain)",
    ):  # fmt: skip
        assert f"\n{label} " in out
    assert "an oracle" in out
    assert "difference: AUROC minus that of tol-fl (elect), seed by seed" in out
    assert (tmp_path / "x" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "x" / "comparison.json").read_text())["reference"] == "tol-fl (elect)"


def test_json_is_all_that_standard_output_gets(tolfl: Command, tmp_path: Path) -> None:
    code, out, err = tolfl(*SMALL, "--schemes", "ifca,tol-fl", "--format", "json")
    result = json.loads(out)

    assert (code, err) == (0, "")
    assert [row["label"] for row in result["rows"]] == ["tol-fl", "ifca", "mean-vector (plain)"]
    assert result["seeds"] == [0, 1]
    assert (tmp_path / "runs" / "001-compare-blobs" / "ifca" / "repetition-1" / "records.jsonl").is_file()


def test_with_one_seed_there_is_no_spread(tolfl: Command) -> None:
    _, out, _ = tolfl(*SMALL, "--repetitions", "1", "--schemes", "fl")

    assert "±" not in out
    assert "difference" not in out  # there is no Tol-FL to compare with


@pytest.mark.processes
@pytest.mark.slow
def test_a_comparison_goes_on_after_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tolfl"]
    arguments = [*SMALL, "--rounds", "40", "--schemes", "tol-fl,fl,ifca", "--fail", "server@20", "--out"]
    process = subprocess.Popen([*command, *arguments, "x"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    records = tmp_path / "x" / "tol-fl-drop" / "repetition-1" / "records.jsonl"
    wait_for(process, lambda: records.exists() and records.stat().st_size >= 1000)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "to go on: tolfl compare --out x --resume" in err
    again = [*command, "compare", "--out", "x", "--resume", "--format", "json"]
    resumed = subprocess.run(again, cwd=tmp_path, capture_output=True, check=True)
    whole = subprocess.run(
        [*command, *arguments, "y", "--format", "json"], cwd=tmp_path, capture_output=True, check=True
    )
    assert resumed.stdout == whole.stdout
    assert subprocess.run(again, cwd=tmp_path, capture_output=True, check=True).stdout == whole.stdout
