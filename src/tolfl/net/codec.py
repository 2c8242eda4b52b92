"""Messages of the protocol as wire messages and back; what comes from outside is checked before it becomes one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tolfl.core.contribution import Contribution, Part, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.net import wire_pb2 as pb
from tolfl.protocol import messages
from tolfl.protocol.history import ClosedRound, Life, Roster, Version
from tolfl.protocol.messages import AnyMessage, Payload

_SMALL: dict[str, type[messages.Heartbeat | messages.Pull | messages.Join | messages.Goodbye]] = {
    "heartbeat": messages.Heartbeat,
    "pull": messages.Pull,
    "join": messages.Join,
    "goodbye": messages.Goodbye,
}
_ABOUT: dict[str, type[messages.Offer | messages.Want | messages.Ack]] = {
    "offer": messages.Offer,
    "want": messages.Want,
    "ack": messages.Ack,
}
_HISTORY = re.compile(r"[0-9a-f]{0,64}")
MAX_COUNT = 2**62  #: of samples, and of lives
_MAX_SAMPLES, _MAX_NUMBER = 2**40, 1e18  #: their product, summed over 10,000 devices, fits into float32
_MAX_REASON = 40


class RefusedMessageError(ValueError):
    """A message from outside that cannot be what it says; `kind` is what status counts it under."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


@dataclass(frozen=True)
class Expected:
    """What any message of this fleet must fit: who there is, and how large a model is."""

    topology: Topology
    keys: tuple[str, ...]
    n_params: int
    dtype: np.dtype[Any]
    rounds: int = 2**32 - 1  #: of the run
    max_work: int | None = None  #: samples that a round can have at most, where their number is capped


# -- out --------------------------------------------------------------------------------------------------------


def encode(message: AnyMessage, is_light: bool = False) -> tuple[pb.Message, list[Vector]]:
    """Return a message as it travels, and the tensors that follow it. `is_light`: a closed round without its models."""
    out = pb.Message(
        sender=message.sender,
        incarnation=message.incarnation,
        version=_version(message.version),
        dead=_lives(message.dead),
    )
    tensors: list[Vector] = []
    match message:
        case messages.Report():
            contribution = _contribution(message.contribution.resolve(), tensors)
            out.report.CopyFrom(pb.Report(contribution=contribution, joiners=_lives(message.joiners.items())))
        case messages.Mean():
            total = _contribution(message.total.resolve(), tensors)
            joiners = _lives(message.joiners.items())
            out.mean.CopyFrom(pb.Mean(total=total, missing=message.missing, joiners=joiners))
        case messages.Closed():
            out.closed.CopyFrom(_closed(message.record, is_light, tensors))
        case messages.Offer() | messages.Want() | messages.Ack():
            about = pb.About(is_mean=message.what is Payload.MEAN, included=_bits(message.included))
            getattr(out, type(message).__name__.lower()).CopyFrom(about)
        case _:
            getattr(out, type(message).__name__.lower()).CopyFrom(pb.Nothing())
    return out, tensors


def _version(version: Version) -> pb.Version:
    return pb.Version(work=version.work, round=version.round, revision=version.revision, history=version.history)


def _lives(lives: Iterable[Life]) -> list[pb.Life]:
    return [pb.Life(device=device, incarnation=incarnation) for device, incarnation in sorted(lives)]


