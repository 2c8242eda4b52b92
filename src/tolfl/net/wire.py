"""The wire contract, version 2: frames of msgpack, and the checks that a message must pass before it counts.

A connection carries frames, each behind its length in four bytes. A frame is a map whose `type` names it. A message of
the protocol travels with the fields that it has there, a set of devices as little-endian bytes of bits, an array as its
type and length; the bytes of all arrays follow in chunks.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, repeat
from typing import Annotated, Any, TypeVar, cast

import msgspec
import numpy as np
from msgspec import Meta

from tolfl.core.contribution import Contribution, How, Part, Vector, can_travel
from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.protocol import messages
from tolfl.protocol.history import ClosedRound, Roster, Version
from tolfl.protocol.messages import AnyMessage

WIRE_VERSION = 2
#: What comes before each frame: its length, little-endian.
LENGTH = struct.Struct("<I")
#: Small enough that a ping on a link of 20 Mbit/s waits for 30 ms, large enough to cost little.
CHUNK_BYTES = 64 * 1024
#: No frame is larger: a chunk, or a message whose dead, roster and addresses are those of 10,000 devices.
MAX_FRAME_BYTES = 1024 * 1024
MAX_COUNT = 2**62  #: of samples, and of incarnations
_MAX_SAMPLES = 2**40
_MAX_REASON = 40
_MAX_ARRAYS, _MAX_KEY = 256, 64
_HISTORY = re.compile(r"[0-9a-f]{0,64}")
DTYPES = {name: np.dtype(name) for name in ("f4", "f8", "i8", "u1")}

_Count = Annotated[int, Meta(ge=0, lt=MAX_COUNT)]
_Samples = Annotated[int, Meta(ge=1, lt=_MAX_SAMPLES)]
_Id = Annotated[int, Meta(ge=0, lt=2**32)]


class RefusedMessageError(ValueError):
    """A message from outside that cannot be what it says; `kind` is what status counts it under."""

    def __init__(self, kind: str, problem: str, proof: bytes = b"") -> None:
        super().__init__(problem)
        self.kind, self.proof = kind, proof  #: and the signed list that a peer was revoked by


@dataclass(frozen=True)
class Limits:
    """What any message of this fleet must fit: who there is, and how much a message may hold."""

    topology: Topology
    rounds: int = 2**32 - 1  #: of the run
    max_work: int | None = None  #: samples that a round can have at most, where their number is capped
    max_numbers: int = 2**22  #: in one array
    max_bytes: int = 2**26  #: of all arrays of a message
    #: The type and length of each array, where they are the same in all rounds; None: the device checks each round's.
    shapes: Mapping[str, tuple[str, int]] | None = None

    @classmethod
    def of_state(cls, topology: Topology, rounds: int, max_work: int | None, state: Mapping[str, Vector]) -> Limits:
        """Return the limits of a run whose contributions and states all look like this one."""
        shapes = {key: (array.dtype.str[1:], len(array)) for key, array in state.items()}
        longest, n_bytes = max(map(len, state.values())), sum(array.nbytes for array in state.values())
        return cls(topology, rounds, max_work, longest, n_bytes, shapes)


# -- frames -----------------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first frame of each side of a connection between devices."""

    wire: int = 0  #: version of this contract that the sender uses
    fleet: str = ""  #: name of the fleet: devices of another fleet are refused
    device: int = 0  #: the sender
    incarnation: _Count = 0  #: in which incarnation
    to: int | None = None  #: whom the caller wants to reach: another device refuses; nil: any device
    process: _Count = 0  #: a number that the process has drawn: two of them are never one incarnation
    is_inside: bool = False  #: the sender is part of a roster and trains
    addresses: dict[int, str] = {}  #: host:port of the devices that the sender knows of, its own included
    revocations: bytes = b""  #: the signed list of revocations that the sender goes by; empty without TLS


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Are you there? Answered with a pong of the same number."""

    number: _Count  #: they count up on each connection and side


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """I am, and what you send arrives."""

    number: _Count  #: of the ping


class Envelope(msgspec.Struct, frozen=True, tag="message"):
    """A message of the protocol; where it has arrays, their chunks follow, with other frames in between."""

    message: msgspec.Raw  #: one of the messages below


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """Bytes of the arrays of the last message that has any, in the order in which it names them."""

    content: bytes  #: little-endian numbers, at most 64 KiB


class Receipt(msgspec.Struct, frozen=True, tag="receipt"):
    """A message with arrays has arrived, all its chunks included."""

    number: _Count  #: of the message; those with arrays count from 1 on each connection and side


class Addresses(msgspec.Struct, frozen=True, tag="addresses"):
    """Where devices are that the hello of the receiver did not name: the sender may know of them since."""

    addresses: dict[int, str]  #: host:port by device


class RevocationList(msgspec.Struct, frozen=True, tag="revocations"):
    """A newer signed list of revocations."""

    content: bytes  #: the list as the authority has signed it


class Rejection(msgspec.Struct, frozen=True, tag="rejection"):
    """The last frame of a connection that is not wanted: why."""

    kind: str  #: what the sender counts it under
    reason: str  #: a sentence
    revocations: bytes = b""  #: for who was revoked: the signed list that says so


class StatusRequest(msgspec.Struct, frozen=True, tag="status?"):
    """In place of a hello: what is there to know? Answered with a status."""


class DeviceIncarnation(msgspec.Struct, frozen=True):
    """One incarnation of a device."""

    device: _Id  #: whose
    incarnation: _Count  #: which


class PeerStatus(msgspec.Struct, frozen=True):
    """What a device knows of one of the others."""

    device: _Id  #: who
    address: str  #: host:port
    is_connected: bool  #: a link to it is open
    silent_s: float  #: for how long it has given no sign of life


class AlarmStatus(msgspec.Struct, frozen=True):
    """A group of alarms, as its last event has it."""

    id: str  #: of the event: the group's name and the number of the event in it
    event: str  #: open, update, close
    severity: str  #: notice, warning, high: the worst so far
    what: str  #: in one line for people
    age_s: float  #: since the device said so


class WatchStatus(msgspec.Struct, frozen=True):
    """The status of a device's own source that it watches."""

    source: str  #: what is watched
    model: str = ""  #: the first digits of the SHA-256 of the detector in use; empty: there is none yet
    is_up: bool = False  #: whether the source gives rows
    rows: int = 0  #: windows judged since the process started
    alarms: int = 0  #: of these above the limit
    waiting: int = 0  #: events on their way
    trouble: str = ""  #: what the operator should look at
    latest: tuple[AlarmStatus, ...] = ()  #: the last groups of alarms, the newest first


