"""One run: its timeline, the rounds it waits for, its record lines, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakValueDictionary

from tolfl.core.byzantine import Liars
from tolfl.core.contribution import GLOBAL
from tolfl.core.defence import counted
from tolfl.core.records import AnyRecord, Evaluated, RunStarted
from tolfl.core.spec import RunSpec, Timing
from tolfl.datasets import FederatedDataset
from tolfl.models import Model
from tolfl.protocol.device import Device
from tolfl.protocol.rules import Rules
from tolfl.runs.checkpoint import NO_NOTE, Checkpoint, Note
from tolfl.runs.evaluation import TrainedModel, score_models
from tolfl.runs.ledger import Kind
from tolfl.schemes import Scheme, Served, failure_plan, layout, policy, scheme_of
from tolfl.sim.closing import Closing
from tolfl.sim.links import training_speeds
from tolfl.sim.promises import Step, apply, merge_under
from tolfl.sim.timeline import Fleet, Timeline
from tolfl.sim.workshop import Work


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind: models by name, and how many live devices hold each."""

    models: dict[str, TrainedModel]
    holders: dict[str, int]
    rounds_lost: int  #: closed on a branch that nobody holds any more
    n_dropped: int  #: live devices that a lost head has taken out of training
    last_round: str | None  #: the history that ends in the last round of the scored models


class Simulation:
    """One run in virtual time, advanced from outside so that many can be computed as one batch."""

    def __init__(self, spec: RunSpec, data: FederatedDataset, model: Model, known: Checkpoint | None = None) -> None:
        self.spec, self.data, self.model = spec, data, model
        self._known = known or Checkpoint([])
        self._scheme = scheme_of(spec)
        first = Step(None, None, None)
        first.finish(self._scheme.start(model, spec.seed), None)
        self.timeline = Timeline(fleet_of(spec, data, model), failure_plan(spec), first)
        self._items: Iterator[AnyRecord | Closing] | None = self.timeline.play()
        self._unwritten: list[AnyRecord | Closing] = [self._started()]
        self._next: Closing | None = None  #: pulled, but its parent is not computed yet
        self._computing: list[Closing] = []
        self._steps: WeakValueDictionary[int, Step] = WeakValueDictionary()
        self.losses: list[float | None] = []
        self.evaluations: dict[int, float | None] = {}
        self.notes: dict[int, Note] = {}
        self.records: list[AnyRecord] = []
        self.rounds_done = 0

    def _started(self) -> RunStarted:
        return RunStarted(
            time_s=0.0,
            scheme=self.spec.scheme,
            data=self.data.name,
            seed=self.spec.seed,
            clusters=self.timeline.fleet.rules.topology.clusters,
            model_bytes=self.timeline.fleet.model_bytes,
            hosts=self._scheme.hosts,
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
            if len(self.losses) + len(self._computing) < self._known.n_steps:
                self._recall(closing)
            else:
                self._computing.append(closing)
        return [Work(closing.step, self.spec.seed, self.data) for closing in self._computing]

    def _pull(self) -> Closing | None:
        for item in self._items or ():
            self._unwritten.append(item)
            if isinstance(item, Closing):
                return item
        self._items = None
        return None

    def _recall(self, closing: Closing) -> None:
        """Take a round from the checkpoint instead of training it."""
        step = len(self.losses)
        note = self._known.notes.get(step, NO_NOTE)
        closing.step.finish(self._known.models.get(step), self._known.losses[step], note)
        self._close(closing)

    def collect(self) -> list[AnyRecord]:
        """Take in what was computed; return the record lines that are complete now."""
        for closing in self._computing:
            self._close(closing)
        self._computing = []
        return self._written()

    def _close(self, closing: Closing) -> None:
        step = len(self.losses)
        self.losses.append(closing.step.loss)
        if closing.step.note != NO_NOTE:
            self.notes[step] = closing.step.note
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
        if closing.step.models is None:
            return None
        served = self._scheme.serving(closing.step.models, closing.record.included)
        models = {name: TrainedModel(self.model, one.params) for name, one in served.items()}
        return score_models(models, self.data, {name: one.n_devices for name, one in served.items()}).auroc

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
        models = {step: kept.models for step, kept in self._steps.items() if kept.models is not None}
        return Checkpoint(list(self.losses), dict(self.evaluations), models, dict(self.notes))

    # -- the end ------------------------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        """Return what the live devices hold: one model together, or one each where they went on alone."""
        devices = [injector.device for injector in self.timeline.devices.values()]
        alone = [device for device in devices if device.is_private]
        together = [device for device in devices if not device.is_private]
        models: dict[str, TrainedModel] = {}
        holders: dict[str, int] = {}
        if together:
            heaviest = max(together, key=lambda device: device.version)
            users = [device.id for device in together if device.version == heaviest.version]
            for name, served in _served(self._scheme, heaviest, users).items():
                models[name], holders[name] = TrainedModel(self.model, served.params), served.n_devices
        for device in sorted(alone, key=lambda device: device.id):
            for key, served in _served(self._scheme, device, [device.id]).items():
                name = f"device-{device.id}" if key == GLOBAL else f"device-{device.id}-{key}"
                models[name], holders[name] = TrainedModel(self.model, served.params), 1
        n_dropped = sum(device.stopped == "dropped" for device in devices)
        scored = heaviest.version.history if together else None
        last_round = None if scored is None else self.timeline.last_round_of(scored)
        return Outcome(models, holders, self.timeline.lost_rounds(), n_dropped, last_round)


def _served(scheme: Scheme, device: Device, users: list[int]) -> dict[str, Served]:
    step = device.record.models
    if not isinstance(step, Step) or step.models is None:
        raise LookupError(f"the model of device {device.id} has not been computed")
    return scheme.serving(step.models, users)


def fleet_of(spec: RunSpec, data: FederatedDataset, model: Model) -> Fleet:
    """Return what a timeline needs to know of a run."""
    scheme = scheme_of(spec)
    rules = Rules(
        scheme.wiring(layout(spec)),
        spec.rounds,
        apply,
        merge_under(spec.defence),
        scheme.protocol_policy(policy(spec)),
        spec.min_devices,
        spec.min_samples,
        spec.deadline_s is not None,
    )
    n_samples = tuple(data.n_samples(device) for device in range(spec.devices))
    per_sample = spec.links.seconds_per_sample * spec.train.epochs
    speeds = training_speeds(spec.links, spec.devices, spec.seed)
    if scheme.moves_models:
        train_s = tuple(per_sample * n / speed for n, speed in zip(n_samples, speeds, strict=True))
    else:
        server = rules.topology.server
        train_s = tuple(per_sample * sum(n_samples) if device == server else 0.0 for device in range(spec.devices))
    liars = Liars.parse(spec.liars, spec.devices)
    claimed = tuple(liars.claimed(device, n) for device, n in enumerate(n_samples))
    return Fleet(
        rules,
        claimed,
        tuple(counted(spec.defence, n) for n in claimed),
        train_s,
        model.initial(spec.seed).nbytes if scheme.moves_models else 0,
        spec.links,
        Timing.preset(spec.timing),
        spec.scheme,
        lambda kind, index: scheme.models_down(index) if kind is Kind.MODEL else scheme.models_up(index),
        spec.deadline_s,
    )
