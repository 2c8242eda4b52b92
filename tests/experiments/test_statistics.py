"""Statistics over splits: against numbers by hand, against SciPy, and by their properties."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test

from tolfl.experiments.statistics import differences, estimate, holm, sign_flip_p

VALUES = st.floats(-1, 1, allow_nan=False, width=32)


def test_the_interval_resamples_splits_not_seeds() -> None:
    # Two splits far apart: however many seeds each has, the interval spans them both.
    found = estimate({"low": [0.1] * 50, "high": [0.9] * 50})
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.1, 0.9))
    assert found.n_units == 2


def test_splits_count_the_same_however_many_seeds_they_have() -> None:
    assert estimate({"a": [0.0, 0.0, 0.0], "b": [1.0]}).mean == 0.5


@given(st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=5))
def test_an_interval_lies_within_the_values(values: list[list[float]]) -> None:
    found = estimate(dict(enumerate(values)))
    flat = [value for of_unit in values for value in of_unit]
    assert min(flat) - 1e-9 <= found.low <= found.high <= max(flat) + 1e-9


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


def test_many_units_are_tested_with_random_patterns() -> None:
    rng = np.random.default_rng(0)
    assert sign_flip_p(rng.normal(0.0, 1.0, 40).tolist()) > 0.01
    assert sign_flip_p(rng.normal(2.0, 1.0, 40).tolist()) < 1e-4


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