def _bits(devices: DeviceSet) -> bytes:
    return devices.bits.to_bytes((devices.bits.bit_length() + 7) // 8, "little")


def _tensor(vector: Vector, tensors: list[Vector]) -> pb.Tensor:
    tensors.append(vector)
    return pb.Tensor(is_float64=vector.dtype == np.float64, length=len(vector))


def _contribution(contribution: Contribution, tensors: list[Vector]) -> pb.Contribution:
    parts = [
        pb.Part(
            key=key,
            n_samples=part.n_samples,
            weight=part.weight,
            included=_bits(part.included),
            loss=part.loss,
            n_trained=part.n_trained,
            vector=_tensor(part.vector, tensors),
        )
        for key, part in contribution.parts.items()
    ]
    return pb.Contribution(included=_bits(contribution.included), n_samples=contribution.n_samples, parts=parts)


def _closed(record: ClosedRound, is_light: bool, tensors: list[Vector]) -> pb.Closed:
    models = {} if is_light else cast("dict[str, Vector]", record.state)
    return pb.Closed(
        version=_version(record.version),
        roster=_lives(record.roster.lives),
        parent=record.parent,
        included=_bits(record.included),
        missing=record.missing,
        n_samples=record.n_samples,
        is_over=record.is_over,
        models=[pb.Model(key=key, params=_tensor(params, tensors)) for key, params in models.items()],
    )


# -- in ---------------------------------------------------------------------------------------------------------


def tensors_of(message: pb.Message, expected: Expected) -> list[pb.Tensor]:
    """Return the tensors that a message says will follow, refusing those that no model of this fleet has."""
    match message.WhichOneof("body"):
        case "report":
            named = [(part.key, part.vector) for part in message.report.contribution.parts]
        case "mean":
            named = [(part.key, part.vector) for part in message.mean.total.parts]
        case "closed":
            named = [(model.key, model.params) for model in message.closed.models]
        case _:
            named = []
    keys = [key for key, _ in named]
    if len(set(keys)) < len(keys) or not set(keys) <= set(expected.keys):
        raise RefusedMessageError("shape", f"models {keys}; this fleet has {list(expected.keys)}")
    for _, tensor in named:
        if tensor.length != expected.n_params or tensor.is_float64 != (expected.dtype == np.float64):
            raise RefusedMessageError("shape", f"a vector of {tensor.length} numbers; a model has {expected.n_params}")
    return [tensor for _, tensor in named]


def decode(message: pb.Message, tensors: Sequence[Vector], expected: Expected) -> AnyMessage:
    """Return the message of the protocol, or refuse it."""
    header = (
        _known(message.sender, expected),
        _count(message.incarnation, "incarnation"),
        _possible(_read_version(message.version), expected),
        frozenset(_read_lives(message.dead, expected)),
    )
    for tensor in tensors:
        # What is finite may still overflow when it is weighted and summed.
        if not np.abs(tensor).max(initial=0) < _MAX_NUMBER:
            raise RefusedMessageError("non-finite", "a model with numbers that are not finite, or huge")
    body = message.WhichOneof("body")
    match body:
        case "report":
            contribution = _read_contribution(message.report.contribution, tensors, expected)
            if contribution.included != DeviceSet.of([message.sender]):
                raise RefusedMessageError("provenance", f"device {message.sender} reports for others")
            return messages.Report(*header, contribution, _one_life_each(message.report.joiners, expected))
        case "mean":
            return _read_mean(message, header, tensors, expected)
        case "closed":
            return messages.Closed(*header, _read_closed(message.closed, header[2], tensors, expected))
        case "offer" | "want" | "ack":
            about = getattr(message, body)
            what = Payload.MEAN if about.is_mean else Payload.REPORT
            return _ABOUT[body](*header, what, _read_bits(about.included, expected))
        case None:
            raise RefusedMessageError("malformed", "a message of a kind that this version does not know")
    return _SMALL[body](*header)


Header = tuple[int, int, Version, frozenset[Life]]


def _read_mean(message: pb.Message, header: Header, tensors: Sequence[Vector], expected: Expected) -> messages.Mean:
    total = _read_contribution(message.mean.total, tensors, expected)
    cluster_of = expected.topology.cluster_of
    if any(cluster_of[device] > cluster_of[message.sender] for device in total.included):
        raise RefusedMessageError("provenance", f"device {message.sender} sends the mean of clusters after its own")
    missing = _read_missing(message.mean.missing, expected)
    return messages.Mean(*header, total, missing, _one_life_each(message.mean.joiners, expected))


def _read_closed(closed: pb.Closed, version: Version, tensors: Sequence[Vector], expected: Expected) -> ClosedRound:
    if _read_version(closed.version) != version:
        raise RefusedMessageError("malformed", "a record under another version than its message")
    if not _HISTORY.fullmatch(closed.parent):
        raise RefusedMessageError("malformed", "a history that is no hexadecimal number")
    keys = [model.key for model in closed.models]
    if keys and set(keys) != set(expected.keys):
        raise RefusedMessageError("shape", f"models {keys}; this fleet has {list(expected.keys)}")
    roster = _one_life_each(closed.roster, expected)
    return ClosedRound(
        version,
        Roster(roster),
        dict(zip(keys, tensors, strict=True)),
        closed.parent,
        _read_bits(closed.included, expected),
        _read_missing(closed.missing, expected),
        _count(closed.n_samples, "number of samples"),
        closed.is_over,
    )


def _read_contribution(contribution: pb.Contribution, tensors: Sequence[Vector], expected: Expected) -> Contribution:
    parts = {
        part.key: Part(
            _count(part.n_samples, "number of samples", least=1, most=_MAX_SAMPLES),
            vector,
            _count(part.weight, "weight", least=1, most=_MAX_SAMPLES),
            _read_bits(part.included, expected),
            _number(part.loss),
            _count(part.n_trained, "number of samples"),
        )
        for part, vector in zip(contribution.parts, tensors, strict=True)
    }
    included = _read_bits(contribution.included, expected)
    if any(part.included - included for part in parts.values()):
        raise RefusedMessageError("provenance", "a model with samples of devices that are not in the contribution")
    return Contribution(
        included,
        _count(contribution.n_samples, "number of samples"),
        parts,
    )


def _read_version(version: pb.Version) -> Version:
    if not _HISTORY.fullmatch(version.history):
        raise RefusedMessageError("malformed", "a history that is no hexadecimal number")
    return Version(_count(version.work, "work"), version.round, version.revision, version.history)


def _possible(version: Version, expected: Expected) -> Version:
    """Refuse versions that no history of this run can have: the heaviest one wins, and must have been earned."""
    most = MAX_COUNT if expected.max_work is None else version.round * expected.max_work
    if version.round > expected.rounds or version.work > most:
        raise RefusedMessageError("malformed", f"version {version}, which this run cannot have")
    return version


def _known(device: int, expected: Expected) -> int:
    if device not in expected.topology.cluster_of:
        raise RefusedMessageError("malformed", f"there is no device {device} in this fleet")
    return device


def _read_lives(lives: Iterable[pb.Life], expected: Expected) -> list[Life]:
    return [(_known(life.device, expected), _count(life.incarnation, "incarnation")) for life in lives]


def _one_life_each(lives: Iterable[pb.Life], expected: Expected) -> dict[int, int]:
    read = _read_lives(lives, expected)
    if len(dict(read)) < len(read):
        raise RefusedMessageError("malformed", "a device with two lives at once")
    return dict(read)


def _read_missing(missing: Mapping[int, str], expected: Expected) -> dict[int, str]:
    if any(len(reason) > _MAX_REASON for reason in missing.values()):
        raise RefusedMessageError("malformed", "a reason that is longer than any")
    return {_known(device, expected): reason for device, reason in sorted(missing.items())}


def _read_bits(content: bytes, expected: Expected) -> DeviceSet:
    devices = DeviceSet(int.from_bytes(content, "little"))
    if devices.bits.bit_length() > expected.topology.n_devices:
        raise RefusedMessageError("malformed", "a set with devices that are not in this fleet")
    return devices


def _count(number: int, what: str, least: int = 0, most: int = MAX_COUNT) -> int:
    if not least <= number < most:
        raise RefusedMessageError("malformed", f"{what} {number}")
    return number


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise RefusedMessageError("non-finite", "a loss that is not finite")
    return value
