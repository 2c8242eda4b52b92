"""`tolfl reproduce` as its users type it: small runs, wrong words, Ctrl-C and going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOLFL = [sys.executable, "-m", "tolfl"]


def reproduce(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, without any data set but the generated ones."""
    env = os.environ | {"TOLFL_DATA": str(folder / "no-data")}
    done = subprocess.run(
        [*TOLFL, "reproduce", *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quick")
    reproduce(folder, "server", "--quick", "--data", "comms-ml")
    return folder


def test_a_quick_table_is_shown_and_stored(quick: Path) -> None:
    shown = reproduce(quick, "server", "--quick", "--data", "comms-ml")  # all of it from the cache

    assert "tol-fl drop" in shown.stdout
    assert "(0.75)" in shown.stdout  # the paper's value
    stored = json.loads((quick / "runs/reproduce/server.json").read_text())
    assert stored["command"] == "tolfl reproduce server --quick --data comms-ml"
    assert {row["scheme"] for row in stored["rows"]} >= {"tol-fl", "fl", "batch", "fedgroup", "ifca", "fesem", "pca-16"}
    assert str(quick) not in (quick / "runs/reproduce/server.json").read_text()
    assert (quick / "runs/reproduce/server.md").read_text().startswith("# AUROC, a server fails")


def test_json_is_all_there_is_on_standard_output(quick: Path) -> None:
    shown = reproduce(quick, "server", "--quick", "--data", "comms-ml", "--format", "json")
    assert [report["name"] for report in json.loads(shown.stdout)] == ["server"]


def test_stored_rows_are_rendered_again(quick: Path) -> None:
    before = (quick / "runs/reproduce/server.md").read_text()
    (quick / "runs/reproduce/server.md").unlink()
    reproduce(quick, "render", "--out", "runs/reproduce")
    after = (quick / "runs/reproduce/server.md").read_text()
    assert after.split("**Verdicts**")[0] == before.split("**Verdicts**")[0]


@pytest.mark.processes
def test_an_interrupted_table_goes_on_where_it_was(quick: Path, tmp_path: Path) -> None:
    arguments = ["reproduce", "clean", "--quick", "--data", "comms-ml"]
    env = os.environ | {"TOLFL_DATA": str(tmp_path / "no-data")}
    started = subprocess.Popen([*TOLFL, *arguments], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    cells = tmp_path / "runs" / "cells"
    while not list(cells.glob("*/repetition-0/records.jsonl")):  # the first run has begun
        assert started.poll() is None
    started.send_signal(signal.SIGINT)
    _, said = started.communicate()

    assert started.returncode == 130
    assert "to go on: tolfl reproduce clean --quick --data comms-ml" in said
    finished_before = len(list(cells.glob("*/summary.json")))
    reproduce(tmp_path, *arguments[1:], "--resume")
    assert len(list(cells.glob("*/summary.json"))) > finished_before
    rows = json.loads((tmp_path / "runs/reproduce/clean.json").read_text())["rows"]
    assert len(rows) == 2 * 9  # two repetitions of six schemes and three plain baselines


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tables"], "unknown experiment 'tables'; choose one of: clean, client, server"),
        (["clean", "--data", "mars"], "unknown data set of the tables 'mars'"),
        (["clean", "--on", "moon"], "say local, ray (this machine) or ray:ADDRESS"),
        (["render", "--out", "nowhere"], "there are no results to render"),
    ],
)
def test_wrong_words_get_one_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    failed = reproduce(tmp_path, *arguments, code=2)
    assert words in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1


def test_pictures_that_are_not_at_hand_are_named(tmp_path: Path) -> None:
    failed = reproduce(tmp_path, "clean", "--quick", "--data", "cifar-100", code=1)
    assert "cifar-100" in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1


def test_a_full_cache_is_not_started_anew(quick: Path) -> None:
    failed = reproduce(quick, "server", "--quick", "--no-resume", code=1)
    assert "is not empty; choose another --cache" in failed.stderr
