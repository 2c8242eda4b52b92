"""`FederatedDetector`: an outlier detector as scikit-learn has them, for data that is split over places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tolfl.core.errors import SpecError
from tolfl.datasets.raw import in_order
from tolfl.datasets.unscaled import THE_DEVICE
from tolfl.detect.drift import Drift, drift_of
from tolfl.detect.explaining import Explanation
from tolfl.detect.features import Features, Rows, as_rows, check_finite, column_names
from tolfl.detect.fitted import Detector, device_labels, names_of
from tolfl.detect.fitting import fit_detector, fit_more
from tolfl.detect.spec import DetectorSpec
from tolfl.detect.thresholds import Thresholds


class FederatedDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Detects anomalies with a model that devices train together, any of which may fail.

    Rows handed to `fit` are typical. `devices` says whose row each is; without it all rows belong to
    one device, and there is nothing to share. Scaling, model and thresholds are worked out as a fleet would: moments,
    parameters and counts travel, rows do not.

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
        Share of each device's rows that nobody trains on.
    trim
        Share of the rows that may be anomalous: the most distant ones are left out of cells and covariance.
    false_alarm_rate
        The share of typical rows that may raise an alarm, or `alarms_per_day` out of `windows_per_day` rows. It becomes
        a threshold by the held-back scores; `promise_` says what is expected of it, and whether that is guaranteed.
    contamination
        "auto", or a share: then the threshold is such that this share of the training rows themselves is anomalous, as
        in scikit-learn's own detectors, and `false_alarm_rate` is not used.
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
        self.features = features
        self.units = units
        self.seed = seed

    # -- training -----------------------------------------------------------------------------------------------

    def fit(self, X: object, y: object = None, devices: ArrayLike | None = None) -> FederatedDetector:  # noqa: ARG002
        """Train on typical rows; `devices` says whose each is (any names or numbers)."""
        features, rows = self._rows(X, reset=True)
        self.detector_ = fit_detector(by_device(rows, devices), self.spec(), features)
        return self

    def fit_more(self, X: object, y: object = None, devices: ArrayLike | None = None) -> FederatedDetector:  # noqa: ARG002
        """Go on with new typical rows, from counts, sums and scatter of the cells; thresholds follow the new rows."""
        _, rows = self._rows(X, reset=False)
        self.detector_ = fit_more(self._fitted(), by_device(rows, devices), self.spec())
        return self

    def drift(self, X: object, devices: ArrayLike | None = None) -> Drift:
        """Return whether typical rows still score as they did when the thresholds were agreed."""
        _, rows = self._rows(X, reset=False)
        slices = by_device(rows, devices)
        detector = self._fitted()
        return drift_of({name: detector.scores_of(own) for name, own in slices.items()}, detector.thresholds)

    def adapt(self, X: object, devices: ArrayLike | None = None) -> FederatedDetector:
        """Learn cells of their own for devices that were lost, or are new, from at least ten typical rows of each.

        They serve the rows of these devices alone; the model and the thresholds of the others stay.
        """
        _, rows = self._rows(X, reset=False)
        self.detector_ = self._fitted().with_own_cells(by_device(rows, devices))
        return self

    def fit_predict(self, X: object, y: object = None, devices: ArrayLike | None = None) -> NDArray[np.int64]:
        """Train, and return 1 for typical rows and -1 for anomalous ones, by the fleet's threshold."""
        return self.fit(X, y, devices=devices).predict(X)

    def spec(self) -> DetectorSpec:
        """Return the settings as a specification, or say what is wrong with them."""
        fields = {name: value for name, value in self.get_params(deep=False).items() if name in _SPEC_FIELDS}
        return _spec(fields)

    # -- scoring ------------------------------------------------------------------------------------------------

    def anomaly_score(self, X: object, devices: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return one score per row: the higher, the more anomalous; with devices, by cells of their own, too."""
        _, rows = self._rows(X, reset=False)
        return self._fitted().scores_of(rows, names_of(devices, len(rows))).astype(np.float64)

    def score_samples(self, X: object, devices: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return one score per row in scikit-learn's sense: the higher, the more normal."""
        return -self.anomaly_score(X, devices)

    def decision_function(self, X: object, devices: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return how far each row is on the typical side, negative if anomalous; with devices, by their own."""
        scores = self.anomaly_score(X, devices)
        return self._fitted().limits(len(scores), devices) - scores

    def predict(self, X: object, devices: ArrayLike | None = None) -> NDArray[np.int64]:
        """Return 1 for typical rows and -1 for anomalous ones."""
        return np.where(self.decision_function(X, devices) >= 0, 1, -1)

    def p_values(self, X: object, devices: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return for each row how likely a typical one is to score as high or higher, by the limit of its verdict."""
        scores = self.anomaly_score(X, devices)
        return self._fitted().thresholds.p_values(scores, names_of(devices, len(scores)))

    def explain(self, x: object, device: str | None = None) -> Explanation:
        """Return which features make one row's score; with its device, by the limit of its verdict."""
        return self._fitted().explain(x, device)

    # -- what was found -----------------------------------------------------------------------------------------

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
        """Write the detector to one file; `Detector.load` reads it."""
        return self._fitted().save(path)

    # -- inside -------------------------------------------------------------------------------------------------

    def _fitted(self) -> Detector:
        check_is_fitted(self, "detector_")
        detector: Detector = self.detector_
        return detector

    def _rows(self, X: object, reset: bool) -> tuple[Features, Rows]:
        """Return rows that have been checked, by scikit-learn and by us: an error names the column."""
        if not reset:
            check_is_fitted(self, "detector_")
            if _is_empty(X):
                return self._fitted().features, np.empty((0, self.n_features_in_), np.float32)
        given = column_names(X)
        table = X
        if hasattr(X, "column_names"):  # Arrow, of which scikit-learn knows nothing
            table = as_rows(X)
            if not reset:
                self._fitted().features.check_names(X)
        kinds: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": False}
        rows: Rows = validate_data(self, table, reset=reset, **kinds)
        if reset:
            names = given or self.features
            features = Features.of(X, rows.shape[1], self.units) if names is None or given else None
            features = features or Features.named(list(names or ()), self.units)
        else:
            features = self._fitted().features
        if features.n != rows.shape[1]:
            raise SpecError(f"{features.n} feature names for {rows.shape[1]} columns; give one each")
        check_finite(rows, features.names)
        return features, rows


def by_device(rows: Rows, devices: ArrayLike | None) -> dict[str, Rows]:
    """Return the rows of each device, devices in the order of their names."""
    if devices is None:
        return {THE_DEVICE: rows}
    names, whose = np.unique(device_labels(devices, len(rows)), return_inverse=True)
    in_turn = np.split(np.argsort(whose, kind="stable"), np.cumsum(np.bincount(whose))[:-1])
    own = dict(zip(names.tolist(), in_turn, strict=True)) if len(rows) else {}
    return {name: rows[own[name]] for name in in_order(names.tolist())}


_SPEC_FIELDS = frozenset(DetectorSpec.__struct_fields__)


def _spec(fields: Mapping[str, object]) -> DetectorSpec:
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in fields.items()}
    try:
        return msgspec.convert(plain, DetectorSpec).check()
    except msgspec.ValidationError as error:
        raise SpecError(f"a setting of the detector is wrong: {error}") from None


def _is_empty(X: object) -> bool:
    try:
        return np.asarray(X).shape[:1] == (0,)
    except ValueError:
        return False
