"""Small fleets whose rounds can be worked out by hand: one-parameter modules, tiny data, short runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tolfl.core.records import AnyRecord, RoundClosed, RunEnded
from tolfl.core.spec import RunSpec, TrainSettings, TrainSpec
from tolfl.datasets import FederatedDataset
from tolfl.kernel import TrainJob, Update
from tolfl.kernel.jobs import Floats
from tolfl.learners.torch_module import ModuleModel
from tolfl.learners.training import TrainedModel
from tolfl.sim.simulation import Run, Runs, run

FULL_BATCH = TrainSpec(batch_size=0, lr=0.1)


class Mean(nn.Module):
    """J(x) = (x - theta)^2, summed over features: golden example A, and the fastest model there is."""

    def __init__(self, n_features: int = 1) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(n_features, dtype=torch.float64))

    def sample_losses(self, samples: Tensor) -> Tensor:
        return (samples - self.theta).square().reshape(len(samples), -1).sum(1)


class FastMean(ModuleModel):
    """`Mean` by its formula, so that hundreds of runs cost next to nothing: torch would take most of their time."""

    def train(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        assert (settings.batch_size, settings.optimizer) == (0, "sgd"), "give `simulated` a module"
        updates = []
        for job in jobs:
            samples, theta = job.pool[job.first : job.last].astype(float), job.start.copy()
            for _ in range(settings.epochs):
                loss = float(np.square(samples - theta).sum(1).mean())
                theta -= settings.lr * 2 * (theta - samples.mean(axis=0))
            updates.append(Update(job.start - theta, loss, job.n_samples))
        return updates

    def sample_losses(self, params: Floats, samples: Floats) -> Floats:
        losses: Floats = np.square(samples.astype(params.dtype) - params).sum(1)
        return losses


class OneWeight(nn.Module):
    """The linear autoencoder x_hat = w x: golden example B."""

    def __init__(self, weight: float = 0.5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([weight], dtype=torch.float64))

    def forward(self, samples: Tensor) -> Tensor:
        return self.weight * samples


def columns(*slices: Sequence[float]) -> FederatedDataset:
    """Return a data set of one feature."""
    return FederatedDataset.from_arrays([np.array(values, dtype=float).reshape(-1, 1) for values in slices])


def some_data(sizes: Sequence[int], n_features: int = 3, seed: int = 0, with_test: bool = False) -> FederatedDataset:
    """Return random samples, different on every device, and if wanted a test set."""
    rng = np.random.default_rng(seed)
    slices = [rng.normal(device, 1.0, (size, n_features)) for device, size in enumerate(sizes)]
    if not with_test:
        return FederatedDataset.from_arrays(slices)
    test = rng.normal(len(sizes) / 2, 2.0, (40, n_features))
    return FederatedDataset.from_arrays(slices, test=(test, np.arange(40) % 2))


def simulated(spec: RunSpec, data: FederatedDataset, module: nn.Module | None = None) -> Run:
    """Return one finished run of a small module; without one, of the mean by its formula."""
    return run(spec, data, FastMean(Mean(data.n_features)) if module is None else ModuleModel(module))[0]


def finished(runs: Runs) -> list[Run]:
    """Play runs to their end."""
    for _ in runs:
        pass
    return runs.results


def model_of(result: Run, name: str = "global") -> TrainedModel:
    found = result.models[name]
    assert isinstance(found, TrainedModel)
    return found


def params(result: Run, name: str = "global") -> NDArray[np.floating]:
    return model_of(result, name).params


def closed(source: Run | Sequence[AnyRecord]) -> list[RoundClosed]:
    records = source.records if isinstance(source, Run) else source
    return [record for record in records if isinstance(record, RoundClosed)]


def ended(result: Run) -> RunEnded:
    (ending,) = [record for record in result.records if isinstance(record, RunEnded)]
    return ending
