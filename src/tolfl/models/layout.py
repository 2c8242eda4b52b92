"""Where each named tensor of a model lies in its flat parameter vector."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tolfl.core.errors import DataError
from tolfl.kernel.jobs import Floats


@dataclass(frozen=True, slots=True)
class Segment:
    """One named tensor: `flat[first:last]`, of this shape."""

    name: str
    shape: tuple[int, ...]
    first: int
    last: int
    is_trained: bool
    """False for buffers and for parameters that are frozen: they travel but are not moved by gradients."""


@dataclass(frozen=True, slots=True)
class FlatLayout:
    """The order of all tensors in the flat vector: parameters, then floating-point buffers."""

    segments: tuple[Segment, ...]
    n_params: int

    @classmethod
    def of(cls, module: nn.Module) -> FlatLayout:
        """Return the layout of a module's parameters and floating-point buffers."""
        segments: list[Segment] = []
        first = 0
        for name, tensor in named_state(module):
            last = first + math.prod(tensor.shape)
            segments.append(Segment(name, tuple(tensor.shape), first, last, tensor.requires_grad))
            first = last
        return cls(tuple(segments), first)

    def views(self, params: Floats) -> dict[str, Floats]:
        """Return named views into a flat vector."""
        if params.shape != (self.n_params,):
            raise DataError(f"the model has {self.n_params} parameters; the vector has shape {params.shape}")
        return {part.name: params[part.first : part.last].reshape(part.shape) for part in self.segments}

    def load(self, module: nn.Module, params: Floats) -> None:
        """Copy a flat vector into a module."""
        state = dict(named_state(module))
        with torch.no_grad():
            for name, values in self.views(params).items():
                state[name].copy_(torch.tensor(values))


def named_state(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """Yield what the flat vector holds: parameters first, then floating-point buffers."""
    yield from module.named_parameters()
    yield from ((name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point())
