"""Failures inside rounds: who is in which round, for every phase, role, policy and number of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import msgspec
import numpy as np
import pytest

from tests.sim.fleets import FULL_BATCH, Mean, closed, ended, model_of, params, simulated, some_data
from tolfl.core.contribution import GLOBAL
from tolfl.core.failures import Phase
from tolfl.core.records import Evaluated, FailureHappened, RoundClosed, TakenOver
from tolfl.core.spec import RunSpec, TrainSettings
from tolfl.core.topology import Topology
from tolfl.datasets import FederatedDataset
from tolfl.kernel import TrainJob
from tolfl.learners.layouts import failure_plan
from tolfl.learners.torch_module import ModuleModel
from tolfl.sim.simulation import Run

N = 6
EVERYBODY = tuple(range(N))
DATA = some_data([3, 4, 5, 2, 6, 4], with_test=True)
FAILING_ROUND = 1
SPEC = RunSpec(data="blobs", devices=N, clusters=3, rounds=4, train=FULL_BATCH)

POLICIES = ("elect", "drop", "isolate", "freeze")


def changed(**changes: object) -> RunSpec:
    return msgspec.structs.replace(SPEC, **changes)


def history(result: Run | Sequence[RoundClosed], private: bool = False) -> list[RoundClosed]:
    """Return one closed round per index: of two that extend the same round, the heavier (rule 1)."""
    heaviest: dict[int, RoundClosed] = {}
    for record in closed(result):
        assert record.round is not None
        known = heaviest.get(record.round)
        if (len(record.included) > 1 or private) and (known is None or record.n_samples > known.n_samples):
            heaviest[record.round] = record
    return [heaviest[index] for index in sorted(heaviest)]


# -- every phase, role, policy and number of clusters -----------------------------------------------------------------


def roles(k: int) -> dict[str, int]:
    clusters = Topology.contiguous(N, k).clusters
    by_role = {"server": clusters[0][0], "closer": clusters[-1][0]}
    members = [cluster[-1] for cluster in clusters if len(cluster) > 1]
    loners = [cluster[0] for cluster in clusters[:-1] if len(cluster) == 1]
    return by_role | dict(zip(("member",), members, strict=False)) | dict(zip(("only device",), loners, strict=False))


CASES = [
    pytest.param(k, device, phase, policy, id=f"k={k}-{role}-{phase}-{policy}")
    for k in (1, 2, 5, N)
    for (role, device), phase, policy in product(roles(k).items(), Phase, POLICIES)
]


@pytest.mark.parametrize(("k", "device", "phase", "policy"), CASES)
def test_a_device_is_out_of_the_rounds_that_the_protocol_says(k: int, device: int, phase: Phase, policy: str) -> None:
    clusters = Topology.contiguous(N, k).clusters
    own = next(cluster for cluster in clusters if device in cluster)
    is_head = own[0] == device
    result = simulated(
        changed(clusters=k, fail=f"device:{device}@{FAILING_ROUND}/{phase}", on_head_failure=policy), DATA
    )

    counts_once_more = phase is Phase.DISTRIBUTE or (phase is Phase.CHAIN and not is_head)
    first_without = FAILING_ROUND + counts_once_more
    orphans = [] if policy == "elect" or not is_head else [d for d in own if d != device]
    going_on = tuple(d for d in EVERYBODY if d != device and d not in orphans)
    rounds_done = SPEC.rounds if going_on else first_without
    expected = [EVERYBODY if index < first_without else going_on for index in range(rounds_done)]
    missing = {str(device): "failed"} | {str(orphan): "dropped" for orphan in orphans}

    rounds = history(result)
    assert [record.included for record in rounds] == expected
    assert [record.missing for record in rounds[:first_without]] == [{}] * min(first_without, len(rounds))
    if going_on:
        assert rounds[first_without].missing == missing
        assert all(record.missing == {} for record in rounds[first_without + 1 :])
    assert ended(result).survivors == tuple(d for d in EVERYBODY if d != device)
    assert ended(result).reason == (
        "over" if going_on or policy == "isolate" else "the server is gone, training stopped"
    )
    alone = [f"device-{orphan}" for orphan in orphans] if policy == "isolate" else []
    assert list(result.models) == ([GLOBAL] if going_on or policy != "isolate" else []) + alone


@pytest.mark.parametrize("k", [1, 2, 3, N])
@pytest.mark.parametrize("phase", Phase)
def test_a_failure_before_the_first_update_and_in_the_last_round_are_no_different(k: int, phase: Phase) -> None:
    for at in (0, SPEC.rounds - 1):
        result = simulated(changed(clusters=k, fail=f"server@{at}/{phase}", on_head_failure="elect"), DATA)

        out_of = at + (phase is Phase.DISTRIBUTE)
        assert [0 in record.included for record in history(result)] == [index < out_of for index in range(SPEC.rounds)]
        assert ended(result).survivors == EVERYBODY[1:]


def test_a_failure_is_written_down_with_its_phase_and_who_took_over() -> None:
    result = simulated(changed(fail="server@2/chain", on_head_failure="elect"), DATA)
    died = [record for record in result.records if isinstance(record, FailureHappened)]
    taken = [record for record in result.records if isinstance(record, TakenOver)]

    assert [(record.device, record.round, record.what) for record in died] == [(0, 2, "died (chain)")]
    assert {(record.device, record.round, record.cluster, record.previous) for record in taken} == {(1, 2, 0, 0)}
    assert result.summary["failures"] == [{"device": 0, "round": 2, "what": "died (chain)", "time_s": died[0].time_s}]


# -- losing a head equals losing a client -----------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["train", "report", "chain"])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("role", ["server", "closer"])
def test_a_head_lost_under_elect_costs_exactly_one_client(role: str, k: int, phase: str) -> None:
    victim = roles(k)[role]
    lost = simulated(changed(clusters=k, fail=f"device:{victim}@2/{phase}", on_head_failure="elect"), DATA)
    others = [d for d in EVERYBODY if d != victim]
    as_member = f"{others[0]},{victim},{','.join(map(str, others[1:]))}"
    as_client = simulated(changed(topology=as_member, fail=f"device:{victim}@2/report"), DATA)
    as_chain = simulated(changed(clusters=N, fail=f"device:{victim}@2/{phase}"), DATA)

    for other in (as_client, as_chain):
        np.testing.assert_allclose(params(lost), params(other), rtol=1e-10)
        assert [r.included for r in history(other)] == [r.included for r in history(lost)]


@pytest.mark.parametrize("k", [1, 2, 3, N])
@pytest.mark.parametrize("phase", ["report", "chain"])
def test_losing_a_head_in_any_phase_before_distribution_gives_bitwise_one_model(k: int, phase: str) -> None:
    train, later = (
        simulated(changed(clusters=k, fail=f"server@1/{when}", on_head_failure="elect"), DATA)
        for when in ("train", phase)
    )

    assert later.summary["model_sha256"] == train.summary["model_sha256"]


# -- runs without what was lost ---------------------------------------------------------------------------------------


def resumed_without(lost: Sequence[int], at: int, k_before: int, data: FederatedDataset = DATA) -> np.ndarray:
    """Return the model of a clean fleet until a round, then of a fleet without some devices, trained by hand."""
    clean = simulated(changed(clusters=k_before, rounds=at), data)
    theta = params(clean)
    model, train = model_of(clean).model, TrainSettings(0.1, 1, 0)
    left = [d for d in range(data.n_devices) if d not in lost]
    for index in range(at, SPEC.rounds):
        jobs = [TrainJob(0, d, index, theta, data.pool, *data.bounds[d : d + 2]) for d in left]
        updates = model.train(jobs, train)
        theta = theta - np.average([u.delta for u in updates], axis=0, weights=[u.n_samples for u in updates])
    return theta


def test_a_dropped_cluster_leaves_a_run_without_it() -> None:
    result = simulated(changed(clusters=3, fail="server@2", on_head_failure="drop"), DATA)

    np.testing.assert_allclose(params(result), resumed_without([0, 1], at=2, k_before=3), rtol=1e-10)


def test_an_elected_head_leaves_a_run_without_the_old_one_alone() -> None:
    result = simulated(changed(clusters=3, fail="server@2", on_head_failure="elect"), DATA)

    np.testing.assert_allclose(params(result), resumed_without([0], at=2, k_before=3), rtol=1e-10)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scheme", ["tol-fl", "fl", "batch"])
def test_a_failed_client_leaves_a_run_without_it(scheme: str, policy: str) -> None:
    result = simulated(changed(scheme=scheme, clusters=3, fail="client@2", on_head_failure=policy), DATA)

    np.testing.assert_allclose(params(result), resumed_without([1], at=2, k_before=3), rtol=1e-10)


@pytest.mark.parametrize("fail", ["client@2", "server@2/chain", "cut:0,1|2,3,4,5@2", "random:0.1"])
@pytest.mark.parametrize("policy", ["elect", "drop"])
def test_rounds_before_a_failure_are_those_of_the_clean_run_to_the_last_bit(fail: str, policy: str) -> None:
    disturbed, clean = changed(fail=fail, on_head_failure=policy, evaluate_every=1), changed(evaluate_every=1)
    first = failure_plan(disturbed).first_round
    assert first is not None

    def before(result: Run) -> list[object]:
        versions = [record.version for record in history(result)[:first]]
        kept = [r for r in result.records if isinstance(r, RoundClosed | Evaluated) and r.version in versions]
        return [(r.version, (r.loss, r.auroc) if isinstance(r, Evaluated) else r.loss) for r in kept]

    assert before(simulated(disturbed, DATA)) == before(simulated(clean, DATA))
    assert len(before(simulated(clean, DATA))) == 2 * first


# -- FL and batch without their server --------------------------------------------------------------------------------


def test_batch_without_its_machine_stands_still() -> None:
    spec = changed(scheme="batch", rounds=8, fail="server@3", evaluate_every=1)
    result = simulated(spec, DATA)
    until = simulated(changed(scheme="batch", rounds=3), DATA)
    scores = [record.auroc for record in result.records if isinstance(record, Evaluated)]

    assert result.summary["auroc"] == until.summary["auroc"] == scores[-1]
    assert result.summary["model_sha256"] == until.summary["model_sha256"]
    assert ended(result).reason == "the server is gone, training stopped"
    assert result.summary["rounds_done"] == len(scores) == 3


def test_fl_without_its_server_is_the_mean_of_devices_that_each_train_alone() -> None:
    spec = changed(scheme="fl", rounds=6, fail="server@3")
    result = simulated(spec, DATA)
    theta = params(simulated(changed(scheme="fl", rounds=3), DATA))
    model, alone = ModuleModel(_module(theta)), {}
    for device in EVERYBODY[1:]:
        own = FederatedDataset.from_arrays([DATA.slice_of(device)])
        alone[f"device-{device}"] = params(
            simulated(RunSpec(data="blobs", devices=1, clusters=1, rounds=3, train=FULL_BATCH), own, _module(theta))
        )

    assert model.n_params == theta.size
    assert list(result.models) == [f"device-{device}" for device in EVERYBODY[1:]]
    for name, expected in alone.items():
        np.testing.assert_allclose(params(result, name), expected, rtol=1e-12)
    per_model = result.summary["auroc_per_model"]
    assert isinstance(per_model, dict)
    assert result.summary["auroc"] == pytest.approx(np.mean(list(per_model.values())))
    assert len(per_model) == N - 1


def _module(theta: np.ndarray) -> Mean:
    import torch

    module = Mean(theta.size)
    with torch.no_grad():
        module.theta.copy_(torch.from_numpy(theta.copy()))
    return module


def test_isolated_members_of_a_cluster_train_on_beside_the_others() -> None:
    result = simulated(changed(clusters=3, rounds=6, fail="server@2", on_head_failure="isolate"), DATA)
    others = simulated(changed(clusters=3, rounds=6, fail="server@2", on_head_failure="drop"), DATA)

    assert list(result.models) == [GLOBAL, "device-1"]
    assert np.array_equal(params(result), params(others))
    assert not np.allclose(params(result, "device-1"), params(result))
    per_model = result.summary["auroc_per_model"]
    assert isinstance(per_model, dict)
    assert result.summary["auroc"] == pytest.approx((4 * per_model[GLOBAL] + per_model["device-1"]) / 5)


def test_fl_frozen_without_its_server_keeps_the_last_model() -> None:
    result = simulated(changed(scheme="fl", fail="server@2", on_head_failure="freeze"), DATA)

    assert np.array_equal(params(result), params(simulated(changed(scheme="fl", rounds=2), DATA)))


# -- several failures -------------------------------------------------------------------------------------------------


def test_failures_joined_by_semicolons_all_happen() -> None:
    spec = changed(clusters=3, rounds=6, fail="server@1; device:3@2/chain; device:5@4/report", on_head_failure="elect")
    result = simulated(spec, DATA)

    assert [record.included for record in history(result)] == [
        EVERYBODY, (1, 2, 3, 4, 5), (1, 2, 3, 4, 5), (1, 2, 4, 5), (1, 2, 4), (1, 2, 4),
    ]  # fmt: skip


def test_a_cluster_loses_head_after_head_until_nobody_is_left_in_it() -> None:
    spec = changed(clusters=2, rounds=6, fail="device:0@1/chain; device:1@2/chain; device:2@3/chain")
    result = simulated(spec, DATA)

    assert [record.included for record in history(result)] == [
        EVERYBODY, (1, 2, 3, 4, 5), (2, 3, 4, 5), (3, 4, 5), (3, 4, 5), (3, 4, 5),
    ]  # fmt: skip
    assert [r.heads for r in history(result)] == [(0, 3), (1, 3), (2, 3), (3,), (3,), (3,)]


@pytest.mark.parametrize("phase", Phase)
def test_all_heads_may_die_in_one_round(phase: Phase) -> None:
    result = simulated(changed(clusters=3, fail=f"device:0,2,4@1/{phase}", on_head_failure="elect"), DATA)

    rounds = history(result)
    assert ended(result).survivors == (1, 3, 5)
    assert all({1, 3, 5} <= set(record.included) for record in rounds)
    assert [record.included for record in rounds[2:]] == [(1, 3, 5)] * 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("policy", POLICIES)
def test_random_failures_end_in_one_history_that_counts_every_survivor(seed: int, policy: str) -> None:
    spec = changed(rounds=8, fail="random:0.1", seed=seed, on_head_failure=policy)
    result = simulated(spec, DATA)
    survivors = set(ended(result).survivors)

    planned = set(EVERYBODY) - {f.device for f in failure_plan(spec).failures}
    assert survivors >= planned
    if policy in ("elect", "isolate"):  # those who stopped with their cluster have no more rounds to die in
        assert survivors == planned
    for record in closed(result):
        assert len(set(record.included)) == len(record.included)
        assert record.n_samples == sum(DATA.n_samples(device) for device in record.included)
    if policy == "elect" and survivors:
        assert all(survivors <= set(record.included) for record in history(result, private=True))
        assert result.summary["rounds_done"] == 8
