"""What FedGroup, IFCA and FeSEM have in common: m models, each kept by a host, each device trains one of them.

Their authors have one server with all models, and if it died everything would stop. The paper's comparison lets one of
m cluster heads die instead: the model it keeps is lost, and so are the devices that train it (`strict`), or they join
another model (`rehome`). The host of model j is the head of cluster j of the layout: the same device that Tol-FL loses.
A host that comes back brings its model as it was.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tolfl.core.contribution import Contribution, Part, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import SpecError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import RunSpec
from tolfl.learners.layouts import hosts
from tolfl.learners.learner import Account, Closing, Learner, Scorer, State, Turn
from tolfl.learners.training import LocalTraining, TrainedModel

Labels = NDArray[np.int64]

#: A device that trains no model yet.
NOBODYS = -1
#: Models of devices' own, before there are groups, have keys that begin with this.
DEVICE_KEY = "device-"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Clusters:
    """The models of a round, whose each device trains, and which of them have a host. Also as a state, to travel."""

    centres: tuple[Vector, ...]
    members: Labels  #: by device; `NOBODYS`: none
    is_hosted: NDArray[np.bool_]  #: by model

    @classmethod
    def of(cls, state: State, prefix: str = "") -> Clusters:
        """Read clusters that travelled."""
        is_hosted = state["hosted"].astype(bool)
        centres = tuple(state[f"{prefix}{name_of(cluster)}"] for cluster in range(len(is_hosted)))
        return cls(centres, state[f"{prefix}members"], is_hosted)

    def to_state(self, prefix: str = "") -> State:
        """Return arrays that can travel, be kept and be read again."""
        centres = {f"{prefix}{name_of(cluster)}": centre for cluster, centre in enumerate(self.centres)}
        return {**centres, f"{prefix}members": self.members, "hosted": self.is_hosted.astype(np.int64)}

    @property
    def hosted(self) -> Labels:
        """The models that have a host."""
        return np.flatnonzero(self.is_hosted)

    @property
    def is_formed(self) -> bool:
        """Whether any device is in a group."""
        return bool((self.members != NOBODYS).any())

    def is_orphan(self, device: int) -> bool:
        """Return whether the model that a device trains is lost."""
        return bool(self.members[device] != NOBODYS and not self.is_hosted[self.members[device]])


class Clustered(Learner):
    """One model per cluster, hosts that may die, and the step inside each group."""

    weight = "samples"

    def __init__(self, training: LocalTraining, spec: RunSpec) -> None:
        self.training, self.rounds, self.seed, self.n_devices = training, spec.rounds, spec.seed, spec.devices
        self.is_thread_safe = training.is_thread_safe
        self.hosts = hosts(spec)
        self.rehomes = spec.on_head_failure == "rehome"
        self.keeps_lost_models = spec.lost_model == "frozen"

    @property
    def m(self) -> int:
        """How many models there are."""
        return len(self.hosts)

    def models_moved(self, round_index: int) -> tuple[int, int]:  # noqa: ARG002
        """Return how many models a device sends and gets: its own update, and the model of its group.

        Devices here see all models, but an authors' server would send one.
        """
        return 1, 1

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of the models that a device sends and gets."""
        n_bytes = self.training.n_bytes
        up, down = self.models_moved(round_index)
        return n_bytes * up, n_bytes * down

    @property
    def model_bytes(self) -> int:
        """How large one of the models is."""
        return self.training.n_bytes

    # -- a round ------------------------------------------------------------------------------------------------

    def blank(self) -> Clusters:
        """Return m times the untrained model, with nobody in any group."""
        centre = self.training.model.initial(self.seed)
        return Clusters((centre,) * self.m, np.full(self.n_devices, NOBODYS), np.ones(self.m, dtype=bool))

    def is_out(self, clusters: Clusters, device: int) -> bool:
        """Return whether a device has nothing to train: its model is lost and it stays with it, or all are lost."""
        return not clusters.is_hosted.any() or (clusters.is_orphan(device) and not self.rehomes)

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return what each device adds to its round; those of one phase are trained together.

        Turns of one call may be of different rounds: the sides of a cut are not equally fast.
        """
        phases: dict[tuple[int, str], list[int]] = {}
        for place, turn in enumerate(turns):
            phases.setdefault((turn.round, self.phase(turn.state)), []).append(place)
        found: dict[int, dict[str, Part]] = {}
        for (_, phase), places in phases.items():
            alike = self.contribute_in(phase, [turns[place] for place in places])
            found.update(zip(places, alike, strict=True))
        return [found[place] for place in range(len(turns))]

    @abstractmethod
    def phase(self, state: State) -> str:
        """Return what kind of round comes next, such as a cold start; devices in different ones do different work."""

    @abstractmethod
    def contribute_in(self, phase: str, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return what each device adds to its round; all are of the same round and phase."""

    def parts(
        self, turn: Turn, means: Mapping[str, Vector], loss: float = 0.0, losses: Mapping[str, float] | None = None
    ) -> dict[str, Part]:
        """Return what a device adds to its group; `losses` are those of single models, where they differ."""
        weight = 1 if self.weight == "equal" else None
        return {key: turn.mean(mean, (losses or {}).get(key, loss), weight) for key, mean in means.items()}

    def present_hosts(self, present: DeviceSet) -> NDArray[np.bool_]:
        """Return which models have a host."""
        return np.array([host in present for host in self.hosts])

    def after_step(self, clusters: Clusters, total: Contribution, closing: Closing, prefix: str = "") -> Clusters:
        """Return the clusters after a step inside every group whose host is there; an empty one keeps its model."""
        is_hosted = self.present_hosts(closing.present)
        centres, members = list(clusters.centres), clusters.members.copy()
        for cluster, centre in enumerate(clusters.centres):
            part = total.parts.get(f"{prefix}{name_of(cluster)}")
            if part is None:
                continue
            members[list(part.included)] = cluster
            if is_hosted[cluster]:
                centres[cluster] = self.training.stepped(centre, part.mean)
        return Clusters(tuple(centres), members, is_hosted)

    def prefix_of(self, before: State, total: Contribution) -> str:  # noqa: ARG002
        """Return what the keys begin with of the models that a round goes on with."""
        return ""

    def account(self, before: State, after: State, total: Contribution, round_index: int) -> Account:  # noqa: ARG002
        """Say who trained which model, whose training is in none, and the mean loss of the others."""
        prefix = self.prefix_of(before, total)
        old, clusters = Clusters.of(before, prefix), self.present(after)
        trained = DeviceSet.of(device for part in total.parts.values() for device in part.included)
        groups: dict[str, tuple[int, ...]] = {}
        for cluster in clusters.hosted:
            members = tuple(device for device in trained if clusters.members[device] == cluster)
            if members:
                groups[name_of(int(cluster))] = members
        # A model whose host has just returned is back for the next round; its devices were out of this one.
        is_out = {
            device: "orphaned"
            for device in total.included
            if clusters.is_orphan(device) or (device not in trained and old.is_orphan(device))
        }
        return Account(_mean_loss(clusters, total, prefix), groups, is_out)

    def present(self, state: State) -> Clusters:
        """Return the clusters of a state."""
        return Clusters.of(state)

    # -- what is left -------------------------------------------------------------------------------------------

    def results(self, state: State) -> dict[str, Scorer]:
        """Return the models whose host is there (with `frozen`, the others as they were), each with its users."""
        clusters = self.present(state)
        return {
            name_of(cluster): TrainedModel(
                self.training.model, centre, DeviceSet.of(np.flatnonzero(clusters.members == cluster).tolist())
            )
            for cluster, centre in enumerate(clusters.centres)
            if clusters.is_hosted[cluster] or self.keeps_lost_models
        }


