"""What a scheme is: pure functions (start, contribute, apply), a layout, and what follows when a head dies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tolfl.core.contribution import Contribution, Vector
from tolfl.models import Model, TrainJob, Update

#: Models by key; Tol-FL, FL, SBT and batch have one, clustered schemes several.
Models = dict[str, Vector]

#: Training, as the driver offers it: many jobs at once, on as many threads as it likes.
Train = Callable[[Sequence[TrainJob]], list[Update]]


@dataclass(frozen=True, slots=True)
class Task:
    """One device's part of one round: where its samples are, and the models it starts from."""

    seed: int
    device: int
    round_index: int
    models: Models
    pool: Vector
    first: int
    last: int

    @property
    def n_samples(self) -> int:
        """How many samples the device has."""
        return self.last - self.first

    def job(self, start: Vector) -> TrainJob:
        """Return the training of this task from one of the models."""
        return TrainJob(self.seed, self.device, self.round_index, start, self.pool, self.first, self.last)


class Scheme(Protocol):
    """One method. It holds no state: the same calls give the same results in every driver."""

    @property
    def name(self) -> str:
        """The name that specifications use."""

    @property
    def default_policy(self) -> str:
        """What happens when a head dies, unless the specification says otherwise."""

    @property
    def moves_models(self) -> bool:
        """Whether devices send models to each other; batch training has all data on one machine."""

    def n_clusters(self, asked: int, n_devices: int) -> int:
        """Return the number of clusters of this scheme."""

    def batch_size(self, asked: int, n_devices: int) -> int:
        """Return the size of a training batch, given that of a single device; 0 is one full batch."""

    def start(self, model: Model, seed: int) -> Models:
        """Return the models before the first round."""

    def contribute(self, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:
        """Return what each task contributes to its round."""

    def apply(
        self, models: Models, total: Contribution, tasks: Sequence[Task], train: Train, server_lr: float
    ) -> tuple[Models, float]:
        """Return the models after a round and its training loss; `tasks` are those of the devices in `total`."""
