"""A minute and a half in which devices are killed and started again all the time: nothing is lost but time."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from tests.net.fleet_processes import Fleet, fleet_of, small_spec
from tests.net.replay import Link, chain_to, held_by, lines_of_devices, name_of, replayed, with_rounds
from tests.net.test_freezes import check_history
from tolfl.core.records import RoundClosed
from tolfl.learners.registry import learner_of
from tolfl.runs.evaluation import score_models
from tolfl.runs.outcome import fleet_of as known_of
from tolfl.sim.simulation import run

SOAK_S = 60.0
TOGETHER = 200  #: rounds of all in the end: what a fleet of three forgot of the others is learnt again
EVERYBODY = list(range(6))


def disturb(fleet: Fleet, rng: np.random.Generator) -> None:
    """Kill one device or bring one back; three at least train on: those that are starting do not count."""
    training = [device for device in fleet.closed[-1].included if device in fleet.running]
    gone = [device for device in EVERYBODY if device not in fleet.running]
    if len(training) > 3 and (not gone or rng.random() < 0.5):
        killed = int(rng.choice(training))
        fleet.launcher.kill(killed)
        fleet.until(lambda: killed not in fleet.running, f"device {killed} is dead")
    elif gone:
        fleet.launcher.revive(int(rng.choice(gone)))


def _is_of_all(link: Link) -> bool:
    return isinstance(link, RoundClosed) and list(link.included) == EVERYBODY


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_random_kills_and_restarts_cost_no_quality(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    spec = small_spec(6, 3, rounds=100_000)
    with fleet_of(spec, tmp_path / "run") as fleet:
        fleet.until_all_train(EVERYBODY, rounds=3)
        end_s = time.monotonic() + SOAK_S
        while time.monotonic() < end_s:
            next_s = time.monotonic() + rng.uniform(2.0, 3.0)
            disturb(fleet, rng)
            fleet.until(lambda at_s=next_s: time.monotonic() >= at_s, "time passes")  # type: ignore[misc]
        for device in sorted({*EVERYBODY} - {*fleet.running}):
            fleet.launcher.revive(device)
        fleet.until_all_train(EVERYBODY, rounds=TOGETHER)
        fleet.leave_one_by_one()

    check_history(fleet, spec)
    # Those who leave last train alone for a while: what counts is the last round of all.
    lines = lines_of_devices(fleet.out)
    last = max(held_by(fleet.out, EVERYBODY), key=lambda one: one.name)
    chain = chain_to(last.name.history, lines)
    n_links = max(place for place, link in enumerate(chain, 1) if _is_of_all(link))
    real = replayed(spec, fleet.data, chain[:n_links])
    results = learner_of(known_of(spec, fleet.data)).results({"global": real})
    auroc = score_models(results, fleet.data, {"global": 6}).auroc
    (failure_free,) = run(with_rounds(spec, name_of(chain[n_links - 1]).round))
    assert auroc == pytest.approx(failure_free.summary["auroc"], abs=0.02)
