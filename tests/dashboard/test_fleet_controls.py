"""Commands of the page to real processes, and the commands that show the page."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import typer
from typer.testing import CliRunner

from tests.dashboard.browser import Browser, needs_chromium
from tests.net.fleet_processes import PATIENCE_S, nothing_is_left_of, small_spec, wait_until
from tests.record_lines import lost_head, write
from tolfl.cli.live_fleet import FleetControls, live_page
from tolfl.cli.run_commands import dashboard
from tolfl.core.errors import TolFLError, sentence_and_status
from tolfl.core.records import FailureHappened, TakenOver
from tolfl.dashboard import PageCommand
from tolfl.net.launcher import Launcher
from tolfl.runs.run_reader import read_records


def answer_to(controls: FleetControls, command: PageCommand) -> str:
    """Give a command from another thread, as the page does, while the launcher's own works."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(controls.obey, command)
        while not asked.done():
            controls.work()
        error = asked.exception()
    assert error is None or isinstance(error, TolFLError)
    return str(error or "done")


def test_what_cannot_be_done_is_one_sentence(tmp_path: Path) -> None:
    controls = FleetControls(Launcher(small_spec(), tmp_path / "run"))

    assert answer_to(controls, PageCommand("kill", 99)) == "there is no device 99"
    assert answer_to(controls, PageCommand("kill", -1)) == "there is no device -1"
    for action in ("kill", "freeze", "thaw", "cut", "heal"):
        assert answer_to(controls, PageCommand(action, 1)) == "device 1 is not running"
    controls.close()
    assert answer_to(controls, PageCommand("revive", 1)) == "the run is over"


@pytest.fixture
def command() -> Callable[..., Exception | None]:
    """Run `tolfl dashboard ...`; return the error that it ended with."""
    app = typer.Typer()
    app.command()(dashboard)

    def run(*arguments: str) -> Exception | None:
        error = CliRunner().invoke(app, list(arguments)).exception
        return error if isinstance(error, Exception) else None

    return run


def test_a_wrong_request_is_one_sentence(command: Callable[..., Exception | None], tmp_path: Path) -> None:
    run = str(write(tmp_path / "run", lost_head()))

    assert "does not exist" in str(command(str(tmp_path / "nowhere")))
    assert "7 runs; the page shows up to 6" in str(command(*[run] * 7))
    assert "cannot be shown on 192.0.2.1:0" in str(command(run, "--host", "192.0.2.1", "--port", "0"))


def test_without_the_extra_both_commands_say_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.startswith("tolfl.dashboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)

    for command in (lambda: dashboard([str(tmp_path)]), live_page(Launcher(small_spec(), tmp_path / "run")).__enter__):
        with pytest.raises(ModuleNotFoundError) as raised:
            command()

        sentence, status = sentence_and_status(raised.value) or ("", 0)
        assert "starlette is not installed" in sentence
        assert "pip install 'tolfl[dashboard]'" in sentence
        assert status == 1


ALONE = "import typer; from tolfl.cli.run_commands import dashboard; typer.run(dashboard)"


@pytest.mark.processes
def test_the_page_is_there_until_ctrl_c(tmp_path: Path) -> None:
    run = str(write(tmp_path / "run", lost_head()))
    command = [sys.executable, "-c", ALONE, "--port", "0", run]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shown:
        assert shown.stderr is not None
        said = shown.stderr.readline()
        found = re.fullmatch(r"tolfl: (http://127\.0\.0\.1:\d+/) shows run; Ctrl-C ends it\n", said)
        assert found is not None, said
        names = httpx.get(f"{found[1]}api/runs", timeout=30).json()
        shown.send_signal(signal.SIGINT)
        out, rest = shown.communicate(timeout=30)

    assert names == {"runs": [{"name": "run", "controls": False}], "follow": False}
    assert (shown.returncode, out, rest) == (0, "", "")


@needs_chromium
@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
def test_a_click_kills_a_real_process_and_the_page_shows_who_takes_over(browser: Browser, tmp_path: Path) -> None:
    out = tmp_path / "live"
    flags = ["--data", "blobs", "--samples-per-device", "50", "--devices", "4", "--clusters", "2", "--timing", "lan"]
    flags += ["--rounds", "100000", "--dashboard", "--out", str(out)]
    said = tmp_path / "said.txt"
    with said.open("wb") as file:
        fleet = subprocess.Popen([sys.executable, "-m", "tolfl", "up", *flags], stderr=file, stdout=file)
    try:
        wait_until(lambda: "#token=" in said.read_text(), "the address is shown", PATIENCE_S)
        found = re.search(r"http://127\.0\.0\.1:\S+#token=\S+", said.read_text())
        assert found is not None
        browser.open(found[0])
        browser.until_long(lambda: re.search(r"of round \d", browser.text("#details")), "a round is shown")
        browser.until_long(lambda: "training" in str(label(browser, 0)), "device 0 trains")
        browser.find("[data-device='0']").click()
        browser.find("[data-action=kill]").click()
        browser.until(lambda: "device 1 takes over cluster 0 from device 0" in browser.text(".log"), "a take-over")
        browser.until(lambda: "dead" in label(browser, 0) and "head" in label(browser, 1), "the new head")
        before = rounds_done(browser)
        browser.until(lambda: rounds_done(browser) > before + 3, "the curve goes on")
        browser.find("[data-action=revive]").click()
        browser.until_long(lambda: "training, returned, its samples are in" in label(browser, 0), "it is back")
        fleet.send_signal(signal.SIGINT)
        code = fleet.wait(60)
    finally:
        if fleet.poll() is None:
            fleet.send_signal(signal.SIGINT)
            fleet.wait(60)

    assert code == 130
    lines = [line for path in sorted(out.glob("devices/*/records.jsonl")) for line in read_records(path)]
    assert any(isinstance(line, TakenOver) and (line.device, line.previous) == (1, 0) for line in lines)
    struck = [line for line in read_records(out / "launcher.jsonl") if isinstance(line, FailureHappened)]
    assert [(line.device, line.what) for line in struck] == [(0, "died (killed by signal 9)"), (0, "came back")]
    nothing_is_left_of(out)


def label(browser: Browser, device: int) -> str:
    return str(browser.find(f"[data-device='{device}']").get_attribute("aria-label"))


def rounds_done(browser: Browser) -> int:
    found = re.search(r"Rounds done\n(\d+)", browser.text(".facts"))
    return int(found[1]) if found else 0
