"""`tolfl reproduce` as its users type it: small runs, wrong words, Ctrl-C and going on."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command, wait_for
from tolfl.cli import main
from tolfl.experiments.catalogue import EXPERIMENTS

TOLFL = [sys.executable, "-m", "tolfl"]
QUICK = ("communication", "--quick")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which quick results have been made."""
    folder = tmp_path_factory.mktemp("quick")
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(shown):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["tolfl", "reproduce", *QUICK])
        with pytest.raises(SystemExit) as done:
            main()
    assert not done.value.code
    assert shown.getvalue().splitlines()[-1].startswith("communication: 7 rows in runs/quick (JSON with specifications")
    return folder


def places(folder: Path) -> list[str]:
    return ["--out", str(folder / "runs/quick"), "--cache", str(folder / "runs/cells")]


def test_quick_results_are_shown_and_stored_apart(quick: Path, tolfl: Command) -> None:
    code, shown, _ = tolfl("reproduce", *QUICK, *places(quick))  # all of it from the cache

    assert code == 0
    assert "20 : 9 : 15" in shown
    text = (quick / "runs/quick/communication.json").read_text()
    stored = json.loads(text)
    assert (stored["command"], stored["is_quick"]) == ("tolfl reproduce communication --quick", True)
    assert {row["job"] for row in stored["rows"]} == set(stored["specs"])
    assert str(quick) not in text
    assert (quick / "runs/quick/communication.md").read_text().startswith("# Communication")
    assert not (quick / "runs/reproduce").exists()


def test_quick_results_do_not_overwrite_full_ones(quick: Path, tolfl: Command, tmp_path: Path) -> None:
    text = (quick / "runs/quick/communication.json").read_text().replace('"is_quick": true', '"is_quick": false')
    (tmp_path / "communication.json").write_text(text)
    code, shown, said = tolfl("reproduce", *QUICK, "--out", str(tmp_path), "--cache", str(quick / "runs/cells"))

    assert (code, shown) == (1, "")
    assert "has full results, which --quick does not overwrite; choose another --out" in said
    assert (tmp_path / "communication.json").read_text() == text


def test_json_is_all_there_is_on_standard_output(quick: Path, tolfl: Command) -> None:
    _, shown, _ = tolfl("reproduce", *QUICK, *places(quick), "--format", "json")
    assert [report["name"] for report in json.loads(shown)] == ["communication"]


def test_stored_rows_are_rendered_again_and_fill_pages(quick: Path, tolfl: Command, tmp_path: Path) -> None:
    out = quick / "runs/quick"
    before = (out / "communication.md").read_text()
    (out / "communication.md").unlink()
    page = tmp_path / "page.md"
    page.write_text("# Mine\n<!-- results: communication 1 -->\n<!-- end -->\n")
    code, shown, _ = tolfl("reproduce", "render", "--out", str(out), "--page", str(page))

    assert (code, shown) == (0, f"{out}: 2 files of 1 experiments rendered; 1 pages filled\n")
    assert (out / "communication.md").read_text() == before
    assert "| SBT |" in page.read_text()
    page.write_text("<!-- results: timing 1 -->\n<!-- end -->\n")
    code, _, said = tolfl("reproduce", "render", "--out", str(out), "--page", str(page))
    assert (code, "it names results of 'timing'" in said) == (2, True)
    page.write_text("nothing is asked for\n")
    code, _, said = tolfl("reproduce", "render", "--out", str(out), "--page", str(page))
    assert (code, "it has no block" in said) == (2, True)


@pytest.mark.parametrize(
    "text",
    [
        "<!-- results: communication 1 -->\nmine\n",
        "<!-- results: communication 1 -->\nmine\n<!-- results: communication 2 -->\n<!-- end -->\n",
        "<!-- results:communication 1 -->\n<!-- end -->\n",
    ],
    ids=["no-end", "end-of-another", "spelling"],
)
def test_a_block_that_is_not_closed_is_named_and_the_page_stays(
    text: str, quick: Path, tolfl: Command, tmp_path: Path
) -> None:
    (tmp_path / "page.md").write_text(text)
    code, _, said = tolfl(
        "reproduce", "render", "--out", str(quick / "runs/quick"), "--page", str(tmp_path / "page.md")
    )

    assert (code, "communication 1 -->: write '<!-- results: NAME PART -->' on a line" in said) == (2, True)
    assert (tmp_path / "page.md").read_text() == text


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
    rows = json.loads((tmp_path / "runs/quick/clean.json").read_text())["rows"]
    assert len(rows) == 2 * 10  # two repetitions of six schemes, three plain baselines and devices alone


def test_a_full_cache_is_not_started_anew(quick: Path, tolfl: Command) -> None:
    code, _, said = tolfl("reproduce", *QUICK, *places(quick), "--no-resume")
    assert (code, "is not empty; choose another --cache" in said) == (1, True)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
def test_on_ray_the_rows_are_the_same(quick: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    arguments = [*QUICK, "--on", "ray", "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cells")]
    done = subprocess.run([*TOLFL, "reproduce", *arguments], capture_output=True, text=True, check=False)
    here, there = (
        json.loads((folder / "communication.json").read_text()) for folder in (quick / "runs/quick", tmp_path / "out")
    )

    assert done.returncode == 0, done.stderr
    assert (there["rows"], there["specs"]) == (here["rows"], here["specs"])


def test_the_help_names_every_experiment(tolfl: Command) -> None:
    _, shown, _ = tolfl("reproduce", "--help")
    assert {*EXPERIMENTS, "all", "render"} <= set(re.findall(r"[a-z]+(?:-[a-z]+)*", shown))
