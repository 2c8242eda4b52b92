"""The flat optimisers give the numbers of `torch.optim`."""

from __future__ import annotations

import msgspec
import pytest
import torch
from torch import nn

from tests.models.fleets import torch_optimizer
from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.models import Autoencoder, ModuleModel, TrainSettings
from tolfl.models.optimizers import optimizer_for
from tolfl.models.settings import OptimizerName


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_every_optimiser_equals_the_one_in_torch(name: OptimizerName) -> None:
    settings = TrainSettings(lr=0.1, optimizer=name, momentum=0.8)
    generator = torch.Generator().manual_seed(0)
    block = torch.randn(3, 7, dtype=torch.float64, generator=generator)
    parameters = [nn.Parameter(row.clone()) for row in block]
    optimizer, expected = optimizer_for(settings), torch_optimizer(parameters, settings)

    for _ in range(6):
        gradients = torch.randn(3, 7, dtype=torch.float64, generator=generator)
        optimizer.step([block], [gradients])
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        expected.step()

    torch.testing.assert_close(block, torch.stack([row.detach() for row in parameters]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_a_device_that_has_finished_does_not_move_any_more(name: OptimizerName) -> None:
    optimizer = optimizer_for(TrainSettings(optimizer=name))
    block = torch.ones(3, 2)
    optimizer.step([block], [torch.ones(3, 2)])
    before = block.clone()

    optimizer.step([block[:2]], [torch.ones(2, 2)])

    assert torch.equal(block[2], before[2])
    assert (block[:2] < before[:2]).all()


def test_an_unknown_optimiser_is_refused_by_name() -> None:
    settings = msgspec.structs.replace(TrainSettings(), optimizer="adagrad")

    with pytest.raises(UnknownNameError, match="adagrad"):
        optimizer_for(settings)


@pytest.mark.parametrize(
    ("field", "value"),
    [("lr", -1.0), ("lr", float("nan")), ("epochs", 0), ("batch_size", -1), ("momentum", 1.0)],
)
def test_settings_that_cannot_work_are_refused(field: str, value: float) -> None:
    settings = msgspec.structs.replace(TrainSettings(), **{field: value})
    model = Autoencoder(2, (), 1)

    with pytest.raises(SpecError, match=field):
        model.train([], settings)
    with pytest.raises(SpecError, match=field):
        ModuleModel(nn.Linear(2, 2)).train([], settings)