class StatusReply(msgspec.Struct, frozen=True, tag="status"):
    """What a device knows of itself and of its peers, for whoever may ask."""

    device: _Id  #: who answers
    incarnation: _Count = 0  #: in which incarnation
    fleet: str = ""  #: name of the fleet
    version: Version = Version(0, 0, 0, "")  #: of the model that it holds
    rounds: int = 0  #: of the run
    role: str = ""  #: waiting, head, member, closer, outside, alone, stopped
    cluster: int = 0  #: of the device
    loss: float | None = None  #: of its last training
    n_samples: int = 0  #: of its own
    roster: tuple[DeviceIncarnation, ...] = ()  #: who takes part in the round
    dead: tuple[DeviceIncarnation, ...] = ()  #: whom it holds for dead
    peers: tuple[PeerStatus, ...] = ()  #: the others that it has an address of
    refused: dict[str, int] = {}  #: messages and peers rejected, by kind
    stopped: str = ""  #: why nothing more comes from this device, if so
    trouble: str = ""  #: what the operator should look at, such as a full disk
    running_s: float = 0.0  #: since the process started
    wire: int = WIRE_VERSION  #: version of this contract
    bytes_sent: int = 0  #: to all peers
    messages_sent: int = 0  #: to all peers
    stages: tuple[tuple[str, int], ...] = ()  #: name and number of rounds of each, where the learner has any
    clusters: tuple[tuple[int, ...], ...] = ()  #: of the fleet, in the order of the chain
    included: tuple[int, ...] = ()  #: whose samples are in the last round that it knows of
    missing: dict[int, str] = {}  #: who is not, and why
    round_age_s: float = 0.0  #: since it got to know of that round
    watch: WatchStatus | None = None  #: of its own source, where it watches one


