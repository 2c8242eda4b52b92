"""The autoencoder in rounds: local training, and the mean of what it did to the model (FedAvg)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec
import numpy as np

from tolfl.core.contribution import Contribution, Part
from tolfl.core.errors import DivergedError
from tolfl.core.spec import TrainSettings
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import DetectorStage, scaled_together, scaler_of, size_of
from tolfl.kernel import TrainJob, Update
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.learner import Closing, Fleet, Shape, State, Turn

#: A round in which training diverged leaves the model as it is, and divides the step by this.
_STEP_DIVISOR = 10.0


class AutoencoderTraining(DetectorStage):
    """Rounds of local training; without a step of the user's own, divergence leads to a smaller one."""

    def __init__(self, fleet: Fleet, spec: DetectorSpec) -> None:
        super().__init__(fleet, spec)
        self.rounds = fleet.spec.rounds
        self._model = autoencoder_for(fleet.n_features, spec)
        self._asked = fleet.spec.train
        if spec.lr is not None:
            self._asked = msgspec.structs.replace(self._asked, lr=spec.lr)

    def start(self, state: State) -> State:
        """Return the state with an untrained model and the first step."""
        return {
            **state,
            "autoencoder": self._model.initial(self.fleet.seed),
            "autoencoder/n": np.zeros(1, np.int64),
            "step": np.array([self._usual_settings(state).lr]),
        }

    def _usual_settings(self, state: State) -> TrainSettings:
        """Return settings for a device of the usual size, by the sizes that all know."""
        sizes = [size for size in state.get("sizes", np.zeros(0))[::2].tolist() if size] or [self.fleet.usual_rows]
        return self._asked.settle(self.fleet.n_features, int(statistics.median(sizes)))

    def _settings(self, state: State) -> TrainSettings:
        return msgspec.structs.replace(self._usual_settings(state), lr=float(state["step"][0]))

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return what training did to the model on each device, or that it diverged."""
        found: list[dict[str, Part]] = [{} for _ in turns]
        by_settings: dict[TrainSettings, list[tuple[int, TrainJob]]] = {}
        known: dict[int, TrainSettings] = {}  # by the state, which most devices of a round share
        for place, job in self._jobs(turns):
            state = turns[place].state
            if id(state) not in known:
                known[id(state)] = self._settings(state)
            by_settings.setdefault(known[id(state)], []).append((place, job))
        for settings, places in by_settings.items():
            updates = self._updates([job for _, job in places], settings)
            for (place, _), update in zip(places, updates, strict=True):
                found[place] = _parts(turns[place], update)
        return found

    def _jobs(self, turns: Sequence[Turn]) -> list[tuple[int, TrainJob]]:
        scalers = [(place, scaler_of(turn.state)) for place, turn in enumerate(turns)]
        groups = [(place, scaler, self.training_rows(turns[place])) for place, scaler in scalers if scaler is not None]
        pool, bounds = scaled_together([(scaler, rows) for _, scaler, rows in groups], self.fleet.n_features)
        jobs = []
        for (place, _, _), (first, last) in zip(groups, bounds, strict=True):
            turn = turns[place]
            start = turn.state["autoencoder"]
            jobs.append((place, TrainJob(turn.seed, turn.device, turn.round, start, pool, first, last)))
        return jobs

    def _updates(self, jobs: list[TrainJob], settings: TrainSettings) -> list[Update | None]:
        """Return one update for each job; None: it diverged."""
        try:
            return list(self._model.train(jobs, settings))
        except DivergedError:
            if self._asked.lr is not None:
                raise
            if len(jobs) == 1:
                return [None]
        # Somebody diverged; nobody's update depends on the others', so each is trained by itself.
        return [self._updates([job], settings)[0] for job in jobs]

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state with the next model; where training diverged, with the same and a smaller step."""
        part = total.parts.get("delta")
        has_diverged = "diverged" in total.parts
        if "autoencoder" not in state or (part is None and not has_diverged):
            return state
        if part is not None and not has_diverged:
            step = np.float32(self._asked.server_lr)
            with np.errstate(over="ignore", invalid="ignore"):
                model = state["autoencoder"] - (part.mean if step == 1 else step * part.mean)
            if np.isfinite(model).all():
                return {**state, "autoencoder": model, "autoencoder/n": np.array([part.n_samples])}
        if self._asked.lr is not None:
            raise DivergedError(f"the model after round {closing.round} of the autoencoder")
        return {**state, "step": state["step"] / _STEP_DIVISOR}

    def notes(self, state: State) -> tuple[str, ...]:
        """Return what there is to say about the training."""
        step = float(state["step"][0])
        if step == self._usual_settings(state).lr:
            return ()
        return (f"training diverged, and went on with a step of {step:g}",)

    def shapes(self, state: State, round_index: int) -> dict[str, Shape]:  # noqa: ARG002
        """Return the change of the model, or one number that says that training diverged."""
        return self._shapes()

    def _shapes(self) -> dict[str, Shape]:
        return {"delta": Shape("mean", "f4", self._model.n_params), "diverged": Shape("sum", "i8", 1)}

    def nbytes(self, round_index: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the bytes of one model, there and back."""
        n_bytes = size_of([self._shapes()["delta"]])
        return n_bytes, n_bytes


def _parts(turn: Turn, update: Update | None) -> dict[str, Part]:
    if update is None:
        return {"diverged": turn.total(np.ones(1, np.int64))}
    return {"delta": turn.mean(update.delta, update.loss, weight=update.n_samples)}


def autoencoder_for(n_features: int, spec: DetectorSpec) -> Autoencoder:
    """Return the autoencoder; its code is half of the features at most, or there is nothing to learn.

    >>> autoencoder_for(10, DetectorSpec(code=32)).n_params == Autoencoder(10, DetectorSpec().hidden, 5, 0.0).n_params
    True
    """
    return Autoencoder(n_features, spec.hidden, min(spec.code, max(1, n_features // 2)), spec.dropout)
