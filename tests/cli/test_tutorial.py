"""The tutorial about a table of one's own does what it says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.detectors import run

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "own-table.md").read_text()


def test_every_command_of_the_tutorial_runs_and_the_motor_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (make,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-c", make], check=True, timeout=60)
    commands = re.findall(r"^tolfl (.*)$", PAGE, flags=re.MULTILINE)
    shown = {command: run(*shlex.split(command)) for command in commands}

    assert len(commands) == 8
    assert {command: done.err for command, done in shown.items() if done.code} == {}
    (groups,) = [done.out for command, done in shown.items() if "--group" in command]
    motor = next(line for line in groups.splitlines() if "10:00:00" in line)
    assert "11:27:00" in motor
    assert re.search(r"south .* power [\d.]+ instead of [\d.]+ kW", motor)
    found = json.loads((tmp_path / "pictures" / "evaluation.json").read_text())
    assert found["fleet"]["auroc"] > 0.99
    assert (tmp_path / "device" / "score.pyz").is_file()
