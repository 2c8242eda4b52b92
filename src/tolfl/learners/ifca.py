"""IFCA: every device tries all models and trains the one that fits its data best.

Ghosh, Chung, Yin, Ramchandran: "An Efficient Framework for Clustered Federated Learning", 2020. A good start decides:
of independent random models one usually wins for everybody. So, as the authors do for FEMNIST, the first rounds train
each model on one part of a random balanced partition, before the choice is free; of several such partitions the one
with the least training loss goes on (test data are never looked at).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tolfl.core.contribution import Contribution, Part
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import RunSpec
from tolfl.learners.clustered import (
    NOBODYS,
    Clustered,
    Clusters,
    Floats,
    Labels,
    check_differ,
    clusters_of,
    in_order,
    name_of,
)
from tolfl.learners.learner import Closing, State, Turn
from tolfl.learners.threads import in_threads
from tolfl.learners.training import LocalTraining

#: The mean over samples of the least loss among a trial's models, one number per trial.
_TRIAL_LOSSES = "trial-losses"
_BEST_TRIAL = "best-trial"
#: Rows of a device from which on its losses are computed in two halves, on two threads.
_MANY_ROWS = 256


class IFCA(Clustered):
    """Loss-based choice among m models."""

    def __init__(self, training: LocalTraining, spec: RunSpec) -> None:
        super().__init__(training, spec)
        self.settings = spec.ifca
        self.weight = self.settings.weight
        self.is_warm = self.settings.init == "warm" and self.settings.warm_rounds > 0
        self.n_trials = self.settings.restarts if self.m > 1 else 1
        self.decides_in = min(self.settings.trial_rounds, self.rounds - 1)

    def models_moved(self, round_index: int) -> tuple[int, int]:
        """Return one update and all m models, since the device chooses; of every restart while these are compared."""
        up = self.n_trials if round_index <= self.decides_in else 1
        return up, self.m * (self.n_trials if round_index < self.decides_in else 1)

    def start(self, state: State) -> State:
        """Return the models of each restart: equal with a partition to warm up on, or independent."""
        state, model = dict(state), self.training.model
        if self.n_trials > 1:
            state[_BEST_TRIAL] = np.zeros(1, np.int64)
        for trial, prefix in enumerate(self._prefixes()):
            clusters = self.blank()
            if self.is_warm:
                clusters = replace(clusters, members=self._partition(self.seed, trial))
            else:
                centres = tuple(model.initial(_seed_of(self.seed, trial, cluster)) for cluster in range(self.m))
                check_differ(centres, "ifca without a warm start")
                clusters = replace(clusters, centres=centres)
            state.update(clusters.to_state(prefix))
        return state

    def _prefixes(self) -> list[str]:
        return [f"trial-{trial}/" for trial in range(self.n_trials)] if self.n_trials > 1 else [""]

    def _partition(self, seed: int, trial: int) -> Labels:
        order = rng_for(seed, Purpose.CLUSTERING, trial, round_index=1).permutation(self.n_devices)
        return in_order(order * self.m // self.n_devices)

    def phase(self, state: State) -> str:
        """Return `restarts` while several are compared."""
        return "restarts" if "trial-0/members" in state else "one start"

    def contribute_in(self, phase: str, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return each device's update of the model it chose, in every restart that is still compared."""
        means: dict[int, State] = {id(turn): {} for turn in turns}
        losses: dict[int, dict[str, float]] = {id(turn): {} for turn in turns}
        least: dict[int, list[float]] = {id(turn): [] for turn in turns}
        for prefix in self._prefixes() if phase == "restarts" else [""]:
            training, starts, keys = [], [], []
            for turn, clusters in clusters_of(turns, prefix):
                of_models = self._losses(turn, clusters)
                least[id(turn)].append(float(of_models.min()))
                if self.is_out(clusters, turn.device):
                    continue
                cluster = self._choice(turn, clusters, of_models)
                training.append(turn)
                starts.append(clusters.centres[cluster])
                keys.append(f"{prefix}{name_of(cluster)}")
            for turn, key, update in zip(training, keys, self.training.updates(training, starts), strict=True):
                means[id(turn)][key], losses[id(turn)][key] = update.delta, update.loss
        for turn in turns:
            if phase == "restarts" and means[id(turn)]:
                means[id(turn)][_TRIAL_LOSSES] = np.array(least[id(turn)])
        return [self.parts(turn, means[id(turn)], losses=losses[id(turn)]) for turn in turns]

    def _losses(self, turn: Turn, clusters: Clusters) -> Floats:
        """Return the mean loss of every model on a device's own samples, dropout off; infinite for a lost one."""
        losses = np.full(self.m, np.inf)
        halves = np.array_split(turn.rows, 2) if len(turn.rows) >= _MANY_ROWS else [turn.rows]
        for cluster in clusters.hosted:
            centre = clusters.centres[cluster]
            samples = [half.astype(centre.dtype, copy=False) for half in halves]
            found = in_threads(partial(self.training.model.sample_losses, centre), samples)
            losses[cluster] = np.mean(np.concatenate(found), dtype=np.float64)
        return losses

    def _choice(self, turn: Turn, clusters: Clusters, losses: Floats) -> int:
        own = int(clusters.members[turn.device])
        is_warming_up = self.is_warm and turn.round < self.settings.warm_rounds
        if is_warming_up and own != NOBODYS and clusters.is_hosted[own]:
            return own
        return choose(losses)

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Step inside every group; when it is time, keep the restart whose models fitted the training data best."""
        prefixes = self._prefixes() if self.phase(state) == "restarts" else [""]
        stepped = {prefix: self.after_step(Clusters.of(state, prefix), total, closing, prefix) for prefix in prefixes}
        if len(prefixes) == 1:
            return {**state, **stepped[""].to_state()}
        best = self.prefix_of(state, total)
        if closing.round >= self.decides_in:
            others = {key: array for key, array in state.items() if key != _BEST_TRIAL and not key.startswith("trial-")}
            return {**others, **stepped[best].to_state()}
        goes_on = {**state, _BEST_TRIAL: np.array([prefixes.index(best)])}
        for prefix, clusters in stepped.items():
            goes_on.update(clusters.to_state(prefix))
        return goes_on

    def prefix_of(self, before: State, total: Contribution) -> str:
        """Return the restart that fitted the training data of a round best."""
        if self.phase(before) != "restarts":
            return ""
        best = int(np.argmin(total.parts[_TRIAL_LOSSES].mean)) if _TRIAL_LOSSES in total.parts else 0
        return self._prefixes()[best]

    def present(self, state: State) -> Clusters:
        """Return the clusters of a state; of the best restart so far while several are compared."""
        return Clusters.of(state, self._prefixes()[int(state[_BEST_TRIAL][0])] if _BEST_TRIAL in state else "")


def choose(losses: Floats) -> int:
    """Return the model with the least loss; the first of several."""
    return int(np.argmin(losses))


def _seed_of(seed: int, trial: int, cluster: int) -> int:
    return int(rng_for(seed, Purpose.CLUSTERING, trial, round_index=2 + cluster).integers(2**62))
