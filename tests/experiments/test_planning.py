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
    FailureRates,
    LayoutPlan,
    layouts_of,
    make_plan,
    paper_rows,
    pilot_jobs,
    pilot_rows,
    rows_for,
    source_of,
    usual_clusters,
)
from tolfl.experiments.result_rows import rows_where
from tolfl.experiments.sweep import Sweep
from tolfl.sim.simulation import run

N = 10
PAPERS_ODDS = FailureRates(given=(0.90, 0.08, 0.02))
PROBABILITY = st.floats(0, 1)


def plan_of_paper(rates: FailureRates, clusters: tuple[int, ...] = (1, 3, 5, 10), **fields: float) -> LayoutPlan:
    return make_plan(RunSpec(), rates, paper_rows("comms-ml"), clusters, [900] * N, 112, **fields)


def row_of(plan: LayoutPlan, clusters: int, policy: str) -> dict[str, Any]:
    (found,) = rows_where(plan.rows, clusters=clusters, policy=policy)
    return dict(found)


def planned(by_layout: Mapping[tuple[int, str], tuple[float, float, float]], **fields: float) -> LayoutPlan:
    """Return the plan of layouts whose AUROCs are known for nobody, a client and a head lost."""
    aurocs = [
        {"data": "numbers", "rounds": 100, "scenario": scenario, "scheme": ClusterLayout(k, policy).scheme}
        | {"policy": policy, "clusters": k, "seed": 0, "auroc": auroc}
        for (k, policy), of_layout in by_layout.items()
        for scenario, auroc in zip(SCENARIOS, of_layout, strict=True)
    ]
    return make_plan(RunSpec(), PAPERS_ODDS, aurocs, (1, 2), [900] * N, 112, **fields)


# -- probabilities ----------------------------------------------------------------------------------------------------


@given(st.integers(2, 30), st.data(), PROBABILITY, PROBABILITY)
def test_the_scenarios_of_every_layout_add_up_to_one(n: int, data: st.DataObject, client: float, head: float) -> None:
    k = data.draw(st.integers(1, n))
    for rates in (FailureRates((client, head)), FailureRates(is_one_of_n=True), FailureRates(mtbf_h=(2.0, 1.0))):
        found = rates.failures(n, k, 3600.0)
        assert math.isclose(sum(found[scenario] for scenario in SCENARIOS), 1.0, abs_tol=1e-9)
        assert 0 <= found["several"] <= 1


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 3), (4, 2), (5, 1)])
def test_devices_that_fail_on_their_own_are_counted_one_by_one(n: int, k: int) -> None:
    client, head = 0.3, 0.2
    expected = {"none": 0.0, "client": 0.0, "server": 0.0, "several": 0.0}
    lost = {"clients_lost": (n - k) * client, "heads_lost": k * head}
    for failed in itertools.product((False, True), repeat=n):
        p = math.prod(
            (head if d < k else client) if f else 1 - (head if d < k else client) for d, f in enumerate(failed)
        )
        expected["server" if any(failed[:k]) else "client" if any(failed) else "none"] += p
        expected["several"] += p * (sum(failed) > 1)

    assert FailureRates((client, head)).failures(n, k, 0.0) == pytest.approx({**expected, **lost})


