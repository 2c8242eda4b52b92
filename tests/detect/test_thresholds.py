"""Budgets become thresholds: conformal ranks, odd rows left out, tails for few rows, p-values that never contradict."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from tests.detect.rows import calibrate, near_a_plane
from tolfl.core.metrics import auroc
from tolfl.core.spec import RunSpec
from tolfl.datasets import load
from tolfl.detect import DetectorSpec, fit_detector
from tolfl.detect.thresholds import (
    N_BINS,
    bins_of,
    count_bins,
    device_limit,
    limit_for_share,
    limit_of,
    thinned,
    top_of,
)

SCORES = st.lists(st.floats(0.0, 1e6, width=32), min_size=4, max_size=300)


@given(st.lists(st.floats(0.0, float(np.finfo(np.float32).max), width=32), min_size=1, max_size=50))
def test_bins_are_ordered_and_narrow(scores: list[float]) -> None:
    values = np.sort(np.array(scores, np.float32))
    bins = bins_of(values)

    assert (np.diff(bins) >= 0).all()
    assert ((bins >= 0) & (bins < N_BINS)).all()
    assert all(value <= top_of(place) for value, place in zip(values.tolist(), bins.tolist(), strict=True))
    ordinary = values[(values > 2.0**-32) & (values < 2.0**64)]
    assert all(top_of(place) <= value * (1 + 1 / 128) for value, place in zip(ordinary, bins_of(ordinary), strict=True))


def test_the_threshold_is_the_rank_that_keeps_the_budget() -> None:
    # 19 scores and a budget of 1 in 10: of 20 equally likely places of a new score, two are above the 18th.
    found = calibrate({"a": np.arange(1.0, 11.0), "b": np.arange(11.0, 20.0)}, 0.1)

    assert 18.0 <= found.threshold < 18.15
    assert (found.fleet.n_scores, found.fleet.n_above, found.fleet.n_odd) == (19, 1, 0)
    assert found.fleet.is_guaranteed
    assert found.fleet.expected_rate == 0.1
    assert "at most 10.00% guaranteed" in found.fleet.promise


@given(SCORES, st.sampled_from([0.01, 0.05, 0.1, 0.3]))
def test_a_guaranteed_threshold_keeps_the_conformal_rank_and_no_lower_bin_does(
    scores: list[float], budget: float
) -> None:
    values = np.array(scores, np.float32)
    limit = limit_of(count_bins(values), budget)

    if limit.is_guaranteed:
        rank = math.ceil((len(values) + 1) * (1 - budget) - 1e-9)
        assert (values <= limit.value).sum() >= rank
        assert (values < values[bins_of(values) == bins_of([limit.value])[0]].min()).sum() < rank
        assert limit.expected_rate <= budget + 1e-9
    assert limit.n_above == (values > limit.value).sum()


@given(SCORES, st.sampled_from([0.01, 0.05, 0.1, 0.3]), st.lists(st.floats(0.0, 1e7, width=32), max_size=30))
def test_verdict_and_p_value_never_contradict_each_other(scores: list[float], budget: float, new: list[float]) -> None:
    limit = limit_of(count_bins(np.array(scores)), budget)
    with np.errstate(over="ignore"):  # of hardly any scores the threshold is the highest number there is
        above = np.nextafter(np.float32(limit.value), np.float32(np.inf))
    queries = np.array([*new, *scores, limit.value, above])

    for one in (limit, thinned(limit, most=8)):
        p_values = one.p_values(queries)
        assert ((p_values <= budget) == (queries.astype(np.float32) > np.float32(one.value))).all()
        assert ((p_values >= 0) & (p_values <= 1)).all()


@given(SCORES, st.lists(st.floats(0.0, 1e7, width=32), min_size=1, max_size=30))
def test_p_values_are_never_below_the_exact_ones(scores: list[float], new: list[float]) -> None:
    values, queries = np.array(scores, np.float32), np.array(new, np.float32)
    limit = limit_of(count_bins(values), 0.3)
    if limit.is_guaranteed:
        exact = np.array([(1 + (values >= query).sum()) / (len(values) + 1) for query in queries])

        assert (limit.p_values(queries) >= exact - 1e-12).all()
        assert (thinned(limit, most=8).p_values(queries) >= limit.p_values(queries) - 1e-12).all()


def test_p_values_of_many_scores_are_close_to_the_exact_ones() -> None:
    scores = np.random.default_rng(0).chisquare(10, 20_000).astype(np.float32)
    new = np.random.default_rng(1).chisquare(10, 2000).astype(np.float32)
    found = calibrate({"a": scores[:5000], "b": scores[5000:]}, 0.01)
    exact = np.array([(1 + (scores >= one).sum()) / 20_001 for one in new])

    np.testing.assert_allclose(found.p_values(new), exact, rtol=0.06, atol=3e-4)


@given(st.integers(0, 2**16), st.integers(40, 400), st.sampled_from([1e3, 1e5, 1e9]))
def test_one_odd_row_never_sets_the_threshold(seed: int, n_scores: int, factor: float) -> None:
    scores = np.random.default_rng(seed).chisquare(10, n_scores)
    plain = limit_of(count_bins(scores), 0.01)
    odd = limit_of(count_bins(np.append(scores[1:], scores.max() * factor)), 0.01)

    assert odd.n_odd == 1
    assert not odd.is_guaranteed
    assert odd.value < scores.max() * factor / 20
    assert odd.value < (2.5 if n_scores >= 100 else 10.0) * plain.value
    assert "1 odd row(s) left out" in odd.promise
    assert odd.expected_rate >= 2 / (n_scores + 1)


def test_few_scores_are_extrapolated_and_it_is_said() -> None:
    rates = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        limit = limit_of(count_bins(rng.chisquare(10, 20)), 0.01)
        assert limit.is_extrapolated
        assert "not guaranteed (extrapolated: " in limit.promise
        assert "99 are needed" in limit.promise
        rates.append((rng.chisquare(10, 2000) > limit.value).mean())

    # The highest of 20 would be exceeded by 4.8 %.
    assert np.mean(rates) < 0.02


@pytest.mark.parametrize("n_scores", range(4))
def test_of_hardly_any_scores_nothing_is_said(n_scores: int) -> None:
    limit = limit_of(count_bins(np.ones(n_scores)), 0.01)

    assert limit.value == np.finfo(np.float32).max
    assert not limit.is_guaranteed
    assert (limit.p_values([1.0, 1e9]) > 0.01).all()


@pytest.mark.parametrize(("n_scores", "n_odd"), [(3, 0), (4, 1)])
def test_a_device_has_odd_rows_as_soon_as_the_fleet_has_a_threshold(n_scores: int, n_odd: int) -> None:
    fleet = limit_of(count_bins(np.ones(n_scores)), 0.01)

    assert device_limit(count_bins(np.array([1e9])), fleet).n_odd == n_odd


@pytest.mark.parametrize("n_rows", [10, 12, 15, 19])
@pytest.mark.parametrize("n_devices", [1, 3])
def test_hardly_any_rows_make_a_detector_that_can_raise_an_alarm(n_rows: int, n_devices: int) -> None:
    """Fewer than four held-back rows say nothing: those that trained do, and nothing is guaranteed."""
    rows = np.random.default_rng(0).normal(size=(n_rows, 3))
    detector = fit_detector({str(one): rows[one::n_devices] for one in range(n_devices)}, DetectorSpec())

    assert detector.verdicts([[100.0, -100.0, 100.0]]).tolist() == [True]
    assert not detector.thresholds.fleet.is_guaranteed


def test_a_fleet_that_lost_nearly_all_rows_says_that_nothing_can_raise_an_alarm() -> None:
    rows = np.random.default_rng(0).normal(size=(100, 3))
    detector = fit_detector({"a": rows[3:], "b": rows[:3]}, DetectorSpec(fail="device:0@0"))

    assert detector.verdicts([[100.0, -100.0, 100.0]]).tolist() == [False]
    assert detector.thresholds.fleet.promise.startswith("no row can raise an alarm; too few for a threshold")
    assert detector.thresholds.fleet.expected_rate == 0


def test_scores_that_are_all_alike_are_typical() -> None:
    limit = limit_of(count_bins(np.zeros(50)), 0.05)

    assert limit.p_values([0.0, 1.0]).tolist()[1] <= 0.05
    assert limit.value < 1e-9


def test_a_noisy_device_has_a_threshold_of_its_own() -> None:
    rng = np.random.default_rng(0)
    scores = {f"quiet-{place}": rng.chisquare(10, 2000) for place in range(9)} | {
        "noisy": 3 * rng.chisquare(10, 2000),
        "small": rng.chisquare(10, 20),
    }
    found = calibrate(scores, 0.01)
    noisy, small = found.devices["noisy"], found.devices["small"]

    assert noisy.own is not None
    assert noisy.n_above / noisy.n_scores > 0.05
    assert noisy.own.value == pytest.approx(np.sort(scores["noisy"])[1980], rel=0.01)  # rank ceil(2001 * 0.99)
    assert small.own is None
    assert found.limits(2, ["noisy", "stranger"]).tolist() == [noisy.own.value, found.threshold]
    above = [noisy.own.value * 0.99, noisy.own.value * 1.02]
    assert (found.p_values(above, ["noisy"] * 2) <= 0.01).tolist() == [False, True]


def test_the_share_of_rows_that_is_to_be_anomalous_is_met() -> None:
    scores = {"a": np.arange(1.0, 51.0), "b": np.arange(51.0, 101.0)}
    found = limit_for_share(scores, 0.1)

    assert sum(int((one > found.threshold).sum()) for one in scores.values()) == 10
    assert (found.calibrated_on, found.fleet.is_guaranteed) == ("all rows", False)
    assert ((found.p_values(scores["b"]) <= 0.1) == (scores["b"] > found.threshold)).all()


@pytest.mark.parametrize("budget", [0.01, 0.05])
@pytest.mark.parametrize("seed", range(5))
def test_the_rate_of_false_alarms_on_unseen_rows_is_inside_its_interval(seed: int, budget: float) -> None:
    slices = {f"site-{d}": near_a_plane(1000, seed=100 * seed + d) for d in range(4)}
    detector = fit_detector(slices, DetectorSpec(false_alarm_rate=budget, seed=seed))
    unseen = near_a_plane(5000, seed=100 * seed + 99)

    alarms = int(detector.verdicts(unseen).sum())

    # Above rank k of n exchangeable scores: beta-binomial, which has the spread of both, calibration and count.
    fleet = detector.thresholds.fleet
    k = fleet.n_scores - fleet.n_above
    low, high = betabinom.ppf([5e-5, 1 - 5e-5], len(unseen), fleet.n_scores + 1 - k, k)
    assert fleet.n_scores == 800
    assert low <= alarms <= high


def test_alarms_per_day_are_a_budget() -> None:
    slices = {"a": near_a_plane(1000)}
    by_day = fit_detector(slices, DetectorSpec(alarms_per_day=2.0, windows_per_day=100.0))
    by_share = fit_detector(slices, DetectorSpec(false_alarm_rate=0.02))

    assert by_day.thresholds.threshold == by_share.thresholds.threshold


@pytest.mark.slow
@pytest.mark.parametrize("fail", ["", "server@0", "device:7@0/report"], ids=["clean", "server", "member"])
@pytest.mark.parametrize("seed", range(3))
def test_wireless_traffic_stays_inside_the_budget_whoever_dies(seed: int, fail: str) -> None:
    data = load(RunSpec(data="comms-ml", devices=10, seed=seed))
    assert data.test is not None
    assert data.is_anomalous is not None
    slices = {str(device): data.slice_of(device) for device in range(10)}
    detector = fit_detector(slices, DetectorSpec(fail=fail, seed=seed))
    typical = data.test[~data.is_anomalous]

    # A lost device takes its region's share of the held-back rows along; nine of ten are close to exchangeable.
    fleet = detector.thresholds.fleet
    k = fleet.n_scores - fleet.n_above
    most = betabinom.ppf(1 - 5e-5, len(typical), fleet.n_scores + 1 - k, k)
    assert detector.verdicts(typical).sum() <= most
    assert auroc(detector.anomaly_score(data.test), data.is_anomalous) > 0.8
