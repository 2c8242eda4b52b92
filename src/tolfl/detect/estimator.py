"""`FederatedDetector`: a scikit-learn outlier detector for data that is distributed over devices."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tolfl.core.errors import DataError, SpecError
from tolfl.datasets.catalog import THE_DEVICE
from tolfl.datasets.federated import in_order
from tolfl.datasets.split import is_typical_by_name
from tolfl.detect.cells import Rows
from tolfl.detect.detector import Detector, Devices, Names, device_labels, is_frame, rows_of_frame
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.features import Explanation, Features
from tolfl.detect.fitting import fit_detector, fit_more
from tolfl.detect.thresholds import Drift, Thresholds, drift_of
from tolfl.tables import Block, Roles, Schema, blocks_of, settle, values
from tolfl.tables.schema import note_of

_LOG = logging.getLogger(__name__)


class FederatedDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Detects anomalies with a model that devices train together, any of which may fail.

    Rows handed to `fit` are typical. `devices` names the device of each row; without it all rows belong to
    one device. Scaling, model and thresholds are computed as in a fleet: moments, parameters and counts are sent, rows
    are not.

    Parameters
    ----------
    model
        "cells" scores by the distance to the nearest of at most 32 cells that the typical rows were divided into, all
        with one shrunk covariance; "mahalanobis" is that with one cell. "pca" and "autoencoder" score by what they
        leave unexplained.
    cells
        At most so many; None: 32, and never more than one for ten rows.
    n_components
        Of PCA; None: as many as explain 90 % of the variance.
    hidden, code, dropout, lr
        Of the autoencoder and its training. The code is no wider than half of the features.
    scheme, clusters, rounds, fail, on_head_failure
        How the devices train, and what goes wrong meanwhile, as in `tolfl.simulate`. Devices are numbered in the order
        of their names; `rounds` are those of the autoencoder (100). A failure plan counts the rounds of all stages:
        those of cells are scaling (5), cells (14, or 1 for one cell), scatter (1) and thresholds (2).
    scaling
        Of PCA and the autoencoder: "min-max", "standard" or "none". Cells have a scaling of their own.
    held_back
        Share of each device's rows in the calibration set, from which thresholds are found.
    trim
        Share of the rows that may be anomalous: the most distant ones are left out of cells and covariance.
    false_alarm_rate
        The share of typical rows that may raise an alarm, or `alarms_per_day` out of `windows_per_day` rows. It becomes
        a threshold by the held-back scores; `promise_` says what is expected of it, and whether that is guaranteed.
    contamination
        "auto", or a share: then the threshold is such that this share of the training rows themselves is anomalous, as
        in scikit-learn's own detectors, and `false_alarm_rate` is not used.
    columns, ignore
        Of frames: the only columns to learn from, whatever they look like; columns to leave out.
    features, units
        Names and units of the columns, where X does not bring them (a frame's columns, an Arrow field's metadata).
    seed
        Of everything that is drawn.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1)) @ [[1.0, 2.0, 3.0]] + 0.01 * rng.normal(size=(300, 3))
    >>> detector = FederatedDetector(fail="server@0").fit(X, devices=np.arange(300) % 3)
    >>> detector.predict([[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]]).tolist()
    [1, -1]
    >>> detector.explain([1.0, 2.0, -3.0]).features[0].name
    'x2'
    """

    def __init__(  # noqa: PLR0913  (scikit-learn: every setting is an argument)
        self,
        *,
        model: str = "cells",
        cells: int | None = None,
        n_components: int | None = None,
        hidden: tuple[int, ...] = (128, 64),
        code: int = 32,
        dropout: float = 0.2,
        lr: float | None = None,
        scheme: str = "tol-fl",
        clusters: int | None = None,
        rounds: int | None = None,
        fail: str = "",
        on_head_failure: str = "",
        scaling: str = "min-max",
        held_back: float = 0.2,
        trim: float = 0.0,
        false_alarm_rate: float = 0.01,
        alarms_per_day: float | None = None,
        windows_per_day: float | None = None,
        contamination: float | str = "auto",
        columns: Sequence[str] | None = None,
        ignore: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        units: Mapping[str, str] | Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.cells = cells
        self.n_components = n_components
        self.hidden = hidden
        self.code = code
        self.dropout = dropout
        self.lr = lr
        self.scheme = scheme
        self.clusters = clusters
        self.rounds = rounds
        self.fail = fail
        self.on_head_failure = on_head_failure
        self.scaling = scaling
        self.held_back = held_back
        self.trim = trim
        self.false_alarm_rate = false_alarm_rate
        self.alarms_per_day = alarms_per_day
        self.windows_per_day = windows_per_day
        self.contamination = contamination
        self.columns = columns
        self.ignore = ignore
        self.features = features
        self.units = units
        self.seed = seed

    # -- training -----------------------------------------------------------------------------------------------

    def fit(self, X: object, y: object = None, devices: Devices = None) -> FederatedDetector:
        """Train on typical rows.

        Parameters
        ----------
        X
            An array, whose columns go by place, or a frame (pandas, polars, Arrow), whose columns are found by name, in
            any order: words, categories, true and false are taken as `tolfl fit` takes them, missing values as with its
            `--fill-missing`; dates, identifiers, counters and clocks are left out, and logged.
        y
            1 and -1 as `predict` gives them, 0 and 1, true and false, or words of which some are typical (normal,
            benign): only the typical rows train, none without a label. With anything else all rows do, as is
            scikit-learn's way. The log says which.
        devices
            Whose row each is (any names or numbers), or the name of their column; without it all rows are one device's.
        """
        is_typical = _typical(y)
        rows, names, features, schema = self._training_rows(X, devices)
        if is_typical is not None and len(is_typical) != len(rows):
            raise DataError(f"y has {len(is_typical)} values for {len(rows)} rows; give one for each, or none")
        if is_typical is not None:
            rows, names = rows[is_typical], None if names is None else names[is_typical]
            _LOG.warning("by y, trained on the %d typical rows of %d", len(rows), len(is_typical))
        elif y is not None:
            _LOG.warning("y does not mark typical rows: trained on all %d rows", len(rows))
        self.detector_ = replace(fit_detector(by_device(rows, names), self.spec(), features), schema=schema)
        return self

    def fit_more(self, X: object, y: object = None, devices: Devices = None) -> FederatedDetector:  # noqa: ARG002
        """Update with new typical rows, from counts, sums and scatter of the cells; thresholds follow the new rows."""
        slices, before = by_device(*self._input(X, devices)), self._fitted()
        self.detector_ = replace(fit_more(before, slices, self.spec()), schema=before.schema)
        return self

    def drift(self, X: object, devices: Devices = None) -> Drift:
        """Return whether typical rows still score as they did at calibration."""
        slices, detector = by_device(*self._input(X, devices)), self._fitted()
        return drift_of({name: detector.scores_of(own) for name, own in slices.items()}, detector.thresholds)

    def adapt(self, X: object, devices: Devices = None) -> FederatedDetector:
        """Learn cells of their own for devices that were lost, or are new, from at least ten typical rows of each.

        They serve the rows of these devices alone; the model and the thresholds of the others stay.
        """
        self.detector_ = self._fitted().with_own_cells(by_device(*self._input(X, devices)))
        return self

    def fit_predict(self, X: object, y: object = None, devices: Devices = None) -> NDArray[np.int64]:
        """Train, and return 1 for typical rows and -1 for anomalous ones, by the fleet's threshold."""
        return self.fit(X, y, devices=devices).predict(X)

    def spec(self) -> DetectorSpec:
        """Return the settings as a specification, or say what is wrong with them."""
        given = {name: value for name, value in self.get_params(deep=False).items() if name in _SPEC_FIELDS}
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}
        return DetectorSpec.from_fields(plain)

    # -- scoring ------------------------------------------------------------------------------------------------

    def anomaly_score(self, X: object, devices: Devices = None) -> NDArray[np.float64]:
        """Return one score per row: the higher, the more anomalous; with devices, by cells of their own, too."""
        return self._fitted().scores_of(*self._input(X, devices)).astype(np.float64)

    def score_samples(self, X: object, devices: Devices = None) -> NDArray[np.float64]:
        """Return one score per row in scikit-learn's sense: the higher, the more normal."""
        return -self.anomaly_score(X, devices)

    def decision_function(self, X: object, devices: Devices = None) -> NDArray[np.float64]:
        """Return how far each row is on the typical side, negative if anomalous; with devices, by their own."""
        rows, names = self._input(X, devices)
        detector = self._fitted()
        return detector.thresholds.limits(len(rows), names) - detector.scores_of(rows, names).astype(np.float64)

    def predict(self, X: object, devices: Devices = None) -> NDArray[np.int64]:
        """Return 1 for typical rows and -1 for what `tolfl score` calls an alarm."""
        rows, names = self._input(X, devices)
        detector = self._fitted()
        return np.where(detector.alarms_of(rows, detector.scores_of(rows, names), names)[0], -1, 1)

    def p_values(self, X: object, devices: Devices = None) -> NDArray[np.float64]:
        """Return for each row how likely a typical one is to score as high or higher, by the limit of its verdict."""
        rows, names = self._input(X, devices)
        detector = self._fitted()
        return detector.thresholds.p_values(detector.scores_of(rows, names), names)

    def explain(self, x: object, device: str | None = None) -> Explanation:
        """Return which features make one row's score; with its device, by the limit of its verdict.

        The row is a list, an array, a frame of one row, or a row of pandas (`readings.iloc[5]`).
        """
        return self._fitted().explain(x, device)

    # -- fitted values ------------------------------------------------------------------------------------------

    @property
    def offset_(self) -> float:
        """What `score_samples` is compared with."""
        return -self._fitted().thresholds.threshold

    @property
    def threshold_(self) -> float:
        """What `anomaly_score` is compared with."""
        return self._fitted().thresholds.threshold

    @property
    def thresholds_(self) -> Thresholds:
        """Thresholds of the fleet and of each device, with the rate expected of each and whether it is guaranteed."""
        return self._fitted().thresholds

    @property
    def promise_(self) -> str:
        """What the fleet's threshold promises, in a sentence."""
        return self._fitted().thresholds.fleet.promise

    @property
    def devices_(self) -> tuple[str, ...]:
        """The devices of the last training, in the order that failure plans number them."""
        return tuple(device.name for device in self._fitted().trainings[-1].devices)

    def save(self, path: str | Path) -> Path:
        """Write the detector to one file; `tolfl.load` reads it."""
        return self._fitted().save(path)

    @classmethod
    def from_detector(cls, detector: Detector) -> FederatedDetector:
        """Return an estimator that has been fitted: of a detector that was saved, or that a fleet has left."""
        fields = {name: getattr(detector.spec, name) for name in _SPEC_FIELDS if name in cls._get_param_names()}
        estimator = cls(**fields)
        estimator.detector_ = detector
        names = detector.features.names if detector.schema is None else [one.name for one in detector.schema.columns]
        estimator.n_features_in_ = len(names)
        estimator.feature_names_in_ = np.array(names, dtype=object)
        return estimator

    # -- inside -------------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _fitted(self) -> Detector:
        check_is_fitted(self, "detector_")
        detector: Detector = self.detector_
        return detector

    def _input(self, X: object, devices: Devices) -> tuple[Rows, Names | None]:
        """Return rows that have been checked, by scikit-learn and by us (an error names the column); and whose."""
        detector = self._fitted()
        if _is_empty(X):
            return np.empty((0, detector.features.n), np.float32), None
        if is_frame(X):
            return detector.rows(X, devices)
        if detector.schema is not None and self.n_features_in_ != detector.features.n:
            raise DataError("the detector was trained on a frame with words, or columns left out; give such a frame")
        rows = detector.features.check(self._array(X, devices, reset=False))
        return rows, device_labels(devices, len(rows))

    def _training_rows(self, X: object, devices: Devices) -> tuple[Rows, Names | None, Features, Schema | None]:
        """Return rows to train on, whose they are, their features, and the schema that a frame leads to."""
        if is_frame(X):
            (block,) = blocks_of(X)  # a stream can be read once
            schema = self._settled(block, devices if isinstance(devices, str) else "")
            features = Features.named(schema.features, self.units or _units_of(block, schema))
            rows, owners = rows_of_frame(block.table, schema, devices)
            if isinstance(devices, str) and owners is not None and (owners == owners[0]).all():
                raise DataError(
                    f"X: column {devices!r} names one device, {owners[0]}, which has all the rows; to train on those "
                    "of one device, leave devices out"
                )
            return rows, owners, features, schema
        if self.columns or self.ignore:
            raise DataError("columns and ignore name columns, and an array has none; give a frame")
        rows = self._array(X, devices, reset=True)
        names = [f"x{place}" for place in range(rows.shape[1])] if self.features is None else list(self.features)
        features = Features.named(names, self.units)
        if features.n != rows.shape[1]:
            raise SpecError(f"{features.n} feature names for {rows.shape[1]} columns; give one each")
        return features.check(rows), device_labels(devices, len(rows)), features, None

    def _array(self, X: object, devices: Devices, *, reset: bool) -> Rows:
        if isinstance(devices, str):
            raise DataError(f"devices={devices!r} names a column, and an array has none; give a frame, or the names")
        kinds: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": False}
        with np.errstate(over="ignore"):
            rows: Rows = validate_data(self, X, reset=reset, **kinds).astype(np.float32)
        return rows

    def _settled(self, block: Block, role: str) -> Schema:
        """Return the schema of a frame, and log what is not learned from."""
        schema = settle(
            [block], Roles(device=role), columns=self.columns or (), ignore=self.ignore or (), fill_missing=True
        )
        if note := note_of(schema, is_command=False):
            _LOG.warning("%s", note)
        self.n_features_in_ = block.table.num_columns - bool(role)
        self.feature_names_in_ = np.array([one for one in block.table.column_names if one != role], dtype=object)
        return schema


