"""Odds of scenarios: they add up, they know how many heads there are, and longer trainings are riskier."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import SpecError
from tolfl.experiments.planning.odds import (
    EachOnItsOwn,
    FailureOdds,
    GivenOdds,
    Lifetimes,
    OneOfAll,
    expected_performance,
)

probabilities = st.floats(0, 1)
hours = st.floats(0.01, 1e6)
failures = st.one_of(
    st.just(OneOfAll()),
    st.builds(EachOnItsOwn, probabilities, probabilities),
    st.builds(Lifetimes, hours, hours),
    st.tuples(probabilities, probabilities).map(lambda p: GivenOdds(1 - p[0], p[0] * p[1], p[0] - p[0] * p[1])),
)
fleets = st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(failures, fleets, st.floats(0, 1e7))
def test_the_scenarios_of_every_layout_add_up_to_one(
    failing: FailureOdds, fleet: tuple[int, int], training_s: float
) -> None:
    odds = failing.odds(*fleet, training_s)

    assert odds.none + odds.client + odds.server == pytest.approx(1.0, abs=1e-9)
    assert min(odds.none, odds.client, odds.server, odds.several) >= 0.0
    assert odds.several <= odds.client + odds.server + 1e-9


@given(fleets)
def test_of_one_device_chosen_blindly_k_of_n_are_heads(fleet: tuple[int, int]) -> None:
    n, k = fleet

    assert OneOfAll().odds(n, k, 0.0).server == k / n


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 3), (4, 2), (5, 1)])
def test_devices_that_fail_on_their_own_are_counted_one_by_one(n: int, k: int) -> None:
    p_client, p_head = 0.2, 0.3
    odds = EachOnItsOwn(p_client, p_head).odds(n, k, 0.0)
    by_hand = {"none": 0.0, "client": 0.0, "server": 0.0, "several": 0.0}
    for lost in product([False, True], repeat=n):  # the first k are heads
        chances = [p_head if device < k else p_client for device in range(n)]
        chance = math.prod(p if gone else 1 - p for p, gone in zip(chances, lost, strict=True))
        by_hand["server" if any(lost[:k]) else "client" if any(lost) else "none"] += chance
        by_hand["several"] += chance * (sum(lost) > 1)

    assert odds.none == pytest.approx(by_hand["none"])
    assert odds.client == pytest.approx(by_hand["client"])
    assert odds.server == pytest.approx(by_hand["server"])
    assert odds.several == pytest.approx(by_hand["several"])
    assert odds.heads_lost == pytest.approx(k * p_head)
    assert odds.clients_lost == pytest.approx((n - k) * p_client)


@given(hours, fleets, st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_longer_training_is_never_safer(mtbf_h: float, fleet: tuple[int, int], shorter: float, more: float) -> None:
    failing = Lifetimes(mtbf_h, mtbf_h)

    assert failing.odds(*fleet, shorter + more).none <= failing.odds(*fleet, shorter).none + 1e-12


def test_an_mtbf_by_hand() -> None:
    # 1,000 rounds of 3.6 s are an hour; with an MTBF of 10 h a device fails in it with 1 - exp(-0.1) = 0.0951626.
    odds = Lifetimes(10.0, 5.0).odds(n_devices=2, n_clusters=1, training_s=3600.0)

    assert odds.none == pytest.approx(math.exp(-0.3))
    assert odds.server == pytest.approx(1 - math.exp(-0.2))
    assert odds.clients_lost == pytest.approx(0.0951626, abs=1e-7)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: GivenOdds(0.9, 0.08, 0.01), "add up to 0.99"),
        (lambda: GivenOdds(1.1, -0.1, 0.0), "each must be a probability"),
        (lambda: GivenOdds(math.nan, 0.5, 0.5), "each must be a probability"),
        (lambda: EachOnItsOwn(-0.1, 0.5), "fail odds -0.1"),
        (lambda: EachOnItsOwn(0.1, 1.5), "head fail odds 1.5"),
        (lambda: Lifetimes(0.0, 1.0), "MTBF 0"),
        (lambda: Lifetimes(1.0, math.inf), "head MTBF inf"),
    ],
    ids=["sum", "negative", "nan", "fail-odds", "head-fail-odds", "mtbf", "head-mtbf"],
)
def test_odds_that_cannot_be_get_a_sentence(make: type[FailureOdds], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        make()


def test_each_way_says_what_it_is() -> None:
    assert "0.08" in GivenOdds(0.9, 0.08, 0.02).what
    assert "k / N" in OneOfAll().what
    assert EachOnItsOwn(0.01, 0.01).what.endswith("0.01")
    assert "(0.05 as a head)" in EachOnItsOwn(0.01, 0.05).what
    assert "(5 h as a head)" in Lifetimes(10, 5).what
    assert "as a head" not in Lifetimes(10, 10).what


def test_expected_performance_of_the_papers_numbers() -> None:
    odds = {"none": 0.90, "client": 0.08, "server": 0.02}
    fl = expected_performance({"none": 0.80, "client": 0.79, "server": 0.64}, odds)
    tol_fl = expected_performance({"none": 0.80, "client": 0.78, "server": 0.75}, odds)

    assert fl == pytest.approx(0.7960)
    assert tol_fl == pytest.approx(0.7974)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_expected_performance_is_linear_in_the_odds(p: float, fine: float, broken: float) -> None:
    by_scenario = {"fine": fine, "broken": broken}

    assert expected_performance(by_scenario, {"fine": p, "broken": 1 - p}) == pytest.approx(p * fine + (1 - p) * broken)
    assert expected_performance(by_scenario, {"broken": 1.0}) == broken


def test_odds_that_do_not_add_up_to_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"add up to 0.9; they must add up to 1"):
        expected_performance({"none": 1.0, "server": 0.0}, {"none": 0.8, "server": 0.1})
