"""IFCA: every device tries all models and trains the one that fits its data best.

Ghosh, Chung, Yin, Ramchandran: "An Efficient Framework for Clustered Federated Learning", 2020. A good start decides:
of independent random models one usually wins for everybody. So, as the authors do for FEMNIST, the first rounds train
each model on one part of a random balanced partition, before the choice is free; of several such partitions the one
with the least training loss goes on (test data are never looked at).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import RunSpec
from tolfl.models import Model, TrainJob
from tolfl.schemes.clustered import NOBODYS, Clustered, Clusters, Labels, check_differ, clusters_of, in_order, name_of
from tolfl.schemes.scheme import Applied, Closing, Models, Served, Task, Train

#: The mean over samples of the least loss among a trial's models, one number per trial.
_TRIAL_LOSSES = "trial-losses"
_BEST_TRIAL = "best-trial"


class IFCA(Clustered):
    """Loss-based choice among m models."""

    name = family = "ifca"

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec)
        self.settings = spec.ifca
        self.weight = self.settings.weight
        self.is_warm = self.settings.init == "warm" and self.settings.warm_rounds > 0
        self.n_trials = self.settings.restarts if self.m > 1 else 1
        self.decides_in = min(self.settings.trial_rounds, self.rounds - 1)

    def models_up(self, round_index: int) -> int:
        """Return 1, or one per restart while these are compared."""
        return self.n_trials if round_index <= self.decides_in else 1

    def models_down(self, round_index: int) -> int:
        """Return all m, of every restart while these are compared: the device chooses."""
        return self.m * (self.n_trials if round_index < self.decides_in else 1)

    def start(self, model: Model, seed: int) -> Models:
        """Return the models of each restart: equal with a partition to warm up on, or independent."""
        models: Models = {_BEST_TRIAL: np.zeros(1)} if self.n_trials > 1 else {}
        for trial, prefix in enumerate(self._prefixes()):
            clusters = self.blank(model, seed)
            if self.is_warm:
                clusters = replace(clusters, members=self._partition(seed, trial))
            else:
                centres = tuple(model.initial(_seed_of(seed, trial, cluster)) for cluster in range(self.m))
                check_differ(centres, "ifca without a warm start")
                clusters = replace(clusters, centres=centres)
            models.update(clusters.to_models(prefix))
        return models

    def _prefixes(self) -> list[str]:
        return [f"trial-{trial}/" for trial in range(self.n_trials)] if self.n_trials > 1 else [""]

    def _partition(self, seed: int, trial: int) -> Labels:
        order = rng_for(seed, Purpose.CLUSTERING, trial, round_index=1).permutation(self.n_devices)
        return in_order(order * self.m // self.n_devices)

    def phase(self, models: Models) -> str:
        """Return `restarts` while several are compared."""
        return "restarts" if "trial-0/members" in models else "one start"

    def contribute_in(self, phase: str, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:
        """Return each device's update of the model it chose, in every restart that is still compared."""
        means: dict[int, Models] = {id(task): {} for task in tasks}
        losses: dict[int, dict[str, float]] = {id(task): {} for task in tasks}
        least: dict[int, list[float]] = {id(task): [] for task in tasks}
        for prefix in self._prefixes() if phase == "restarts" else [""]:
            jobs: list[TrainJob] = []
            keys: list[tuple[Task, str]] = []
            for task, clusters in clusters_of(tasks, prefix):
                if not task.n_samples:
                    continue
                of_models = self._losses(task, clusters, model)
                least[id(task)].append(float(of_models.min()))
                if self.is_out(clusters, task.device):
                    continue
                cluster = self._choice(task, clusters, of_models)
                jobs.append(task.job(clusters.centres[cluster]))
                keys.append((task, f"{prefix}{name_of(cluster)}"))
            for (task, key), update in zip(keys, train(jobs), strict=True):
                means[id(task)][key], losses[id(task)][key] = update.delta, update.loss
        for task in tasks:
            if phase == "restarts" and means[id(task)]:
                means[id(task)][_TRIAL_LOSSES] = np.array(least[id(task)])
        return [self.contribution(task, means[id(task)], losses=losses[id(task)]) for task in tasks]

    def _losses(self, task: Task, clusters: Clusters, model: Model) -> NDArray[np.float64]:
        """Return the mean loss of every model on a device's own samples, dropout off; infinite for a lost one."""
        losses = np.full(self.m, np.inf)
        for cluster in clusters.hosted:
            samples = task.samples.astype(clusters.centres[cluster].dtype, copy=False)
            losses[cluster] = np.mean(model.sample_losses(clusters.centres[cluster], samples), dtype=np.float64)
        return losses

    def _choice(self, task: Task, clusters: Clusters, losses: NDArray[np.float64]) -> int:
        own = int(clusters.members[task.device])
        is_warming_up = self.is_warm and task.round_index < self.settings.warm_rounds
        if is_warming_up and own != NOBODYS and clusters.is_hosted[own]:
            return own
        return choose(losses)

    def apply(
        self,
        models: Models,
        total: Contribution,
        closing: Closing,
        tasks: Sequence[Task],
        train: Train,  # noqa: ARG002
    ) -> Applied:
        """Step inside every group; when it is time, keep the restart whose models fitted the training data best."""
        prefixes = self._prefixes() if self.phase(models) == "restarts" else [""]
        stepped = [self.after_step(Clusters.of(models, prefix), total, closing, prefix) for prefix in prefixes]
        best = int(np.argmin(total.parts[_TRIAL_LOSSES].mean)) if _TRIAL_LOSSES in total.parts else 0
        applied = self.applied(stepped[best], total, tasks, {}, prefixes[best])
        if len(prefixes) == 1 or closing.round_index >= self.decides_in:
            return applied
        goes_on: Models = {_BEST_TRIAL: np.array([float(best)])}
        for prefix, clusters in zip(prefixes, stepped, strict=True):
            goes_on.update(clusters.to_models(prefix))
        return replace(applied, models=goes_on)

    def serving(self, models: Models, devices: Iterable[int]) -> dict[str, Served]:
        """Return the models whose host is there; of the best restart so far while several are compared."""
        if _BEST_TRIAL in models:
            models = Clusters.of(models, self._prefixes()[int(models[_BEST_TRIAL][0])]).to_models()
        return super().serving(models, devices)


def choose(losses: NDArray[np.float64]) -> int:
    """Return the model with the least loss; the first of several."""
    return int(np.argmin(losses))


def _seed_of(seed: int, trial: int, cluster: int) -> int:
    return int(rng_for(seed, Purpose.CLUSTERING, trial, round_index=2 + cluster).integers(2**62))
