"""Which samples a device visits in which step: the same alone, in a group, or in another process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tolfl.core.seeding import Purpose, random_words, stream_keys
from tolfl.kernel.jobs import TrainJob
from tolfl.models.settings import TrainSettings
from tolfl.models.workspace import Workspace

WORDS_PER_STEP = 2**32
"""Epoch (or step) i of a stream starts at word i * 2**32, so that no device's draws depend on another's size."""

_MAX_GATHER_BYTES = 4 * 2**20  # a few steps ahead, and still within the last level of a core's cache


@dataclass(frozen=True, slots=True)
class BatchStep:
    """One step of all devices of a group that are still training."""

    index: int
    samples: Tensor
    """Shape `(n_active, n_rows, *sample_shape)`; rows beyond a device's own batch repeat one of its samples."""
    row_weights: Tensor
    """Shape `(n_active, n_rows)`: 1 / (size of the device's batch), and 0 in padding."""
    loss_share: Tensor
    """Shape `(n_active,)`: this batch's share in the mean loss of the last epoch; 0 in earlier epochs."""


class GroupBatches:
    """The steps of a group of jobs, sorted by size with the largest first.

    Every device goes at its own pace through its own epochs; as the largest comes first, the devices still training
    are always the first ones, and one that has finished is not touched any more.
    """

    def __init__(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> None:
        self._jobs = jobs
        self._sizes = np.array([job.n_samples for job in jobs])
        width = int(min(settings.batch_size or self._sizes[0], self._sizes[0]))
        self._epochs = settings.epochs
        self._steps_per_epoch = -(-self._sizes // width)
        self.n_steps = self._epochs * int(self._steps_per_epoch[0])
        """Steps of the largest device."""
        # Each device counts epochs and steps by its own size; what it reads after its last step is not used.
        epoch, step = np.divmod(np.arange(self.n_steps), self._steps_per_epoch[:, None])
        visits = self._visits(width, is_shuffled=settings.batch_size > 0)
        self._rows = visits[np.minimum(epoch, self._epochs - 1), np.arange(len(jobs))[:, None], step]
        self._counts = np.minimum(width, self._sizes[:, None] - step * width)

    def _visits(self, width: int, is_shuffled: bool) -> NDArray[np.int64]:
        """Return pool rows by epoch, device and step, shape `(n_epochs, n_devices, n_steps, width)`.

        Where a device has fewer samples than the largest one, its first row is repeated.
        """
        largest = int(self._sizes[0])
        is_padding = np.arange(largest) >= self._sizes[:, None]
        seeds, devices, rounds = zip(*((job.seed, job.device, job.round_index) for job in self._jobs), strict=True)
        keys = stream_keys(seeds, Purpose.BATCH_ORDER, devices, rounds)
        firsts = np.array([job.first for job in self._jobs])
        n_steps = int(self._steps_per_epoch[0])
        visits = np.empty((self._epochs, len(firsts), n_steps * width), np.int64)
        visits[:] = firsts[:, None]
        for epoch in range(self._epochs):
            order = np.broadcast_to(np.arange(largest), is_padding.shape)
            if is_shuffled:
                words = random_words(keys, largest, first=epoch * WORDS_PER_STEP)
                words[is_padding] = np.iinfo(np.uint64).max  # sorted to the end
                order = np.argsort(words, axis=1)
            visits[epoch, :, :largest] += np.where(is_padding, 0, order)
        return visits.reshape(self._epochs, len(firsts), n_steps, width)

    def steps(self, workspace: Workspace, is_padded: bool = False) -> Iterator[BatchStep]:
        """Yield the steps in order; the samples of a step are valid until the next one is asked for.

        `is_padded`: a last batch that is smaller for everybody has padding too. The bits of a product depend on its
        shape, and a device that trains alone in its process must get those that it gets in a group.
        """
        width = self._rows.shape[2]
        dtype = torch.from_numpy(np.empty(0, self._jobs[0].start.dtype)).dtype
        row_bytes = max(1, self._jobs[0].pool[0].size * dtype.itemsize)
        window = max(1, _MAX_GATHER_BYTES // (row_bytes * width * len(self._jobs)))
        n_active = np.count_nonzero(self._epochs * self._steps_per_epoch[:, None] > np.arange(self.n_steps), axis=0)
        for index in range(self.n_steps):
            if index % window == 0:
                last = min(index + window, self.n_steps)
                gathered = self._gather(slice(index, last), int(n_active[index]), dtype, workspace)
            active = int(n_active[index])
            counts = self._counts[:active, index]
            first_row = index % window * width
            n_rows = width if is_padded else int(counts.max())
            weights = (np.arange(n_rows) < counts[:, None]) / counts[:, None]
            in_last_epoch = index >= (self._epochs - 1) * self._steps_per_epoch[:active]
            yield BatchStep(
                index,
                gathered[:active, first_row : first_row + n_rows],
                torch.from_numpy(weights).to(dtype),
                torch.from_numpy(in_last_epoch * counts / self._sizes[:active]),
            )

    def _gather(self, steps: slice, n_active: int, dtype: torch.dtype, workspace: Workspace) -> Tensor:
        """Return the samples of some steps, shape `(n_active, n_steps * width, *sample_shape)`."""
        rows = self._rows[:n_active, steps].reshape(n_active, -1)
        pools = [job.pool for job in self._jobs[:n_active]]
        samples = workspace.tensor("samples", (*rows.shape, *pools[0].shape[1:]), dtype)
        out = samples.numpy()
        same_pool = all(pool is pools[0] for pool in pools)
        for pool, pool_rows, target in [(pools[0], rows, out)] if same_pool else zip(pools, rows, out, strict=True):
            if pool.dtype == out.dtype:
                # mode="clip": with the default mode NumPy gathers into a buffer first and copies.
                np.take(pool, pool_rows, axis=0, out=target, mode="clip")
            else:
                target[...] = pool[pool_rows]
        return samples
