"""Devices to talk to: one under test, with symbolic models, and messages from the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.protocol.world import Symbol, append, apply, merge
from tolfl.core.contribution import Pending
from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.protocol.device import Device, Rules
from tolfl.protocol.events import Announce, Applied, Apply, Effect, Event, Received, Send, Started, Trained
from tolfl.protocol.history import ClosedRound, Incarnation, Roster, State, Version
from tolfl.protocol.injector import PlannedEffect
from tolfl.protocol.messages import (
    Ack,
    AnyMessage,
    Closed,
    Heartbeat,
    Join,
    Leave,
    Mean,
    Offer,
    Payload,
    Pull,
    Report,
    Want,
)

FIRST = Version(0, 0, 0, "")
NOBODY: frozenset[Incarnation] = frozenset()

#: The samples of device d are d + 1.


def clusters(*ids: Sequence[int]) -> Topology:
    return Topology(tuple(tuple(cluster) for cluster in ids))


def first_record(topology: Topology) -> ClosedRound:
    return ClosedRound.first(Roster(dict.fromkeys(sorted(topology.cluster_of), 0)), ())


def device_in(
    topology: Topology,
    id: int,
    *,
    rounds: int = 3,
    policy: str = "elect",
    has_deadline: bool = False,
    min_devices: int = 1,
    incarnation: int = 0,
    admits: Callable[[Version, State, Pending | None, Pending], bool] | None = None,
) -> Device:
    """Return a device before its first round."""
    rules = Rules(topology, rounds, append, policy, min_devices, 1, has_deadline, admits)
    return Device(id, incarnation, first_record(topology), rules)


def started(topology: Topology, id: int, **options: object) -> Device:
    device = device_in(topology, id, **options)  # type: ignore[arg-type]
    device.handle(Started())
    return device


def share(device: int, version: Version = FIRST) -> Pending:
    return Symbol(DeviceSet.of([device]), device + 1, (((device, version), 1),))


def shares(*devices: int, version: Version = FIRST) -> Pending:
    return merge([share(device, version) for device in devices])


def trained(device: int, version: Version = FIRST) -> Trained:
    return Trained(version, share(device, version))


# -- what others say --------------------------------------------------------------------------------------------------


def report(
    sender: int, version: Version = FIRST, dead: frozenset[Incarnation] = NOBODY, incarnation: int = 0
) -> Received:
    return Received(
        Report(
            sender=sender,
            incarnation=incarnation,
            version=version,
            dead=dead,
            contribution=share(sender, version),
            joiners={},
        )
    )


def mean(
    sender: int, *inside: int, missing: dict[int, str] | None = None, dead: frozenset[Incarnation] = NOBODY
) -> Received:
    return Received(
        Mean(
            sender=sender,
            incarnation=0,
            version=FIRST,
            dead=dead,
            total=shares(*inside),
            missing=missing or {},
            joiners={},
        )
    )


def closed(sender: int, record: ClosedRound, dead: frozenset[Incarnation] = NOBODY) -> Received:
    return Received(Closed(sender=sender, incarnation=0, version=record.version, dead=dead, record=record))


def heartbeat(
    sender: int, version: Version = FIRST, dead: frozenset[Incarnation] = NOBODY, incarnation: int = 0
) -> Received:
    return Received(Heartbeat(sender=sender, incarnation=incarnation, version=version, dead=dead))


def join(sender: int, incarnation: int, version: Version = FIRST) -> Received:
    return Received(Join(sender=sender, incarnation=incarnation, version=version, dead=NOBODY))


def pull(sender: int, version: Version = FIRST) -> Received:
    return Received(Pull(sender=sender, incarnation=0, version=version, dead=NOBODY))


def leave(sender: int, version: Version = FIRST) -> Received:
    return Received(Leave(sender=sender, incarnation=0, version=version, dead=NOBODY))


def ack(sender: int, *inside: int, what: Payload = Payload.REPORT) -> Received:
    return Received(
        Ack(sender=sender, incarnation=0, version=FIRST, dead=NOBODY, what=what, included=DeviceSet.of(inside))
    )


def offer(sender: int, *inside: int, what: Payload = Payload.REPORT) -> Received:
    return Received(
        Offer(sender=sender, incarnation=0, version=FIRST, dead=NOBODY, what=what, included=DeviceSet.of(inside))
    )


def want(sender: int, *inside: int, what: Payload = Payload.REPORT) -> Received:
    return Received(
        Want(sender=sender, incarnation=0, version=FIRST, dead=NOBODY, what=what, included=DeviceSet.of(inside))
    )


def next_record(topology: Topology, *inside: int, without: Sequence[int] = ()) -> ClosedRound:
    """Return the record of round 0, closed with these devices inside; `without` are out of the next roster."""
    record = first_record(topology)
    roster = Roster({device: 0 for device in sorted(topology.cluster_of) if device not in without})
    return record.after(shares(*inside), {}, roster, ())


# -- what the device does ---------------------------------------------------------------------------------------------


def closing(device: Device, event: Event) -> list[Effect]:
    """Let a device handle an event by which it has everything, and the `Applied` that follows; return all effects."""
    effects = device.handle(event)
    return [*effects, *device.handle(applied(effects))]


def applied(effects: Sequence[PlannedEffect]) -> Applied:
    """Return the answer to the one `Apply` among effects."""
    (effect,) = [effect for effect in effects if isinstance(effect, Apply)]
    return Applied(effect.version, apply(effect))


def sent(effects: Sequence[Effect]) -> list[tuple[int, str]]:
    """Return whom the device writes to, and what."""
    return [(effect.to, type(effect.message).__name__) for effect in effects if isinstance(effect, Send)]


def messages_to(effects: Sequence[Effect], to: int) -> list[AnyMessage]:
    return [effect.message for effect in effects if isinstance(effect, Send) and effect.to == to]


def only(effects: Sequence[Effect], kind: type[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


STAR = clusters([0, 1, 2])
TWO = clusters([0, 1], [2, 3])
CHAIN = clusters([0], [1], [2])


def announced(effects: Sequence[Effect]) -> Announce:
    (found,) = [effect for effect in effects if isinstance(effect, Announce)]
    return found
