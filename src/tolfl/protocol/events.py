"""Events that a device handles, and effects that it returns.

Events are past tense: they have happened. Effects are imperative: the driver carries them out in the order in which it
gets them, and reports back by events.
"""

from __future__ import annotations

import msgspec

from tolfl.core.contribution import Pending
from tolfl.core.device_set import DeviceSet
from tolfl.protocol.history import ClosedRound, State, Version
from tolfl.protocol.messages import AnyMessage


class Started(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The device was switched on, for the first time or again."""


class Trained(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Local training on a version of the model is done."""

    version: Version
    contribution: Pending


class Applied(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The state after the round of a version is computed, or can be had from now on."""

    version: Version
    state: State
    loss: float | None = None  #: of the round, where it is known by now


class Received(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A message arrived."""

    message: AnyMessage


class PeerFailed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The failure detector gave up on an incarnation of a peer."""

    device: int
    incarnation: int


class DeadlinePassed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The time that a head waits for its members in a round is over."""

    version: Version


class Ticked(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It is time for a heartbeat, or a connection came back."""


class LeaveAsked(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The operator wants the device to leave in good order."""


Event = Received | Trained | Applied | PeerFailed | Ticked | DeadlinePassed | Started | LeaveAsked


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message to a device."""

    to: int
    message: AnyMessage


class Train(msgspec.Struct, frozen=True, gc=False):
    """Train on your own samples from this version; answer with `Trained`. Drops any training still under way."""

    version: Version
    state: State


class Apply(msgspec.Struct, frozen=True, gc=False):
    """Compute the state after the round of this version; answer with `Applied`."""

    version: Version
    state: State  #: of the version
    total: Pending  #: what the round contributes
    present: DeviceSet  #: who goes on from it


class SetDeadline(msgspec.Struct, frozen=True, gc=False):
    """Answer with `DeadlinePassed` when a head has waited long enough in the round of this version."""

    version: Version


class Announce(msgspec.Struct, frozen=True, gc=False):
    """Write down that this device closed a round. Precedes the messages to other devices."""

    record: ClosedRound
    total: Pending | None  #: what went into the model; None if only the roster changed
    heads: tuple[int, ...]
    joined: tuple[tuple[int, int], ...]


class TakeOver(msgspec.Struct, frozen=True, gc=False):
    """Write down that this device is now the head of its cluster."""

    cluster: int
    previous: int


class KeepIncarnation(msgspec.Struct, frozen=True, gc=False):
    """Keep this number on disk before anything else: the next incarnation must be a later one."""

    incarnation: int


class Stop(msgspec.Struct, frozen=True, gc=False):
    """Nothing more will come from this device: the run is `over`, it `left`, or its cluster was `dropped`."""

    reason: str


Effect = Send | Train | Apply | SetDeadline | Announce | TakeOver | KeepIncarnation | Stop
