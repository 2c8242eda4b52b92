"""How good a detector is: AUROC, average precision, and the scores of an ensemble."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolfl.core.errors import DataError


def auroc(scores: ArrayLike, is_anomalous: ArrayLike) -> float:
    """Return the probability that an anomalous sample scores above a typical one; ties count one half.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """
    labels, values = _both_kinds(is_anomalous), np.asarray(scores)
    typical, anomalous = np.sort(values[~labels]), values[labels]
    n_below = np.searchsorted(typical, anomalous, "left").sum(dtype=np.int64)
    n_not_above = np.searchsorted(typical, anomalous, "right").sum(dtype=np.int64)
    return float((n_below + n_not_above) / (2 * typical.size * anomalous.size))


def average_precision(scores: ArrayLike, is_anomalous: ArrayLike) -> float:
    """Return the area under the precision-recall curve, as a step function.

    >>> round(average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 4)
    0.8333
    """
    labels, values = _both_kinds(is_anomalous), np.asarray(scores)
    order = np.argsort(-values, kind="stable")
    n_found = np.cumsum(labels[order])
    # Samples of one score are found together: the last of them counts.
    is_last = np.append(np.diff(values[order]) != 0, True)
    n_found, n_looked_at = n_found[is_last], np.flatnonzero(is_last) + 1
    return float(np.sum(np.diff(n_found, prepend=0) * (n_found / n_looked_at)) / n_found[-1])


def _both_kinds(is_anomalous: ArrayLike) -> NDArray[np.bool_]:
    labels = np.asarray(is_anomalous).astype(bool)
    if labels.all() or not labels.any():
        raise DataError("the test set needs typical samples (0) and anomalous ones (1) to be scored")
    return labels


def lowest_scores(scores: Sequence[ArrayLike]) -> NDArray[np.float64]:
    """Return each sample's lowest score over the models: typical is what at least one model explains.

    >>> lowest_scores([[1, 5, 9], [4, 2, 8]]).tolist()
    [1.0, 2.0, 8.0]
    """
    lowest: NDArray[np.float64] = np.min(np.asarray(scores, dtype=np.float64), axis=0)
    return lowest
