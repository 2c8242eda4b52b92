"""Plain baselines: the distance to the mean vector, and PCA reconstruction. No rounds, no failures, all data pooled.

Every table has them, because they often beat an autoencoder.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Vector
from tolfl.core.metrics import auroc, average_precision
from tolfl.datasets import FederatedDataset
from tolfl.runs.evaluation import Scores

Score = Callable[[Vector], NDArray[np.float64]]
PlainBaseline = Callable[[Vector], Score]

_ROWS_AT_ONCE = 16_384


def mean_vector(samples: Vector) -> Score:
    """Return the squared distance to the mean of all training samples."""
    mean, _ = _moments(samples, with_covariance=False)
    return lambda test: np.sum(np.square(_flat(test) - mean), axis=1)


def pca(samples: Vector, n_components: int) -> Score:
    """Return the squared error of a reconstruction from `n_components` principal components."""
    is_wide = len(samples) < samples[0].size  # then a covariance is larger than the rows, and far slower
    mean, covariance = _moments(samples, with_covariance=not is_wide)
    if is_wide:
        directions = np.linalg.svd(_flat(samples) - mean, full_matrices=False)[2][:n_components].T
    else:
        # From the covariance, in pieces: scikit-learn's PCA would need copies of data that may fill the memory.
        directions = np.linalg.eigh(covariance)[1][:, ::-1][:, :n_components]

    def score(test: Vector) -> NDArray[np.float64]:
        centred = _flat(test) - mean
        error: NDArray[np.float64] = centred - (centred @ directions) @ directions.T
        return np.asarray(np.square(error).sum(axis=1), dtype=np.float64)

    return score


#: By the name that specifications and tables use.
PLAIN_BASELINES: dict[str, PlainBaseline] = {
    "mean-vector": mean_vector,
    "pca-16": lambda samples: pca(samples, 16),
    "pca-32": lambda samples: pca(samples, 32),
}


#: A comparison asks once per scheme, and each answer takes an eigendecomposition.
_baseline_scores: WeakKeyDictionary[FederatedDataset, dict[str, float]] = WeakKeyDictionary()


def baseline_scores(data: FederatedDataset) -> dict[str, float]:
    """Return the AUROC of every plain baseline that makes sense on the data; they belong into every table."""
    if data.test is None or data.is_anomalous is None:
        return {}
    if data not in _baseline_scores:
        fitted = {name: baseline(data.pool) for name, baseline in PLAIN_BASELINES.items() if _fits(name, data)}
        _baseline_scores[data] = {name: auroc(score(data.test), data.is_anomalous) for name, score in fitted.items()}
    return dict(_baseline_scores[data])


def plain_scores(scheme: str, data: FederatedDataset) -> Scores:
    """Return the scores of one plain baseline, as of a run's only model."""
    if data.test is None or data.is_anomalous is None:
        return Scores()
    values = PLAIN_BASELINES[scheme](data.pool)(data.test)
    value = auroc(values, data.is_anomalous)
    return Scores(value, average_precision(values, data.is_anomalous), {scheme: value}, value)


def _fits(name: str, data: FederatedDataset) -> bool:
    """Return whether a baseline makes sense: PCA with all components reconstructs everything."""
    n_components = int(name.removeprefix("pca-")) if name.startswith("pca-") else 0
    return n_components < min(data.n_features, len(data.pool))


def _flat(samples: Vector) -> NDArray[np.float64]:
    return samples.reshape(len(samples), -1).astype(np.float64)


def _moments(samples: Vector, with_covariance: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    pieces = [samples[first : first + _ROWS_AT_ONCE] for first in range(0, len(samples), _ROWS_AT_ONCE)]
    mean = np.sum([_flat(piece).sum(axis=0) for piece in pieces], axis=0) / len(samples)
    covariance = np.zeros((len(mean), len(mean)) if with_covariance else (0, 0))
    if with_covariance:
        for piece in pieces:
            centred = _flat(piece) - mean
            covariance += centred.T @ centred
    return mean, covariance / len(samples)
