"""What models are worth: each alone, all together, and the mean over the devices that hold them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.fleets import Mean
from tolfl.core.metrics import auroc, lowest_scores
from tolfl.datasets import FederatedDataset
from tolfl.models import ModuleModel
from tolfl.runs.evaluation import Scores, TrainedModel, score_models, train_loss

RNG = np.random.default_rng(0)
DATA = FederatedDataset.from_arrays(
    [RNG.normal(size=(5, 2)), RNG.normal(size=(7, 2))], test=(RNG.normal(size=(30, 2)), np.arange(30) % 2)
)
MODEL = ModuleModel(Mean(2))


def at(*theta: float) -> TrainedModel:
    return TrainedModel(MODEL, np.array(theta, dtype=float))


def test_a_score_is_the_loss_of_a_sample() -> None:
    assert at(1.0, 2.0).anomaly_score(np.array([[1.0, 2.0], [3.0, 3.0]])).tolist() == [0.0, 5.0]
    assert at(1.0, 2.0).tensors()["theta"].tolist() == [1.0, 2.0]


def test_one_model_for_all_is_its_own_mean_and_ensemble() -> None:
    scores = score_models({"global": at(0.5, 0)}, DATA, {"global": 4})

    assert scores.auroc == scores.auroc_all_models == scores.auroc_per_model["global"]


def test_the_mean_is_over_devices_and_of_aurocs_not_of_scores() -> None:
    models = {"global": at(0.5, 0), "device-1": at(-1, 2)}
    scores = score_models(models, DATA, {"global": 3, "device-1": 1})
    each = scores.auroc_per_model

    assert scores.auroc == pytest.approx((3 * each["global"] + each["device-1"]) / 4)
    assert DATA.test is not None
    assert DATA.is_anomalous is not None
    lowest = lowest_scores([model.anomaly_score(DATA.test) for model in models.values()])
    assert scores.auroc_all_models == auroc(lowest, DATA.is_anomalous)


def test_a_duplicate_model_changes_nothing() -> None:
    one = score_models({"a": at(0.5, 0)}, DATA, {"a": 1})
    two = score_models({"a": at(0.5, 0), "b": at(0.5, 0)}, DATA, {"a": 1, "b": 1})

    assert (two.auroc, two.auroc_all_models) == (one.auroc, one.auroc_all_models)


def test_without_a_test_set_or_a_model_there_is_no_score() -> None:
    untested = FederatedDataset.from_arrays([np.ones((2, 2))])

    assert score_models({"global": at(0, 0)}, untested, {"global": 1}) == Scores()
    assert score_models({}, DATA, {}) == Scores()
    assert train_loss({}, DATA, {}) is None


def test_the_training_loss_is_over_all_samples_and_devices() -> None:
    expected = {
        name: float(model.anomaly_score(DATA.pool).mean()) for name, model in (("a", at(0, 0)), ("b", at(1, 1)))
    }

    assert train_loss({"a": at(0, 0)}, DATA, {"a": 2}) == pytest.approx(expected["a"])
    assert train_loss({"a": at(0, 0), "b": at(1, 1)}, DATA, {"a": 3, "b": 1}) == pytest.approx(
        (3 * expected["a"] + expected["b"]) / 4
    )