class RecordsRequest(msgspec.Struct, frozen=True, tag="records?"):
    """In place of a hello: what has the device written down? Answered with records."""

    first: _Count  #: byte of its record file to begin with


class Records(msgspec.Struct, frozen=True, tag="records"):
    """A piece of a device's record file: JSON lines, the last of which may be cut. Empty: there is no more so far."""

    content: bytes  #: at most 512 KiB


class CommandRequest(msgspec.Struct, frozen=True, tag="command"):
    """In place of a hello: what an operator, or a launcher with its token, asks a device to do. Answered with done."""

    token: str = ""  #: that of the launcher; operators have none
    cut: tuple[int, ...] | None = None  #: let no word pass to and from these devices; an empty list ends every cut
    leave: bool = False  #: leave and stop
    absent: tuple[int, ...] = ()  #: do not wait for these devices before the first round


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A command was carried out."""


Frame = (
    Hello
    | Ping
    | Pong
    | Envelope
    | Chunk
    | Receipt
    | Addresses
    | RevocationList
    | Rejection
    | StatusRequest
    | StatusReply
    | RecordsRequest
    | Records
    | CommandRequest
    | Done
)


# -- messages with arrays ---------------------------------------------------------------------------------------


class ArrayHeader(msgspec.Struct, frozen=True, array_like=True):
    """One array of numbers; its bytes follow in chunks. A list of three, without names."""

    dtype: str  #: f4, f8, i8 or u1
    length: _Count  #: how many numbers
    packed: _Count = 0  #: bytes of the zlib stream that follows in their place (i8 only); 0: the numbers themselves

    @property
    def n_bytes(self) -> int:
        """How many bytes follow."""
        return self.packed or self.length * DTYPES[self.dtype].itemsize


class PartHeader(msgspec.Struct, frozen=True):
    """One array that is merged over devices."""

    n_samples: _Samples  #: that the mean is over
    vector: ArrayHeader  #: weight * vector is the sum over samples
    weight: _Samples  #: 1 unless it is the mean of one device
    included: DeviceSet  #: whose numbers are inside
    loss: float  #: mean loss of their training
    n_trained: _Count  #: samples that the loss is the mean of
    how: How  #: parts of several devices become one


class ContributionHeader(msgspec.Struct, frozen=True):
    """What one device or several contribute."""

    included: DeviceSet  #: whose samples are inside
    n_samples: _Count  #: how many
    parts: dict[str, PartHeader]  #: by name


class RecordHeader(msgspec.Struct, frozen=True):
    """A closed round."""

    version: Version  #: of the state that it led to
    roster: dict[int, int]  #: of the next round: device and incarnation
    state: dict[str, ArrayHeader | None]  #: by name; nil: kept, as in the parent's state, and does not travel
    parent: str  #: the history that this one extends
    included: DeviceSet  #: whose samples went into the round
    missing: dict[int, str]  #: device and reason
    n_samples: _Count  #: of the round
    is_over: bool  #: the run is finished
    loss: float | None  #: mean over the round's samples, for the log of whoever gets it


class ReportHeader(messages.Message, frozen=True, gc=False, tag="Report"):
    """A member's contribution, to its head."""

    contribution: ContributionHeader  #: of the sender alone
    joiners: dict[int, int]  #: who wants to come in: device and incarnation


class MeanHeader(messages.Message, frozen=True, gc=False, tag="Mean"):
    """A head's running mean, to the next head."""

    total: ContributionHeader  #: of the clusters up to the sender's
    missing: dict[int, str]  #: device and reason
    joiners: dict[int, int]  #: who wants to come in: device and incarnation


