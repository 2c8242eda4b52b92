"""Federated PCA: counts, sums and products travel up the chain as one contribution, and one round is exact.

A device's "training" is to work out the mean of x and of x x^T over its samples. The sample-weighted mean of those over
the fleet, which is what Tol-FL's chain computes, has everything that PCA needs: no sample travels, the number of
clusters changes nothing, and whoever dies takes only its own samples along. A second round gives the same again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import nn

from tolfl.core.contribution import Vector
from tolfl.core.errors import DataError
from tolfl.detect.network import ScoringNetwork
from tolfl.models import TrainJob, TrainSettings, Update

Floats = NDArray[np.float64]

_ROWS_AT_ONCE = 8192
#: What a run may keep of the devices' own statistics, so that further rounds need not go through the samples again.
_KEPT_BYTES = 256 * 2**20


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


class PCAModel:
    """Statistics as a model: its parameters are the fleet's mean of (x - origin) and of its products, as float64.

    Parameters
    ----------
    origin
        A point near the samples that everybody knows (the fleet's mean, from the scaling): products of small numbers
        lose no digits.
    n_components
        For scores; the parameters do not depend on it.

    Examples
    --------
    >>> model = PCAModel(np.zeros(2), n_components=1)
    >>> samples = np.array([[1.0, 1.0], [-1.0, -1.0]], dtype=np.float32)
    >>> job = TrainJob(0, 0, 0, model.initial(0), samples, 0, 2)
    >>> update = model.train([job], TrainSettings())[0]
    >>> (job.start - update.delta).tolist()
    [0.0, 0.0, 1.0, 1.0, 1.0]
    """

    def __init__(self, origin: NDArray[np.floating], n_components: int) -> None:
        self.origin: Floats = origin.astype(np.float64)
        self.n_components = n_components
        self._upper = np.triu_indices(len(origin))
        self._pool: NDArray[np.floating] | None = None
        self._kept: dict[tuple[int, int], Floats] = {}  # a device's samples do not change within a run

    @property
    def n_params(self) -> int:
        """Return the length of the flat vector: means, and the upper half of the products."""
        return len(self.origin) + len(self._upper[0])

    def initial(self, seed: int) -> Floats:  # noqa: ARG002  (nothing is drawn)
        """Return zeros: nothing is known."""
        return np.zeros(self.n_params)

    def groups(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[list[int]]:  # noqa: ARG002
        """Return each job alone."""
        return [[place] for place in range(len(jobs))]

    def train(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:  # noqa: ARG002
        """Return what leads from the start to each device's own statistics; the loss is their total variance."""
        updates = []
        for job in jobs:
            found = self._statistics(job)
            updates.append(Update(job.start - found, float(np.trace(self._products(found))), job.n_samples))
        return updates

    def sample_losses(self, params: Vector, samples: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return each sample's squared reconstruction error."""
        if samples.ndim != 2 or samples.shape[1] != len(self.origin):
            raise DataError(f"samples have shape {samples.shape}; the model takes (n_samples, {len(self.origin)})")
        return self.subspace(params).network(self.n_components).errors(np.asarray(samples, np.float32))

    def tensors(self, params: Vector) -> dict[str, Vector]:
        """Return the statistics by name."""
        return {"mean": params[: len(self.origin)], "products": params[len(self.origin) :]}

    def to_module(self, params: Vector) -> nn.Module:
        """Return the reconstruction as a PyTorch module."""
        return self.subspace(params).network(self.n_components).to_module()

    def subspace(self, params: Vector) -> Subspace:
        """Return the principal directions that the statistics lead to."""
        mean = params[: len(self.origin)]
        covariance = self._products(params) - np.outer(mean, mean)
        with threadpool_limits(limits=1):  # several threads add in an order that depends on the machine
            variances, vectors = np.linalg.eigh(covariance)
        directions = np.ascontiguousarray(vectors[:, ::-1].T)
        return Subspace(self.origin + mean, directions, np.maximum(variances[::-1], 0.0))

    def _products(self, params: Vector) -> Floats:
        full = np.zeros((len(self.origin), len(self.origin)))
        full[self._upper] = params[len(self.origin) :]
        return full + np.triu(full, 1).T

    def _statistics(self, job: TrainJob) -> Floats:
        if self._pool is not job.pool:
            self._pool, self._kept = job.pool, {}
        known = self._kept.get((job.first, job.last))
        if known is None:
            known = self._work_out(job.pool[job.first : job.last])
            if (len(self._kept) + 1) * known.nbytes <= _KEPT_BYTES:
                self._kept[job.first, job.last] = known
        return known

    def _work_out(self, samples: NDArray[np.floating]) -> Floats:
        sums, products = np.zeros(len(self.origin)), np.zeros((len(self.origin), len(self.origin)))
        for first in range(0, len(samples), _ROWS_AT_ONCE):
            rows = samples[first : first + _ROWS_AT_ONCE].astype(np.float64) - self.origin
            sums += rows.sum(axis=0)
            products += rows.T @ rows
        return np.concatenate([sums, products[self._upper]]) / len(samples)
