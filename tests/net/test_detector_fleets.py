"""Fleets of real processes that learn anything: whoever dies, and whenever, all that are left have the same bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Command
from tests.cli.test_captures import traffic
from tests.net.fleet_processes import Fleet, fleet_of, kill_all, running_up, small_spec, wait_until
from tests.net.own_tables import COLUMNS, SCHEMA, OwnTables, own_tables
from tests.net.replay import lines_of_devices
from tolfl.core.records import Traffic
from tolfl.core.spec import DatasetSpec, RunSpec
from tolfl.detect import Detector
from tolfl.detect.detector_learner import DETECTOR_FILE
from tolfl.net.collect import collect
from tolfl.sim.simulation import run

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
    learn = {"what": "detector", **fields.pop("learn", {})}  # type: ignore[dict-item]
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
STAGES = {
    "medians": "scaling:2",
    "spread": "scaling:4",
    "cells": "cells:6",
    "scatter": "scatter:0",
    "thresholds": "thresholds:0",
}
PHASES = ("train", "report", "chain", "distribute")
QUICK = [
    ("member", "thresholds", "report"),
    ("head", "cells", "chain"),
    ("closer", "medians", "distribute"),
    ("head", "scatter", "train"),
]


@pytest.mark.parametrize(
    ("who", "stage", "phase"),
    [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in product(WHO, STAGES, PHASES)],
)
def test_whoever_dies_as_planned_leaves_the_others_with_the_simulated_detector(
    who: str, stage: str, phase: str, tmp_path: Path
) -> None:
    spec = detector_spec(tmp_path, f"{WHO[who]}@{STAGES[stage]}/{phase}")
    fleet = run_to_the_end(spec, tmp_path / "run")

    dead = {"member": 1, "head": 0, "closer": 2}[who]
    assert fleet.survivors == [device for device in range(4) if device != dead]
    (left,) = files_of(tmp_path / "run", fleet.survivors)
    assert left == simulated_file(spec, tmp_path / "simulated")
    assert fleet.launcher.view.rounds == fleet.rounds_done
    assert [name for name, _ in fleet.launcher.view.stages][-4:] == ["scaling", "cells", "scatter", "thresholds"]


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


# -- tables of their own --------------------------------------------------------------------------------------------


def check_survivors(fleet: OwnTables, killed: int, tolfl: Command) -> None:
    """Check that all but one have the same detector, that it can be used, and that records lead to it."""
    ends = fleet.ends()
    survivors = [device for device in fleet.devices if device != killed]
    for device in survivors:
        status, said = ends[device]
        assert (status, said.splitlines()[-1].rpartition("tolfl: ")[2]) == (0, f"device {device}: over"), said
    (left,) = {fleet.file_of(device) for device in survivors}
    assert left == fleet.replayed_file(survivors[0])
    code, _, said = tolfl(
        "score", str(fleet.state(survivors[0]) / DETECTOR_FILE), str(fleet.state(killed) / "table.csv")
    )
    assert code == 0, said


def test_tables_of_three_devices_lead_to_one_detector_though_one_is_killed(tolfl: Command, tmp_path: Path) -> None:
    with own_tables(tmp_path, 3, {"model": "autoencoder"}, rounds=30) as fleet:
        fleet.start()
        wait_until(lambda: fleet.n_closed() >= 5, "five rounds are closed")
        fleet.processes[1].kill()
        check_survivors(fleet, 1, tolfl)

    assert len(fleet.rows_of(0)) == 60
    schema = Detector.load(fleet.state(0) / DETECTOR_FILE).schema
    assert schema is not None
    assert (schema.form, schema.features) == (SCHEMA, COLUMNS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_device_with_its_own_table_is_killed_at_any_moment(seed: int, tolfl: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    n_devices = int(rng.choice([3, 6]))
    killed, pause_s = int(rng.integers(n_devices)), float(rng.uniform(0, 2.0))
    model = ("cells", "pca", "autoencoder")[seed % 3]
    with own_tables(tmp_path, n_devices, {"model": model}, rounds=30, seed=seed) as fleet:
        fleet.start()
        # From the first line that somebody writes on: before it nobody has found the others.
        wait_until(lambda: any(fleet.folder.glob("devices/*/records.jsonl")), "somebody has begun")
        time.sleep(pause_s)
        fleet.processes[killed].kill()
        check_survivors(fleet, killed, tolfl)


# -- power cuts and returns -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "stage"),
    [
        ("autoencoder", "scaling"),
        ("autoencoder", "autoencoder"),
        ("cells", "cells"),
        ("cells", "thresholds"),
        ("pca", "statistics"),
    ],
)
def test_a_run_goes_on_after_a_power_cut_in_any_stage(model: str, stage: str, tolfl: Command, tmp_path: Path) -> None:
    spec = detector_spec(tmp_path, learn={"model": model}, rounds=20)
    path = tmp_path / "spec.toml"
    path.write_text(spec.to_toml())
    with running_up(tmp_path, str(path)) as up:
        wait_until(lambda: _has_closed(up.out, stage), f"a round of {stage} is closed")
        kill_all([up.process.pid, *up.devices()])
        wait_until(lambda: not up.devices(), "what was killed is gone")
    code, _, said = tolfl("up", "--out", str(up.out), "--resume", "--format", "json")

    assert code == 0, said
    left = files_of(up.out, range(4)) | {(up.out / DETECTOR_FILE).read_bytes()}
    assert left == {simulated_file(spec, tmp_path / "simulated")}


def _has_closed(out: Path, stage: str) -> bool:
    paths = (out / "devices").glob("*/records.jsonl")
    return any(f'"stage":"{stage}"'.encode() in path.read_bytes() for path in paths)


@pytest.mark.slow
@pytest.mark.parametrize("device", [1, 2], ids=["member", "closer"])
def test_a_device_that_is_started_again_by_hand_ends_with_the_file_of_all(device: int, tmp_path: Path) -> None:
    with own_tables(tmp_path, 4, {"model": "autoencoder"}, rounds=600) as fleet:
        fleet.start()
        wait_until(lambda: fleet.n_closed() >= 10, "ten rounds are closed")
        fleet.processes[device].kill()
        fleet.processes[device].communicate()
        fleet.start(device)
        ends = fleet.ends()

    assert {code for code, _ in ends.values()} == {0}
    (left,) = {fleet.file_of(one) for one in fleet.devices}
    assert left == fleet.replayed_file(device)
    (training,) = Detector.load(fleet.state(device) / DETECTOR_FILE).trainings
    (share,) = [one for one in training.devices if one.name == f"site-{device}"]
    assert 10 < share.rounds < training.rounds


# -- learners of one's own ------------------------------------------------------------------------------------------

KMEANS = '''
"""k-means over a fleet: each device adds up its rows by nearest centre; no row leaves its device."""

import numpy as np

from tolfl.learners import Learner


class KMeans(Learner):
    def __init__(self, fleet):
        self.k, self.rounds, self.fleet = 4, fleet.spec.rounds, fleet

    def start(self, state):
        centres = np.random.default_rng(self.fleet.seed).random((self.k, self.fleet.n_features))
        return {**state, "centres": centres.ravel()}

    def contribute(self, turns):
        return [self.sums(turn) for turn in turns]

    def sums(self, turn):
        centres = turn.state["centres"].reshape(self.k, -1)
        nearest = np.square(turn.rows[:, None] - centres).sum(axis=2).argmin(axis=1)
        is_nearest = nearest[:, None] == np.arange(self.k)
        sums = is_nearest.T.astype(float) @ turn.rows
        return {"sums": turn.total(sums.ravel()), "counts": turn.total(is_nearest.sum(axis=0))}

    def apply(self, state, total, closing):
        if "sums" not in total.parts:
            return state
        sums, counts = total.parts["sums"].vector.reshape(self.k, -1), total.parts["counts"].vector[:, None]
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), state["centres"].reshape(self.k, -1))
        return {**state, "centres": centres.ravel()}
'''

MODULE = '''
"""A module of one's own with a loss of one's own."""

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tolfl.learners import Learner


def loss(module, rows):
    return nn.functional.smooth_l1_loss(module(rows), rows)


class Own(Learner):
    def __init__(self, fleet):
        self.rounds, self.fleet = fleet.spec.rounds, fleet

    def module(self):
        n = self.fleet.n_features
        return nn.Sequential(nn.Linear(n, 3), nn.Tanh(), nn.Linear(3, n))

    def start(self, state):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.fleet.seed)
            return {**state, "weights": parameters_to_vector(self.module().parameters()).detach().numpy()}

    def contribute(self, turns):
        return [self.step(turn) for turn in turns]

    def step(self, turn):
        module = self.module()
        vector_to_parameters(torch.tensor(turn.state["weights"]), module.parameters())
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        error = loss(module, torch.tensor(turn.rows))
        error.backward()
        optimiser.step()
        weights = parameters_to_vector(module.parameters()).detach().numpy()
        return {"delta": turn.mean(weights - turn.state["weights"], loss=error.item())}

    def apply(self, state, total, closing):
        if "delta" not in total.parts:
            return state
        return {**state, "weights": state["weights"] + total.parts["delta"].mean}
'''


@pytest.mark.parametrize(
    ("code", "name"),
    [pytest.param(KMEANS, "KMeans", id="k-means"), pytest.param(MODULE, "Own", id="module", marks=pytest.mark.slow)],
)
def test_a_learner_of_ones_own_survives_a_head_as_in_the_simulator(code: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(code)
    learn = {"what": f"{tmp_path / 'mine.py'}:{name}"}
    spec = small_spec(4, 2, rounds=6, fail="head@2/chain", learn=learn)
    (simulated,) = run(spec)
    fleet = run_to_the_end(spec, tmp_path / "run")
    summary = collect(fleet.launcher.directory, spec, fleet.data, fleet.survivors)

    assert summary["survivors"] == [1, 2, 3]
    assert summary["state_digest"] == simulated.summary["state_digest"] is not None


# -- traffic --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_detector_of_ten_devices_with_112_features_moves_less_than_six_megabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(20, 112))
    lines = ["site," + ",".join(f"c{place}" for place in range(112))]
    for site in range(10):
        rows = rng.normal(size=(100, 20)) @ mixed + 0.3 * rng.normal(size=(100, 112))
        lines += [f"s{site}," + ",".join(f"{value:.4f}" for value in row) for row in rows]
    (tmp_path / "wide.csv").write_text("\n".join(lines) + "\n")
    flags = ["--learn", "detector", "--data", str(tmp_path / "wide.csv"), "--device-column", "site", "--timing", "lan"]
    with running_up(tmp_path, *flags, "--devices", "10", "--clusters", "5") as up:
        code, _, said = up.result()

    assert code == 0, said
    summary = json.loads((up.out / "summary.json").read_bytes())
    # On a busy machine a device may pull a whole state that it has not heard of in time: each is counted once.
    sent: dict[tuple[object, ...], int] = {}
    for line in (one for one in lines_of_devices(up.out) if isinstance(one, Traffic)):
        for to, kind, n_bytes in line.sent:
            key = (line.history, to, kind, None if kind == "model" else line.device)
            sent[key] = min(n_bytes, sent.get(key, n_bytes))
    print(f"{summary['bytes']} bytes, {sum(sent.values())} of them once, {summary['control_bytes']} of small messages")
    assert 1_000_000 < sum(sent.values()) < 6_000_000


@pytest.mark.slow
def test_a_fleet_on_captures_leaves_the_simulators_detector(tmp_path: Path) -> None:
    """Their columns may have no value at all on a device, and are told as numbers that others take."""
    for place, name in enumerate(("north", "south", "west")):
        traffic(tmp_path / "site" / f"{name}.pcap", place, 80)
    spec = RunSpec(
        data=str(tmp_path / "site"), devices=3, clusters=3, timing="lan", fail="server@19", learn={"what": "detector"}
    )
    (simulated,) = run(spec)

    with fleet_of(spec, tmp_path / "run") as fleet:
        fleet.until_the_end()
    summary = collect(fleet.launcher.directory, spec, fleet.data, fleet.survivors)

    assert summary["state_digest"] == simulated.summary["state_digest"]
    assert len(files_of(tmp_path / "run", fleet.survivors)) == 1
