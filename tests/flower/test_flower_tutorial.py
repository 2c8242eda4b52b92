"""The tutorial is true: its app is written down as the page says, and its commands leave what the page shows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flower.environments import NEWEST, ROOT, needs_flwr

PAGE = (ROOT / "docs" / "tutorials" / "flower-app.md").read_text()

pytestmark = [needs_flwr, pytest.mark.processes, pytest.mark.timeout(300)]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def plain(said: str) -> str:
    """Return what was said without the version of flwr and the seconds that a takeover took."""
    return re.sub(r"(flwr|after) [\d.]+", r"\1", said)


def run(command: str, folder: Path) -> str:
    command_line = [sys.executable, "-m", "tolfl", *shlex.split(command)[1:]]
    done = subprocess.run(command_line, cwd=folder, check=False, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stderr + done.stdout


def test_the_page_leads_from_an_app_to_a_killed_head(tmp_path: Path) -> None:
    app = tmp_path / "my-app"
    app.mkdir()
    (app / "pyproject.toml").write_text(blocks("toml")[0])
    (app / "my_app.py").write_text(blocks("python")[0])
    (app / ".venv").symlink_to(NEWEST)
    commands = [line for line in PAGE.splitlines() if line.startswith("tolfl ")]
    assert len(commands) == 3

    said = [run(command, tmp_path) for command in commands]

    shown = PAGE.partition("with SIGKILL:\n\n```text\n")[2].partition("```")[0].splitlines()
    for line in [line for line in shown if line.strip() != "..."]:
        assert plain(line) in plain(said[0])
    real, simulated = (
        json.loads((tmp_path / "runs" / name / "summary.json").read_text()) for name in ("killed", "simulated")
    )
    assert real["state_digest"] == simulated["state_digest"]
    assert "configure_train" in (tmp_path / "runs" / "killed" / "devices" / "1" / "log.txt").read_text()
    assert re.search(r"devices left: \d+ of 100", said[2])
