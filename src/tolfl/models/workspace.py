"""Working memory that is used again, step after step and group after group."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Workspace:
    """Contiguous scratch tensors by name.

    A shorter last batch, or a group that shrinks as devices finish, gets the front of the same memory. That memory
    stays warm in the cache, and stays contiguous, which batched matrix products need to run as one call.
    """

    def __init__(self) -> None:
        self._memory: dict[tuple[str, torch.dtype], Tensor] = {}

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a tensor of this shape with undefined contents, valid until the same name is asked for again."""
        size = math.prod(shape)
        memory = self._memory.get((name, dtype))
        if memory is None or memory.numel() < size:
            memory = self._memory[name, dtype] = torch.empty(size, dtype=dtype)
        return memory[:size].view(shape)
