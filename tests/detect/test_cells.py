"""Cells: what the recipe says, in rounds; whoever dies; units, constants and order; words, trimming, own cells."""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.detect.rows import Rows, detector_for, near_a_plane, off_the_plane
from tests.learners.play import Present, play
from tolfl.core.errors import DataError
from tolfl.core.metrics import auroc
from tolfl.core.spec import RunSpec
from tolfl.detect import Detector, DetectorSpec, DriftWarning, Features, fit_detector, fit_more
from tolfl.detect.cells import KNEE, SIGMA, Cells, CellScaling, root_of
from tolfl.detect.cells_learner import CellScalingRounds, from_keys, to_keys
from tolfl.learners.checks import check_learner
from tolfl.learners.learner import Fleet
from tolfl.tables.schema import RARITY


def groups(n_rows: int, seed: int, n_groups: int = 4, n_features: int = 6) -> Rows:
    """Return rows of several groups, each with its own place; the same places for every seed."""
    centres = 8 * np.random.default_rng(77).normal(size=(n_groups, n_features))
    rng = np.random.default_rng(seed)
    mixed = np.random.default_rng(78).normal(size=(n_features, n_features))
    return centres[rng.integers(n_groups, size=n_rows)] + rng.normal(size=(n_rows, n_features)) @ mixed


def model_of(detector: Detector) -> Cells:
    assert isinstance(detector.model, Cells)
    return detector.model


def fit(slices: list[Rows], **fields: object) -> Detector:
    return fit_detector({f"site-{place}": own for place, own in enumerate(slices)}, DetectorSpec(**fields))  # type: ignore[arg-type]


