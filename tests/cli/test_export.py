"""`tolfl export` as a person types it, and its scorer on a machine that has nothing of tolfl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.detectors import lines_of_buildings, run, small_detector, write_lines
from tolfl.detect.export import NEEDS

ROLES = ("--device-column", "building")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "truth.csv", lines_of_buildings(is_labelled=True, seed=7))
    return small_detector().save(tmp_path / "model")


def test_a_graph_is_written_and_compared(model: Path, tmp_path: Path) -> None:
    done = run("export", model, "--to", "onnx", "--out", "device/m.onnx", "--format", "json")
    found = json.loads(done.out)

    assert (done.code, done.err) == (0, "")
    assert found["largest_relative_difference"] < 1e-6
    assert found["bytes"] == (tmp_path / "device" / "m.onnx").stat().st_size


@pytest.mark.processes
def test_the_scorer_says_what_score_says_and_needs_nothing_of_tolfl(model: Path, tmp_path: Path) -> None:
    done = run("export", model, "--out", "device/score.pyz")
    assert (done.code, done.err) == (0, "")
    assert "run it: python device/score.pyz DATA" in done.out
    # A place with these packages alone; -S leaves out everything that is installed.
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in NEEDS:
        found = find_spec(name)
        assert found is not None
        home = Path(str(found.origin))
        home = home.parent if home.name == "__init__.py" else home
        for place in (home, home.with_name(f"{name}.libs")):
            if place.exists():
                (packages / place.name).symlink_to(place)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages)}
    command = [sys.executable, "-S", "-s", "device/score.pyz", "-", *ROLES, "--format", "jsonl"]
    theirs = subprocess.run(
        command, input=(tmp_path / "truth.csv").read_text(), env=environment, cwd=tmp_path, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    ours = run("score", model, "truth.csv", *ROLES, "--format", "jsonl")
    unknown = subprocess.run(
        [sys.executable, "-S", "-c", "import tolfl"], env=environment, cwd=tmp_path, capture_output=True, check=False
    )

    assert (theirs.returncode, theirs.stdout, theirs.stderr) == (0, ours.out, ours.err)
    assert unknown.returncode != 0


@pytest.mark.processes
def test_the_scorer_refuses_a_bad_source_in_one_sentence(model: Path, tmp_path: Path) -> None:
    assert run("export", model).code == 0
    write_lines(tmp_path / "other.csv", ["a,b", "1,2"])
    done = subprocess.run([sys.executable, "model.pyz", "other.csv"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert "no column for 5 of 5 columns" in done.stderr
    assert done.stderr.count("\n") == 1
