"""What can happen to a device. Past tense: it has happened, and the device says what follows."""

from __future__ import annotations

import msgspec

from tolfl.core.contribution import Pending
from tolfl.protocol.history import Version
from tolfl.protocol.messages import AnyMessage


class Started(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The device was switched on, for the first time or again."""


class Trained(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Local training on a version of the model is done."""

    version: Version
    contribution: Pending


class Received(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A message arrived."""

    message: AnyMessage


class PeerFailed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The failure detector gave up on a life of a peer."""

    device: int
    incarnation: int


class DeadlinePassed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The time that a head waits for its members in a round is over."""

    version: Version


class Ticked(msgspec.Struct, frozen=True, gc=False, tag=True):
    """It is time for a heartbeat, or a connection came back."""


class LeaveAsked(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The operator wants the device to leave in good order."""


Event = Received | Trained | PeerFailed | Ticked | DeadlinePassed | Started | LeaveAsked
