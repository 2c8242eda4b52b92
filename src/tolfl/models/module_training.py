"""Two ways to train any module: all devices of a group at once (vmap), or one after the other.

Both give the same numbers. The second exists for modules that draw random numbers, keep buffers, or do something
that `torch.func.vmap` refuses.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from tolfl.core.seeding import Purpose, rng_for
from tolfl.models.batches import GroupBatches
from tolfl.models.jobs import TrainJob, Update, updates_from
from tolfl.models.layout import FlatLayout, named_state
from tolfl.models.optimizers import optimizer_for
from tolfl.models.sample_loss import SampleLoss
from tolfl.models.settings import TrainSettings
from tolfl.models.workspace import Workspace


def can_train_together(loss: SampleLoss, layout: FlatLayout, job: TrainJob) -> bool:
    """Return whether vmap takes this module; tried out on two copies of one sample."""
    has_buffers = any(True for _ in loss.buffers())
    # Statistics over the batch would count the padding of smaller devices.
    couples_samples = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in loss.modules())
    if has_buffers or couples_samples:
        return False
    settings = TrainSettings(lr=0.0, batch_size=1)
    trial = TrainJob(job.seed, job.device, job.round_index, job.start, job.pool[job.first :][:1], 0, 1)
    try:
        train_together(loss, layout, [trial, trial], settings)
    except (RuntimeError, TypeError, ValueError):
        # vmap says no (a random draw, a branch on data). Any other fault shows itself on the sequential path.
        return False
    except ArithmeticError:
        return True
    return True


def train_together(
    loss: SampleLoss, layout: FlatLayout, jobs: Sequence[TrainJob], settings: TrainSettings
) -> list[Update]:
    """Return the updates of one group, every step taken by all its devices at once."""
    starts = np.stack([job.start for job in jobs])
    params = torch.from_numpy(starts.copy())
    loss = copy.deepcopy(loss).to(params.dtype).train()

    def batch_loss(flat: Tensor, samples: Tensor, row_weights: Tensor) -> Tensor:
        tensors = {f"module.{name}": tensor for name, tensor in layout.tensors(flat).items()}
        losses: Tensor = functional_call(loss, tensors, (samples,))
        return (losses * row_weights).sum()

    gradients_and_losses = vmap(grad_and_value(batch_loss))
    mean_losses = torch.zeros(len(jobs), dtype=torch.float64)
    optimizer = optimizer_for(settings)
    for step in GroupBatches(jobs, settings).steps(Workspace()):
        n_active = len(step.samples)
        active = params[:n_active]
        gradients, losses = gradients_and_losses(active, step.samples, step.row_weights)
        mean_losses[:n_active] += step.loss_share * losses.double()
        optimizer.step([active], [gradients])
    return updates_from(jobs, (torch.from_numpy(starts) - params).numpy(), mean_losses.numpy())


def train_alone(loss: SampleLoss, layout: FlatLayout, job: TrainJob, settings: TrainSettings) -> Update:
    """Return the update of one device, the module's own random draws seeded by (seed, device, round)."""
    flat = torch.tensor(job.start)[None]
    gradients = torch.zeros_like(flat)
    # A fresh copy for every device: integer buffers, such as a count of batches, must not pass from one to the next.
    loss = copy.deepcopy(loss).to(flat.dtype).train()
    state = dict(named_state(loss.module))
    for part in layout.segments:
        state[part.name].data = flat[0, part.first : part.last].view(part.shape)
    trained = [part for part in layout.segments if part.is_trained]
    mean_loss = 0.0
    optimizer = optimizer_for(settings)
    seed = int(rng_for(job.seed, Purpose.MODULE, job.device, job.round_index).integers(2**63))
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        for step in GroupBatches([job], settings).steps(Workspace()):
            batch_loss = (loss(step.samples[0]) * step.row_weights[0]).sum()
            slopes = torch.autograd.grad(
                batch_loss, [state[part.name] for part in trained], allow_unused=True, materialize_grads=True
            )
            for part, slope in zip(trained, slopes, strict=True):
                gradients[0, part.first : part.last] = slope.flatten()
            mean_loss += float(step.loss_share[0]) * float(batch_loss.detach())
            optimizer.step([flat], [gradients])
    _collect_buffers(loss.module, layout, flat[0])
    return updates_from([job], (torch.tensor(job.start) - flat).numpy(), np.array([mean_loss]))[0]


def _collect_buffers(module: nn.Module, layout: FlatLayout, flat: Tensor) -> None:
    """Copy back what is not trained: a module may have put a new tensor in the place of a buffer."""
    state = dict(named_state(module))
    for part in layout.segments:
        if not part.is_trained:
            flat[part.first : part.last] = state[part.name].detach().flatten()
