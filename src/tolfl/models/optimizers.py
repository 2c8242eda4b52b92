"""Optimisers over blocks whose first axis is the device: one flat update for a whole group.

The numbers are those of `torch.optim`. Devices that have finished their steps are left out by handing in shorter
blocks: a group is sorted so that the devices still training come first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from tolfl.core.errors import UnknownNameError
from tolfl.models.settings import TrainSettings

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # the defaults of torch.optim.Adam


class Optimizer(Protocol):
    """Moves parameters along gradients; keeps its own state from step to step."""

    def step(self, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """Change `params` in place; each tensor is `(n_active, ...)`, and `n_active` may only fall."""
        ...


class Sgd:
    """`params -= lr * grads`."""

    def __init__(self, lr: float) -> None:
        self._lr = lr

    def step(self, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """Change `params` in place."""
        for param, grad in zip(params, grads, strict=True):
            param.sub_(grad, alpha=self._lr)


class Momentum:
    """`velocity = momentum * velocity + grads; params -= lr * velocity`."""

    def __init__(self, lr: float, momentum: float) -> None:
        self._lr, self._momentum = lr, momentum
        self._velocities: list[Tensor] = []

    def step(self, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """Change `params` in place."""
        if not self._velocities:
            self._velocities = [torch.zeros_like(param) for param in params]
        for param, grad, whole in zip(params, grads, self._velocities, strict=True):
            velocity = whole[: len(param)]
            velocity.mul_(self._momentum).add_(grad)
            param.sub_(velocity, alpha=self._lr)


class Adam:
    """Adam with the usual constants (Kingma and Ba, 2015)."""

    def __init__(self, lr: float) -> None:
        self._lr = lr
        self._n_steps = 0
        self._means: list[Tensor] = []
        self._squares: list[Tensor] = []

    def step(self, params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """Change `params` in place."""
        if not self._means:
            self._means = [torch.zeros_like(param) for param in params]
            self._squares = [torch.zeros_like(param) for param in params]
        # All devices of a group start together, so the step count is common to those still training.
        self._n_steps += 1
        step_size = self._lr / (1 - _BETA_1**self._n_steps)
        root_correction = math.sqrt(1 - _BETA_2**self._n_steps)
        for param, grad, means, squares in zip(params, grads, self._means, self._squares, strict=True):
            mean, square = means[: len(param)], squares[: len(param)]
            mean.lerp_(grad, 1 - _BETA_1)
            square.mul_(_BETA_2).addcmul_(grad, grad, value=1 - _BETA_2)
            param.addcdiv_(mean, square.sqrt().div_(root_correction).add_(_EPSILON), value=-step_size)


def optimizer_for(settings: TrainSettings) -> Optimizer:
    """Return a fresh optimiser, with no memory of earlier rounds."""
    match settings.optimizer:
        case "sgd":
            return Sgd(settings.lr)
        case "momentum":
            return Momentum(settings.lr, settings.momentum)
        case "adam":
            return Adam(settings.lr)
    raise UnknownNameError("optimizer", settings.optimizer, ["sgd", "momentum", "adam"])
