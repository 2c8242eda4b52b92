"""A FedGroup of any size, and data and updates that go in two directions."""

from __future__ import annotations

import numpy as np

from tests.learners.rounds import full_batch
from tests.sim.fleets import FULL_BATCH, Mean
from tolfl.core.spec import FedGroupSpec, RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.learners.fedgroup import FedGroup
from tolfl.learners.torch_module import ModuleModel

UPDATES = np.array([[1, 0, 0], [2, 0.2, 0], [0, 1, 0], [0, 3, 0.3]])
MODEL = ModuleModel(Mean(3))


def made(devices: int, m: int, fedgroup: FedGroupSpec | None = None, policy: str = "") -> FedGroup:
    return FedGroup(
        full_batch(MODEL),
        RunSpec(
            data="blobs",
            scheme="fedgroup",
            devices=devices,
            clusters=m,
            rounds=10,
            train=FULL_BATCH,
            on_head_failure=policy,
            fedgroup=fedgroup or FedGroupSpec(),
        ),
    )


def two_ways(n_devices: int, seed: int = 0) -> FederatedDataset:
    """Return data that pull devices with even and odd ids in opposite directions."""
    rng = np.random.default_rng(seed)
    return FederatedDataset.from_arrays([2 * (-1) ** d + rng.normal(0, 0.4, (4, 3)) for d in range(n_devices)])
