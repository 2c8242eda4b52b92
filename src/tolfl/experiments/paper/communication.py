"""What a round costs: messages and bytes, counted from the ledger of simulated rounds, beside the paper's table.

The paper prints 28.3, 12.8 and 21.0 MB per epoch for FL, SBT and Tol-FL, and neither N nor k nor what was counted. So
every way of counting is shown, and how well each fits these three numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tolfl.core.records import RoundClosed, RunStarted
from tolfl.core.spec import BlobsSpec, IFCASpec, RunSpec
from tolfl.experiments.paper.communication_report import ACCOUNTINGS, label_of, report_of
from tolfl.experiments.report import ExperimentReport, Row
from tolfl.experiments.steps import Step, finished
from tolfl.learners import Scorer
from tolfl.learners.training import TrainedModel
from tolfl.sim.simulation import Result, run

__all__ = ["Communication", "report_of", "row_of"]

_AVERAGING = (("fl", 1), ("sbt", 10), ("tol-fl", 3), ("tol-fl", 5))
_RIVALS = (("fedgroup", 5), ("ifca", 5), ("fesem", 5))

#: Bytes depend on the model alone, and messages on the layout: a few samples of as many features as Comms-ML has do.
_SPEC = RunSpec(
    data="blobs",
    devices=10,
    rounds=5,
    blobs=BlobsSpec(samples_per_device=4, n_features=112, n_test=4, n_validation=0),
    ifca=IFCASpec(warm_rounds=1, trial_rounds=2),  # so that its usual round is among the five
)


class Communication:
    """The experiment. Iterate to make it go on; `quick` changes nothing, for it takes seconds."""

    def __init__(self, quick: bool = False) -> None:
        self.quick = quick
        self._report: ExperimentReport | None = None

    def __iter__(self) -> Iterator[Step]:
        """Simulate a few rounds of one scheme after the other."""
        layouts = (*_AVERAGING, *_RIVALS)
        rows: list[Row] = []
        for done, (scheme, k) in enumerate(layouts, start=1):
            spec = msgspec.structs.replace(_SPEC, scheme=scheme, clusters=k)
            rows.append(row_of(run(spec)[0], k))
            yield Step(label_of(rows[-1]), done, len(layouts))
        self._report = report_of(rows)

    @property
    def report(self) -> ExperimentReport:
        """The finished experiment."""
        return finished(self._report)


def _n_params(model: Scorer) -> int:
    assert isinstance(model, TrainedModel)
    return int(model.params.size)


def row_of(result: Result, k: int) -> Row:
    """Return what a run's rounds cost, as plain values; messages and bytes are means over its rounds."""
    closed = [record for record in result.records if isinstance(record, RoundClosed)]
    model_bytes = next(record.model_bytes for record in result.records if isinstance(record, RunStarted))
    n_rounds = len(closed)
    totals = result.ledger.totals()
    return {
        "scheme": result.spec.scheme,
        "n_devices": result.spec.devices,
        "k": k,
        "rounds": n_rounds,
        "model_bytes": model_bytes,
        "n_params": _n_params(next(iter(result.models.values()))),
        "messages": {name: totals[name] / n_rounds for name in ACCOUNTINGS},
        "bytes": result.ledger.total_bytes / n_rounds,
        "models_in_first_round": closed[0].bytes / model_bytes,
        "models_in_last_round": closed[-1].bytes / model_bytes,
        "control_bytes": result.ledger.control_bytes / n_rounds,
    }
