"""From each device's rows to a detector: the fleet scales, trains, chooses and agrees on thresholds in rounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError, SpecError, TolFLError
from tolfl.core.records import AnyRecord, RunEnded
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.datasets.unscaled import unscaled
from tolfl.detect.cells import Cells
from tolfl.detect.detector import Detector
from tolfl.detect.detector_learner import FEWEST_ROWS, DetectorStages, learn_of, spec_for_run
from tolfl.detect.detector_spec import USUAL_ROUNDS, DetectorSpec
from tolfl.detect.feature_names import Features, Rows, as_rows
from tolfl.detect.measures import measures_of
from tolfl.detect.thresholds import limit_for_share
from tolfl.learners.layouts import check_scheme
from tolfl.runs.outcome import fleet_of
from tolfl.sim.batch_trainer import BatchTrainer
from tolfl.sim.simulation import Progress, Simulation
from tolfl.tables import Schema
from tolfl.tables.schema import word_column


class NoModelError(TolFLError, RuntimeError):
    """Training left no model behind: every device is gone."""

    def __init__(self, ended: str) -> None:
        super().__init__(f"training left no model ({ended}); leave more devices alive in the failure plan")
        self.ended = ended


class NoFurtherTrainingError(SpecError):
    """A detector was to go on training from where it is."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"{kind} does not go on from where it is; fit anew, on the old rows and the new ones")
        self.kind = kind


class DriftWarning(UserWarning):
    """Samples that should be typical no longer score as they did at calibration."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """Typical rows of each device, and rows with known truth that nobody trains on, where the data have any."""

    slices: dict[str, Rows]
    features: Features
    schema: Schema | None = None
    test: tuple[Rows, NDArray[np.bool_]] | None = None
    notes: tuple[str, ...] = field(default=())
    networks: NDArray[np.uint64] | None = None  #: in captures of 802.11; they are not to leave the device


def gather(spec: RunSpec, n_devices: int | None = None, fill_missing: bool = False) -> Gathered:
    """Return the rows that a new detector trains on; the arguments are those of `unscaled`."""
    data, notes = unscaled(spec, n_devices, fill_missing)
    test = None if data.test is None or data.is_anomalous is None else (data.test, data.is_anomalous)
    slices = {name: data.slice_of(device) for device, name in enumerate(data.names)}
    features = Features.named(data.feature_names)
    schema = data.schema if data.schema is None else msgspec.structs.replace(data.schema, fill_missing=fill_missing)
    told = (*notes, *_constant(list(slices.values()), features))
    return Gathered(slices, features, schema, test, told, data.networks)


def _constant(slices: Sequence[Rows], features: Features) -> list[str]:
    if sum(map(len, slices)) < FEWEST_ROWS:  # there will be no detector, and another sentence
        return []
    low = np.fmin.reduce([np.fmin.reduce(own) for own in slices if len(own)])
    high = np.fmax.reduce([np.fmax.reduce(own) for own in slices if len(own)])
    is_told = (low == high) & (measures_of(features.full) == 0)
    names = [features.names[place] for place in np.flatnonzero(is_told) if not word_column(features.names[place])]
    if not names or len(names) > features.n // 2:  # the edges of pictures are no news
        return []
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return [f"constant in all training rows, so that any other value is anomalous: {shown}"]


@dataclass(frozen=True)
class Seen:
    """How far a training is, and what has happened since the last time."""

    progress: Progress
    records: Sequence[AnyRecord]


Watcher = Callable[[Seen], None]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Tell `watcher` about every round that is trained inside the context."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def watched(simulation: Simulation) -> Simulation:
    """Compute a simulation to its end, telling whoever watches; return it."""
    watcher, trainer, n_told = _watcher.get(), BatchTrainer(), 0
    while works := simulation.next_works():
        trainer.compute(works)
        simulation.collect()
        if watcher is not None:
            watcher(Seen(_progress(simulation), simulation.records[n_told:]))
        n_told = len(simulation.records)
    simulation.collect()
    if watcher is not None:
        watcher(Seen(_progress(simulation), simulation.records[n_told:]))
    return simulation


def _progress(simulation: Simulation) -> Progress:
    learner, done = simulation.learner, simulation.rounds_done
    loss = simulation.accounts[-1].loss if simulation.accounts else None
    return Progress(done, learner.rounds, loss, learner.all_stages())


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
    the rows before had been seen again; thresholds are calibrated anew on rows that are held back now.
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
    return FederatedDataset(
        "arrays", one_table(list(rows.values())), bounds, feature_names=features.full, names=tuple(rows)
    )


def one_table(tables: Sequence[Rows]) -> Rows:
    """Return all rows as one array: without a copy if the tables are neighbouring parts of one."""
    whole = tables[0].base
    if len(tables) == 1:
        return tables[0]
    if isinstance(whole, np.ndarray) and whole.ndim == 2 and whole.flags.c_contiguous:
        first = (_address(tables[0]) - _address(whole)) // max(whole.strides[0], 1)
        found = whole[first : first + sum(map(len, tables))]
        bounds = np.cumsum([0, *map(len, tables[:-1])]).tolist()
        if all(_is_part(own, found[bound : bound + len(own)]) for own, bound in zip(tables, bounds, strict=True)):
            return found
    return np.concatenate(tables)


def _is_part(rows: Rows, part: Rows) -> bool:
    is_alike = (rows.dtype, rows.shape, rows.strides) == (part.dtype, part.shape, part.strides)
    return is_alike and (not len(rows) or _address(rows) == _address(part))


def _address(rows: Rows) -> int:
    address: int = rows.__array_interface__["data"][0]
    return address


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
