"""The data sets of the paper's tables, and how each is used: declared here, before anything is run.

Ten repetitions go round five declared splits, two seeds each: the splits are the statistical unit. Split 0 is the one
that a reader would take for the paper's; the others were drawn once (`tolfl.datasets.classes`). For Comms-ML, whose
typical regions are given, a split is another draw of the traffic and the radio channel. Step sizes are what
`tolfl reproduce step-size` chose on held-back typical samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from tolfl.core.errors import DataError, UnknownNameError
from tolfl.core.spec import RunSpec
from tolfl.datasets import load_raw


@dataclass(frozen=True)
class Study:
    """One data set as the tables use it."""

    data: str
    clusters: int
    lr: float
    max_train: int | None = None  #: of all typical classes together, a tenth of it held back
    shown_as: str = ""

    def spec(self, quick: bool = False, **fields: Any) -> RunSpec:
        """Return the specification of its runs; `fields` replace some of it."""
        known: dict[str, Any] = {
            "data": self.data,
            "clusters": self.clusters,
            "repetitions": 10,
            "splits": 5,
            "train": {"lr": self.lr},
            "dataset": {} if self.max_train is None else {"max_train": self.max_train},
            # So fast that no model is still on its way when a death is noticed: 50 updates are done before the failure.
            "links": {"bandwidth_bps": 1e9},
        }
        if quick:
            known |= {"rounds": 10, "repetitions": 2, "splits": 2, "comms_ml": {"windows_per_region": 400}}
            known["dataset"] = {"max_train": 1000, "max_test": 1000}
        return RunSpec.from_fields(known | fields).check()


#: In the order of the tables. Fashion-MNIST: 2,016 pictures per class train; CIFAR: all that are there.
STUDIES = {
    study.data: study
    for study in (
        Study("comms-ml", clusters=3, lr=0.008, shown_as="Comms-ML"),
        Study("fashion-mnist", clusters=5, lr=0.002, max_train=11_200, shown_as="Fashion-MNIST"),
        Study("cifar-10", clusters=5, lr=0.001, shown_as="CIFAR-10"),
        Study("cifar-100", clusters=5, lr=0.00025, shown_as="CIFAR-100"),
    )
}


def chosen_studies(names: str, data_dir: str = "") -> tuple[list[Study], dict[str, str]]:
    """Return the studies that are asked for (`all`: those at hand), and why the others are missing."""
    asked = list(STUDIES) if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    found, missing = [], {}
    for name in asked:
        if name not in STUDIES:
            raise UnknownNameError("data set of the tables", name, ["all", *STUDIES])
        try:
            load_raw(RunSpec.from_fields({"data": name, "dataset": {"dir": data_dir}}))
        except DataError as error:
            if names != "all":
                raise
            missing[name] = str(error)
        else:
            found.append(STUDIES[name])
    return found, missing


def with_place(spec: RunSpec, data_dir: str) -> RunSpec:
    """Return the specification with the folder where data sets lie."""
    return msgspec.structs.replace(spec, dataset=msgspec.structs.replace(spec.dataset, dir=data_dir))
