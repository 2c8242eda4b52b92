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
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415  (a second of import time that most callers do not need)

    labels = _both_kinds(is_anomalous)
    return float(roc_auc_score(labels, np.asarray(scores)))


def average_precision(scores: ArrayLike, is_anomalous: ArrayLike) -> float:
    """Return the area under the precision-recall curve, as a step function.

    >>> round(average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 4)
    0.8333
    """
    from sklearn.metrics import average_precision_score  # noqa: PLC0415  (as above)

    labels = _both_kinds(is_anomalous)
    return float(average_precision_score(labels, np.asarray(scores)))


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
