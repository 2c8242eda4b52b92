"""AUROC, average precision and ensembles, by hand and against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from tolfl.core.errors import DataError
from tolfl.core.metrics import auroc, average_precision, lowest_scores

scored = st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2, max_size=40).filter(
    lambda pairs: 0 < sum(label for _, label in pairs) < len(pairs)
)


def test_auroc_of_the_worked_example() -> None:
    assert auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75


@pytest.mark.parametrize(
    ("scores", "expected"), [([1, 1, 1, 1], 0.5), ([1, 2, 2, 3], 0.875), ([0, 0, 1, 1], 1.0), ([1, 1, 0, 0], 0.0)]
)
def test_ties_count_one_half(scores: list[float], expected: float) -> None:
    assert auroc(scores, [0, 0, 1, 1]) == expected


@given(scored)
def test_auroc_is_the_share_of_pairs_in_the_right_order(pairs: list[tuple[int, bool]]) -> None:
    scores, labels = [score for score, _ in pairs], [label for _, label in pairs]
    high = [score for score, label in pairs if label]
    low = [score for score, label in pairs if not label]
    right = sum((a > b) + 0.5 * (a == b) for a in high for b in low)

    assert auroc(scores, labels) == pytest.approx(right / (len(high) * len(low)))


@given(scored)
def test_auroc_is_the_same_under_every_increasing_map(pairs: list[tuple[int, bool]]) -> None:
    scores, labels = np.array([float(score) for score, _ in pairs]), [label for _, label in pairs]
    plain = auroc(scores, labels)

    assert auroc(np.exp(scores), labels) == plain
    assert auroc(scores**3 + scores, labels) == plain
    assert auroc(1000 + 0.5 * scores, labels) == plain
    assert auroc(-scores, labels) == pytest.approx(1 - plain)


def test_average_precision_is_the_area_of_the_steps() -> None:
    assert average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert average_precision([1, 2, 3, 4], [0, 0, 1, 1]) == 1.0


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1]])
def test_a_test_set_of_one_kind_cannot_be_scored(labels: list[int]) -> None:
    for metric in (auroc, average_precision):
        with pytest.raises(DataError, match=r"typical samples .* and anomalous ones"):
            metric([1.0, 2.0, 3.0], labels)


def test_a_sample_is_as_typical_as_its_best_model_finds_it() -> None:
    assert lowest_scores([[1, 5, 9], [4, 2, 8]]).tolist() == [1.0, 2.0, 8.0]


@given(st.lists(st.lists(st.floats(0, 10), min_size=4, max_size=4), min_size=1, max_size=5))
def test_one_model_or_a_duplicate_leaves_the_ensemble_as_it_is(scores: list[list[float]]) -> None:
    assert lowest_scores(scores[:1]).tolist() == scores[0]
    assert lowest_scores([*scores, scores[0]]).tolist() == lowest_scores(scores).tolist()


def test_the_best_single_model_is_at_least_as_good_as_every_one() -> None:
    labels = np.arange(50) % 2
    each = [auroc(np.random.default_rng(seed).random(50) + 0.3 * labels, labels) for seed in range(5)]

    assert all(max(each) >= one for one in each)


@given(
    st.lists(st.tuples(st.integers(0, 6).map(lambda n: n / 4), st.booleans()), min_size=2, max_size=40).filter(
        lambda rows: len({kind for _, kind in rows}) == 2
    )
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_both_numbers_are_those_of_scikit_learn_ties_included(rows: list[tuple[float, bool]]) -> None:
    scores, labels = zip(*rows, strict=True)

    assert auroc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), rel=1e-12)
    assert average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores), rel=1e-12)
