"""What a run's models are worth on the test set: each alone, all together, and the mean over devices that are alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from tolfl.core.contribution import Vector
from tolfl.core.errors import NonFiniteModelError
from tolfl.core.metrics import auroc, average_precision, lowest_scores
from tolfl.datasets import FederatedDataset
from tolfl.models import Model


@dataclass(frozen=True)
class TrainedModel:
    """A model that has been trained: it scores samples, and can be taken away as arrays or as an `nn.Module`."""

    model: Model
    params: Vector

    def anomaly_score(self, samples: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return one score per sample: the higher, the more anomalous."""
        return self.model.sample_losses(self.params, np.asarray(samples, dtype=self.params.dtype))

    def tensors(self) -> dict[str, NDArray[np.floating]]:
        """Return the parameters by name."""
        return self.model.tensors(self.params)

    def to_module(self) -> nn.Module:
        """Return a PyTorch module in eval mode with these parameters."""
        return self.model.to_module(self.params)


@dataclass(frozen=True)
class Scores:
    """AUROC and its kin; None where there is no test set."""

    auroc: float | None = None
    average_precision: float | None = None
    auroc_per_model: dict[str, float] = field(default_factory=dict)
    auroc_all_models: float | None = None


def score_models(models: Mapping[str, TrainedModel], data: FederatedDataset, holders: Mapping[str, int]) -> Scores:
    """Score every model on the whole test set.

    `holders` says how many live devices hold each model. `auroc` is the mean over devices: with one model for all, its
    own; where devices went on alone, the mean of theirs (never the AUROC of a mean score).
    """
    if data.test is None or data.is_anomalous is None or not models:
        return Scores()
    scores = {name: model.anomaly_score(data.test) for name, model in models.items()}
    for name, values in scores.items():
        if not np.isfinite(values).all():
            raise NonFiniteModelError(f"a score of model {name!r}")
    per_model = {name: auroc(values, data.is_anomalous) for name, values in scores.items()}
    precision = {name: average_precision(values, data.is_anomalous) for name, values in scores.items()}
    weights = [holders[name] for name in models]
    return Scores(
        auroc=float(np.average(list(per_model.values()), weights=weights)),
        average_precision=float(np.average(list(precision.values()), weights=weights)),
        auroc_per_model=per_model,
        auroc_all_models=auroc(lowest_scores(list(scores.values())), data.is_anomalous),
    )


def train_loss(models: Mapping[str, TrainedModel], data: FederatedDataset, holders: Mapping[str, int]) -> float | None:
    """Return the mean loss over all training samples, dropout off; with several models, the mean over devices."""
    if not models or not len(data.pool):
        return None
    losses = [float(np.mean(model.anomaly_score(data.pool))) for model in models.values()]
    return float(np.average(losses, weights=[holders[name] for name in models]))
