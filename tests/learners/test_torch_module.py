"""Any module trains, one device after the other, each as it would by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.learners.jobs import batches_of, fleet, torch_optimizer, train_by_autograd
from tolfl.core.errors import DataError, DivergedError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import TrainSettings
from tolfl.kernel import TrainJob
from tolfl.learners.torch_module import ModuleModel, SampleLoss, seeded
from tolfl.learners.training import Model

OptimizerName = Literal["sgd", "momentum", "adam"]


class OneWeight(nn.Module):
    """Golden example B: a linear autoencoder x_hat = w * x."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, samples: Tensor) -> Tensor:
        return self.w * samples


class OneCentre(nn.Module):
    """Golden example A: J(x) = (x - theta) ** 2."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))

    def sample_losses(self, samples: Tensor) -> Tensor:
        return (samples[:, 0] - self.theta).square()


class BranchesOnData(nn.Module):
    """Reconstructs, after a look at the values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, samples: Tensor) -> Tensor:
        output: Tensor = self.linear(samples)
        return output if float(samples.sum()) < 1e9 else -output


class CentresItsBatch(nn.Module):
    """Couples the samples of a batch, in a way that no list of layers tells."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, samples: Tensor) -> Tensor:
        output: Tensor = self.linear(samples)
        return output - output.mean(0)


class NewBuffer(nn.Module):
    """Puts a new tensor in the place of its buffer in every batch."""

    n_seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("n_seen", torch.zeros(()))

    def forward(self, samples: Tensor) -> Tensor:
        self.n_seen = self.n_seen + len(samples)
        output: Tensor = self.linear(samples)
        return output


def dense() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 3, padding=1))


def dropping() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 4))


def normalising() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))


KINDS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (dense, (4,)),
    (convolutional, (2, 5, 4)),
    (dropping, (4,)),
    (normalising, (4,)),
    (BranchesOnData, (4,)),
    (NewBuffer, (4,)),
    (CentresItsBatch, (4,)),
]


def golden_jobs(start: float, device_samples: list[list[float]]) -> list[TrainJob]:
    pool = np.concatenate(device_samples)[:, None]
    edges = np.cumsum([0, *map(len, device_samples)])
    return [
        TrainJob(0, device, 0, np.array([start]), pool, int(edges[device]), int(edges[device + 1]))
        for device in range(len(device_samples))
    ]


@pytest.mark.parametrize(("epochs", "expected"), [(1, [0.4, 0.8, 1.6]), (2, [18 / 25, 36 / 25, 72 / 25])])
def test_golden_example_a_each_device_moves_to_its_own_centre(epochs: int, expected: list[float]) -> None:
    jobs = golden_jobs(0.0, [[1, 3], [4], [6, 8, 10]])

    updates = ModuleModel(OneCentre()).train(jobs, TrainSettings(lr=0.1, epochs=epochs, batch_size=0))

    np.testing.assert_allclose([0.0 - update.delta[0] for update in updates], expected, rtol=1e-12)
    mean = sum(update.delta[0] * update.n_samples for update in updates) / 6
    assert -mean == pytest.approx({1: 16 / 15, 2: 48 / 25}[epochs], rel=1e-12)


@pytest.mark.parametrize(
    ("epochs", "expected", "averaged"),
    [(1, [0.525, 0.59, 0.52], 0.5333333333333333), (2, [0.54875, 0.6638, 0.5392], 0.56315)],
)
def test_golden_example_b_one_weight(epochs: int, expected: list[float], averaged: float) -> None:
    jobs = golden_jobs(0.5, [[1, 2], [3], [1, 1, 2]])

    updates = ModuleModel(OneWeight()).train(jobs, TrainSettings(lr=0.01, epochs=epochs, batch_size=0))

    np.testing.assert_allclose([0.5 - update.delta[0] for update in updates], expected, rtol=1e-12)
    mean = sum(update.delta[0] * update.n_samples for update in updates) / 6
    assert 0.5 - mean == pytest.approx(averaged, rel=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize(("make", "sample_shape"), KINDS[:2])
def test_training_equals_autograd(
    make: Callable[[], nn.Module], sample_shape: tuple[int, ...], optimizer: OptimizerName
) -> None:
    how = TrainSettings(lr=0.01, epochs=2, batch_size=4, optimizer=optimizer)
    model = ModuleModel(make())
    jobs = fleet([9, 7, 4, 1], model.initial(0).astype(np.float64), sample_shape)

    updates = model.train(jobs, how)

    for job, update in zip(jobs, updates, strict=True):
        plain = SampleLoss(make().double(), None)
        delta, mean_loss = train_by_autograd(plain, job, how, lambda _, samples: plain(samples))  # noqa: B023 - used at once
        np.testing.assert_allclose(update.delta, delta, rtol=1e-7, atol=1e-9)
        assert update.loss == pytest.approx(mean_loss)


@pytest.mark.parametrize("batch_size", [4, 0])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize(("make", "sample_shape"), KINDS)
def test_a_device_alone_gets_the_bits_it_gets_in_a_crowd(
    make: Callable[[], nn.Module], sample_shape: tuple[int, ...], optimizer: OptimizerName, batch_size: int
) -> None:
    model = ModuleModel(make())
    how = TrainSettings(lr=0.002, epochs=2, batch_size=batch_size, optimizer=optimizer)
    jobs = fleet([6, 3, 11, 8, 6, 11, 11, 4], model.initial(0), sample_shape)

    crowd = model.train(jobs, how)

    for job, update in zip(jobs, crowd, strict=True):
        alone = ModuleModel(make()).train([job], how)[0]
        np.testing.assert_array_equal(update.delta, alone.delta)
        assert update.loss == alone.loss


@pytest.mark.parametrize("make", [dense, dropping, normalising])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_device_trains_as_in_a_loop_of_ones_own_to_the_bit(
    make: Callable[[], nn.Module], optimizer: OptimizerName
) -> None:
    how = TrainSettings(lr=0.01, epochs=3, batch_size=4, optimizer=optimizer)
    model = ModuleModel(make())
    start = model.initial(0)
    (job,) = fleet([11], start, (4,))

    update = model.train([job], how)[0]

    module = make().train()
    mover = torch_optimizer(list(module.parameters()), how)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng_for(job.seed, Purpose.MODULE, job.device, job.round_index).integers(2**63)))
        for rows in batches_of(job, how):
            samples = torch.tensor(rows)
            mover.zero_grad()
            losses = (module(samples) - samples).square().sum(1)
            (losses * torch.full((len(rows),), 1 / len(rows))).sum().backward()
            mover.step()
    state = [*module.parameters(), *(buffer for buffer in module.buffers() if buffer.is_floating_point())]
    flat = torch.cat([tensor.detach().flatten() for tensor in state]).numpy()
    np.testing.assert_array_equal(update.delta, start - flat)


@pytest.mark.parametrize(("make", "sample_shape"), KINDS)
def test_the_module_handed_in_and_the_global_generator_stay_as_they_are(
    make: Callable[[], nn.Module], sample_shape: tuple[int, ...]
) -> None:
    module = make().eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    generator_state = torch.get_rng_state()
    model = ModuleModel(module)
    params = model.initial(3)
    jobs = fleet([6, 7], params, sample_shape)

    model.train(jobs, TrainSettings(batch_size=4))
    model.sample_losses(params + 1, jobs[0].pool)
    model.to_module(params + 1)

    assert not module.training
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert torch.equal(generator_state, torch.get_rng_state())


def test_dropout_of_a_module_depends_on_seed_device_and_round_only() -> None:
    model = ModuleModel(dropping())
    (job,) = fleet([6], model.initial(0), (4,))
    names = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)]

    torch.manual_seed(5)
    jobs = [TrainJob(*name, job.start, job.pool, 0, 6) for name in names]
    updates = model.train(jobs, TrainSettings(batch_size=0))

    assert len({update.delta.tobytes() for update in updates}) == 4
    np.testing.assert_array_equal(updates[0].delta, updates[4].delta)


def test_running_statistics_travel_in_the_flat_vector() -> None:
    model = ModuleModel(normalising())
    params = model.initial(0)
    (job,) = fleet([20], params, (4,))

    trained = params - model.train([job], TrainSettings(lr=0.01, batch_size=0))[0].delta

    module = normalising().train()
    module(torch.tensor(job.pool))
    running_mean = module.get_buffer("1.running_mean").numpy()
    np.testing.assert_allclose(model.tensors(trained)["1.running_mean"], running_mean, atol=1e-6)
    assert "1.num_batches_tracked" not in model.tensors(trained)


def test_a_buffer_that_was_replaced_is_still_reported() -> None:
    model = ModuleModel(NewBuffer())
    params = model.initial(0)
    (job,) = fleet([7], params, (4,))

    trained = params - model.train([job], TrainSettings(lr=0.01, batch_size=2))[0].delta

    assert model.tensors(trained)["n_seen"] == 7


def test_frozen_parameters_travel_but_do_not_move() -> None:
    module = dense()
    module.get_parameter("0.weight").requires_grad_(False)
    model = ModuleModel(module)
    jobs = fleet([6, 5], model.initial(0), (4,))

    for update in model.train(jobs, TrainSettings(optimizer="adam")):
        delta = model.tensors(update.delta)
        assert not delta["0.weight"].any()
        assert delta["0.bias"].all()


def test_a_loss_of_ones_own_is_used_for_training_and_scoring() -> None:
    def absolute_error(module: nn.Module, samples: Tensor) -> Tensor:
        output: Tensor = module(samples)
        return (output - samples).abs().sum(1)

    model = ModuleModel(dense(), absolute_error)
    params = model.initial(0).astype(np.float64)
    jobs = fleet([6, 5], params, (4,))
    how = TrainSettings(lr=0.01, batch_size=2)

    updates = model.train(jobs, how)

    plain = SampleLoss(dense().double(), absolute_error)
    delta, _ = train_by_autograd(plain, jobs[0], how, lambda _, samples: plain(samples))
    np.testing.assert_allclose(updates[0].delta, delta, rtol=1e-7, atol=1e-9)
    expected = np.abs(model.to_module(params)(torch.tensor(jobs[0].pool)).detach().numpy() - jobs[0].pool).sum(1)
    np.testing.assert_allclose(model.sample_losses(params, jobs[0].pool), expected)


def test_the_scores_of_pictures_sum_over_all_their_axes() -> None:
    model: Model = ModuleModel(convolutional())
    params = model.initial(0)
    samples = np.random.default_rng(0).normal(size=(5000, 2, 5, 4)).astype(np.float32)

    with torch.no_grad():
        output = model.to_module(params)(torch.tensor(samples)).numpy()

    np.testing.assert_allclose(
        model.sample_losses(params, samples), np.square(output - samples).sum(axis=(1, 2, 3)), rtol=1e-4
    )


def test_a_ready_module_carries_its_parameters_whatever_the_seed() -> None:
    module = dense()
    model = ModuleModel(module)

    np.testing.assert_array_equal(model.initial(0), model.initial(1))
    np.testing.assert_array_equal(model.initial(0), nn.utils.parameters_to_vector(module.parameters()).detach().numpy())
    for name, tensor in model.to_module(model.initial(0)).state_dict().items():
        torch.testing.assert_close(tensor, module.state_dict()[name])


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("make", "sample_shape"), [KINDS[0], KINDS[3]])
def test_a_diverging_device_is_named(make: Callable[[], nn.Module], sample_shape: tuple[int, ...], place: int) -> None:
    model = ModuleModel(make())
    jobs = fleet([6, 6, 6], model.initial(0), sample_shape, round_index=2)
    jobs[place].pool[jobs[place].first] = np.nan

    with pytest.raises(DivergedError) as caught:
        model.train(jobs, TrainSettings())

    assert (caught.value.device, caught.value.round_index) == (jobs[place].device, 2)


def test_a_loss_that_is_not_one_value_per_sample_is_refused() -> None:
    model = ModuleModel(dense(), lambda module, samples: (module(samples) - samples).square().mean())
    jobs = fleet([6], model.initial(0), (4,))

    with pytest.raises(DataError, match="one value per sample"):
        model.train(jobs, TrainSettings())


def test_a_module_that_does_not_reconstruct_needs_a_loss() -> None:
    model = ModuleModel(nn.Linear(4, 1))
    jobs = fleet([6], model.initial(0), (4,))

    with pytest.raises(DataError, match="reconstructs"):
        model.train(jobs, TrainSettings())


def test_a_seeded_module_follows_its_seed_and_nothing_else() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = ModuleModel(seeded(3, lambda: nn.Linear(4, 4))).initial(0)
    after = torch.get_rng_state()
    torch.manual_seed(6)
    again = ModuleModel(seeded(3, lambda: nn.Linear(4, 4))).initial(0)
    other = ModuleModel(seeded(4, lambda: nn.Linear(4, 4))).initial(0)

    assert torch.equal(before, after)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_module_that_cannot_be_made_leaves_the_global_generator_as_it_was() -> None:
    def fail() -> nn.Module:
        torch.rand(3)
        raise ValueError("no such layer")

    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="no such layer"):
        seeded(0, fail)

    assert torch.equal(before, torch.get_rng_state())


_FIRST_ROUND = """
import sys
import numpy as np
from torch import nn
from tolfl.core.spec import TrainSpec
from tolfl.kernel import TrainJob
from tolfl.learners.torch_module import ModuleModel

model = ModuleModel(nn.Linear(3, 3))
known = set(sys.modules)
rows = np.ones((8, 3), np.float32)
model.train([TrainJob(0, 0, 0, model.initial(0), rows, 0, 8)], TrainSpec(lr=0.1))
print(len(set(sys.modules) - known))
"""


@pytest.mark.slow  # a process that imports torch
def test_the_first_round_imports_nothing_for_which_heartbeats_would_be_missed() -> None:
    done = subprocess.run([sys.executable, "-c", _FIRST_ROUND], capture_output=True, text=True, check=True)

    assert int(done.stdout) < 10
