"""Without any extra: a fleet trains, and whatever needs one names it in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tolfl
from tolfl.core.errors import EXTRAS

#: Makes an interpreter as if these packages had never been installed.
BLOCKER = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in {sorted(EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


@pytest.fixture
def without_extras(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCKER)
    sources = Path(tolfl.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{sources}"}


def run(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tolfl", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


BLOBS = ("--data", "blobs", "--devices", "3", "--clusters", "1", "--rounds", "2")


def test_a_simulation_needs_no_extra(without_extras: dict[str, str], tmp_path: Path) -> None:
    found = run(without_extras, tmp_path, "simulate", *BLOBS, "--out", "one")

    assert found.returncode == 0, found.stderr
    assert "devices left: 3 of 3" in found.stdout
    assert found.stderr.splitlines()[-1] == (
        "tolfl: loss.png is not drawn: matplotlib is not installed, which is needed for figures; "
        "run: pip install 'tolfl[tables]'"
    )


@pytest.mark.processes
def test_a_fleet_of_real_devices_needs_no_extra(without_extras: dict[str, str], tmp_path: Path) -> None:
    found = run(without_extras, tmp_path, "up", *BLOBS, "--out", "one")

    assert found.returncode == 0, found.stderr
    assert "devices left: 3 of 3" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("simulate", "--data", "mine.csv", "--devices", "3"), "pyarrow", "tables"),
        (
            ("simulate", "--scheme", "fedgroup", "--data", "blobs", "--devices", "6", "--rounds", "1"),
            "sklearn",
            "tables",
        ),
        (("simulate", *BLOBS, "--track", "tensorboard"), "tensorboard", "track"),
        (("dashboard", "."), "uvicorn", "dashboard"),
    ],
)
def test_a_missing_extra_is_one_sentence_with_the_command(
    arguments: tuple[str, ...], package: str, extra: str, without_extras: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n3,4\n")

    found = run(without_extras, tmp_path, *arguments)

    assert found.returncode == 1
    assert f"{package} is not installed" in found.stderr
    assert f"pip install 'tolfl[{extra}]'" in found.stderr
    assert "Traceback" not in found.stderr
