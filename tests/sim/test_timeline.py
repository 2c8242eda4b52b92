"""Virtual time: how long a round lasts, what a crash costs, and that none of it touches a model."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from tests.sim.fleets import FULL_BATCH, closed, ended, simulated, some_data
from tolfl.core.deferred_sum import deferred_merge
from tolfl.core.failures import FailurePlan
from tolfl.core.records import RunEnded
from tolfl.core.spec import DefenceSpec, LinkModel, RunSpec, Timing
from tolfl.core.topology import Topology
from tolfl.protocol.device import Rules
from tolfl.protocol.history import Roster
from tolfl.sim.deferred import DeferredState
from tolfl.sim.timeline import Timeline
from tolfl.sim.world import LinkClock, World

N = 12
DATA = some_data([4] * N)
C, TAU, LATENCY = 4.0, 1.0, 0.25  #: training, one model (24 bytes at 192 bit/s), latency
LINKS = LinkModel(latency_s=LATENCY, bandwidth_bps=192.0, seconds_per_sample=1.0)
SPEC = RunSpec(data="blobs", devices=N, clusters=3, rounds=3, train=FULL_BATCH, links=LINKS)

HOP = TAU + LATENCY


def changed(**changes: object) -> RunSpec:
    return msgspec.structs.replace(SPEC, **changes)


def durations(spec: RunSpec) -> list[float]:
    times = [0.0, *(record.time_s for record in closed(simulated(spec, DATA)))]
    return [later - earlier for earlier, later in pairwise(times)]


def in_cluster(size: int, uplink: str) -> float:
    """From the end of training until a head has everybody's contribution."""
    if size == 1:
        return 0.0
    return (TAU if uplink == "parallel" else (size - 1) * TAU) + LATENCY


@pytest.mark.parametrize("uplink", ["serial", "parallel"])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 6, 12])
def test_a_round_lasts_as_long_as_training_uplinks_chain_and_distribution(k: int, uplink: str) -> None:
    first, *later = durations(changed(clusters=k, links=msgspec.structs.replace(LINKS, uplink=uplink)))
    collected_and_chained = C + in_cluster(N // k, uplink) + (k - 1) * HOP
    # The model goes to the heads, and from them to their members: to the slowest device that is one hop or two.
    distribution = HOP if k in (1, N) else 2 * HOP

    assert first == pytest.approx(collected_and_chained, rel=1e-12)
    assert later == pytest.approx([distribution + collected_and_chained] * 2, rel=1e-12)


def test_with_serial_uplinks_a_chain_of_about_the_root_of_n_is_quickest() -> None:
    by_k = {k: durations(changed(clusters=k))[0] for k in (1, 2, 3, 4, 6, 12)}

    assert min(by_k, key=lambda k: by_k[k]) in (3, 4)


def test_the_slowest_device_and_more_epochs_set_the_pace() -> None:
    longer = some_data([4] * (N - 1) + [9])
    slow = simulated(changed(clusters=N), longer)
    twice = durations(changed(clusters=1, train=msgspec.structs.replace(FULL_BATCH, epochs=2)))

    assert closed(slow)[0].time_s == pytest.approx(max(9.0, C + (N - 1) * HOP), rel=1e-12)
    assert twice[0] == pytest.approx(2 * C + in_cluster(N, "serial"), rel=1e-12)


def test_batch_training_takes_the_time_of_all_samples_and_no_messages() -> None:
    result = simulated(changed(scheme="batch"), DATA)

    assert result.summary["bytes"] == 0
    assert closed(result)[0].time_s == pytest.approx(N * C, rel=0.02)


@pytest.mark.parametrize("timing", ["localhost", "lan", "wireless"])
def test_a_head_that_dies_before_passing_on_costs_its_detection_and_a_second_report(timing: str) -> None:
    result = simulated(changed(clusters=1, fail="server@1/chain", on_head_failure="elect", timing=timing), DATA)
    detection = Timing.preset(timing).crash_detection_s
    redo = in_cluster(N - 1, "serial")

    assert [record.stall_s for record in closed(result)] == pytest.approx([0, detection + redo, 0], abs=1e-9)
    assert result.summary["stall_s"] == pytest.approx(detection + redo)


def test_a_member_that_dies_early_is_noticed_before_anybody_waits_for_it() -> None:
    result = simulated(changed(clusters=3, fail="client@1"), DATA)

    assert [record.stall_s for record in closed(result)] == [0.0] * 3


def test_a_cut_stalls_until_silence_is_taken_for_death() -> None:
    result = simulated(changed(clusters=1, rounds=3, fail="cut:11@1"), DATA)
    silence = Timing.localhost().silence_detection_s

    assert silence < C
    assert result.summary["stall_s"] == pytest.approx(0.0, abs=silence)


def test_a_failure_free_run_never_stalls() -> None:
    assert simulated(SPEC, DATA).summary["stall_s"] == 0.0


@pytest.mark.parametrize("fail", ["", "server@1/chain", "device:5@1-2"])
def test_virtual_time_does_not_touch_the_model(fail: str) -> None:
    links = [
        LINKS,
        LinkModel(),
        LinkModel(uplink="parallel", speed_spread=9.0),
        LinkModel(latency_s=3.0, seconds_per_sample=0.01),
    ]
    spec = changed(fail=fail, rounds=6 if "-" in fail else 3)
    results = [simulated(msgspec.structs.replace(spec, links=link, timing="wireless"), DATA) for link in links]
    before_return = [[r.loss for r in closed(result)][:2] for result in results]

    assert all(losses == before_return[0] for losses in before_return)
    if "-" not in fail:  # when a device is let in again is a matter of time
        assert len({result.summary["model_sha256"] for result in results}) == 1
    assert len({ended(result).time_s for result in results}) == len(links)


def test_a_receiver_takes_one_model_at_a_time_and_small_messages_pass_between() -> None:
    clock = LinkClock(LINKS)

    assert clock.arrival(0.0, 1, 24, has_model=True) == TAU + LATENCY
    assert clock.arrival(0.0, 1, 24, has_model=True) == 2 * TAU + LATENCY
    assert clock.arrival(0.5, 1, 0, has_model=False) == 0.5 + LATENCY
    assert clock.arrival(0.0, 2, 24, has_model=True) == TAU + LATENCY
    assert clock.arrival(9.0, 1, 24, has_model=True) == 9.0 + TAU + LATENCY


def test_parallel_uplinks_never_wait() -> None:
    clock = LinkClock(msgspec.structs.replace(LINKS, uplink="parallel"))

    assert [clock.arrival(0.0, 1, 24, has_model=True) for _ in range(3)] == [TAU + LATENCY] * 3


def test_a_heartbeat_to_a_device_that_is_not_in_the_world_is_lost() -> None:
    """Durations without failures are played with fewer devices than the fleet has, and heartbeats go to outsiders."""
    rules = Rules(Topology.contiguous(3, 1), 2, deferred_merge(DefenceSpec()))
    nbytes = ((24, 24), (24, 24))
    world = World(rules, (4,) * 3, (4,) * 3, (C,) * 3, nbytes, LINKS, Timing.preset("lan"), "tolfl")
    timeline = Timeline(world, FailurePlan(), DeferredState(None, None, None), Roster({0: 0, 1: 0}), by_events=True)
    timeline._tick_everybody(0.1)

    assert [record.reason for record in timeline.play() if isinstance(record, RunEnded)] == ["over"]
