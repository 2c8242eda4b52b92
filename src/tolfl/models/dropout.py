"""Dropout masks that belong to a device: the same alone or in a group, whatever the group's padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tolfl.core.seeding import Purpose, random_words, stream_keys
from tolfl.kernel.jobs import TrainJob
from tolfl.models.batches import WORDS_PER_STEP
from tolfl.models.workspace import Workspace

_UNITS_PER_WORD = 4  # a 64-bit word is cut into four 16-bit numbers: drawing bits was half the cost of training
_LEVELS = 2**16


class DropoutMasks:
    """One mask per step for all hidden units of a group.

    A unit is kept if its 16-bit number lies below a threshold. The number of (step, row, unit) stands at a fixed
    place in the stream of (seed, device, round), so neither the group nor its padding can move it.
    """

    def __init__(self, jobs: Sequence[TrainJob], n_units: int, rate: float) -> None:
        seeds, devices, rounds = zip(*((job.seed, job.device, job.round_index) for job in jobs), strict=True)
        self._keys = stream_keys(seeds, Purpose.DROPOUT, devices, rounds)
        self._words_per_row = -(-n_units // _UNITS_PER_WORD)
        self._n_units = n_units
        self._threshold = keep_threshold(rate)

    def draw(self, step: int, n_active: int, n_rows: int, dtype: torch.dtype, workspace: Workspace) -> Tensor:
        """Return ones (keep) and zeros (drop), shape `(n_active, n_rows, n_units)`."""
        words = random_words(self._keys[:n_active], n_rows * self._words_per_row, first=step * WORDS_PER_STEP)
        numbers = words.view(np.uint16).reshape(n_active, n_rows, -1)
        kept = workspace.tensor("kept", numbers.shape, torch.bool)
        np.less(numbers, np.uint16(self._threshold), out=kept.numpy())
        mask = workspace.tensor("mask", numbers.shape, dtype)
        # NumPy turns bool into float several times faster than PyTorch does.
        np.copyto(mask.numpy(), kept.numpy())
        return mask[:, :, : self._n_units]


def keep_threshold(rate: float) -> int:
    """Return how many of the 65,536 levels keep a unit: never none, never all."""
    return min(max(round((1 - rate) * _LEVELS), 1), _LEVELS - 1)


def keep_gain(rate: float) -> float:
    """Return what the kept units are scaled by, so that the expectation is exact although the rate is rounded."""
    return _LEVELS / keep_threshold(rate) if rate else 1.0
