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

from tolfl.core.contribution import Contribution, Part, Vector
from tolfl.core.errors import SpecError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import RunSpec
from tolfl.learners.clustered import (
    NOBODYS,
    Clustered,
    Clusters,
    Labels,
    assigned,
    check_differ,
    clusters_of,
    device_key,
    group_means,
    k_means,
    local_updates,
    name_of,
)
from tolfl.learners.learner import Closing, State, Turn
from tolfl.learners.training import LocalTraining, Model

_DISTANCE = "distance-"


class FeSEM(Clustered):
    """Nearest centre, and the mean of those nearest to it."""

    def __init__(self, training: LocalTraining, spec: RunSpec) -> None:
        super().__init__(training, spec)
        self.settings = spec.fesem
        self.weight = self.settings.weight

    def start(self, state: State) -> State:
        """Return m times the model that everybody knows, or independent random centres."""
        model, clusters = self.training.model, self.blank()
        mask = _mask(self.settings.layers, model, clusters.centres[0])
        if self.settings.init == "random":
            seeds = rng_for(self.seed, Purpose.CLUSTERING, device=3).integers(2**62, size=self.m)
            centres = tuple(model.initial(int(of_centre)) for of_centre in seeds)
            check_differ(centres, "fesem.init = 'random'")
            clusters = Clusters(centres, clusters.members, clusters.is_hosted)
        return {**state, **clusters.to_state(), "measured": mask, "reseed": np.full(self.m, NOBODYS)}

    def phase(self, state: State) -> str:
        """Return `cold start` until k-means++ has found the centres."""
        is_cold = self.settings.init == "k-means++" and not Clusters.of(state).is_formed
        return "cold start" if is_cold else "centres"

    def contribute_in(self, phase: str, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return models of devices' own in the cold start, afterwards each with the centre it is nearest to."""
        return self._cold_start(turns) if phase == "cold start" else self._e_step(turns)

    def _cold_start(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return the models of devices that train alone from the same start, each under a key of its own."""
        initial = {seed: self.training.model.initial(seed) for seed in {turn.seed for turn in turns}}
        starts = [initial[turn.seed] for turn in turns]
        updates = self.training.updates(turns, starts, epochs=self.settings.pretrain_epochs)
        return [
            self.parts(turn, {device_key(turn.device): update.delta}, update.loss)
            for turn, update in zip(turns, updates, strict=True)
        ]

    def _e_step(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return each device's model under the key of the centre it is nearest to (the E-step)."""
        starts = {
            id(turn): self._start_of(turn, clusters)
            for turn, clusters in clusters_of(turns)
            if not self.is_out(clusters, turn.device)
        }
        updates = iter(self.training.updates([turn for turn in turns if id(turn) in starts], starts.values()))
        found: list[dict[str, Part]] = []
        for turn, clusters in clusters_of(turns):
            if id(turn) in starts:
                update = next(updates)
                report = self._report(turn, clusters, starts[id(turn)] - update.delta)
                found.append(self.parts(turn, report, update.loss))
            else:
                found.append({})
        return found

    def _start_of(self, turn: Turn, clusters: Clusters) -> Vector:
        own = int(clusters.members[turn.device])
        if own != NOBODYS and clusters.is_hosted[own]:
            return clusters.centres[own]
        if not clusters.is_formed:
            return self.training.model.initial(turn.seed)
        # A device that joins starts from the mean of the centres.
        mean: Vector = np.stack([clusters.centres[cluster] for cluster in clusters.hosted]).mean(axis=0)
        return mean

    def _report(self, turn: Turn, clusters: Clusters, local: Vector) -> State:
        asked = np.flatnonzero(turn.state["reseed"] == turn.device)
        distances = distances_to(local, clusters, turn.state["measured"])
        cluster = int(asked[0]) if len(asked) and clusters.is_hosted[asked[0]] else int(np.argmin(distances))
        distance = np.array([distances.min()])
        return {name_of(cluster): clusters.centres[cluster] - local, f"{_DISTANCE}{turn.device}": distance}

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Move the centres to the means of their devices (the M-step); find devices for centres that have none."""
        clusters, reseed = Clusters.of(state), np.full(self.m, NOBODYS)
        if self.phase(state) == "cold start":
            clusters = self._formed(clusters, total, closing, state["measured"])
        else:
            clusters = self.after_step(clusters, total, closing)
            reseed = self._seeds(clusters, total, closing)
        return {**state, **clusters.to_state(), "reseed": reseed}

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

    def _seeds(self, clusters: Clusters, total: Contribution, closing: Closing) -> Labels:
        """Return a device for every empty centre: the farthest from their own, none of them the only one there."""
        reseed = np.full(self.m, NOBODYS)
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
