"""FedGroup: devices whose first updates point the same way form a group, and keep to it.

Duan, Liu, Ji, Wu, Liang, Chen, Tan, Ren: "FedGroup: Efficient Federated Learning via Decomposed Similarity-Based
Clustering", 2021, and its extension FlexCFL (Duan et al., "Flexible Clustered Federated Learning for Client-Level Data
Distribution Shift", 2022), whose code the defaults follow. Its weighted mean is not followed: it drops all members
of a group but the first.

The first round is the cold start: devices pre-train the same model, the directions of their updates give the groups.
Who was not there (or was not drawn, in a large fleet) joins late: it pre-trains and joins the group whose direction
its own update is nearest to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tolfl.core.contribution import Contribution, Part, Vector
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import RunSpec
from tolfl.kernel import Update
from tolfl.learners.clustered import (
    NOBODYS,
    Clustered,
    Clusters,
    Floats,
    Labels,
    assigned,
    clustering_seed,
    clusters_of,
    device_key,
    group_means,
    in_order,
    k_means,
    local_updates,
    name_of,
    one_thread,
)
from tolfl.learners.learner import Account, Closing, State, Turn
from tolfl.learners.training import LocalTraining


class FedGroup(Clustered):
    """Static groups from the directions of the first updates."""

    def __init__(self, training: LocalTraining, spec: RunSpec) -> None:
        super().__init__(training, spec)
        self.settings = spec.fedgroup
        self.weight = self.settings.weight

    def start(self, state: State) -> State:
        """Return m times the model that everybody knows, and no direction yet."""
        clusters = self.blank()
        return {**state, **clusters.to_state(), **_named([np.zeros_like(centre) for centre in clusters.centres])}

    def phase(self, state: State) -> str:
        """Return `cold start` until there are groups."""
        return "groups" if Clusters.of(state).is_formed else "cold start"

    def contribute_in(self, phase: str, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return pre-trained updates in the cold start, afterwards each device's update of its group's model."""
        if phase == "cold start":
            return self._cold_start(turns)
        choice = self._groups(turns)
        training = [turn for turn in turns if choice[id(turn)] != NOBODYS]
        starts = [clusters.centres[choice[id(turn)]] for turn, clusters in clusters_of(training)]
        updates = dict(zip(map(id, training), self.training.updates(training, starts), strict=True))
        found: list[dict[str, Part]] = []
        for turn in turns:
            update = updates.get(id(turn))
            key = name_of(choice[id(turn)])
            found.append({} if update is None else self.parts(turn, {key: update.delta}, update.loss))
        return found

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Form the groups after the cold start; afterwards step inside each, and between them if that is asked for."""
        clusters = Clusters.of(state)
        if not clusters.is_formed:
            clusters, directions = self._formed(clusters, total, closing)
            return {**state, **clusters.to_state(), **_named(directions)}
        clusters = self.after_step(clusters, total, closing)
        if self.settings.inter_group_lr:
            clusters = self._between_groups(clusters)
        return {**state, **clusters.to_state()}

    def account(self, before: State, after: State, total: Contribution, round_index: int) -> Account:
        """Say who trained which model; after the cold start, who was not drawn for it."""
        account = super().account(before, after, total, round_index)
        if self.phase(before) != "cold start":
            return account
        waiting = set(total.included) - set(self._drawn(self.seed, round_index))
        return replace(account, left_out={**account.left_out, **dict.fromkeys(sorted(waiting), "waits for a group")})

    # -- the cold start -----------------------------------------------------------------------------------------

    def _drawn(self, seed: int, round_index: int) -> list[int]:
        """Return who forms the groups: everybody, but in a large fleet a sample; another if all of them fail."""
        n_drawn = min(self.settings.pretrain_scale * self.m, self.n_devices)
        order = rng_for(seed, Purpose.CLUSTERING, device=1, round_index=round_index).permutation(self.n_devices)
        return sorted(int(device) for device in order[:n_drawn])

    def _cold_start(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return the updates of devices that pre-train the same model, each under a key of its own."""
        drawn = {seed: set(self._drawn(seed, turns[0].round)) for seed in {turn.seed for turn in turns}}
        pretrained = self._pretrained([turn for turn in turns if turn.device in drawn[turn.seed]])
        found: list[dict[str, Part]] = []
        for turn in turns:
            update = pretrained.get(id(turn))
            found.append(
                {} if update is None else self.parts(turn, {device_key(turn.device): update.delta}, update.loss)
            )
        return found

    def _pretrained(self, turns: Sequence[Turn]) -> dict[int, Update]:
        """Return each turn's update from the model that everybody knows, after the same number of mini-batches."""
        initial = {seed: self.training.model.initial(seed) for seed in {turn.seed for turn in turns}}
        starts = [initial[turn.seed] for turn in turns]
        updates = self.training.updates(turns, starts, n_batches=self.settings.pretrain_iterations)
        return dict(zip(map(id, turns), updates, strict=True))

    def _formed(self, clusters: Clusters, total: Contribution, closing: Closing) -> tuple[Clusters, list[Vector]]:
        is_hosted = self.present_hosts(closing.present)
        clusters = Clusters(clusters.centres, clusters.members, is_hosted)
        devices, deltas = local_updates(total)
        directions = [np.zeros_like(centre) for centre in clusters.centres]
        if not devices or not is_hosted.any():
            return clusters, directions
        # An update is start minus trained; only its direction counts, and all have the same sign.
        labels = self.group(deltas, len(clusters.hosted), closing.seed)
        clusters = assigned(clusters, devices, labels)
        means = group_means(deltas, labels)
        centres = list(clusters.centres)
        overall = deltas.mean(axis=0)
        for place, cluster in enumerate(clusters.hosted):
            mean = means[place] if place < len(means) else None
            centres[cluster] = centres[cluster] - (overall if mean is None else mean)
            directions[cluster] = directions[cluster] if mean is None else mean
        return Clusters(tuple(centres), clusters.members, is_hosted), directions

    def group(self, updates: Vector, n_groups: int, seed: int) -> Labels:
        """Return a group for each update, rows of `(n_devices, n_params)`; only their directions count."""
        n_groups = min(n_groups, len(updates))
        if self.settings.measure == "madc":
            distances = madc(updates)
            if len(updates) == 1:
                return np.zeros(1, dtype=np.int64)
            from sklearn.cluster import AgglomerativeClustering  # noqa: PLC0415  (slow, and seldom needed)

            fitted = AgglomerativeClustering(n_groups, metric="precomputed", linkage="complete").fit(distances)
            return in_order(fitted.labels_)
        features = cosine_features(updates, n_groups, seed)
        return k_means(features, n_groups, seed, self.settings.kmeans_iterations)

    # -- devices without a group ---------------------------------------------------------------------------------------

    def _groups(self, turns: Sequence[Turn]) -> dict[int, int]:
        """Return the group of each turn, by its id: its own, the nearest where it has none, none for who is out."""
        unassigned: list[tuple[Turn, Clusters]] = []
        known: dict[int, int] = {}
        for turn, clusters in clusters_of(turns):
            if self.is_out(clusters, turn.device):
                known[id(turn)] = NOBODYS
            elif clusters.members[turn.device] == NOBODYS or clusters.is_orphan(turn.device):
                unassigned.append((turn, clusters))
            else:
                known[id(turn)] = int(clusters.members[turn.device])
        updates = self._pretrained([turn for turn, _ in unassigned])
        for turn, clusters in unassigned:
            distances = dissimilarities(updates[id(turn)].delta, _directions(turn.state, self.m))
            known[id(turn)] = int(clusters.hosted[np.argmin(distances[clusters.hosted])])
        return known

    def _between_groups(self, clusters: Clusters) -> Clusters:
        """Move every model a little towards the others, each counted by its direction alone (FlexCFL)."""
        rate, centres = self.settings.inter_group_lr, list(clusters.centres)
        norms = {int(cluster): float(np.linalg.norm(clusters.centres[cluster])) for cluster in clusters.hosted}
        for cluster in norms:
            others = [other for other in norms if other != cluster and norms[other] > 0]
            pull = sum(clusters.centres[other].astype(np.float64) / norms[other] for other in others)
            scale = 1 + rate * sum(1 / norms[other] for other in others)
            moved = (clusters.centres[cluster] + rate * pull) / scale
            centres[cluster] = moved.astype(clusters.centres[cluster].dtype)
        return Clusters(tuple(centres), clusters.members, clusters.is_hosted)


