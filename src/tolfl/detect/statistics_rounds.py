"""PCA and the Mahalanobis distance in rounds: one of statistics, and for PCA perhaps one that chooses its components.

Whoever closes a round works out the principal directions and sends them: they are no sums, so two processors could
differ in their last bits, and for a thousand features they take a second.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution, Part
from tolfl.core.errors import SpecError
from tolfl.datasets.federated import Samples
from tolfl.detect.choosing import (
    EXPLAINED,
    Candidate,
    Choice,
    choose,
    components_that_explain,
    most_components,
    n_compared,
    possible_components,
    separations,
)
from tolfl.detect.detector_stage import DetectorStage, missing_values, scaler_of, size_of
from tolfl.detect.mahalanobis import Distance
from tolfl.detect.network import Dense, ScoringNetwork
from tolfl.detect.pca import Subspace, n_statistics, statistics_of, subspace_of
from tolfl.detect.spec import DetectorSpec
from tolfl.learners.learner import Closing, Fleet, Shape, State, Turn

#: Products of more features than this are too much to send: 2,000 features are 16 MB.
MAX_FEATURES = 2000


class Statistics(DetectorStage):
    """The fleet's mean of x and of x x^T, and the model that follows from it."""

    rounds = 1

    def __init__(self, fleet: Fleet, spec: DetectorSpec) -> None:
        super().__init__(fleet, spec)
        n_features, asked = fleet.n_features, spec.n_components
        if n_features > MAX_FEATURES:
            raise SpecError(
                f"{spec.model} would send the products of {n_features} features; use at most {MAX_FEATURES} features, "
                "or the model autoencoder"
            )
        if spec.model == "pca" and asked is not None and asked > n_features:
            raise SpecError(f"n_components {asked} for {n_features} features; use fewer than the features")

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return the mean of x and x x^T over the scaled rows that train."""
        return [self._parts(turn) for turn in turns]

    def _parts(self, turn: Turn) -> dict[str, Part]:
        scaler = scaler_of(turn.state)
        if scaler is None:
            return {}
        train = self.training_rows(turn)
        found = statistics_of(scaler(train, missing_values(train)), turn.state["origin"])
        return {"statistics": turn.mean(found, weight=len(train))}

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:  # noqa: ARG002
        """Return the state with the statistics, and the model or the directions to choose from."""
        part = total.parts.get("statistics")
        if part is None or "origin" not in state:
            return state
        statistics = part.mean + 0.0  # not -0.0
        subspace = subspace_of(statistics, state["origin"])
        known = {**state, "statistics": statistics, "statistics/n": np.array([part.n_samples])}
        if self.spec.model == "mahalanobis":
            return {**known, "network": packed(Distance.of(subspace, part.n_samples).network())}
        if self.spec.n_components is not None:
            return with_components(known, subspace, self.spec.n_components)
        n_kept = max(1, most_components(self.fleet.n_features))
        return {**known, "directions": subspace.directions[:n_kept].ravel(), "variances": subspace.variances}

    def shapes(self, state: State, round_index: int) -> dict[str, Shape]:  # noqa: ARG002
        """Return the statistics alone."""
        return self._shapes() if "origin" in state else {}

    def _shapes(self) -> dict[str, Shape]:
        return {"statistics": Shape("mean", "f8", n_statistics(self.fleet.n_features))}

    def nbytes(self, round_index: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the bytes of the statistics, and of the model with them."""
        up, n_features = size_of(self._shapes().values()), self.fleet.n_features
        if self.spec.model == "mahalanobis":
            return up, up + 2 * n_features * (n_features + 3)
        if self.spec.n_components is not None:
            return up, up + 4 * n_features * (self.spec.n_components + 2)
        return up, up + 8 * n_features * (most_components(n_features) + 1)


