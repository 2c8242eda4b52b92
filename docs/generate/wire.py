"""A table of fields for each frame and message on the wire, each kind of record and an alarm, from the structs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import get_args

import msgspec

from docs.generate.settings import fields_of
from docs.generate.words import cell, table
from tolfl.core import records
from tolfl.net import wire
from tolfl.protocol import messages
from tolfl.protocol.history import Version
from tolfl.watch.alarm_events import AlarmEvent

Kind = type[msgspec.Struct]
#: What is said of the fields of protocol messages here: in the code, the classes say it together.
_SAID = {
    "sender": "the device that sends it",
    "incarnation": "of the sender",
    "version": "of the state that the sender holds, or that the message is about",
    "dead": "incarnations that have failed, as far as the sender knows: device and incarnation",
    "what": "`report` or `mean`",
    "included": "whose samples are in it",
}
_TYPES = {
    r"_(Count|Samples|Id)": "int",
    r"DeviceSet": "bytes",
    r"msgspec\.Raw": "message",
    r"frozenset\[Incarnation\]": "list[[int, int]]",
    r"tuple\[tuple\[(.+?)\], \.\.\.\]": r"list[[\1]]",
    r"tuple\[(\w+), \.\.\.\]": r"list[\1]",
    r"tuple\[(list\[\w+\]), \.\.\.\]": r"list[\1]",
    r"None": "nil",
    r"How": "str: mean, sum, min, max",
    r"Payload": "str",
    r"FeatureShare": "object",
}
_HEAD = ["field", "type", "what"]


def frames() -> tuple[Kind, ...]:
    """Return everything that a frame can be."""
    return get_args(wire.Frame)


def spoken() -> tuple[Kind, ...]:
    """Return everything that a message can be."""
    return get_args(wire.Incoming)


PARTS_OF_MESSAGES: tuple[Kind, ...] = (
    Version,
    wire.ContributionHeader,
    wire.PartHeader,
    wire.RecordHeader,
    wire.ArrayHeader,
)
PARTS_OF_ANSWERS: tuple[Kind, ...] = (wire.DeviceIncarnation, wire.PeerStatus)


def page() -> str:
    """Return a table per frame, message and part of a message."""
    parts = ["## Frames", *_sections(frames())]
    parts += ["## Messages", "Each begins with these.", _fields(messages.Message)]
    parts += _sections(spoken(), without=messages.Message.__struct_fields__)
    parts += ["## Parts of messages", *_sections(PARTS_OF_MESSAGES)]
    parts += ["## Parts of a status", *_sections(PARTS_OF_ANSWERS)]
    return "\n\n".join(parts)


def kinds_of_records() -> str:
    """Return a table of what every record has, then one per kind."""
    own = records.Record.__struct_fields__
    return "\n\n".join([_fields(records.Record), *_sections(get_args(records.AnyRecord), without=own)])


def alarm() -> str:
    """Return a table of what an alarm has."""
    return _fields(AlarmEvent)


def name_of(kind: Kind) -> str:
    """Return the name of a frame, message, part or record as it is written, or the one by which tables name it."""
    return str(kind.__struct_config__.tag or kind.__name__)


def _sections(kinds: Iterable[Kind], without: tuple[str, ...] = ()) -> list[str]:
    parts = []
    for kind in kinds:
        parts += [f"### {name_of(kind)}", cell((kind.__doc__ or "").strip().split("\n\n")[0])]
        parts += [_fields(kind, without)] if set(kind.__struct_fields__) - set(without) else []
    return parts


def _fields(kind: Kind, without: tuple[str, ...] = ()) -> str:
    said = {name: text for base in reversed(_bases(kind)) for name, text in fields_of(base).items()}
    rows = [
        [f"`{name}`", f"`{_type(kind, name)}`", cell(said.get(name) or _SAID[name])]
        for name in kind.__struct_fields__
        if name not in without
    ]
    return table(_HEAD, rows)


def _bases(kind: Kind) -> list[Kind]:
    return [base for base in kind.__mro__ if issubclass(base, msgspec.Struct) and base is not msgspec.Struct]


def _type(kind: Kind, field: str) -> str:
    text: str = next(base.__annotations__[field] for base in _bases(kind) if field in base.__annotations__)
    for pattern, words in _TYPES.items():
        text = re.sub(rf"\b{pattern}", words, text)
    return text.replace("|", "or")
