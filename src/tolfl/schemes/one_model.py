"""What the schemes with one model for everybody have in common."""

from __future__ import annotations

from collections.abc import Iterable

from tolfl.core.contribution import GLOBAL, Contribution, Vector
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology
from tolfl.models import Model
from tolfl.schemes.scheme import Models, Served


class OneModel:
    """One model that everybody trains."""

    hosts: tuple[int, ...] = ()

    def __init__(self, spec: RunSpec) -> None:
        """Take nothing from the specification: there is nothing to set."""

    def wiring(self, clusters: Topology) -> Topology:
        """Return the clusters themselves."""
        return clusters

    def protocol_policy(self, policy: str) -> str:
        """Return the policy itself."""
        return policy

    def models_up(self, round_index: int) -> int:  # noqa: ARG002
        """Return 1."""
        return 1

    def models_down(self, round_index: int) -> int:  # noqa: ARG002
        """Return 1."""
        return 1

    def start(self, model: Model, seed: int) -> Models:
        """Return one model, from the seed that everybody knows."""
        return {GLOBAL: model.initial(seed)}

    def serving(self, models: Models, devices: Iterable[int]) -> dict[str, Served]:
        """Return the one model."""
        return {GLOBAL: Served(models[GLOBAL], len(list(devices)))}


def loss_of(total: Contribution) -> float | None:
    """Return the mean loss of a round's training; None where nobody trained."""
    return total.loss if total.n_samples else None


def stepped(start: Vector, delta: Vector, server_lr: float) -> Vector:
    """Return `start - server_lr * delta`; with a step of 1, FedAvg's mean of models, to the last bit."""
    step: Vector = delta if server_lr == 1.0 else start.dtype.type(server_lr) * delta
    return start - step
