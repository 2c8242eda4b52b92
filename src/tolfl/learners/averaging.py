"""Sample-weighted averaging of one model that all devices train: Tol-FL, FL and SBT; and batch training beside them.

Katzef, Cullen, Alpcan, Leckie, Kopacz: "Failure-tolerant Distributed Learning for Anomaly Detection in Wireless
Networks" (Algorithms 1 and 2); FL: McMahan et al., "Communication-Efficient Learning of Deep Networks from
Decentralized Data", 2017. The three differ in their layout alone: k = 1 is FL, k = N is SBT, and without failures
the layout does not change the model.
"""

from __future__ import annotations

from collections.abc import Sequence

from tolfl.core.contribution import GLOBAL, Contribution, Part, RunningSum
from tolfl.core.device_set import DeviceSet
from tolfl.kernel.jobs import joined
from tolfl.learners.learner import Closing, Learner, Scorer, Shape, State, Turn
from tolfl.learners.training import LocalTraining, TrainedModel


class Averaging(Learner):
    """FedAvg over a star, a chain or a chain of stars; the layout does not matter here."""

    def __init__(self, training: LocalTraining, rounds: int, seed: int) -> None:
        self.training, self.rounds, self.seed = training, rounds, seed
        self.is_thread_safe = training.is_thread_safe

    def start(self, state: State) -> State:
        """Return one model, from the seed that everybody knows."""
        return {**state, GLOBAL: self.training.model.initial(self.seed)}

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return each device's delta: the start minus its trained parameters.

        With server step 1 this is FedAvg's average of models; for one full-batch epoch it is the gradient of
        Algorithm 2 times the step size.
        """
        updates = self.training.updates(turns, [turn.state[GLOBAL] for turn in turns])
        return [{GLOBAL: turn.mean(update.delta, update.loss)} for turn, update in zip(turns, updates, strict=True)]

    def add_up(self, turns: Sequence[Turn], total: RunningSum) -> bool:
        """Add the devices' deltas while they are trained."""
        return self.training.add_up(turns, [turn.state[GLOBAL] for turn in turns], GLOBAL, total)

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:  # noqa: ARG002
        """Return theta_{t+1} = theta_t - server_lr * mean delta; without a contribution nothing changes."""
        if GLOBAL not in total.parts:
            return state
        return {**state, GLOBAL: self.training.stepped(state[GLOBAL], total.parts[GLOBAL].mean)}

    def shapes(self, state: State, round_index: int) -> dict[str, Shape]:  # noqa: ARG002
        """Return the one delta of a round."""
        model = state[GLOBAL]
        return {GLOBAL: Shape("mean", model.dtype.str[1:], model.size)}

    def results(self, state: State) -> dict[str, Scorer]:
        """Return the one model."""
        return {GLOBAL: TrainedModel(self.training.model, state[GLOBAL])}

    def nbytes(self, round_index: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the bytes of the model, up and down."""
        return self.training.n_bytes, self.training.n_bytes


class Batch(Averaging):
    """All rows on one machine: the yardstick of the paper's comparisons. In the simulator only: no device has them all.

    With the devices' own batch size it would take N times more updates per round and look better for that reason
    alone, so its batches are N times larger. The devices of a run stand for their rows: a client that fails takes its
    rows out of the training set, and with the server (the machine itself) training stops.
    """

    needs_all_turns = True

    def add_up(self, turns: Sequence[Turn], total: RunningSum) -> bool:  # noqa: ARG002
        """Return False: all rows are trained on as one."""
        return False

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return one update from the rows of all devices of a round, as the first device's."""
        rounds: dict[tuple[int, int], list[int]] = {}
        for place, turn in enumerate(turns):
            rounds.setdefault((turn.seed, id(turn.state)), []).append(place)
        together = []
        for places in rounds.values():
            first = turns[places[0]]
            rows = joined([turns[place].rows for place in places])
            together.append(Turn(first.seed, first.device, first.round, first.state, rows))
        updates = self.training.updates(together, [turn.state[GLOBAL] for turn in together])
        parts: list[dict[str, Part]] = [{} for _ in turns]
        for places, update in zip(rounds.values(), updates, strict=True):
            everybody = DeviceSet.of(turns[place].device for place in places)
            # With weight 1 the mean over this one part is the update itself, to the last bit; and so is its loss.
            parts[places[0]] = {GLOBAL: Part(1, update.delta, 1, everybody, update.loss, 1)}
        return parts

    def nbytes(self, round_index: int) -> tuple[int, int]:  # noqa: ARG002
        """Return 0: nothing travels."""
        return 0, 0
