"""What the samples look like: feature means by class for Comms-ML, class-mean pictures for the picture sets.

The paper shows 20 of Comms-ML's 112 features for one class. Here are all of them, for every class, because what matters
is where typical and anomalous ones differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.spec import DatasetSpec, RunSpec
from tolfl.datasets import RawData, load_raw
from tolfl.datasets.classes import choose
from tolfl.datasets.loaders import CLASS_NAMES, MissingDataError, find
from tolfl.datasets.scaling import Moments, Scaler
from tolfl.experiments.paper.samples_report import report_of
from tolfl.experiments.report import ExperimentReport, Row
from tolfl.experiments.steps import Step, finished

__all__ = ["Samples", "feature_rows", "picture_rows", "report_of"]

_PICTURES = {"fashion-mnist": (28, 28), "cifar-10": (32, 32), "cifar-100": (32, 32)}
_QUICK_WINDOWS = 100  #: per region


class Samples:
    """The experiment. Iterate to make it go on.

    Parameters
    ----------
    quick
        A hundred windows per region of Comms-ML, and no pictures.
    data_dir
        Where to look for picture sets first; those that are nowhere are left out.
    """

    def __init__(self, quick: bool = False, data_dir: str = "") -> None:
        generated = RunSpec(data="comms-ml").comms_ml
        if quick:
            generated = msgspec.structs.replace(generated, windows_per_region=_QUICK_WINDOWS)
        self.specs = [RunSpec(data="comms-ml", comms_ml=generated)]
        if not quick:
            names = [name for name in _PICTURES if _is_at_hand(name, data_dir)]
            self.specs += [RunSpec(data=name, dataset=DatasetSpec(dir=data_dir)) for name in names]
        self._report: ExperimentReport | None = None

    def __iter__(self) -> Iterator[Step]:
        """Look at one data set after the other."""
        rows: list[Row] = []
        for done, spec in enumerate(self.specs, start=1):
            raw = load_raw(spec)
            rows_of = picture_rows if spec.data in _PICTURES else feature_rows
            rows += rows_of(raw, spec.dataset)
            yield Step(spec.data, done, len(self.specs))
        self._report = report_of(rows)

    @property
    def report(self) -> ExperimentReport:
        """The finished experiment."""
        return finished(self._report)


def _is_at_hand(name: str, data_dir: str) -> bool:
    try:
        find(name, data_dir)
    except MissingDataError:
        return False
    return True


def feature_rows(raw: RawData, spec: DatasetSpec) -> list[Row]:
    """Return mean and standard deviation of every feature, class by class, and the mean on the scale of models."""
    typical, anomalous = choose(raw, spec)
    is_typical = np.isin(raw.labels, np.array(typical))
    scaler = Scaler.fit(Moments.of(_of(raw, is_typical)), "min-max")
    rows: list[Row] = []
    for name in (*typical, *anomalous):
        moments = Moments.of(_of(raw, raw.labels == name))
        rows.append(
            {
                "kind": "features",
                **_what(raw, name, name in anomalous),
                "feature_names": list(raw.feature_names),
                "means": moments.means.tolist(),
                "stds": moments.stds.tolist(),
                "scaled_means": scaler(moments.means).tolist(),
            }
        )
    return rows


def picture_rows(raw: RawData, spec: DatasetSpec) -> list[Row]:
    """Return the mean picture of every class; three digits are more than an eye can tell."""
    typical, anomalous = choose(raw, spec)
    names = () if spec.fine else CLASS_NAMES.get(raw.name, ())
    rows: list[Row] = []
    for label in raw.classes:
        mean = _of(raw, raw.labels == label).mean(axis=0, dtype=np.float64)
        row = {"kind": "picture", **_what(raw, label, label in anomalous), "is_typical": label in typical}
        row["name"] = names[int(label)].replace("_", " ") if names else label
        rows.append({**row, "shape": list(_PICTURES[raw.name]), "mean": mean.round(3).tolist()})
    return rows


def _of(raw: RawData, is_meant: NDArray[np.bool_]) -> NDArray[np.float32]:
    return raw.samples[is_meant].astype(np.float32) * np.float32(raw.scale)


def _what(raw: RawData, name: str, is_anomalous: bool) -> dict[str, Any]:
    return {
        "data": raw.name,
        "class": name,
        "is_anomalous": is_anomalous,
        "n_samples": int((raw.labels == name).sum()),
        "n_features": int(np.prod(raw.samples.shape[1:])),
    }
