"""A planned return is a round, not a race: rounds wait for the device that comes back, and never for ever."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.sim.fleets import FULL_BATCH, closed, ended, simulated, some_data
from tests.sim.test_failures import history
from tests.sim.test_returns_and_cuts import happened
from tolfl.core.records import FailureHappened
from tolfl.core.spec import LinkModel, RunSpec

N, ROUNDS = 6, 8
DATA = some_data([3, 4, 5, 2, 6, 4], with_test=True)
#: Training takes no time at all: a device that comes back would be late for the round in which it does.
INSTANT = LinkModel(seconds_per_sample=0.0, latency_s=0.05)
SPEC = RunSpec(data="blobs", devices=N, clusters=3, rounds=ROUNDS, train=FULL_BATCH, links=INSTANT)
#: A run that does not end takes as long to make smaller as it does itself.
few = settings(max_examples=20, phases=(Phase.explicit, Phase.reuse, Phase.generate))
LATE = "did not come back in time (30 s)"


def changed(**changes: object) -> RunSpec:
    return msgspec.structs.replace(SPEC, **changes)


@pytest.mark.parametrize("k", [1, 3, N])
@pytest.mark.parametrize(
    "fail", ["device:2@3-5", "device:0@3-5/chain", "closer@3-5/distribute", "device:1,2,3,4,5@3-5"]
)
def test_a_device_is_in_from_the_round_after_its_return_however_quick_rounds_are(k: int, fail: str) -> None:
    result = simulated(changed(clusters=k, fail=fail), DATA)
    away = {r.device for r in result.records if isinstance(r, FailureHappened) and r.what.startswith("died")}

    rounds = history(result, private=True)
    assert [set(line.included) for line in rounds[4:6]] == [set(range(N)) - away] * 2
    assert [line.included for line in rounds[6:]] == [tuple(range(N))] * 2
    assert LATE not in [what for _, _, what in happened(result)]


def test_a_closer_that_dies_in_the_round_of_a_return_leaves_the_wait_to_the_next() -> None:
    result = simulated(changed(fail="device:1@3-5; closer@5/chain"), DATA)

    assert history(result)[6].included == (0, 1, 2, 3, 5)


def test_a_return_when_all_updates_are_done_is_no_obstacle() -> None:
    result = simulated(changed(fail=f"device:1@3-{ROUNDS}"), DATA)

    assert ended(result).reason == "over"
    assert ended(result).survivors == tuple(range(N))
    assert all(1 not in line.included for line in closed(result)[3:])


def test_a_device_that_a_cut_keeps_away_is_given_up_after_a_while() -> None:
    result = simulated(changed(min_devices=4, fail="device:5@2-4; cut:5@3-6"), DATA)

    assert (5, 4, LATE) in happened(result)
    assert ended(result).reason == "over"
    assert all(5 not in line.included for line in closed(result)[2:6])
    assert ended(result).time_s > 30


@st.composite
def plans(draw: st.DrawFn) -> str:
    """Return a plan with returns, and with failures and cuts that get in their way."""
    entries = []
    for _ in range(draw(st.integers(1, 4))):
        who = draw(st.sampled_from([f"device:{device}" for device in range(N)] + ["device:0,1,2,3,4,5", "device:2,3"]))
        first = draw(st.integers(0, ROUNDS - 1))
        until = draw(st.none() | st.integers(first + 1, ROUNDS))
        phase = draw(st.sampled_from(["train", "report", "chain", "distribute"]))
        entries.append(f"{who}@{first}{'' if until is None else f'-{until}'}/{phase}")
    if draw(st.booleans()):
        sides = draw(st.sampled_from(["5", "0", "0,1|2,3,4,5", "1,3,5|0,2,4"]))
        first = draw(st.integers(0, ROUNDS - 1))
        entries.append(f"cut:{sides}@{first}-{draw(st.integers(first + 1, ROUNDS))}")
    return "; ".join(entries)


@few
@given(
    fail=plans(),
    policy=st.sampled_from(["elect", "drop", "isolate", "freeze"]),
    k=st.sampled_from([1, 2, 3, N]),
    min_devices=st.sampled_from([1, 4]),
    is_instant=st.booleans(),
)
def test_every_run_ends(fail: str, policy: str, k: int, min_devices: int, is_instant: bool) -> None:
    links = INSTANT if is_instant else LinkModel(seconds_per_sample=0.05)
    spec = changed(clusters=k, fail=fail, on_head_failure=policy, min_devices=min_devices, links=links)
    result = simulated(spec, DATA)

    assert ended(result).reason
    assert len(closed(result)) <= ROUNDS * N * 2


@few
@given(
    device=st.integers(0, N - 1),
    other=st.integers(0, N - 1),
    times=st.lists(st.integers(0, ROUNDS - 2), min_size=2, max_size=2, unique=True).map(sorted),
    phase=st.sampled_from(["train", "report", "chain", "distribute"]),
    k=st.sampled_from([1, 2, 3, N]),
)
def test_without_cuts_nobody_is_late(device: int, other: int, times: list[int], phase: str, k: int) -> None:
    first, back = times
    fail = f"device:{device}@{first}-{back}/{phase}"
    if other != device:
        fail += f"; device:{other}@{back}"
    result = simulated(changed(clusters=k, fail=fail), DATA)

    rounds = history(result, private=True)
    assert LATE not in [what for _, _, what in happened(result)]
    assert device not in rounds[back].included
    assert all(device in line.included for line in rounds[back + 1 :])
