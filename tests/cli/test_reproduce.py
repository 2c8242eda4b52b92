"""`tolfl reproduce` as its users type it: small runs, wrong words, Ctrl-C and going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command, wait_for

TOLFL = [sys.executable, "-m", "tolfl"]
QUICK = ("server", "--quick", "--data", "comms-ml")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a quick table has been made."""
    folder = tmp_path_factory.mktemp("quick")
    done = subprocess.run([*TOLFL, "reproduce", *QUICK], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "tol-fl drop" in done.stdout
    return folder


def places(folder: Path) -> list[str]:
    return ["--out", str(folder / "runs/reproduce"), "--cache", str(folder / "runs/cells")]


def test_a_quick_table_is_shown_and_stored(quick: Path, tolfl: Command) -> None:
    code, shown, _ = tolfl("reproduce", *QUICK, *places(quick))  # all of it from the cache

    assert code == 0
    assert "(0.75)" in shown  # the paper's value
    text = (quick / "runs/reproduce/server.json").read_text()
    stored = json.loads(text)
    assert stored["command"] == "tolfl reproduce server --quick --data comms-ml"
    assert {row["scheme"] for row in stored["rows"]} >= {"tol-fl", "fl", "batch", "fedgroup", "ifca", "fesem", "pca-16"}
    assert 'data = "comms-ml"' in stored["specs"]["comms-ml"]
    assert str(quick) not in text
    assert (quick / "runs/reproduce/server.md").read_text().startswith("# AUROC, a server fails")


def test_json_is_all_there_is_on_standard_output(quick: Path, tolfl: Command) -> None:
    _, shown, _ = tolfl("reproduce", *QUICK, *places(quick), "--format", "json")
    assert [report["name"] for report in json.loads(shown)] == ["server"]


def test_stored_rows_are_rendered_again_and_fill_pages(quick: Path, tolfl: Command, tmp_path: Path) -> None:
    out = quick / "runs/reproduce"
    before = (out / "server.md").read_text()
    (out / "server.md").unlink()
    page = tmp_path / "page.md"
    page.write_text("# Mine\n<!-- results: server 1 -->\n<!-- end -->\n")
    code, *_ = tolfl("reproduce", "render", "--out", str(out), "--page", str(page))

    assert code == 0
    after = (out / "server.md").read_text()
    assert after.split("**Verdicts**")[0] == before.split("**Verdicts**")[0]
    assert "| tol-fl drop |" in page.read_text()
    page.write_text("<!-- results: timing 1 -->\n<!-- end -->\n")
    code, _, said = tolfl("reproduce", "render", "--out", str(out), "--page", str(page))
    assert (code, "it asks for results of 'timing'" in said) == (2, True)


@pytest.mark.processes
@pytest.mark.slow
def test_an_interrupted_table_goes_on_where_it_was(tmp_path: Path, tolfl: Command) -> None:
    arguments = ["reproduce", "clean", "--quick", "--data", "comms-ml"]
    started = subprocess.Popen([*TOLFL, *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=os.environ)
    cells = tmp_path / "runs" / "cells"
    wait_for(started, lambda: bool(list(cells.glob("*/repetition-0/records.jsonl"))))  # the first run has begun
    started.send_signal(signal.SIGINT)
    _, said = started.communicate()

    assert started.returncode == 130
    assert "to go on: tolfl reproduce clean --quick --data comms-ml" in said
    finished_before = len(list(cells.glob("*/summary.json")))
    code, *_ = tolfl(*arguments, "--resume")
    assert code == 0
    assert len(list(cells.glob("*/summary.json"))) > finished_before
    rows = json.loads((tmp_path / "runs/reproduce/clean.json").read_text())["rows"]
    assert len(rows) == 2 * 9  # two repetitions of six schemes and three plain baselines


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["tables"], "unknown experiment 'tables'; choose one of: clean, client, server", 2),
        (["clean", "--data", "mars"], "unknown data set of the tables 'mars'", 2),
        (["clean", "--on", "moon"], "say local, ray (this machine) or ray:ADDRESS", 2),
        (["render", "--out", "nowhere"], "there are no results to render", 2),
        (["clean", "--quick", "--data", "cifar-100"], "cifar-100", 1),
    ],
    ids=["experiment", "data", "place", "render", "not-at-hand"],
)
def test_wrong_words_get_one_sentence(
    tolfl: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], words: str, code: int
) -> None:
    monkeypatch.setenv("TOLFL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found, shown, said = tolfl("reproduce", *arguments)
    assert (found, shown) == (code, "")
    assert words in said
    assert len(said.strip().splitlines()) == 1


def test_a_full_cache_is_not_started_anew(quick: Path, tolfl: Command) -> None:
    code, _, said = tolfl("reproduce", *QUICK, *places(quick), "--no-resume")
    assert (code, "is not empty; choose another --cache" in said) == (1, True)
