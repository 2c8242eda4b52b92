"""The Mahalanobis distance to the fleet's mean, from the very statistics that federated PCA sends: no second training.

PCA forgives whatever lies along its components and measures the rest with one yardstick. Here every principal direction
counts, each in units of its own spread: z_i^2 / w_i, summed over all. What the samples hardly ever do weighs most, and
that is what few samples tell least about, so the covariance is shrunk towards a multiple of the identity, by as much as
`oas` says: Chen, Wiesel, Eldar, Hero, "Shrinkage Algorithms for MMSE Covariance Estimation" (2010), eq. (23), as in
scikit-learn. It takes the number of samples and two traces; no sample is looked at again, and nothing is tuned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tolfl.detect.network import ScoringNetwork
from tolfl.detect.pca import Floats, Subspace

#: Many samples hardly shrink anything, and a constant column, or twice the same one, would be divided by nothing.
#: With this floor a direction without variance counts as if it had 3 % (the root) of the usual spread, and no weight in
#: the root of the precision is more than sqrt(1000 p) times another: a thousand, for a thousand features, of the ten
#: million that float32 tells apart.
LEAST_SHRINKAGE = 1e-3


def oas(variances: Floats, n_samples: int) -> float:
    """Return how far to shrink a covariance with these eigenvalues, from 0 (not at all) to 1 (to the identity).

    >>> round(oas(np.array([3.0, 1.0]), 12), 3)  # (10 + 16) / (13 (10 - 16 / 2))
    1.0
    >>> round(oas(np.array([3.0, 0.0]), 12), 3)  # (9 + 9) / (13 (9 - 9 / 2))
    0.308
    """
    trace, trace_of_square = float(variances.sum()), float(np.square(variances).sum())
    spread = (n_samples + 1) * (trace_of_square - trace**2 / len(variances))
    # All variances alike: what it is shrunk to is what it is. Rounding can make the difference negative.
    return min((trace_of_square + trace**2) / spread, 1.0) if spread > 0 else 1.0


def shrunk_variances(subspace: Subspace, n_samples: int) -> Floats:
    """Return the variances along the principal directions after shrinking; none of them is 0."""
    usual = float(subspace.variances.mean())
    # Samples are float32: what spreads less than their last digit is one point, and its distance is the plain one.
    if usual <= (float(np.finfo(np.float32).eps) * float(np.abs(subspace.mean).max())) ** 2:
        return np.ones_like(subspace.variances)
    shrinkage = max(oas(subspace.variances, n_samples), LEAST_SHRINKAGE)
    shrunk: Floats = (1.0 - shrinkage) * subspace.variances + shrinkage * usual
    return shrunk


@dataclass(frozen=True, eq=False)
class Distance:
    """A mean, and the symmetric root of the precision: the one root whose residuals belong to features.

    Any root of the precision turns a sample into numbers whose squares add up to the distance. The symmetric one moves
    the features as little as a root can, so each number is still that feature's own, freed of what others explain.
    """

    mean: Floats
    root: Floats  #: `(n_features, n_features)`, symmetric; its square is the inverse of the shrunk covariance

    @classmethod
    def of(cls, subspace: Subspace, n_samples: int) -> Distance:
        """Return the distance that a fleet's statistics lead to."""
        weights = 1.0 / np.sqrt(shrunk_variances(subspace, n_samples))
        with threadpool_limits(limits=1):  # several threads add in an order that depends on the machine
            root = (subspace.directions.T * weights) @ subspace.directions
        return cls(subspace.mean, (root + root.T) / 2.0)

    def squared(self, samples: NDArray[np.floating]) -> Floats:
        """Return the squared distance of each sample."""
        distances: Floats = np.square((samples.astype(np.float64) - self.mean) @ self.root).sum(axis=1)
        return distances

    def network(self) -> ScoringNetwork:
        """Return the distance as one layer, ready to score."""
        return ScoringNetwork.of_distance(self.mean, self.root)
