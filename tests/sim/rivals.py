"""A small fleet in three groups, on which FedGroup, IFCA and FeSEM cost next to nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from tests.sim.fleets import FULL_BATCH, FastMean, Mean, params
from tolfl.core.records import RoundClosed
from tolfl.core.spec import BlobsSpec, FedGroupSpec, IFCASpec, ModelSpec, RunSpec, TrainSpec
from tolfl.datasets import FederatedDataset
from tolfl.sim.simulation import Run, run

RIVALS = ("fedgroup", "ifca", "fesem")
POLICIES = ("strict", "rehome")
N = 6
SIZES = (3, 4, 5, 2, 6, 4)


def grouped(n_devices: int = N, n_groups: int = 3, sizes: Sequence[int] = SIZES) -> FederatedDataset:
    """Return data in as many directions as there are groups of neighbouring devices, with a test set."""
    rng = np.random.default_rng(0)
    axes = 4 * np.eye(3)
    slices = [
        axes[d * n_groups // n_devices] + rng.normal(0, 0.3, (sizes[d % len(sizes)], 3)) for d in range(n_devices)
    ]
    typical = axes[np.arange(20) % 3] + rng.normal(0, 0.3, (20, 3))
    test = np.concatenate([typical, rng.normal(0, 3.0, (20, 3))])
    return FederatedDataset.from_arrays(slices, test=(test, np.arange(40) >= 20))


DATA = grouped()
SPEC = RunSpec(
    data="blobs",
    devices=N,
    clusters=3,
    rounds=6,
    train=FULL_BATCH,
    ifca=IFCASpec(warm_rounds=1, trial_rounds=1),
    fedgroup=FedGroupSpec(pretrain_iterations=5),
)
CLUSTERS = {"cluster-0": (0, 1), "cluster-1": (2, 3), "cluster-2": (4, 5)}
FAILS_IN = 3


MODEL = FastMean(Mean(3))


def simulated(spec: RunSpec) -> Run:
    return run(spec, DATA, MODEL)[0]


every_rival = pytest.mark.parametrize("scheme", RIVALS)


def changed(**changes: object) -> RunSpec:
    return msgspec.structs.replace(SPEC, **changes)


def n_samples(devices: Sequence[int]) -> int:
    return sum(DATA.n_samples(device) for device in devices)


def hosted_by_server(record: RoundClosed) -> tuple[int, ...]:
    """Return who trained the model of host 0."""
    return record.groups["cluster-0"]


BLOBS = RunSpec(
    data="blobs",
    devices=5,
    clusters=2,
    rounds=5,
    model=ModelSpec(hidden=(8,), code=2),
    train=TrainSpec(lr=0.01, batch_size=8),
    blobs=BlobsSpec(samples_per_device=20, n_features=6, n_groups=2, n_test=40, n_validation=20),
    ifca=IFCASpec(warm_rounds=1, restarts=2, trial_rounds=2),
    fedgroup=FedGroupSpec(pretrain_scale=2),
)


def comparable(result: Run) -> dict[str, object]:
    return {key: value for key, value in result.summary.items() if key != "seconds_per_round"}


def assert_same(one: Run, other: Run) -> None:
    assert one.records == other.records
    assert comparable(one) == comparable(other)
    assert list(one.models) == list(other.models)
    for name in one.models:
        assert np.array_equal(params(one, name), params(other, name))
