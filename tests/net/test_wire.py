"""The wire: every message comes back as it was, and what cannot be one is refused, whatever the bytes."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tolfl.core.contribution import Contribution, How, Part, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.net.wire import (
    CHUNK_BYTES,
    DTYPES,
    LENGTH,
    MAX_FRAME_BYTES,
    WIRE_VERSION,
    Addresses,
    Assembler,
    Chunk,
    Codec,
    Envelope,
    Frame,
    Hello,
    Limits,
    Ping,
    Pong,
    Receipt,
    Records,
    RecordsRequest,
    RefusedMessageError,
    Rejection,
    RevocationList,
    StatusRequest,
    chunks,
    encode_frame,
    frame_length,
    kept_in,
    read_frame,
)
from tolfl.protocol import messages
from tolfl.protocol.history import ClosedRound, Incarnation, Roster, Version
from tolfl.protocol.messages import AnyMessage, Payload

REFUSALS = {"shape", "malformed", "non-finite", "provenance", "oversize"}
KINDS: tuple[type[AnyMessage], ...] = (
    messages.Report,
    messages.Mean,
    messages.Closed,
    messages.Offer,
    messages.Want,
    messages.Ack,
    messages.Heartbeat,
    messages.Pull,
    messages.Join,
    messages.Leave,
)

#: Two clusters, 0, 1 | 2, 3; one array of three numbers.
FLEET = Limits(Topology.contiguous(4, 2), max_numbers=3, max_bytes=12, shapes={"global": ("f4", 3)})
#: The same, where each round has shapes of its own.
FREE = Limits(FLEET.topology)
VERSION = Version(7, 3, 0, "abc0")
HEADER = (1, 0, VERSION, frozenset({(3, 0)}))
VECTOR = np.array([1, 2, 3], np.float32)


def report(vector: Vector = VECTOR, how: How = "mean") -> messages.Report:
    part = Part(5, vector, 5 if how == "mean" else 1, DeviceSet.of([1]), 0.5, 5, how)
    return messages.Report(*HEADER, Contribution(DeviceSet.of([1]), 5, {"global": part}), {3: 1})


def mean() -> messages.Mean:
    inside = DeviceSet.of([0, 1])
    part = Part(9, VECTOR, 1, inside, 0.5, 9)
    return messages.Mean(*HEADER, Contribution(inside, 9, {"global": part}), {3: "failed"}, {})


def closed(state: dict[str, Vector] | None = None) -> messages.Closed:
    roster = Roster({0: 0, 1: 0, 2: 0})
    record = ClosedRound(VERSION, roster, {"global": VECTOR} if state is None else state, "ff", DeviceSet(7), {}, 9)
    return messages.Closed(*HEADER, msgspec.structs.replace(record, loss=0.5))


# -- any message of any fleet -----------------------------------------------------------------------------------------

COUNTS = st.one_of(st.integers(0, 5), st.integers(0, 2**62 - 1))
REASONS = st.sampled_from(["failed", "left", "late", "dropped"])
LOSSES = st.floats(allow_nan=False, allow_infinity=False)
HOWS: tuple[How, ...] = ("mean", "sum", "min", "max")


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Return clusters of any order and size."""
    ids = draw(st.permutations(range(draw(st.integers(1, 12)))))
    ends = sorted(draw(st.sets(st.integers(1, len(ids)))) | {len(ids)})
    return Topology(tuple(tuple(ids[first:last]) for first, last in zip([0, *ends], ends, strict=False)))


@st.composite
def fleets(draw: st.DrawFn, most_numbers: int = 20) -> Limits:
    """Return what messages of one fleet must fit, with arrays that are always the same or of any kind."""
    keys = draw(st.sampled_from([("global",), ("a", "b"), ("group-0", "group-1", "group-2")]))
    shape = st.tuples(st.sampled_from(sorted(DTYPES)), st.integers(0, most_numbers))
    shapes = {key: draw(shape) for key in keys} if draw(st.booleans()) else None
    return Limits(draw(topologies()), shapes=shapes)


def shapes_of(limits: Limits) -> st.SearchStrategy[dict[str, tuple[str, int]]]:
    """Return the arrays that a message of a fleet may have."""
    if limits.shapes is not None:
        return st.just(dict(limits.shapes))
    shape = st.tuples(st.sampled_from(sorted(DTYPES)), st.integers(0, 20))
    return st.dictionaries(st.text(max_size=64), shape, max_size=4)


def vectors(dtype: str, length: int) -> st.SearchStrategy[Vector]:
    """Return finite vectors of all magnitudes, signs of zero included; integers with few kinds or many."""

    def make(seed: int) -> Vector:
        rng = np.random.default_rng(seed)
        if dtype == "u1":
            return rng.integers(0, 256, length).astype(np.uint8)
        if dtype == "i8":
            return rng.integers(-(2**62) + 1, 2**62, length) >> int(rng.choice([0, 55, 61]))
        vector = rng.standard_normal(length) * 10.0 ** rng.integers(-40, 17, length)
        vector[rng.random(length) < 0.1] = -0.0
        return vector.astype(dtype)

    return st.integers(0, 2**32 - 1).map(make)


def device_sets(ids: list[int]) -> st.SearchStrategy[DeviceSet]:
    return st.sets(st.sampled_from(ids)).map(DeviceSet.of) if ids else st.just(DeviceSet())


def lives(limits: Limits) -> st.SearchStrategy[dict[int, int]]:
    return st.dictionaries(st.sampled_from(sorted(limits.topology.cluster_of)), COUNTS)


def dead_sets(limits: Limits) -> st.SearchStrategy[frozenset[Incarnation]]:
    return lives(limits).map(lambda found: frozenset(found.items()))  # a horizon: one incarnation of a device at most


def versions() -> st.SearchStrategy[Version]:
    history = st.text("0123456789abcdef", max_size=64)
    return st.builds(Version, COUNTS, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), history)


