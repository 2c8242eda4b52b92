"""FedGroup, IFCA and FeSEM in whole runs: what is lost with a host, what comes back, what is counted."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.fleets import closed, ended, finished, params
from tests.sim.rivals import (
    CLUSTERS,
    DATA,
    FAILS_IN,
    MODEL,
    POLICIES,
    SIZES,
    N,
    changed,
    every_rival,
    hosted_by_server,
    n_samples,
    simulated,
)
from tolfl.core.records import RunStarted
from tolfl.sim.simulation import Runs

# -- a host is lost ---------------------------------------------------------------------------------------------------


@every_rival
def test_the_start_of_a_run_says_who_keeps_which_model(scheme: str) -> None:
    started = simulated(changed(scheme=scheme)).records[0]

    assert isinstance(started, RunStarted)
    assert started.hosts == (0, 2, 4)
    assert started.clusters == (tuple(range(N)),)


@every_rival
def test_with_a_host_its_model_and_those_who_train_it_are_out(scheme: str) -> None:
    clean = closed(simulated(changed(scheme=scheme)))
    lost = simulated(changed(scheme=scheme, fail=f"server@{FAILS_IN}"))
    rounds = closed(lost)
    orphans = [d for d in hosted_by_server(clean[FAILS_IN]) if d != 0]
    going_on = tuple(d for d in range(N) if d != 0 and d not in orphans)

    assert orphans
    assert [(r.included, r.groups, r.loss) for r in rounds[:FAILS_IN]] == [
        (r.included, r.groups, r.loss) for r in clean[:FAILS_IN]
    ]
    for record in rounds[FAILS_IN:]:
        assert {int(d) for d, reason in record.missing.items() if reason == "orphaned"} == set(orphans)
        assert record.included == going_on
        assert record.n_samples == n_samples(going_on)
        assert "cluster-0" not in record.groups
        assert sorted(d for members in record.groups.values() for d in members) == list(going_on)
    assert rounds[FAILS_IN].missing["0"] == "failed"
    assert sorted(lost.models) == ["cluster-1", "cluster-2"]
    assert lost.summary["devices_lost_with_head"] == len(orphans)
    assert lost.summary["devices_in_last_round"] == len(going_on)
    assert ended(lost).survivors == (1, 2, 3, 4, 5)
    assert ended(lost).reason == "over"


@pytest.mark.parametrize("phase", ["train", "report", "chain"])
@pytest.mark.parametrize("scheme", ["fedgroup", "fesem"])
def test_the_other_groups_train_on_as_if_nothing_had_happened(scheme: str, phase: str) -> None:
    clean = simulated(changed(scheme=scheme))
    lost = simulated(changed(scheme=scheme, fail=f"server@{FAILS_IN}/{phase}"))

    assert closed(clean)[-1].groups == CLUSTERS
    for name in ("cluster-1", "cluster-2"):
        assert np.array_equal(params(lost, name), params(clean, name))


@every_rival
@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_model_may_be_kept_as_it_was_at_the_failure(scheme: str, policy: str) -> None:
    lost = simulated(changed(scheme=scheme, fail=f"server@{FAILS_IN}", lost_model="frozen", on_head_failure=policy))
    until_then = simulated(changed(scheme=scheme, rounds=FAILS_IN))

    assert sorted(lost.models) == ["cluster-0", "cluster-1", "cluster-2"]
    assert np.array_equal(params(lost, "cluster-0"), params(until_then, "cluster-0"))
    assert not np.array_equal(params(lost, "cluster-1"), params(until_then, "cluster-1"))


@every_rival
def test_orphans_may_find_another_group(scheme: str) -> None:
    strict, rehome = (
        simulated(changed(scheme=scheme, fail=f"server@{FAILS_IN}", on_head_failure=policy)) for policy in POLICIES
    )
    orphans = {int(d) for d, reason in closed(strict)[-1].missing.items() if reason == "orphaned"}
    in_the_round, *later = closed(rehome)[FAILS_IN:]

    assert {int(d) for d, reason in in_the_round.missing.items() if reason == "orphaned"} == orphans
    for record in later:
        assert record.included == (1, 2, 3, 4, 5)
        assert record.missing == {}
        assert record.n_samples == n_samples(record.included)
        assert sorted(d for members in record.groups.values() for d in members) == [1, 2, 3, 4, 5]
        assert "cluster-0" not in record.groups
    assert sorted(rehome.models) == ["cluster-1", "cluster-2"]
    assert rehome.summary["devices_lost_with_head"] == 0
    assert rehome.summary["devices_in_last_round"] == 5


@every_rival
@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_client_costs_itself_alone(scheme: str, policy: str) -> None:
    result = simulated(changed(scheme=scheme, fail=f"client@{FAILS_IN}", on_head_failure=policy))
    rounds = closed(result)
    others = (0, 2, 3, 4, 5)

    assert [record.included for record in rounds] == [tuple(range(N))] * FAILS_IN + [others] * (6 - FAILS_IN)
    assert rounds[FAILS_IN].missing == {"1": "failed"}
    assert all(record.missing == {} for record in rounds[FAILS_IN + 1 :])
    assert sorted(result.models) == ["cluster-0", "cluster-1", "cluster-2"]
    assert result.summary["devices_lost_with_head"] == 0
    assert result.summary["devices_in_last_round"] == 5


def test_without_a_lost_client_a_group_goes_on_as_the_mean_of_the_rest() -> None:
    result = simulated(changed(scheme="fedgroup", rounds=60, fail="client@2"))

    np.testing.assert_allclose(
        params(result, "cluster-0"), DATA.slice_of(0).astype(float).mean(axis=0), rtol=1e-4, atol=1e-4
    )


# -- a host returns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["fedgroup", "ifca"])
def test_a_host_that_returns_brings_its_model_and_its_members_back(scheme: str) -> None:
    result = simulated(changed(scheme=scheme, rounds=12, fail="device:0@5-8"))
    rounds = closed(result)
    orphans = {d for record in rounds for d, reason in record.missing.items() if reason == "orphaned"}

    assert orphans
    assert "cluster-0" in result.models
    assert all("cluster-0" not in record.groups for record in rounds[5:8])
    assert rounds[-1].included == tuple(range(N))
    assert rounds[-1].missing == {}
    assert rounds[-1].n_samples == n_samples(range(N))
    assert hosted_by_server(rounds[-1]) == hosted_by_server(rounds[4])


def test_the_model_of_a_host_that_was_away_has_only_the_rounds_in_which_it_was_there() -> None:
    result, clean = (simulated(changed(scheme="fedgroup", rounds=12, fail=fail)) for fail in ("device:0@5-8", ""))
    trained = [record for record in closed(result) if "cluster-0" in record.groups]
    # Full batches and no dropout: a model after so many steps does not depend on when they were taken.
    shorter = simulated(changed(scheme="fedgroup", rounds=len(trained)))

    assert 8 <= len(trained) <= 9
    assert all(record.groups["cluster-0"] == (0, 1) for record in trained)
    assert np.array_equal(params(result, "cluster-0"), params(shorter, "cluster-0"))
    assert np.array_equal(params(result, "cluster-1"), params(clean, "cluster-1"))


@every_rival
def test_who_has_found_another_group_may_stay_there_when_the_host_returns(scheme: str) -> None:
    result = simulated(changed(scheme=scheme, rounds=12, fail="device:0@5-8", on_head_failure="rehome"))
    rounds = closed(result)
    before, last = rounds[4], rounds[-1]

    assert "cluster-0" in result.models
    assert last.included == tuple(range(N))
    assert last.missing == {}
    if scheme == "fedgroup":  # its groups are static: only the host itself is still in the old one
        assert last.groups["cluster-0"] == (0,)
    elif scheme == "ifca":  # the old model still fits those best who made it
        assert hosted_by_server(last) == hosted_by_server(before)
    else:
        assert hosted_by_server(last)


# -- the smallest and the largest number of models --------------------------------------------------------------------


@every_rival
def test_with_one_model_strict_loses_everything_and_the_run_ends_in_order(scheme: str) -> None:
    result = simulated(changed(scheme=scheme, clusters=1, fail=f"server@{FAILS_IN}"))

    assert result.models == {}
    for key in ("auroc", "auroc_all_models", "auroc_best", "auroc_chosen", "chosen_model", "train_loss"):
        assert result.summary[key] is None
    assert result.summary["clusters_in_use"] == 0
    assert result.summary["devices_in_last_round"] == 0
    assert result.summary["devices_lost_with_head"] == 5
    assert ended(result).survivors == (1, 2, 3, 4, 5)
    assert [record.n_samples for record in closed(result)] == [24] * FAILS_IN + [0] * (6 - FAILS_IN)


@every_rival
def test_with_one_model_that_is_kept_there_is_something_to_score(scheme: str) -> None:
    result = simulated(changed(scheme=scheme, clusters=1, fail=f"server@{FAILS_IN}", lost_model="frozen"))

    assert list(result.models) == ["cluster-0"]
    assert isinstance(result.summary["auroc"], float)
    assert result.summary["auroc"] == result.summary["auroc_best"] == result.summary["auroc_all_models"]


@every_rival
@pytest.mark.parametrize("policy", POLICIES)
def test_as_many_models_as_devices_work_with_and_without_a_failure(scheme: str, policy: str) -> None:
    whole, lost = (
        simulated(changed(scheme=scheme, clusters=N, fail=fail, on_head_failure=policy))
        for fail in ("", f"server@{FAILS_IN}")
    )

    assert len(whole.models) == N
    assert sorted(lost.models) == [f"cluster-{j}" for j in range(1, N)]
    assert closed(whole)[-1].included == tuple(range(N))


@pytest.mark.parametrize("scheme", ["fedgroup", "fesem"])
def test_one_model_is_federated_averaging_after_the_common_start(scheme: str) -> None:
    one = simulated(changed(scheme=scheme, clusters=1, rounds=100))
    fl = simulated(changed(scheme="fl", rounds=100))
    weights = None if scheme == "fesem" else SIZES
    means = [DATA.slice_of(d).astype(float).mean(axis=0) for d in range(N)]

    np.testing.assert_allclose(params(one, "cluster-0"), np.average(means, axis=0, weights=weights), rtol=1e-6)
    if scheme == "fedgroup":
        np.testing.assert_allclose(params(one, "cluster-0"), params(fl), rtol=1e-6)


# -- the summary ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["fedgroup", "fesem"])
def test_the_summary_of_a_quiet_run_counts_all_models_and_devices(scheme: str) -> None:
    summary = simulated(changed(scheme=scheme)).summary

    assert (summary["clusters_in_use"], summary["devices_in_last_round"], summary["devices_lost_with_head"]) == (
        3,
        6,
        0,
    )
    assert summary["n_clusters"] == 3


@every_rival
def test_the_clusters_in_use_are_those_that_were_trained_in_the_last_round(scheme: str) -> None:
    for fail in ("", "server@3", "server@5", "client@3", "cluster:1@2"):
        result = simulated(changed(scheme=scheme, fail=fail))
        last = closed(result)[-1]

        assert result.summary["clusters_in_use"] == len(last.groups)
        assert result.summary["devices_in_last_round"] == len(last.included) == sum(map(len, last.groups.values()))


def test_a_scheme_with_one_model_has_no_clusters_in_use() -> None:
    summary = simulated(changed(scheme="fl")).summary

    assert summary["clusters_in_use"] is None
    assert summary["devices_in_last_round"] == N
    assert summary["devices_lost_with_head"] == 0


@every_rival
def test_the_mean_over_devices_weighs_a_model_by_those_who_use_it(scheme: str) -> None:
    for fail in ("", "server@3"):
        result = simulated(changed(scheme=scheme, fail=fail))
        each, groups = result.summary["auroc_per_model"], closed(result)[-1].groups
        assert isinstance(each, dict)
        users = {name: len(groups.get(name, ())) for name in each}

        expected = sum(each[name] * users[name] for name in each) / sum(users.values())
        assert result.summary["auroc"] == pytest.approx(expected, rel=1e-12)
        assert result.summary["auroc_best"] == max(each.values())
        assert result.summary["auroc_chosen"] == each[str(result.summary["chosen_model"])]
        assert result.summary["chosen_by"] == "training loss"


def test_all_models_together_know_every_group() -> None:
    summary = simulated(changed(scheme="fedgroup", rounds=15)).summary
    together, best, loss = summary["auroc_all_models"], summary["auroc_best"], summary["train_loss"]

    assert isinstance(together, float)
    assert isinstance(best, float)
    assert isinstance(loss, float)
    assert together > 0.95 > best


def test_repetitions_are_averaged_where_that_makes_sense() -> None:
    runs = Runs(changed(scheme="ifca", repetitions=3, fail="server@3"), DATA, MODEL)
    results = finished(runs)
    lost = [result.summary["devices_lost_with_head"] for result in results]
    in_use = [result.summary["clusters_in_use"] for result in results]

    assert runs.summary["devices_lost_with_head"] == pytest.approx(np.mean(np.array(lost, dtype=float)))
    assert runs.summary["clusters_in_use"] == pytest.approx(np.mean(np.array(in_use, dtype=float)))
    assert runs.summary["chosen_model"] is None
