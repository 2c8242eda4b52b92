"""Runs from a specification: repetitions as one batch, on disk or in memory, resumed or from known rounds on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tolfl.core.byzantine import Liars
from tolfl.core.errors import SpecError
from tolfl.core.records import AnyRecord, RunEnded
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology
from tolfl.datasets import FederatedDataset, load
from tolfl.models import Autoencoder, Model
from tolfl.runs.checkpoint import Checkpoint
from tolfl.runs.directory import RunDirectory
from tolfl.runs.evaluation import TrainedModel, score_models
from tolfl.runs.ledger import Ledger
from tolfl.runs.settling import autoencoder_for, settle_training
from tolfl.runs.summary import in_the_end, plain_scores, scores_of, summarise, summarise_repetitions
from tolfl.schemes import check_scheme, is_plain, scheme_of
from tolfl.sim.simulation import Simulation
from tolfl.sim.workshop import Workshop


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    rounds_done: int
    rounds: int
    loss: float | None


@dataclass(frozen=True)
class Result:
    """A finished run."""

    spec: RunSpec
    summary: dict[str, object]
    records: list[AnyRecord]
    models: dict[str, TrainedModel]
    data: FederatedDataset
    ledger: Ledger


class Runs:
    """Repetitions of one specification, computed as one batch. Iterate to make them go on.

    >>> runs = Runs(RunSpec(data="blobs", devices=4, clusters=2, rounds=2))
    >>> [progress.rounds_done for progress in runs], runs.results[0].summary["survivors"]
    ([1, 2], [0, 1, 2, 3])
    """

    def __init__(
        self,
        spec: RunSpec,
        data: FederatedDataset | Sequence[FederatedDataset] | None = None,
        model: Model | None = None,
        out: Path | None = None,
        resume: bool = False,
        known: Sequence[Checkpoint] | None = None,
    ) -> None:
        self.spec = spec.check()
        self.results: list[Result] = []
        specs = repetitions_of(spec)
        for one in specs:
            check_scheme(one)  # what is wrong is found before anything is written
        self._datasets = datasets_of(spec, data)
        if not is_plain(spec):
            self._model = model or autoencoder_for(spec, self._datasets[0])
            scheme_of(spec).start(self._model, spec.seed)  # here too: a scheme may name layers that are not there
        self._above = None if out is None or len(specs) == 1 else _directory(out, spec, resume)
        self._directories: list[RunDirectory | None] = [None] * len(specs)
        if out is not None:
            paths = [out] if self._above is None else [out / f"repetition-{i}" for i in range(len(specs))]
            self._directories = [_directory(path, one, resume) for path, one in zip(paths, specs, strict=True)]
        self.simulations: list[Simulation] = []
        self._seconds, self._rounds_computed = 0.0, 0
        if is_plain(spec):
            return
        nothing = Checkpoint([])
        starts = [
            max((d.checkpoint() if d and resume else None) or nothing, given, key=lambda checkpoint: checkpoint.n_steps)
            for d, given in zip(self._directories, known or [nothing] * len(specs), strict=True)
        ]
        self.simulations = [
            Simulation(one, slices, self._model, start)
            for one, slices, start in zip(specs, self._datasets, starts, strict=True)
        ]
        settings = settle_training(spec, self._datasets[0], not isinstance(self._model, Autoencoder))
        liars = Liars.parse(spec.liars, spec.devices)
        self._workshop = Workshop(scheme_of(spec), self._model, settings, spec.train.server_lr, liars)

    def __iter__(self) -> Iterator[Progress]:
        """Compute one batch of rounds after the other; the runs are finished when the iteration is."""
        while True:
            started = time.perf_counter()
            works = [work for simulation in self.simulations for work in simulation.next_works()]
            if not works:
                break
            self._workshop.compute(works)
            self._collect()
            self._seconds += time.perf_counter() - started
            self._rounds_computed += 1
            progress = self._progress()
            if progress.rounds_done % self.spec.checkpoint_every == 0:
                self.save_checkpoints()
            yield progress
        self._collect()
        self._finish()

    def _collect(self) -> None:
        for simulation, directory in zip(self.simulations, self._directories, strict=False):
            lines = simulation.collect()
            if directory is not None:
                directory.append(lines)

    def _progress(self) -> Progress:
        losses = [simulation.losses[-1] for simulation in self.simulations if simulation.losses]
        done = min(simulation.rounds_done for simulation in self.simulations)
        return Progress(done, self.spec.rounds, losses[0] if losses else None)

    def checkpoints(self) -> list[Checkpoint]:
        """Return what must be known to go on from here; also the common prefix of runs that differ only later."""
        return [simulation.checkpoint() for simulation in self.simulations]

    def save_checkpoints(self) -> None:
        """Keep on disk what `--resume` needs."""
        for simulation, directory in zip(self.simulations, self._directories, strict=True):
            if directory is not None:
                directory.save_checkpoint(simulation.checkpoint())

    @property
    def summary(self) -> dict[str, object]:
        """The result as `summary.json` has it: of the one run, or of all repetitions together."""
        if len(self.results) == 1:
            return self.results[0].summary
        return summarise_repetitions([result.summary for result in self.results])

    def _finish(self) -> None:
        seconds_per_round = self._seconds / max(1, self._rounds_computed)
        self.results = [_result(simulation, seconds_per_round) for simulation in self.simulations]
        if is_plain(self.spec):
            self.results = [
                _plain_result(one, slices)
                for one, slices in zip(repetitions_of(self.spec), self._datasets, strict=True)
            ]
        for result, directory in zip(self.results, self._directories, strict=True):
            if directory is not None:
                directory.append(result.records[-1:] if self.simulations else result.records)
                tensors = {name: model.tensors() for name, model in result.models.items()}
                directory.finish(tensors, result.summary)
        if self._above is not None:
            self._above.finish({}, self.summary)


def repetitions_of(spec: RunSpec) -> list[RunSpec]:
    """Return one specification per repetition, each with its own seed and, in turn, its own split."""
    return [spec.repetition(index) for index in range(spec.repetitions)]


def datasets_of(
    spec: RunSpec, data: FederatedDataset | Sequence[FederatedDataset] | None = None
) -> list[FederatedDataset]:
    """Return the data of each repetition: as given (one for all, or one each), or by the name in the specification."""
    if data is None:
        return [load(one) for one in repetitions_of(spec)]
    datasets = [data] * spec.repetitions if isinstance(data, FederatedDataset) else list(data)
    for slices in datasets:
        if slices.n_devices != spec.devices:
            raise SpecError(f"{spec.devices} devices, but the data has slices for {slices.n_devices}")
    return datasets


def run(
    spec: RunSpec, data: FederatedDataset | None = None, model: Model | None = None, out: Path | None = None
) -> list[Result]:
    """Run all repetitions of a specification to their end."""
    runs = Runs(spec, data, model, out)
    for _ in runs:
        pass
    return runs.results


def _directory(path: Path, spec: RunSpec, resume: bool) -> RunDirectory:
    if resume and (path / "spec.toml").exists():
        return RunDirectory.reopen(path, spec)[0]
    return RunDirectory.create(path, spec)


def _result(simulation: Simulation, seconds_per_round: float) -> Result:
    spec, data, ledger, outcome = simulation.spec, simulation.data, simulation.timeline.ledger, simulation.outcome()
    scores = score_models(outcome.models, data, outcome.holders)
    summary = summarise(spec, data, outcome.models, outcome.holders, scores, simulation.records, ledger)
    summary |= in_the_end(simulation.records, outcome.last_round, outcome.n_dropped)
    summary |= {"rounds_lost": outcome.rounds_lost, "seconds_per_round": seconds_per_round}
    records = [*simulation.records, scores_of(summary, simulation.records[-1])]
    return Result(spec, summary, records, outcome.models, data, ledger)


def _plain_result(spec: RunSpec, data: FederatedDataset) -> Result:
    everybody = tuple(range(spec.devices))
    ended: list[AnyRecord] = [RunEnded(time_s=0.0, reason="no rounds: all data in one place", survivors=everybody)]
    ledger = Ledger(Topology.contiguous(spec.devices, 1), spec.scheme)
    summary = summarise(spec, data, {}, {}, plain_scores(spec.scheme, data), ended, ledger)
    summary |= in_the_end(ended, None, 0)
    summary |= {"rounds": 0, "rounds_lost": 0, "seconds_per_round": 0.0}
    return Result(spec, summary, [*ended, scores_of(summary, ended[-1])], {}, data, ledger)