def missing(limits: Limits) -> st.SearchStrategy[dict[int, str]]:
    return st.dictionaries(st.sampled_from(sorted(limits.topology.cluster_of)), REASONS)


@st.composite
def contributions(draw: st.DrawFn, limits: Limits, included: DeviceSet) -> Contribution:
    """Return a contribution of these devices, with some of the arrays."""
    inside, positive = device_sets(list(included)), st.integers(1, 2**40 - 1)
    parts = {}
    for key, shape in draw(shapes_of(limits)).items():
        how = draw(st.sampled_from(HOWS))
        weight = positive if how == "mean" else st.just(1)
        part = st.builds(Part, positive, vectors(*shape), weight, inside, LOSSES, COUNTS, st.just(how))
        if draw(st.booleans()):
            parts[key] = draw(part)
    return Contribution(included, draw(COUNTS), parts)


@st.composite
def any_message(draw: st.DrawFn, limits: Limits, kind: type[AnyMessage] | None = None) -> AnyMessage:
    """Return a message that a device of this fleet may send."""
    cluster_of = limits.topology.cluster_of
    sender = draw(st.sampled_from(sorted(cluster_of)))
    version = draw(versions())
    header = (sender, draw(COUNTS), version, draw(dead_sets(limits)))
    kind = draw(st.sampled_from(KINDS)) if kind is None else kind
    everybody = device_sets(sorted(cluster_of))
    if kind is messages.Report:
        contribution = draw(contributions(limits, DeviceSet.of([sender])))
        return messages.Report(*header, contribution, draw(lives(limits)))
    if kind is messages.Mean:
        upstream = [device for device in cluster_of if cluster_of[device] <= cluster_of[sender]]
        total = draw(contributions(limits, draw(device_sets(upstream))))
        return messages.Mean(*header, total, draw(missing(limits)), draw(lives(limits)))
    if kind is messages.Closed:
        state = {key: draw(vectors(*shape)) for key, shape in draw(shapes_of(limits)).items()}
        roster, parent = Roster(draw(lives(limits))), draw(versions()).history
        rest = (parent, draw(everybody), draw(missing(limits)), draw(COUNTS), draw(st.booleans()))
        loss = draw(st.none() | LOSSES)
        return messages.Closed(*header, ClosedRound(version, roster, state, *rest, loss))
    if kind in (messages.Offer, messages.Want, messages.Ack):
        return kind(*header, draw(st.sampled_from(Payload)), draw(everybody))
    return kind(*header)  # type: ignore[call-arg]


def plain(value: object) -> Any:
    """Return a value such that two are equal if and only if they are the same, arrays bit for bit."""
    match value:
        case msgspec.Struct():
            fields = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
            return type(value).__name__, fields
        case np.ndarray():
            return value.dtype.str, value.shape, value.tobytes()
        case dict():
            return sorted((key, plain(item)) for key, item in value.items())
        case frozenset():
            return sorted(value)
        case float():
            return value.hex()
    return value


# -- sent and received ------------------------------------------------------------------------------------------------


def content_of(frame: bytes) -> bytes:
    """Return a frame without its length, which must be right."""
    assert frame_length(frame[: LENGTH.size]) == len(frame) - LENGTH.size
    return frame[LENGTH.size :]


def frames_of(message: AnyMessage, parent: dict[str, Vector] | None = None) -> list[bytes]:
    encoded, arrays = Codec.encode(message, parent)
    return [content_of(frame) for frame in (encoded, *chunks(arrays))]


def received(frames: Sequence[bytes], limits: Limits) -> list[AnyMessage]:
    """Read frames as a connection does after hello."""
    assembler, found = Assembler(limits), list[AnyMessage | None]()
    for content in frames:
        match frame := read_frame(content):
            case Envelope():
                found.append(assembler.start(frame.message))
            case Chunk():
                found.append(assembler.add(frame.content))
        assert len(assembler._buffer) <= limits.max_bytes
    return [message for message in found if message is not None]


def refusal_of(frames: Sequence[bytes], limits: Limits = FLEET) -> str:
    """Return under which kind frames are refused."""
    try:
        received(frames, limits)
    except RefusedMessageError as error:
        return error.kind
    return "nothing"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_a_message_comes_back_as_it_was(kind: type[AnyMessage], data: st.DataObject) -> None:
    fleet = data.draw(fleets())
    message = data.draw(any_message(fleet, kind))

    assert [plain(one) for one in received(frames_of(message), fleet)] == [plain(message)]


def test_the_order_of_a_state_is_kept() -> None:
    state = {key: np.zeros(1) for key in "cab"}
    (message,) = received(frames_of(closed(state)), FREE)

    assert isinstance(message, messages.Closed)
    assert isinstance(message.record.state, dict)
    assert list(message.record.state) == ["c", "a", "b"]


