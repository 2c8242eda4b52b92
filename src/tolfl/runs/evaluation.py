"""Scores of a run's models on the test set: each alone, all together, and the mean over isolated devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DivergedError
from tolfl.core.metrics import auroc, average_precision, lowest_scores
from tolfl.datasets import FederatedDataset
from tolfl.learners import Scorer


@dataclass(frozen=True)
class Scores:
    """AUROC and related scores; None where there is no test set."""

    auroc: float | None = None
    average_precision: float | None = None
    auroc_per_model: dict[str, float] = field(default_factory=dict)
    auroc_all_models: float | None = None  #: all models together: the least of their scores, sample by sample
    auroc_best: float | None = None  #: of the best single model: an oracle, chosen on the test set
    auroc_chosen: float | None = None  #: of the single model that one would choose without the test set
    chosen_model: str | None = None
    chosen_by: str | None = None  #: `validation loss`, or `training loss` where nothing was held back


def score_models(models: Mapping[str, Scorer], data: FederatedDataset, holders: Mapping[str, int]) -> Scores:
    """Score every model on the whole test set.

    `holders` says how many live devices hold each model. `auroc` is the mean over devices: with one model for all, its
    own; where devices went on alone, the mean of theirs (never the AUROC of a mean score).
    """
    if data.test is None or data.is_anomalous is None or not models:
        return Scores()
    scores = {name: model.anomaly_score(data.test) for name, model in models.items()}
    for name, values in scores.items():
        if not np.isfinite(values).all():
            raise DivergedError(f"a score of model {name!r}")
    per_model = {name: auroc(values, data.is_anomalous) for name, values in scores.items()}
    precision = {name: average_precision(values, data.is_anomalous) for name, values in scores.items()}
    chosen, chosen_by = choose_model(models, data)
    return Scores(
        auroc=mean_over_devices(per_model, holders),
        average_precision=mean_over_devices(precision, holders),
        auroc_per_model=per_model,
        auroc_all_models=auroc(lowest_scores(list(scores.values())), data.is_anomalous),
        auroc_best=max(per_model.values()),
        auroc_chosen=per_model[chosen],
        chosen_model=chosen,
        chosen_by=chosen_by,
    )


def choose_model(models: Mapping[str, Scorer], data: FederatedDataset) -> tuple[str, str]:
    """Return the model with the least loss on held-back typical samples (without any: on all training samples)."""
    samples, name = (data.pool, "training loss") if data.validation is None else (data.validation, "validation loss")
    if len(models) == 1:
        return next(iter(models)), name
    losses = {key: float(np.mean(model.anomaly_score(samples), dtype=np.float64)) for key, model in models.items()}
    return min(losses, key=losses.__getitem__), name


def mean_over_devices(values: Mapping[str, float], holders: Mapping[str, int]) -> float:
    """Return the mean over devices of a number of each model; of the models, where no device uses any of them."""
    weights = np.array([holders[name] for name in values], dtype=float)
    return float(np.average(list(values.values()), weights=weights if weights.any() else None))


def mean_loss(
    models: Mapping[str, Scorer], samples: NDArray[np.float32] | None, holders: Mapping[str, int]
) -> float | None:
    """Return the mean loss over samples, dropout off; with several models, the mean over devices."""
    if not models or samples is None or not samples.size:
        return None
    losses = {name: float(np.mean(model.anomaly_score(samples), dtype=np.float64)) for name, model in models.items()}
    return next(iter(losses.values())) if len(losses) == 1 else mean_over_devices(losses, holders)
