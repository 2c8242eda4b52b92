"""How a device trains: `TrainSettings` of the run's specification, checked before they are used.

The loss is a *sum* over features and a mean over the mini-batch, so a good step shrinks as samples grow: about 2e-2
at 112 features, 3e-3 at 784, 1e-3 at 1024 (plain SGD). The optimiser starts afresh in every round: no device may
carry state that dies with it.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from tolfl.core.errors import SpecError
from tolfl.core.spec import TrainSettings

__all__ = ["OptimizerName", "TrainSettings", "check_settings"]

OptimizerName: TypeAlias = Literal["sgd", "momentum", "adam"]


def check_settings(settings: TrainSettings) -> None:
    """Raise `SpecError` for settings that cannot be trained with; `lr=0` can: it measures and changes nothing."""
    if not (math.isfinite(settings.lr) and settings.lr >= 0):
        raise SpecError(f"lr is {settings.lr}; give a finite step that is not negative")
    if settings.epochs < 1:
        raise SpecError(f"epochs is {settings.epochs}; give at least 1")
    if settings.batch_size < 0:
        raise SpecError(f"batch_size is {settings.batch_size}; give 0 for all samples at once, or a positive number")
    if not 0 <= settings.momentum < 1:
        raise SpecError(f"momentum is {settings.momentum}; give a number from 0 up to, but not including, 1")
