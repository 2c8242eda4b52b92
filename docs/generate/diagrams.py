"""`python -m docs.generate.diagrams`: sequence diagrams and state diagram of the protocol, drawn from running it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tolfl.core.failures import Cut, FailurePlan
from tolfl.core.spec import RunSpec
from tolfl.datasets import load
from tolfl.learners.layouts import failure_plan
from tolfl.learners.registry import learner_of
from tolfl.protocol.device import Device
from tolfl.protocol.events import Announce, Event, PeerFailed, Received, Send, TakeOver, Train
from tolfl.protocol.injector import Die, PlannedEffect
from tolfl.protocol.messages import Ack, AnyMessage, Closed, Mean, Report
from tolfl.runs.outcome import fleet_of
from tolfl.sim.deferred import DeferredState
from tolfl.sim.simulation import world_of
from tolfl.sim.timeline import Timeline
from tolfl.sim.world import World

# -- a run of the protocol that is traced -------------------------------------------------------------------------

#: Names of what a device is, as `tolfl status` says them.
DEAD = "dead"


@dataclass(frozen=True)
class Sent:
    """A message; one to somebody who is dead, or across a cut, is lost."""

    sender: int
    to: int
    message: AnyMessage
    is_lost: bool


@dataclass(frozen=True)
class Happened:
    """Something that happened to one device."""

    device: int
    what: Train | Announce | TakeOver | Die | PeerFailed


Entry = Sent | Happened


class TracedTimeline(Timeline):
    """A timeline with a memory."""

    def __init__(self, world: World, plan: FailurePlan) -> None:
        super().__init__(world, plan, DeferredState(None, None, None), by_events=True)
        self.entries: list[Entry] = []
        self.changes: set[tuple[str, str]] = set()
        self._states = {device: state_of(injector.device) for device, injector in self.devices.items()}

    def _happen(self, device: int, event: Event | Cut) -> None:
        if isinstance(event, Received):
            is_lost = device not in self.devices or self._is_cut(device, event.message.sender)
            self.entries.append(Sent(event.message.sender, device, event.message, is_lost))
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
            self.entries.append(Sent(device, effect.to, effect.message, is_lost=True))
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


def traced(fail: str = "", **options: object) -> TracedTimeline:
    """Play a run to its end and return it; four devices in two clusters unless asked otherwise."""
    blobs = {"samples_per_device": 20, "n_features": 4, "n_test": 2}
    small = {"data": "blobs", "devices": 4, "clusters": 2, "rounds": 2, "blobs": blobs}
    spec = RunSpec.from_fields({**small, "fail": fail, **options}).check()
    data = load(spec)
    timeline = TracedTimeline(world_of(spec, data, learner_of(fleet_of(spec, data))), failure_plan(spec))
    for _ in timeline.play():
        pass
    return timeline


# -- its drawings -------------------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[1] / "explanation" / "algorithm.md"
#: Failure plans by the name of the diagram: 0 and 2 are heads, 2 is the closer.
SCENARIOS = {
    "nobody": "",
    "member-in-report": "device:1@0/report",
    "head-in-chain": "device:0@0/chain",
    "closer-in-distribute": "device:2@0/distribute",
}
_BLOCK = re.compile(r"(<!-- diagram: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """Return a page with the diagrams that its marks ask for."""
    return _BLOCK.sub(lambda found: f"{found[1]}```mermaid\n{diagram(found['name'])}\n```\n{found[3]}", text)


def diagram(name: str) -> str:
    """Return the first round of a scenario, up to where everybody who is left trains on its model."""
    run = traced(SCENARIOS[name])
    lines = ["sequenceDiagram"]
    for index, cluster in enumerate(run.world.rules.topology.clusters):
        lines += [f"    box cluster {index}", *(f"        participant {_called(one)}" for one in cluster), "    end"]
    for key, group in groupby(_first_round(run), key=_kind):
        lines += [f"    {line}" for line in _lines(key, list(group))]
    return "\n".join(lines)


def _first_round(run: TracedTimeline) -> Iterable[Entry]:
    """Yield what happens until all live devices train on one and the same later model."""
    trains_on: dict[int, str] = {}
    for entry in run.entries:
        yield entry
        if isinstance(entry, Happened) and isinstance(entry.what, Train):
            trains_on[entry.device] = str(entry.what.version)
            versions = {trains_on.get(device, "") for device in run.devices}
            if len(versions) == 1 and entry.what.version.round == 1:
                return


def _kind(entry: Entry) -> tuple[str, str]:
    """Return what neighbours in a diagram may share: the same thing that happens to several devices."""
    match entry:
        case Happened(what=Train(version=version)):
            return "train", str(version)
        case Happened(what=PeerFailed(device=device)):
            return "noticed", str(device)
        case _:
            return "", ""


def _lines(key: tuple[str, str], entries: list[Entry]) -> list[str]:
    if key == ("", ""):
        return [_line(entry) for entry in entries]
    devices = sorted(entry.device for entry in entries if isinstance(entry, Happened))
    over = f"d{devices[0]}" if len(devices) == 1 else f"d{devices[0]},d{devices[-1]}"
    kind, what = key
    who = _ids(devices)
    if kind == "noticed":
        return [f"Note over {over}: {who} {'notices' if len(devices) == 1 else 'notice'} that {what} is dead"]
    round_index = int(what.split(".")[1])
    return [f"Note over {over}: {who} {'trains' if len(devices) == 1 else 'train'}, round {round_index}"]


def _line(entry: Entry) -> str:
    match entry:
        case Sent(sender, to, message, is_lost):
            arrow = "->>" if isinstance(message, Report | Mean | Closed) else "-->>"
            return f"d{sender}{'-x' if is_lost else arrow}d{to}: {_words(message)}"
        case Happened(device, Announce(record=record)):
            return f"Note over d{device}: closes round {record.version.round - 1} with {_ids(record.included)}"
        case Happened(device, TakeOver(cluster=cluster)):
            return f"Note over d{device}: is now head of cluster {cluster}"
        case Happened(device, Die()):
            return f"Note over d{device}: dies"
        case _:
            raise ValueError(f"no line for {entry}")


def _words(message: AnyMessage) -> str:
    match message:
        case Report():
            return "report"
        case Mean(total=total):
            return f"mean of {_ids(total.included)}"
        case Closed(record=record):
            return f"round {record.version.round - 1}, closed with {_ids(record.included)}"
        case Ack():
            return "ack"
        case _:
            return f"{type(message).__name__.lower()}, at round {message.version.round}"


def _ids(devices: Iterable[int]) -> str:
    return ", ".join(map(str, devices))


def _called(device: int) -> str:
    return f"d{device} as device {device}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
