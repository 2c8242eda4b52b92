"""What a scheme is: pure functions (start, contribute, apply), a layout, and what follows when a head dies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tolfl.core.contribution import Contribution, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.models import Model, TrainJob, Update

#: Models by key; Tol-FL, FL, SBT and batch have one, clustered schemes several and notes on who trains which.
Models = dict[str, Vector]


class Train(Protocol):
    """Training, as the driver offers it: many jobs at once, on as many threads as it likes."""

    def __call__(
        self, jobs: Sequence[TrainJob], epochs: int | None = None, n_batches: int | None = None
    ) -> list[Update]:
        """Return one update per job, in place of the usual local epochs after `epochs` or at least `n_batches`."""


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

    @property
    def samples(self) -> Vector:
        """The device's samples."""
        return self.pool[self.first : self.last]

    def job(self, start: Vector) -> TrainJob:
        """Return the training of this task from one of the models."""
        return TrainJob(self.seed, self.device, self.round_index, start, self.pool, self.first, self.last)


@dataclass(frozen=True, slots=True)
class Closing:
    """The round that is being closed."""

    seed: int
    round_index: int
    present: DeviceSet  #: the devices that go on from here
    server_lr: float = 1.0


@dataclass(frozen=True, slots=True)
class Applied:
    """What a closed round leads to."""

    models: Models
    loss: float | None  #: None: nobody trained
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)  #: who trained which model, if there are several
    left_out: dict[int, str] = field(default_factory=dict)  #: whose contribution is not in any model, and why


@dataclass(frozen=True, slots=True)
class Served:
    """A model that is there to be used, and how many devices use it."""

    params: Vector
    n_devices: int


class Scheme(Protocol):
    """One method, with the hyper-parameters of a run. It holds no state: the same calls give the same results."""

    @property
    def name(self) -> str:
        """The name that specifications use."""

    @property
    def policies(self) -> tuple[str, ...]:
        """What may happen when a head dies; the first is the default."""

    @property
    def compared_policies(self) -> tuple[str, ...]:
        """The policies that a comparison shows, where a head dies."""

    @property
    def family(self) -> str:
        """A name that is shared by schemes which compute the same models as long as nobody fails."""

    @property
    def hosts(self) -> tuple[int, ...]:
        """Who keeps which model, where there are several."""

    @property
    def moves_models(self) -> bool:
        """Whether devices send models to each other; batch training has all data on one machine."""

    def n_clusters(self, asked: int, n_devices: int) -> int:
        """Return the number of clusters of this scheme."""

    def wiring(self, clusters: Topology) -> Topology:
        """Return whom devices report to: the clusters themselves, or one star."""

    def protocol_policy(self, policy: str) -> str:
        """Return what the devices do when the head they report to dies."""

    def batch_size(self, asked: int, n_devices: int) -> int:
        """Return the size of a training batch, given that of a single device; 0 is one full batch."""

    def models_up(self, round_index: int) -> int:
        """Return how many models a device sends in a round."""

    def models_down(self, round_index: int) -> int:
        """Return how many models a device gets when a round is closed."""

    def start(self, model: Model, seed: int) -> Models:
        """Return the models before the first round."""

    def contribute(self, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:
        """Return what each task contributes to its round."""

    def apply(
        self, models: Models, total: Contribution, closing: Closing, tasks: Sequence[Task], train: Train
    ) -> Applied:
        """Return the models after a round and its training loss; `tasks` are those of the devices in `total`."""

    def serving(self, models: Models, devices: Iterable[int]) -> dict[str, Served]:
        """Return the models that are there to be used, with how many of these devices use each."""
