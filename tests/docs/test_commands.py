"""Every command and snippet of the README and the tutorials runs, or is named here with the reason why it does not."""

from __future__ import annotations

import csv
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.docs.pages import PAGES, ROOT, Block, blocks_of, commands_of
from tolfl.cli import app, main
from tolfl.core.spec import RunSpec
from tolfl.net.node_config import NodeConfig

#: Lines that no test runs as they stand. `tolfl` lines are parsed all the same.
NOT_RUN = {
    "make demo": "a make target, which needs the checkout; tests/cli/test_demo.py runs `tolfl demo`",
    "make test": "these tests",
    "pip install '.[tables]'": "the checkout; tests/test_wheel.py installs the wheel",
    "make setup": "makes the environment that the tests run in",
    "source .venv/bin/activate": "the environment that the tests run in",
    "tail -f readings.jsonl | tolfl score model --follow --format jsonl": "never ends; tests/cli/test_score.py",
    "tolfl status 10.0.0.1:7000 --credentials fleet/devices/me": "needs three machines; tests/net/test_how_to.py",
    "tolfl dashboard 10.0.0.1:7000 --credentials fleet/devices/me": "the same",
    "python -m venv my-app/.venv": "tests/flower/test_flower_tutorial.py, in an environment that is there",
    "my-app/.venv/bin/pip install flwr numpy": "the same",
    "row      time      device      score      p_value    verdict     features": "an answer, no command",
}
#: The beginnings of answers that stand in a fence without a language: all lines of it are left out.
ANSWERS = ("row      time",)
#: Pages whose commands are run, with what they promise, by a test of their own.
TOLD_ELSEWHERE = {
    "docs/tutorials/own-table.md": "tests/cli/test_tutorial.py",
    "docs/tutorials/bluetooth-intruder.md": "tests/cli/test_recordings.py",
    "docs/tutorials/watch-the-air.md": "tests/watch/test_watch_tutorial.py",
    "docs/tutorials/flower-app.md": "tests/flower/test_flower_tutorial.py",
}
#: Python of this page is run by tests/test_repository.py.
PYTHON_ELSEWHERE = ("README.md",)
#: What takes more than a few seconds, or needs what such a line has left: only `make test-all` runs it.
LONG = (
    "tolfl simulate", "tolfl up", "tolfl status", "tolfl report", "tolfl plan", "tolfl demo", "tolfl data describe",
    "tolfl inspect runs/", "tolfl score runs/",
)  # fmt: skip


def is_answer(block: Block) -> bool:
    return block.language not in ("", "bash", "sh", "python") or block.text.startswith(ANSWERS)


def lines_of(page: str) -> list[str]:
    answers = {line for block in blocks_of(page) if is_answer(block) for line in block.lines}
    return [line for line in commands_of(page) if line not in answers]