class ClosedHeader(messages.Message, frozen=True, gc=False, tag="Closed"):
    """A closed round and its state."""

    record: RecordHeader  #: under the version of the message


_WithArrays = ReportHeader | MeanHeader | ClosedHeader
_Small = (
    messages.Offer | messages.Want | messages.Ack | messages.Heartbeat | messages.Pull | messages.Join | messages.Leave
)
Incoming = _WithArrays | _Small


# -- out --------------------------------------------------------------------------------------------------------


def _plain(value: object) -> object:
    if isinstance(value, DeviceSet):
        return value.bits.to_bytes((value.bits.bit_length() + 7) // 8, "little")
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} has no form on the wire")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)


def encode_frame(frame: Frame) -> bytes:
    """Return a frame as it travels, behind its length."""
    content = _ENCODER.encode(frame)
    return LENGTH.pack(len(content)) + content


def chunks(arrays: Sequence[Vector | bytes]) -> Iterator[bytes]:
    """Yield the bytes of arrays, little-endian, in frames."""
    for array in arrays:
        content = memoryview(array) if isinstance(array, bytes) else _little(array)
        for first in range(0, len(content), CHUNK_BYTES):
            yield encode_frame(Chunk(bytes(content[first : first + CHUNK_BYTES])))


def _little(array: Vector) -> memoryview:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).view(np.uint8).data


def n_bytes_of(array: Vector | bytes) -> int:
    """Return how many bytes of an array travel."""
    return len(array) if isinstance(array, bytes) else array.nbytes


def _announced(contribution: Contribution, arrays: list[Vector | bytes]) -> ContributionHeader:
    parts = {
        key: PartHeader(**{**msgspec.structs.asdict(part), "vector": _announced_array(part.vector, arrays)})
        for key, part in contribution.parts.items()
    }
    return ContributionHeader(contribution.included, contribution.n_samples, parts)


def _announced_record(record: ClosedRound, parent: Mapping[str, Vector], arrays: list[Vector | bytes]) -> RecordHeader:
    whole = cast("dict[str, Vector]", record.state)
    state = {key: None if parent.get(key) is array else _announced_array(array, arrays) for key, array in whole.items()}
    rest = (record.parent, record.included, record.missing, record.n_samples, record.is_over, record.loss)
    return RecordHeader(record.version, record.roster.incarnations, state, *rest)


def _announced_array(array: Vector, arrays: list[Vector | bytes]) -> ArrayHeader:
    dtype = array.dtype.str[1:]
    if dtype not in DTYPES or array.ndim != 1:
        raise ValueError(
            f"an array of type {array.dtype} with {array.ndim} axes; one axis and {', '.join(DTYPES)} travel"
        )
    if dtype == "i8":
        packed = zlib.compress(_little(array), 1)
        if len(packed) < array.nbytes:
            arrays.append(packed)
            return ArrayHeader(dtype, len(array), len(packed))
    arrays.append(array)
    return ArrayHeader(dtype, len(array))


# -- in ---------------------------------------------------------------------------------------------------------

_Kind = TypeVar("_Kind")


def _revived(kind: type, value: Any) -> object:
    if kind is DeviceSet and isinstance(value, bytes):
        return DeviceSet(int.from_bytes(value, "little"))
    raise ValueError(f"no {kind.__name__}")


_FRAMES = msgspec.msgpack.Decoder(Frame)
_MESSAGES = msgspec.msgpack.Decoder(Incoming, dec_hook=_revived)


def frame_length(prefix: bytes) -> int:
    """Return how many bytes the frame behind a prefix has, or refuse it before they come."""
    if prefix == b"PRI ":  # the first bytes of HTTP/2
        raise RefusedMessageError("wire version", f"this device uses wire version {WIRE_VERSION}, not gRPC")
    (length,) = LENGTH.unpack(prefix)
    if length > MAX_FRAME_BYTES:
        raise RefusedMessageError("oversize", f"a frame of {length} bytes; at most {MAX_FRAME_BYTES}")
    return int(length)


