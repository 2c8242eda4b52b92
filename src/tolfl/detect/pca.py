"""Federated PCA: counts, sums and products travel up the chain as one contribution, and one round is exact.

A device works out the mean of x and of x x^T over its samples. The sample-weighted mean of those over the fleet, which
is what Tol-FL's chain computes, has everything that PCA needs: no sample travels, the number of clusters changes
nothing, and whoever dies takes only its own samples along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tolfl.detect.network import ScoringNetwork

Floats = NDArray[np.float64]

_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Subspace:
    """The principal directions of a fleet's samples."""

    mean: Floats
    directions: Floats  #: rows, those of most variance first
    variances: Floats

    def network(self, n_components: int) -> ScoringNetwork:
        """Return the reconstruction from the first `n_components`."""
        return ScoringNetwork.of_subspace(self.mean, self.directions[:n_components])

    def errors(self, samples: NDArray[np.floating], n_components: Sequence[int]) -> Floats:
        """Return the squared errors for several numbers of components at once: `(len(n_components), n_samples)`."""
        centred = samples.astype(np.float64) - self.mean
        energies = np.square(centred @ self.directions[: max(n_components)].T)
        explained = np.concatenate([np.zeros((len(centred), 1)), np.cumsum(energies, axis=1)], axis=1)
        left: Floats = np.square(centred).sum(axis=1)[None, :] - explained.T[list(n_components)]
        return np.maximum(left, 0.0)


def n_statistics(n_features: int) -> int:
    """Return how many numbers the statistics are: means, and the upper half of the products."""
    return n_features + n_features * (n_features + 1) // 2


def statistics_of(samples: NDArray[np.floating], origin: Floats) -> Floats:
    """Return the mean of x - origin over the samples, and of its products (upper half, row by row), as one vector.

    `origin` is a point near the samples that everybody knows (the fleet's mean, from the scaling): products of small
    numbers lose no digits.

    >>> statistics_of(np.array([[1.0, 1.0], [-1.0, -1.0]]), np.zeros(2)).tolist()
    [0.0, 0.0, 1.0, 1.0, 1.0]
    """
    sums, products = np.zeros(len(origin)), np.zeros((len(origin), len(origin)))
    for first in range(0, len(samples), _ROWS_AT_ONCE):
        rows = samples[first : first + _ROWS_AT_ONCE].astype(np.float64) - origin
        sums += rows.sum(axis=0)
        products += rows.T @ rows
    return np.concatenate([sums, products[np.triu_indices(len(origin))]]) / len(samples)


def subspace_of(statistics: Floats, origin: Floats) -> Subspace:
    """Return the principal directions that the statistics lead to."""
    n_features = len(origin)
    mean = statistics[:n_features]
    products = np.zeros((n_features, n_features))
    products[np.triu_indices(n_features)] = statistics[n_features:]
    covariance = products + np.triu(products, 1).T - np.outer(mean, mean)
    with threadpool_limits(limits=1):  # several threads add in an order that depends on the machine
        variances, vectors = np.linalg.eigh(covariance)
    directions = np.ascontiguousarray(vectors[:, ::-1].T)
    return Subspace(origin + mean, directions, np.maximum(variances[::-1], 0.0))
