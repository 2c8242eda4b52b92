"""FeSEM: centres in the space of models, each device trains from the centre nearest to its own model.

Xie, Long, Shen, Zhou, Wang, Jiang, Zhang: "Multi-Center Federated Learning", 2021. The objective is the sum over
devices of the squared distance of a device's model to its centre; a round assigns devices to centres (E-step), moves
centres to the mean of their devices (M-step), and trains from there. Devices that all start from one model are all
nearest to the same random centre, and the method is federated averaging ever after; so here devices train alone for a
few epochs first, and k-means++ finds the centres (`init = "random"` keeps the authors' way). A centre without a device
is put where the device is that is farthest from its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution, Vector
from tolfl.core.errors import SpecError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import RunSpec
from tolfl.models import Model
from tolfl.schemes.clustered import NOBODYS, Clustered, Clusters, assigned, check_differ, clusters_of, k_means, name_of
from tolfl.schemes.cold_start import device_key, group_means, local_updates
from tolfl.schemes.scheme import Applied, Closing, Models, Task, Train

_DISTANCE = "distance-"


class FeSEM(Clustered):
    """Nearest centre, and the mean of those nearest to it."""

    name = family = "fesem"

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(spec)
        self.settings = spec.fesem
        self.weight = self.settings.weight

    def start(self, model: Model, seed: int) -> Models:
        """Return m times the model that everybody knows, or independent random centres."""
        clusters = self.blank(model, seed)
        mask = _mask(self.settings.layers, model, clusters.centres[0])
        if self.settings.init == "random":
            seeds = rng_for(seed, Purpose.CLUSTERING, device=3).integers(2**62, size=self.m)
            centres = tuple(model.initial(int(of_centre)) for of_centre in seeds)
            check_differ(centres, "fesem.init = 'random'")
            clusters = Clusters(centres, clusters.members, clusters.is_hosted)
        return {**clusters.to_models(), "measured": mask, "reseed": np.full(self.m, float(NOBODYS))}

    def phase(self, models: Models) -> str:
        """Return `cold start` until k-means++ has found the centres."""
        is_cold = self.settings.init == "k-means++" and not Clusters.of(models).is_formed
        return "cold start" if is_cold else "centres"

    def contribute_in(self, phase: str, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:
        """Return models of devices' own in the cold start, afterwards each with the centre it is nearest to."""
        step = self._cold_start if phase == "cold start" else self._e_step
        return step(tasks, model, train)

    def _cold_start(self, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:
        """Return the models of devices that train alone from the same start, each under a key of its own."""
        with_samples = [task for task in tasks if task.n_samples]
        initial = {seed: model.initial(seed) for seed in {task.seed for task in with_samples}}
        updates = iter(train([task.job(initial[task.seed]) for task in with_samples], self.settings.pretrain_epochs))
        contributions = []
        for task in tasks:
            update = next(updates) if task.n_samples else None
            means = {} if update is None else {device_key(task.device): update.delta}
            contributions.append(self.contribution(task, means, 0.0 if update is None else update.loss))
        return contributions

    def _e_step(self, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:
        """Return each device's model under the key of the centre it is nearest to (the E-step)."""
        starts = {
            id(task): self._start(task, clusters, model)
            for task, clusters in clusters_of(tasks)
            if task.n_samples and not self.is_out(clusters, task.device)
        }
        updates = iter(train([task.job(starts[id(task)]) for task in tasks if id(task) in starts]))
        contributions = []
        for task, clusters in clusters_of(tasks):
            if id(task) in starts:
                update = next(updates)
                report = self._report(task, clusters, starts[id(task)] - update.delta)
                contributions.append(self.contribution(task, report, update.loss))
            else:
                contributions.append(self.contribution(task, {}))
        return contributions

    def _start(self, task: Task, clusters: Clusters, model: Model) -> Vector:
        own = int(clusters.members[task.device])
        if own != NOBODYS and clusters.is_hosted[own]:
            return clusters.centres[own]
        if not clusters.is_formed:
            return model.initial(task.seed)
        # A newcomer starts from the mean of the centres.
        mean: Vector = np.stack([clusters.centres[cluster] for cluster in clusters.hosted]).mean(axis=0)
        return mean

    def _report(self, task: Task, clusters: Clusters, local: Vector) -> Models:
        asked = np.flatnonzero(task.models["reseed"] == task.device)
        distances = distances_to(local, clusters, task.models["measured"])
        cluster = int(asked[0]) if len(asked) and clusters.is_hosted[asked[0]] else int(np.argmin(distances))
        distance = np.array([distances.min()])
        return {name_of(cluster): clusters.centres[cluster] - local, f"{_DISTANCE}{task.device}": distance}

    def apply(
        self,
        models: Models,
        total: Contribution,
        closing: Closing,
        tasks: Sequence[Task],
        train: Train,  # noqa: ARG002
    ) -> Applied:
        """Move the centres to the means of their devices (the M-step); find devices for centres that have none."""
        clusters, reseed = Clusters.of(models), np.full(self.m, float(NOBODYS))
        if self.phase(models) == "cold start":
            clusters = self._formed(clusters, total, closing, models["measured"])
        else:
            clusters = self.after_step(clusters, total, closing)
            reseed = self._seeds(clusters, total, closing)
        return self.applied(clusters, total, tasks, {"measured": models["measured"], "reseed": reseed})

    def _formed(self, clusters: Clusters, total: Contribution, closing: Closing, measured: Vector) -> Clusters:
        clusters = Clusters(clusters.centres, clusters.members, self.present_hosts(closing.present))
        devices, deltas = local_updates(total)
        if not devices or not clusters.is_hosted.any():
            return clusters
        labels = k_means(deltas[:, measured > 0], len(clusters.hosted), closing.seed)
        clusters = assigned(clusters, devices, labels)
        centres = list(clusters.centres)
        for cluster, mean in zip(clusters.hosted, group_means(deltas, labels), strict=False):
            centres[cluster] = centres[cluster] - mean
        return Clusters(tuple(centres), clusters.members, clusters.is_hosted)

    def _seeds(self, clusters: Clusters, total: Contribution, closing: Closing) -> Vector:
        """Return a device for every empty centre: the farthest from their own, none of them the only one there."""
        reseed = np.full(self.m, float(NOBODYS))
        # Devices that did not report count too: their host may be back for the next round.
        theirs = clusters.members[list(closing.present)]
        sizes = np.bincount(theirs[theirs != NOBODYS], minlength=self.m)
        reported = [device for device in closing.present if f"{_DISTANCE}{device}" in total.parts]
        far = {device: float(total.parts[f"{_DISTANCE}{device}"].mean[0]) for device in reported}
        farthest = sorted(reported, key=lambda device: (-far[device], device))
        for cluster in clusters.hosted:
            if sizes[cluster]:
                continue
            for device in farthest:
                if sizes[clusters.members[device]] > 1 and device not in reseed:
                    reseed[cluster] = device
                    sizes[clusters.members[device]] -= 1
                    break
        return reseed


def distances_to(local: Vector, clusters: Clusters, measured: Vector) -> NDArray[np.float64]:
    """Return the squared distance of a device's model to every centre on the measured layers; a lost one is far."""
    distances = np.full(len(clusters.centres), np.inf)
    is_measured = measured > 0
    for cluster in clusters.hosted:
        gap = (local - clusters.centres[cluster])[is_measured].astype(np.float64)
        distances[cluster] = np.square(gap, out=gap).sum()
    return distances


def _mask(layers: Sequence[str], model: Model, params: Vector) -> Vector:
    """Return 1 for every parameter whose name starts with one of `layers`, else 0."""
    if not layers:
        return np.ones_like(params)
    mask = np.zeros_like(params)
    named = model.tensors(mask)
    for layer in layers:
        views = [view for name, view in named.items() if name.startswith(layer)]
        if not views:
            raise SpecError(f"fesem layers: no parameter starts with {layer!r}; there are {', '.join(named)}")
        for view in views:
            view[...] = 1
    return mask
