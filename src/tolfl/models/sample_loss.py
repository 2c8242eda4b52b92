"""The loss of each sample, as a module: whatever the user gave, it runs the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor, nn

from tolfl.core.errors import DataError

LossFunction: TypeAlias = Callable[[nn.Module, Tensor], Tensor]
"""Takes a module and samples `(n_samples, ...)`; returns one loss per sample, `(n_samples,)`."""


class SampleLoss(nn.Module):
    """A module whose output is one loss per sample.

    It wraps the user's module, so that PyTorch can swap the parameters inside while the loss is worked out.
    """

    def __init__(self, module: nn.Module, loss: LossFunction | None) -> None:
        super().__init__()
        self.module = module
        self._loss = loss or _loss_of(module)

    def forward(self, samples: Tensor) -> Tensor:
        """Return the losses, shape `(n_samples,)`."""
        losses = self._loss(self.module, samples)
        if losses.shape != samples.shape[:1]:
            raise DataError(
                f"the loss has shape {tuple(losses.shape)} for {len(samples)} samples; return one value per sample"
            )
        return losses


def _loss_of(module: nn.Module) -> LossFunction:
    """Return the module's own loss if it brings one, and the squared reconstruction error otherwise."""
    return _own_losses if callable(getattr(module, "sample_losses", None)) else _squared_errors


def _own_losses(module: nn.Module, samples: Tensor) -> Tensor:
    own_losses: Callable[[Tensor], Tensor] = module.sample_losses  # type: ignore[assignment]  # nn.Module cannot tell
    return own_losses(samples)


def _squared_errors(module: nn.Module, samples: Tensor) -> Tensor:
    output: Tensor = module(samples)
    if output.shape != samples.shape:
        raise DataError(
            f"the module turns shape {tuple(samples.shape)} into {tuple(output.shape)}; "
            "only a module that reconstructs its input can do without a loss of its own"
        )
    return (output - samples).square().reshape(len(samples), -1).sum(1)
