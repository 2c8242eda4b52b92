"""Processes killed from outside, at moments that no plan knows of: the others go on, and end with one history."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.net.fleet_processes import Fleet, fleet_of, small_spec
from tests.net.replay import check_run, rounds_of

pytestmark = pytest.mark.processes


def whoever_is(role: str, fleet: Fleet) -> int:
    """Return a live device that has a role at the moment: the closer is the last head."""
    heads = [head for head in fleet.launcher.view.heads if head in fleet.running]
    match role:
        case "closer":
            return heads[-1]
        case "head":
            return heads[0]
    return next(device for device in reversed(fleet.running) if device not in heads)


@pytest.mark.timeout(240)
def test_a_member_a_head_and_the_closer_die_one_after_the_other(tmp_path: Path) -> None:
    spec = small_spec(6, 3, rounds=100)
    killed: list[int] = []
    with fleet_of(spec, tmp_path / "run") as fleet:
        fleet.until_round(3)
        for role in ("member", "head", "closer"):
            killed.append(whoever_is(role, fleet))
            fleet.launcher.kill(killed[-1])
            fleet.until_all_train(sorted({*range(6)} - {*killed}), rounds=5)
        fleet.until_the_end()

    survivors = sorted({*range(6)} - {*killed})
    assert fleet.survivors == survivors
    rounds = rounds_of(check_run(fleet.out, spec, fleet.data, survivors))
    assert len(rounds) == spec.rounds
    assert rounds[0].included == tuple(range(6))
    assert rounds[-1].included == tuple(survivors)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(6))
def test_two_devices_die_at_once_at_any_moment(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    spec = small_spec(6, 3, rounds=60, seed=seed)
    killed = sorted(int(device) for device in rng.choice(6, 2, replace=False))
    with fleet_of(spec, tmp_path / "run") as fleet:
        fleet.until_round(int(rng.integers(1, 30)))
        for device in killed:
            fleet.launcher.kill(device)
        fleet.until_the_end()

    survivors = sorted({*range(6)} - {*killed})
    assert fleet.survivors == survivors
    rounds = rounds_of(check_run(fleet.out, spec, fleet.data, survivors))
    assert rounds[-1].included == tuple(survivors)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_device_is_left_and_finishes_alone(tmp_path: Path) -> None:
    spec = small_spec(4, 2, rounds=60)
    with fleet_of(spec, tmp_path / "run") as fleet:
        for n_done, device in ((3, 2), (6, 0), (9, 3)):
            fleet.until_round(n_done)
            fleet.launcher.kill(device)
        fleet.until_the_end()

    assert fleet.survivors == [1]
    assert rounds_of(check_run(fleet.out, spec, fleet.data, [1]))[-1].included == (1,)
