"""Budgets become thresholds: exact ranks, rates on unseen rows inside their interval, p-values, each device's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom

from tests.detect.rows import near_a_plane
from tolfl.core.metrics import auroc
from tolfl.core.spec import RunSpec
from tolfl.datasets import load
from tolfl.detect import DetectorSpec, fit_detector
from tolfl.detect.thresholds import agree, rank_for


def test_the_threshold_is_the_rank_that_keeps_the_budget() -> None:
    # 19 scores and a budget of 1 in 10: of 20 equally likely places of a new score, two are above the 18th.
    found = agree({"a": np.arange(1.0, 11.0), "b": np.arange(11.0, 20.0)}, 0.1)

    assert (found.threshold, found.is_guaranteed, found.n_scores) == (18.0, True, 19)


def test_too_few_scores_take_the_highest_and_say_so() -> None:
    found = agree({"a": np.arange(8.0)}, 0.1)

    assert (found.threshold, found.is_guaranteed) == (7.0, False)


@given(st.integers(1, 5000), st.floats(0.001, 0.5))
def test_no_lower_rank_keeps_the_budget(n_scores: int, budget: float) -> None:
    rank, is_enough = rank_for(budget, n_scores)

    def odds(one: int) -> float:
        return (n_scores + 1 - one) / (n_scores + 1)

    assert 1 <= rank <= n_scores
    if is_enough:
        assert odds(rank) <= budget + 1e-9
        assert rank == 1 or odds(rank - 1) > budget - 1e-9
    else:
        assert odds(n_scores) > budget - 1e-9


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=40), min_size=1, max_size=5).filter(any),
    st.lists(st.floats(-1.0, 31.0, width=32), min_size=1, max_size=10),
)
def test_p_values_of_few_scores_are_exact_with_ties(fleet: list[list[int]], queries: list[float]) -> None:
    pooled = np.array([score for device in fleet for score in device], dtype=np.float32)
    found = agree({str(place): np.array(device, dtype=np.float32) for place, device in enumerate(fleet)}, 0.05)

    expected = [(1 + (pooled >= query).sum()) / (len(pooled) + 1) for query in queries]

    np.testing.assert_allclose(found.p_values(np.array(queries)), expected)


def test_p_values_of_many_scores_are_exact_in_the_tail_and_never_too_low() -> None:
    scores = np.random.default_rng(0).exponential(size=20_000).astype(np.float32)
    new = np.random.default_rng(1).exponential(size=2000).astype(np.float32)
    found = agree({"a": scores[:5000], "b": scores[5000:]}, 0.01)
    exact = np.array([(1 + (scores >= one).sum()) / 20_001 for one in new])
    p_values = found.p_values(new)

    assert (p_values >= exact - 1e-12).all()
    np.testing.assert_allclose(p_values, exact, rtol=0.025)
    tail = exact < 0.009
    np.testing.assert_allclose(p_values[tail], exact[tail])
    assert ((p_values <= 0.01) == (new > found.threshold)).all()


def test_a_noisy_device_has_a_threshold_of_its_own() -> None:
    rng = np.random.default_rng(0)
    scores = {f"quiet-{place}": rng.exponential(1.0, 2000) for place in range(9)} | {
        "noisy": rng.exponential(5.0, 2000),
        "small": rng.exponential(1.0, 20),
    }
    found = agree(scores, 0.01)
    noisy, small = found.per_device["noisy"], found.per_device["small"]

    assert noisy.is_own
    assert noisy.alarm_rate_at_fleet is not None
    assert noisy.alarm_rate_at_fleet > 0.05
    assert noisy.threshold == np.sort(scores["noisy"])[1980]  # rank ceil(2001 * 0.99)
    assert (small.is_own, small.threshold) == (False, found.threshold)
    assert found.of_devices(["noisy", "stranger"]).tolist() == [noisy.threshold, found.threshold]


@pytest.mark.parametrize("budget", [0.01, 0.05])
@pytest.mark.parametrize("seed", range(5))
def test_the_rate_of_false_alarms_on_unseen_rows_is_inside_its_interval(seed: int, budget: float) -> None:
    slices = {f"site-{d}": near_a_plane(1000, seed=100 * seed + d) for d in range(4)}
    detector = fit_detector(slices, DetectorSpec(model="pca", false_alarm_rate=budget, seed=seed))
    unseen = near_a_plane(5000, seed=100 * seed + 99)

    alarms = int(detector.verdicts(unseen).sum())

    # Above rank k of n exchangeable scores: beta-binomial, which has the spread of both, calibration and count.
    n = detector.thresholds.n_scores
    k = rank_for(budget, n)[0]
    low, high = betabinom.ppf([5e-5, 1 - 5e-5], len(unseen), n + 1 - k, k)
    assert n == 800
    assert low <= alarms <= high


def test_alarms_per_day_are_a_budget() -> None:
    slices = {"a": near_a_plane(1000)}
    by_day = fit_detector(slices, DetectorSpec(model="pca", alarms_per_day=2.0, windows_per_day=100.0))
    by_share = fit_detector(slices, DetectorSpec(model="pca", false_alarm_rate=0.02))

    assert by_day.thresholds.threshold == by_share.thresholds.threshold


def test_devices_that_are_left_agree_anew() -> None:
    slices = {"a": near_a_plane(500), "b": near_a_plane(500, seed=1, noise=0.5)}
    detector = fit_detector(slices, DetectorSpec(model="pca"))
    left = detector.with_thresholds_from({"a": near_a_plane(500, seed=7)})

    assert set(left.thresholds.per_device) == {"a"}
    assert left.thresholds.threshold < detector.thresholds.threshold / 10
    assert left.learned is detector.learned
    assert detector.thresholds.n_scores == 200


@pytest.mark.slow
@pytest.mark.parametrize("fail", ["", "server@0", "device:7@0/report"], ids=["clean", "server", "member"])
@pytest.mark.parametrize("seed", range(3))
def test_wireless_traffic_stays_inside_the_budget_whoever_dies(seed: int, fail: str) -> None:
    data = load(RunSpec(data="comms-ml", devices=10, seed=seed))
    assert data.test is not None
    assert data.is_anomalous is not None
    slices = {str(device): data.slice_of(device) for device in range(10)}
    detector = fit_detector(slices, DetectorSpec(model="pca", fail=fail, rounds=1, seed=seed))
    typical = data.test[~data.is_anomalous]

    # A lost device takes its region's share of the held-back rows along; nine of ten are close to exchangeable.
    n = detector.thresholds.n_scores
    k = rank_for(0.01, n)[0]
    assert detector.verdicts(typical).sum() <= betabinom.ppf(1 - 5e-5, len(typical), n + 1 - k, k)
    assert auroc(detector.anomaly_score(data.test), data.is_anomalous) > 0.8
