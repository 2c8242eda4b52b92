"""A lying process in a real fleet: the model is that of the simulated lie, with the defence on and off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tests.net.fleet_processes import fleet_of, small_spec
from tests.sim.fleets import closed, model_of
from tolfl.core.records import RoundClosed, decode_records
from tolfl.core.spec import DefenceSpec
from tolfl.net.collect import collect
from tolfl.sim.simulation import run

DEFENCES = {
    "off": DefenceSpec(),
    "median": DefenceSpec("median", max_samples=50),
    "clipped": DefenceSpec(clip_to_median=1.0, max_samples=50, chain_clip=0.5),
}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", DEFENCES)
def test_a_lie_over_the_network_is_the_simulated_one(name: str, tmp_path: Path) -> None:
    # Device 1 is a member of a cluster of three, 3 is alone in the second one.
    liars = "1:flip,samples=100; 3:scale=0.5"
    spec = small_spec(topology="0,1,2|3", rounds=6, liars=liars, defence=DEFENCES[name])
    (simulated,) = run(spec)
    with fleet_of(spec, tmp_path / "run") as fleet:
        fleet.until_the_end()
    collect(fleet.launcher.directory, spec, fleet.data, fleet.survivors)

    lines = decode_records((tmp_path / "run" / "records.jsonl").read_bytes().splitlines())
    rounds = [line for line in lines if isinstance(line, RoundClosed)]
    assert [(line.version, line.n_samples) for line in rounds] == [
        (line.version, line.n_samples) for line in closed(simulated)
    ]
    real = safetensors.numpy.load_file(tmp_path / "run" / "model.safetensors")
    for tensor_name, tensor in model_of(simulated).tensors().items():
        np.testing.assert_allclose(real[tensor_name], tensor, rtol=0, atol=1e-5)
