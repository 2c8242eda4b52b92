"""From each device's rows to a detector: the fleet scales, trains, chooses and agrees on thresholds in rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tolfl.core.errors import DataError
from tolfl.core.records import RunEnded
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.detect.detector_learner import DetectorStages, detector_learner, learn_of
from tolfl.detect.features import Features, Rows, as_rows
from tolfl.detect.fitted import Detector
from tolfl.detect.problems import NoFurtherTrainingError, NoModelError
from tolfl.detect.spec import USUAL_ROUNDS, DetectorSpec
from tolfl.detect.watching import watched
from tolfl.learners.layouts import check_scheme
from tolfl.runs.outcome import fleet_of
from tolfl.sim.simulation import Simulation


def fit_detector(slices: Mapping[str, object], spec: DetectorSpec, features: Features | None = None) -> Detector:
    """Train a detector on typical rows, one table per device.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = {name: rng.normal(size=(200, 1)) @ [[1.0, 2.0, 3.0]] + 0.01 * rng.normal(size=(200, 3)) for name in "ab"}
    >>> detector = fit_detector(rows, DetectorSpec(model="pca"))
    >>> detector.choice.code, detector.verdicts([[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]]).tolist()
    (1, [False, True])
    """
    spec.check()
    features = features or _features_of(slices)
    data = _data(_checked(slices, features), features)
    run = run_spec(spec, data.n_devices).check()
    check_scheme(run)
    learner = detector_learner(fleet_of(run, data))
    simulation = watched(Simulation(run, data, learner))
    detector = _left(learner, simulation)
    if detector is None:
        raise NoModelError(_ending(simulation))
    return replace(detector, features=features)


def run_spec(spec: DetectorSpec, n_devices: int) -> RunSpec:
    """Return the run that learns a detector."""
    return RunSpec(
        scheme=spec.scheme,
        data="arrays",
        devices=n_devices,
        clusters=spec.clusters,
        rounds=spec.rounds or USUAL_ROUNDS,
        fail=spec.fail,
        on_head_failure=spec.on_head_failure,
        seed=spec.seed,
        learn={"what": "detector", **learn_of(spec)},
    )


def fit_more(detector: Detector, slices: Mapping[str, object], spec: DetectorSpec | None = None) -> Detector:  # noqa: ARG001
    """Refuse to go on training on new rows: say what to do instead."""
    raise NoFurtherTrainingError


def _data(rows: Mapping[str, Rows], features: Features) -> FederatedDataset:
    bounds = tuple(int(bound) for bound in np.cumsum([0, *map(len, rows.values())]))
    pool = np.concatenate(list(rows.values()))
    return FederatedDataset("arrays", pool, bounds, feature_names=features.names, names=tuple(rows))


def _left(learner: DetectorStages, simulation: Simulation) -> Detector | None:
    """Return the detector that the fleet leaves; none where each device went on alone, or nobody is left."""
    state = simulation.outcome().state
    return None if state is None else learner.detector(state)


def _ending(simulation: Simulation) -> str:
    ending = simulation.records[-1]
    survivors = ending.survivors if isinstance(ending, RunEnded) else ()
    if survivors and simulation.outcome().state is None:
        return "devices went on alone, each with a model of its own; use on_head_failure elect, drop or freeze"
    return ending.reason if isinstance(ending, RunEnded) else ""


def _features_of(slices: Mapping[str, object]) -> Features:
    for X in slices.values():
        return Features.of(X, as_rows(X).shape[1])
    raise DataError("no device has data; give at least one table")


def _checked(slices: Mapping[str, object], features: Features) -> dict[str, Rows]:
    checked = {name: features.check(X) for name, X in slices.items()}
    if not any(map(len, checked.values())):
        raise DataError("no device has a single row to train on")
    return checked
