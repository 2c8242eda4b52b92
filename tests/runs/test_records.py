"""The lines of many devices as those of one run."""

from __future__ import annotations

import itertools

import pytest

from tests.dashboard.stories import closed
from tolfl.core.records import AnyRecord, Evaluated, RoundClosed
from tolfl.runs.records import one_story

ROUNDS = (3, 7, 11)
CLOSED = [closed(float(index), index, [0, 1], [0], 100 * index) for index in range(12)]


def scored(index: int, time_s: float) -> Evaluated:
    return Evaluated(time_s=time_s, round=index, version=CLOSED[index].version, auroc=index / 100)


@pytest.mark.parametrize("order", list(itertools.permutations(ROUNDS)))
def test_an_evaluation_stands_behind_its_round_whenever_it_was_scored(order: tuple[int, ...]) -> None:
    late = [scored(index, 20.0 + place) for place, index in enumerate(order)]
    story = one_story([*CLOSED, *late])

    expected: list[AnyRecord] = []
    for line in CLOSED:
        expected += [line, scored(line.round, line.time_s)] if line.round in ROUNDS else [line]
    assert story == expected


def test_a_model_that_two_devices_kept_is_evaluated_once() -> None:
    story = one_story([CLOSED[3], scored(3, 4.5), scored(3, 4.6)])

    assert [type(line) for line in story] == [RoundClosed, Evaluated]


def test_an_evaluation_whose_round_nobody_wrote_down_keeps_its_place() -> None:
    lines: list[AnyRecord] = [CLOSED[2], scored(3, 3.5), CLOSED[4]]

    assert one_story(lines) == lines
