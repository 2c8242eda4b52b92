"""Plans: probabilities, costs as the simulator has them, expectations and recommendations worked out by hand."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.sim.fleets import some_data
from tolfl.core.errors import SpecError
from tolfl.core.records import RoundClosed
from tolfl.core.spec import BlobsSpec, LinkModel, ModelSpec, RunSpec
from tolfl.experiments.layout_costs import layout_costs, model_bytes_of
from tolfl.experiments.planning import (
    SCENARIOS,
    ClusterLayout,
    LayoutPlan,
    Pilots,
    check_plan,
    failure_probabilities,
    layouts_of,
    make_plan,
    pilot_jobs,
    scored,
    usual_clusters,
)
from tolfl.experiments.result_rows import rows_where
from tolfl.experiments.sweep import Sweep
from tolfl.sim.simulation import run

N = 10
PROBABILITY = st.floats(0, 1)
ODDS = (0.02, 0.05)


def pilots_of(by_layout: Mapping[tuple[int, str], tuple[float, float, float]]) -> Pilots:
    """Return pilot runs whose AUROCs are known for nobody, a client and a head lost."""
    return {
        (ClusterLayout(*layout), scenario): [{"auroc": auroc, "auroc_all_models": None, "rounds": 40}]
        for layout, of_layout in by_layout.items()
        for scenario, auroc in zip(SCENARIOS, of_layout, strict=True)
    }


def planned(
    by_layout: Mapping[tuple[int, str], tuple[float, float, float]],
    odds: tuple[float, float] = ODDS,
    deadline_s: float | None = None,
) -> LayoutPlan:
    return make_plan(RunSpec(), odds, pilots_of(by_layout), [900] * N, 112, deadline_s)


def row_of(plan: LayoutPlan, clusters: int, policy: str) -> dict[str, Any]:
    (found,) = rows_where(plan.rows, clusters=clusters, policy=policy)
    return dict(found)


# -- probabilities ----------------------------------------------------------------------------------------------------


@given(st.integers(2, 30), st.data(), PROBABILITY, PROBABILITY)
def test_the_scenarios_of_every_layout_add_up_to_one(n: int, data: st.DataObject, client: float, head: float) -> None:
    found = failure_probabilities(n, data.draw(st.integers(1, n)), client, head)
    assert math.isclose(sum(found[scenario] for scenario in SCENARIOS), 1.0, abs_tol=1e-9)
    assert 0 <= found["several"] <= 1


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 3), (4, 2), (5, 1)])
def test_devices_that_fail_on_their_own_are_counted_one_by_one(n: int, k: int) -> None:
    client, head = 0.3, 0.2
    expected = {"none": 0.0, "client": 0.0, "server": 0.0, "several": 0.0}
    for failed in itertools.product((False, True), repeat=n):
        p = math.prod(
            (head if d < k else client) if f else 1 - (head if d < k else client) for d, f in enumerate(failed)
        )
        expected["server" if any(failed[:k]) else "client" if any(failed) else "none"] += p
        expected["several"] += p * (sum(failed) > 1)

    assert failure_probabilities(n, k, client, head) == pytest.approx(expected)


# -- costs ------------------------------------------------------------------------------------------------------------


@examples(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(2, 9), min_size=2, max_size=7),
    st.data(),
    st.sampled_from(["serial", "parallel"]),
    st.sampled_from(["tol-fl", "fl", "sbt"]),
)
def test_a_round_costs_what_the_simulators_round_costs(
    sizes: list[int], data: st.DataObject, uplink: str, scheme: str
) -> None:
    k = data.draw(st.integers(1, len(sizes)))
    links = LinkModel(latency_s=0.01, bandwidth_bps=2e4, uplink=uplink, seconds_per_sample=0.01)  # type: ignore[arg-type]
    spec = RunSpec(scheme=scheme, devices=len(sizes), clusters=k, rounds=4, links=links, data="numbers")
    result = run(msgspec.structs.replace(spec, model=ModelSpec(hidden=(), code=2)), some_data(sizes))[0]
    closed = [record for record in result.records if isinstance(record, RoundClosed)]
    costs = layout_costs(spec, sizes, model_bytes_of(3, ModelSpec(hidden=(), code=2)))

    assert costs[0] == pytest.approx(closed[-1].time_s - closed[-2].time_s)
    assert costs[1] == result.ledger.total_bytes // 4


def test_hand_worked_times_of_ten_devices_in_three_clusters() -> None:
    # A hop takes a transfer and a latency; two hops down, training, three members one by one, two hops along.
    transfer_s, latency_s = 198_720 * 8 / 2e7, 0.005
    serial, parallel = (
        layout_costs(RunSpec(clusters=3, links=LinkModel(uplink=uplink)), [900] * N, 198_720)
        for uplink in ("serial", "parallel")
    )

    round_s = 4 * (transfer_s + latency_s) + 0.09 + 3 * transfer_s + latency_s
    assert (serial[0], parallel[0]) == pytest.approx((round_s, round_s - 2 * transfer_s))
    assert serial[1] == 18 * 198_720


def test_the_usual_clusters_go_from_star_to_chain() -> None:
    assert usual_clusters(1000) == (1, 2, 32, 500, 1000)
    assert usual_clusters(2) == (1, 2)


# -- expectations -----------------------------------------------------------------------------------------------------

#: What the paper prints for Comms-ML.
PAPER = {(1, "isolate"): (0.80, 0.79, 0.64), (3, "drop"): (0.80, 0.78, 0.75)}


def test_expected_aurocs_by_hand() -> None:
    plan = planned(PAPER, (0.0, 0.1))
    assert row_of(plan, 1, "isolate")["expected_auroc"] == pytest.approx(0.9 * 0.80 + 0.1 * 0.64)
    assert row_of(plan, 3, "drop")["expected_auroc"] == pytest.approx(0.729 * 0.80 + 0.271 * 0.75)
    assert plan.notes[1].startswith(
        "failures: each device fails during the training with probability 0 (0.1 as a head)"
    )


@given(PROBABILITY, PROBABILITY, st.sampled_from([3, 5, 10]))
@examples(max_examples=10, deadline=None)
def test_a_higher_auroc_after_a_lost_head_is_never_expected_to_do_worse(p: float, q: float, k: int) -> None:
    plan = planned({(k, "elect"): (0.80, 0.78, 0.78), (k, "drop"): (0.80, 0.78, 0.75)}, (p, q))
    assert row_of(plan, k, "elect")["expected_auroc"] >= row_of(plan, k, "drop")["expected_auroc"] - 1e-12


# -- recommendations --------------------------------------------------------------------------------------------------

_EQUAL = {(1, "freeze"): (0.8, 0.8, 0.8), (2, "elect"): (0.8, 0.8, 0.8), (2, "drop"): (0.8, 0.8, 0.8)}


def test_the_highest_expectation_wins_and_of_equals_the_quickest_round() -> None:
    best = planned({**_EQUAL, (2, "drop"): (0.9, 0.9, 0.9)})
    assert best.recommended == {"clusters": 2, "policy": "drop"}
    assert "It does not replace a lost head" in best.reason
    assert planned(_EQUAL).recommended == {"clusters": 2, "policy": "elect"}


def test_a_deadline_comes_before_the_expectation() -> None:
    found = {**_EQUAL, (1, "freeze"): (0.9, 0.9, 0.9)}
    rows = [row_of(planned(found), k, policy) for k, policy in ((1, "freeze"), (2, "elect"))]
    between_s = sum(row["round_s"] for row in rows) / 2
    assert planned(found, deadline_s=between_s).recommended["clusters"] == 2
    assert planned(found, deadline_s=1e-3).reason.startswith("no layout meets the deadline of 0.001 s")


def test_equals_are_told_by_the_errors_seed_by_seed() -> None:
    def of_seeds(aurocs: Mapping[str, tuple[float, float]]) -> LayoutPlan:
        pilots = {
            (ClusterLayout(2, policy), scenario): [
                {"auroc": auroc, "auroc_all_models": None, "rounds": 40} for auroc in values
            ]
            for policy, values in aurocs.items()
            for scenario in SCENARIOS
        }
        return make_plan(RunSpec(), ODDS, pilots, [900] * N, 112)

    # Both gaps have a mean of 0.01; one is the same with every seed, the other is not.
    assert "cannot be told apart" not in of_seeds({"drop": (0.91, 0.71), "elect": (0.90, 0.70)}).reason
    assert "cannot be told apart" in of_seeds({"drop": (0.93, 0.69), "elect": (0.90, 0.70)}).reason


# -- pilot runs -------------------------------------------------------------------------------------------------------

SMALL = RunSpec(
    data="blobs",
    devices=4,
    rounds=4,
    repetitions=2,
    blobs=BlobsSpec(samples_per_device=12, n_features=6, n_groups=2, n_test=40, n_validation=0),
    model=ModelSpec(hidden=(5,), code=2),
)


def test_pilot_runs_give_what_whole_runs_of_every_layout_give() -> None:
    jobs = pilot_jobs(SMALL, layouts_of((1, 2, 4)))
    sweep = Sweep(list(jobs.values()))
    list(sweep)
    pilots = {place: scored(job, sweep.results[job.key]) for place, job in jobs.items()}
    assert len(sweep.results) == 6  # nobody, a client, a head: with elect, isolate, freeze, and drop at k = 2
    together = statistics.fmean(one["auroc_all_models"] for one in pilots[ClusterLayout(1, "isolate"), "server"])
    notes = make_plan(SMALL, ODDS, pilots, [12] * 4, 6).notes

    assert notes[0] == "AUROC: pilot runs on blobs, 4 of 4 rounds, failures after 2, 2 seeds"
    assert notes[-1].endswith(f"sample by sample, are worth {together:.3f}")
    for (layout, scenario), summaries in pilots.items():
        fail = {"none": "", "client": "device:1@2", "server": "device:0@2"}[scenario]
        if layout == ClusterLayout(4, "drop") or (layout.clusters == 4 and scenario == "client"):
            continue  # a chain has no clients, and with drop a head is lost alone
        policy = layout.policy if scenario == "server" else ""
        fields = {"scheme": layout.scheme, "clusters": layout.clusters, "fail": fail, "on_head_failure": policy}
        own = [result.summary["auroc"] for result in run(msgspec.structs.replace(SMALL, **fields))]
        assert [summary["auroc"] for summary in summaries] == own


def test_what_cannot_be_rehearsed_gets_a_sentence() -> None:
    with pytest.raises(SpecError, match="a pilot run of 1 rounds"):
        pilot_jobs(msgspec.structs.replace(SMALL, rounds=1), layouts_of((1,)))
    once = msgspec.structs.replace(SMALL, repetitions=1)
    job = pilot_jobs(once, layouts_of((2,)))[ClusterLayout(2, "elect"), "none"]
    sweep = Sweep([job], data=some_data([4] * 4))
    list(sweep)
    with pytest.raises(SpecError, match="without a test set, a model cannot be scored"):
        scored(job, sweep.results[job.key])


@pytest.mark.parametrize(
    ("k", "words"), [(0, "0 clusters; at least 1"), (5, "5 clusters for 4 devices; use at most 4")]
)
def test_clusters_that_cannot_be_are_named_before_any_pilot_run(k: int, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        check_plan(SMALL, (1, k), ODDS, None)
