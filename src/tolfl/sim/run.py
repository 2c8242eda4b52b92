"""Runs from a specification: repetitions as one batch, on disk or in memory, resumed or from known rounds on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tolfl.core.byzantine import parse_liars
from tolfl.core.errors import SpecError
from tolfl.core.records import AnyRecord, RunEnded
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology
from tolfl.datasets import FederatedDataset
from tolfl.learners import Scorer, State
from tolfl.learners.layouts import check_scheme, is_plain
from tolfl.learners.registry import learner_of
from tolfl.models import Model
from tolfl.runs.checkpoint import Checkpoint
from tolfl.runs.directory import RunDirectory
from tolfl.runs.evaluation import score_models
from tolfl.runs.ledger import Ledger
from tolfl.runs.outcome import data_for, fleet_of, last_update, lost_rounds
from tolfl.runs.summary import (
    in_the_end,
    plain_scores,
    scores_of,
    summarise,
    summarise_repetitions,
    what_was_learned,
)
from tolfl.sim.batch_trainer import BatchTrainer
from tolfl.sim.simulation import Simulation


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    rounds_done: int
    rounds: int
    loss: float | None
    stage: str = ""  #: of the last round that was closed; empty where the learner has none
    round_of_stage: int = 0
    rounds_of_stage: int = 0

    @property
    def stage_text(self) -> str:
        """How far the stage is, as in `autoencoder 13/100`."""
        return f"{self.stage} {self.round_of_stage + 1}/{self.rounds_of_stage}"


@dataclass(frozen=True)
class Result:
    """A finished run."""

    spec: RunSpec
    summary: dict[str, object]
    records: list[AnyRecord]
    models: dict[str, Scorer]
    state: State | None  #: what the fleet holds in the end; None where nobody is left, or each went on alone
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
        learners = []
        if not is_plain(spec):
            fleets = [fleet_of(one, slices) for one, slices in zip(specs, self._datasets, strict=True)]
            # Settled by the first repetition: all of them are trained in one batch.
            learners = [learner_of(replace(fleet, usual_rows=fleets[0].usual_rows), model) for fleet in fleets]
            learners[0].start({})  # here too: a learner may name layers that are not there
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
            Simulation(one, slices, learner, start)
            for one, slices, learner, start in zip(specs, self._datasets, learners, starts, strict=True)
        ]
        self._trainer = BatchTrainer(parse_liars(spec.liars, spec.devices))

    def __iter__(self) -> Iterator[Progress]:
        """Compute one batch of rounds after the other; the runs are finished when the iteration is."""
        while True:
            started = time.perf_counter()
            works = [work for simulation in self.simulations for work in simulation.next_works()]
            if not works:
                break
            self._trainer.compute(works)
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
        accounts = [simulation.accounts[-1] for simulation in self.simulations if simulation.accounts]
        done = min(simulation.rounds_done for simulation in self.simulations)
        learner = self.simulations[0].learner
        stage = learner.stage(max(0, done - 1))
        return Progress(done, learner.rounds, accounts[0].loss if accounts else None, *stage)

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
                directory.finish(result.models, result.summary, result.state)
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
        return [data_for(one) for one in repetitions_of(spec)]
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
    records = simulation.records
    scores = score_models(outcome.results, data, outcome.holders)
    summary = summarise(spec, data, outcome.results, outcome.holders, scores, records, ledger)
    summary |= in_the_end(records, last_update(outcome.history, records), outcome.n_dropped)
    rounds_lost = lost_rounds([one.history for one in simulation.held()], records)
    summary |= {"rounds_lost": rounds_lost, "seconds_per_round": seconds_per_round}
    summary |= what_was_learned(spec, simulation.learner, outcome.state)
    records = [*records, scores_of(summary, records[-1])]
    return Result(spec, summary, records, outcome.results, outcome.state, data, ledger)


def _plain_result(spec: RunSpec, data: FederatedDataset) -> Result:
    everybody = tuple(range(spec.devices))
    ended: list[AnyRecord] = [RunEnded(time_s=0.0, reason="no rounds: all data in one place", survivors=everybody)]
    ledger = Ledger(Topology.contiguous(spec.devices, 1), spec.scheme)
    summary = summarise(spec, data, {}, {}, plain_scores(spec.scheme, data), ended, ledger)
    summary |= in_the_end(ended, None, 0)
    summary |= {"rounds": 0, "rounds_lost": 0, "seconds_per_round": 0.0, "learn": spec.scheme, "stages": []}
    summary |= {"state_digest": None}
    return Result(spec, summary, [*ended, scores_of(summary, ended[-1])], {}, None, data, ledger)
