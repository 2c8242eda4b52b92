"""Tol-FL, FL and SBT: sample-weighted averaging along a star, a chain, or a chain of stars.

Katzef, Cullen, Alpcan, Leckie, Kopacz: "Failure-tolerant Distributed Learning for Anomaly Detection in Wireless
Networks" (Algorithms 1 and 2); FL: McMahan et al., "Communication-Efficient Learning of Deep Networks from
Decentralized Data", 2017. The three differ in their layout alone: k = 1 is FL, k = N is SBT, and without failures
the layout does not change the model.
"""

from __future__ import annotations

from collections.abc import Sequence

from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.models import Model
from tolfl.schemes.one_model import OneModel, loss_of, stepped
from tolfl.schemes.scheme import Applied, Closing, Models, Task, Train


class TolFL(OneModel):
    """FedAvg inside clusters, a running mean from head to head."""

    name = "tol-fl"
    family = "averaging"
    policies = ("elect", "drop", "isolate", "freeze")
    compared_policies: tuple[str, ...] = ("elect", "drop")
    moves_models = True

    def n_clusters(self, asked: int, n_devices: int) -> int:  # noqa: ARG002  (SBT's depends on it)
        """Return the number asked for."""
        return asked

    def batch_size(self, asked: int, n_devices: int) -> int:  # noqa: ARG002  (batch training's depends on it)
        """Return the devices' own."""
        return asked

    def contribute(self, tasks: Sequence[Task], model: Model, train: Train) -> list[Contribution]:  # noqa: ARG002
        """Return each device's delta: the start minus its trained parameters.

        With server step 1 this is FedAvg's average of models; for one full-batch epoch it is the gradient of
        Algorithm 2 times the step size. A device without samples has nothing to say.
        """
        with_samples = [task for task in tasks if task.n_samples]
        updates = iter(train([task.job(task.models[GLOBAL]) for task in with_samples]))
        contributions = []
        for task in tasks:
            if task.n_samples:
                update = next(updates)
                means = {GLOBAL: update.delta}
                contributions.append(Contribution.of_device(task.device, task.n_samples, means, update.loss))
            else:
                contributions.append(Contribution.of_device(task.device, 0, {}))
        return contributions

    def apply(
        self,
        models: Models,
        total: Contribution,
        closing: Closing,
        tasks: Sequence[Task],  # noqa: ARG002  (for schemes that train when the round closes)
        train: Train,  # noqa: ARG002
    ) -> Applied:
        """Return theta_{t+1} = theta_t - server_lr * mean delta; without a sample nothing changes."""
        if GLOBAL not in total.parts:
            return Applied(models, loss_of(total))
        start, delta = models[GLOBAL], total.parts[GLOBAL].mean
        return Applied({GLOBAL: stepped(start, delta, closing.server_lr)}, loss_of(total))


class FL(TolFL):
    """Federated averaging with a member as the server: one cluster."""

    name = "fl"
    policies = ("isolate", "freeze", "elect", "drop")
    compared_policies = ("isolate", "freeze")

    def n_clusters(self, asked: int, n_devices: int) -> int:  # noqa: ARG002
        """Return 1."""
        return 1


class SBT(TolFL):
    """Super-batch training: every device a head. Nobody moves the model until the whole chain is done."""

    name = "sbt"
    compared_policies = ("elect",)

    def n_clusters(self, asked: int, n_devices: int) -> int:  # noqa: ARG002
        """Return one cluster per device."""
        return n_devices
