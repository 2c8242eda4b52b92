"""Batch training: one machine that has the data of all devices; the yardstick of the paper's comparisons.

With the devices' own batch size it would take N times more updates per round and look better for that reason alone,
so its batches are N times larger. The devices of a run stand for their data here: a client that fails takes its data
out of the training set, and with the server (the machine itself) training stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.models import Model, TrainJob
from tolfl.schemes.one_model import OneModel, stepped
from tolfl.schemes.scheme import Applied, Closing, Models, Task, Train


class Batch(OneModel):
    """All data in one place."""

    name = "batch"
    family = "batch"
    policies = ("freeze", "elect", "drop", "isolate")
    compared_policies = ("freeze",)
    moves_models = False

    def n_clusters(self, asked: int, n_devices: int) -> int:  # noqa: ARG002
        """Return 1: the machine and its data."""
        return 1

    def batch_size(self, asked: int, n_devices: int) -> int:
        """Return N times the devices' own, so that a round has as many updates as theirs."""
        return asked * n_devices

    def contribute(self, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:  # noqa: ARG002
        """Return who has how many samples: training is done when the round closes."""
        return [Contribution.of_device(task.device, task.n_samples, {}) for task in tasks]

    def apply(
        self,
        models: Models,
        total: Contribution,  # noqa: ARG002  (only says whose data is there)
        closing: Closing,
        tasks: Sequence[Task],
        train: Train,
    ) -> Applied:
        """Return the model after local training on the samples of all devices that are left."""
        tasks = [task for task in tasks if task.n_samples]
        if not tasks:
            return Applied(models, None)
        update = train([_together(tasks, models)])[0]
        return Applied({GLOBAL: stepped(models[GLOBAL], update.delta, closing.server_lr)}, update.loss)


class BatchOfDeviceSize(Batch):
    """All data in one place, in batches as small as a device's: N times more updates in a round."""

    name = family = "batch-small"

    def batch_size(self, asked: int, n_devices: int) -> int:  # noqa: ARG002
        """Return the devices' own."""
        return asked


def _together(tasks: Sequence[Task], models: Models) -> TrainJob:
    first = tasks[0]
    adjoining = all(a.last == b.first and a.pool is b.pool for a, b in pairwise(tasks))
    if adjoining:
        pool, start, stop = first.pool, first.first, tasks[-1].last
    else:
        pool = np.concatenate([task.pool[task.first : task.last] for task in tasks])
        start, stop = 0, len(pool)
    return TrainJob(first.seed, first.device, first.round_index, models[GLOBAL], pool, start, stop)
