"""Plans: the paper's arithmetic, expectations over scenarios, and recommendations worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import SpecError
from tolfl.experiments.planning.aurocs import Aurocs, Layout, Measurement, aurocs_of_paper
from tolfl.experiments.planning.costs import Network
from tolfl.experiments.planning.odds import EachOnItsOwn, FailureOdds, GivenOdds, Lifetimes, OneOfAll
from tolfl.experiments.planning.plan import Plan, PlanRow, Question, layouts_of, make_plan

N = 10
#: Training 4 s, a model 1 s on its way, latency 0.25 s, a crash noticed after 0.5 s.
NETWORK = Network((4.0,) * N, 24, (192.0,) * N, 0.25, 0.5)
PAPERS_ODDS = GivenOdds(0.90, 0.08, 0.02)


def plan_of_paper(failures: FailureOdds, clusters: tuple[int, ...] = (1, 3, 5, 10), **fields: float) -> Plan:
    return make_plan(Question(NETWORK, failures, 100, clusters, **fields), aurocs_of_paper("comms-ml"))  # type: ignore[arg-type]


def row_of(plan: Plan, clusters: int, policy: str) -> PlanRow:
    (found,) = [row for row in plan.rows if row.layout == Layout(clusters, policy)]
    return found


def known(by_layout: dict[tuple[int, str], dict[str, float]], repetition: str = "0") -> list[Measurement]:
    """Return measurements of layouts, each with AUROCs of all scenarios."""
    return [
        Measurement(Layout(k, policy).scheme, policy, scenario, k, repetition, auroc)
        for (k, policy), aurocs in by_layout.items()
        for scenario, auroc in aurocs.items()
    ]


def planned(measurements: list[Measurement], failures: FailureOdds = PAPERS_ODDS, **fields: object) -> Plan:
    question = Question(NETWORK, failures, 100, **{"clusters": (1, 2), **fields})  # type: ignore[arg-type]
    return make_plan(question, Aurocs("a test", "numbers", measurements))


def three(none: float, client: float, server: float) -> dict[str, float]:
    return {"none": none, "client": client, "server": server}


# -- the paper's arithmetic -----------------------------------------------------------------------------------------


def test_the_papers_comms_ml_with_its_odds() -> None:
    plan = plan_of_paper(PAPERS_ODDS)

    assert row_of(plan, 1, "isolate").expected_auroc == pytest.approx(0.7960, abs=1e-12)
    assert row_of(plan, 5, "drop").expected_auroc == pytest.approx(0.7974, abs=1e-12)
    assert row_of(plan, 3, "drop").expected_auroc == pytest.approx(0.7974, abs=1e-12)


def test_the_papers_comms_ml_with_one_device_chosen_blindly() -> None:
    plan = plan_of_paper(OneOfAll())

    assert row_of(plan, 1, "isolate").expected_auroc == pytest.approx(0.775, abs=1e-12)
    assert row_of(plan, 5, "drop").expected_auroc == pytest.approx(0.765, abs=1e-12)
    assert row_of(plan, 3, "drop").expected_auroc == pytest.approx(0.771, abs=1e-12)
    # Every device a head, and none with members: the loss of a client. So is every loss with `elect`.
    assert row_of(plan, 10, "drop").expected_auroc == pytest.approx(0.78, abs=1e-12)
    assert [row_of(plan, k, "elect").expected_auroc for k in (1, 3, 5, 10)] == pytest.approx([0.78] * 4, abs=1e-12)


@pytest.mark.parametrize(("server", "tol_fl_wins"), [(0.0079, False), (0.0081, True)])
def test_the_papers_tol_fl_wins_where_servers_fail_often_enough(server: float, tol_fl_wins: bool) -> None:
    client = 11 * 0.008  # the balance: one server for eleven clients
    plan = plan_of_paper(GivenOdds(1 - client - server, client, server))

    assert (row_of(plan, 5, "drop").expected_auroc > row_of(plan, 1, "isolate").expected_auroc) is tol_fl_wins


# -- expectations ---------------------------------------------------------------------------------------------------

aurocs = st.builds(three, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
odds = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda p: (1 - p[0], p[0] * p[1], p[0] - p[0] * p[1]))


def expected(by_scenario: dict[str, float], given_odds: tuple[float, float, float]) -> float:
    plan = planned(known({(2, "drop"): by_scenario}), GivenOdds(*given_odds), clusters=(2,))
    return row_of(plan, 2, "drop").expected_auroc


@given(aurocs, odds, odds, st.floats(0, 1))
def test_the_expectation_is_linear_in_the_odds(
    by_scenario: dict[str, float], p: tuple[float, float, float], q: tuple[float, float, float], share: float
) -> None:
    mixed = tuple(share * a + (1 - share) * b for a, b in zip(p, q, strict=True))
    of_mixed = expected(by_scenario, (mixed[0], mixed[1], mixed[2]))

    assert of_mixed == pytest.approx(share * expected(by_scenario, p) + (1 - share) * expected(by_scenario, q))


@given(aurocs)
def test_what_is_certain_is_expected(by_scenario: dict[str, float]) -> None:
    certain = [expected(by_scenario, of) for of in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))]

    assert certain == list(by_scenario.values())


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 9))
def test_the_likelier_a_failure_the_less_is_expected(p: float, q: float, k: int) -> None:
    less, more = sorted((p, q))
    measured = known({(k, "elect"): three(0.9, 0.8, 0.8), (k, "drop"): three(0.9, 0.8, 0.7)})
    plans = [planned(measured, EachOnItsOwn(odds, odds), clusters=(k,)) for odds in (less, more)]

    for safer, riskier in zip(plans[0].rows, plans[1].rows, strict=True):
        assert riskier.expected_auroc <= safer.expected_auroc + 1e-12
        assert riskier.rounds_lost >= safer.rounds_lost - 1e-12


@given(st.floats(0, 1), st.integers(2, 9))
def test_elect_is_never_expected_to_do_worse_than_drop(p: float, k: int) -> None:
    measured = known({(k, "elect"): three(0.9, 0.8, 0.8), (k, "drop"): three(0.9, 0.8, 0.7)})
    drop, elect = planned(measured, EachOnItsOwn(p, p), clusters=(k,)).rows

    assert elect.expected_auroc >= drop.expected_auroc
    assert elect.rounds_cut_off == 0.0 <= drop.rounds_cut_off


def test_rounds_lost_by_hand() -> None:
    plan = plan_of_paper(PAPERS_ODDS, (1, 5))
    isolate, drop, elect = row_of(plan, 1, "isolate"), row_of(plan, 5, "drop"), row_of(plan, 5, "elect")
    star_s, five_s = 1.25 + 4 + 9 + 0.25, 2 * 1.25 + 4 + 1.25 + 4 * 1.25

    assert (isolate.round_s["serial"], drop.round_s["serial"]) == (star_s, five_s)
    # Half of the hundred rounds, with the 0.02 of a lost head; of nine survivors one was in its cluster.
    assert isolate.rounds_cut_off == pytest.approx(0.02 * 50)
    assert drop.rounds_cut_off == pytest.approx(0.02 * 50 / 9)
    assert isolate.rounds_waited == pytest.approx(0.10 * 0.5 / star_s)
    # In four of five clusters the mean of the head before must be sent again: 1.25 s.
    assert elect.rounds_waited == pytest.approx((0.10 * 0.5 + 0.02 * 4 / 5 * 1.25) / five_s)
    assert elect.rounds_lost == elect.rounds_waited
    assert elect.bytes_per_round == 2 * 9 * 24


def test_every_cluster_may_lose_its_head_and_a_star_its_server_once() -> None:
    plan = plan_of_paper(EachOnItsOwn(0.1, 0.1), (1, 5))

    # Of five heads one in two is lost, with one of nine survivors each; a server is lost in one training of ten.
    assert row_of(plan, 5, "drop").rounds_cut_off == pytest.approx(0.5 * 50 / 9)
    assert row_of(plan, 1, "isolate").rounds_cut_off == pytest.approx(0.1 * 50)


def test_an_mtbf_counts_all_rounds_of_the_training() -> None:
    plan = plan_of_paper(Lifetimes(1.0, 1.0), (5,))
    hours = 100 * 12.75 / 3600  # a hundred rounds, each as long as in the test above

    assert row_of(plan, 5, "drop").odds.none == pytest.approx(math.exp(-10 * hours))


# -- layouts and their AUROCs ---------------------------------------------------------------------------------------


def test_fl_is_there_once_and_a_star_that_drops_its_only_cluster_is_fl() -> None:
    assert layouts_of((2, 1, 2)) == [
        Layout(1, "isolate"), Layout(1, "freeze"), Layout(1, "elect"), Layout(2, "drop"), Layout(2, "elect")
    ]  # fmt: skip
    assert layouts_of((3,)) == [Layout(3, "drop"), Layout(3, "elect")]


def test_a_layout_that_nobody_has_measured_is_left_out_and_named() -> None:
    plan = plan_of_paper(PAPERS_ODDS)

    assert plan.left_out == (Layout(1, "freeze"),)
    assert any("fl (freeze), k = 1" in note for note in plan.notes)


def test_every_loan_is_named() -> None:
    notes = "\n".join(plan_of_paper(PAPERS_ODDS).notes)

    assert "the paper's tables for comms-ml" in notes
    assert "borrowed (elect; head lost): with elect, a lost head costs what a lost client costs" in notes
    assert "borrowed (drop; head lost): a cluster of one loses nobody but its head" in notes


def test_several_failures_are_said_to_be_counted_as_one() -> None:
    assert any("counted as one" in note for note in plan_of_paper(EachOnItsOwn(0.1, 0.1)).notes)
    assert not any("counted as one" in note for note in plan_of_paper(PAPERS_ODDS).notes)


# -- the recommendation ---------------------------------------------------------------------------------------------


def test_the_highest_expectation_wins_where_it_can_be_told() -> None:
    measured = known({(1, "elect"): three(0.9, 0.8, 0.8), (2, "elect"): three(0.95, 0.85, 0.85)})
    plan = planned(measured, clusters=(1, 2), uplink="parallel")

    assert plan.recommended.layout == Layout(2, "elect")
    assert "expected AUROC 0.9400, the highest; the next is tol-fl (elect), k = 1 with 0.8900" in plan.reason


@pytest.mark.parametrize(("uplink", "k"), [("serial", 2), ("parallel", 1)])
def test_of_equals_the_quickest_round_wins(uplink: str, k: int) -> None:
    plan = plan_of_paper(PAPERS_ODDS, tuple(range(1, 11)), uplink=uplink)  # type: ignore[arg-type]

    # Serial: (10 / k - 1) transfers, rounded up, and k - 1 hops; k = 2 takes 4 + 1.25, k = 3 takes 3 + 2 * 1.25.
    times = {row.layout.clusters: row.round_s[plan.question.uplink] for row in plan.rows}
    assert plan.recommended.layout == Layout(k, "elect")
    assert times[k] == min(times.values())


def test_a_deadline_comes_before_the_expectation() -> None:
    measured = known({(1, "elect"): three(0.9, 0.8, 0.8), (2, "elect"): three(0.95, 0.85, 0.85)})
    plan = planned(measured, uplink="parallel", deadline_s=7.0)

    assert [plan.meets_deadline(row) for row in plan.rows] == [True, False]
    assert plan.recommended.layout == Layout(1, "elect")
    assert "1 layouts meet the deadline of 7 s" in plan.reason


def test_where_nothing_is_in_time_the_fastest_is_named() -> None:
    plan = plan_of_paper(PAPERS_ODDS, deadline_s=0.1)

    assert plan.reason.startswith(
        "no layout meets the deadline of 0.1 s with serial uplinks; the fastest, tol-fl (elect)"
    )
    assert plan.recommended.round_s["serial"] == min(row.round_s["serial"] for row in plan.rows)


def test_a_layout_that_does_not_replace_a_lost_head_is_not_recommended_silently() -> None:
    measured = known({(1, "freeze"): three(0.9, 0.8, 0.88), (1, "elect"): three(0.9, 0.8, 0.8)})
    plan = planned(measured, OneOfAll(), clusters=(1,))

    assert plan.recommended.layout == Layout(1, "freeze")
    assert "It does not replace a lost head: when one is lost, freeze was worth 0.8800 and elect 0.8000." in plan.reason


def test_where_policies_are_equal_the_one_that_loses_fewer_rounds_wins() -> None:
    # 0.02 * 0.03 = 0.0006: not to be told apart.
    measured = known({(2, "drop"): three(0.9, 0.8, 0.83), (2, "elect"): three(0.9, 0.8, 0.8)})
    plan = planned(measured, clusters=(2,))

    assert plan.recommended.layout == Layout(2, "elect")
    assert "0.0006 below the highest" in plan.reason


def test_differences_are_judged_repetition_by_repetition() -> None:
    def repetitions(gaps: tuple[float, float, float]) -> list[Measurement]:
        measured = []
        for number, (level, gap) in enumerate(zip((0.5, 0.7, 0.9), gaps, strict=True)):
            slow, quick = three(level + gap, level, level), three(level, level, level)
            measured += known({(10, "elect"): slow, (1, "elect"): quick}, repetition=str(number))
        return measured

    # The levels differ by 0.2 from seed to seed. A steady gap counts all the same; one that is all over the place
    # (mean 0.02, standard error 0.044) does not.
    steady = planned(repetitions((0.02, 0.02, 0.02)), GivenOdds(1.0, 0.0, 0.0), clusters=(1, 10), uplink="parallel")
    erratic = planned(repetitions((0.1, -0.05, 0.01)), GivenOdds(1.0, 0.0, 0.0), clusters=(1, 10), uplink="parallel")

    assert steady.recommended.layout.clusters == 10
    assert erratic.recommended.layout.clusters == 1


def test_a_gap_that_is_the_papers_noise_does_not_decide() -> None:
    plan = plan_of_paper(GivenOdds(0.0, 1.0, 0.0), clusters=(1,))
    fl, tol_fl = plan.rows

    # A client lost: 0.79 and 0.78, both +- 0.02 over ten repetitions, where no layout can make a difference.
    assert (fl.expected_auroc, tol_fl.expected_auroc) == (0.79, 0.78)
    assert fl.error == tol_fl.error == pytest.approx(0.02 / 10**0.5)
    assert plan.recommended is tol_fl


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"clusters": (11,)}, "11 clusters for 10 devices"),
        ({"clusters": (0,)}, "0 clusters; at least 1"),
        ({"rounds": 0}, "rounds 0"),
        ({"deadline_s": -1.0}, "deadline -1 s"),
        ({"network": Network((1.0,), 24, (1.0,), 0.0, 0.5), "clusters": (1,)}, "at least 2"),
    ],
    ids=["k-above-n", "no-cluster", "no-round", "deadline", "one-device"],
)
def test_a_question_that_makes_no_sense_gets_a_sentence(fields: dict[str, object], sentence: str) -> None:
    usual: dict[str, object] = {"network": NETWORK, "failures": PAPERS_ODDS, "rounds": 100, "clusters": (1,)}

    with pytest.raises(SpecError, match=sentence):
        Question(**{**usual, **fields})  # type: ignore[arg-type]


def test_without_a_complete_layout_there_is_no_plan() -> None:
    with pytest.raises(SpecError, match="a test: no layout has an AUROC for every scenario"):
        planned(known({(1, "elect"): {"none": 0.9}}))


# -- what comes out -------------------------------------------------------------------------------------------------


def test_json_has_everything_the_table_has() -> None:
    fields = plan_of_paper(PAPERS_ODDS, deadline_s=14.0).to_dict()
    row = next(row for row in fields["rows"] if (row["clusters"], row["policy"]) == (5, "drop"))

    assert fields["auroc_from"].startswith("the paper's tables")
    assert fields["recommended"] == {"clusters": 3, "policy": "elect"}
    assert row["expected_auroc"] == pytest.approx(0.7974)
    assert row["odds"] == {"none": 0.90, "client": 0.08, "server": 0.02, "several": 0.0}
    assert row["round_s"] == {"serial": 12.75, "parallel": 12.75}
    assert row["meets_deadline"] == {"serial": True, "parallel": True}
    assert row["messages_per_round"]["paper"] == 15


def test_the_figure_shows_every_policy_both_times_and_the_deadline(tmp_path: Path) -> None:
    figure = plan_of_paper(PAPERS_ODDS, tuple(range(1, 11)), deadline_s=14.0).plot()
    worth, pace = figure.axes
    figure.savefig(tmp_path / "plan.png")

    assert [text.get_text() for text in worth.get_legend().get_texts()] == [  # type: ignore[union-attr]
        "Tol-FL, elect", "Tol-FL, drop", "FL, isolate", "recommended"
    ]  # fmt: skip
    assert {line.get_label() for line in pace.lines} == {"serial uplinks", "parallel uplinks", "deadline"}
    assert "s" in pace.get_ylabel()
    assert [label.get_text() for label in pace.get_xticklabels()] == ["1", "2", "3", "5", "10"]
