"""IFCA where it is known to work: groups that it finds, and every way to start."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.sim.fleets import FULL_BATCH, closed, params, simulated
from tolfl.core.spec import BlobsSpec, IFCASpec, ModelSpec, RunSpec, TrainSpec
from tolfl.datasets import FederatedDataset
from tolfl.sim.simulation import Run, run

# -- settings where the method is known to work -----------------------------------------------------------------------


class Line(nn.Module):
    """A one-dimensional subspace of the plane: what is left of a sample beside it is the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.tensor([0.6, 0.3], dtype=torch.float64))

    def sample_losses(self, samples: Tensor) -> Tensor:
        along = samples @ self.direction
        return (samples - along[:, None] * self.direction).square().sum(1)


def rotated(m: int, per_group: int) -> FederatedDataset:
    """Return the same line of samples, turned by another angle in each group of neighbouring devices."""
    rng = np.random.default_rng(0)
    angles = np.pi * np.repeat(np.arange(m), per_group) / m
    return FederatedDataset.from_arrays(
        [
            rng.normal(0, 1, (20, 1)) * [[np.cos(angle), np.sin(angle)]] + rng.normal(0, 0.05, (20, 2))
            for angle in angles
        ]
    )


def found(result: Run) -> set[tuple[int, ...]]:
    return set(closed(result)[-1].groups.values())


def true_groups(m: int, per_group: int) -> set[tuple[int, ...]]:
    return {tuple(range(group * per_group, (group + 1) * per_group)) for group in range(m)}


@pytest.mark.parametrize("m", [2, 3, 4])
def test_rotated_groups_are_found(m: int) -> None:
    spec = RunSpec(
        data="blobs",
        scheme="ifca",
        devices=4 * m,
        clusters=m,
        rounds=12,
        train=TrainSpec(lr=0.1, batch_size=0, epochs=3),
        ifca=IFCASpec(trial_rounds=7),
    )

    assert found(simulated(spec, rotated(m, 4), Line())) == true_groups(m, 4)


@pytest.mark.parametrize("seed", [0, 1])
def test_shifted_groups_are_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = FederatedDataset.from_arrays([3 * np.eye(4)[d // 4] + rng.normal(0, 0.3, (5, 4)) for d in range(12)])
    spec = RunSpec(data="blobs", scheme="ifca", devices=12, clusters=3, rounds=12, seed=seed, train=FULL_BATCH)
    result = simulated(spec, data)

    assert found(result) == true_groups(3, 4)
    for name, members in closed(result)[-1].groups.items():
        typical = np.eye(4)[members[0] // 4]
        assert params(result, name) @ typical / np.linalg.norm(params(result, name)) > 0.9


BLOBS = RunSpec(
    data="blobs",
    scheme="ifca",
    devices=6,
    clusters=3,
    rounds=6,
    model=ModelSpec(hidden=(8,), code=2, dropout=0.0),
    train=TrainSpec(batch_size=8),
    blobs=BlobsSpec(samples_per_device=30, n_features=6, n_groups=3, n_test=40),
)


@pytest.mark.parametrize(
    "ifca",
    [
        IFCASpec(restarts=1),
        IFCASpec(init="random", restarts=1),
        IFCASpec(init="random", restarts=2, trial_rounds=2),
        IFCASpec(warm_rounds=0),
        IFCASpec(weight="equal", trial_rounds=1),
    ],
    ids=str,
)
def test_every_way_to_start_trains_the_autoencoder_to_the_end(ifca: IFCASpec) -> None:
    result = run(msgspec.structs.replace(BLOBS, ifca=ifca))[0]
    rounds = closed(result)

    assert len(rounds) == 6
    assert set(result.models) == {"cluster-0", "cluster-1", "cluster-2"}
    assert sorted(d for members in rounds[-1].groups.values() for d in members) == list(range(6))
    assert rounds[-1].loss is not None
    assert rounds[0].loss is not None
    assert rounds[-1].loss < rounds[0].loss


def test_random_models_are_not_warmed_up() -> None:
    random, cold = (
        run(msgspec.structs.replace(BLOBS, ifca=ifca))[0]
        for ifca in (IFCASpec(init="random", restarts=1), IFCASpec(warm_rounds=0, restarts=1))
    )

    assert random.summary["model_sha256"] == cold.summary["model_sha256"]
