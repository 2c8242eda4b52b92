"""FedGroup, IFCA and FeSEM under every plan, interrupted, repeated, and what their messages cost."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.sim.fleets import closed, finished, params
from tests.sim.rivals import (
    BLOBS,
    DATA,
    MODEL,
    POLICIES,
    N,
    assert_same,
    changed,
    comparable,
    every_rival,
    n_samples,
    simulated,
)
from tolfl.core.spec import IFCASpec, LinkModel
from tolfl.sim.simulation import Runs, run

# -- every scheme, policy and plan ------------------------------------------------------------------------------------

PLANS = (
    "client@2",
    "server@0",
    "server@2",
    "server@2/report",
    "server@2/chain",
    "server@2/distribute",
    "server@5",
    "cluster:1@2",
    "cluster:0@0",
    "cut:0,1|2,3,4,5@2-4",
    "cut:2,3|0,1,4,5@2",
    "cut:0,2,4|1,3,5@1-4",
    "random:0.05",
    "random:0.3",
    "device:0@1-3",
    "device:2@0-2",
    "device:0@1-3; device:2@2-4; device:4@3-5",
    "device:0@1; device:2@2; device:4@3",
    "server@1; client@1",
)


@every_rival
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fail", PLANS)
def test_every_plan_is_played_to_its_end(scheme: str, policy: str, fail: str) -> None:
    spec = changed(scheme=scheme, fail=fail, on_head_failure=policy, evaluate_every=3)
    result = simulated(spec)

    assert closed(result)
    for record in closed(result):
        trained = [d for members in record.groups.values() for d in members]
        assert len(trained) == len(set(trained))
        assert set(trained) <= set(record.included)
        assert record.n_samples == n_samples(record.included)
        assert not set(record.included) & {int(d) for d in record.missing}
    assert all(np.isfinite(params(result, name)).all() for name in result.models)
    assert (result.summary["auroc"] is None) == (not result.models)


# -- interrupted runs, forked runs, repetitions -----------------------------------------------------------------------

RESUMED: tuple[dict[str, object], ...] = (
    {},
    {"fail": "server@2"},
    {"fail": "server@3/chain", "on_head_failure": "rehome"},
    {"fail": "device:0@1-4", "lost_model": "frozen"},
    {"fail": "cut:0,1|2,3,4,5@2-4", "evaluate_every": 2},
)


@every_rival
@pytest.mark.parametrize("plan", RESUMED, ids=str)
def test_a_run_resumed_from_any_round_is_the_uninterrupted_run(
    tmp_path: Path, scheme: str, plan: dict[str, object]
) -> None:
    # Three restarts of IFCA are compared until round 3, so some interruptions fall among them.
    spec = changed(scheme=scheme, ifca=IFCASpec(warm_rounds=1, trial_rounds=3), **plan)
    whole = finished(Runs(spec, DATA, MODEL, out=tmp_path / "whole"))[0]
    for after in range(1, spec.rounds):
        out = tmp_path / f"after-{after}"
        for place, _ in enumerate(runs := Runs(spec, DATA, MODEL, out=out), start=1):
            if place == after:
                runs.save_checkpoints()
                break
        resumed = finished(Runs(spec, DATA, MODEL, out=out, resume=True))[0]

        assert (out / "records.jsonl").read_bytes() == (tmp_path / "whole" / "records.jsonl").read_bytes()
        assert resumed.summary["model_sha256"] == whole.summary["model_sha256"]
        assert comparable(resumed) == comparable(whole)


@every_rival
@pytest.mark.parametrize("fail", ["", "server@2", "random:0.1"])
def test_repetitions_in_lock_step_are_the_runs_with_those_seeds(scheme: str, fail: str) -> None:
    spec = msgspec.structs.replace(BLOBS, scheme=scheme, fail=fail, seed=4)
    together = run(msgspec.structs.replace(spec, repetitions=3))
    alone = [run(msgspec.structs.replace(spec, seed=seed))[0] for seed in (4, 5, 6)]

    for one, other in zip(together, alone, strict=True):
        assert_same(one, other)


@every_rival
def test_the_number_of_devices_trained_at_once_changes_nothing(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = msgspec.structs.replace(BLOBS, scheme=scheme, fail="server@2", on_head_failure="rehome")
    together = run(spec)[0]
    monkeypatch.setattr("tolfl.sim.batch_trainer._TURNS_AT_ONCE", 1)

    assert_same(run(spec)[0], together)


# -- the ledger -------------------------------------------------------------------------------------------------------

MODEL_BYTES = 24  # three parameters in double precision


@pytest.mark.parametrize("scheme", ["fedgroup", "fesem"])
@pytest.mark.parametrize("m", [1, 3, N])
def test_a_round_moves_one_model_up_and_one_down_per_member(scheme: str, m: int) -> None:
    result = simulated(changed(scheme=scheme, clusters=m))

    assert [record.bytes for record in closed(result)] == [2 * (N - 1) * MODEL_BYTES] * 6
    assert result.summary["bytes"] == 6 * 2 * (N - 1) * MODEL_BYTES


@pytest.mark.parametrize(("m", "restarts", "trial_rounds"), [(1, 3, 2), (3, 1, 2), (3, 3, 2), (2, 4, 1), (N, 2, 10)])
def test_a_round_of_ifca_moves_all_models_down_and_those_of_every_restart_while_they_are_compared(
    m: int, restarts: int, trial_rounds: int
) -> None:
    ifca = IFCASpec(warm_rounds=1, restarts=restarts, trial_rounds=trial_rounds)
    result = simulated(changed(scheme="ifca", clusters=m, ifca=ifca))
    r, decided = (restarts if m > 1 else 1), min(trial_rounds, 5)
    during, deciding, after = r + r * m, r + m, 1 + m

    expected = [during if index < decided else deciding if index == decided else after for index in range(6)]
    assert [record.bytes for record in closed(result)] == [models * (N - 1) * MODEL_BYTES for models in expected]
    assert [record.messages["unicast"] for record in closed(result)] == [2 * (N - 1)] * 6


def test_a_larger_message_takes_longer() -> None:
    links = LinkModel(bandwidth_bps=1000.0)
    one, all_models = (simulated(changed(scheme=scheme, links=links)).summary for scheme in ("fesem", "ifca"))

    assert isinstance(one["virtual_s"], float)
    assert isinstance(all_models["virtual_s"], float)
    assert all_models["virtual_s"] > one["virtual_s"]
