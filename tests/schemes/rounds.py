"""One round of a scheme by hand: tasks, training (real or made up), the total, the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import ArrayLike
from tolfl.schemes import Applied, Closing, Scheme, Task, Train
from tolfl.schemes.clustered import NOBODYS, Clusters
from tolfl.schemes.scheme import Models

from tests.sim.fleets import Mean
from tolfl.core.contribution import Contribution
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import TrainSettings
from tolfl.datasets import FederatedDataset
from tolfl.models import Model, ModuleModel, TrainJob, Update

ONE_FEATURE = ModuleModel(Mean(1))
SETTINGS = TrainSettings(lr=0.1, batch_size=0)


@dataclass(frozen=True)
class Round:
    """What a round was made of and what it led to."""

    contributions: list[Contribution]
    total: Contribution
    applied: Applied

    @property
    def after(self) -> Clusters:
        return Clusters.of(self.applied.models)


def full_batch(model: Model = ONE_FEATURE) -> Train:
    """Return training with one step of 0.1 on all samples of a device."""

    def train(jobs: Sequence[TrainJob], epochs: int | None = None, n_batches: int | None = None) -> list[Update]:
        # A full batch is one mini-batch: so many of them are so many epochs.
        return model.train(jobs, msgspec.structs.replace(SETTINGS, epochs=epochs or n_batches or SETTINGS.epochs))

    return train


def trained_to(local: Mapping[int, ArrayLike]) -> Train:
    """Return made-up training: each device ends at its own model, wherever it started."""

    def train(jobs: Sequence[TrainJob], epochs: int | None = None, n_batches: int | None = None) -> list[Update]:
        return [Update(job.start - np.asarray(local[job.device], dtype=float), 0.0, job.n_samples) for job in jobs]

    return train


def moved_by(updates: Mapping[int, ArrayLike]) -> Train:
    """Return made-up training: each device moves by its own update (start minus trained), wherever it started."""

    def train(jobs: Sequence[TrainJob], epochs: int | None = None, n_batches: int | None = None) -> list[Update]:
        return [Update(np.asarray(updates[job.device], dtype=float), 0.0, job.n_samples) for job in jobs]

    return train


def clusters(
    centres: Iterable[ArrayLike], members: Sequence[int] | int, is_hosted: Sequence[bool] | None = None
) -> Clusters:
    """Return clusters of given models; `members` is a group per device, or how many devices have none."""
    vectors = tuple(np.atleast_1d(np.asarray(centre, dtype=float)) for centre in centres)
    groups = np.full(members, NOBODYS) if isinstance(members, int) else np.array(members)
    return Clusters(vectors, groups, np.ones(len(vectors), bool) if is_hosted is None else np.array(is_hosted))


def tasks_from(models: Models, data: FederatedDataset, round_index: int, devices: Iterable[int]) -> list[Task]:
    return [Task(0, d, round_index, models, data.pool, *data.bounds[d : d + 2]) for d in devices]


def play(
    scheme: Scheme,
    models: Models,
    data: FederatedDataset,
    round_index: int,
    train: Train | None = None,
    model: Model = ONE_FEATURE,
    present: Iterable[int] | None = None,
    devices: Iterable[int] | None = None,
    server_lr: float = 1.0,
) -> Round:
    """Play one round: `devices` contribute, `present` go on from it; both are everybody unless said otherwise."""
    everybody = range(data.n_devices)
    train = train or full_batch(model)
    tasks = tasks_from(models, data, round_index, everybody if devices is None else devices)
    contributions = scheme.contribute(tasks, model, train)
    total = Contribution.total(contributions)
    closing = Closing(0, round_index, DeviceSet.of(everybody if present is None else present), server_lr)
    return Round(contributions, total, scheme.apply(models, total, closing, tasks, train))
