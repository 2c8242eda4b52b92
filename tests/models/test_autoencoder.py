"""The blocked engine against autograd, and a device alone against the same device in a crowd."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.models.fleets import fleet, train_by_autograd
from tolfl.core.errors import DataError, DivergedError, SpecError
from tolfl.kernel.jobs import Floats, Update
from tolfl.models import Autoencoder, Model, TrainJob, TrainSettings
from tolfl.models.dropout import DropoutMasks, keep_gain
from tolfl.models.settings import OptimizerName
from tolfl.models.workspace import Workspace

OPTIMIZERS: list[OptimizerName] = ["sgd", "momentum", "adam"]


def stacked(updates: Sequence[Update]) -> Floats:
    return np.stack([update.delta for update in updates])


def masked_losses(module: nn.Module, samples: Tensor, mask: Tensor | None, rate: float) -> Tensor:
    """Return losses of an autoencoder module whose dropout is replaced by a given mask, unit after unit."""
    out, unit = samples, 0
    for part in [*module.get_submodule("encoder").children(), *module.get_submodule("decoder").children()]:
        if isinstance(part, nn.Dropout):
            width = out.shape[1]
            if mask is not None:
                out = out * mask[:, unit : unit + width] * keep_gain(rate)
            unit += width
        else:
            out = part(out)
    return (out - samples).square().sum(1)


def reference(model: Autoencoder, job: TrainJob, how: TrainSettings, n_units: int, rate: float) -> tuple[Floats, float]:
    module = model.to_module(job.start)
    masks = DropoutMasks([job], n_units, rate)

    def losses_of(step: int, samples: Tensor) -> Tensor:
        mask = masks.draw(step, 1, len(samples), samples.dtype, Workspace())[0] if rate else None
        return masked_losses(module, samples, mask, rate)

    return train_by_autograd(module, job, how, losses_of)


@given(
    n_features=st.integers(1, 7),
    hidden=st.lists(st.integers(1, 9), max_size=2),
    code=st.integers(1, 5),
    rate=st.sampled_from([0.0, 0.2, 0.5]),
    code_activation=st.sampled_from(["linear", "relu"]),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    how=st.builds(
        TrainSettings,
        lr=st.sampled_from([0.0, 0.01, 0.05]),
        epochs=st.integers(1, 3),
        batch_size=st.integers(0, 6),
        optimizer=st.sampled_from(OPTIMIZERS),
    ),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_hand_written_gradient_is_that_of_autograd(
    n_features: int,
    hidden: list[int],
    code: int,
    rate: float,
    code_activation: str,
    sizes: list[int],
    how: TrainSettings,
    seed: int,
) -> None:
    model = Autoencoder(n_features, hidden, code, rate, "relu" if code_activation == "relu" else "linear")
    jobs = fleet(sizes, model.initial(seed).astype(np.float64), (n_features,), seed=seed, round_index=4)

    updates = model.train(jobs, how)

    for job, update in zip(jobs, updates, strict=True):
        delta, loss = reference(model, job, how, 2 * sum(hidden), rate)
        np.testing.assert_allclose(update.delta, delta, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(update.loss, loss, rtol=1e-9, atol=1e-9)
        assert update.n_samples == job.n_samples


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("batch_size", [0, 8])
def test_a_device_alone_gets_the_numbers_it_gets_in_a_crowd(optimizer: OptimizerName, batch_size: int) -> None:
    model = Autoencoder(20, (16, 12), 6, dropout=0.2)
    how = TrainSettings(lr=0.005, epochs=2, batch_size=batch_size, optimizer=optimizer)
    jobs = fleet([30, 7, 64, 1, 33, 32, 8, 20, 25, 11, 16, 9], model.initial(1), (20,), seed=1, round_index=5)

    crowd = model.train(jobs, how)
    alone = [model.train([job], how)[0] for job in jobs]

    for together, single in zip(crowd, alone, strict=True):
        # One Adam step is about lr in size whatever the gradient, so rounding shows relative to lr, not to the delta.
        np.testing.assert_allclose(together.delta, single.delta, rtol=0, atol=1e-6)
        assert together.loss == pytest.approx(single.loss, rel=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_device_with_a_batch_or_more_gets_the_very_bits_alone_that_it_gets_in_a_crowd(
    optimizer: OptimizerName,
) -> None:
    model = Autoencoder(112, (128, 64), 32, dropout=0.2)
    how = TrainSettings(lr=0.005, batch_size=16, optimizer=optimizer)
    jobs = fleet([44, 44, 80, 80, 60], model.initial(1), (112,), seed=1, round_index=5)

    crowd = model.train(jobs, how)

    for together, job in zip(crowd, jobs, strict=True):
        assert np.array_equal(together.delta, model.train([job], how)[0].delta)


def test_training_group_by_group_gives_the_same_as_all_at_once() -> None:
    model = Autoencoder(10, (8,), 4)
    how = TrainSettings(batch_size=4)
    jobs = fleet([3 + place % 9 for place in range(120)], model.initial(0), (10,))
    groups = model.groups(jobs, how)

    whole = model.train(jobs, how)

    assert sorted(index for group in groups for index in group) == list(range(120))
    assert len(groups) > 2
    for group in groups:
        updates = model.train([jobs[index] for index in group], how)
        for index, update in zip(group, updates, strict=True):
            np.testing.assert_array_equal(update.delta, whole[index].delta)


def test_groups_may_train_on_several_threads() -> None:
    model = Autoencoder(10, (8,), 4)
    how = TrainSettings(batch_size=4)
    jobs = fleet([8] * 200, model.initial(0), (10,))
    groups = [[jobs[index] for index in group] for group in model.groups(jobs, how)]

    with ThreadPoolExecutor(4) as pool:
        on_threads = list(pool.map(lambda members: model.train(members, how), groups))

    for members, updates in zip(groups, on_threads, strict=True):
        np.testing.assert_array_equal(stacked(updates), stacked(model.train(members, how)))


def test_jobs_may_differ_in_seed_round_start_and_pool() -> None:
    model = Autoencoder(6, (5,), 3)
    how = TrainSettings(lr=0.01, batch_size=4, epochs=2)
    jobs = [job for seed in range(3) for job in fleet([5, 9], model.initial(seed), (6,), seed=seed, round_index=seed)]

    updates = model.train(jobs, how)

    for job, update in zip(jobs, updates, strict=True):
        np.testing.assert_allclose(update.delta, model.train([job], how)[0].delta, rtol=0, atol=1e-6)


def test_seed_device_and_round_each_change_the_training() -> None:
    model = Autoencoder(6, (5,), 3)
    start = model.initial(0)
    pool = np.random.default_rng(0).uniform(-1, 1, (12, 6)).astype(np.float32)
    names = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]

    updates = model.train([TrainJob(*name, start, pool, 0, 12) for name in names], TrainSettings(batch_size=4))

    assert len({update.delta.tobytes() for update in updates}) == len(names)


def test_one_full_batch_step_is_the_gradient_of_the_mean_loss() -> None:
    model = Autoencoder(6, (5,), 3, dropout=0.0)
    (job,) = fleet([11], model.initial(0).astype(np.float64), (6,))
    module = model.to_module(job.start)

    update = model.train([job], TrainSettings(lr=0.1, batch_size=0))[0]

    losses = (module(torch.tensor(job.pool)) - torch.tensor(job.pool)).square().sum(1)
    slopes = torch.autograd.grad(losses.mean(), list(module.parameters()))
    np.testing.assert_allclose(update.delta, 0.1 * np.concatenate([slope.flatten() for slope in slopes]), rtol=1e-9)
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
    assert model.groups([], TrainSettings()) == []
