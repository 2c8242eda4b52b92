"""One round of a learner by hand: turns, training (real or made up), the total, the step, what the record says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tests.sim.fleets import Mean
from tolfl.core.contribution import Contribution, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import TrainSettings
from tolfl.datasets import FederatedDataset
from tolfl.kernel import Update
from tolfl.learners import Account, Closing, State, Turn
from tolfl.learners.clustered import NOBODYS, Clustered, Clusters
from tolfl.learners.learner import contributions_of
from tolfl.learners.torch_module import ModuleModel
from tolfl.learners.training import LocalTraining

ONE_FEATURE = ModuleModel(Mean(1))
SETTINGS = TrainSettings(lr=0.1, batch_size=0)

#: What stands in for local training: turns, where each starts, epochs and mini-batches that were asked for.
Train = Callable[[Sequence[Turn], Sequence[Vector], int | None, int | None], list[Update]]


@dataclass(frozen=True)
class MadeUp(LocalTraining):
    """Local training whose result is known beforehand, or is looked at."""

    train: Train | None = None

    def updates(
        self,
        turns: Sequence[Turn],
        starts: Iterable[Vector],
        epochs: int | None = None,
        n_batches: int | None = None,
    ) -> list[Update]:
        assert self.train is not None
        return self.train(turns, list(starts), epochs, n_batches)


@dataclass(frozen=True)
class Round:
    """What a round was made of and what it led to."""

    contributions: list[Contribution]
    total: Contribution
    state: State
    account: Account

    @property
    def after(self) -> Clusters:
        return Clusters.of(self.state)


def full_batch(model: ModuleModel = ONE_FEATURE, server_lr: float = 1.0) -> LocalTraining:
    """Return training with one step of 0.1 on all samples of a device."""
    return LocalTraining(model, SETTINGS, server_lr)


def trained_to(local: Mapping[int, ArrayLike]) -> Train:
    """Return made-up training: each device ends at its own model, wherever it started."""

    def train(
        turns: Sequence[Turn], starts: Sequence[Vector], epochs: int | None, n_batches: int | None
    ) -> list[Update]:
        ends = [np.asarray(local[turn.device], dtype=float) for turn in turns]
        return [Update(start - end, 0.0, len(turn.rows)) for turn, start, end in zip(turns, starts, ends, strict=True)]

    return train


def moved_by(updates: Mapping[int, ArrayLike]) -> Train:
    """Return made-up training: each device moves by its own update (start minus trained), wherever it started."""

    def train(
        turns: Sequence[Turn], starts: Sequence[Vector], epochs: int | None, n_batches: int | None
    ) -> list[Update]:
        return [Update(np.asarray(updates[turn.device], dtype=float), 0.0, len(turn.rows)) for turn in turns]

    return train


def clusters(
    centres: Iterable[ArrayLike], members: Sequence[int] | int, is_hosted: Sequence[bool] | None = None
) -> Clusters:
    """Return clusters of given models; `members` is a group per device, or how many devices have none."""
    vectors = tuple(np.atleast_1d(np.asarray(centre, dtype=float)) for centre in centres)
    groups = np.full(members, NOBODYS) if isinstance(members, int) else np.array(members)
    return Clusters(vectors, groups, np.ones(len(vectors), bool) if is_hosted is None else np.array(is_hosted))


def turns_from(
    state: State, data: FederatedDataset, round_index: int, devices: Iterable[int], seed: int = 0
) -> list[Turn]:
    return [Turn(seed, device, round_index, state, data.slice_of(device)) for device in devices]


def play(
    learner: Clustered,
    state: State,
    data: FederatedDataset,
    round_index: int,
    train: Train | None = None,
    present: Iterable[int] | None = None,
    devices: Iterable[int] | None = None,
) -> Round:
    """Play one round: `devices` contribute, `present` go on from it; both are everybody unless said otherwise."""
    everybody = range(data.n_devices)
    if train is not None:
        learner = copy(learner)
        learner.training = MadeUp(learner.training.model, SETTINGS, learner.training.server_lr, train)
    turns = turns_from(state, data, round_index, everybody if devices is None else devices)
    contributions = contributions_of(learner, turns)
    total = Contribution.total(contributions)
    after = learner.apply(
        state, total, Closing(0, round_index, DeviceSet.of(everybody if present is None else present))
    )
    return Round(contributions, total, after, learner.account(state, after, total, round_index))
