"""From each device's rows to a detector: the fleet scales, trains, chooses and agrees on thresholds in rounds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from tolfl.core.errors import DataError
from tolfl.core.records import RunEnded
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.detect.cells import Cells
from tolfl.detect.detector_learner import DetectorStages, learn_of, spec_for_run
from tolfl.detect.features import Features, Rows, as_rows
from tolfl.detect.fitted import Detector
from tolfl.detect.problems import DriftWarning, NoFurtherTrainingError, NoModelError
from tolfl.detect.spec import USUAL_ROUNDS, DetectorSpec
from tolfl.detect.thresholds import limit_for_share
from tolfl.detect.watching import watched
from tolfl.learners.layouts import check_scheme
from tolfl.runs.outcome import fleet_of
from tolfl.sim.simulation import Simulation

FEWEST_ROWS = 10  #: of a detector


def fit_detector(slices: Mapping[str, object], spec: DetectorSpec, features: Features | None = None) -> Detector:
    """Train a detector on typical rows, one table per device.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = {name: rng.normal(size=(200, 1)) @ [[1.0, 2.0, 3.0]] + 0.01 * rng.normal(size=(200, 3)) for name in "ab"}
    >>> detector = fit_detector(rows, DetectorSpec())
    >>> detector.verdicts([[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]]).tolist()
    [False, True]
    """
    spec.check()
    features = features or _features_of(slices)
    rows = _checked(slices, features)
    if (n_rows := sum(map(len, rows.values()))) < FEWEST_ROWS:
        raise DataError(
            f"n_samples={n_rows}: too few rows to train on; a detector takes at least {FEWEST_ROWS} typical ones"
        )
    detector = _learned(rows, spec, features)
    if spec.contamination == "auto":
        return detector
    scores = {name: detector.scores_of(own) for name, own in rows.items()}
    return replace(detector, thresholds=limit_for_share(scores, spec.contamination))


def _learned(
    rows: Mapping[str, Rows], spec: DetectorSpec, features: Features, prior: Detector | None = None
) -> Detector:
    data = _data(rows, features)
    run = run_spec(spec, data.n_devices).check()
    check_scheme(run)
    learner = DetectorStages(fleet_of(run, data), spec_for_run(run), prior)
    simulation = watched(Simulation(run, data, learner))
    detector = _left(learner, simulation)
    if detector is None:
        raise NoModelError(_ending(simulation))
    return replace(detector, features=features, spec=msgspec.structs.replace(spec, fail=""))


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


def fit_more(detector: Detector, slices: Mapping[str, object], spec: DetectorSpec | None = None) -> Detector:
    """Go on from a detector with new typical rows: its cells move, and thresholds follow the new rows.

    Scaling and number of cells stay. Each cell goes on from its count and sum, the covariance from its scatter, as if
    the rows before had been seen again; thresholds are agreed anew on rows that are held back now.
    """
    if not isinstance(detector.model, Cells):
        raise NoFurtherTrainingError(detector.model.kind)
    spec = msgspec.structs.replace(
        spec or detector.spec, model=detector.spec.model, cells=detector.spec.cells, trim=0.0
    )
    rows = _checked(slices, detector.features)
    _warn_of_columns_that_move(detector, rows)
    found = _learned(rows, spec.check(), detector.features, detector)
    return replace(found, own_cells={name: own for name, own in detector.own_cells.items() if name not in rows})


def _warn_of_columns_that_move(detector: Detector, rows: Mapping[str, Rows]) -> None:
    assert isinstance(detector.model, Cells)
    scaling = detector.model.scaling
    has_moved = np.any([(scaling(own)[:, scaling.is_constant] != 0).any(axis=0) for own in rows.values()], axis=0)
    if names := [name for name, moves in zip(_constant_names(detector), has_moved, strict=True) if moves]:
        warnings.warn(
            f"column {names[0]!r} was constant in training, and is not now; to learn from it, fit anew",
            DriftWarning,
            stacklevel=3,
        )


def _constant_names(detector: Detector) -> list[str]:
    assert isinstance(detector.model, Cells)
    return [detector.features.names[place] for place in np.flatnonzero(detector.model.scaling.is_constant)]


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
