"""The data sets of the paper's tables, and how each is used: declared here, before anything is run.

Ten repetitions go round five declared splits, two seeds each: the splits are the statistical unit. Split 0 is the one
that a reader would take for the paper's; the others were drawn once (`tolfl.datasets.split`). For Comms-ML, whose
typical regions are given, a split is another draw of the traffic and the radio channel. Step sizes are what
`tolfl reproduce step-size` chose on held-back typical samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tolfl.core.errors import DataError, UnknownNameError
from tolfl.core.spec import RunSpec
from tolfl.datasets.public_sets import find


@dataclass(frozen=True)
class Setup:
    """One data set as the tables use it."""

    data: str
    clusters: int
    lr: float
    max_train: int | None = None  #: of all typical classes together, a tenth of it held back
    title: str = ""

    def spec(self, quick: bool = False, **fields: Any) -> RunSpec:
        """Return the specification of its runs; `fields` replace some of it."""
        known: dict[str, Any] = {
            "data": self.data,
            "clusters": self.clusters,
            "repetitions": 10,
            "splits": 5,
            "train": {"lr": self.lr},
            "dataset": {} if self.max_train is None else {"max_train": self.max_train},
            # So fast that no model is still on its way when a failure is detected: 50 updates are done before it.
            "links": {"bandwidth_bps": 1e9},
        }
        if quick:
            known |= {"rounds": 10, "repetitions": 2, "splits": 2, "comms_ml": {"windows_per_region": 400}}
            known["dataset"] = {"max_train": 1000, "max_test": 1000}
        return RunSpec.from_fields(known | fields).check()


#: In the order of the tables. Fashion-MNIST: 2,016 pictures per class train; CIFAR: all that are there.
SETUPS = {
    setup.data: setup
    for setup in (
        Setup("comms-ml", clusters=3, lr=0.008, title="Comms-ML"),
        Setup("fashion-mnist", clusters=5, lr=0.002, max_train=11_200, title="Fashion-MNIST"),
        Setup("cifar-10", clusters=5, lr=0.001, title="CIFAR-10"),
        Setup("cifar-100", clusters=5, lr=0.00025, title="CIFAR-100"),
    )
}
_GENERATED = ("comms-ml", "blobs")


def available_data(names: str, known: Sequence[str], data_dir: str = "") -> tuple[list[str], dict[str, str]]:
    """Return the data sets that are requested (`all`: those of `known` that are available), and why others are not."""
    requested = list(known) if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    found, missing = [], {}
    for name in requested:
        if name not in known:
            raise UnknownNameError("data set of this experiment", name, ["all", *known])
        try:
            if name not in _GENERATED:
                find(name, data_dir)
        except DataError as error:
            if names != "all":
                raise
            missing[name] = str(error)
        else:
            found.append(name)
    return found, missing