def read_frame(content: bytes) -> Frame:
    """Return a frame, given without its length, or refuse it."""
    return cast("Frame", _decoded(_FRAMES, content))


def _decoded(decoder: msgspec.msgpack.Decoder[_Kind], content: bytes | msgspec.Raw) -> _Kind:
    try:
        return decoder.decode(content)
    except (ValueError, RecursionError) as error:  # brackets without end are no bytes that cannot be read, but worse
        raise RefusedMessageError("malformed", f"bytes that are no known frame ({error})") from None


class Codec:
    """Messages of one fleet as bytes and back; what comes from outside is checked before it becomes one."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    # -- out ----------------------------------------------------------------------------------------------------

    @staticmethod
    def encode(message: AnyMessage, parent: Mapping[str, Vector] | None = None) -> tuple[bytes, list[Vector | bytes]]:
        """Return a message as a frame, and the arrays that follow it.

        Arrays of a closed round that are the very ones of the `parent` state are named and do not travel: whoever has
        the parent has them.
        """
        arrays: list[Vector | bytes] = []
        header = (message.sender, message.incarnation, message.version, message.dead)
        encoded: AnyMessage | _WithArrays
        match message:
            case messages.Report():
                contribution = _announced(message.contribution.resolve(), arrays)
                encoded = ReportHeader(*header, contribution, message.joiners)
            case messages.Mean():
                total = _announced(message.total.resolve(), arrays)
                encoded = MeanHeader(*header, total, message.missing, message.joiners)
            case messages.Closed():
                encoded = ClosedHeader(*header, _announced_record(message.record, parent or {}, arrays))
            case _:
                encoded = message
        return encode_frame(Envelope(msgspec.Raw(_ENCODER.encode(encoded)))), arrays

    # -- in -----------------------------------------------------------------------------------------------------

    def read(self, content: bytes | msgspec.Raw) -> tuple[Incoming, list[ArrayHeader]]:
        """Return a message without its arrays, and which arrays follow."""
        incoming = cast("Incoming", _decoded(_MESSAGES, content))
        named: Mapping[str, ArrayHeader | None]
        match incoming:
            case ReportHeader():
                named = {key: part.vector for key, part in incoming.contribution.parts.items()}
            case MeanHeader():
                named = {key: part.vector for key, part in incoming.total.parts.items()}
            case ClosedHeader():
                named = incoming.record.state
                if self._limits.shapes is not None and named.keys() != self._limits.shapes.keys():
                    raise RefusedMessageError("shape", f"arrays {list(named)[:9]}; here: {list(self._limits.shapes)}")
            case _:
                named = {}
        if len(named) > _MAX_ARRAYS or any(len(key) > _MAX_KEY for key in named):
            raise RefusedMessageError("shape", f"{len(named)} arrays, or one with an endless name")
        follow = {key: array for key, array in named.items() if array is not None}
        for key, array in follow.items():
            self._check_shape(key, array)
        if sum(array.n_bytes for array in follow.values()) > self._limits.max_bytes:
            raise RefusedMessageError("oversize", f"arrays of more than {self._limits.max_bytes} bytes")
        return incoming, list(follow.values())

    def _check_shape(self, key: str, array: ArrayHeader) -> None:
        limits = self._limits
        what = f"an array of {array.length} numbers ({array.dtype[:9]!r})"
        if array.dtype not in DTYPES or array.length > limits.max_numbers:
            raise RefusedMessageError("shape", f"{what}; at most {limits.max_numbers} of {', '.join(DTYPES)}")
        if limits.shapes is not None and limits.shapes.get(key) != (array.dtype, array.length):
            raise RefusedMessageError("shape", f"{what} under {key!r}; here: {limits.shapes.get(key)}")
        if array.packed and (array.dtype != "i8" or array.packed >= array.length * DTYPES["i8"].itemsize):
            raise RefusedMessageError("shape", f"{what} packed into {array.packed} bytes")

    def message(self, incoming: Incoming, arrays: Iterable[Vector]) -> AnyMessage:
        """Return the message of the protocol with its arrays, or refuse it."""
        values = iter(arrays)
        self._check_header(incoming)
        header = (incoming.sender, incoming.incarnation, incoming.version, incoming.dead)
        match incoming:
            case ReportHeader():
                contribution = self._contribution(incoming.contribution, values)
                if contribution.included != DeviceSet.of([incoming.sender]):
                    raise RefusedMessageError("provenance", f"device {incoming.sender} reports for others")
                return messages.Report(*header, contribution, self._incarnations(incoming.joiners))
            case MeanHeader():
                total, cluster_of = self._contribution(incoming.total, values), self._limits.topology.cluster_of
                if any(cluster_of[device] > cluster_of[incoming.sender] for device in total.included):
                    raise RefusedMessageError("provenance", f"device {incoming.sender} sends a mean of later clusters")
                return messages.Mean(
                    *header, total, self._missing(incoming.missing), self._incarnations(incoming.joiners)
                )
            case ClosedHeader():
                return messages.Closed(*header, self._record(incoming.record, incoming.version, values))
            case messages.Offer() | messages.Want() | messages.Ack():
                self._check_set(incoming.included)
        return incoming

    def _check_header(self, incoming: Incoming) -> None:
        self._check_incarnation(incoming.sender, incoming.incarnation)
        if len(incoming.dead) > self._limits.topology.n_devices:
            raise RefusedMessageError("malformed", "more failed devices than there are in this fleet")
        for incarnation in incoming.dead:
            self._check_incarnation(*incarnation)
        # The heaviest version wins, and must have been earned.
        version, limits = incoming.version, self._limits
        most = MAX_COUNT - 1 if limits.max_work is None else version.round * limits.max_work
        is_possible = 0 <= version.round <= limits.rounds and 0 <= version.revision < 2**32
        is_named = _HISTORY.fullmatch(version.history) and _HISTORY.fullmatch(version.model)
        if not is_possible or not 0 <= version.work <= most or not is_named:
            raise RefusedMessageError("malformed", f"version {str(version)[:99]!r}, which this run cannot have")

    def _record(self, record: RecordHeader, version: Version, values: Iterator[Vector]) -> ClosedRound:
        if record.version != version:
            raise RefusedMessageError("malformed", "a record under another version than its message")
        if not _HISTORY.fullmatch(record.parent):
            raise RefusedMessageError("malformed", "a history that is no hexadecimal number")
        self._check_set(record.included)
        state = {key: None if array is None else next(values) for key, array in record.state.items()}
        missing, roster = self._missing(record.missing), Roster(self._incarnations(record.roster))
        if record.loss is not None and not math.isfinite(record.loss):
            raise RefusedMessageError("non-finite", "a loss that is not finite")
        rest = (record.parent, record.included, missing, record.n_samples, record.is_over, record.loss)
        return ClosedRound(version, roster, state, *rest)

    def _contribution(self, contribution: ContributionHeader, values: Iterator[Vector]) -> Contribution:
        self._check_set(contribution.included)
        parts = {}
        for key, part in contribution.parts.items():
            if part.included - contribution.included:
                raise RefusedMessageError("provenance", "an array of devices that are not in the contribution")
            if not math.isfinite(part.loss):
                raise RefusedMessageError("non-finite", "a loss that is not finite")
            if part.how != "mean" and part.weight != 1:
                raise RefusedMessageError("malformed", f"a {part.how} with weight {part.weight}")
            parts[key] = Part(**{**msgspec.structs.asdict(part), "vector": next(values)})
        return Contribution(contribution.included, contribution.n_samples, parts)

    def _check_incarnation(self, device: int, incarnation: int) -> None:
        if device not in self._limits.topology.cluster_of or not 0 <= incarnation < MAX_COUNT:
            raise RefusedMessageError(
                "malformed", f"there is no incarnation {incarnation} of device {device} in this fleet"
            )

    def _incarnations(self, incarnations: dict[int, int]) -> dict[int, int]:
        for incarnation in incarnations.items():
            self._check_incarnation(*incarnation)
        return dict(sorted(incarnations.items()))

    def _missing(self, missing: dict[int, str]) -> dict[int, str]:
        self._incarnations(dict.fromkeys(missing, 0))
        if any(len(reason) > _MAX_REASON for reason in missing.values()):
            raise RefusedMessageError("malformed", "a reason that is too long")
        return dict(sorted(missing.items()))

    def _check_set(self, devices: DeviceSet) -> None:
        if devices.bits.bit_length() > self._limits.topology.n_devices:
            raise RefusedMessageError("malformed", "a set with devices that are not in this fleet")


def kept_in(record: ClosedRound) -> set[str]:
    """Return which arrays a record has from its parent's state: None stands in their place."""
    state = cast("dict[str, Vector | None]", record.state)
    return {key for key, array in state.items() if array is None}


