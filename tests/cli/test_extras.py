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


BLOBS = ("--data", "blobs", "--devices", "2", "--clusters", "1", "--rounds", "2")
#: Commands, and which package of which extra they miss.
NEEDY = [
    ("simulate --data mine.csv --devices 3", "pyarrow", "tables"),
    ("simulate --scheme fedgroup --data blobs --devices 6 --rounds 1", "sklearn", "tables"),
    (f"simulate {' '.join(BLOBS)} --track tensorboard", "tensorboard", "track"),
    ("dashboard .", "uvicorn", "dashboard"),
    ("simulate --data blobs --learn net.py:Net", "torch", "torch"),
    ("reproduce client --out reproduced", "scipy", "study"),
]
#: Runs one command after the other, and says on standard error how each ended.
PROGRAM = """
import sys
from tolfl.cli import main

for command in sys.argv[1:]:
    sys.argv = ["tolfl", *command.split()]
    try:
        main()
    except SystemExit as ended:
        print(ended.code, file=sys.stderr)
"""


def run(environment: dict[str, str], folder: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *commands],
        cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip


def test_a_simulation_needs_no_extra_and_a_missing_one_is_one_sentence_with_the_command(
    without_extras: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "net.py").write_text("import torch\n")
    found = run(without_extras, tmp_path, f"simulate {' '.join(BLOBS)} --out one", *(command for command, *_ in NEEDY))
    simulated, *sentences = found.stderr.splitlines()

    assert (simulated, "devices left: 2 of 2" in found.stdout) == ("0", True)
    assert sentences[1::2] == ["1"] * len(NEEDY)
    for sentence, (_, package, extra) in zip(sentences[::2], NEEDY, strict=True):
        assert f"{package} is not installed" in sentence
        assert sentence.endswith(f"run: pip install 'tolfl[{extra}]'")


def test_the_demo_needs_no_extra(without_extras: dict[str, str], tmp_path: Path) -> None:
    found = run(without_extras, tmp_path, "demo --simulated --devices 3 --data blobs --out shown")

    assert found.stderr == "0\n"
    assert (tmp_path / "shown" / "report.html").is_file()


@pytest.mark.processes
def test_a_fleet_of_real_devices_needs_no_extra(without_extras: dict[str, str], tmp_path: Path) -> None:
    found = run(without_extras, tmp_path, f"up {' '.join(BLOBS)} --out one")

    assert found.stderr.splitlines()[-1] == "0", found.stderr
    assert "devices left: 2 of 2" in found.stdout


def test_a_device_imports_neither_the_generator_nor_what_downloads() -> None:
    program = "import sys, tolfl.net.prepare, tolfl.signals.capture_rows; print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()

    assert "tolfl.signals.capture_rows" in imported
    assert not {"tolfl.signals.comms_ml_generator", "tolfl.signals.wifi", "http.client", "tarfile"} & set(imported)
