"""Local training, in a thread of its own: the event loop must answer heartbeats meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

import msgspec
import numpy as np
import torch

from tolfl.core.byzantine import Liars
from tolfl.core.contribution import Contribution, Pending
from tolfl.core.defence import combine
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import NonFiniteModelError
from tolfl.core.spec import RunSpec, TrainSettings
from tolfl.datasets.federated import Samples
from tolfl.models import Autoencoder, TrainJob, Update
from tolfl.protocol.history import Version
from tolfl.runs.directory import Tensors
from tolfl.schemes import Closing, Scheme, Task, scheme_of
from tolfl.schemes.scheme import Models


class Trainer:
    """Trains one device's samples, one round at a time; what has not begun is dropped when a newer round comes."""

    def __init__(
        self, spec: RunSpec, device: int, samples: Samples, model: Autoencoder, settings: TrainSettings
    ) -> None:
        self._spec, self._device, self._samples = spec, device, samples
        self._model, self._settings = model, settings
        self._scheme: Scheme = scheme_of(spec)
        self._liars = Liars.parse(spec.liars, spec.devices)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="training")
        self._thread.submit(torch.set_num_threads, 1)
        self._waiting: Future[Contribution] | None = None

    def first_models(self) -> Models:
        """Return the models before the first round, from the seed that everybody knows."""
        return self._scheme.start(self._model, self._spec.seed)

    def start(self, version: Version, models: object, done: Callable[[Future[Contribution]], None]) -> None:
        """Train from a version of the models; `done` is called from the thread."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self._thread.submit(self._contribute, version, cast("Models", models))
        self._waiting.add_done_callback(done)

    def _contribute(self, version: Version, models: Models) -> Contribution:
        task = Task(self._spec.seed, self._device, version.round, models, self._samples, 0, len(self._samples))
        return self._liars.told(self._scheme.contribute([task], self._model, self._train))[0]

    def _train(self, jobs: Sequence[TrainJob], epochs: int | None = None, n_batches: int | None = None) -> list[Update]:
        settings = self._settings
        if n_batches is not None:
            epochs = settings.epochs_for(n_batches, len(self._samples))
        if epochs is not None:
            settings = msgspec.structs.replace(settings, epochs=epochs)
        return self._model.train(list(jobs), settings)

    def merge(self, upstream: Pending | None, cluster: Sequence[Pending]) -> Pending:
        """Return the chain so far with a cluster appended, under the defence of the run."""
        if not self._spec.defence.is_on:
            return Contribution.appended(upstream, cluster)
        chain = None if upstream is None else upstream.resolve()
        return combine(self._spec.defence, chain, [device.resolve() for device in cluster])

    def apply(self, models: object, total: Pending, version: Version, present: DeviceSet) -> object:
        """Return the models after a round."""
        closing = Closing(self._spec.seed, version.round, present, self._spec.train.server_lr)
        applied = self._scheme.apply(cast("Models", models), total.resolve(), closing, [], self._train)
        if not all(np.isfinite(params).all() for params in applied.models.values()):
            raise NonFiniteModelError(f"the model after round {version.round}")
        return applied.models

    def tensors(self, models: object) -> dict[str, Tensors]:
        """Return models by name, each as its tensors by name."""
        return {key: self._model.tensors(params) for key, params in cast("Models", models).items()}

    def close(self) -> None:
        """Let the thread end; training under way is of no use to anybody any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