class Assembler:
    """Puts the messages of one connection together again; small ones pass between the chunks of a large one."""

    def __init__(self, limits: Limits) -> None:
        self._codec = Codec(limits)
        self._incoming: Incoming | None = None  #: whose chunks are coming in
        self._follow: list[ArrayHeader] = []
        self._buffer = bytearray()
        self._n_bytes = 0
        self.n_payloads = 0  #: messages with arrays that are complete

    def start(self, content: bytes | msgspec.Raw) -> AnyMessage | None:
        """Take in a message; return it if nothing follows it."""
        incoming, follow = self._codec.read(content)
        if not follow:
            return self._codec.message(incoming, [])
        if self._incoming is not None:
            raise RefusedMessageError("malformed", "a message with arrays inside another")
        # Whatever else is wrong with it is said before its bytes come.
        self._codec.message(incoming, repeat(np.empty(0)))
        self._incoming, self._follow = incoming, follow
        self._n_bytes = sum(array.n_bytes for array in follow)
        return None if self._n_bytes else self.add(b"")

    def add(self, chunk: bytes) -> AnyMessage | None:
        """Take in a chunk; return the message that it completes."""
        if self._incoming is None or len(chunk) > CHUNK_BYTES:
            raise RefusedMessageError("malformed", "a chunk that belongs to no message, or is too large")
        if len(self._buffer) + len(chunk) > self._n_bytes:
            raise RefusedMessageError("oversize", "more bytes than its arrays have")
        self._buffer += chunk
        if len(self._buffer) < self._n_bytes:
            return None
        incoming, self._incoming = self._incoming, None
        self.n_payloads += 1
        content, self._buffer = memoryview(self._buffer), bytearray()
        ends = accumulate((array.n_bytes for array in self._follow), initial=0)
        arrays = [
            _array(one, content[first:last]) for one, (first, last) in zip(self._follow, pairwise(ends), strict=True)
        ]
        return self._codec.message(incoming, arrays)


def _array(header: ArrayHeader, content: memoryview) -> Vector:
    dtype, what = DTYPES[header.dtype], f"an array of {header.length} numbers"
    if header.packed:
        unpacking, n_bytes = zlib.decompressobj(), header.length * dtype.itemsize
        try:
            content = memoryview(unpacking.decompress(content, n_bytes + 1))  # and never what else it may hold
        except zlib.error as error:
            raise RefusedMessageError("malformed", f"{what} that cannot be unpacked ({error})") from None
        if len(content) > n_bytes:
            raise RefusedMessageError("oversize", f"{what} that unpacks to more")
        if len(content) < n_bytes or not unpacking.eof or unpacking.unused_data:
            raise RefusedMessageError("malformed", f"{what} that unpacks to less, or has more behind it")
    array: Vector = np.frombuffer(content, dtype.newbyteorder("<")).astype(dtype)
    if not can_travel(array):
        raise RefusedMessageError("non-finite", f"{what}, some of them not finite, or huge")
    return array
