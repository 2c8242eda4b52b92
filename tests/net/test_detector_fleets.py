"""Fleets of real processes that learn anything: whoever dies, and whenever, all that are left have the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.net.fleet_processes import Fleet, fleet_of, small_spec
from tolfl.core.spec import DatasetSpec, RunSpec
from tolfl.detect.detector_learner import DETECTOR_FILE
from tolfl.net.collecting import collect
from tolfl.sim.run import run

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

SITES = ("kiln", "mill", "oven", "press", "saw", "tank")


def readings(folder: Path, n_sites: int = 4, n_rows: int = 60) -> Path:
    """Write a table of sites with columns of numbers and one of words; return where it is."""
    rng = np.random.default_rng(5)
    lines = ["site,warm,flow,load,mode"]
    for site in SITES[:n_sites]:
        numbers = rng.normal(rng.normal(size=3), 1.0, size=(n_rows, 3))
        modes = rng.choice(["eco", "full"], n_rows)
        lines += [f"{site},{a:.4f},{b:.4f},{c:.4f},{mode}" for (a, b, c), mode in zip(numbers, modes, strict=True)]
    path = folder / "readings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def detector_spec(folder: Path, fail: str = "", n_sites: int = 4, **fields: object) -> RunSpec:
    """Return a run of sites that learn a detector, two in a cluster: 0 and 2 are heads, the last one closes."""
    learn = {"what": "detector", "model": "mahalanobis", **fields.pop("learn", {})}  # type: ignore[dict-item]
    return RunSpec(
        data=str(readings(folder, n_sites)),
        dataset=DatasetSpec(device_column="site"),
        devices=n_sites,
        clusters=n_sites // 2,
        timing="lan",
        fail=fail,
        learn=learn,
        **fields,  # type: ignore[arg-type]
    )


def files_of(out: Path, devices: Iterable[int]) -> set[bytes]:
    """Return the different detectors that devices have left."""
    return {(out / "devices" / str(device) / DETECTOR_FILE).read_bytes() for device in devices}


def simulated_file(spec: RunSpec, out: Path) -> bytes:
    """Return the detector that the simulator leaves."""
    run(spec, out=out)
    return (out / DETECTOR_FILE).read_bytes()


def run_to_the_end(spec: RunSpec, out: Path) -> Fleet:
    """Let real processes run over TLS until all have ended."""
    with fleet_of(spec, out, is_insecure=False) as fleet:
        fleet.until_the_end()
    return fleet


# -- whoever dies as planned, in any stage --------------------------------------------------------------------------

WHO = {"member": "device:1", "head": "head", "closer": "closer"}
STAGES = {"scaling": "scaling:0", "statistics": "statistics:0", "thresholds": "thresholds:2"}
PHASES = ("train", "report", "chain", "distribute")
QUICK = [("member", "thresholds", "report"), ("head", "statistics", "chain"), ("closer", "scaling", "distribute")]


@pytest.mark.parametrize(
    ("who", "stage", "phase"),
    [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in product(WHO, STAGES, PHASES)],
)
def test_whoever_dies_as_planned_leaves_the_others_with_the_simulated_detector(
    who: str, stage: str, phase: str, tmp_path: Path
) -> None:
    model = {"model": "pca", "n_components": 2} if phase in {"train", "chain"} else {"model": "mahalanobis"}
    spec = detector_spec(tmp_path, f"{WHO[who]}@{STAGES[stage]}/{phase}", learn=model)
    fleet = run_to_the_end(spec, tmp_path / "run")

    dead = {"member": 1, "head": 0, "closer": 2}[who]
    assert fleet.survivors == [device for device in range(4) if device != dead]
    (left,) = files_of(tmp_path / "run", fleet.survivors)
    assert left == simulated_file(spec, tmp_path / "simulated")
    assert fleet.launcher.view.rounds == fleet.rounds_done == 8
    assert fleet.launcher.view.stage == "thresholds"


# -- schemes with a model per cluster -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scheme",
    [pytest.param(name, marks=[] if name == "ifca" else [pytest.mark.slow]) for name in ("fedgroup", "ifca", "fesem")],
)
@pytest.mark.parametrize("policy", ["strict", pytest.param("rehome", marks=pytest.mark.slow)])
def test_a_lost_host_is_lost_in_the_network_as_in_the_simulator(scheme: str, policy: str, tmp_path: Path) -> None:
    # Device 2 keeps the second model; 0 is the head of all and goes, too.
    spec = small_spec(
        4, 2, rounds=6, scheme=scheme, on_head_failure=policy, fail="device:2@3/report; device:0@4/distribute"
    )
    run(spec, out=tmp_path / "simulated")
    fleet = run_to_the_end(spec, tmp_path / "run")
    summary = collect(fleet.launcher.directory, spec, fleet.data, fleet.survivors)

    assert summary["survivors"] == [1, 3]
    real, simulated = (
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.safetensors")}
        for name in ("run", "simulated")
    )
    assert real.keys() == simulated.keys() != set()
    assert real == simulated