def _mean_loss(clusters: Clusters, total: Contribution, prefix: str) -> float | None:
    """Return the mean loss of those whose training is in a model; in a cold start, of everybody."""
    keys = [f"{prefix}{name_of(int(cluster))}" for cluster in clusters.hosted]
    parts = [total.parts[key] for key in keys if key in total.parts]
    parts = parts or [part for key, part in total.parts.items() if key.startswith(DEVICE_KEY)]
    n_samples = sum(part.n_trained for part in parts)
    return sum(part.loss * part.n_trained for part in parts) / n_samples if n_samples else None


def name_of(cluster: int) -> str:
    """Return the key of a cluster's model."""
    return f"cluster-{cluster}"


def clusters_of(turns: Sequence[Turn], prefix: str = "") -> Iterator[tuple[Turn, Clusters]]:
    """Yield turns with the clusters they start from, which are read once where turns share their state."""
    known: dict[int, Clusters] = {}
    for turn in turns:
        if id(turn.state) not in known:
            known[id(turn.state)] = Clusters.of(turn.state, prefix)
        yield turn, known[id(turn.state)]


def check_differ(centres: Sequence[Vector], setting: str) -> None:
    """Raise an error where independent models are asked for and the module makes equal ones."""
    if len(centres) > 1 and all(np.array_equal(centres[0], centre) for centre in centres[1:]):
        raise SpecError(
            f"{setting}: this module starts with the same weights for every seed, so its models never differ"
        )


