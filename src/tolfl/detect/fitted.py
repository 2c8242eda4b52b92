"""A detector that has been trained: scaling, model, thresholds, names, and where it all comes from.

It knows nothing of scikit-learn, so commands, exports and devices can use it as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolfl.core.errors import DataError
from tolfl.datasets.scaling import Scaler
from tolfl.detect.choosing import Choice
from tolfl.detect.explaining import Explanation, explanation_of
from tolfl.detect.features import Features, Rows
from tolfl.detect.learning import Learned
from tolfl.detect.network import Floats32, ScoringNetwork, lowest_errors
from tolfl.detect.provenance import Training
from tolfl.detect.spec import DetectorSpec
from tolfl.detect.thresholds import Thresholds, agree

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Detector:
    """Everything that scoring takes. It does not change: an update makes another one."""

    spec: DetectorSpec
    features: Features
    scaler: Scaler
    learned: Learned
    networks: dict[str, ScoringNetwork]
    thresholds: Thresholds
    choice: Choice
    trainings: tuple[Training, ...]  #: the first one, and each that went on from it

    # -- scoring ------------------------------------------------------------------------------------------------

    def anomaly_score(self, X: object) -> NDArray[np.float64]:
        """Return one score per sample: the higher, the more anomalous. An empty stream has no scores."""
        return self.scores_of(self.features.check(X)).astype(np.float64)

    def scores_of(self, rows: Rows) -> Floats32:
        """Return the scores of rows that have been checked."""
        networks = list(self.networks.values())
        scores = np.empty(len(rows), np.float32)
        for first, last in _chunks(len(rows)):
            scores[first:last] = lowest_errors(networks, self.scaler(rows[first:last]))
        return scores

    def p_values(self, X: object) -> NDArray[np.float64]:
        """Return for each sample how likely a typical one is to score as high or higher."""
        return self.thresholds.p_values(self.anomaly_score(X))

    def verdicts(self, X: object, devices: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Return which samples raise an alarm: by the fleet's threshold, or by that of each sample's device."""
        return self.anomaly_score(X) > self.thresholds_for(len_of(X), devices)

    def thresholds_for(self, n_rows: int, devices: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the threshold of each row; a device that is not known has the fleet's."""
        if devices is None:
            return np.full(n_rows, self.thresholds.threshold)
        names = device_labels(devices, n_rows)
        return self.thresholds.of_devices(names.tolist())

    # -- explaining ---------------------------------------------------------------------------------------------

    def explain(self, x: object) -> Explanation:
        """Return why one sample scores as it does: which features are off, by how much, and what was expected."""
        rows = self.features.check(x if np.ndim(x) != 1 else np.asarray(x).reshape(1, -1))  # type: ignore[arg-type]
        if len(rows) != 1:
            raise DataError(f"explain takes one sample, not {len(rows)}; call it for each")
        scaled = self.scaler(rows)
        best = min(self.networks.values(), key=lambda network: float(network.errors(scaled)[0]))
        expected = best.reconstructed(scaled)
        score = float(self.scores_of(rows)[0])
        p_value = float(self.thresholds.p_values([score])[0])
        return explanation_of(
            self.features,
            rows[0],
            expected[0] / self.scaler.factor + self.scaler.shift,
            best.feature_errors(scaled)[0],
            score,
            self.thresholds.threshold,
            p_value,
        )

    # -- thresholds ---------------------------------------------------------------------------------------------

    def with_thresholds_from(
        self, slices: Mapping[str, object], budget: float | None = None, calibrated_on: str = "held-back samples"
    ) -> Detector:
        """Return a detector whose devices agreed anew, on typical samples that nobody trained on.

        For a fleet that has changed: name the devices that are left (or new) with their samples.
        """
        scores = {name: self.scores_of(self.features.check(X)) for name, X in slices.items()}
        if not sum(map(len, scores.values())):
            raise DataError("no device has a sample to agree on thresholds with")
        return replace(self, thresholds=agree(scores, budget or self.thresholds.budget, calibrated_on))

    # -- taking it away -----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the detector to one file, whole or not at all."""
        from tolfl.detect.saved import save  # noqa: PLC0415  (it imports this class)

        return save(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Detector:
        """Read a detector; a file that is no detector, or not as it was saved, is refused."""
        from tolfl.detect.saved import load  # noqa: PLC0415  (as above)

        return load(Path(path))

    def __repr__(self) -> str:
        n_devices = len(self.trainings[-1].devices)
        return f"<Detector {self.choice.name}: {self.features.n} features, {n_devices} device(s)>"


def device_labels(devices: ArrayLike, n_rows: int) -> NDArray[np.str_]:
    """Return the name of each row's device, as text."""
    labels = np.asarray(devices)
    if labels.shape != (n_rows,):
        raise DataError(f"devices has shape {labels.shape} for {n_rows} rows; give one device per row")
    return labels.astype(str)


def len_of(X: object) -> int:
    """Return how many rows a table has."""
    rows = getattr(X, "num_rows", None)  # Arrow's length is that of its columns, which is the same, but not for batches
    return int(rows) if rows is not None else len(X)  # type: ignore[arg-type]


def _chunks(n_rows: int) -> Iterator[tuple[int, int]]:
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        yield first, min(first + _ROWS_AT_ONCE, n_rows)
