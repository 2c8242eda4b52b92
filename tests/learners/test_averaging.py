"""One model for all: the gradient step on all rows, however they are spread, and batch training beside it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from tests.learners.rounds import MadeUp, turns_from
from tests.sim.fleets import Mean, some_data
from tolfl.core.contribution import GLOBAL, Contribution, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import RunSpec, TrainSettings, TrainSpec
from tolfl.kernel import TrainJob, Update
from tolfl.learners import Closing, Learner, State, Turn
from tolfl.learners.averaging import Averaging, Batch
from tolfl.learners.layouts import SCHEMES
from tolfl.learners.learner import contributions_of
from tolfl.learners.registry import learner_of
from tolfl.learners.torch_module import ModuleModel
from tolfl.runs.outcome import fleet_of, holders_of

DATA = some_data([3, 0, 4, 2])
MODEL = ModuleModel(Mean(3))
SMALL = RunSpec(data="blobs", devices=4, clusters=2, rounds=10, train=TrainSpec(batch_size=0, lr=0.1))

every_scheme = pytest.mark.parametrize("name", SCHEMES)
one_model = pytest.mark.parametrize("name", [name for name, scheme in SCHEMES.items() if not scheme.is_star])


def made(name: str, **options: object) -> Learner:
    return learner_of(fleet_of(msgspec.structs.replace(SMALL, scheme=name, **options), DATA), MODEL)


def step(learner: Learner, devices: Sequence[int] = (0, 1, 2, 3), round_index: int = 0) -> tuple[State, Contribution]:
    state = learner.start({})
    total = Contribution.total(contributions_of(learner, turns_from(state, DATA, round_index, devices)))
    return learner.apply(state, total, Closing(0, round_index, DeviceSet.of(range(4)))), total


@every_scheme
def test_contributions_say_whose_and_how_many_samples_are_inside(name: str) -> None:
    learner = made(name)
    contributions = contributions_of(learner, turns_from(learner.start({}), DATA, 0, range(4)))

    assert [list(one.included) for one in contributions] == [[0], [1], [2], [3]]
    assert [one.n_samples for one in contributions] == [3, 0, 4, 2]


@one_model
def test_a_step_is_the_gradient_step_on_all_samples(name: str) -> None:
    learner, half = made(name), made(name, train=TrainSpec(batch_size=0, lr=0.1, server_lr=0.5))
    after, total = step(learner)
    account = learner.account(learner.start({}), after, total, 0)

    np.testing.assert_allclose(after[GLOBAL], 0.2 * DATA.pool.astype(float).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(step(half)[0][GLOBAL], after[GLOBAL] / 2, rtol=1e-12)
    assert account.loss == pytest.approx(float(np.square(DATA.pool.astype(float)).sum(1).mean()), rel=1e-6)
    assert (account.groups, account.left_out) == ({}, {})


@every_scheme
def test_without_a_sample_nothing_changes(name: str) -> None:
    learner = made(name)
    before = learner.start({})
    after, total = step(learner, devices=[1])
    scores = [
        {key: one.anomaly_score(DATA.pool).tolist() for key, one in learner.results(state).items()}
        for state in (before, after)
    ]
    account = learner.account(before, after, total, 0)

    assert scores[0] == scores[1] != {}
    assert (account.loss, account.groups) == (None, {})


@every_scheme
def test_every_device_with_samples_has_a_model(name: str) -> None:
    learner = made(name)
    after, _ = step(learner)
    results = learner.results(after)

    assert sum(holders_of(results, [0, 2, 3]).values()) == 3
    assert {one.anomaly_score(DATA.pool).shape for one in results.values()} == {(9,)}


def test_batch_training_scales_its_batches_with_the_fleet_and_its_twin_does_not() -> None:
    def batch_size(name: str, size: int) -> int:
        learner = made(name, train=TrainSpec(batch_size=size, lr=0.1))
        assert isinstance(learner, Averaging)
        return learner.training.settings.batch_size

    assert [batch_size("batch", size) for size in (16, 0)] == [64, 0]
    assert [batch_size(name, 16) for name in ("batch-small", "fl", "tol-fl")] == [16, 16, 16]


def test_batch_training_reads_neighbouring_devices_in_place_and_others_too() -> None:
    asked: list[Turn] = []

    def spy(turns: Sequence[Turn], starts: Sequence[Vector], *wanted: int | None) -> list[Update]:
        asked.extend(turns)
        return [Update(start, 0.0, len(turn.rows)) for turn, start in zip(turns, starts, strict=True)]

    batch = Batch(MadeUp(MODEL, TrainSettings(0.1), train=spy), 1, 0)
    for devices in ((0, 1, 2, 3), (0, 3)):
        contributions_of(batch, turns_from(batch.start({}), DATA, 0, devices))
    whole, picked = asked
    job = TrainJob.of_rows(0, 0, 0, np.zeros(3), whole.rows)

    assert job.pool is DATA.pool
    assert (job.first, job.last) == (0, len(DATA.pool))
    assert np.array_equal(picked.rows, np.concatenate([DATA.slice_of(0), DATA.slice_of(3)]))


def test_the_update_of_batch_training_is_one_for_all_devices_and_moves_no_bytes() -> None:
    batch = made("batch")
    _, total = step(batch)

    assert list(total.parts[GLOBAL].included) == [0, 2, 3]
    assert (total.n_samples, batch.nbytes(0), made("fl").nbytes(0)) == (9, (0, 0), (24, 24))


def test_one_model_is_one_part_of_its_own_shape() -> None:
    learner = made("fl")
    shapes = learner.shapes(learner.start({}), 0)

    assert shapes is not None
    assert {key: str(shape) for key, shape in shapes.items()} == {GLOBAL: "a mean of 3 numbers (f8)"}
    assert learner.model_bytes == 24
