"""Failure-free rounds without events give the lines, the ledger and the models of the event player."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.sim.fleets import params, some_data
from tolfl.core.errors import TolFLError
from tolfl.core.spec import BlobsSpec, LinkModel, ModelSpec, RunSpec, TrainSpec
from tolfl.datasets import blobs
from tolfl.learners.layouts import failure_plan
from tolfl.sim import simulation
from tolfl.sim.simulation import Run, Runs
from tolfl.sim.timeline import Timeline


@st.composite
def runs(draw: st.DrawFn) -> tuple[RunSpec, list[int]]:
    devices = draw(st.integers(1, 11))
    sizes = draw(st.lists(st.integers(0, 9), min_size=devices, max_size=devices).filter(any))
    scheme = draw(st.sampled_from(["tol-fl", "fl", "sbt"]))
    topology, clusters = "", draw(st.integers(1, devices))
    if scheme == "tol-fl" and draw(st.booleans()):
        ids = draw(st.permutations(range(devices)))
        edges = sorted(draw(st.sets(st.integers(1, devices), max_size=3)) | {0, devices})
        groups = [ids[first:last] for first, last in pairwise(edges)]
        topology = "|".join(",".join(map(str, group)) for group in groups if group)
    links = LinkModel(
        latency_s=draw(st.sampled_from([0.0, 0.005, 0.1])),
        bandwidth_bps=draw(st.sampled_from([1e4, 1e6, 1e9])),
        uplink=draw(st.sampled_from(["serial", "parallel"])),
        seconds_per_sample=draw(st.sampled_from([0.0, 1e-4, 0.3])),
        speed_spread=draw(st.sampled_from([0.0, 0.7])),
    )
    spec = RunSpec(
        scheme=scheme,
        data="arrays",
        devices=devices,
        clusters=clusters if scheme == "tol-fl" and not topology else None,
        topology=topology,
        rounds=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 3)),
        min_devices=draw(st.sampled_from([1, 1, devices])),
        links=links,
        liars=draw(st.sampled_from(["", "", "0:flip"])) if devices > 1 else "",
        model=ModelSpec(hidden=(3,), code=2),
        train=TrainSpec(lr=0.001, batch_size=draw(st.sampled_from([4, 16]))),
    )
    return spec, sizes


@st.composite
def plans(draw: st.DrawFn) -> tuple[RunSpec, list[int]]:
    """A run of many rounds with failures, returns and cuts here and there."""
    spec, sizes = draw(runs())
    rounds = draw(st.integers(2, 14))

    def entry() -> str:
        first = draw(st.integers(0, rounds - 1))
        last = draw(st.one_of(st.just(""), st.integers(first + 1, rounds).map("-{}".format)))
        phase = draw(st.sampled_from(["", "", "/report", "/chain", "/distribute"]))
        device = draw(st.integers(0, spec.devices - 1))
        who = draw(st.sampled_from([f"device:{device}", "server", "closer", "head", "cut"]))
        if who == "cut" and spec.devices > 1:
            side = draw(st.sets(st.integers(0, spec.devices - 1), min_size=1, max_size=spec.devices - 1))
            return f"cut:{','.join(map(str, sorted(side)))}@{first}{last}"
        return f"{f'device:{device}' if who == 'cut' else who}@{first}{last}{phase}"

    fail = "; ".join(entry() for _ in range(draw(st.integers(1, 3))))
    policy = draw(st.sampled_from(["elect", "drop", "isolate", "freeze"]))
    timing, links = draw(st.sampled_from(["localhost", "lan", "wireless"])), spec.links
    if draw(st.booleans()):  # a record takes longer than to notice a death
        links = msgspec.structs.replace(links, latency_s=7.0)
    drawn = {"rounds": rounds, "fail": fail, "on_head_failure": policy, "timing": timing, "links": links}
    return msgspec.structs.replace(spec, **drawn, liars=""), sizes


def played(spec: RunSpec, sizes: list[int], by_events: bool) -> tuple[Run, int]:
    with pytest.MonkeyPatch.context() as patch:
        if by_events:
            patch.setattr(simulation, "Timeline", partial(Timeline, by_events=True))
        one = Runs(spec, some_data(sizes))
        for _ in one:
            pass
    return one.results[0], one.simulations[0].timeline.n_quiet_rounds


def check_both_ways(spec: RunSpec, sizes: list[int]) -> int:
    """Play a run with and without events, compare everything, and return how many rounds needed none."""
    quiet, n_quiet = played(spec, sizes, by_events=False)
    events, n_none = played(spec, sizes, by_events=True)

    assert n_none == 0
    assert msgspec.to_builtins(quiet.records) == msgspec.to_builtins(events.records)
    assert quiet.ledger.totals() == events.ledger.totals()
    assert quiet.ledger.total_bytes == events.ledger.total_bytes
    assert Counter(quiet.ledger.entries) == Counter(events.ledger.entries)
    assert (quiet.ledger.control_messages, quiet.ledger.control_bytes) == (
        events.ledger.control_messages,
        events.ledger.control_bytes,
    )
    timed = {"seconds_per_round"}
    assert {k: v for k, v in quiet.summary.items() if k not in timed} == {
        k: v for k, v in events.summary.items() if k not in timed
    }
    if quiet.state is not None and events.state is not None:
        np.testing.assert_array_equal(params(quiet).view(np.uint32), params(events).view(np.uint32))
    return n_quiet


@given(run=runs())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_both_ways_give_the_same_lines_ledger_and_models(run: tuple[RunSpec, list[int]]) -> None:
    assert check_both_ways(*run) == run[0].rounds


@given(run=plans())
def test_both_ways_are_the_same_whatever_fails(run: tuple[RunSpec, list[int]]) -> None:
    spec, sizes = run
    try:
        spec.check()
        failure_plan(spec)
    except TolFLError:
        assume(False)

    check_both_ways(spec, sizes)


@pytest.mark.parametrize(
    ("fail", "n_by_events"),
    [
        ("client@20", 4),
        ("head@20/chain", 4),
        ("closer@20/distribute", 5),
        ("client@20-25", 8),
        ("cut:0,1,2|3,4,5@20-22", 16),
    ],
)
def test_only_the_rounds_around_a_failure_have_events(fail: str, n_by_events: int) -> None:
    spec = RunSpec(data="arrays", devices=6, clusters=3, rounds=40, fail=fail, model=ModelSpec(hidden=(3,), code=2))

    assert check_both_ways(spec, [5] * 6) >= 40 - n_by_events


@pytest.mark.parametrize("fail", ["device:0@1", "device:0@4", "device:2@3", "device:0@2-4; device:1@6"])
@pytest.mark.parametrize("scheme", ["fl", "sbt"])
def test_a_death_may_be_noticed_before_the_last_record_has_spread(scheme: str, fail: str) -> None:
    links = LinkModel(latency_s=0.1, bandwidth_bps=1e4, seconds_per_sample=0.0)
    model, train = ModelSpec(hidden=(3,), code=2), TrainSpec(lr=0.001, batch_size=4)
    spec = RunSpec(
        scheme=scheme, data="arrays", devices=5, rounds=9, fail=fail, on_head_failure="elect", links=links, model=model,
        train=train,
    )  # fmt: skip

    check_both_ways(spec, [0, 0, 0, 0, 1])


def test_a_message_about_a_failure_free_round_is_counted_once_with_that_round() -> None:
    """Two devices come back; one is sent the record of a round that was closed without events."""
    spec = RunSpec(
        scheme="sbt", data="arrays", devices=7, rounds=13, fail="head@5-13; closer@1-9", on_head_failure="elect",
        links=LinkModel(latency_s=0.0, bandwidth_bps=1e9, uplink="parallel", seconds_per_sample=1e-4),
        model=ModelSpec(hidden=(3,), code=2), train=TrainSpec(lr=0.001, batch_size=4),
    )  # fmt: skip

    check_both_ways(spec, [3, 3, 1, 6, 8, 7, 9])


def test_time_passes_until_the_last_acknowledgement_has_arrived() -> None:
    """It is on its way to the only device that is left, through all the rounds that this one closes without events."""
    spec = RunSpec(
        data="arrays", devices=2, clusters=2, rounds=8, fail="cut:1@5; cluster:1@0-8/chain", on_head_failure="elect",
        links=LinkModel(latency_s=7.0, bandwidth_bps=1e9, uplink="serial", seconds_per_sample=0.0),
        model=ModelSpec(hidden=(3,), code=2), train=TrainSpec(lr=0.001, batch_size=4),
    )  # fmt: skip

    assert check_both_ways(spec, [5, 4]) == 1


def test_a_fleet_of_one_device_that_dies_keeps_the_rounds_before() -> None:
    spec = RunSpec(
        data="arrays", scheme="fl", devices=1, rounds=4, fail="device:0@2", model=ModelSpec(hidden=(3,), code=2)
    )

    assert check_both_ways(spec, [5]) == 1


@pytest.mark.parametrize("disturbed", [{"deadline_s": 5.0}, {"min_samples": 10_000}, {"scheme": "batch"}])
def test_rounds_that_end_by_the_clock_or_never_are_played_by_events(disturbed: dict[str, object]) -> None:
    spec = RunSpec(data="blobs", devices=4, clusters=2, rounds=3)

    one = Runs(msgspec.structs.replace(spec, **disturbed))
    for _ in one:
        pass

    assert one.simulations[0].timeline.n_quiet_rounds == 0


def test_rows_drawn_piece_by_piece_are_the_same_whenever_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_MAX_BYTES", 0)
    monkeypatch.setattr(blobs, "_PIECE", 7)
    data = blobs.blobs(20, seed=3, spec=BlobsSpec(samples_per_device=4, n_features=6, n_groups=3, n_test=8))

    forwards = [data.slice_of(device).copy() for device in range(20)]
    backwards = [data.slice_of(device).copy() for device in reversed(range(20))]

    assert isinstance(data, blobs.PiecewiseBlobs)
    assert (data.n_devices, data.n_samples(19), data.pool.shape) == (20, 4, (28, 6))
    np.testing.assert_array_equal(forwards, backwards[::-1])
    assert len({rows.tobytes() for rows in forwards}) == 20


def test_very_many_devices_are_simulated_without_their_rows_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_MAX_BYTES", 0)
    spec = RunSpec(
        data="blobs",
        devices=3000,
        clusters=30,
        rounds=2,
        blobs=BlobsSpec(samples_per_device=3, n_features=5, n_test=20),
        model=ModelSpec(hidden=(4,), code=2),
    )

    (result,) = simulation.run(spec)

    assert result.summary["ended"] == "over"
    assert result.summary["messages"]["unicast"] == 2 * 2 * 2999  # type: ignore[index]
    assert result.summary["devices_in_last_round"] == 3000
