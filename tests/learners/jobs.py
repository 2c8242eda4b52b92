"""Small fleets of jobs, and a plain trainer with autograd and `torch.optim` to compare with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from tolfl.core.seeding import Purpose, random_words, stream_keys
from tolfl.core.spec import TrainSettings
from tolfl.kernel import TrainJob
from tolfl.kernel.jobs import Floats

Draw = Callable[[int, int], Tensor]


def fleet(
    sizes: Sequence[int],
    start: Floats,
    sample_shape: tuple[int, ...],
    *,
    seed: int = 0,
    round_index: int = 0,
) -> list[TrainJob]:
    """Return one job per size, all on one pool, the ids of the devices apart from their places."""
    rng = np.random.default_rng(seed)
    pool = rng.uniform(-1, 1, (sum(sizes), *sample_shape)).astype(start.dtype)
    edges = np.cumsum([0, *sizes])
    return [
        TrainJob(seed, 3 + 2 * place, round_index, start, pool, int(edges[place]), int(edges[place + 1]))
        for place in range(len(sizes))
    ]


def batches_of(job: TrainJob, settings: TrainSettings) -> list[Floats]:
    """Return the mini-batches of one device, worked out from the documented rule and nothing else."""
    own = job.pool[job.first : job.last]
    if settings.batch_size == 0:
        return [own] * settings.epochs
    key = stream_keys([job.seed], Purpose.BATCH_ORDER, [job.device], [job.round_index])
    batches: list[Floats] = []
    for epoch in range(settings.epochs):
        order = np.argsort(random_words(key, len(own), first=epoch * 2**32)[0])
        batches += [own[order[at : at + settings.batch_size]] for at in range(0, len(own), settings.batch_size)]
    return batches


def torch_optimizer(parameters: Sequence[nn.Parameter], settings: TrainSettings) -> torch.optim.Optimizer:
    """Return PyTorch's optimiser of the same name."""
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=settings.lr)
    momentum = settings.momentum if settings.optimizer == "momentum" else 0.0
    return torch.optim.SGD(parameters, lr=settings.lr, momentum=momentum)


def train_by_autograd(
    module: nn.Module,
    job: TrainJob,
    settings: TrainSettings,
    losses_of: Callable[[int, Tensor], Tensor],
) -> tuple[Floats, float]:
    """Return delta and last-epoch loss of a module that carries the job's start; `losses_of(step, samples)`."""
    parameters = list(module.parameters())
    start = nn.utils.parameters_to_vector(parameters).detach().clone()
    optimizer = torch_optimizer(parameters, settings)
    batches = batches_of(job, settings)
    total = 0.0
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        losses = losses_of(step, torch.tensor(batch))
        losses.mean().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        if step >= len(batches) * (settings.epochs - 1) // settings.epochs:
            total += float(losses.detach().sum())
    delta: Floats = (start - nn.utils.parameters_to_vector(parameters).detach()).numpy()
    return delta, total / job.n_samples
