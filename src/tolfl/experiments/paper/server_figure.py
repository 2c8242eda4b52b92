"""The loss over rounds when the server is lost: devices that go on alone, against devices that go on together.

The paper's figure shows FL, whose devices train in isolation from then on, and SBT, which loses one device. Tol-FL with
both of its policies and FL that stops are drawn beside them. Loss: the mean of J over all typical training samples of
all devices, the lost one's included, dropout off; for isolated devices the mean over the survivors' models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tolfl.core.spec import BlobsSpec, DatasetSpec, RunSpec
from tolfl.datasets.loaders import MissingDataError, find
from tolfl.experiments.paper.losses import ClosedLoss, Known, LossRuns
from tolfl.experiments.paper.server_report import CURVES, report_of
from tolfl.experiments.report import ExperimentReport, Row
from tolfl.experiments.steps import Step, finished
from tolfl.sim.simulation import datasets_of

__all__ = ["ServerFigure", "mean_over_models", "report_of", "usual_specs"]

_QUICK = RunSpec(data="blobs", rounds=20, repetitions=2, blobs=BlobsSpec(samples_per_device=60))
#: The paper draws pictures ("MNIST" in its text, Fashion-MNIST in its tables); 1,000 of them keep it to minutes.
_PICTURES = RunSpec(data="fashion-mnist", rounds=100, repetitions=5, dataset=DatasetSpec(max_train=1000, max_test=1000))
_SERVER = 0


class ServerFigure:
    """The experiment. Iterate to make it go on.

    Parameters
    ----------
    quick
        Small generated data, two seeds and a few rounds.
    specs
        Data, devices, rounds and seeds of one's own, one specification per data set; the server is lost half way. By
        default Comms-ML, and Fashion-MNIST where its files are found.
    data_dir
        Where to look for pictures first.
    """

    def __init__(self, quick: bool = False, specs: Sequence[RunSpec] | None = None, data_dir: str = "") -> None:
        self.specs = list(specs) if specs is not None else [_QUICK] if quick else usual_specs(data_dir)
        self._report: ExperimentReport | None = None

    def __iter__(self) -> Iterator[Step]:
        """Train one curve after the other; the rounds before the failure are trained once."""
        rows: list[Row] = []
        total = len(CURVES) * sum(spec.rounds for spec in self.specs)
        before = 0
        for spec in self.specs:
            data = datasets_of(spec)
            prefix: Known | None = None
            for scheme, policy in CURVES:
                runs = LossRuns(self._spec(spec, scheme, policy), data, known=prefix)
                for rounds_done in runs:
                    # One round before the failure: what follows the last one may already depend on the policy.
                    if prefix is None and rounds_done == spec.rounds // 2 - 1:
                        prefix = runs.known()
                    yield Step(f"{spec.data}, {scheme} ({policy})", before + rounds_done, total)
                before += spec.rounds
                rows += [_row(spec, scheme, policy, seed, closed) for seed, closed in enumerate(runs.closed)]
        yield Step("all curves", total, total)
        self._report = report_of(rows)

    def _spec(self, spec: RunSpec, scheme: str, policy: str) -> RunSpec:
        own = msgspec.structs.replace(spec, scheme=scheme, on_head_failure=policy, topology="")
        # Slow to notice a death: else the survivors give up on the server's last model while it is on its way to them.
        return msgspec.structs.replace(own, fail=f"device:{_SERVER}@{spec.rounds // 2}", timing="wireless")

    @property
    def report(self) -> ExperimentReport:
        """The finished experiment."""
        return finished(self._report)


def usual_specs(data_dir: str = "") -> list[RunSpec]:
    """Return the full experiment: Comms-ML, and pictures where they are at hand."""
    specs = [RunSpec(data="comms-ml", clusters=3, rounds=100, repetitions=5)]  # one cluster per typical region
    try:
        find(_PICTURES.data, data_dir)
    except MissingDataError:
        return specs
    dataset = msgspec.structs.replace(_PICTURES.dataset, dir=data_dir)
    return [*specs, msgspec.structs.replace(_PICTURES, dataset=dataset)]


def _row(spec: RunSpec, scheme: str, policy: str, seed: int, closed: Sequence[ClosedLoss]) -> Row:
    return {
        "data": spec.data,
        "scheme": scheme,
        "policy": policy,
        "k": spec.clusters or min(5, spec.devices),
        "n_devices": spec.devices,
        "seed": spec.seed + seed,
        "rounds": spec.rounds,
        "failed_after": spec.rounds // 2,
        "losses": mean_over_models(closed),
        "last_losses_by_device": _last_by_device(closed),
    }


def mean_over_models(closed: Sequence[ClosedLoss]) -> list[float]:
    """Return one loss per round: the mean over all who closed it, each with a model of its own.

    >>> alone = [ClosedLoss(0, 0, 0.1, 4.0), ClosedLoss(1, 1, 0.2, 3.0), ClosedLoss(1, 2, 0.2, 2.0)]
    >>> mean_over_models(alone)
    [4.0, 2.5]
    """
    by_round: dict[int, list[float]] = {}
    for one in closed:
        by_round.setdefault(one.round, []).append(one.loss)
    return [sum(losses) / len(losses) for _, losses in sorted(by_round.items())]


def _last_by_device(closed: Sequence[ClosedLoss]) -> dict[str, float]:
    """Return the loss of each model in the last round; one entry where all have the same model."""
    last = max(one.round for one in closed)
    return {str(one.device): one.loss for one in closed if one.round == last}
