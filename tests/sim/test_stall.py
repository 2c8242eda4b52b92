"""What a failure costs in time, whatever kind of record it leaves in between."""

from __future__ import annotations

import pytest

from tolfl.core.records import FailureHappened, Joined, RoundClosed
from tolfl.core.spec import BlobsSpec, LinkModel, ModelSpec, RunSpec, Timing
from tolfl.sim.simulation import Run, run

SMALL = {"model": ModelSpec(hidden=(4,), code=2), "blobs": BlobsSpec(samples_per_device=5, n_features=4, n_test=10)}


def simulated(**fields: object) -> Run:
    return run(RunSpec(data="blobs", **{"devices": 6, "clusters": 3, "rounds": 8, **SMALL, **fields}))[0]  # type: ignore[arg-type]


def stalls(result: Run) -> dict[int, float]:
    closed = [record for record in result.records if isinstance(record, RoundClosed)]
    return {record.round or 0: record.stall_s for record in closed if record.stall_s > 1e-9}


def test_a_round_that_waited_for_a_cut_to_heal_says_so() -> None:
    result = simulated(min_devices=6, fail="cut:0@3-5")
    closed = {record.round: record.time_s for record in result.records if isinstance(record, RoundClosed)}

    assert stalls(result)[3] == pytest.approx(closed[3] - closed[2] - (closed[1] - closed[0]), rel=0.05)
    assert any("nobody could go on" in r.what for r in result.records if isinstance(r, FailureHappened))
    assert any(isinstance(record, Joined) for record in result.records)


def test_every_device_that_goes_on_alone_has_waited_for_the_detection() -> None:
    result = simulated(scheme="fl", fail="server@3", timing="wireless")
    first_alone = [record for record in result.records if isinstance(record, RoundClosed) and record.round == 3]

    assert len(first_alone) == 5
    assert all(record.stall_s > 0.8 * Timing.wireless().crash_detection_s for record in first_alone)


def test_a_cut_without_an_end_is_not_healed() -> None:
    result = simulated(fail="cut:0@2", min_devices=4)

    assert not any("healed" in r.what for r in result.records if isinstance(r, FailureHappened))


def test_a_device_that_everybody_waits_for_comes_back() -> None:
    result = simulated(fail="device:3@2-4", min_devices=6)

    assert result.summary["ended"] == "over"
    assert any("came back (nobody could go on)" in r.what for r in result.records if isinstance(r, FailureHappened))


@pytest.mark.parametrize("timing", ["lan", "wireless"])
@pytest.mark.parametrize("device", [0, 6, 11])
@pytest.mark.parametrize("phase", ["train", "report", "chain", "distribute"])
def test_a_death_in_a_long_chain_stalls_it_for_the_detection_and_no_longer(
    phase: str, device: int, timing: str
) -> None:
    """Twelve devices in twelve clusters; the closer that dies in `/distribute` has told one head of eleven."""
    result = simulated(devices=12, clusters=12, fail=f"device:{device}@3/{phase}", timing=timing)
    detection_s = Timing.preset(timing).crash_detection_s

    assert result.summary["rounds_lost"] == (1 if (device, phase) == (11, "distribute") else 0)
    assert stalls(result)
    assert max(stalls(result).values()) < detection_s + 4 * LinkModel().latency_s


@pytest.mark.parametrize("clusters", [2, 3, 4, 6, 12])
def test_a_closer_that_dies_while_distributing_costs_one_round_of_work_at_most(clusters: int) -> None:
    closer = 12 - 12 // clusters
    result = simulated(devices=12, clusters=clusters, fail=f"device:{closer}@3/distribute", timing="lan")

    rounds_lost = result.summary["rounds_lost"]
    assert isinstance(rounds_lost, int)
    assert rounds_lost <= 1
    assert max(stalls(result).values()) < Timing.preset("lan").crash_detection_s + 4 * LinkModel().latency_s


def test_a_fleet_that_stays_split_says_so() -> None:
    result = simulated(fail="cut:0,1@2")

    assert result.summary["ended"] == "over, in 2 branches that a cut keeps apart"