def load(path: str | Path) -> FederatedDetector:
    """Return the estimator of a saved detector, ready to score, explain and update."""
    return FederatedDetector.from_detector(Detector.load(path))


def _typical(y: object) -> NDArray[np.bool_] | None:
    """Return which rows are typical where y is flags or words, and logs it; else None."""
    if y is None:
        return None
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:  # a frame of one column
        labels = labels[:, 0]
    if labels.ndim != 1 or not labels.size or labels.dtype.kind not in "biufUO":
        return None
    texts, which = np.unique(values.names(labels)[0], return_inverse=True)
    texts = np.array([text.removesuffix(".0") for text in texts.tolist()], str)[which]
    classes = {str(value) for value in np.unique(texts).tolist()} - {""}
    if classes == {"-1", "1"}:
        return np.asarray(texts == "1")
    are_words = not any(name.removeprefix("-").replace(".", "").isdigit() for name in classes)
    typical = {name for name in classes if is_typical_by_name(name)}
    if not typical or typical == classes or not (are_words or classes == {"0", "1"}):
        return None
    return np.isin(texts, list(typical))


def _units_of(block: Block, schema: Schema) -> tuple[str, ...] | None:
    """Return units from the metadata of an Arrow table's fields; None: there are none."""
    fields = {field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in block.table.schema}
    if not any(fields.values()):
        return None
    return tuple(
        unit
        for column in schema.columns
        for unit in [column.unit or fields.get(column.name, "")] * len(column.features)
    )


def by_device(rows: Rows, devices: NDArray[np.str_] | None) -> dict[str, Rows]:
    """Return the rows of each device, devices in the order of their names."""
    if devices is None:
        return {THE_DEVICE: rows}
    names, whose = np.unique(devices, return_inverse=True)
    in_turn = np.split(np.argsort(whose, kind="stable"), np.cumsum(np.bincount(whose))[:-1])
    own = dict(zip(names.tolist(), in_turn, strict=True)) if len(rows) else {}
    return {name: rows[own[name]] for name in in_order(names.tolist())}


_SPEC_FIELDS = frozenset(DetectorSpec.__struct_fields__)


def _is_empty(X: object) -> bool:
    if is_frame(X):
        return hasattr(X, "__len__") and len(X) == 0  # a stream has no length
    try:
        return np.asarray(X).shape[:1] == (0,)
    except ValueError:
        return False
