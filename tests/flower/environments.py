"""Environments with flwr, made by `make test-flower`: without them the tests that need one are skipped, and say so."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tolfl.core.spec import RunSpec
from tolfl.sim.simulation import Run, Runs

ROOT = Path(__file__).resolve().parents[2]
APPS = Path(__file__).with_name("apps")
NEWEST, OLDEST = (ROOT / f".venv-flwr-{age}" for age in ("newest", "oldest"))

needs_flwr = pytest.mark.skipif(
    not (NEWEST / "bin" / "python").exists(), reason="no flwr; make test-flower installs it"
)


def app_spec(app: str = "linear", python: Path = NEWEST, config: str = "", **fields: Any) -> RunSpec:
    """Return the specification of a fleet of six that trains one of the apps of these tests.

    `lan`: `localhost` takes a device that is silent for a second for dead, and a machine that runs two tests and their
    fleets keeps devices waiting for longer. The model is then that of the history without it, not the failure-free one.
    """
    learn = {"what": f"flower:{APPS / app}", "python": str(python), "run_config": config}
    return RunSpec(**{"devices": 6, "clusters": 3, "timing": "lan", "learn": learn, **fields})


def simulated(spec: RunSpec) -> Run:
    """Return the result of a run in the simulator."""
    runs = Runs(spec)
    for _ in runs:
        pass
    return runs.results[0]


def flower_itself(app: str, out: Path, python: Path, *config: str, seed: int = 0, n_devices: int = 6) -> Path:
    """Run an app with Flower's own loop; return the folder with what it saves."""
    out.mkdir()
    loop = APPS / "flower_loop.py"
    command = [str(python / "bin" / "python"), str(loop), str(APPS / app), str(n_devices), str(seed), str(out), *config]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return out
