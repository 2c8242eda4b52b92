"""Messages between devices. Each has its sender's incarnation, its version and the failures it knows of (rule 1)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tolfl.core.contribution import Pending
from tolfl.core.device_set import DeviceSet
from tolfl.protocol.history import ClosedRound, Incarnation, Version


class Message(msgspec.Struct, frozen=True, gc=False):
    """The header of every message.

    Messages, events and effects never form cycles, so Python's garbage collector need not walk them (`gc=False`): a
    round of 1,000 devices makes some 10,000.
    """

    sender: int
    incarnation: int
    version: Version
    dead: frozenset[Incarnation]


class Payload(StrEnum):
    """What a small message is about."""

    REPORT = "report"
    MEAN = "mean"


class Report(Message, frozen=True, gc=False, tag=True):
    """A member's contribution, to its head."""

    contribution: Pending
    joiners: dict[int, int]


class Mean(Message, frozen=True, gc=False, tag=True):
    """A head's running mean, to the next head."""

    total: Pending
    missing: dict[int, str]
    joiners: dict[int, int]


class Closed(Message, frozen=True, gc=False, tag=True):
    """A closed round and its model."""

    record: ClosedRound


class Offer(Message, frozen=True, gc=False, tag=True):
    """Ask whether a payload that was sent and never acknowledged is there."""

    what: Payload
    included: DeviceSet


class Want(Message, frozen=True, gc=False, tag=True):
    """No, send it again."""

    what: Payload
    included: DeviceSet


class Ack(Message, frozen=True, gc=False, tag=True):
    """A payload has arrived."""

    what: Payload
    included: DeviceSet


class Heartbeat(Message, frozen=True, gc=False, tag=True):
    """Nothing but the header: I am here, and this is my version."""


class Pull(Message, frozen=True, gc=False, tag=True):
    """Send me your newest closed round."""


class Join(Message, frozen=True, gc=False, tag=True):
    """The sender is outside the roster and asks to be admitted."""


class Leave(Message, frozen=True, gc=False, tag=True):
    """I leave by choice."""


AnyMessage = Report | Mean | Closed | Offer | Want | Ack | Heartbeat | Pull | Join | Leave
