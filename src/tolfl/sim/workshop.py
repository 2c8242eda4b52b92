"""Where promises are kept: all training that can be done together is done as one batch, on a few threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np

from tolfl.core.byzantine import Liars
from tolfl.core.contribution import Contribution, Vector
from tolfl.core.errors import ModelError, NonFiniteModelError, TolFLError
from tolfl.core.spec import TrainSettings
from tolfl.datasets import FederatedDataset
from tolfl.models import Autoencoder, Model, TrainJob, Update
from tolfl.models.threads import one_torch_thread
from tolfl.runs.checkpoint import Note
from tolfl.schemes import Closing, Scheme, Task, Train
from tolfl.sim.promises import Share, Step

#: Devices per thread that are trained before their contributions are merged and dropped: the models of 10,000 never
#: lie in memory at once, and memory that is still warm is used again.
_DEVICES_AT_ONCE = 50
#: More than two threads would mostly wait for Python's lock between the small steps of training.
_MAX_THREADS = 2
_ROWS_WORTH_A_THREAD = 256


@dataclass(frozen=True)
class Work:
    """One step to compute, and what it takes."""

    step: Step
    seed: int
    data: FederatedDataset


class Workshop:
    """Computes steps: trains every contribution that counts, merges, applies."""

    def __init__(
        self, scheme: Scheme, model: Model, settings: TrainSettings, server_lr: float, liars: Liars | None = None
    ) -> None:
        self._scheme, self._model, self._settings, self._server_lr = scheme, model, settings, server_lr
        self._liars = liars or Liars()
        # One device at a time uses torch's global generator, which threads would share.
        self._n_threads = min(_MAX_THREADS, os.cpu_count() or 1) if isinstance(model, Autoencoder) else 1

    def compute(self, works: Sequence[Work]) -> None:
        """Compute steps whose parents are done. Steps of one call are trained as one batch."""
        with one_torch_thread(), ThreadPoolExecutor(self._n_threads) as pool:
            train = partial(self._train, pool)
            model = _PooledScoring(self._model, pool, self._n_threads)
            tasks = [_tasks(work) for work in works]
            at_once = _DEVICES_AT_ONCE * self._n_threads
            contribute = partial(self._contribute, train, model)
            queue = _Queue([pair for pairs in tasks for pair in pairs], contribute, at_once)
            for work, pairs in zip(works, tasks, strict=True):
                self._finish(work, [task for _, task in pairs], train)
            queue.close()

    def _contribute(self, train: Train, model: Model, tasks: Sequence[Task]) -> list[Contribution]:
        return self._liars.told(self._scheme.contribute(tasks, model, train))

    def _finish(self, work: Work, tasks: Sequence[Task], train: Train) -> None:
        step = work.step
        if step.version is None or step.parent is None or step.total is None or step.parent.models is None:
            raise LookupError("a step can be computed once, after its parent")
        total = step.total.resolve()
        closing = Closing(work.seed, step.version.round, step.present, self._server_lr)
        applied = self._scheme.apply(step.parent.models, total, closing, tasks, train)
        if not all(np.isfinite(params).all() for params in applied.models.values()):
            raise NonFiniteModelError(f"the model after round {step.version.round}")
        step.finish(applied.models, applied.loss, Note(applied.groups, applied.left_out))

    def _train(
        self,
        pool: ThreadPoolExecutor,
        jobs: Sequence[TrainJob],
        epochs: int | None = None,
        n_batches: int | None = None,
    ) -> list[Update]:
        """Train jobs, those with equally many epochs together."""
        alike: dict[int, list[int]] = {}
        for place, job in enumerate(jobs):
            wanted = epochs if n_batches is None else self._settings.epochs_for(n_batches, job.n_samples)
            alike.setdefault(wanted or self._settings.epochs, []).append(place)
        updates: dict[int, Update] = {}
        for n_epochs, places in alike.items():
            settings = msgspec.structs.replace(self._settings, epochs=n_epochs)
            updates.update(zip(places, self._train_alike(pool, [jobs[i] for i in places], settings), strict=True))
        return [updates[place] for place in range(len(jobs))]

    def _train_alike(self, pool: ThreadPoolExecutor, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        if not isinstance(self._model, Autoencoder):
            return self._train_module(jobs, settings)
        groups = self._model.groups(jobs, settings) if self._n_threads > 1 else []
        if len(groups) <= 1:
            return self._model.train(jobs, settings)
        trained = pool.map(lambda group: self._model.train([jobs[i] for i in group], settings), groups)
        updates: dict[int, Update] = {}
        for group, of_group in zip(groups, trained, strict=True):
            updates.update(zip(group, of_group, strict=True))
        return [updates[index] for index in range(len(jobs))]

    def _train_module(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        try:
            return self._model.train(jobs, settings)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if isinstance(error, TolFLError):
                raise
            raise ModelError(str(error).splitlines()[0] if str(error) else repr(error)) from error


class _PooledScoring:
    """A model that scores samples on several threads: IFCA spends most of a round on it."""

    def __init__(self, model: Model, pool: ThreadPoolExecutor, n_threads: int) -> None:
        self._model, self._pool, self._n_threads = model, pool, n_threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def sample_losses(self, params: Vector, samples: Vector) -> Vector:
        """Return each sample's loss."""
        parts = np.array_split(samples, self._n_threads) if len(samples) >= _ROWS_WORTH_A_THREAD else [samples]
        if len(parts) == 1:
            return self._model.sample_losses(params, samples)
        return np.concatenate(list(self._pool.map(partial(self._model.sample_losses, params), parts)))


class _Queue:
    """Shares in the order in which they will be merged; asking for one trains it together with those after it."""

    def __init__(
        self,
        pairs: Sequence[tuple[Share, Task]],
        contribute: Callable[[Sequence[Task]], list[Contribution]],
        at_once: int,
    ) -> None:
        self._pairs, self._contribute, self._at_once = pairs, contribute, at_once
        self._place = {id(share): place for place, (share, _) in enumerate(pairs)}
        for share, _ in pairs:
            share.producer = self.produce

    def produce(self, share: Share) -> None:
        first = self._place[id(share)]
        chunk = self._pairs[first : first + self._at_once]
        for (follower, _), value in zip(chunk, self._contribute([task for _, task in chunk]), strict=True):
            follower.value = value

    def close(self) -> None:
        for share, _ in self._pairs:
            share.producer = share.value = None


def _tasks(work: Work) -> list[tuple[Share, Task]]:
    """Return the shares of a step with what it takes to compute them, in merge order."""
    step, data = work.step, work.data
    if step.total is None or step.parent is None or step.parent.models is None or step.version is None:
        return []
    models, round_index, bounds = step.parent.models, step.version.round, data.bounds
    return [
        (share, Task(work.seed, share.device, round_index, models, data.pool, *bounds[share.device : share.device + 2]))
        for share in step.total.shares()
    ]
