"""The estimator: scikit-learn's contract, pipelines, searches, devices, and failures as parameters."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.detect.rows import near_a_plane, off_the_plane
from tolfl.core.errors import SpecError
from tolfl.detect import FederatedDetector
from tolfl.detect.detector_spec import DetectorSpec

X = near_a_plane(300)
DEVICES = np.repeat(["a", "b", "c"], 100)
TEST = np.concatenate([near_a_plane(100, seed=8), off_the_plane(100, seed=9)])
IS_ANOMALOUS = np.repeat([0, 1], 100)
SMALL = {"hidden": (8,), "code": 2, "rounds": 5}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        FederatedDetector(),
        FederatedDetector(model="pca", false_alarm_rate=0.05),
        FederatedDetector(model="autoencoder", rounds=2, hidden=(4,), code=2, false_alarm_rate=0.05),
    ]
)
def test_the_estimator_keeps_the_contract_of_scikit_learn(
    estimator: FederatedDetector, check: Callable[[FederatedDetector], None]
) -> None:
    check(estimator)


def test_the_defaults_of_the_estimator_are_those_of_the_specification() -> None:
    assert FederatedDetector().spec() == DetectorSpec()


@pytest.mark.parametrize("model", ["pca", "mahalanobis", "cells"])
def test_scores_verdicts_and_signs_go_together(model: str) -> None:
    detector = FederatedDetector(model=model).fit(X, devices=DEVICES)
    scores = detector.anomaly_score(TEST)

    assert roc_auc_score(IS_ANOMALOUS, scores) > 0.99
    assert (detector.score_samples(TEST) == -scores).all()
    assert (detector.decision_function(TEST) == detector.threshold_ - scores).all()
    assert ((detector.predict(TEST) == -1) == (scores > detector.threshold_)).all()
    assert detector.p_values(TEST[:100]).mean() > 0.3 > 0.1 > detector.p_values(TEST[100:]).mean()
    assert (detector.fit_predict(X, devices=DEVICES) == detector.predict(X)).all()


def test_a_score_does_not_depend_on_the_company() -> None:
    detector = FederatedDetector(model="autoencoder", **SMALL).fit(X)  # type: ignore[arg-type]
    together = detector.anomaly_score(TEST)

    alone = [detector.anomaly_score(row[None, :])[0] for row in TEST[:20]]

    assert together[:20].tolist() == alone
    assert detector.anomaly_score(TEST[::-1])[::-1].tolist() == together.tolist()


def test_without_devices_all_rows_are_one_device() -> None:
    assert FederatedDetector(model="pca").fit(X).devices_ == ("all",)
    assert FederatedDetector(model="pca").fit(X, devices=np.arange(300) % 12).devices_ == tuple(map(str, range(12)))


@pytest.mark.parametrize("scheme", ["tol-fl", "fl", "sbt"])
def test_pca_is_the_same_with_every_scheme_that_has_one_model(scheme: str) -> None:
    reference = FederatedDetector(model="pca", n_components=2).fit(X, devices=DEVICES)
    other = FederatedDetector(model="pca", n_components=2, scheme=scheme, clusters=1).fit(X, devices=DEVICES)

    np.testing.assert_allclose(other.anomaly_score(TEST), reference.anomaly_score(TEST), rtol=1e-4)


def test_losing_a_head_costs_that_device_and_no_more() -> None:
    plane = FederatedDetector(model="pca", n_components=2, scaling="none", clusters=2)
    killed = clone(plane).set_params(fail="server@1").fit(X, devices=DEVICES)
    without = clone(plane).fit(X[100:], devices=DEVICES[100:])
    training = killed.detector_.trainings[0]

    assert training.survivors == ("b", "c")
    assert [device.rounds for device in training.devices] == [1, 4, 4]
    assert training.n_samples == 160
    assert set(killed.detector_.thresholds.devices) == {"b", "c"}
    # Who is held back is drawn by a device's number, and b is number 1 in one fleet and 0 in the other.
    assert np.corrcoef(killed.anomaly_score(TEST), without.anomaly_score(TEST))[0, 1] > 0.999


def test_each_device_can_be_judged_by_its_own_threshold() -> None:
    rows = np.concatenate([near_a_plane(1000), near_a_plane(1000, seed=1, noise=0.5)])
    devices = np.repeat(["quiet", "noisy"], 1000)
    detector = FederatedDetector(model="pca", n_components=2).fit(rows, devices=devices)
    new = near_a_plane(1000, seed=2, noise=0.5)
    by_fleet, by_device = (detector.predict(new, devices=names) for names in (None, ["noisy"] * 1000))

    assert (by_fleet == -1).mean() > (by_device == -1).mean()
    assert (detector.predict(new, devices=["stranger"] * 1000) == by_fleet).all()


def test_it_works_at_the_end_of_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), FederatedDetector(model="pca"))
    pipeline.fit(X, federateddetector__devices=DEVICES)

    assert roc_auc_score(IS_ANOMALOUS, -pipeline.score_samples(TEST)) > 0.99
    assert pipeline[-1].devices_ == ("a", "b", "c")


def test_devices_are_routed_through_a_search_and_a_pipeline() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        detector = FederatedDetector(model="pca").set_fit_request(devices=True)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), detector),
            {"federateddetector__n_components": [0, 2, 5]},
            scoring=lambda estimator, rows, y: roc_auc_score(y, -estimator.score_samples(rows)),
            cv=KFold(4, shuffle=True, random_state=0),
        )
        search.fit(TEST, IS_ANOMALOUS, devices=np.arange(200) % 4)

    assert search.best_estimator_[-1].devices_ == ("0", "1", "2", "3")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_fitted_estimator_can_be_cloned_and_copied() -> None:
    detector = FederatedDetector(model="pca", fail="device:1@0").fit(X, devices=DEVICES)
    copied = deepcopy(detector)

    assert copied.anomaly_score(TEST).tolist() == detector.anomaly_score(TEST).tolist()
    with pytest.raises(NotFittedError):
        clone(detector).predict(TEST)


def test_training_goes_on_with_cells_and_only_with_those() -> None:
    detector = FederatedDetector().fit(X, devices=DEVICES)
    more = deepcopy(detector).fit_more(near_a_plane(300, seed=3), devices=DEVICES)
    pca = FederatedDetector(model="pca").fit(X, devices=DEVICES)
    before = pca.detector_

    assert [training.n_samples for training in more.detector_.trainings] == [240, 480]
    assert roc_auc_score(IS_ANOMALOUS, more.anomaly_score(TEST)) > 0.99
    with pytest.raises(SpecError, match="pca cannot be updated; fit again"):
        pca.fit_more(X, devices=DEVICES)
    assert pca.detector_ is before


@pytest.mark.parametrize("model", ["mahalanobis", "autoencoder"])
def test_drift_is_found(model: str) -> None:
    detector = FederatedDetector(model=model, **SMALL).fit(X, devices=DEVICES)  # type: ignore[arg-type]
    same, moved = (detector.drift(near_a_plane(300, seed=5) + shift, devices=DEVICES) for shift in (0.0, 2.0))

    assert not same.is_drifting
    assert moved.is_higher
    assert moved.drifting_devices == ("a", "b", "c")
