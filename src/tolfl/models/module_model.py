"""Any PyTorch module as a federated model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from tolfl.core.seeding import Purpose, rng_for
from tolfl.models.grouping import group_jobs
from tolfl.models.jobs import Floats, TrainJob, Update, check_jobs
from tolfl.models.layout import FlatLayout, named_state
from tolfl.models.module_training import can_train_together, train_alone, train_together
from tolfl.models.sample_loss import LossFunction, SampleLoss
from tolfl.models.settings import TrainSettings, check_settings

_MAX_DEVICES = 50
_MAX_GROUP_BYTES = 256 * 2**20
_COPIES_OF_PARAMS = 6  # start, present, gradient, two moments, delta
_COPIES_OF_SAMPLES = 32  # a guess at what a module's layers keep for the gradient, as multiples of its input
_MAX_SCORE_ROWS = 4096
_NO_DEVICE = 2**32 - 1  # the weights of a module must not follow the stream of a device that trains it


def seeded(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    """Return a new module whose initial weights follow the seed of a run; the global generator stays as it was.

    >>> one, other = (seeded(7, lambda: nn.Linear(2, 1)) for _ in range(2))
    >>> torch.equal(one.weight, other.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        # The processor's generator alone: torch.manual_seed queues a call for every other kind of device, each time.
        torch.default_generator.manual_seed(int(rng_for(seed, Purpose.MODULE, _NO_DEVICE).integers(2**63)))
        return make()


class ModuleModel:
    """A model made from an `nn.Module` and, if it does not reconstruct its input, a loss per sample.

    The flat vector holds the parameters and, after them, the floating-point buffers (running statistics), which are
    averaged with everything else; integer buffers stay as they are. Frozen parameters travel but do not change.
    The module handed in is copied and never changed.

    Modules without buffers and without random draws train many devices at once. The others train one after the
    other, with PyTorch's global generator seeded for each device and put back afterwards: do not run those on
    several threads of one process. Batch normalisation cannot train on a single sample: choose a batch size that
    leaves no device with a last batch of one.

    Parameters
    ----------
    module
        Takes samples `(n_samples, ...)`.
    loss
        Takes the module and samples and returns one value per sample, of that sample alone. Default: the module's
        own method `sample_losses(samples)` if it has one, else the squared reconstruction error, summed.

    Examples
    --------
    >>> model = ModuleModel(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 3)))
    >>> params = model.initial(seed=0)
    >>> model.sample_losses(params, np.zeros((5, 3), dtype=np.float32)).shape
    (5,)
    """

    def __init__(self, module: nn.Module, loss: LossFunction | None = None) -> None:
        self._loss = SampleLoss(copy.deepcopy(module).cpu(), loss)
        self._layout = FlatLayout.of(self._loss.module)
        self._trains_together: dict[tuple[int, ...], bool] = {}

    @property
    def n_params(self) -> int:
        """Return the length of the flat vector, floating-point buffers included."""
        return self._layout.n_params

    def initial(self, seed: int) -> Floats:  # noqa: ARG002 - the model contract has a seed, a ready module has none
        """Return the parameters of the module that was handed in, whatever the seed."""
        parts = [tensor.detach().flatten().numpy() for _, tensor in named_state(self._loss.module)]
        is_double = all(part.dtype == np.float64 for part in parts)
        return np.concatenate(parts).astype(np.float64 if is_double else np.float32)

    def groups(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[list[int]]:
        """Return indices into `jobs`, split into groups that train together: of one device where vmap refuses."""
        alone = [[index] for index, job in enumerate(jobs) if not self._can_train_together(job)]
        together = [index for index, job in enumerate(jobs) if self._can_train_together(job)]
        if not together:
            return alone
        candidates = [jobs[index] for index in together]
        groups = group_jobs(candidates, settings, self._max_devices(candidates, settings))
        return alone + [[together[position] for position in group] for group in groups]

    def train(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        """Return one update per job, in the order of the jobs."""
        check_settings(settings)
        check_jobs(jobs, self.n_params, None)
        updates: dict[int, Update] = {}
        for group in self.groups(jobs, settings):
            members = [jobs[index] for index in group]
            if self._can_train_together(members[0]):
                trained = train_together(self._loss, self._layout, members, settings)
            else:
                trained = [train_alone(self._loss, self._layout, members[0], settings)]
            updates.update(zip(group, trained, strict=True))
        return [updates[index] for index in range(len(jobs))]

    def sample_losses(self, params: Floats, samples: Floats) -> Floats:
        """Return each sample's loss, with the module in eval mode."""
        loss = copy.deepcopy(self._loss).to(torch.tensor(params[:1]).dtype).eval()
        self._layout.load(loss.module, params)
        losses = np.empty(len(samples), params.dtype)
        bytes_per_row = params.itemsize * math.prod(samples.shape[1:]) * _COPIES_OF_SAMPLES
        n_rows = max(1, min(_MAX_SCORE_ROWS, _MAX_GROUP_BYTES // bytes_per_row))
        with torch.no_grad():
            for first in range(0, len(samples), n_rows):
                chunk = torch.tensor(samples[first : first + n_rows].astype(params.dtype))
                losses[first : first + n_rows] = loss(chunk).numpy()
        return losses

    def tensors(self, params: Floats) -> dict[str, Floats]:
        """Return named views into `params`, as in the module's state dict."""
        return self._layout.views(params)

    def to_module(self, params: Floats) -> nn.Module:
        """Return a copy of the module, in eval mode, with these parameters."""
        module = copy.deepcopy(self._loss.module).to(torch.tensor(params[:1]).dtype)
        self._layout.load(module, params)
        return module.eval()

    def _can_train_together(self, job: TrainJob) -> bool:
        shape = job.pool.shape[1:]
        if shape not in self._trains_together:
            self._trains_together[shape] = can_train_together(self._loss, self._layout, job)
        return self._trains_together[shape]

    def _max_devices(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> int:
        itemsize = max(job.start.itemsize for job in jobs)
        rows = max(min(job.n_samples, settings.batch_size or job.n_samples) for job in jobs)
        sample_size = max(math.prod(job.pool.shape[1:]) for job in jobs)
        numbers = _COPIES_OF_PARAMS * self.n_params + _COPIES_OF_SAMPLES * rows * sample_size
        return max(1, min(_MAX_DEVICES, _MAX_GROUP_BYTES // (itemsize * numbers)))