def test_a_longer_training_is_riskier_with_an_mtbf() -> None:
    rates = FailureRates(mtbf_h=(10.0, 5.0))
    odds = [rates.failures(10, 3, hours * 3600)["none"] for hours in (0, 1, 5, 50)]
    assert odds == sorted(odds, reverse=True)
    assert odds[0] == 1.0
    assert str(rates).startswith("each device fails every 10 h on average (5 h as a head)")


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

    assert costs.round_s[uplink] == pytest.approx(closed[-1].time_s - closed[-2].time_s)
    assert costs.n_bytes == result.ledger.total_bytes // 4
    assert costs.messages == {name: count // 4 for name, count in result.ledger.totals().items()}


def test_hand_worked_times_of_ten_devices_in_three_clusters() -> None:
    # A hop takes a transfer and a latency; two hops down, training, three members one by one, two hops along.
    transfer_s, latency_s = 198_720 * 8 / 2e7, 0.005
    costs = layout_costs(RunSpec(clusters=3), [900] * N, 198_720)

    serial = 4 * (transfer_s + latency_s) + 0.09 + 3 * transfer_s + latency_s
    assert costs.round_s == pytest.approx({"serial": serial, "parallel": serial - 2 * transfer_s})
    assert costs.messages == {"unicast": 18, "broadcast": 10, "per_cluster": 12, "hops": 16, "paper": 17}
    assert costs.client_stall_s <= 0.2 + 1e-9  # a crash is noticed after 0.2 s


def test_the_usual_clusters_go_from_star_to_chain() -> None:
    assert usual_clusters(1000) == (1, 2, 32, 500, 1000)
    assert usual_clusters(2) == (1, 2)


# -- the paper's arithmetic -------------------------------------------------------------------------------------------


def test_the_papers_comms_ml_with_its_odds_and_with_one_device_of_ten() -> None:
    plan = plan_of_paper(PAPERS_ODDS)
    assert row_of(plan, 1, "isolate")["expected_auroc"] == pytest.approx(0.7960, abs=1e-12)
    assert row_of(plan, 5, "drop")["expected_auroc"] == pytest.approx(0.7974, abs=1e-12)

    blind = plan_of_paper(FailureRates(is_one_of_n=True))
    assert row_of(blind, 1, "isolate")["expected_auroc"] == pytest.approx(0.9 * 0.79 + 0.1 * 0.64)
    assert row_of(blind, 3, "drop")["expected_auroc"] == pytest.approx(0.7 * 0.78 + 0.3 * 0.75)
    assert [row["expected_auroc"] for row in rows_where(blind.rows, policy="elect")] == pytest.approx([0.78] * 4)
    assert blind.not_measured == [{"clusters": 1, "policy": "freeze"}]
    assert "not shown, as not measured: fl (freeze), k = 1" in blind.notes
    assert any("with elect, a lost head costs what a lost client costs" in note for note in blind.notes)


@given(st.floats(0, 0.5), st.sampled_from([3, 5, 10]))
@examples(max_examples=10, deadline=None)
def test_elect_is_never_expected_to_do_worse_than_drop(p: float, k: int) -> None:
    plan = plan_of_paper(FailureRates((p, p)), (k,))
    assert row_of(plan, k, "elect")["expected_auroc"] >= row_of(plan, k, "drop")["expected_auroc"] - 1e-12


def test_rounds_lost_by_hand() -> None:
    row = row_of(plan_of_paper(FailureRates(is_one_of_n=True)), 3, "drop")
    costs = layout_costs(RunSpec(clusters=3, on_head_failure="drop"), [900] * N, 198_720)
    waited_s = 0.7 * costs.client_stall_s + 0.3 * costs.head_stall_s
    assert row["rounds_cut_off"] == pytest.approx(0.3 * (10 / 3 - 1) / 9 * 50)
    assert row["rounds_waited"] == pytest.approx(waited_s / row["round_s"]["serial"])


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
    between_s = sum(row["round_s"]["serial"] for row in rows) / 2
    assert planned(found, deadline_s=between_s).recommended["clusters"] == 2
    assert planned(found, deadline_s=1e-3).reason.startswith("no layout meets the deadline of 0.001 s")


def test_equals_are_told_by_the_errors_seed_by_seed() -> None:
    def of_seeds(aurocs: Mapping[str, tuple[float, float]]) -> LayoutPlan:
        rows = [
            {"data": "numbers", "rounds": 100, "scenario": scenario, "scheme": "tol-fl"}
            | {"policy": policy, "clusters": 2, "seed": seed, "auroc": auroc}
            for policy, values in aurocs.items()
            for seed, auroc in enumerate(values)
            for scenario in SCENARIOS
        ]
        return make_plan(RunSpec(), FailureRates(given=(0.0, 0.0, 1.0)), rows, (2,), [900] * N, 112)

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
    layouts = layouts_of((1, 2, 4))
    sweep = Sweep(pilot_jobs(SMALL, layouts))
    list(sweep)
    aurocs = pilot_rows(sweep)
    together = statistics.fmean(row["auroc_all_models"] for row in rows_where(aurocs, policy="isolate"))
    notes = make_plan(SMALL, FailureRates(), aurocs, (1, 2, 4), [12] * 4, 6).notes

    assert any(note.endswith(f"sample by sample, are worth {together:.3f}") for note in notes)
    for layout, scenario in itertools.product(layouts, SCENARIOS):
        fail = "" if scenario == "none" else f"{scenario}@2"
        if scenario == "client" and layout.clusters == 4:
            continue  # a chain has no clients
        policy = layout.policy if scenario == "server" else ""
        fields = {"scheme": layout.scheme, "clusters": layout.clusters, "fail": fail, "on_head_failure": policy}
        own = [result.summary["auroc"] for result in run(msgspec.structs.replace(SMALL, **fields))]
        found, reason = rows_for(aurocs, layout, 4, scenario)
        assert found
        if not reason:
            assert [row["auroc"] for row in found] == own
    assert source_of(aurocs) == "a pilot run on blobs: 4 rounds with the failure after 2, 2 seeds"


def test_what_cannot_be_rehearsed_gets_a_sentence() -> None:
    with pytest.raises(SpecError, match="a pilot run of 1 rounds"):
        pilot_jobs(msgspec.structs.replace(SMALL, rounds=1), layouts_of((1,)))
    sweep = Sweep(pilot_jobs(msgspec.structs.replace(SMALL, repetitions=1), layouts_of((2,))), data=some_data([4] * 4))
    list(sweep)
    with pytest.raises(SpecError, match="without a test set, a model cannot be scored"):
        pilot_rows(sweep)
