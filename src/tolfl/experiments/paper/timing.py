"""How long training takes: rounds and virtual seconds until the loss is within 5 % of batch training's.

Batch's converged loss is the least that it reaches in the experiment's rounds, seed by seed; its batches are N times a
device's, so that a round has as many updates as a device's. FL, SBT and Tol-FL compute the same model round by round
(docs/decisions/0008), so it is trained once, and each layout only says when its rounds are closed.

How fast averaging follows batch depends on who has which samples, so both are shown: one class per group of devices,
as in the paper's text, and the same samples dealt out at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import BlobsSpec, LinkModel, RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.experiments.paper.losses import Known, LossRuns, closing_times_s
from tolfl.experiments.paper.timing_report import report_of
from tolfl.experiments.report import ExperimentReport, Row
from tolfl.experiments.steps import Step, finished
from tolfl.sim.simulation import datasets_of

__all__ = ["TimingExperiment", "dealt_out", "report_of"]

_LAYOUTS = (("batch", 1), ("fl", 1), ("tol-fl", 3), ("tol-fl", 5), ("sbt", 10))
_UPLINKS = ("serial", "parallel")
#: Local training per sample. At the simulator's default, a transfer takes as long as a round of training; with devices
#: ten times as slow, training dominates.
_SECONDS_PER_SAMPLE = (LinkModel().seconds_per_sample, 10 * LinkModel().seconds_per_sample)
#: A stream of `Purpose.PARTITION` that no other partition uses.
_DEALT = 111


@dataclass(frozen=True)
class _Training:
    """One training whose rounds are needed, for all seeds."""

    name: str
    spec: RunSpec
    data: Sequence[FederatedDataset]


class TimingExperiment:
    """The experiment. Iterate to make it go on.

    Parameters
    ----------
    quick
        Small generated data, two seeds and a few rounds.
    spec
        Data, devices, rounds and seeds of one's own; its scheme, clusters and links are not looked at.
    """

    def __init__(self, quick: bool = False, spec: RunSpec | None = None) -> None:
        self.spec = spec or (_QUICK if quick else RunSpec(rounds=100, repetitions=5))
        self._report: ExperimentReport | None = None

    def __iter__(self) -> Iterator[Step]:
        """Train batch and averaging round by round, then play every layout's rounds in virtual time."""
        rows: list[Row] = []
        data = datasets_of(self.spec)
        dealt = [dealt_out(one, self.spec.seed + seed) for seed, one in enumerate(data)]
        trainings = [
            _Training("batch", self._with("batch", 1), data),
            _Training("averaging, one class per group", self._with("fl", 1), data),
            _Training("averaging, dealt out at random", self._with("fl", 1), dealt),
        ]
        total = len(trainings) * self.spec.rounds + len(_LAYOUTS)
        known: dict[str, Known] = {}
        for number, training in enumerate(trainings):
            runs = LossRuns(training.spec, training.data)
            for rounds_done in runs:
                yield Step(training.name, number * self.spec.rounds + rounds_done, total)
            known[training.spec.scheme] = runs.known()
            rows += _loss_rows(training, runs)
        for number, (scheme, k) in enumerate(_LAYOUTS, start=1):
            family = "batch" if scheme == "batch" else "fl"
            rows += self._time_rows(scheme, k, data[0], known[family])
            yield Step(f"{scheme} in virtual time", len(trainings) * self.spec.rounds + number, total)
        self._report = report_of(rows)

    def _with(self, scheme: str, k: int) -> RunSpec:
        return msgspec.structs.replace(self.spec, scheme=scheme, clusters=k, topology="", fail="")

    def _time_rows(self, scheme: str, k: int, data: FederatedDataset, known: Known) -> list[Row]:
        """Return when rounds are closed, for the first seed: the clock knows sizes, and these are the same for all."""
        rows: list[Row] = []
        n_clusters = min(self.spec.devices, self.spec.devices if scheme == "sbt" else k)
        asked = msgspec.structs.replace(self._with(scheme, n_clusters), repetitions=1)
        for uplink in _UPLINKS:
            for per_sample in _SECONDS_PER_SAMPLE:
                links = msgspec.structs.replace(self.spec.links, uplink=uplink, seconds_per_sample=per_sample)
                spec = msgspec.structs.replace(asked, links=links)
                row = {"kind": "time", "scheme": scheme, "k": n_clusters, "uplink": uplink}
                row |= {"seconds_per_sample": per_sample, "bandwidth_bps": links.bandwidth_bps}
                rows.append({**row, "times_s": closing_times_s(spec, data, known.checkpoints[0])})
        return rows

    @property
    def report(self) -> ExperimentReport:
        """The finished experiment."""
        return finished(self._report)


_QUICK = RunSpec(data="blobs", rounds=30, repetitions=2, blobs=BlobsSpec(samples_per_device=60))


def _loss_rows(training: _Training, runs: LossRuns) -> list[Row]:
    return [
        {
            "kind": "loss",
            "data": training.data[0].name,
            "training": training.name,
            "seed": training.spec.seed + number,
            "n_devices": training.spec.devices,
            "n_samples": len(training.data[number].pool),
            "losses": [closed.loss for closed in of_seed],
        }
        for number, of_seed in enumerate(runs.closed)
    ]


def dealt_out(data: FederatedDataset, seed: int) -> FederatedDataset:
    """Return the same samples, dealt out at random to devices that have as many as before."""
    order = rng_for(seed, Purpose.PARTITION, _DEALT).permutation(len(data.pool))
    labels = None if data.labels is None else data.labels[order]
    return replace(data, pool=data.pool[order], labels=labels)