class ComponentChoice(DetectorStage):
    """How many components PCA uses: each number is tried on held-back rows, and the mean over the fleet decides."""

    rounds = 1

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return how well each number of components tells made-up from held-back rows."""
        return [self._parts(turn) for turn in turns]

    def _parts(self, turn: Turn) -> dict[str, Part]:
        scaler = scaler_of(turn.state)
        if scaler is None or "directions" not in turn.state:
            return {}
        held_back = self.held_back_rows(turn)
        subspace, numbers = self._subspace(turn.state), self._numbers(turn.state)

        def errors(samples: Samples) -> NDArray[np.float64]:
            return subspace.errors(samples, numbers)

        scaled = scaler(held_back, missing_values(held_back))
        found = separations(scaled, errors, turn.seed, turn.device)
        return {} if found is None else {"separations": turn.mean(found, weight=n_compared(scaled))}

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:  # noqa: ARG002
        """Return the state with PCA of the number that is chosen."""
        if "directions" not in state:
            return state
        subspace = self._subspace(state)
        known = {key: array for key, array in state.items() if key not in {"directions", "variances"}}
        part = total.parts.get("separations")
        if part is None:
            return with_components(known, subspace, components_that_explain(subspace.variances))
        known |= {"separations": part.mean + 0.0, "separations/components": np.array(self._numbers(state))}
        return with_components(known, subspace, _chosen(known).code)

    def _subspace(self, state: State) -> Subspace:
        n_features = self.fleet.n_features
        mean = state["origin"] + state["statistics"][:n_features]
        return Subspace(mean, state["directions"].reshape(-1, n_features), state["variances"])

    def _numbers(self, state: State) -> list[int]:
        return possible_components(self.fleet.n_features, int(state["sizes"][::2].sum()))

    def shapes(self, state: State, round_index: int) -> dict[str, Shape]:  # noqa: ARG002
        """Return one number for each number of components."""
        if "directions" not in state:
            return {}
        return {"separations": Shape("mean", "f8", len(self._numbers(state)))}

    def nbytes(self, round_index: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the bytes of the comparison, and of the model."""
        n_features = self.fleet.n_features
        return 8 * len(possible_components(n_features, n_features)), 8 * n_features * (most_components(n_features) + 1)


def choice_of(spec: DetectorSpec, state: State) -> Choice:
    """Return which model is used, and why."""
    if spec.model == "mahalanobis":
        return Choice("mahalanobis", 0, "mahalanobis was asked for")
    if spec.n_components is not None:
        return Choice("pca", spec.n_components, "pca with so many components was asked for")
    if "separations" in state:
        return _chosen(state)
    number = int(state["components"][0])
    return Choice(
        "pca",
        number,
        f"pca: nothing to compare models on, so {number} component(s) that explain {EXPLAINED:.0%} of the variance",
    )


def _chosen(state: State) -> Choice:
    numbers, values = state["separations/components"].tolist(), state["separations"].tolist()
    return choose([Candidate("pca", number, value) for number, value in zip(numbers, values, strict=True)])


def with_components(state: State, subspace: Subspace, n_components: int) -> State:
    """Return the state with PCA of so many components."""
    network = packed(subspace.network(n_components))
    return {**state, "components": np.array([n_components]), "network": network}


def packed(network: ScoringNetwork) -> NDArray[np.float32]:
    """Return the weights and biases of a model in one array, without what follows from the rest.

    The distance's weight is symmetric: its upper half will do. PCA's second weight is the first one, transposed.
    """
    first, *others = network.layers
    weight = first.weight[np.triu_indices(len(first.weight))] if network.is_residual else first.weight.ravel()
    return np.concatenate([weight, first.bias, *(layer.bias for layer in others)])


def network_from(state: State, n_features: int) -> ScoringNetwork:
    """Return the model that `packed` put into the state: the distance's one layer, or PCA's two."""
    numbers = state["network"]
    if "components" not in state:
        weight, upper = np.empty((n_features, n_features), np.float32), np.triu_indices(n_features)
        weight[upper] = weight.T[upper] = numbers[:-n_features]
        return ScoringNetwork((Dense(weight, numbers[-n_features:]),), is_residual=True)
    n_components = int(state["components"][0])
    down = numbers[: n_components * n_features].reshape(n_components, n_features)
    biases = numbers[down.size :]
    up = np.ascontiguousarray(down.T)
    return ScoringNetwork((Dense(down, biases[:n_components]), Dense(up, biases[n_components:])))
