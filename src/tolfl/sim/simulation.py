"""One run: its timeline, the rounds it waits for, its record lines, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakValueDictionary

from tolfl.core.byzantine import Tampering, parse_liars
from tolfl.core.defence import counted
from tolfl.core.records import AnyRecord, Evaluated, RunStarted
from tolfl.core.spec import RunSpec, Timing
from tolfl.datasets import FederatedDataset
from tolfl.learners import Account, Learner
from tolfl.learners.layouts import failure_plan, hosts
from tolfl.protocol.device import Rules
from tolfl.runs.checkpoint import Checkpoint
from tolfl.runs.evaluation import score_models
from tolfl.runs.outcome import Held, Outcome, holders_of, outcome_of
from tolfl.sim.batch_trainer import Work
from tolfl.sim.closing import Closing
from tolfl.sim.links import training_speeds
from tolfl.sim.promises import Step
from tolfl.sim.timeline import Timeline, World


class Simulation:
    """One run in virtual time, advanced from outside so that many can be computed as one batch."""

    def __init__(
        self, spec: RunSpec, data: FederatedDataset, learner: Learner, known: Checkpoint | None = None
    ) -> None:
        self.spec, self.data, self.learner = spec, data, learner
        self._known = known or Checkpoint([])
        first = Step(None, None, None)
        first.finish(learner.start({}), Account())
        self.timeline = Timeline(world_of(spec, data, learner), failure_plan(spec, learner.all_stages()), first)
        self._items: Iterator[AnyRecord | Closing] | None = self.timeline.play()
        self._unwritten: list[AnyRecord | Closing] = [self._started()]
        self._next: Closing | None = None  #: pulled, but its parent is not computed yet
        self._computing: list[Closing] = []
        self._steps: WeakValueDictionary[int, Step] = WeakValueDictionary()
        self.accounts: list[Account] = []
        self.evaluations: dict[int, float | None] = {}
        self.records: list[AnyRecord] = []
        self.rounds_done = 0

    def _started(self) -> RunStarted:
        return RunStarted(
            time_s=0.0,
            scheme=self.spec.scheme,
            data=self.data.name,
            seed=self.spec.seed,
            clusters=self.timeline.fleet.rules.topology.clusters,
            model_bytes=self.learner.model_bytes,
            hosts=hosts(self.spec),
            defence=str(self.spec.defence),
            liars=self.spec.liars,
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

    def _pull(self) -> Closing | None:
        for item in self._items or ():
            self._unwritten.append(item)
            if isinstance(item, Closing):
                return item
        self._items = None
        return None

    def _recall(self, closing: Closing) -> None:
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

    def _close(self, closing: Closing) -> None:
        step = len(self.accounts)
        self.accounts.append(closing.step.account)
        self._steps[step] = closing.step
        self.rounds_done = max(self.rounds_done, closing.round_index + 1)
        every = self.spec.evaluate_every
        if every and (closing.round_index + 1) % every == 0:
            self.evaluations[step] = self._evaluate(step, closing)
            place = self._unwritten.index(closing)
            self._unwritten.insert(
                place + 1,
                Evaluated(
                    time_s=closing.time_s,
                    device=closing.device,
                    round=closing.round_index,
                    version=str(closing.record.version),
                    auroc=self.evaluations[step],
                ),
            )

    def _evaluate(self, step: int, closing: Closing) -> float | None:
        if step in self._known.evaluations:
            return self._known.evaluations[step]
        if closing.step.state is None:
            return None
        results = self.learner.results(closing.step.state)
        return score_models(results, self.data, holders_of(results, closing.record.included)).auroc

    def _written(self) -> list[AnyRecord]:
        """Return the lines that will not change any more: all but the last closed round and what follows it."""
        closings = [place for place, item in enumerate(self._unwritten) if isinstance(item, Closing)]
        n_complete = len(self._unwritten) if self._items is None else closings[-1] if closings else 0
        complete = [item.line() if isinstance(item, Closing) else item for item in self._unwritten[:n_complete]]
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
        for injector in self.timeline.devices.values():
            device, step = injector.device, injector.device.record.state
            if not isinstance(step, Step) or step.state is None:
                raise LookupError(f"the model of device {device.id} has not been computed")
            version = device.version
            stopped = device.stopped or ""
            found.append(Held(device.id, version, version.history, step.state, device.is_private, stopped))
        return found

    def outcome(self) -> Outcome:
        """Return what the live devices leave to be used."""
        return outcome_of(self.learner, self.held())


def world_of(spec: RunSpec, data: FederatedDataset, learner: Learner) -> World:
    """Return what a timeline needs to know of a run."""
    rules = Rules.of(spec, learner)
    n_samples = tuple(data.n_samples(device) for device in range(spec.devices))
    per_sample = spec.links.seconds_per_sample * spec.train.epochs
    speeds = training_speeds(spec.links, spec.devices, spec.seed)
    nbytes = tuple(learner.nbytes(index) for index in range(learner.rounds))
    if nbytes[0][0]:
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
    )
