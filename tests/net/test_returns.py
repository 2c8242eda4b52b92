"""Devices that come back as planned: a process takes seconds to start, and the run is the simulated one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Command
from tests.net.fleet_processes import fleet_of, running_up, small_spec
from tests.net.replay import check_run, rounds_of
from tests.sim.fleets import closed
from tolfl.net.collect import collect
from tolfl.sim.simulation import run

pytestmark = pytest.mark.processes


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fail",
    ["device:2@5-7", pytest.param("device:3@5-7/report; closer@4-8/chain", marks=pytest.mark.slow)],
    ids=["head", "member-and-closer"],
)
def test_a_run_with_returns_gives_the_bits_of_the_simulated_one(fail: str, tmp_path: Path) -> None:
    spec = small_spec(6, 3, rounds=10, fail=fail)
    (simulated,) = run(spec)
    with fleet_of(spec, tmp_path / "run") as fleet:
        fleet.until_the_end()

    rounds = rounds_of(check_run(fleet.out, spec, fleet.data, fleet.survivors))
    summary = collect(fleet.launcher.directory, spec, fleet.data, fleet.survivors)
    assert [line.included for line in rounds] == [line.included for line in closed(simulated)]
    assert rounds[-1].version == closed(simulated)[-1].version
    assert summary["survivors"] == simulated.summary["survivors"] == list(range(6))
    assert summary["model_sha256"] == simulated.summary["model_sha256"]


@pytest.mark.timeout(300)
def test_a_detector_is_the_simulated_one_byte_for_byte_though_a_device_was_away(tolfl: Command, tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(400, 3))
    table = ["site,a,b,c", *(f"s{place % 4},{a:.5f},{b:.5f},{c:.5f}" for place, (a, b, c) in enumerate(rows))]
    readings = tmp_path / "readings.csv"
    readings.write_text("\n".join(table) + "\n")
    flags = ["--learn", "detector", "--data", str(readings), "--device-column", "site", "--clusters", "2"]
    flags += ["--timing", "lan", "--fail", "device:1@scaling:0-thresholds:1"]
    assert tolfl("simulate", *flags, "--out", "simulated")[0] == 0
    with running_up(tmp_path, *flags) as up:
        code, _, err = up.result()

    assert code == 0, err
    real, simulated = ((folder / "detector.tolfl").read_bytes() for folder in (up.out, tmp_path / "simulated"))
    assert real == simulated
    assert "came back" in (up.out / "records.jsonl").read_text()
    assert "in time" not in (up.out / "records.jsonl").read_text()