# -- scaling --------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=60))
def test_keys_sort_as_values_do_and_come_back(values: list[float]) -> None:
    array = np.array(values, np.float32)

    assert (np.argsort(to_keys(array), kind="stable") == np.argsort(array, kind="stable")).all()
    assert (from_keys(to_keys(array)) == array).all()


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(0, 2**16), st.booleans())
def test_medians_and_spreads_are_those_of_the_pooled_rows(sizes: list[int], seed: int, has_missing: bool) -> None:
    rng = np.random.default_rng(seed)
    kinds: list[Any] = [
        rng.normal,
        rng.exponential,
        lambda size: rng.integers(0, 3, size),
        lambda size: rng.random(size) < 0.1,
    ]
    rows = {d: np.column_stack([kind(size=size + 1) for kind in kinds]) * 1.0 for d, size in enumerate(sizes)}
    for own in rows.values():
        own[...] = own.astype(np.float32)
        if has_missing:
            own[rng.random(own.shape) < 0.3] = np.nan
    stage = CellScalingRounds(Fleet(RunSpec(devices=len(rows)), (4,)), DetectorSpec(held_back=0.0))
    state = play(stage, rows)
    pooled = np.concatenate(list(rows.values()))

    for place, column in enumerate(pooled.T):
        values = np.sort(column[~np.isnan(column)])
        if not len(values):
            assert state["scaling/median"][place] == state["scaling/spread"][place] == 0.0
            continue
        median = values[(len(values) + 1) // 2 - 1]
        assert state["scaling/median"][place] == median
        off = np.abs(values - median)
        off = off[off > 1.2e-7 * abs(median)]
        spread = SIGMA * np.exp(np.log(off).mean()) * np.sqrt(len(off) / len(values)) if len(off) else 0.0
        assert state["scaling/spread"][place] == pytest.approx(spread, rel=1e-8)
        assert (state["scaling/low"][place], state["scaling/high"][place]) == (values[0], values[-1])


def test_a_value_is_bent_beyond_the_knee_and_comes_back() -> None:
    scaling = CellScaling(
        np.array([10.0, 5.0]), np.array([2.0, 0.0]), np.array([-1e9, 5.0]), np.array([1e9, 5.0]), 100,
        np.zeros(0, np.int64), np.zeros((0, 256), np.int64),
    )  # fmt: skip
    values = np.array([[10.0, 5.0], [12.0, 5.0], [22.0, 5.1], [10.0 + 12 * np.e, 4.0], [np.nan, np.nan]])
    z = scaling(values)

    np.testing.assert_allclose(z[:, 0], [0, 1, KNEE, 2 * KNEE, 0], atol=1e-4)
    np.testing.assert_allclose(z[:, 1], np.sqrt(2 * np.log(102)) * np.array([0, 0, 1, -1, 0]), atol=1e-4)
    np.testing.assert_allclose(scaling.back(z.astype(float))[:4, 0], values[:4, 0], rtol=1e-4)
    assert (scaling.back(z.astype(float))[:, 1] == 5.0).all()


# -- the model ------------------------------------------------------------------------------------------------------


def test_one_cell_is_the_mahalanobis_distance_of_the_scaled_rows() -> None:
    slices = [near_a_plane(300, seed=place, noise=0.5) for place in range(3)]
    model = model_of(fit(slices, model="mahalanobis", held_back=0.0))
    z = model.scaling(np.concatenate(slices)).astype(np.float64)
    covariance = np.cov(z.T, bias=True)
    exact = np.einsum("ij,jk,ik->i", z - z.mean(0), np.linalg.inv(covariance), z - z.mean(0))

    assert len(model.counts) == 1
    np.testing.assert_allclose(model.centres[0], z.mean(axis=0), atol=1e-4)
    assert np.corrcoef(model.scores(np.concatenate(slices)), exact)[0, 1] > 0.99


def test_groups_of_rows_become_cells_and_the_space_between_them_is_anomalous() -> None:
    slices = [groups(300, seed=place) for place in range(4)]
    cells, one = fit(slices), fit(slices, model="mahalanobis")
    centres = 8 * np.random.default_rng(77).normal(size=(4, 6))
    between = (centres[[0, 1, 2]] + centres[[1, 2, 3]]) / 2
    typical = groups(2000, seed=99)

    assert cells.verdicts(between).all()
    assert not one.verdicts(between).any()
    assert cells.verdicts(typical).mean() < 0.02
    assert 4 <= len(model_of(cells).counts) <= 32


def test_the_number_of_cells_is_limited_by_the_rows_and_by_what_is_asked() -> None:
    slices = [groups(40, seed=place) for place in range(2)]

    assert len(model_of(fit(slices)).counts) <= 6  # of 64 rows that train
    assert len(model_of(fit([groups(400, 0)], cells=3)).counts) <= 3


def test_a_root_is_the_inverse_of_the_shrunk_covariance() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4))
    rows[:, 2] = 0.0
    root = root_of(rows.T @ rows, 500, np.array([False, False, True, False]))
    moving = np.ix_([0, 1, 3], [0, 1, 3])
    precision = root @ root

    assert (root == root.T).all()
    np.testing.assert_allclose(
        np.linalg.inv(precision[moving]), np.cov(rows[:, [0, 1, 3]].T, bias=True), rtol=0.2, atol=0.1
    )
    assert (precision[2, [0, 1, 3]] == 0).all()


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**16))
def test_a_score_does_not_depend_on_the_company(n_rows: int, n_features: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    detector = fit([rng.normal(size=(60, n_features)), rng.normal(size=(30, n_features)) + 3], seed=seed)
    rows = 3 * rng.normal(size=(n_rows, n_features))
    together = model_of(detector).scores(rows)

    assert [float(model_of(detector).scores(row[None, :])[0]) for row in rows] == together.tolist()
    assert model_of(detector).scores(np.vstack([rows[::-1], rows]))[n_rows:].tolist() == together.tolist()


# -- units, constants, order ----------------------------------------------------------------------------------------

TEST = np.concatenate([groups(300, 50), groups(300, 51) + np.random.default_rng(0).normal(size=(300, 6))])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-6, 6), min_size=6, max_size=6), st.integers(0, 50))
def test_no_verdict_changes_with_the_units(exponents: list[int], seed: int) -> None:
    slices = [groups(120, seed + place) for place in range(3)]
    units = 10.0 ** np.array(exponents)
    plain, scaled = fit(slices, seed=seed), fit([own * units for own in slices], seed=seed)

    # Medians travel in single precision: about once in some hundred fits a row on the edge of two cells changes sides,
    # and with it the verdicts of rows next to the threshold.
    assert (plain.verdicts(TEST) != scaled.verdicts(TEST * units)).mean() <= 0.01


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=10), st.integers(0, 50))
def test_no_verdict_changes_with_constant_columns(constants: list[float], seed: int) -> None:
    slices = [groups(120, seed + place) for place in range(3)]

    def widened(rows: Rows) -> Rows:
        return np.column_stack([rows, np.tile(constants, (len(rows), 1))])

    plain, wide = fit(slices, seed=seed), fit([widened(own) for own in slices], seed=seed)

    assert (plain.verdicts(TEST) == wide.verdicts(widened(TEST))).all()