@pytest.mark.parametrize(
    "frame",
    [
        Hello(2, "f", 1, 3, 2, 9, True, {1: "a:1"}, b"{}"),
        Ping(3),
        Pong(3),
        Chunk(b"ab"),
        Receipt(7),
        Addresses({4: "radio:7004"}),
        RecordsRequest(7),
        Records(b"{}"),
        RevocationList(b"{"),
        Rejection("unexpected", "this is device 3", b"{}"),
        StatusRequest(),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_frame_comes_back_as_it_was(frame: Frame) -> None:
    assert read_frame(content_of(encode_frame(frame))) == frame


def test_a_frame_of_a_later_version_may_have_fields_that_are_not_known_yet() -> None:
    content = msgspec.msgpack.encode({"type": "ping", "number": 3, "mood": [1, {"a": None}]})

    assert read_frame(content) == Ping(3)


# -- what the parent has does not travel ------------------------------------------------------------------------------


def test_arrays_that_are_the_very_ones_of_the_parent_are_named_and_do_not_travel() -> None:
    same, changed = np.arange(3.0), np.arange(4.0)
    parent = {"same": same, "changed": changed, "gone": same}
    frames = frames_of(closed({"same": same, "equal": same.copy(), "changed": changed + 1}), parent)
    (message,) = received(frames, FREE)

    assert isinstance(message, messages.Closed)
    assert isinstance(message.record.state, dict)
    assert kept_in(message.record) == {"same"}
    assert list(message.record.state) == ["same", "equal", "changed"]
    assert np.array_equal(message.record.state["changed"], changed + 1)


def test_a_record_that_changes_nothing_is_one_frame() -> None:
    light = frames_of(closed(), {"global": VECTOR})
    (message,) = received(light, FLEET)

    assert len(light) == 1
    assert isinstance(message, messages.Closed)
    assert kept_in(message.record) == {"global"}
    assert plain(msgspec.structs.replace(message.record, state=None)) == plain(
        msgspec.structs.replace(closed().record, state=None)
    )


def test_a_part_of_the_state_is_no_record() -> None:
    fleet = Limits(FLEET.topology, shapes={"a": ("f4", 3), "b": ("f4", 3)})

    assert refusal_of(frames_of(closed({"a": VECTOR})), fleet) == "shape"


# -- spoilt fields ----------------------------------------------------------------------------------------------------

Plain = dict[str, Any]


def opened(frames: Sequence[bytes]) -> Plain:
    """Return the message in the first frame, to be changed."""
    frame: Plain = msgspec.msgpack.decode(frames[0])
    message: Plain = frame["message"]
    return message


def enclosed(message: object) -> bytes:
    return msgspec.msgpack.encode({"type": "message", "message": message})


#: Values that no honest field has, or another honest one has.
VALUES = st.one_of(
    st.sampled_from([0, 1, 3, 11, 12, -1, 2**31, 2**32 - 1, 2**32, 2**62 - 1, 2**62, 2**63, 2**64 - 1, -(2**63)]),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.none(),
    st.floats(),
    st.text(max_size=100),
    st.sampled_from(["", "global", "left", "beef", "sum", "f8", "Report"]),
    st.one_of(st.binary(max_size=40), st.just(b"\0" * 500), st.just(b"\xff" * 2000)),
    st.sampled_from([[], {}, [[1, 2]], {1: 1}, ["f4", 3], ["i8", 3, 2]]),
)


def spoilt_inside(draw: st.DrawFn, value: Any) -> Any:
    """Return a value with one change, somewhere inside."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    if isinstance(value, list):
        value = list(value)
        place = draw(st.integers(0, len(value) - 1))
        match draw(st.sampled_from(["again", "less", "new", "inside", "inside"])):
            case "again":
                value.append(value[place])
            case "less":
                del value[place]
            case "new":
                value.append(draw(VALUES))
            case _:
                value[place] = spoilt_inside(draw, value[place])
        return value
    key = draw(st.sampled_from(list(value)))
    match draw(st.sampled_from(["less", "new", "inside", "inside", "inside"])):
        case "less":
            return {name: item for name, item in value.items() if name != key}
        case "new":
            return {**value, draw(st.one_of(st.integers(0, 12), st.text(max_size=70))): draw(VALUES)}
    return {**value, key: spoilt_inside(draw, value[key])}


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[Limits, list[bytes]]:
    fleet = draw(fleets())
    frames = frames_of(draw(any_message(fleet)))
    message: Any = opened(frames)
    for _ in range(draw(st.integers(1, 2))):
        message = spoilt_inside(draw, message)
    return fleet, [enclosed(message), *frames[1:]]


@settings(max_examples=150)
@given(spoilt())
def test_a_spoilt_message_is_refused_or_is_another_good_one(case: tuple[Limits, list[bytes]]) -> None:
    fleet, frames = case
    try:
        found = received(frames, fleet)
    except RefusedMessageError as error:
        assert error.kind in REFUSALS  # noqa: PT017
        return
    for message in found:
        assert message.sender in fleet.topology.cluster_of
        if not isinstance(message, messages.Closed) or not kept_in(message.record):
            assert [plain(one) for one in received(frames_of(message), fleet)] == [plain(message)]


Spoiler = Callable[[Plain], object]


def part_of(message: Plain) -> Plain:
    (part,) = (message.get("contribution") or message["total"])["parts"].values()
    assert isinstance(part, dict)
    return part


def put(*path: str | int, value: object) -> Spoiler:
    """Return what sets one value deep inside."""

    def change(message: Plain) -> None:
        inside: Any = message
        for name in path[:-1]:
            inside = inside[name]
        inside[path[-1]] = value

    return change


SPOILT: list[tuple[str, Callable[[], AnyMessage], Spoiler, str]] = [
    ("unknown sender", report, put("sender", value=4), "malformed"),
    ("sender before the first", report, put("sender", value=-1), "malformed"),
    ("sender of half a number", report, put("sender", value=1.5), "malformed"),
    ("life beyond counting", report, put("incarnation", value=2**62), "malformed"),
    ("life before the first", report, put("incarnation", value=-1), "malformed"),
    ("work beyond counting", report, put("version", "work", value=2**63), "malformed"),
    ("work below nothing", report, put("version", "work", value=-1), "malformed"),
    ("round beyond counting", report, put("version", "round", value=2**32), "malformed"),
    ("round below nothing", report, put("version", "round", value=-1), "malformed"),
    ("revision beyond counting", report, put("version", "revision", value=2**32), "malformed"),
    ("revision below nothing", report, put("version", "revision", value=-1), "malformed"),
    ("history no number", report, put("version", "history", value="ABC"), "malformed"),
    ("history too long", report, put("version", "history", value="a" * 65), "malformed"),
    ("history with a line end", report, put("version", "history", value="ab\n"), "malformed"),
    ("unknown dead", report, lambda m: m["dead"].append([9, 0]), "malformed"),
    ("dead without a life", report, lambda m: m["dead"].append([1]), "malformed"),
    ("unknown joiner", report, put("joiners", 9, value=0), "malformed"),
    ("joiner beyond counting", report, put("joiners", 2, value=2**62), "malformed"),
    ("no body", report, lambda m: m.pop("contribution"), "malformed"),
    ("no kind", report, lambda m: m.pop("type"), "malformed"),
    ("unknown kind", report, put("type", value="Rumour"), "malformed"),
    ("for another", report, put("contribution", "included", value=b"\x01"), "provenance"),
    ("for two", report, put("contribution", "included", value=b"\x03"), "provenance"),
    ("part of another", report, lambda m: part_of(m).update(included=b"\x04"), "provenance"),
    ("for nobody", report, put("contribution", "included", value=b""), "provenance"),
    ("set that is none", report, put("contribution", "included", value=3), "malformed"),
    ("loss of a part", report, lambda m: part_of(m).update(loss=float("inf")), "non-finite"),
    ("loss of a round", closed, put("record", "loss", value=float("nan")), "non-finite"),
    ("loss of a round in words", closed, put("record", "loss", value="low"), "malformed"),
    ("no weight", report, lambda m: part_of(m).update(weight=0), "malformed"),
    ("weight beyond counting", report, lambda m: part_of(m).update(weight=2**40), "malformed"),
    ("part of no samples", report, lambda m: part_of(m).update(n_samples=0), "malformed"),
    ("trained on less than nothing", report, lambda m: part_of(m).update(n_trained=-1), "malformed"),
    ("samples beyond counting", report, put("contribution", "n_samples", value=2**62), "malformed"),
    ("merged as nobody can", report, lambda m: part_of(m).update(how="median"), "malformed"),
    ("sum with a weight", report, lambda m: part_of(m).update(how="sum"), "malformed"),
    ("unknown array", report, lambda m: m["contribution"].update(parts={"b": part_of(m)}), "shape"),
    ("array with an endless name", closed, lambda m: m["record"]["state"].update({"x" * 65: None}), "shape"),
    ("another length", report, lambda m: part_of(m).update(vector=["f4", 4, 0]), "shape"),
    ("shorter", report, lambda m: part_of(m).update(vector=["f4", 2, 0]), "shape"),
    ("huge", mean, lambda m: part_of(m).update(vector=["f4", 2**60, 0]), "shape"),
    ("length below nothing", mean, lambda m: part_of(m).update(vector=["f4", -1, 0]), "malformed"),
    ("another type", closed, put("record", "state", "global", value=["f8", 3, 0]), "shape"),
    ("unknown type", closed, put("record", "state", "global", value=["f2", 3, 0]), "shape"),
    ("big-endian", closed, put("record", "state", "global", value=[">f4", 3, 0]), "shape"),
    ("objects", closed, put("record", "state", "global", value=["O", 3, 0]), "shape"),
    ("packed floats", closed, put("record", "state", "global", value=["f4", 3, 5]), "shape"),
    ("of later clusters", mean, put("total", "included", value=b"\x04"), "provenance"),
    ("of unknown devices", mean, put("total", "included", value=b"\x00\x01"), "malformed"),
    ("long reason", mean, put("missing", 3, value="x" * 41), "malformed"),
    ("unknown missing", mean, put("missing", 4, value="late"), "malformed"),
    ("version of another", closed, put("record", "version", "round", value=4), "malformed"),
    ("parent no number", closed, put("record", "parent", value="../x"), "malformed"),
    ("roster of strangers", closed, put("record", "roster", 4, value=0), "malformed"),
    ("roster with two lives", closed, put("record", "roster", 1, value=[0, 1]), "malformed"),
    ("included strangers", closed, put("record", "included", value=b"\x10"), "malformed"),
    ("samples below nothing", closed, put("record", "n_samples", value=-1), "malformed"),
    ("over and not over", closed, put("record", "is_over", value=2), "malformed"),
]


@pytest.mark.parametrize(("make", "change", "kind"), [case[1:] for case in SPOILT], ids=[case[0] for case in SPOILT])
def test_what_cannot_be_is_refused_under_its_kind(make: Callable[[], AnyMessage], change: Spoiler, kind: str) -> None:
    first, *rest = frames_of(make())
    message = opened([first])
    before = refusal_of([enclosed(message), *rest])
    change(message)

    assert before == "nothing"
    assert refusal_of([enclosed(message)]) == kind  # before any of its arrays comes in


def test_an_array_that_is_named_twice_is_one_array() -> None:
    first, *rest = frames_of(closed())
    name = msgspec.msgpack.encode("global") + msgspec.msgpack.encode(["f4", 3, 0])
    twice = first.replace(b"\x81" + name, b"\x82" + name + name)

    assert twice != first
    assert refusal_of([twice, *rest]) == "nothing"
    assert refusal_of([twice, *rest, *rest]) == "malformed"


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ({str(index): np.zeros(1) for index in range(256)}, "nothing"),
        ({str(index): np.zeros(1) for index in range(257)}, "shape"),
        ({"x" * 64: np.zeros(1)}, "nothing"),
        ({"x" * 65: np.zeros(1)}, "shape"),
        ({"x": np.zeros(2**10)}, "nothing"),
        ({"x": np.zeros(2**10 + 1)}, "shape"),
        ({"x": np.zeros(2**10), "y": np.zeros(2**10, np.uint8)}, "oversize"),
    ],
    ids=["256", "257", "64 letters", "65 letters", "longest", "longer", "together too many"],
)
def test_a_message_has_no_more_arrays_names_or_numbers_than_allowed(state: dict[str, Vector], kind: str) -> None:
    fleet = Limits(FLEET.topology, max_numbers=2**10, max_bytes=2**13)

    assert refusal_of(frames_of(closed(state)), fleet) == kind


@pytest.mark.parametrize("how", HOWS)
def test_a_part_says_how_it_is_merged(how: How) -> None:
    (message,) = received(frames_of(report(how=how)), FLEET)

    assert isinstance(message, messages.Report)
    assert message.contribution.resolve().parts["global"].how == how


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e18, -1e18])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_are_not_finite_or_huge_are_refused(dtype: type, value: float) -> None:
    assert refusal_of(frames_of(closed({"a": np.array([1, value, 3], dtype)})), FREE) == "non-finite"


@pytest.mark.parametrize("make", [report, mean, closed], ids=["report", "mean", "closed"])
def test_an_array_that_is_not_finite_is_refused_in_any_message(make: Callable[[], AnyMessage]) -> None:
    first, *_ = frames_of(make())
    spoilt_vector = np.array([1, np.nan, 3], np.float32)

    assert refusal_of([first, *map(content_of, chunks([spoilt_vector]))]) == "non-finite"


@pytest.mark.parametrize(
    ("value", "kind"),
    [(2**62 - 1, "nothing"), (2**62, "non-finite"), (-(2**62), "non-finite"), (-(2**63), "non-finite")],
)
def test_integers_that_cannot_be_added_are_refused(value: int, kind: str) -> None:
    assert refusal_of(frames_of(closed({"a": np.array([1, value])})), FREE) == kind


@pytest.mark.parametrize("array", [np.zeros(3, np.float16), np.zeros((2, 2)), np.zeros(3, np.int32)], ids=str)
def test_an_array_that_has_no_form_on_the_wire_is_an_error_of_the_sender(array: Vector) -> None:
    with pytest.raises(ValueError, match="one axis and f4, f8, i8, u1 travel"):
        Codec.encode(closed({"a": array}))


# -- counts are packed ------------------------------------------------------------------------------------------------

COUNTED = np.repeat(np.arange(4), 5_000)


def packed(header: list[object], content: bytes) -> list[bytes]:
    """Return a record with one array, whatever it says of it."""
    message = opened(frames_of(closed({"a": COUNTED})))
    message["record"]["state"]["a"] = header
    return [enclosed(message), *map(content_of, chunks([content]))]


def test_counts_travel_in_few_bytes_and_come_back_as_they_were() -> None:
    frames = frames_of(closed({"a": COUNTED}))
    (message,) = received(frames, FREE)

    assert sum(map(len, frames)) < COUNTED.nbytes / 50
    assert isinstance(message, messages.Closed)
    assert plain(message.record.state) == plain({"a": COUNTED})


def test_integers_that_do_not_get_smaller_travel_as_they_are() -> None:
    array = np.random.default_rng(0).integers(-(2**61), 2**61, 100)
    _, (sent,) = Codec.encode(closed({"a": array}))

    assert sent is array


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (packed(["i8", 10, 30], zlib.compress(b"\0" * 80).ljust(30, b"\0")), "malformed"),
        (packed(["i8", 10, 20], b"\xff" * 20), "malformed"),
        (packed(["i8", 1000, 12], zlib.compress(b"\0" * 80)[:12]), "malformed"),
        (packed(["i8", 1000, len(bomb := zlib.compress(b"\0" * 10**6))], bomb), "oversize"),
        (packed(["i8", 4 * 10**6, len(bomb)], bomb), "malformed"),
        (packed(["i8", 10, 80], b"\0" * 80), "shape"),
        (packed(["i8", 0, 1], b"\0"), "shape"),
        (packed(["u1", 100, 12], zlib.compress(b"\0" * 100)), "shape"),
    ],
    ids=["more behind it", "no stream", "half of it", "bomb", "too little", "not smaller", "of nothing", "of bytes"],
)
def test_what_does_not_unpack_to_what_it_says_is_refused(frames: list[bytes], kind: str) -> None:
    assert refusal_of(frames, FREE) == kind


def test_a_bomb_takes_no_more_memory_than_it_announces() -> None:
    bomb = zlib.compress(b"\0" * 2**25, 9)
    frames = packed(["i8", 2**14, len(bomb)], bomb)
    tracemalloc.start()
    kind = refusal_of(frames, FREE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert kind == "oversize"
    assert peak < 2**20


# -- chunks -----------------------------------------------------------------------------------------------------------


def cut(content: bytes, places: Sequence[float]) -> Iterator[bytes]:
    """Cut bytes at places between 0 and 1, and wherever a piece would be too large."""
    ends = sorted({int(place * len(content)) for place in places} | {len(content)})
    for first, last in zip([0, *ends], ends, strict=False):
        for start in range(first, last, CHUNK_BYTES):
            yield content_of(encode_frame(Chunk(content[start : min(last, start + CHUNK_BYTES)])))


def carried(frames: Sequence[bytes]) -> bytes:
    """Return what chunks hold."""
    read = [read_frame(frame) for frame in frames]
    return b"".join(frame.content for frame in read if isinstance(frame, Chunk))


@settings(max_examples=60)
@given(st.data(), st.lists(st.floats(0, 1), max_size=6))
def test_a_message_is_put_together_however_it_was_cut(data: st.DataObject, places: list[float]) -> None:
    fleet = data.draw(fleets())
    sent = data.draw(st.lists(any_message(fleet), min_size=1, max_size=3))
    frames = []
    for message in sent:
        first, *rest = frames_of(message)
        frames += [first, *cut(carried(rest), places)]

    assert [plain(one) for one in received(frames, fleet)] == [plain(message) for message in sent]


@settings(max_examples=5)
@given(st.data(), st.integers(CHUNK_BYTES // 8 - 1, CHUNK_BYTES // 2 + 1), st.sampled_from(sorted(DTYPES)))
def test_a_large_state_travels_in_frames_of_bounded_size(data: st.DataObject, length: int, dtype: str) -> None:
    fleet = Limits(data.draw(topologies()), shapes={"a": (dtype, length), "b": (dtype, 3)})
    message = data.draw(any_message(fleet, messages.Closed))
    _, *rest = frames = frames_of(message)

    assert all(0 < len(carried([frame])) <= CHUNK_BYTES for frame in rest)
    assert all(len(frame) <= MAX_FRAME_BYTES for frame in frames)
    assert [plain(one) for one in received(frames, fleet)] == [plain(message)]


@pytest.mark.parametrize("order", ["<", ">"], ids=["little-endian", "big-endian"])
def test_bytes_are_little_endian_whatever_the_machine_has(order: Literal["<", ">"]) -> None:
    vector = np.array([1.0, -2.0], np.dtype(np.float32).newbyteorder(order))

    assert carried([content_of(frame) for frame in chunks([vector])]) == bytes.fromhex("0000803f 000000c0")


def test_a_vector_with_gaps_travels_without_them() -> None:
    vector = np.arange(8, dtype=np.float64)[::2]

    assert carried([content_of(frame) for frame in chunks([vector])]) == np.array([0.0, 2, 4, 6]).tobytes()


def test_vectors_are_not_copied_into_the_queue() -> None:
    """Several links carry one state: each copy would cost as much memory again."""
    assert any(one is VECTOR for one in Codec.encode(report())[1])


def chunk(content: bytes) -> bytes:
    return content_of(encode_frame(Chunk(content)))


def test_chunks_without_a_message_are_refused() -> None:
    assert refusal_of([chunk(b"1234")]) == "malformed"


def test_chunks_after_the_end_of_a_message_are_refused() -> None:
    assert refusal_of([*frames_of(report()), chunk(b"\0")]) == "malformed"


def test_a_small_message_passes_between_the_chunks_of_a_large_one() -> None:
    first, *rest = frames_of(closed(STATE))
    found = received([first, rest[0], *frames_of(messages.Heartbeat(*HEADER)), *rest[1:]], FREE)

    assert [type(one) for one in found] == [messages.Heartbeat, messages.Closed]
    assert plain(found[1]) == plain(closed(STATE))


def test_a_message_with_arrays_inside_another_is_refused() -> None:
    assert refusal_of([*frames_of(report())[:1], *frames_of(report())]) == "malformed"


def test_more_bytes_than_announced_are_refused() -> None:
    assert refusal_of([*frames_of(report())[:1], chunk(b"\0" * 11), chunk(b"\0\0")]) == "oversize"


def test_a_chunk_larger_than_any_is_refused() -> None:
    large = report(np.zeros(CHUNK_BYTES, np.float32))

    assert refusal_of([*frames_of(large)[:1], chunk(b"\0" * (CHUNK_BYTES + 1))], FREE) == "malformed"


def test_bytes_that_are_no_finite_numbers_are_refused() -> None:
    assert refusal_of([*frames_of(mean())[:1], chunk(b"\xff" * 12)]) == "non-finite"


def test_what_a_stranger_announces_costs_no_memory() -> None:
    message = opened(frames_of(closed()))
    message["record"]["state"]["global"] = ["f4", 2**40, 0]
    frames = [enclosed(message), *[chunk(b"\0" * CHUNK_BYTES)] * 4]
    tracemalloc.start()
    kind = refusal_of(frames, FREE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert kind == "shape"
    assert peak < 4 * CHUNK_BYTES


def test_a_stream_of_chunks_takes_no_more_memory_than_the_arrays_of_the_message() -> None:
    large = np.zeros(CHUNK_BYTES, np.float32)
    frames = [*frames_of(report(large))[:1], *[chunk(b"\0" * (CHUNK_BYTES - 1))] * 1000]
    tracemalloc.start()
    kind = refusal_of(frames, FREE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert kind == "oversize"
    assert peak < 2 * large.nbytes + 4 * CHUNK_BYTES


# -- bytes that are nothing -------------------------------------------------------------------------------------------

NESTED = b"\x91" * 3_000
HUGE_LIST, HUGE_MAP = b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"


@pytest.mark.parametrize("inside", [NESTED, b"\x81\xa1a" * 3_000, HUGE_LIST, HUGE_MAP, b"\xc1"])
@pytest.mark.parametrize(
    "around",
    [
        b"",
        b"\x82\xa4type\xa5hello\xa4mood",
        b"\x82\xa4type\xa5hello\xa9addresses",
        b"\x82\xa4type\xa7message\xa7message",
        b"\x82\xa4type\xa7message\xa7message\x82\xa4type\xa6Report\xaccontribution",
        b"\x82\xa4type\xa5chunk\xa7content",
        b"\x82\xa4type\xa6status\xa5peers",
        b"\x82\xa4type\xa7command\xa5token",
    ],
    ids=["alone", "hello", "addresses", "message", "contribution", "chunk", "status", "command"],
)
def test_brackets_without_end_and_lists_that_are_not_there_are_refused(around: bytes, inside: bytes) -> None:
    tracemalloc.start()
    kind = refusal_of([around + inside])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert kind == "malformed"
    assert peak < 2**20


@pytest.mark.parametrize(
    ("prefix", "kind"),
    [
        (LENGTH.pack(MAX_FRAME_BYTES + 1), "oversize"),
        (b"\xff\xff\xff\xff", "oversize"),
        (b"PRI ", "wire version"),
    ],
    ids=["too large", "4 GiB", "gRPC"],
)
def test_a_frame_larger_than_any_is_refused_unread(prefix: bytes, kind: str) -> None:
    with pytest.raises(RefusedMessageError) as refusal:
        frame_length(prefix)

    assert refusal.value.kind == kind


@given(fleets(), st.binary(max_size=400))
def test_random_bytes_are_refused_or_are_a_message(fleet: Limits, content: bytes) -> None:
    kind = refusal_of([b"\x82\xa4type\xa7message\xa7message" + content], fleet)

    assert kind in {*REFUSALS, "nothing"}


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_random_frames_are_refused_or_are_nothing(frames: list[bytes]) -> None:
    assert refusal_of(frames) in {*REFUSALS, "nothing"}


# -- spoilt bytes -----------------------------------------------------------------------------------------------------

N_IN_A_BATCH = 100
FUZZED = Limits(Topology.contiguous(6, 2))

Rng = np.random.Generator


def spoil(content: bytes, rng: Rng) -> bytes:
    """Return bytes that differ a little: some changed, cut out, doubled, or put in."""
    spoilt = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        first, last = sorted(int(place) for place in rng.integers(0, len(spoilt) + 1, 2))
        last = min(last, first + int(rng.choice([1, 4, 40])))
        match rng.integers(5):
            case 0:
                spoilt[first:last] = rng.bytes(last - first)
            case 1:
                del spoilt[first:last]
            case 2:
                spoilt[first:first] = spoilt[first:last]
            case 3:
                spoilt[first:first] = rng.bytes(int(rng.integers(1, 9)))
            case _:
                spoilt[first:last] = rng.choice([b"\x00", b"\xff", b"\x7f", b"9", b"-", b'"', b"\n"]) * (last - first)
    return bytes(spoilt)


def spoil_stream(frames: list[bytes], rng: Rng) -> list[bytes]:
    """Return frames of which one is spoilt, missing, doubled or in another place."""
    spoilt, place = list(frames), int(rng.integers(len(frames)))
    match rng.integers(8):
        case 0:
            del spoilt[place]
        case 1:
            spoilt.insert(place, spoilt[int(rng.integers(len(frames)))])
        case 2:
            spoilt.reverse()
        case _:
            spoilt[place] = spoil(spoilt[place], rng)
    return spoilt


def check_batch(message: AnyMessage, seed: int) -> None:
    """Spoil a message in many ways: each is refused under a known kind, or is a message that could have been sent."""
    rng, frames = np.random.default_rng(seed), frames_of(message)
    assert len(received(frames, FUZZED)) == 1
    for _ in range(N_IN_A_BATCH):
        try:
            found = received(spoil_stream(frames, rng), FUZZED)
        except RefusedMessageError as error:
            assert error.kind in REFUSALS  # noqa: PT017
        else:
            for one in found:
                if not isinstance(one, messages.Closed) or not kept_in(one.record):
                    assert len(received(frames_of(one), FUZZED)) == 1


STREAMS = any_message(FUZZED)


@given(STREAMS, st.integers(0, 2**32))
@settings(max_examples=30)
def test_spoilt_streams_are_refused_or_are_messages(message: AnyMessage, seed: int) -> None:
    check_batch(message, seed)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@given(STREAMS, st.integers(0, 2**32))
@settings(max_examples=100_000 // N_IN_A_BATCH, suppress_health_check=[HealthCheck.too_slow])
def test_a_hundred_thousand_spoilt_streams_are_refused_or_are_messages(message: AnyMessage, seed: int) -> None:
    check_batch(message, seed)


HELLO = Hello(
    wire=WIRE_VERSION, fleet="f", device=1, to=2, process=9, addresses={1: "10.0.0.1:7000"}, revocations=b"{}"
)


@given(st.integers(0, 2**32))
def test_a_spoilt_hello_is_refused_or_can_be_used(seed: int) -> None:
    rng, content = np.random.default_rng(seed), content_of(encode_frame(HELLO))
    for _ in range(20):
        assert refusal_of([spoil(content, rng)], FUZZED) in {*REFUSALS, "nothing"}


# -- golden bytes -----------------------------------------------------------------------------------------------------

STATE = {"w": VECTOR, "n": np.array([0x0123456789ABCDEF])}
#: What other programs can check themselves against.
GOLDEN_FRAMES: list[tuple[Frame, str]] = [
    (
        HELLO,
        "710000008aa474797065a568656c6c6fa47769726502a5666c656574a166a664657669636501ab696e6361726e617469"
        "6f6e00a2746f02a770726f6365737309a969735f696e73696465c2a96164647265737365738101ad31302e302e302e31"
        "3a37303030ab7265766f636174696f6e73c4027b7d",
    ),
    (
        Ping(7),
        "1300000082a474797065a470696e67a66e756d62657207",
    ),
    (
        Pong(7),
        "1300000082a474797065a4706f6e67a66e756d62657207",
    ),
    (
        Receipt(300),
        "1800000082a474797065a772656365697074a66e756d626572cd012c",
    ),
    (
        Addresses({4: "radio:7004"}),
        "2700000082a474797065a9616464726573736573a96164647265737365738104aa726164696f3a37303034",
    ),
    (
        RevocationList(b"{}"),
        "1e00000082a474797065ab7265766f636174696f6e73a7636f6e74656e74c4027b7d",
    ),
    (
        Rejection("unexpected", "this is device 3"),
        "4600000084a474797065a972656a656374696f6ea46b696e64aa756e6578706563746564a6726561736f6eb0746869732069"
        "73206465766963652033ab7265766f636174696f6e73c400",
    ),
    (
        StatusRequest(),
        "0e00000081a474797065a77374617475733f",
    ),
]
#: A message, the state of its parent where the receiver has it, and the frames: each chunk is one of its own.
GOLDEN_MESSAGES: list[tuple[AnyMessage, dict[str, Vector] | None, list[str]]] = [
    (
        messages.Heartbeat(*HEADER),
        None,
        [
            "7100000082a474797065a76d657373616765a76d65737361676585a474797065a9486561727462656174a673656e6465"
            "7201ab696e6361726e6174696f6e00a776657273696f6e84a4776f726b07a5726f756e6403a87265766973696f6e00a7"
            "686973746f7279a461626330a46465616491920300",
        ],
    ),
    (
        messages.Offer(*HEADER, Payload.MEAN, DeviceSet.of([0, 3])),
        None,
        [
            "8300000082a474797065a76d657373616765a76d65737361676587a474797065a54f66666572a673656e64657201ab69"
            "6e6361726e6174696f6e00a776657273696f6e84a4776f726b07a5726f756e6403a87265766973696f6e00a768697374"
            "6f7279a461626330a46465616491920300a477686174a46d65616ea8696e636c75646564c40109",
        ],
    ),
    (
        report(),
        None,
        [
            "fb00000082a474797065a76d657373616765a76d65737361676587a474797065a65265706f7274a673656e64657201ab"
            "696e6361726e6174696f6e00a776657273696f6e84a4776f726b07a5726f756e6403a87265766973696f6e00a7686973"
            "746f7279a461626330a46465616491920300ac636f6e747269627574696f6e83a8696e636c75646564c40102a96e5f73"
            "616d706c657305a5706172747381a6676c6f62616c87a96e5f73616d706c657305a6766563746f7293a266340300a677"
            "656967687405a8696e636c75646564c40102a46c6f7373cb3fe0000000000000a96e5f747261696e656405a3686f77a4"
            "6d65616ea76a6f696e657273810301",
            "2200000082a474797065a56368756e6ba7636f6e74656e74c40c0000803f0000004000004040",
        ],
    ),
    (
        mean(),
        None,
        [
            "0101000082a474797065a76d657373616765a76d65737361676588a474797065a44d65616ea673656e64657201ab696e"
            "6361726e6174696f6e00a776657273696f6e84a4776f726b07a5726f756e6403a87265766973696f6e00a7686973746f"
            "7279a461626330a46465616491920300a5746f74616c83a8696e636c75646564c40103a96e5f73616d706c657309a570"
            "6172747381a6676c6f62616c87a96e5f73616d706c657309a6766563746f7293a266340300a677656967687401a8696e"
            "636c75646564c40103a46c6f7373cb3fe0000000000000a96e5f747261696e656409a3686f77a46d65616ea76d697373"
            "696e678103a66661696c6564a76a6f696e65727380",
            "2200000082a474797065a56368756e6ba7636f6e74656e74c40c0000803f0000004000004040",
        ],
    ),
    (
        closed(STATE),
        None,
        [
            "0901000082a474797065a76d657373616765a76d65737361676586a474797065a6436c6f736564a673656e64657201ab"
            "696e6361726e6174696f6e00a776657273696f6e84a4776f726b07a5726f756e6403a87265766973696f6e00a7686973"
            "746f7279a461626330a46465616491920300a67265636f726489a776657273696f6e84a4776f726b07a5726f756e6403"
            "a87265766973696f6e00a7686973746f7279a461626330a6726f7374657283000001000200a5737461746582a17793a2"
            "66340300a16e93a269380100a6706172656e74a26666a8696e636c75646564c40107a76d697373696e6780a96e5f7361"
            "6d706c657309a769735f6f766572c2a46c6f7373cb3fe0000000000000",
            "2200000082a474797065a56368756e6ba7636f6e74656e74c40c0000803f0000004000004040",
            "1e00000082a474797065a56368756e6ba7636f6e74656e74c408efcdab8967452301",
        ],
    ),
    (
        closed(STATE),
        {"w": VECTOR},
        [
            "0401000082a474797065a76d657373616765a76d65737361676586a474797065a6436c6f736564a673656e64657201ab"
            "696e6361726e6174696f6e00a776657273696f6e84a4776f726b07a5726f756e6403a87265766973696f6e00a7686973"
            "746f7279a461626330a46465616491920300a67265636f726489a776657273696f6e84a4776f726b07a5726f756e6403"
            "a87265766973696f6e00a7686973746f7279a461626330a6726f7374657283000001000200a5737461746582a177c0a1"
            "6e93a269380100a6706172656e74a26666a8696e636c75646564c40107a76d697373696e6780a96e5f73616d706c6573"
            "09a769735f6f766572c2a46c6f7373cb3fe0000000000000",
            "1e00000082a474797065a56368756e6ba7636f6e74656e74c408efcdab8967452301",
        ],
    ),
]


@pytest.mark.parametrize(("frame", "golden"), GOLDEN_FRAMES, ids=lambda one: type(one).__name__)
def test_fixed_frames_are_fixed_bytes(frame: Frame, golden: str) -> None:
    assert encode_frame(frame).hex() == golden
    assert read_frame(content_of(bytes.fromhex(golden))) == frame


@pytest.mark.parametrize(("message", "parent", "golden"), GOLDEN_MESSAGES, ids=lambda one: type(one).__name__)
def test_fixed_messages_are_fixed_bytes(
    message: AnyMessage, parent: dict[str, Vector] | None, golden: list[str]
) -> None:
    (found,) = received([content_of(bytes.fromhex(frame)) for frame in golden], FREE)
    if parent is not None and isinstance(message, messages.Closed):
        kept = {**STATE, **dict.fromkeys(parent)}
        record = msgspec.structs.replace(message.record, state=kept)
        expected: AnyMessage = msgspec.structs.replace(message, record=record)
    else:
        expected = message

    encoded, arrays = Codec.encode(message, parent)

    assert [frame.hex() for frame in (encoded, *chunks(arrays))] == golden
    assert plain(found) == plain(expected)


def test_packed_bytes_are_a_zlib_stream() -> None:
    """Decoded only: other builds of zlib pack the same numbers into other bytes."""
    stream = bytes.fromhex("7801fbff1f02981820000063bc07fb")
    (message,) = received(packed(["i8", 2, len(stream)], stream), FREE)

    assert isinstance(message, messages.Closed)
    assert plain(message.record.state) == plain({"a": np.array([-1, 2])})
