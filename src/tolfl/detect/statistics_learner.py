"""Federated PCA: sums and products travel up the chain as one contribution, and one round is exact.

A device works out the mean of x and of x x^T over its rows. The sample-weighted mean of those over the fleet, which is
what Tol-FL's chain computes, has everything that PCA needs: no row travels, the number of clusters changes nothing, and
whoever dies takes only its own rows along. Whoever closes the round works out the principal directions and sends them:
they are no sums, so two processors could differ in their last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution, Part
from tolfl.core.errors import SpecError
from tolfl.detect.cells import NUMBERS_AT_ONCE, Floats, full, one_thread
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.detector_stage import DetectorStage, flat, missing_values, scaler_of, size_of
from tolfl.learners.learner import Closing, Fleet, Shape, State, Turn

_ROWS_AT_ONCE = 8192
EXPLAINED = 0.9  #: of the variance, where nobody says how many components


@dataclass(frozen=True, eq=False)
class Subspace:
    """The principal directions of a fleet's rows."""

    mean: Floats
    directions: Floats  #: rows, those of most variance first
    variances: Floats


class StatisticsRound(DetectorStage):
    """The fleet's mean of x and of x x^T, and the directions of most variance that follow from it."""

    rounds = 1

    def __init__(self, fleet: Fleet, spec: DetectorSpec) -> None:
        super().__init__(fleet, spec)
        if spec.n_components is not None and spec.n_components > fleet.n_features:
            raise SpecError(
                f"n_components {spec.n_components} for {fleet.n_features} features; use fewer than the features"
            )

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return the mean of x and x x^T over the scaled rows that train."""
        return [self._parts(turn) for turn in turns]

    def _parts(self, turn: Turn) -> dict[str, Part]:
        scaler = scaler_of(turn.state)
        if scaler is None:
            return {}
        rows, places = flat(turn.rows), self.training_places(turn)

        def scaled(some: NDArray[np.integer]) -> NDArray[np.floating]:
            taken = rows[some]
            return scaler(taken, missing_values(taken))

        with one_thread.limit(limits=1):
            found = statistics_of(places, turn.state["origin"], scaled)
        return {"statistics": turn.mean(found, weight=len(places))}

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:  # noqa: ARG002
        """Return the state with the mean and the principal directions that are used."""
        part = total.parts.get("statistics")
        if part is None or "origin" not in state:
            return state
        subspace = subspace_of(part.mean, state["origin"])
        asked = self.spec.n_components
        n_components = components_that_explain(subspace.variances) if asked is None else asked
        return {
            **state,
            "pca/n": np.array([part.n_samples]),
            "pca/mean": subspace.mean,
            "pca/directions": subspace.directions[:n_components].ravel(),
        }

    def shapes(self, state: State, round_index: int) -> dict[str, Shape]:  # noqa: ARG002
        """Return the statistics alone."""
        return self._shapes() if "origin" in state else {}

    def _shapes(self) -> dict[str, Shape]:
        n_features = self.fleet.n_features
        return {"statistics": Shape("mean", "f8", n_features + n_features * (n_features + 1) // 2)}

    def nbytes(self, round_index: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the bytes of the statistics, and of the directions."""
        n_features = self.fleet.n_features
        n_components = n_features if self.spec.n_components is None else self.spec.n_components
        return size_of(self._shapes().values()), 8 * n_features * (n_components + 1)


def statistics_of(samples: NDArray[Any], origin: Floats, scaled: Callable[[Any], NDArray[Any]] = np.asarray) -> Floats:
    """Return the mean of x - origin over the samples, and of its products (upper half, row by row), as one vector.

    `origin` is a point near the samples that everybody knows (the fleet's mean, from the scaling): products of small
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


def subspace_of(statistics: Floats, origin: Floats) -> Subspace:
    """Return the principal directions that the statistics lead to."""
    n_features = len(origin)
    mean = statistics[:n_features]
    covariance = full(statistics[n_features:], n_features) - np.outer(mean, mean)
    with one_thread.limit(limits=1):
        variances, vectors = np.linalg.eigh(covariance)
    directions = np.ascontiguousarray(vectors[:, ::-1].T)
    return Subspace(origin + mean, directions, np.maximum(variances[::-1], 0.0))


def components_that_explain(variances: Floats, share: float = EXPLAINED) -> int:
    """Return how many components have this share of the variance; all of them would explain everything.

    >>> components_that_explain(np.array([8.0, 1.5, 0.5]))
    2
    """
    n_features, total = len(variances), float(variances.sum())
    explained = np.cumsum(variances) / total if total > 0 else np.ones(n_features)
    return min(int(np.searchsorted(explained, share)) + 1, n_features - 1)
