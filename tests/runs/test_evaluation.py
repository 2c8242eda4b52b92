"""What models are worth: each alone, all together, and the mean over the devices that hold them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.fleets import Mean
from tolfl.core.metrics import auroc, lowest_scores
from tolfl.datasets import FederatedDataset
from tolfl.learners.torch_module import ModuleModel
from tolfl.learners.training import TrainedModel
from tolfl.runs.evaluation import Scores, choose_model, mean_loss, mean_over_devices, score_models

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


def test_a_duplicate_model_changes_no_score_of_several_models() -> None:
    models = {"a": at(0.5, 0), "b": at(-1, 2)}
    two = score_models(models, DATA, {"a": 2, "b": 2})
    three = score_models({**models, "c": at(-1, 2)}, DATA, {"a": 2, "b": 1, "c": 1})

    assert three.auroc == pytest.approx(two.auroc, rel=1e-12)
    assert three.auroc_all_models == two.auroc_all_models
    assert three.auroc_best == two.auroc_best
    assert (three.auroc_chosen, three.chosen_model) == (two.auroc_chosen, two.chosen_model)


def test_the_best_model_is_the_one_with_the_highest_auroc() -> None:
    models = {f"m{i}": at(float(i), -float(i)) for i in range(-2, 3)}
    scores = score_models(models, DATA, dict.fromkeys(models, 1))

    assert scores.auroc_best == max(scores.auroc_per_model.values())
    assert scores.auroc_best > min(scores.auroc_per_model.values())
    assert scores.auroc is not None
    assert scores.auroc_best >= scores.auroc


def test_the_chosen_model_has_the_least_loss_on_samples_that_were_held_back() -> None:
    held_back = FederatedDataset.from_arrays(
        [np.full((5, 2), 3.0)], test=(RNG.normal(size=(30, 2)), np.arange(30) % 2), validation=np.full((4, 2), -2.0)
    )
    models = {"near training": at(3, 3), "near validation": at(-2, -2)}
    scores = score_models(models, held_back, dict.fromkeys(models, 1))

    assert (scores.chosen_model, scores.chosen_by) == ("near validation", "validation loss")
    assert scores.auroc_chosen == scores.auroc_per_model["near validation"]


def test_without_samples_held_back_the_training_loss_decides() -> None:
    data = FederatedDataset.from_arrays(
        [np.full((5, 2), 3.0), np.full((1, 2), -2.0)], test=(RNG.normal(size=(30, 2)), np.arange(30) % 2)
    )
    models = {"near few": at(-2, -2), "near most": at(3, 3)}
    scores = score_models(models, data, dict.fromkeys(models, 1))

    assert (scores.chosen_model, scores.chosen_by) == ("near most", "training loss")
    assert choose_model({"only": at(9, 9)}, data) == ("only", "training loss")


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_no_choice_and_no_mean_is_above_the_best_single_model(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    models = {f"m{i}": at(*rng.normal(0, 1, 2)) for i in range(m)}
    scores = score_models(models, DATA, {name: int(rng.integers(0, 4)) for name in models})

    assert scores.auroc_best is not None
    assert scores.auroc_chosen is not None
    assert scores.auroc is not None
    assert scores.auroc_best >= scores.auroc_chosen
    assert scores.auroc_best >= scores.auroc - 1e-12
    if m == 1:
        assert scores.auroc_best == scores.auroc_chosen == scores.auroc_all_models


def test_a_model_that_nobody_uses_counts_only_where_nobody_uses_any() -> None:
    values = {"a": 0.5, "b": 0.9}

    assert mean_over_devices(values, {"a": 3, "b": 0}) == 0.5
    assert mean_over_devices(values, {"a": 1, "b": 3}) == pytest.approx(0.8)
    assert mean_over_devices(values, {"a": 0, "b": 0}) == pytest.approx(0.7)


def test_all_models_together_take_the_least_score_of_each_sample() -> None:
    data = FederatedDataset.from_arrays(
        [np.zeros((2, 2))], test=(np.array([[0, 0], [5, 5], [2, 2], [3, 3]]), [0, 0, 1, 1])
    )
    one = score_models({"a": at(0, 0)}, data, {"a": 1})
    both = score_models({"a": at(0, 0), "b": at(5, 5)}, data, {"a": 1, "b": 1})

    assert one.auroc_all_models == 0.5
    assert both.auroc_all_models == 1.0
    assert both.auroc_per_model == {"a": 0.5, "b": 0.5}


def test_without_a_test_set_or_a_model_there_is_no_score() -> None:
    untested = FederatedDataset.from_arrays([np.ones((2, 2))])

    assert score_models({"global": at(0, 0)}, untested, {"global": 1}) == Scores()
    assert score_models({}, DATA, {}) == Scores()
    assert mean_loss({}, DATA.pool, {}) is None


def test_the_training_loss_is_over_all_samples_and_devices() -> None:
    expected = {
        name: float(model.anomaly_score(DATA.pool).mean()) for name, model in (("a", at(0, 0)), ("b", at(1, 1)))
    }

    assert mean_loss({"a": at(0, 0)}, DATA.pool, {"a": 2}) == pytest.approx(expected["a"])
    assert mean_loss({"a": at(0, 0), "b": at(1, 1)}, DATA.pool, {"a": 3, "b": 1}) == pytest.approx(
        (3 * expected["a"] + expected["b"]) / 4
    )
