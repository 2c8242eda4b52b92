"""Devices that come back, partitions that heal, stragglers and fleets too small to train."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tests.sim.fleets import FULL_BATCH, FastMean, Mean, closed, ended, finished, params, simulated, some_data
from tests.sim.test_failures import history
from tolfl.core.records import FailureHappened, Joined
from tolfl.core.spec import BlobsSpec, LinkModel, RunSpec
from tolfl.sim.simulation import Run, Runs, run
from tolfl.sim.world import training_speeds

N = 6
EVERYBODY = tuple(range(N))
DATA = some_data([3, 4, 5, 2, 6, 4], with_test=True)
#: Rounds that last longer than a heartbeat: what heals is noticed before the run is over.
BUSY = LinkModel(seconds_per_sample=0.05)
SPEC = RunSpec(data="blobs", devices=N, clusters=3, rounds=8, train=FULL_BATCH, links=BUSY)


def changed(**changes: object) -> RunSpec:
    return msgspec.structs.replace(SPEC, **changes)


def played(spec: RunSpec) -> tuple[Run, dict[int, str]]:
    """Return a run and the version that each live device holds at its end."""
    runs = Runs(spec, DATA, FastMean(Mean(3)))
    result = finished(runs)[0]
    held = {
        end.device: str(end.record.version)
        for end in runs.simulations[0].timeline.ends()
        if end.stopped != "dropped" and not end.is_private
    }
    return result, held


def happened(result: Run) -> list[tuple[int | None, int | None, str]]:
    return [(r.device, r.round, r.what) for r in result.records if isinstance(r, FailureHappened)]


# -- returns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, N])
@pytest.mark.parametrize("device", [0, 1, 3, 5])
@pytest.mark.parametrize("phase", ["train", "report", "chain", "distribute"])
def test_a_device_that_returns_is_let_in_and_all_hold_one_version(k: int, device: int, phase: str) -> None:
    result, held = played(changed(clusters=k, fail=f"device:{device}@2-4/{phase}"))

    rounds = history(result)
    assert len(set(held.values())) == 1
    assert set(held) == set(EVERYBODY)
    assert ended(result).reason == "over"
    assert len(rounds) == SPEC.rounds
    assert rounds[3].included == tuple(d for d in EVERYBODY if d != device)
    assert [record.included for record in rounds[-2:]] == [EVERYBODY] * 2
    assert rounds[2].included == (EVERYBODY if device in rounds[2].included else rounds[3].included)


def test_a_return_is_written_down_as_a_new_life() -> None:
    result, _ = played(changed(fail="device:3@2-4"))
    joined = [record for record in result.records if isinstance(record, Joined)]

    assert happened(result) == [(3, 2, "died (train)"), (3, 4, "came back")]
    assert [(record.device, record.incarnation) for record in joined] == [(3, 1)]
    first_back = next(r for r in closed(result)[4:] if 3 in r.included)
    assert joined[0].round is not None
    assert first_back.round == joined[0].round


def test_a_head_that_died_before_its_record_left_does_not_bring_it_back() -> None:
    """The round it closed in its last breath never happened: nobody was told, and it is out of that round."""
    for rounds, k in ((3, 1), (6, 1), (6, 2), (6, N)):
        closer = 0 if k == 1 else 3 if k == 2 else 5
        result, held = played(changed(rounds=rounds, clusters=k, fail=f"device:{closer}@2-3/chain"))

        assert closer not in history(result)[2].included
        assert len(set(held.values())) == 1


def test_a_server_that_returns_to_isolated_devices_goes_on_alone() -> None:
    result, _ = played(changed(scheme="fl", fail="server@2-4/chain"))

    assert ended(result).survivors == EVERYBODY
    assert {f"device-{device}" for device in EVERYBODY[1:]} <= set(result.models)


def test_a_device_may_die_and_return_more_than_once() -> None:
    result, held = played(changed(rounds=12, fail="device:3@1-3; device:3@5-7; device:3@9"))

    assert set(held) == {0, 1, 2, 4, 5}
    assert [3 in record.included for record in history(result)][-3:] == [False] * 3
    assert [record.incarnation for record in result.records if isinstance(record, Joined)] == [1, 2]


def test_everybody_may_die_but_one_and_return() -> None:
    result, held = played(changed(rounds=10, fail="device:1,2,3,4,5@2-5"))

    rounds = history(result, private=True)
    assert [record.included for record in rounds[2:5]] == [(0,)] * 3
    assert rounds[-1].included == EVERYBODY
    assert len(set(held.values())) == 1


@pytest.mark.parametrize("policy", ["drop", "freeze"])
def test_members_of_a_dropped_cluster_do_not_return_with_their_head(policy: str) -> None:
    result, _ = played(changed(fail="server@2-4", on_head_failure=policy))

    assert all(1 not in record.included for record in history(result)[2:])
    assert len(history(result)) == SPEC.rounds


# -- partitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, N])
@pytest.mark.parametrize("cut", ["cut:0,1,2|3,4,5@2-4", "cut:0|1,2,3,4,5@2-5", "cut:1,3,5|0,2,4@1-3", "cut:5@2-4"])
def test_a_partition_that_heals_leaves_one_history(k: int, cut: str) -> None:
    result, held = played(changed(clusters=k, rounds=10, fail=cut))

    assert len(set(held.values())) == 1
    assert set(held) == set(EVERYBODY)
    assert ended(result).reason == "over"
    for record in closed(result):
        assert record.n_samples == sum(DATA.n_samples(device) for device in record.included)
        assert len(set(record.included)) == len(record.included)
    assert history(result)[-1].included == EVERYBODY


@pytest.mark.parametrize(
    ("k", "cut"),
    [
        (2, "cut:0,2,1,5@10-11"),
        (2, "cut:3,4@10-15"),
        (1, "cut:3,4,5@10-13"),
        (2, "cut:0,1,3,5@10-18"),
        (3, "cut:0,1@10-15"),
    ],
)
def test_sides_that_a_cut_has_kept_apart_soon_train_together_again(k: int, cut: str) -> None:
    """By heartbeats, as real devices do: whoever missed who went on with whom would not learn of it otherwise."""
    blobs = BlobsSpec(samples_per_device=4, n_features=6, n_test=8)
    (result,) = run(RunSpec(data="blobs", devices=N, clusters=k, rounds=60, fail=cut, blobs=blobs))

    assert {record.included for record in history(result)[40:]} == {EVERYBODY}


def test_rounds_of_the_lighter_side_are_written_down_and_not_in_the_history() -> None:
    result, held = played(changed(clusters=2, rounds=10, fail="cut:0,1|2,3,4,5@2-4"))
    work = int(next(iter(held.values())).split(".")[0])
    by_round = [[r.n_samples for r in closed(result) if r.round == index] for index in range(10)]

    assert any(len(sizes) > 1 for sizes in by_round)
    assert work == sum(max(sizes) for sizes in by_round)
    assert work < sum(sum(sizes) for sizes in by_round)


def test_a_cut_and_its_healing_are_written_down() -> None:
    result, _ = played(changed(fail="cut:0,1|2,3,4,5@2-4"))

    assert happened(result) == [(None, 2, "cut 0,1 | 2,3,4,5"), (None, 4, "healed 0,1 | 2,3,4,5")]


def test_a_majority_rule_keeps_the_smaller_side_from_training() -> None:
    result, held = played(changed(rounds=8, min_devices=4, fail="cut:0,1|2,3,4,5@2-5"))

    assert all(len(record.included) >= 4 for record in closed(result))
    assert len({record.round for record in closed(result)}) == 8
    assert len(set(held.values())) == 1


def test_a_partition_that_never_heals_lets_both_sides_finish() -> None:
    result, held = played(changed(clusters=2, fail="cut:0,1,2|3,4,5@2"))

    assert len(set(held.values())) == 2
    assert result.summary["rounds_done"] == SPEC.rounds
    heavier = max(held.values(), key=lambda version: int(version.split(".")[0]))
    assert {device for device, version in held.items() if version == heavier} == {0, 1, 2} or {
        device for device, version in held.items() if version == heavier
    } == {3, 4, 5}


# -- stragglers -------------------------------------------------------------------------------------------------------

SLOW = LinkModel(seconds_per_sample=0.1, speed_spread=3.0)


def test_devices_past_the_deadline_are_late_and_stay_in_the_roster() -> None:
    same_size = some_data([4] * N, with_test=True)
    speeds = training_speeds(SLOW, N, seed=0)
    slowest = 4 * SLOW.seconds_per_sample / min(speeds)
    spec = changed(clusters=1, rounds=4, links=SLOW, deadline_s=slowest * 0.8)
    result = simulated(spec, same_size)
    # The head waits for itself at least as long as its own training lasts.
    late = {d for d in EVERYBODY[1:] if 4 * SLOW.seconds_per_sample / speeds[d] > slowest * 0.8}

    rounds = closed(result)
    assert late
    assert all(set(record.missing) == {str(device) for device in late} for record in rounds)
    assert all(set(record.missing.values()) == {"late"} for record in rounds)
    assert all(set(record.included) == set(EVERYBODY) - late for record in rounds)
    assert ended(result).survivors == EVERYBODY
    assert result.summary["rounds_done"] == 4


def test_a_generous_deadline_changes_nothing() -> None:
    spec = changed(clusters=2, rounds=3, links=SLOW)
    without, generous = simulated(spec, DATA), simulated(msgspec.structs.replace(spec, deadline_s=1000.0), DATA)

    assert generous.summary["model_sha256"] == without.summary["model_sha256"]
    assert [r.missing for r in closed(generous)] == [{}] * 3


def test_speeds_are_drawn_once_per_seed_and_only_slow_devices_down() -> None:
    speeds = training_speeds(LinkModel(speed_spread=3.0), 500, seed=1)

    assert (
        speeds
        == training_speeds(LinkModel(speed_spread=3.0), 500, seed=1)
        != training_speeds(LinkModel(speed_spread=3.0), 500, seed=2)
    )
    assert 0.25 <= min(speeds) < 0.3
    assert 0.9 < max(speeds) <= 1.0
    assert training_speeds(LinkModel(), 3, seed=1) == [1.0] * 3


# -- too few ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["elect", "drop"])
def test_below_the_minimum_nobody_trains_and_the_run_says_so(policy: str) -> None:
    spec = changed(clusters=3, min_devices=5, fail="client@2; device:3@4", on_head_failure=policy)
    result = simulated(spec, DATA)
    until = simulated(changed(clusters=3, rounds=4, fail="client@2"), DATA)

    assert ended(result).reason.startswith("halted: too few")
    assert result.summary["rounds_done"] == 4
    assert np.array_equal(params(result), params(until))


def test_a_halted_fleet_gets_back_whoever_would_return_later() -> None:
    """A return is counted in updates, and a fleet that makes none would wait for ever."""
    result = simulated(changed(min_devices=6, fail="device:3@2-4"), DATA)

    assert ended(result).reason == "over"
    assert (3, 2, "came back (nobody could go on)") in happened(result)


def test_too_few_samples_halt_a_run_too() -> None:
    result = simulated(changed(min_samples=20, fail="device:4@3"), DATA)

    assert result.summary["rounds_done"] == 3
    assert ended(result).reason.startswith("halted")


@pytest.mark.parametrize("min_devices", [1, 4])
def test_a_device_on_its_own_trains_whatever_the_fleet_would_need(min_devices: int) -> None:
    spec = changed(scheme="fl", min_devices=min_devices, rounds=4, fail="server@2")
    result = simulated(spec, DATA)

    assert ended(result).reason == "over"
    assert {record.round for record in closed(result)} == {0, 1, 2, 3}


def test_a_device_on_its_own_without_samples_does_not_halt_the_others() -> None:
    slices = some_data([3, 0, 5, 2, 6, 4])
    result = simulated(changed(clusters=3, rounds=4, fail="server@2", on_head_failure="isolate"), slices)

    assert ended(result).reason == "over"
    assert np.array_equal(params(result, "device-1"), params(simulated(changed(clusters=3, rounds=2), slices)))
