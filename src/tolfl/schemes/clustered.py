"""What FedGroup, IFCA and FeSEM have in common: m models, each kept by a host, each device trains one of them.

Their authors have one server with all models, and if it died everything would stop. The paper's comparison lets one of
m cluster heads die instead: the model it keeps is lost, and so are the devices that train it (`strict`), or they join
another model (`rehome`). The host of model j is the head of cluster j of the layout: the same device that Tol-FL loses.
A host that comes back brings its model as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from tolfl.core.topology import Topology, asked_layout
from tolfl.models import Model
from tolfl.schemes.one_model import stepped
from tolfl.schemes.scheme import Applied, Closing, Models, Served, Task, Train

Labels = NDArray[np.int64]

#: A device that trains no model yet.
NOBODYS = -1
#: Models of devices' own, before there are groups, have keys that begin with this.
DEVICE_KEY = "device-"


@dataclass(frozen=True)
class Clusters:
    """The models of a round, whose each device trains, and which of them have a host. Also as `Models`, to travel."""

    centres: tuple[Vector, ...]
    members: Labels  #: by device; `NOBODYS`: none
    is_hosted: NDArray[np.bool_]  #: by model

    @classmethod
    def of(cls, models: Models, prefix: str = "") -> Clusters:
        """Read clusters that travelled."""
        is_hosted = models["hosted"].astype(bool)
        centres = tuple(models[f"{prefix}{name_of(cluster)}"] for cluster in range(len(is_hosted)))
        return cls(centres, models[f"{prefix}members"].astype(np.int64), is_hosted)

    def to_models(self, prefix: str = "") -> Models:
        """Return arrays that can travel, be kept and be read again."""
        centres = {f"{prefix}{name_of(cluster)}": centre for cluster, centre in enumerate(self.centres)}
        members = self.members.astype(np.float64)
        return {**centres, f"{prefix}members": members, "hosted": self.is_hosted.astype(np.float64)}

    @property
    def hosted(self) -> Labels:
        """The models that have a host."""
        return np.flatnonzero(self.is_hosted)

    @property
    def is_formed(self) -> bool:
        """Whether any device is in a group."""
        return bool((self.members != NOBODYS).any())

    def is_orphan(self, device: int) -> bool:
        """Tell whether the model that a device trains is lost."""
        return bool(self.members[device] != NOBODYS and not self.is_hosted[self.members[device]])


class Clustered:
    """One model per cluster, hosts that may die, and the step inside each group."""

    policies = compared_policies = ("strict", "rehome")
    moves_models = True
    weight = "samples"

    def __init__(self, spec: RunSpec) -> None:
        self.n_devices, self.rounds = spec.devices, spec.rounds
        self.hosts = tuple(cluster[0] for cluster in asked_layout(spec).clusters)
        self.rehomes = spec.on_head_failure == "rehome"
        self.keeps_lost_models = spec.lost_model == "frozen"

    @property
    def m(self) -> int:
        """How many models there are."""
        return len(self.hosts)

    def n_clusters(self, asked: int, n_devices: int) -> int:  # noqa: ARG002
        """Return the number asked for."""
        return asked

    def wiring(self, clusters: Topology) -> Topology:
        """Return a star: the authors have one server, here a device that another can replace."""
        return Topology((tuple(device for cluster in clusters.clusters for device in cluster),))

    def protocol_policy(self, policy: str) -> str:  # noqa: ARG002
        """Return `elect`: what is lost with a host is the scheme's affair, the round goes on."""
        return "elect"

    def batch_size(self, asked: int, n_devices: int) -> int:  # noqa: ARG002
        """Return the devices' own."""
        return asked

    def models_up(self, round_index: int) -> int:  # noqa: ARG002
        """Return 1: the device's own update."""
        return 1

    def models_down(self, round_index: int) -> int:  # noqa: ARG002
        """Return 1: the model of the device's group. Devices here see all, but an authors' server would send one."""
        return 1

    # -- a round ------------------------------------------------------------------------------------------------

    def blank(self, model: Model, seed: int) -> Clusters:
        """Return m times the untrained model, with nobody in any group."""
        centre = model.initial(seed)
        return Clusters((centre,) * self.m, np.full(self.n_devices, NOBODYS), np.ones(self.m, dtype=bool))

    def is_out(self, clusters: Clusters, device: int) -> bool:
        """Tell whether a device has nothing to train: its model is lost and it stays with it, or all are lost."""
        return not clusters.is_hosted.any() or (clusters.is_orphan(device) and not self.rehomes)

    def contribute(self, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:
        """Return what each task contributes to its round; those of one phase are trained together.

        Tasks of one call may be of different rounds: the sides of a cut are not equally fast.
        """
        phases: dict[tuple[int, str], list[Task]] = {}
        for task in tasks:
            phases.setdefault((task.round_index, self.phase(task.models)), []).append(task)
        found: dict[int, Contribution] = {}
        for (_, phase), alike in phases.items():
            contributions = self.contribute_in(phase, alike, model, train)
            found.update(zip(map(id, alike), contributions, strict=True))
        return [found[id(task)] for task in tasks]

    def phase(self, models: Models) -> str:
        """Return what kind of round comes next, such as a cold start; devices in different ones do different work."""
        raise NotImplementedError

    def contribute_in(self, phase: str, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:
        """Return what each task contributes to its round; all are of the same round and phase."""
        raise NotImplementedError

    def contribution(
        self, task: Task, means: Models, loss: float = 0.0, losses: Mapping[str, float] | None = None
    ) -> Contribution:
        """Return what a device adds to its group; nothing, where it trained nothing."""
        n_samples = task.n_samples if means else 0
        weight = 1 if self.weight == "equal" else None
        parts = {
            key: Part.mean_of(task.device, n_samples, mean, (losses or {}).get(key, loss), weight)
            for key, mean in means.items()
        }
        return Contribution(DeviceSet.of([task.device]), n_samples, parts)

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
                centres[cluster] = stepped(centre, part.mean, closing.server_lr)
        return Clusters(tuple(centres), members, is_hosted)

    def applied(
        self, clusters: Clusters, total: Contribution, tasks: Sequence[Task], extra: Models, prefix: str = ""
    ) -> Applied:
        """Return what a round led to, and say who trained which model and who is out."""
        trained = DeviceSet.of(device for part in total.parts.values() for device in part.included)
        has_samples = DeviceSet.of(task.device for task in tasks if task.n_samples)
        groups: dict[str, tuple[int, ...]] = {}
        for cluster in clusters.hosted:
            members = tuple(device for device in trained if clusters.members[device] == cluster)
            if members:
                groups[name_of(int(cluster))] = members
        # A model whose host has just returned is back for the next round; its devices were out of this one.
        is_out = {
            device: "orphaned"
            for device in total.included
            if clusters.is_orphan(device)
            or (device in has_samples and device not in trained and clusters.members[device] != NOBODYS)
        }
        return Applied({**clusters.to_models(), **extra}, _mean_loss(clusters, total, prefix), groups, is_out)

    # -- what is left -------------------------------------------------------------------------------------------

    def serving(self, models: Models, devices: Iterable[int]) -> dict[str, Served]:
        """Return the models whose host is there (with `frozen`, the others as they were) and how many use each."""
        clusters = Clusters.of(models)
        users = clusters.members[list(devices)]
        return {
            name_of(cluster): Served(centre, int((users == cluster).sum()))
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


def clusters_of(tasks: Sequence[Task], prefix: str = "") -> Iterator[tuple[Task, Clusters]]:
    """Yield tasks with the clusters they start from, which are read once where tasks share their models."""
    known: dict[int, Clusters] = {}
    for task in tasks:
        if id(task.models) not in known:
            known[id(task.models)] = Clusters.of(task.models, prefix)
        yield task, known[id(task.models)]


def check_differ(centres: Sequence[Vector], setting: str) -> None:
    """Raise an error where independent models are asked for and the module makes equal ones."""
    if len(centres) > 1 and all(np.array_equal(centres[0], centre) for centre in centres[1:]):
        raise SpecError(f"{setting}: this module starts the same for every seed, and equal models never part")


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
