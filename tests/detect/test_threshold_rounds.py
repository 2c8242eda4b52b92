"""Thresholds in rounds: exact where nobody dies, and never a broken promise where somebody does."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.detect.rows import detector_for
from tests.learners.play import Present, play
from tolfl.core.contribution import Contribution
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import RunSpec
from tolfl.detect.detector_learner import spec_for_run
from tolfl.detect.features import Rows
from tolfl.detect.network import Dense, ScoringNetwork
from tolfl.detect.statistics_rounds import packed
from tolfl.detect.threshold_rounds import Agreement
from tolfl.detect.thresholds import Thresholds, agree
from tolfl.learners.learner import Closing, Fleet, State, Turn


class OfSquares(Agreement):
    """Thresholds for a model whose score is the square of the one column."""

    def start(self, state: State) -> State:
        one, nothing = np.ones(1), np.zeros(1)
        network = ScoringNetwork((Dense(np.ones((1, 1), np.float32), np.zeros(1, np.float32)),), is_residual=True)
        scaler = {"scaler/shift": nothing, "scaler/factor": one, "scaler/fill": nothing}
        return super().start({**state, **scaler, "network": packed(network)})


class AllHeldBack(OfSquares):
    """As if all rows were held back: a test knows every score."""

    def held_back_rows(self, turn: Turn) -> Rows:
        return turn.rows


def stage_of(kind: type[OfSquares], n_devices: int, **learn: object) -> OfSquares:
    run = RunSpec(devices=n_devices)
    return kind(Fleet(run, (1,)), spec_for_run(msgspec.structs.replace(run, learn={"held_back": 0.5, **learn})))


def agreed(stage: OfSquares, rows: Mapping[int, Rows], present: Present | None = None) -> Thresholds | None:
    state = play(stage, rows, present)
    return stage.thresholds(state, [str(device) for device in rows]) if "threshold" in state else None


def scores_of(rows: Rows) -> NDArray[np.float32]:
    return np.square(rows[:, 0]).astype(np.float32)


@st.composite
def fleets(draw: st.DrawFn) -> dict[int, NDArray[np.float32]]:
    """Return rows of a few devices: scores of very different sizes, many of them equal, some devices with none."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(0, 300), min_size=1, max_size=6))
    sizes[0] += 1
    spread = draw(st.sampled_from([0.01, 1.0, 8.0]))
    digits = draw(st.sampled_from([0, 2, 9]))
    return {
        d: np.round(rng.lognormal(d % 3, spread, size=(n, 1)), digits).astype(np.float32) for d, n in enumerate(sizes)
    }


BUDGETS = st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.3])


@settings(max_examples=60, deadline=None)
@given(fleets(), BUDGETS)
def test_without_deaths_the_rounds_find_what_is_found_at_once(
    rows: dict[int, NDArray[np.float32]], budget: float
) -> None:
    found = agreed(stage_of(AllHeldBack, len(rows), false_alarm_rate=budget), rows)

    known = {str(device): scores_of(own) for device, own in rows.items() if len(own)}
    assert found == agree(known, budget)


@settings(max_examples=150, deadline=None)
@given(fleets(), BUDGETS, st.data())
def test_a_guarantee_is_never_given_where_the_budget_is_broken(
    rows: dict[int, NDArray[np.float32]], budget: float, data: st.DataObject
) -> None:
    # Each device is there until it dies before some round; it may be back later.
    gone = {d: data.draw(st.sampled_from([(9, 9), *[(a, b) for a in range(6) for b in (a + 1, 9)]])) for d in rows}

    def present(round_index: int) -> list[int]:
        return [device for device, (first, last) in gone.items() if not first <= round_index < last]

    found = agreed(stage_of(AllHeldBack, len(rows), false_alarm_rate=budget), rows, present)

    counted = [scores_of(rows[device]) for device in present(4)]
    scores = np.concatenate(counted) if counted else np.zeros(0, np.float32)
    if found is not None and found.is_guaranteed:
        # Of n scores and one to come, which are exchangeable.
        assert found.n_scores == len(scores)
        assert ((scores > found.threshold).sum() + 1) / (len(scores) + 1) <= budget + 1e-9
    if found is not None and found.calibrated_on == "held-back samples":
        levels = np.array(found.levels, np.float32)
        assert found.n_at_least == tuple((scores >= level).sum() for level in levels)
        assert found.n_higher == tuple((scores > level).sum() for level in levels)


@settings(max_examples=30, deadline=None)
@given(fleets(), st.sampled_from([0.01, 0.1, 0.4]))
def test_contamination_cuts_off_a_share_of_all_rows(rows: dict[int, NDArray[np.float32]], share: float) -> None:
    found = agreed(stage_of(OfSquares, len(rows), contamination=share), rows)

    known = {str(device): scores_of(own) for device, own in rows.items() if len(own)}
    n_rows = sum(map(len, known.values()))
    assert found == agree(known, share, "all samples", max(1, n_rows - round(share * n_rows)))


def test_training_rows_are_used_where_nobody_has_any_other() -> None:
    found = agreed(stage_of(OfSquares, 2), {0: np.full((1, 1), 2.0), 1: np.ones((1, 1))})

    assert found is not None
    assert (found.calibrated_on, found.is_guaranteed, found.n_scores) == ("training samples", False, 2)
    # One round went by until that was known: the lowest eight bits are open, and the highest of them counts.
    assert found.threshold == pytest.approx(4.0, rel=1e-4)
    assert found.threshold >= 4.0


def test_the_highest_level_is_kept_where_all_scores_are_gone_before_the_count() -> None:
    rng = np.random.default_rng(0)
    rows = {0: rng.uniform(size=(200, 1)).astype(np.float32), 1: np.ones((1, 1), np.float32)}
    found = agreed(stage_of(OfSquares, 2), rows, lambda round_index: [0, 1] if round_index < 4 else [1])

    assert found is not None
    assert (found.calibrated_on, found.is_guaranteed, found.n_scores) == ("no samples", False, 0)
    assert found.threshold == max(found.levels)
    assert found.p_values([0.5, 100.0]).tolist() == [1.0, 1.0]
    assert set(found.per_device) == {"1"}


@given(st.sets(st.integers(0, 7)))
@example(set(range(8)))
@settings(max_examples=40, deadline=None)
def test_rounds_in_which_nobody_is_present_are_never_an_exception(empty: set[int]) -> None:
    rng = np.random.default_rng(1)
    rows = {device: rng.normal(size=(40, 3)) for device in range(3)}
    learner = detector_for(Fleet(RunSpec(devices=3), (3,)), {})
    state = play(learner, rows, lambda round_index: [] if round_index in empty else range(3))

    has_model = not empty & {0, 1} and not set(range(2, 6)) <= empty and 6 not in empty
    assert bool(learner.results(state)) == has_model


def test_an_empty_total_leaves_the_state_as_it_is() -> None:
    stage = stage_of(OfSquares, 3)
    state = stage.start({})

    for round_index in (0, 1, 2, 4, 5):
        assert stage.apply(state, Contribution.empty(), Closing(0, round_index, DeviceSet())) == state
