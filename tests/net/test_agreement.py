"""The same specification simulated and run for real: the same histories, and the same models."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tests.net.fleet_processes import fleet_of, small_spec
from tests.net.replay import chain_to, check_run, name_of, rounds_of
from tests.sim.fleets import closed, model_of
from tolfl.core.records import RoundClosed
from tolfl.net.collect import collect
from tolfl.sim.simulation import run

#: Six devices in three clusters: 0 and 2 are heads, 4 is the closer.
WHO = {"member": "device:3@6", "head": "device:0@6", "closer": "device:4@6", "two-heads": "device:0,2@6"}
PHASES = ("train", "report", "chain", "distribute")


def agree(fail: str, out: Path, devices: int = 6, clusters: int = 3) -> None:
    spec = small_spec(devices, clusters, rounds=20, fail=fail)
    (simulated,) = run(spec)
    with fleet_of(spec, out) as fleet:
        fleet.until_the_end()

    chain = check_run(out, spec, fleet.data, fleet.survivors)
    # A branch that lost is a matter of time, and virtual time is another: the history that won is the same.
    last = max(name_of(line) for line in closed(simulated))
    expected = rounds_of(chain_to(last.history, simulated.records))
    assert [_of(line) for line in rounds_of(chain)] == [_of(line) for line in expected]
    summary = collect(fleet.launcher.directory, spec, fleet.data, fleet.survivors)
    assert summary["survivors"] == simulated.summary["survivors"]
    assert summary["auroc"] == pytest.approx(simulated.summary["auroc"], abs=1e-6)
    real = safetensors.numpy.load_file(out / "model.safetensors")
    for name, tensor in model_of(simulated).tensors().items():
        np.testing.assert_allclose(real[name], tensor, rtol=0, atol=1e-5)


def _of(line: RoundClosed) -> tuple[object, ...]:
    return line.round, line.version, line.included, line.missing


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fail", [pytest.param("", marks=pytest.mark.slow), "server@6/chain"], ids=["nobody", "head-in-chain"]
)
def test_a_real_run_is_the_simulated_one(fail: str, tmp_path: Path) -> None:
    agree(fail, tmp_path / "run", devices=4, clusters=2)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("who", "phase"), list(product(WHO, PHASES)))
def test_whoever_dies_as_planned_dies_in_both(who: str, phase: str, tmp_path: Path) -> None:
    agree(f"{WHO[who]}/{phase}", tmp_path / "run")
