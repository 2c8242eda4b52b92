"""Order statistics by counts alone: equal to sorting all scores in one place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import DataError
from tolfl.detect.quantiles import counts_at, from_keys, order_statistics, summed, to_keys

scores = st.floats(width=32, allow_nan=False)
fleets = st.lists(st.lists(scores, max_size=20), min_size=1, max_size=6).filter(lambda fleet: any(map(len, fleet)))


@given(fleets, st.data())
def test_a_rank_over_the_fleet_is_the_order_statistic_of_the_pooled_scores(
    fleet: list[list[float]], data: st.DataObject
) -> None:
    pooled = np.sort(np.array([score for device in fleet for score in device], dtype=np.float32))
    ranks = data.draw(st.lists(st.integers(1, len(pooled)), min_size=1, max_size=5))
    by_device = {3 * place: np.array(device, dtype=np.float32) for place, device in enumerate(fleet)}

    found = order_statistics(by_device, ranks)

    assert found.tolist() == pooled[np.array(ranks) - 1].tolist()


@given(fleets, st.lists(scores, min_size=1, max_size=5))
def test_counts_at_levels_are_those_of_the_pooled_scores(fleet: list[list[float]], levels: list[float]) -> None:
    pooled = np.array([score for device in fleet for score in device], dtype=np.float32)
    at = np.array(levels, dtype=np.float32)

    at_least, higher = counts_at({d: np.array(device, dtype=np.float32) for d, device in enumerate(fleet)}, at)

    assert at_least.tolist() == [(pooled >= level).sum() for level in at]
    assert higher.tolist() == [(pooled > level).sum() for level in at]


@given(st.lists(scores, min_size=2, max_size=2))
def test_keys_sort_as_scores_do_and_lead_back_to_them(pair: list[float]) -> None:
    values = np.array(pair, dtype=np.float32)
    keys = to_keys(values)

    assert from_keys(keys).tolist() == values.tolist()
    assert (keys[0] < keys[1]) == (values[0] < values[1])


def test_counts_beyond_single_precision_are_added_exactly() -> None:
    many = 2**40 + 1

    assert summed([(0, np.array([many])), (5, np.array([1]))]).tolist() == [many + 1]


@pytest.mark.parametrize("rank", [0, 4])
def test_a_rank_that_is_not_there_is_refused(rank: int) -> None:
    with pytest.raises(DataError, match=r"of 3 scores; give ranks from 1 to 3"):
        order_statistics({0: np.array([1.0, 2.0, 3.0])}, [rank])


def test_no_rank_has_no_score() -> None:
    assert order_statistics({0: np.array([1.0])}, []).size == 0