@pytest.mark.parametrize("unit", [1.0, 0.01, 100.0, 1e-6, 1e6])
def test_a_constant_column_that_moves_counts_the_same_in_every_unit(unit: float) -> None:
    slices = [np.column_stack([groups(200, place), np.full(200, 3.0 * unit)]) for place in range(3)]
    moved = np.column_stack([groups(500, 9), np.full(500, 3.5 * unit)])

    assert (fit(slices).verdicts(moved) == _moved_verdicts()).all()


@cache
def _moved_verdicts() -> np.ndarray:
    slices = [np.column_stack([groups(200, place), np.full(200, 3.0)]) for place in range(3)]
    return fit(slices).verdicts(np.column_stack([groups(500, 9), np.full(500, 3.5)]))


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(90)), st.integers(0, 50))
def test_the_order_of_rows_does_not_matter(order: list[int], seed: int) -> None:
    rows = groups(90, seed)
    plain, other = fit([rows, groups(60, 7)], held_back=0.0), fit([rows[order], groups(60, 7)], held_back=0.0)

    for key, array in model_of(plain).arrays().items():
        np.testing.assert_allclose(model_of(other).arrays()[key], array, rtol=1e-9, err_msg=key)
    assert (plain.verdicts(TEST) == other.verdicts(TEST)).all()


def test_one_row_of_huge_values_changes_little() -> None:
    slices = [groups(300, place) for place in range(3)]
    plain = fit(slices)
    slices[0] = np.vstack([slices[0][:-1], np.full((1, 6), 1e9)])
    spoilt = fit(slices)

    assert (plain.verdicts(TEST) != spoilt.verdicts(TEST)).mean() < 0.05


# -- whoever dies, in any round -------------------------------------------------------------------------------------

ROWS = {device: groups(40 + 10 * device, seed=device) for device in range(4)}
N_ROUNDS = 22
IS_ANOMALOUS = np.arange(600) >= 300


def learner(**learn: object):  # type: ignore[no-untyped-def]
    return detector_for(Fleet(RunSpec(devices=4), (6,), usual_rows=50), learn)


def _without(dead: set[int], when: int) -> Present:
    return lambda round_index: [device for device in ROWS if device not in dead or round_index < when]


@pytest.mark.parametrize("when", range(N_ROUNDS))
def test_any_devices_may_die_in_any_round(when: int) -> None:
    for dead in ({0}, {3}, {1, 2}):
        stages = learner()
        state = play(stages, ROWS, _without(dead, when))
        detector = stages.detector(state)

        assert stages.rounds == N_ROUNDS
        assert detector is not None
        assert set(detector.trainings[0].survivors) == {str(d) for d in ROWS} - {str(d) for d in dead}
        # A lost device never costs the detector; rows of its own groups may be rarer now.
        assert auroc(detector.anomaly_score(TEST), IS_ANOMALOUS) > 0.7
        assert np.isfinite(detector.anomaly_score(TEST)).all()