def environment(folder: Path) -> dict[str, str]:
    """Return a newcomer's: a home of its own, no data, `tolfl` on the path."""
    program = folder / "bin" / "tolfl"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom tolfl.cli import main\nmain()\n")
    program.chmod(0o755)
    known = {name: value for name, value in os.environ.items() if name not in ("TOLFL_DATA", "XDG_CACHE_HOME")}
    places = {"HOME": str(folder / "home"), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    return {**known, **places, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}


def prepare(folder: Path) -> None:
    """Lay out what a reader has: tables of three sites, a device's file."""
    rng = random.Random(0)  # a table, no result
    for name, n_rows in (("readings", 150), ("today", 20), ("labelled", 60)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["site", "temp", "humidity", "fan", "power", "state"])
            for row in range(n_rows):
                base, is_odd = rng.gauss(0, 1), row % 10 == 9
                values = [base * (2 + column) + rng.gauss(0, 0.1) for column in range(4)]
                values[3] += 9 * is_odd
                state = "motor" if is_odd else "normal"
                table.writerow([("north", "east", "south")[row % 3], *values, state])
    (folder / "spec.toml").write_text(RunSpec(data="blobs", devices=1, clusters=1, rounds=2).to_toml())
    config = NodeConfig(device=0, listen="127.0.0.1:0", state="state", insecure=True)
    (folder / "device.toml").write_text(config.to_toml())


def run(command: list[str], folder: Path, variables: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=variables, check=False, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"


def started(command: list[str], folder: Path, variables: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_with_status(up: str, status: str, folder: Path, variables: dict[str, str]) -> None:
    """Run a fleet, and ask it while it is there, as a reader does in a second terminal.

    One process asks again and again: on a busy machine a new one for each question starts too late.
    """
    asking = f"""
import sys
from tolfl.cli import main
sys.stderr = open({os.devnull!r}, "w")
while True:
    sys.argv = {shlex.split(status)!r}
    try:
        main()
    except SystemExit as done:
        if not done.code:
            break
"""
    with (
        started(["bash", "-c", up], folder, variables) as fleet,
        started([sys.executable, "-c", asking], folder, variables) as asker,
    ):
        try:
            out, err = fleet.communicate(timeout=400)
        finally:
            asker.terminate()
        answer = asker.communicate(timeout=60)[0]

    assert fleet.returncode == 0, f"{up}\n{out}{err}"
    assert asker.returncode == 0, f"{status}: nobody answered while {up} ran"
    assert "suspected" in answer


def run_page(page: str, folder: Path) -> int:
    """Run what a page says, in order; return how many commands and snippets that were."""
    prepare(folder)
    variables = environment(folder)
    n_run = 0
    for block in blocks_of(page):
        if is_answer(block) or (block.language == "python" and page in PYTHON_ELSEWHERE):
            continue
        if block.language == "python":
            run([sys.executable, "-W", "error", "-c", block.text], folder, variables)
            n_run += 1
            continue
        lines = [line for line in block.lines if line not in NOT_RUN]
        for place, line in enumerate(lines):
            following = lines[place + 1] if place + 1 < len(lines) else ""
            if line.startswith("tolfl up") and following.startswith("tolfl status"):
                run_with_status(line, following, folder, variables)
            elif not line.startswith("tolfl status"):
                run(["bash", "-c", line], folder, variables)
            n_run += 1
    return n_run


@pytest.mark.timeout(300)  # on a busy machine; alone it takes seconds
@pytest.mark.parametrize("page", [page for page in PAGES if page not in TOLD_ELSEWHERE])
def test_the_quick_commands_of_a_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], page: str
) -> None:
    # In this process, which has read torch already: to start one for each line takes longer than all the rest.
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("TOLFL_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for line in lines_of(page):
        if line in NOT_RUN or line.startswith(LONG):
            continue
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as done:
            main()

        assert not done.value.code, f"{line}\n{capsys.readouterr().err}"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if page not in TOLD_ELSEWHERE])
def test_all_of_a_page_runs(tmp_path: Path, page: str) -> None:
    assert run_page(page, tmp_path) > 0


@pytest.mark.parametrize("page", PAGES)
def test_every_line_is_a_command_that_is_run_or_named_with_a_reason(page: str) -> None:
    strange = [line for line in lines_of(page) if not line.startswith("tolfl ") and line not in NOT_RUN]

    assert strange == []  # name it in NOT_RUN, or mark the fence of an answer with `text`


@pytest.mark.parametrize("page", PAGES)
def test_every_line_for_tolfl_can_be_understood(page: str) -> None:
    for line in lines_of(page):
        for part in line.split("|"):
            words = shlex.split(part.strip())
            if words[0] != "tolfl":
                continue
            command: Any = typer.main.get_command(app)
            rest = words[1:]
            while hasattr(command, "commands"):
                command = command.commands[rest.pop(0)]
            command.make_context(line, rest)


def test_what_is_not_run_still_stands_in_a_page() -> None:
    lines = {line for page in PAGES for line in commands_of(page)}

    assert sorted(NOT_RUN.keys() - lines) == []


@pytest.mark.parametrize(("page", "test"), TOLD_ELSEWHERE.items())
def test_pages_that_are_told_elsewhere_are(page: str, test: str) -> None:
    assert Path(page).name in (ROOT / test).read_text()


def test_a_new_line_would_be_noticed() -> None:
    block = Block("", "tolfl data list    # what there is\nrm -rf / \\\n  --now\n")

    assert block.lines == ["tolfl data list", "rm -rf /    --now"]
    assert not is_answer(block)
    assert is_answer(Block("text", "an answer"))
