"""What a device brings along: its part of the run."""

from __future__ import annotations

from dataclasses import dataclass

from tolfl.core.failures import FailurePlan
from tolfl.core.spec import RunSpec
from tolfl.net.config import NodeConfig
from tolfl.net.wire import Limits
from tolfl.protocol.device import Rules


@dataclass(frozen=True)
class Setting:
    """What a device brings along: its part of the run."""

    config: NodeConfig
    spec: RunSpec
    plan: FailurePlan
    rules: Rules
    limits: Limits
    fleet: str
    n_samples: int
    data: str
