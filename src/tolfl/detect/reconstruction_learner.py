"""The rounds of models that reconstruct rows: PCA from one round of statistics, the autoencoder by rounds of training.

PCA: a device works out the mean of x and of x x^T over its rows. The weighted mean of those over the fleet, which
Tol-FL's chain computes, has all that PCA needs. No row is sent, the number of clusters changes nothing, and a
failed device costs only its own rows. The closer of the round computes the principal directions and sends them: they
are no sums, so two processors could differ in their last bits.

The autoencoder: local training, and the mean of what it did to the model (FedAvg).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution, Part
from tolfl.core.errors import DivergedError, SpecError
from tolfl.core.spec import TrainSettings
from tolfl.detect.cells import NUMBERS_AT_ONCE, Floats, full, one_thread
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import ModelStage, flat, scaler_of, size_of
from tolfl.detect.reconstruction import Reconstruction
from tolfl.kernel import TrainJob, Update
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.learner import Closing, Fleet, Shape, State, Turn

_ROWS_AT_ONCE = 8192
EXPLAINED = 0.9  #: of the variance, where the number of components is not set
#: A round in which training diverged leaves the model as it is, and divides the step by this.
_STEP_DIVISOR = 10.0

# -- PCA ------------------------------------------------------------------------------------------------------------


class StatisticsRound(ModelStage):
    """The fleet's mean of x and of x x^T, and the directions of most variance that follow from it."""

    rounds = 1
    needs, leaves, counts = "origin", "pca/directions", "pca/n"

    def __init__(self, fleet: Fleet, spec: DetectorSpec) -> None:
        super().__init__(fleet, spec)
        if spec.n_components is not None and spec.n_components > fleet.n_features:
            raise SpecError(
                f"n_components {spec.n_components} for {fleet.n_features} features; use fewer than the features"
            )

    def model(self, state: State) -> Reconstruction | None:
        """Return PCA; None: there is none yet."""
        if "pca/mean" not in state or "scaler/shift" not in state:
            return None
        directions = state["pca/directions"].reshape(-1, self.fleet.n_features)
        low, high = state["scaler/low"], state["scaler/high"]
        return Reconstruction.of_subspace(scaler_of(state), low, high, state["pca/mean"], directions)

    def part(self, turn: Turn) -> dict[str, Part]:
        """Return the mean of x and x x^T over the scaled rows that train."""
        scaler = scaler_of(turn.state)
        rows, places = flat(turn.rows), self.training_places(turn)
        found = statistics_of(places, turn.state["origin"], lambda some: scaler(rows[some]))
        return {"statistics": turn.mean(found, weight=len(places))}

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:  # noqa: ARG002
        """Return the state with the mean and the principal directions that are used."""
        part = total.parts.get("statistics")
        if part is None or "origin" not in state:
            return state
        mean, directions, variances = subspace_of(part.mean, state["origin"])
        asked = self.spec.n_components
        n_components = components_that_explain(variances) if asked is None else asked
        return {
            **state,
            "pca/n": np.array([part.n_samples]),
            "pca/mean": mean,
            "pca/directions": directions[:n_components].ravel(),
        }

    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:  # noqa: ARG002
        """Return the statistics alone."""
        n_features = self.fleet.n_features
        return {"statistics": Shape("mean", "f8", n_features + n_features * (n_features + 1) // 2)}

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of the statistics, and of the directions."""
        n_features = self.fleet.n_features
        n_components = n_features if self.spec.n_components is None else self.spec.n_components
        return size_of(self.sends(round_index).values()), 8 * n_features * (n_components + 1)


def statistics_of(samples: NDArray[Any], origin: Floats, scaled: Callable[[Any], NDArray[Any]] = np.asarray) -> Floats:
    """Return the mean of x - origin over the samples, and of its products (upper half, row by row), as one vector.

    `origin` is a point near the samples that all devices have (the fleet's mean, from the scaling): products of small
    numbers lose no digits. `scaled` makes rows of some samples, so that not all of them are there at once.

    >>> statistics_of(np.array([[1.0, 1.0], [-1.0, -1.0]]), np.zeros(2)).tolist()
    [0.0, 0.0, 1.0, 1.0, 1.0]
    """
    sums, products = np.zeros(len(origin)), np.zeros((len(origin), len(origin)))
    buffer, step = np.empty((min(len(samples), _ROWS_AT_ONCE), len(origin))), NUMBERS_AT_ONCE // len(origin)
    for first in range(0, len(samples), _ROWS_AT_ONCE):
        some = samples[first : first + _ROWS_AT_ONCE]
        rows = buffer[: len(some)]
        for start in range(0, len(some), step):
            np.subtract(scaled(some[start : start + step]), origin, out=rows[start : start + step])
        sums += rows.sum(axis=0)
        products += rows.T @ rows
    return np.concatenate([sums, products[np.triu_indices(len(origin))]]) / len(samples)


def subspace_of(statistics: Floats, origin: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the mean, the principal directions as rows, those of most variance first, and their variances."""
    n_features = len(origin)
    mean = statistics[:n_features]
    covariance = full(statistics[n_features:], n_features) - np.outer(mean, mean)
    with one_thread.limit(limits=1):
        variances, vectors = np.linalg.eigh(covariance)
    directions = np.ascontiguousarray(vectors[:, ::-1].T)
    return origin + mean, directions, np.maximum(variances[::-1], 0.0)


def components_that_explain(variances: Floats) -> int:
    """Return how many components have 90 % of the variance; all of them would explain everything.

    >>> components_that_explain(np.array([8.0, 1.5, 0.5]))
    2
    """
    n_features, total = len(variances), float(variances.sum())
    explained = np.cumsum(variances) / total if total > 0 else np.ones(n_features)
    return min(int(np.searchsorted(explained, EXPLAINED)) + 1, n_features - 1)


# -- autoencoder ----------------------------------------------------------------------------------------------------


class AutoencoderTraining(ModelStage):
    """Rounds of local training; without a step of the user's own, divergence leads to a smaller one."""

    needs, leaves, counts = "scaler/shift", "autoencoder", "autoencoder/n"

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

    def model(self, state: State) -> Reconstruction | None:
        """Return the autoencoder; None: nobody has trained it yet."""
        if "scaler/shift" not in state or not state.get("autoencoder/n", np.zeros(1))[0]:
            return None
        low, high = state["scaler/low"], state["scaler/high"]
        return Reconstruction.of_autoencoder(scaler_of(state), low, high, self._model, state["autoencoder"])

    def _usual_settings(self, state: State) -> TrainSettings:
        """Return settings for a device of the usual size, by the sizes that all know."""
        sizes = [size for size in state.get("sizes", np.zeros(0))[::2].tolist() if size] or [self.fleet.usual_rows]
        return self._asked.settle(self.fleet.n_features, int(statistics.median(sizes)))

    def _settings(self, state: State) -> TrainSettings:
        return msgspec.structs.replace(self._usual_settings(state), lr=float(state["step"][0]))

    def parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return what training did to the model on each device, or that it diverged."""
        state = turns[0].state
        start, scaler = state["autoencoder"], scaler_of(state)
        tables = [self.training_rows(turn) for turn in turns]
        ends = np.cumsum([0, *map(len, tables)]).tolist()
        pool = np.empty((ends[-1], self.fleet.n_features), np.float32)
        for rows, (first, last) in zip(tables, pairwise(ends), strict=True):
            pool[first:last] = scaler(rows)
        jobs = [
            TrainJob(turn.seed, turn.device, turn.round, start, pool, first, last)
            for turn, (first, last) in zip(turns, pairwise(ends), strict=True)
        ]
        return list(map(_parts, turns, self._updates(jobs, self._settings(state))))

    def _updates(self, jobs: list[TrainJob], settings: TrainSettings) -> list[Update | None]:
        """Return one update for each job; None: it diverged."""
        try:
            return list(self._model.train(jobs, settings))
        except DivergedError:
            if self._asked.lr is not None:
                raise
            if len(jobs) == 1:
                return [None]
        # One of them diverged; updates do not depend on each other, so each device is trained by itself.
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
        """Return notes about the training."""
        step = float(state["step"][0])
        if step == self._usual_settings(state).lr:
            return ()
        return (f"training diverged, and continued with a step of {step:g}",)

    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:  # noqa: ARG002
        """Return the change of the model, or one number that says that training diverged."""
        return {"delta": Shape("mean", "f4", self._model.n_params), "diverged": Shape("sum", "i8", 1)}

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of one model, there and back."""
        n_bytes = size_of([self.sends(round_index)["delta"]])
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
