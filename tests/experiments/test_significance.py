"""Statistics over splits: against numbers by hand, against SciPy, and by their properties."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import permutation_test, ttest_1samp

from tolfl.experiments.significance import differences, holm, interval, sign_flip_p


def test_the_interval_is_students_over_splits_however_many_seeds_they_have() -> None:
    means = [0.1, 0.4, 0.9]
    found = interval({"a": [0.1] * 50, "b": [0.3, 0.5], "c": [0.9]})
    theirs = ttest_1samp(means, 0.0).confidence_interval(0.95)

    assert found.mean == pytest.approx(np.mean(means))
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))
    assert found.n_splits == 3


def test_one_split_settles_nothing() -> None:
    assert interval({"a": [0.5, 0.7]}).side() == 0
    assert str(interval({"a": [0.5, 0.7]})) == "+0.600 (one split)"
    assert [interval({0: [low], 1: [low + 0.001]}).side() for low in (-0.5, 0.5)] == [-1, 1]


def normal(rng: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float64]:
    return rng.normal(size=size)


def flat(rng: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float64]:
    return rng.uniform(-1, 1, size=size)


def heavy_tailed(rng: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float64]:
    return rng.standard_t(5, size=size)


def skewed(rng: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float64]:
    return rng.exponential(size=size) - 1


@pytest.mark.parametrize("over_seeds", [0.2, 1.0])
@pytest.mark.parametrize(("draw", "least"), [(normal, 0.93), (flat, 0.93), (heavy_tailed, 0.93), (skewed, 0.87)])
def test_of_100_intervals_over_five_splits_and_two_seeds_93_have_the_true_mean_but_for_skewed_splits(
    draw: Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]], least: float, over_seeds: float
) -> None:
    rng, n = np.random.default_rng(22), 4000
    splits, seeds = draw(rng, (n, 5, 1)), draw(rng, (n, 5, 2)) * over_seeds
    values = 0.7 + splits + seeds
    found = [interval(dict(enumerate(of_run.tolist()))) for of_run in values]

    assert np.mean([one.low <= 0.7 <= one.high for one in found]) >= least


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=8))
def test_the_sign_flip_test_is_what_trying_every_pattern_gives(values: list[int]) -> None:
    patterns = list(itertools.product((-1, 1), repeat=len(values)))
    observed = abs(sum(values))
    at_least = sum(abs(sum(s * v for s, v in zip(pattern, values, strict=True))) >= observed for pattern in patterns)
    assert sign_flip_p(values) == pytest.approx(at_least / len(patterns))


def test_the_sign_flip_test_agrees_with_scipy() -> None:
    values = np.array([0.02, 0.05, -0.01, 0.04, 0.03, 0.06, -0.02])
    theirs = permutation_test(
        (values, np.zeros_like(values)), lambda a, b: np.sum(a - b), permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip_p(values.tolist()) == pytest.approx(theirs.pvalue)


def test_no_difference_is_no_evidence() -> None:
    assert sign_flip_p([0.0, 0.0]) == sign_flip_p([]) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_never_lowers_a_p_and_keeps_their_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(p <= c <= 1 for p, c in zip(p_values, corrected, strict=True))
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert all(corrected[a] <= corrected[b] for a, b in itertools.pairwise(order))
    assert min(corrected) == min(1.0, len(p_values) * min(p_values))


def test_differences_are_paired_by_unit_and_seed() -> None:
    assert differences({"a": [3.0, 5.0], "b": [1.0]}, {"a": [1.0, 1.0]}) == {"a": [2.0, 4.0]}
    with pytest.raises(ValueError, match="zip"):
        differences({"a": [1.0, 2.0]}, {"a": [1.0]})