def clustering_seed(seed: int, trial: int = 0) -> int:
    """Return the seed of a clustering: scikit-learn takes 32 bits."""
    return int(rng_for(seed, Purpose.CLUSTERING, trial).integers(2**32))


def k_means(points: Vector, n_clusters: int, seed: int, max_iter: int = 300) -> Labels:
    """Return scikit-learn's k-means++ and Lloyd, numbered by lowest member; fewer where points coincide."""
    n_clusters = min(n_clusters, len(points))
    from sklearn.cluster import KMeans  # noqa: PLC0415  (slow, and seldom needed)
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  (as above)

    with one_thread(), catch_warnings():
        simplefilter("ignore", ConvergenceWarning)  # coinciding points leave clusters empty, which is in order
        fitted = KMeans(n_clusters, n_init=10, max_iter=max_iter, random_state=clustering_seed(seed)).fit(points)
    return in_order(fitted.labels_)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep scikit-learn to one thread: sums of several come out in an order that depends on the machine."""
    with threadpool_limits(limits=1):
        yield


def in_order(labels: NDArray[np.integer]) -> Labels:
    """Return the labels numbered by first member, so that one means the same however the groups were found.

    >>> in_order(np.array([2, 2, 0, 1, 0])).tolist()
    [0, 0, 1, 2, 1]
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def assigned(clusters: Clusters, devices: Sequence[int], labels: Labels) -> Clusters:
    """Return the clusters with devices put into groups; groups take the models that have a host, in order."""
    members = clusters.members.copy()
    members[list(devices)] = clusters.hosted[labels]
    return replace(clusters, members=members)


# -- a first round that must see every device's own model: one key per device -----------------------------------


def device_key(device: int) -> str:
    """Return the key under which a device reports a model of its own."""
    return f"{DEVICE_KEY}{device}"


def local_updates(total: Contribution) -> tuple[list[int], Vector]:
    """Return the devices that reported models of their own, and these, shape `(n_devices, n_params)`."""
    devices = sorted(int(key.removeprefix(DEVICE_KEY)) for key in total.parts if key.startswith(DEVICE_KEY))
    if not devices:
        return [], np.empty((0, 0))
    return devices, np.stack([total.parts[device_key(device)].mean for device in devices])


def group_means(rows: Vector, labels: Labels) -> list[Vector]:
    """Return the plain mean of each group's rows."""
    return [rows[labels == label].mean(axis=0) for label in range(int(labels.max()) + 1)]
