"""Local training for learners: jobs from turns, updates in their order, and the trained model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import RunningSum, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import ModelError, TolFLError
from tolfl.core.spec import TrainSettings
from tolfl.kernel import TrainJob, Update
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.learner import Turn, encode_state

if TYPE_CHECKING:
    from torch import nn


class Model(Protocol):
    """A model whose parameters are one flat vector, trained for many devices at once.

    A model holds no parameters of its own: they come in with every call, so one model object serves all devices,
    all rounds and all repetitions.
    """

    @property
    def n_params(self) -> int:
        """Return the length of the flat parameter vector."""
        ...

    def initial(self, seed: int) -> Vector:
        """Return the parameters of an untrained model."""
        ...

    def train(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        """Return one update per job, in the order of the jobs.

        A job's update does not depend on the other jobs. Raises `DivergedError` for a device that diverged.
        """
        ...

    def sample_losses(self, params: Vector, samples: Vector) -> Vector:
        """Return the loss J of each sample, shape `(n_samples,)`, dropout off: also the anomaly score."""
        ...

    def tensors(self, params: Vector) -> dict[str, Vector]:
        """Return named views into `params`, as a state dict would name them."""
        ...

    def to_module(self, params: Vector) -> nn.Module:
        """Return a PyTorch module in eval mode that carries a copy of these parameters."""
        ...


@dataclass(frozen=True)
class TrainedModel:
    """A model that has been trained: it scores samples, and can be taken away as arrays or as an `nn.Module`."""

    model: Model
    params: Vector
    users: DeviceSet | None = None  #: the devices that it is for; None: all of them

    def anomaly_score(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return one score per sample: the higher, the more anomalous."""
        return self.model.sample_losses(self.params, np.asarray(rows, dtype=self.params.dtype))

    def tensors(self) -> dict[str, NDArray[np.floating]]:
        """Return the parameters by name."""
        return self.model.tensors(self.params)

    def files(self) -> dict[str, bytes]:
        """Return the parameters as the content of a safetensors file."""
        return {"model.safetensors": encode_state(self.tensors())}

    def to_module(self) -> nn.Module:
        """Return a PyTorch module in eval mode with these parameters."""
        return self.model.to_module(self.params)


_FEW_BATCHES = 4


@dataclass(frozen=True)
class LocalTraining:
    """A model and the settings of its local training."""

    model: Model
    settings: TrainSettings
    server_lr: float = 1.0  #: step on the mean update; 1 is FedAvg

    @property
    def is_thread_safe(self) -> bool:
        """Whether two threads may train at a time: modules of one's own draw from a generator that they share."""
        return isinstance(self.model, Autoencoder)

    @cached_property
    def n_bytes(self) -> int:
        """How large the model is."""
        return self.model.initial(0).nbytes

    def updates(
        self,
        turns: Sequence[Turn],
        starts: Iterable[Vector],
        epochs: int | None = None,
        n_batches: int | None = None,
    ) -> list[Update]:
        """Train each turn from its start, and return its update.

        `epochs`, or the epochs that `n_batches` take, replace those of the settings.
        """
        jobs = [
            TrainJob.of_rows(turn.seed, turn.device, turn.round, start, turn.rows)
            for turn, start in zip(turns, starts, strict=True)
        ]
        alike: dict[int, list[int]] = {}
        for place, job in enumerate(jobs):
            wanted = epochs if n_batches is None else self.settings.epochs_for(n_batches, job.n_samples)
            alike.setdefault(wanted or self.settings.epochs, []).append(place)
        updates: dict[int, Update] = {}
        for n_epochs, places in alike.items():
            settings = msgspec.structs.replace(self.settings, epochs=n_epochs)
            updates.update(zip(places, self._trained([jobs[place] for place in places], settings), strict=True))
        return [updates[place] for place in range(len(jobs))]

    def add_up(self, turns: Sequence[Turn], starts: Sequence[Vector], key: str, total: RunningSum) -> bool:
        """Train and add the updates to a running sum in one pass, and return True; or do nothing, where that is slower.

        One pass is faster for devices with few batches of rows, where much of the time goes into moving updates. With
        many, training on two threads is faster.
        """
        model, settings = self.model, self.settings
        at_most = _FEW_BATCHES * settings.batch_size or math.inf
        if not isinstance(model, Autoencoder) or settings.epochs > 1 or settings.optimizer != "sgd":
            return False
        if not all(0 < len(turn.rows) <= at_most for turn in turns) or starts[0].dtype != np.float32:
            return False
        jobs = [
            TrainJob.of_rows(turn.seed, turn.device, turn.round, start, turn.rows)
            for turn, start in zip(turns, starts, strict=True)
        ]
        n_samples = [job.n_samples for job in jobs]
        losses = model.add_up(jobs, settings, n_samples, total.mean_so_far(key, model.n_params))
        total.count(key, DeviceSet.of(turn.device for turn in turns), n_samples, losses)
        return True

    def _trained(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        if isinstance(self.model, Autoencoder):
            return self.model.train(jobs, settings)
        try:
            return self.model.train(jobs, settings)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if isinstance(error, TolFLError):
                raise
            raise ModelError(str(error).splitlines()[0] if str(error) else repr(error)) from error

    def stepped(self, start: Vector, delta: Vector) -> Vector:
        """Return the parameters after a round: `start - server_lr * delta`; FedAvg's mean where `server_lr` is 1."""
        step: Vector = delta if self.server_lr == 1.0 else start.dtype.type(self.server_lr) * delta
        return start - step
