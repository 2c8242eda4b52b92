"""The built-in model: what it starts from, trains to and scores; what it refuses. Its arithmetic: tests/kernel."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tests.learners.jobs import fleet
from tolfl.core.errors import DataError, DivergedError, SpecError
from tolfl.core.spec import TrainSettings
from tolfl.kernel import TrainJob, Update
from tolfl.kernel.jobs import Floats
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.training import Model


def stacked(updates: Sequence[Update]) -> Floats:
    return np.stack([update.delta for update in updates])


def test_calls_may_come_from_several_threads() -> None:
    model = Autoencoder(10, (8,), 4)
    how = TrainSettings(batch_size=4)
    jobs = fleet([8] * 200, model.initial(0), (10,))
    pieces = [jobs[:50], jobs[50:51], jobs[51:120], jobs[120:]]

    with ThreadPoolExecutor(4) as pool:
        on_threads = list(pool.map(lambda members: model.train(members, how), pieces))

    np.testing.assert_array_equal(
        np.concatenate([stacked(updates) for updates in on_threads]), stacked(model.train(jobs, how))
    )


def test_jobs_may_differ_in_seed_round_start_and_pool() -> None:
    model = Autoencoder(6, (5,), 3)
    how = TrainSettings(lr=0.01, batch_size=4, epochs=2)
    jobs = [job for seed in range(3) for job in fleet([5, 9], model.initial(seed), (6,), seed=seed, round_index=seed)]

    updates = model.train(jobs, how)

    for job, update in zip(jobs, updates, strict=True):
        np.testing.assert_array_equal(update.delta, model.train([job], how)[0].delta)


def test_seed_device_and_round_each_change_the_training() -> None:
    model = Autoencoder(6, (5,), 3)
    start = model.initial(0)
    pool = np.random.default_rng(0).uniform(-1, 1, (12, 6)).astype(np.float32)
    names = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]

    updates = model.train([TrainJob(*name, start, pool, 0, 12) for name in names], TrainSettings(batch_size=4))

    assert len({update.delta.tobytes() for update in updates}) == len(names)


def test_one_full_batch_step_is_the_gradient_of_the_mean_loss() -> None:
    model = Autoencoder(6, (5,), 3, dropout=0.0)
    (job,) = fleet([11], model.initial(0), (6,))
    module = model.to_module(job.start)

    update = model.train([job], TrainSettings(lr=0.1, batch_size=0))[0]

    losses = (module(torch.tensor(job.pool)) - torch.tensor(job.pool)).square().sum(1)
    slopes = torch.autograd.grad(losses.mean(), list(module.parameters()))
    np.testing.assert_allclose(
        update.delta, 0.1 * np.concatenate([slope.flatten() for slope in slopes]), rtol=1e-4, atol=1e-7
    )
    assert update.loss == pytest.approx(float(losses.detach().mean()))


def test_data_that_is_read_only_or_of_another_precision_is_accepted() -> None:
    model = Autoencoder(6, (5,), 3)
    start = model.initial(0)
    (job,) = fleet([9], start, (6,))
    frozen_start, frozen_pool = start.copy(), job.pool.astype(np.float64)
    frozen_start.flags.writeable = frozen_pool.flags.writeable = False
    how = TrainSettings(batch_size=4)

    update = model.train([TrainJob(0, 3, 0, frozen_start, frozen_pool, 0, 9)], how)[0]

    np.testing.assert_array_equal(update.delta, model.train([job], how)[0].delta)
    np.testing.assert_array_equal(model.sample_losses(frozen_start, frozen_pool), model.sample_losses(start, job.pool))


def test_a_diverging_device_is_named() -> None:
    model = Autoencoder(6, (5,), 3)
    jobs = fleet([4, 8], model.initial(0), (6,), round_index=7)
    jobs[1].pool[jobs[1].first] = np.inf

    with pytest.raises(DivergedError) as caught:
        model.train(jobs, TrainSettings())

    assert (caught.value.device, caught.value.round_index) == (jobs[1].device, 7)


def test_too_large_a_step_raises() -> None:
    model = Autoencoder(6, (5,), 3)

    with pytest.raises(DivergedError):
        model.train(fleet([64], model.initial(0), (6,)), TrainSettings(lr=50.0, batch_size=1, epochs=3))


def test_the_initial_weights_have_the_range_of_pytorch() -> None:
    model = Autoencoder(112)
    tensors = model.tensors(model.initial(0))

    assert model.initial(0).dtype == np.float32
    assert not np.array_equal(model.initial(0), model.initial(1))
    layers = list(zip(tensors.values(), list(tensors.values())[1:], strict=False))[::2]
    assert [weight.shape for weight, _ in layers] == [
        (128, 112), (64, 128), (32, 64), (64, 32), (128, 64), (112, 128)
    ]  # fmt: skip
    for weight, bias in layers:
        bound = weight.shape[1] ** -0.5
        assert 0.95 * bound < np.abs(weight).max() <= bound * (1 + 1e-6)
        assert np.abs(bias).max() <= bound * (1 + 1e-6)
        assert weight.std() == pytest.approx(bound / 3**0.5, rel=0.03)


def test_scores_are_those_of_the_module_with_dropout_off() -> None:
    model = Autoencoder(6, (5, 4), 3, code_activation="relu")
    params = model.initial(0)
    samples = np.random.default_rng(0).normal(size=(5000, 6)).astype(np.float32)

    module = model.to_module(params)
    with torch.no_grad():
        expected = (module(torch.tensor(samples)) - torch.tensor(samples)).square().sum(1)

    np.testing.assert_allclose(model.sample_losses(params, samples), expected, rtol=1e-5)
    assert not module.training
    assert {name: tensor.shape for name, tensor in module.state_dict().items()} == {
        name: tensor.shape for name, tensor in model.tensors(params).items()
    }


def test_named_tensors_are_views_of_the_flat_vector() -> None:
    model = Autoencoder(6, (5,), 3)
    params = model.initial(0)

    model.tensors(params)["decoder.0.bias"][:] = 7

    assert np.count_nonzero(params == 7) == 5


def test_training_lowers_the_loss() -> None:
    model: Model = Autoencoder(12, (16,), 4, dropout=0.0)
    params = model.initial(0)
    rng = np.random.default_rng(0)
    pool = (rng.normal(size=(200, 3)) @ rng.normal(size=(3, 12))).astype(np.float32) / 4
    before = model.sample_losses(params, pool).mean()

    for round_index in range(40):
        jobs = [TrainJob(0, device, round_index, params, pool, 50 * device, 50 * device + 50) for device in range(4)]
        params = params - stacked(model.train(jobs, TrainSettings(batch_size=10))).mean(axis=0)

    assert model.sample_losses(params, pool).mean() < 0.5 * before


def test_what_cannot_be_trained_is_refused_with_a_reason() -> None:
    model = Autoencoder(6, (5,), 3)
    start = model.initial(0)
    pool = np.zeros((4, 6), np.float32)

    with pytest.raises(DataError, match="without samples"):
        TrainJob(0, 0, 0, start, pool, 2, 2)
    with pytest.raises(DataError, match="flat vector"):
        TrainJob(0, 0, 0, start.astype(np.float16), pool, 0, 2)
    with pytest.raises(DataError, match="parameters"):
        model.train([TrainJob(0, 0, 0, start[1:], pool, 0, 2)], TrainSettings())
    with pytest.raises(DataError, match="shape"):
        model.train([TrainJob(0, 0, 0, start, pool[:, 1:], 0, 2)], TrainSettings())
    with pytest.raises(DataError, match="shape"):
        model.sample_losses(start, pool[:, 1:])
    with pytest.raises(DataError, match="parameters"):
        model.tensors(start[1:])
    with pytest.raises(SpecError, match="dropout"):
        Autoencoder(6, dropout=1.0)
    with pytest.raises(SpecError, match="widths"):
        Autoencoder(6, (0,))


def test_no_jobs_give_no_updates() -> None:
    model = Autoencoder(6, (5,), 3)

    assert model.train([], TrainSettings()) == []
