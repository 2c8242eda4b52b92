"""Simulated runs: one run (`Simulation`), and the repetitions of a specification in lock-step (`Runs`).

Runs are written to disk or kept in memory, resumed, or started from rounds that are known already.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from tolfl.core.byzantine import Tampering, parse_liars
from tolfl.core.defence import counted
from tolfl.core.errors import SpecError
from tolfl.core.records import AnyRecord, Evaluated, RunEnded, RunStarted, how_far
from tolfl.core.spec import RunSpec, Timing
from tolfl.core.topology import Topology
from tolfl.datasets import FederatedDataset
from tolfl.learners import Account, Learner, Scorer, State
from tolfl.learners.layouts import check_scheme, failure_plan, hosts, is_plain
from tolfl.learners.learner import first_state
from tolfl.learners.registry import learner_of, what_of
from tolfl.learners.training import Model
from tolfl.protocol.device import Rules
from tolfl.runs.checkpoint import Checkpoint, Evaluation
from tolfl.runs.directory import RunDirectory
from tolfl.runs.evaluation import mean_loss, score_models
from tolfl.runs.ledger import Ledger
from tolfl.runs.outcome import Held, Outcome, data_for, fleet_of, holders_of, outcome_of
from tolfl.runs.run_figures import plot_curves
from tolfl.runs.summary import (
    scores_of,
    summarise,
    summarise_repetitions,
)
from tolfl.sim.batch_trainer import BatchTrainer, Work
from tolfl.sim.deferred import DeferredState
from tolfl.sim.timeline import ClosedStep, Timeline
from tolfl.sim.world import World, training_speeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Simulation:
    """One run in virtual time, advanced from outside so that many can be computed as one batch."""

    def __init__(
        self, spec: RunSpec, data: FederatedDataset, learner: Learner, known: Checkpoint | None = None
    ) -> None:
        self.spec, self.data, self.learner = spec, data, learner
        self._known = known or Checkpoint([])
        first = DeferredState(None, None, None)
        first.finish(first_state(learner), Account())
        world, plan = world_of(spec, data, learner), failure_plan(spec, learner.all_stages())
        self.timeline = Timeline(world, plan, first)
        self._items: Iterator[AnyRecord | ClosedStep] | None = self.timeline.play()
        self._unwritten: list[AnyRecord | ClosedStep] = [self._started()]
        self._next: ClosedStep | None = None  #: pulled, but its parent is not computed yet
        self._computing: list[ClosedStep] = []
        self._steps: WeakValueDictionary[int, DeferredState] = WeakValueDictionary()
        self.accounts: list[Account] = []
        self.evaluations: dict[int, Evaluation] = {}
        self.records: list[AnyRecord] = []
        self.rounds_done = 0

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        loss = self.accounts[-1].loss if self.accounts else None
        return Progress(self.rounds_done, self.learner.rounds, loss, self.learner.all_stages())

    def _started(self) -> RunStarted:
        return RunStarted(
            time_s=0.0,
            scheme=self.spec.scheme,
            data=self.data.name,
            seed=self.spec.seed,
            clusters=self.timeline.world.rules.topology.clusters,
            model_bytes=self.learner.model_bytes,
            hosts=hosts(self.spec),
            defence=str(self.spec.defence),
            liars=self.spec.liars,
            learn=what_of(self.spec),
            stages=self.learner.all_stages(),
        )

    # -- rounds -------------------------------------------------------------------------------------------------

    def next_works(self) -> list[Work]:
        """Return every step that can be computed now; none: the run is over."""
        while True:
            closing = self._next or self._pull()
            self._next = None
            if closing is None:
                break
            parent = closing.step.parent
            if parent is not None and not parent.is_done:
                self._next = closing
                break
            if len(self.accounts) + len(self._computing) < self._known.n_steps:
                self._recall(closing)
            else:
                self._computing.append(closing)
        return [Work(closing.step, self.learner, self.spec.seed, self.data) for closing in self._computing]

    def _pull(self) -> ClosedStep | None:
        for item in self._items or ():
            self._unwritten.append(item)
            if isinstance(item, ClosedStep):
                return item
        self._items = None
        return None

    def _recall(self, closing: ClosedStep) -> None:
        """Take a round from the checkpoint instead of training it."""
        step = len(self.accounts)
        closing.step.finish(self._known.states.get(step), self._known.accounts[step])
        self._close(closing)

    def collect(self) -> list[AnyRecord]:
        """Take in what was computed; return the record lines that are complete now."""
        for closing in self._computing:
            self._close(closing)
        self._computing = []
        return self._written()

    def _close(self, closing: ClosedStep) -> None:
        step = len(self.accounts)
        self.accounts.append(closing.step.account)
        self._steps[step] = closing.step
        self.rounds_done = max(self.rounds_done, closing.round_index + 1)
        every = self.spec.evaluate_every
        if every and (closing.round_index + 1) % every == 0:
            self.evaluations[step] = self._evaluate(step, closing)
            score, loss = self.evaluations[step]
            place = self._unwritten.index(closing)
            self._unwritten.insert(
                place + 1,
                Evaluated(
                    time_s=closing.time_s,
                    device=closing.device,
                    round=closing.round_index,
                    version=str(closing.record.version),
                    auroc=score,
                    loss=loss,
                ),
            )

    def _evaluate(self, step: int, closing: ClosedStep) -> Evaluation:
        if step in self._known.evaluations:
            return self._known.evaluations[step]
        if closing.step.state is None:
            return None, None
        results = self.learner.results(closing.step.state)
        holders = holders_of(results, closing.record.included)
        return score_models(results, self.data, holders).auroc, mean_loss(results, self.data.pool, holders)

    def _written(self) -> list[AnyRecord]:
        """Return the lines that will not change any more: all but the last closed round and what follows it."""
        closings = [place for place, item in enumerate(self._unwritten) if isinstance(item, ClosedStep)]
        n_complete = len(self._unwritten) if self._items is None else closings[-1] if closings else 0
        complete = [item.line() if isinstance(item, ClosedStep) else item for item in self._unwritten[:n_complete]]
        self._unwritten = self._unwritten[n_complete:]
        self.records += complete
        return complete

    def checkpoint(self) -> Checkpoint:
        """Return what must be known to go on from here without training again."""
        states = {step: kept.state for step, kept in self._steps.items() if kept.state is not None}
        return Checkpoint(list(self.accounts), dict(self.evaluations), states)

    # -- the end ------------------------------------------------------------------------------------------------

    def held(self) -> list[Held]:
        """Return what the live devices hold."""
        found = []
        for end in self.timeline.ends():
            step, version = end.record.state, end.record.version
            if not isinstance(step, DeferredState) or step.state is None:
                raise LookupError(f"the model of device {end.device} has not been computed")
            found.append(Held(end.device, version, version.history, step.state, end.is_private, end.stopped))
        return found

    def outcome(self) -> Outcome:
        """Return what the live devices leave to be used."""
        return outcome_of(self.learner, self.held())


def world_of(spec: RunSpec, data: FederatedDataset, learner: Learner) -> World:
    """Return what a timeline needs to know of a run."""
    rules = Rules.of(spec, learner)
    rules = msgspec.structs.replace(rules, min_devices=max(spec.min_devices, learner.min_devices))
    n_samples = tuple(data.n_samples(device) for device in range(spec.devices))
    per_sample = spec.links.seconds_per_sample * spec.train.epochs
    speeds = training_speeds(spec.links, spec.devices, spec.seed)
    nbytes = tuple(learner.nbytes(index) for index in range(learner.rounds))
    if any(up for up, _ in nbytes):
        train_s = tuple(per_sample * n / speed for n, speed in zip(n_samples, speeds, strict=True))
    else:  # all rows are on one machine
        server = rules.topology.server
        train_s = tuple(per_sample * sum(n_samples) if device == server else 0.0 for device in range(spec.devices))
    liars = parse_liars(spec.liars, spec.devices)
    reported = tuple(liars.get(device, Tampering()).reported_count(n) for device, n in enumerate(n_samples))
    return World(
        rules,
        reported,
        tuple(counted(spec.defence, n) for n in reported),
        train_s,
        nbytes,
        spec.links,
        Timing.preset(spec.timing),
        spec.scheme,
        spec.deadline_s,
        spec.defence.is_on,
    )


@dataclass(frozen=True)
class Progress:
    """How far a run is, or several jobs of one run each.

    >>> Progress(5, 10, None).done, Progress(5, 10, None, label="fl", jobs_done=2, n_jobs=3).done
    (5, 2.5)
    """

    rounds_done: int = 0
    rounds: int = 1
    loss: float | None = None
    stages: tuple[tuple[str, int], ...] = ()  #: name and number of rounds of each, where the learner has any
    label: str = ""  #: of the job at hand
    jobs_done: int = 0
    n_jobs: int = 0  #: 0: it is one run

    @property
    def done(self) -> float:
        """How much of `total` is done: rounds, or jobs with the part of the one at hand."""
        return self.jobs_done + self.rounds_done / max(1, self.rounds) if self.n_jobs else self.rounds_done

    @property
    def total(self) -> int:
        """How many rounds or jobs there are."""
        return self.n_jobs or self.rounds

    @property
    def text(self) -> str:
        """How far it is in words, as in `autoencoder 13/100 (round 15 of 109)`."""
        return how_far(self.stages, self.rounds_done, self.rounds)


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: how good its model is, what happened, and the model itself."""

    spec: RunSpec  #: everything the run depended on
    summary: dict[str, object]  #: the content of `summary.json`
    records: list[AnyRecord]  #: what happened, in order
    models: dict[str, Scorer]  #: of those who train together (the heaviest, after a cut for good), of each who is alone
    state: State | None  #: what the fleet holds in the end; None where nobody is left, or each went on alone
    data: FederatedDataset
    ledger: Ledger  #: every message that carried a model

    @property
    def auroc(self) -> float | None:
        """AUROC on the test set; the mean over devices where they went on alone; None without a test set."""
        value = self.summary["auroc"]
        return value if isinstance(value, float) else None

    @property
    def model(self) -> Scorer:
        """The model of the fleet; the first one where devices went on alone."""
        if not self.models:
            raise LookupError(f"this run left no model: {self.summary['ended']}")
        return next(iter(self.models.values()))

    def plot(self) -> Figure:
        """Return a figure of the loss (and AUROC, where it was evaluated) over rounds, with failures marked."""
        return plot_curves([(self._label, self.records)])

    @property
    def _label(self) -> str:
        policy = self.summary["on_head_failure"]
        return f"{self.spec.scheme} ({policy})" if policy else self.spec.scheme

    def __repr__(self) -> str:
        without = "no test set" if self.models else "no model left" if self.summary["survivors"] else "no device left"
        auroc = without if self.auroc is None else f"AUROC {self.auroc:.3f}"
        return f"<Run {self._label} on {self.summary['data']}: {auroc}, {len(self.models)} model(s)>"


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
        self.results: list[Run] = []
        specs = repetitions_of(spec)
        for one in specs:
            check_scheme(one)  # what is wrong is found before anything is written
        self._datasets = datasets_of(spec, data)
        learners = []
        if not is_plain(spec):
            fleets = [fleet_of(one, slices) for one, slices in zip(specs, self._datasets, strict=True)]
            # Settled by the first repetition: all of them are trained in one batch.
            learners = [learner_of(replace(fleet, usual_rows=fleets[0].usual_rows), model) for fleet in fleets]
            # Here too: a learner may name layers, and a plan stages, that are not there.
            first_state(learners[0])
            failure_plan(specs[0], learners[0].all_stages())
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
        done = min(simulation.rounds_done for simulation in self.simulations)
        return replace(self.simulations[0].progress, rounds_done=done)

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
) -> list[Run]:
    """Run all repetitions of a specification to their end."""
    runs = Runs(spec, data, model, out)
    for _ in runs:
        pass
    return runs.results


def _directory(path: Path, spec: RunSpec, resume: bool) -> RunDirectory:
    if resume and (path / "spec.toml").exists():
        return RunDirectory.reopen(path, spec)
    return RunDirectory.create(path, spec)


def _result(simulation: Simulation, seconds_per_round: float) -> Run:
    spec, data, ledger, records = simulation.spec, simulation.data, simulation.timeline.ledger, simulation.records
    outcome, summary = summarise(spec, data, simulation.learner, simulation.held(), records, ledger)
    summary["seconds_per_round"] = seconds_per_round
    records = [*records, scores_of(summary, records[-1])]
    return Run(spec, summary, records, outcome.results, outcome.state, data, ledger)


def _plain_result(spec: RunSpec, data: FederatedDataset) -> Run:
    everybody = tuple(range(spec.devices))
    ended: list[AnyRecord] = [RunEnded(time_s=0.0, reason="no rounds: all data in one place", survivors=everybody)]
    ledger = Ledger(Topology.contiguous(spec.devices, 1), spec.scheme)
    _, summary = summarise(spec, data, None, (), ended, ledger)
    summary["seconds_per_round"] = 0.0
    return Run(spec, summary, [*ended, scores_of(summary, ended[-1])], {}, None, data, ledger)
