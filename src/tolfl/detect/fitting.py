"""From each device's rows to a detector: the fleet scales, trains and calibrates thresholds in rounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import numpy as np

from tolfl.core.errors import DataError, SpecError, TolFLError
from tolfl.core.records import RunEnded
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.datasets.catalog import unscaled
from tolfl.datasets.federated import bounds_of
from tolfl.detect.cells import Cells, CellScaling, Rows, measures_of
from tolfl.detect.detector import Detector
from tolfl.detect.detector_learner import FEWEST_ROWS, DetectorStages
from tolfl.detect.detector_spec import USUAL_ROUNDS, DetectorSpec
from tolfl.detect.features import Features, as_rows
from tolfl.detect.thresholds import limit_for_share
from tolfl.learners.layouts import check_scheme
from tolfl.runs.outcome import fleet_of
from tolfl.sim.batch_trainer import BatchTrainer
from tolfl.sim.simulation import Simulation
from tolfl.tables.schema import word_column


class NoModelError(TolFLError, RuntimeError):
    """Training ended without a model: no device is left."""

    def __init__(self, ended: str) -> None:
        super().__init__(f"training ended without a model ({ended}); leave more devices alive in the failure plan")
        self.ended = ended


class DriftWarning(UserWarning):
    """Samples that should be typical no longer score as they did at calibration."""


OnRound = Callable[[Simulation], None]


def load_training_rows(
    spec: RunSpec, n_devices: int | None = None, fill_missing: bool = False
) -> tuple[FederatedDataset, tuple[str, ...]]:
    """Return the rows that a new detector trains on, by device, and notes for the user.

    The arguments are those of `unscaled`.
    """
    data, notes = unscaled(spec, n_devices, fill_missing)
    return data, (*notes, *_constant(data))


def _constant(data: FederatedDataset) -> list[str]:
    """Return a note on constant columns, in which any other value will be an alarm."""
    if len(data.pool) < FEWEST_ROWS:  # there will be no detector, and another error
        return []
    features = Features.named(data.feature_names)
    is_told = (np.fmin.reduce(data.pool) == np.fmax.reduce(data.pool)) & (measures_of(features.full) == 0)
    names = [features.names[place] for place in np.flatnonzero(is_told) if not word_column(features.names[place])]
    if not names or len(names) > features.n // 2:  # the edges of pictures are constant anyway
        return []
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return [f"constant in all training rows, so that any other value is anomalous: {shown}"]


def fit_detector(
    slices: Mapping[str, object] | FederatedDataset,
    spec: DetectorSpec,
    features: Features | None = None,
    on_round: OnRound = lambda _: None,
) -> Detector:
    """Train a detector on typical rows, one table per device; `on_round` gets the simulation after each round.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = {name: rng.normal(size=(200, 1)) @ [[1.0, 2.0, 3.0]] + 0.01 * rng.normal(size=(200, 3)) for name in "ab"}
    >>> detector = fit_detector(rows, DetectorSpec())
    >>> detector.verdicts([[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]]).tolist()
    [False, True]
    """
    spec.check()
    features = features or _features_of(slices)
    data = _data(slices, features)
    if (n_rows := data.bounds[-1]) < FEWEST_ROWS:
        of = "" if data.name == "arrays" else f"{data.name}: "
        raise DataError(
            f"{of}n_samples={n_rows}: too few rows to train on; a detector takes at least {FEWEST_ROWS} typical ones"
        )
    detector = _learned(data, spec, features, on_round)
    if spec.contamination == "auto":
        return detector
    scores = {name: detector.scores_of(data.slice_of(device)) for device, name in enumerate(data.names)}
    return replace(detector, thresholds=limit_for_share(scores, spec.contamination))


def _learned(
    data: FederatedDataset, spec: DetectorSpec, features: Features, on_round: OnRound, prior: Detector | None = None
) -> Detector:
    run = RunSpec(
        scheme=spec.scheme,
        data="arrays",
        devices=data.n_devices,
        clusters=spec.clusters,
        rounds=spec.rounds or USUAL_ROUNDS,
        fail=spec.fail,
        on_head_failure=spec.on_head_failure,
        seed=spec.seed,
        learn={"what": "detector"},
    ).check()
    check_scheme(run)
    spec = msgspec.structs.replace(spec, fail="")
    learner = DetectorStages(fleet_of(run, data), spec, prior)
    simulation, trainer = Simulation(run, data, learner), BatchTrainer()
    while works := simulation.next_works():
        trainer.compute(works)
        simulation.collect()
        on_round(simulation)
    simulation.collect()
    on_round(simulation)
    state = simulation.outcome().state  # None where each device went on alone, or nobody is left
    detector = None if state is None else learner.detector(state)
    if detector is None:
        raise NoModelError(_ending(simulation))
    return replace(detector, features=features)


def fit_more(
    detector: Detector,
    slices: Mapping[str, object] | FederatedDataset,
    spec: DetectorSpec | None = None,
    on_round: OnRound = lambda _: None,
) -> Detector:
    """Update a detector with new typical rows: its cells move, and thresholds follow the new rows.

    Scaling and number of cells stay. Each cell goes on from its count and sum, the covariance from its scatter, as if
    the rows before had been seen again; thresholds are calibrated anew on rows that are held back now.
    """
    if not isinstance(detector.model, Cells):
        kind = detector.model.kind
        raise SpecError(f"{kind} cannot be updated; fit again, on the old rows and the new ones")
    spec = msgspec.structs.replace(
        spec or detector.spec, model=detector.spec.model, cells=detector.spec.cells, trim=0.0
    )
    data = _data(slices, detector.features)
    _warn_of_columns_that_move(detector, detector.model.scaling, data.pool)
    found = _learned(data, spec.check(), detector.features, on_round, detector)
    own_cells = {name: own for name, own in detector.own_cells.items() if name not in data.names}
    return replace(found, own_cells=own_cells)


def _warn_of_columns_that_move(detector: Detector, scaling: CellScaling, rows: Rows) -> None:
    constant = np.flatnonzero(scaling.is_constant)
    z = scaling(rows) if len(constant) else rows
    if moved := [detector.features.names[place] for place in constant if z[:, place].any()]:
        warnings.warn(
            f"column {moved[0]!r} was constant in training, and is not now; to learn from it, fit anew",
            DriftWarning,
            stacklevel=3,
        )


def _data(slices: Mapping[str, object] | FederatedDataset, features: Features) -> FederatedDataset:
    """Return the rows of all devices, checked."""
    if isinstance(slices, FederatedDataset):
        features.check(slices.pool)
        return slices
    rows = [features.check(X) for X in slices.values()]
    bounds = bounds_of(rows)
    if not bounds[-1]:
        raise DataError("no device has a row to train on")
    pool = rows[0] if len(rows) == 1 else np.concatenate(rows)
    return FederatedDataset("arrays", pool, bounds, feature_names=features.full, names=tuple(slices))


def _ending(simulation: Simulation) -> str:
    ending = simulation.records[-1]
    survivors = ending.survivors if isinstance(ending, RunEnded) else ()
    if survivors and simulation.outcome().state is None:
        return "devices trained alone, each with a model of its own; use on_head_failure elect, drop or freeze"
    return ending.reason if isinstance(ending, RunEnded) else ""


def _features_of(slices: Mapping[str, object] | FederatedDataset) -> Features:
    if isinstance(slices, FederatedDataset):
        return Features.named(slices.feature_names)
    for X in slices.values():
        return Features.named([f"x{place}" for place in range(as_rows(X).shape[1])])
    raise DataError("no device has data; give at least one table")
