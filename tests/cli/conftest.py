"""The command as a person types it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest

from tolfl.cli import main

Command: TypeAlias = Callable[..., tuple[int, str, str]]


def wait_for(process: subprocess.Popen[str], is_ready: Callable[[], bool]) -> None:
    """Wait until a process has come so far, or has ended; without taking the processor away from it."""
    while process.poll() is None and not is_ready():
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)


@pytest.fixture
def tolfl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Run `tolfl ...` in an empty folder; return exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tolfl", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        output = capsys.readouterr()
        code = exit_info.value.code
        return (code if isinstance(code, int) else 0), output.out, output.err

    return run