@given(st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 22), st.integers(0, 22)), max_size=4))
def test_whoever_is_away_between_any_two_rounds_leaves_a_state_that_can_be_used(
    away: dict[int, tuple[int, int]],
) -> None:
    stages = learner()
    state = play(
        stages, ROWS, lambda r: [d for d in ROWS if not away.get(d, (99, 0))[0] <= r < away.get(d, (99, 0))[1]]
    )
    detector = stages.detector(state)

    for key, array in state.items():
        assert np.isfinite(array).all(), key
    if detector is not None:
        assert np.isfinite(detector.anomaly_score(TEST)).all()


@pytest.mark.parametrize(
    "learn", [{"cells": 4}, {"model": "mahalanobis"}, {"trim": 0.1, "cells": 2}], ids=["cells", "one", "trim"]
)
def test_it_is_a_learner(learn: dict[str, object]) -> None:
    rows = [groups(12 + 4 * device, seed=device) for device in range(3)]
    rows[1] = rows[1][:0]
    fleet = Fleet(RunSpec(devices=3), (6,), usual_rows=16)

    check_learner(lambda: detector_for(fleet, learn), rows)


def test_a_simulated_fleet_with_a_dead_head_is_the_played_one() -> None:
    slices = {str(device): own for device, own in ROWS.items()}
    stages = learner()
    for fail, gone in (("device:0@7", 7), ("device:0@19", 19)):
        simulated = fit_detector(slices, DetectorSpec(fail=fail))
        played = stages.detector(play(stages, ROWS, _without({0}, gone)))

        assert played is not None
        assert simulated.thresholds == played.thresholds
        assert simulated.anomaly_score(TEST).tolist() == played.anomaly_score(TEST).tolist()


# -- options --------------------------------------------------------------------------------------------------------


def test_trimming_helps_where_rows_are_dirty() -> None:
    rng = np.random.default_rng(0)
    dirty = [np.vstack([near_a_plane(180, s), 3 * rng.normal(size=(20, 6))]) for s in range(4)]
    test = np.vstack([near_a_plane(300, 40), off_the_plane(300, 41)])
    plain, trimmed = (auroc(fit(dirty, trim=trim).anomaly_score(test), IS_ANOMALOUS) for trim in (0.0, 0.1))

    assert trimmed > plain


def test_many_rows_are_sampled_and_counted_as_often() -> None:
    model = model_of(fit([groups(50_000, 0), groups(300, 1)]))

    assert model.scaling.n_rows == 40_240
    assert model.counts.sum() == pytest.approx(40_240, rel=0.01)
    assert auroc(model.scores(TEST), IS_ANOMALOUS) > 0.75