def cosine_features(updates: Vector, n_directions: int, seed: int) -> Floats:
    """Return the cosines of each update to the leading singular directions, shape `(n_devices, n_directions)`.

    The Euclidean distance of two rows, divided by `n_directions`, is the paper's EDC.
    """
    rows = updates.astype(np.float64)
    if rows.shape[1] == 1:  # one parameter has one direction, and scikit-learn wants two
        return cosines(rows, np.ones((1, 1)))
    n_directions = min(n_directions, *rows.shape)
    # Rows that are all equal have no variance to explain, which scikit-learn divides by; nobody asks for it here.
    with one_thread(), np.errstate(divide="ignore", invalid="ignore"):
        from sklearn.decomposition import TruncatedSVD  # noqa: PLC0415  (slow, and seldom needed)

        svd = TruncatedSVD(n_directions, random_state=clustering_seed(seed, trial=2)).fit(rows)
    return cosines(rows, svd.components_)


def madc(updates: Vector) -> Floats:
    """Return the mean difference of the cosines that two updates have with all others: the paper's MADC."""
    cosine = cosines(updates, updates)
    n = len(cosine)
    distances = np.zeros((n, n))
    for a in range(n):
        for b in range(a):
            others = [z for z in range(n) if z not in (a, b)]
            gap = np.abs(cosine[a, others] - cosine[b, others]).mean() if others else 1 - cosine[a, b]
            distances[a, b] = distances[b, a] = gap
    return distances


def dissimilarities(update: Vector, directions: Sequence[Vector]) -> Floats:
    """Return (1 - cos) / 2 of an update to each direction: 0 is the same way, 1 the opposite."""
    distances: Floats = (1 - cosines(update[None], np.stack(list(directions)))[0]) / 2
    return distances


def cosines(rows: Vector, others: Vector) -> Floats:
    """Return the cosine of each row with each other row; a zero vector is at a right angle to everything."""
    unit, units = _unit(rows), _unit(others)
    product: Floats = unit @ units.T
    return product


def _unit(rows: Vector) -> Floats:
    doubles = rows.astype(np.float64)
    norms = np.linalg.norm(doubles, axis=1, keepdims=True)
    unit: Floats = np.divide(doubles, norms, out=np.zeros_like(doubles), where=norms > 0)
    return unit


def _named(directions: Sequence[Vector]) -> State:
    return {f"direction-{group}": direction for group, direction in enumerate(directions)}


def _directions(state: State, m: int) -> list[Vector]:
    return [state[f"direction-{group}"] for group in range(m)]
