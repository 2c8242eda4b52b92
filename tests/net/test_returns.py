"""Devices that come back as planned: a process takes seconds to start, and the run is the simulated one all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.net.fleet_processes import fleet_of, small_spec
from tests.net.replay import check_run, rounds_of
from tests.sim.fleets import closed
from tolfl.net.collecting import collect
from tolfl.sim.run import run

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
