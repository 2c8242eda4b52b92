"""The loss of every closed round: of its model, dropout off, over all typical training samples of all devices.

The loss in a run's records is measured while devices train, with dropout on, and by each device on its own samples
alone. To compare schemes it must be the same samples for all of them, the dead device's included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tolfl.core.records import RoundClosed
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.learners import Scorer
from tolfl.learners.registry import learner_of
from tolfl.learners.training import Model
from tolfl.runs.checkpoint import Checkpoint
from tolfl.runs.outcome import fleet_of
from tolfl.sim.simulation import Runs, Simulation


@dataclass(frozen=True)
class ClosedLoss:
    """A closed round: when, by whom, and what its model is worth."""

    round: int  #: from 0
    device: int
    time_s: float
    loss: float


@dataclass(frozen=True)
class Known:
    """The first rounds of runs, one entry per seed: to go on from, or to play again in another layout."""

    checkpoints: list[Checkpoint]
    losses: list[list[float]]  #: by closed round


class LossRuns:
    """Repetitions of a specification with one model for all, and the loss of each closed round.

    >>> runs = LossRuns(RunSpec(scheme="fl", data="blobs", devices=4, rounds=2))
    >>> list(runs), [closed.round for closed in runs.closed[0]]
    ([1, 2], [0, 1])
    """

    def __init__(
        self,
        spec: RunSpec,
        data: FederatedDataset | Sequence[FederatedDataset] | None = None,
        model: Model | None = None,
        known: Known | None = None,
    ) -> None:
        self._runs = Runs(spec, data, model, known=None if known is None else known.checkpoints)
        before = [[] for _ in self._runs.simulations] if known is None else known.losses
        self._losses: list[dict[int, float]] = [dict(enumerate(losses)) for losses in before]

    def __iter__(self) -> Iterator[int]:
        """Compute round after round; yield how many are done."""
        for progress in self._runs:
            self._look()
            yield progress.rounds_done

    def _look(self) -> None:
        """Measure the models that are new. They are held by somebody now; a round later they may be gone."""
        for checkpoint, simulation, losses in zip(
            self._runs.checkpoints(), self._runs.simulations, self._losses, strict=True
        ):
            for step, state in checkpoint.states.items():
                if step not in losses:
                    (result,) = simulation.learner.results(state).values()
                    losses[step] = mean_loss(result, simulation.data)

    def known(self) -> Known:
        """Return what is known by now."""
        losses = [[of_run[step] for step in range(len(of_run))] for of_run in self._losses]
        return Known(self._runs.checkpoints(), losses)

    @property
    def closed(self) -> list[list[ClosedLoss]]:
        """The closed rounds of each repetition in the order in which they were closed, once the iteration is over."""
        return [
            _with_losses(simulation, losses)
            for simulation, losses in zip(self._runs.simulations, self._losses, strict=True)
        ]


def mean_loss(model: Scorer, data: FederatedDataset) -> float:
    """Return the mean of J over all training samples, dropout off."""
    return float(np.mean(model.anomaly_score(data.pool), dtype=np.float64))


def closing_times_s(spec: RunSpec, data: FederatedDataset, known: Checkpoint) -> list[float]:
    """Return when each round is closed in virtual time. Nothing is trained: every round must be known."""
    simulation = Simulation(spec, data, learner_of(fleet_of(spec, data)), known)
    if simulation.next_works():
        raise LookupError(f"only {known.n_steps} of {spec.rounds} rounds are known")
    return [closed.time_s for closed in _closed_rounds(simulation)]


def _closed_rounds(simulation: Simulation) -> list[RoundClosed]:
    simulation.collect()
    return [record for record in simulation.records if isinstance(record, RoundClosed)]


def _with_losses(simulation: Simulation, losses: dict[int, float]) -> list[ClosedLoss]:
    """Put rounds and losses together: step i of a simulation is its i-th record of a closed round."""
    rounds = _closed_rounds(simulation)
    if len(rounds) != len(losses):
        raise LookupError(f"{len(rounds)} rounds were closed, but {len(losses)} have a loss")
    return [
        ClosedLoss(closed.round or 0, closed.device or 0, closed.time_s, losses[step])
        for step, closed in enumerate(rounds)
    ]
