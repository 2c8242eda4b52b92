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
from tolfl.schemes.clustered import NOBODYS, Clustered, Clusters, assigned, clusters_of, k_means, name_of, trained
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
            clusters = Clusters(tuple(model.initial(int(s)) for s in seeds), clusters.members, clusters.is_hosted)
        return {**clusters.to_models(), "measured": mask, "reseed": np.full(self.m, float(NOBODYS))}

    def _is_cold_start(self, round_index: int) -> bool:
        return round_index == 0 and self.settings.init == "k-means++"

    def contribute(self, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:
        """Return each device's model under the key of the centre it is nearest to (the E-step)."""
        starts = [
            (task, self._start(task, clusters, model))
            for task, clusters in clusters_of(tasks)
            if task.n_samples and not self.is_out(clusters, task.device)
        ]
        if tasks and self._is_cold_start(tasks[0].round_index):
            updates = train([task.job(start) for task, start in starts], self.settings.pretrain_epochs)
        else:
            updates = trained(starts, train)
        local = {id(task): start - update.delta for (task, start), update in zip(starts, updates, strict=True)}
        losses = {id(task): update.loss for (task, _), update in zip(starts, updates, strict=True)}
        return [
            self.contribution(task, self._report(task, clusters, local.get(id(task))), losses.get(id(task), 0.0))
            for task, clusters in clusters_of(tasks)
        ]

    def _start(self, task: Task, clusters: Clusters, model: Model) -> Vector:
        own = int(clusters.members[task.device])
        if own != NOBODYS and clusters.is_hosted[own]:
            return clusters.centres[own]
        if task.round_index == 0:
            return model.initial(task.seed)
        # A newcomer starts from the mean of the centres.
        mean: Vector = np.stack([clusters.centres[cluster] for cluster in clusters.hosted]).mean(axis=0)
        return mean

    def _report(self, task: Task, clusters: Clusters, local: Vector | None) -> Models:
        if local is None:
            return {}
        if self._is_cold_start(task.round_index):
            return {device_key(task.device): clusters.centres[0] - local}
        asked = np.flatnonzero(task.models["reseed"] == task.device)
        distances = distances_to(local, clusters, task.models["measured"])
        cluster = int(asked[0]) if len(asked) and clusters.is_hosted[asked[0]] else int(np.argmin(distances))
        distance = np.array([distances[int(np.argmin(distances))]])
        return {name_of(cluster): clusters.centres[cluster] - local, f"{_DISTANCE}{task.device}": distance}

    def apply(
        self,
        models: Models,
        total: Contribution,
        closing: Closing,
        tasks: Sequence[Task],  # noqa: ARG002
        train: Train,  # noqa: ARG002
    ) -> Applied:
        """Move the centres to the means of their devices (the M-step); find devices for centres that have none."""
        clusters, reseed = Clusters.of(models), np.full(self.m, float(NOBODYS))
        if self._is_cold_start(closing.round_index):
            clusters = self._formed(clusters, total, closing, models["measured"])
        else:
            clusters = self.after_step(clusters, total, closing)
            reseed = self._seeds(clusters, total)
        return self.applied(clusters, total, {"measured": models["measured"], "reseed": reseed})

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

    def _seeds(self, clusters: Clusters, total: Contribution) -> Vector:
        """Return a device for every empty centre: the farthest from their own, none of them the only one there."""
        reseed = np.full(self.m, float(NOBODYS))
        present = [device for device in total.included if f"{_DISTANCE}{device}" in total.parts]
        sizes = np.bincount(clusters.members[present], minlength=self.m) if present else np.zeros(self.m, dtype=int)
        far = {device: float(total.parts[f"{_DISTANCE}{device}"].mean[0]) for device in present}
        farthest = sorted(present, key=lambda device: (-far[device], device))
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
