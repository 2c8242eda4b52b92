"""The wire contract: every message comes back as it was, and what cannot be one is refused under its kind."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.net.wire_messages import KINDS, any_message, fleets, plain
from tolfl.core.contribution import Contribution, Part
from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.net import wire_pb2 as pb
from tolfl.net.codec import Expected, RefusedMessageError, decode, encode, tensors_of
from tolfl.protocol import messages
from tolfl.protocol.history import ClosedRound, Roster, Version
from tolfl.protocol.messages import AnyMessage

REFUSALS = {"shape", "malformed", "non-finite", "provenance", "oversize"}
SOURCES = Path(__file__).resolve().parents[2] / "src"

#: Two clusters, 0, 1 | 2, 3; a model of three numbers.
FLEET = Expected(Topology.contiguous(4, 2), ("global",), 3, np.dtype(np.float32))
VERSION = Version(7, 3, 0, "abc0")
HEADER = (1, 0, VERSION, frozenset({(3, 0)}))
VECTOR = np.array([1, 2, 3], np.float32)


def report() -> messages.Report:
    part = Part(5, VECTOR, 5, DeviceSet.of([1]), 0.5, 5)
    return messages.Report(*HEADER, Contribution(DeviceSet.of([1]), 5, {"global": part}), {3: 1})


def mean() -> messages.Mean:
    inside = DeviceSet.of([0, 1])
    part = Part(9, VECTOR, 1, inside, 0.5, 9)
    return messages.Mean(*HEADER, Contribution(inside, 9, {"global": part}), {3: "failed"}, {})


def closed() -> messages.Closed:
    roster = Roster({0: 0, 1: 0, 2: 0})
    return messages.Closed(*HEADER, ClosedRound(VERSION, roster, {"global": VECTOR}, "ff", DeviceSet(7), {}, 9))


def over_the_wire(message: pb.Message) -> pb.Message:
    parsed: pb.Message = pb.Message.FromString(message.SerializeToString())
    return parsed


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_a_message_comes_back_as_it_was(kind: type[AnyMessage], data: st.DataObject) -> None:
    fleet = data.draw(fleets())
    message = data.draw(any_message(fleet, kind))

    encoded, tensors = encode(message)
    parsed = over_the_wire(encoded)

    assert len(tensors_of(parsed, fleet)) == len(tensors)
    assert plain(decode(parsed, tensors, fleet)) == plain(message)


@settings(max_examples=25)
@given(data=st.data())
def test_a_light_record_is_the_record_without_its_models(data: st.DataObject) -> None:
    fleet = data.draw(fleets())
    message = data.draw(any_message(fleet, messages.Closed))
    assert isinstance(message, messages.Closed)

    encoded, tensors = encode(message, is_light=True)
    decoded = decode(over_the_wire(encoded), tensors, fleet)

    light = msgspec.structs.replace(message, record=msgspec.structs.replace(message.record, state={}))
    assert tensors == []
    assert plain(decoded) == plain(light)


# -- spoilt messages --------------------------------------------------------------------------------------------------

#: Values that no honest field has, or another honest one has.
INTEGERS = st.one_of(st.sampled_from([0, 1, 3, 11, 12, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))
LONG_INTEGERS = st.one_of(INTEGERS, st.sampled_from([2**62 - 1, 2**62, 2**63, 2**64 - 1]))
SPOILERS: dict[str, st.SearchStrategy[object]] = {
    "uint32": INTEGERS,
    "uint64": LONG_INTEGERS,
    "bool": st.booleans(),
    "double": st.one_of(st.floats(), st.sampled_from([float("nan"), float("inf")])),
    "string": st.one_of(st.text(max_size=100), st.sampled_from(["", "global", "left", "beef"])),
    "bytes": st.one_of(st.binary(max_size=40), st.just(b"\0" * 500), st.just(b"\xff" * 2000)),
}
_TYPES = {13: "uint32", 4: "uint64", 8: "bool", 1: "double", 9: "string", 12: "bytes"}
_MESSAGE = 11


def spoil(draw: st.DrawFn, message: object) -> None:
    """Change one field, somewhere inside."""
    fields = [field for field in message.DESCRIPTOR.fields if field.containing_oneof is None]  # type: ignore[attr-defined]
    inside = [
        field for field in message.DESCRIPTOR.fields if field.containing_oneof and message.HasField(field.name)  # type: ignore[attr-defined]
    ]  # fmt: skip
    field = draw(st.sampled_from(fields + inside)) if fields + inside else None
    if field is None:
        return
    content = getattr(message, field.name)
    if field.type == _MESSAGE and field.message_type.GetOptions().map_entry:
        content[draw(INTEGERS)] = draw(SPOILERS["string"])
    elif field.type == _MESSAGE and field.is_repeated:
        choice = draw(st.sampled_from(["again", "less", "new", "inside"])) if content else "new"
        if choice == "again":
            content.append(draw(st.sampled_from(list(content))))
        elif choice == "less":
            del content[draw(st.integers(0, len(content) - 1))]
        elif choice == "new":
            spoil(draw, content.add())
        else:
            spoil(draw, content[draw(st.integers(0, len(content) - 1))])
    elif field.type == _MESSAGE:
        spoil(draw, content)
    else:
        setattr(message, field.name, draw(SPOILERS[_TYPES[field.type]]))


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[Expected, pb.Message]:
    fleet = draw(fleets())
    encoded, _ = encode(draw(any_message(fleet)))
    for _ in range(draw(st.integers(1, 2))):
        spoil(draw, encoded)
    return fleet, over_the_wire(encoded)


def read(message: pb.Message, fleet: Expected) -> AnyMessage:
    """Read a message as a device does, with any finite numbers in the tensors that it announces."""
    announced = tensors_of(message, fleet)
    return decode(message, [np.ones(fleet.n_params, fleet.dtype) for _ in announced], fleet)


def read_or_refuse(message: pb.Message, fleet: Expected) -> AnyMessage | str:
    """Return the message, or under which kind it was refused."""
    try:
        return read(message, fleet)
    except RefusedMessageError as error:
        return error.kind


@settings(max_examples=80)
@given(spoilt())
def test_a_spoilt_message_is_refused_or_is_another_good_one(case: tuple[Expected, pb.Message]) -> None:
    fleet, message = case
    decoded = read_or_refuse(message, fleet)
    if isinstance(decoded, str):
        assert decoded in REFUSALS
    else:
        encoded, tensors = encode(decoded)
        assert plain(decode(over_the_wire(encoded), tensors, fleet)) == plain(decoded)
        assert decoded.sender in fleet.topology.cluster_of


@given(fleets(), st.binary(max_size=400))
def test_random_bytes_are_refused_or_are_a_message(fleet: Expected, content: bytes) -> None:
    try:
        message = pb.Message.FromString(content)
    except DecodeError:
        return
    decoded = read_or_refuse(message, fleet)
    assert not isinstance(decoded, str) or decoded in REFUSALS


Spoiler = Callable[[pb.Message], object]
SPOILT: list[tuple[str, Callable[[], AnyMessage], Spoiler, str]] = [
    ("unknown sender", report, lambda m: setattr(m, "sender", 4), "malformed"),
    ("life beyond counting", report, lambda m: setattr(m, "incarnation", 2**62), "malformed"),
    ("work beyond counting", report, lambda m: setattr(m.version, "work", 2**63), "malformed"),
    ("history no number", report, lambda m: setattr(m.version, "history", "ABC"), "malformed"),
    ("history too long", report, lambda m: setattr(m.version, "history", "a" * 65), "malformed"),
    ("history with a line end", report, lambda m: setattr(m.version, "history", "ab\n"), "malformed"),
    ("unknown dead", report, lambda m: m.dead.add(device=9), "malformed"),
    ("unknown joiner", report, lambda m: m.report.joiners.add(device=9), "malformed"),
    ("no body", report, lambda m: m.ClearField("report"), "malformed"),
    ("for another", report, lambda m: setattr(m.report.contribution, "included", b"\x01"), "provenance"),
    ("for two", report, lambda m: setattr(m.report.contribution, "included", b"\x03"), "provenance"),
    ("part of another", report, lambda m: setattr(m.report.contribution.parts[0], "included", b"\x04"), "provenance"),
    ("for nobody", report, lambda m: setattr(m.report.contribution, "included", b""), "provenance"),
    ("loss of a part", report, lambda m: setattr(m.report.contribution.parts[0], "loss", float("inf")), "non-finite"),
    ("no weight", report, lambda m: setattr(m.report.contribution.parts[0], "weight", 0), "malformed"),
    ("part of no samples", report, lambda m: setattr(m.report.contribution.parts[0], "n_samples", 0), "malformed"),
    ("samples beyond counting", report, lambda m: setattr(m.report.contribution, "n_samples", 2**62), "malformed"),
    ("unknown model", report, lambda m: setattr(m.report.contribution.parts[0], "key", "b"), "shape"),
    ("model twice", mean, lambda m: m.mean.total.parts.append(m.mean.total.parts[0]), "shape"),
    ("another length", report, lambda m: setattr(m.report.contribution.parts[0].vector, "length", 4), "shape"),
    ("huge", mean, lambda m: setattr(m.mean.total.parts[0].vector, "length", 2**60), "shape"),
    ("another type", closed, lambda m: setattr(m.closed.models[0].params, "is_float64", True), "shape"),
    ("of later clusters", mean, lambda m: setattr(m.mean.total, "included", b"\x04"), "provenance"),
    ("of unknown devices", mean, lambda m: setattr(m.mean.total, "included", b"\x00\x01"), "malformed"),
    ("long reason", mean, lambda m: m.mean.missing.update({3: "x" * 41}), "malformed"),
    ("unknown missing", mean, lambda m: m.mean.missing.update({4: "late"}), "malformed"),
    ("version of another", closed, lambda m: setattr(m.closed.version, "round", 4), "malformed"),
    ("parent no number", closed, lambda m: setattr(m.closed, "parent", "../x"), "malformed"),
    ("roster of strangers", closed, lambda m: m.closed.roster.add(device=4), "malformed"),
    ("roster with two lives", closed, lambda m: m.closed.roster.add(device=1, incarnation=1), "malformed"),
    ("included strangers", closed, lambda m: setattr(m.closed, "included", b"\x10"), "malformed"),
]


@pytest.mark.parametrize(("make", "change", "kind"), [case[1:] for case in SPOILT], ids=[case[0] for case in SPOILT])
def test_what_cannot_be_is_refused_under_its_kind(make: Callable[[], AnyMessage], change: Spoiler, kind: str) -> None:
    encoded, _ = encode(make())
    read(encoded, FLEET)
    change(encoded)
    with pytest.raises(RefusedMessageError) as refusal:
        read(encoded, FLEET)

    assert refusal.value.kind == kind


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [report, mean, closed], ids=["report", "mean", "closed"])
def test_a_model_that_is_not_finite_is_refused(make: Callable[[], AnyMessage], value: float) -> None:
    encoded, tensors = encode(make())
    spoilt_vector = np.array([1, value, 3], np.float32)
    with pytest.raises(RefusedMessageError) as refusal:
        decode(encoded, [spoilt_vector for _ in tensors], FLEET)

    assert refusal.value.kind == "non-finite"


def test_a_part_of_the_models_is_no_record() -> None:
    fleet = Expected(FLEET.topology, ("a", "b"), 3, FLEET.dtype)
    record = msgspec.structs.replace(closed().record, state={"a": VECTOR})
    encoded, tensors = encode(msgspec.structs.replace(closed(), record=record))
    with pytest.raises(RefusedMessageError) as refusal:
        decode(encoded, tensors, fleet)

    assert refusal.value.kind == "shape"


def test_the_generated_module_is_what_the_contract_says(tmp_path: Path) -> None:
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip("grpcio-tools is not installed; it makes wire_pb2.py from wire.proto")
    options = [f"-I{SOURCES}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", "tolfl/net/wire.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options], check=True, cwd=SOURCES)

    for name in ("wire_pb2.py", "wire_pb2.pyi"):
        assert (tmp_path / "tolfl/net" / name).read_text() == (SOURCES / "tolfl/net" / name).read_text()