def word_columns(words: list[str]) -> Rows:
    """Return what a table makes of a column of words: 32 flags, and a number of another hash."""
    hashes = np.array([zlib.crc32(word.encode()) for word in words])
    return np.column_stack([hashes[:, None] % 32 == np.arange(32), hashes // 32 % 256]).astype(float)


def test_words_that_were_never_seen_or_are_rare_are_anomalous() -> None:
    rng = np.random.default_rng(0)
    names = [*"abcdef", *(f"mode (hash {i})" for i in range(32)), f"mode{RARITY}"]

    def rows(n: int, seed: int, word: str | None = None) -> Rows:
        words = [word] * n if word else rng.choice(["eco", "full", "idle"], n, p=[0.5, 0.3, 0.2]).tolist()
        return np.column_stack([near_a_plane(n, seed, noise=0.5), word_columns(words)])

    slices = {"a": rows(400, 0), "b": rows(400, 1)}
    detector = fit_detector(slices, DetectorSpec(), Features.named(names))

    assert detector.verdicts(rows(500, 2)).mean() < 0.03
    assert detector.verdicts(rows(50, 3, "meltdown")).all()
    assert detector.trainings[0].rounds == 23
    assert detector.explain(rows(1, 4, "meltdown")[0]).features[0].name == "mode"


def test_a_new_device_learns_cells_of_its_own_and_the_others_stay_as_they_are() -> None:
    slices = [groups(300, seed=place) for place in range(4)]
    detector = fit(slices)
    elsewhere = groups(400, seed=8) + 15.0
    adapted = detector.with_own_cells({"new": elsewhere[:50]})
    names = np.array(["new"] * 350)

    assert detector.verdicts(elsewhere[50:], names).mean() > 0.9
    assert adapted.verdicts(elsewhere[50:], names).mean() < 0.15
    assert adapted.verdicts(elsewhere[50:], np.array(["site-1"] * 350)).mean() > 0.9
    assert adapted.verdicts(TEST).tolist() == detector.verdicts(TEST).tolist()
    assert adapted.explain(elsewhere[60], "new").score == adapted.anomaly_score(elsewhere[60:61], ["new"])[0]
    with pytest.raises(DataError, match="device late: 9 rows; give at least 10 typical ones"):
        detector.with_own_cells({"late": elsewhere[:9]})


def test_training_goes_on_as_if_the_rows_before_had_been_seen_again() -> None:
    slices = {f"site-{place}": groups(300, seed=place) for place in range(3)}
    spec = DetectorSpec(model="mahalanobis", held_back=0.0)
    first = fit_detector(slices, spec)
    more = {name: groups(300, seed=20 + place) for place, name in enumerate(slices)}
    second = fit_more(first, more)
    scaling = model_of(first).scaling
    z = scaling(np.concatenate([*slices.values(), *more.values()])).astype(np.float64)
    away = z - z.mean(axis=0)

    np.testing.assert_allclose(model_of(second).centres[0], z.mean(axis=0), atol=1e-4)
    upper = np.triu_indices(6)
    np.testing.assert_allclose(model_of(second).scatter, (away.T @ away)[upper], rtol=1e-4, atol=1e-2)
    assert [training.n_samples for training in second.trainings] == [900, 1800]


def test_further_training_follows_rows_that_have_moved() -> None:
    slices = {f"site-{place}": groups(400, seed=place) for place in range(3)}
    first = fit_detector(slices, DetectorSpec())
    moved = {name: groups(600, seed=30 + place) + 2.0 for place, name in enumerate(slices)}
    second = fit_more(first, moved)
    new = groups(1000, seed=60) + 2.0

    assert first.verdicts(new).mean() > 0.05
    assert second.verdicts(new).mean() < 0.03
    assert second.thresholds.fleet.n_scores == 360


def test_few_new_rows_keep_the_scores_of_the_training_before_and_promise_nothing() -> None:
    slices = {f"site-{place}": groups(400, seed=place) for place in range(3)}
    first = fit_detector(slices, DetectorSpec())
    second = fit_more(first, {"site-0": groups(30, seed=9)})

    assert second.thresholds.fleet.n_scores == 240 + 6
    assert not second.thresholds.fleet.is_guaranteed


def test_a_constant_column_that_moves_in_further_training_is_said() -> None:
    slices = {"a": np.column_stack([groups(100, 0), np.ones(100)])}
    detector = fit_detector(slices, DetectorSpec())

    with pytest.warns(DriftWarning, match="column 'x6' was constant in training, and is not now"):
        fit_more(detector, {"a": np.column_stack([groups(100, 1), np.arange(100.0)])})


def test_a_detector_with_other_own_cells_is_another_one() -> None:
    detector = fit([groups(100, 0)])
    adapted = detector.with_own_cells({"new": groups(20, 5)})

    assert detector.own_cells == {}
    assert replace(adapted, own_cells={}).anomaly_score(TEST).tolist() == detector.anomaly_score(TEST).tolist()
