"""A run of the simulator's protocol that remembers who said what to whom, and what became of each device."""

from __future__ import annotations

from dataclasses import dataclass

from tolfl.core.failures import Cut, FailurePlan
from tolfl.core.spec import RunSpec
from tolfl.datasets import load
from tolfl.learners.layouts import failure_plan
from tolfl.learners.registry import learner_of
from tolfl.protocol.device import Device
from tolfl.protocol.events import Announce, Event, PeerFailed, Received, Send, TakeOver, Train
from tolfl.protocol.injector import Die, PlannedEffect
from tolfl.protocol.messages import AnyMessage
from tolfl.runs.outcome import fleet_of
from tolfl.sim.deferred import DeferredState
from tolfl.sim.simulation import world_of
from tolfl.sim.timeline import Timeline
from tolfl.sim.world import World

#: Names of what a device is, as `tolfl status` says them.
DEAD = "dead"


@dataclass(frozen=True)
class Said:
    """A message that arrived."""

    sender: int
    to: int
    message: AnyMessage


@dataclass(frozen=True)
class Lost:
    """A message to somebody who is dead, or across a cut."""

    sender: int
    to: int
    message: AnyMessage


@dataclass(frozen=True)
class Happened:
    """Something that happened to one device."""

    device: int
    what: Train | Announce | TakeOver | Die | PeerFailed


Entry = Said | Lost | Happened


class Watched(Timeline):
    """A timeline with a memory."""

    def __init__(self, world: World, plan: FailurePlan) -> None:
        super().__init__(world, plan, DeferredState(None, None, None), by_events=True)
        self.entries: list[Entry] = []
        self.changes: set[tuple[str, str]] = set()
        self._states = {device: state_of(injector.device) for device, injector in self.devices.items()}

    def _happen(self, device: int, event: Event | Cut) -> None:
        if isinstance(event, Received):
            is_lost = device not in self.devices or self._is_cut(device, event.message.sender)
            kind = Lost if is_lost else Said
            self.entries.append(kind(event.message.sender, device, event.message))
        elif isinstance(event, PeerFailed) and device in self.devices:
            self.entries.append(Happened(device, event))
        super()._happen(device, event)

    def _handle(self, device: int, event: Event) -> None:
        super()._handle(device, event)
        if device in self.devices:
            self._note_state(device, state_of(self.devices[device].device))

    def _do(self, device: int, effect: PlannedEffect) -> None:
        if isinstance(effect, Train | Announce | TakeOver | Die):
            self.entries.append(Happened(device, effect))
        if isinstance(effect, Send) and effect.to not in self.devices:
            self.entries.append(Lost(device, effect.to, effect.message))
        super()._do(device, effect)
        if isinstance(effect, Die):
            self._note_state(device, DEAD)

    def _note_state(self, device: int, state: str) -> None:
        before = self._states.get(device, DEAD)
        if before != state:
            self.changes.add((before, state))
        self._states[device] = state


def state_of(device: Device) -> str:
    """Return what a device is at the moment, in the words of `tolfl status`; stopped: why."""
    return device.stopped or device.role


def watched(fail: str = "", **options: object) -> Watched:
    """Play a run to its end and return it; four devices in two clusters unless asked otherwise."""
    blobs = {"samples_per_device": 20, "n_features": 4, "n_test": 2}
    small = {"data": "blobs", "devices": 4, "clusters": 2, "rounds": 2, "blobs": blobs}
    spec = RunSpec.from_fields({**small, "fail": fail, **options}).check()
    data = load(spec)
    timeline = Watched(world_of(spec, data, learner_of(fleet_of(spec, data))), failure_plan(spec))
    for _ in timeline.play():
        pass
    return timeline
