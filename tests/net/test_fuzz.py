"""Spoilt bytes for everything that reads bytes: the wire parser and every file of a device and of an authority."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from tests.net.wire_messages import any_message
from tolfl.core.contribution import GLOBAL
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.records import FailureHappened, RoundClosed, RunEnded, Traffic, decode_records, encode_records
from tolfl.core.topology import Topology
from tolfl.net import wire_pb2 as pb
from tolfl.net.authority import AUTHORITY, CERTIFICATE, KEY, REVOCATIONS, Authority
from tolfl.net.codec import Expected, RefusedMessageError, encode
from tolfl.net.config import NodeConfig
from tolfl.net.credentials import TLS
from tolfl.net.disk import DeviceDisk, encode_round, read_round
from tolfl.net.frames import Assembler, chunks
from tolfl.net.greeting import check_hello
from tolfl.net.server import _parse_frame
from tolfl.protocol.history import ClosedRound, Roster, Version
from tolfl.protocol.messages import AnyMessage

pytestmark = pytest.mark.slow

FLEET = Expected(Topology.contiguous(6, 2), (GLOBAL,), 9, np.dtype(np.float32))
KINDS = {"malformed", "shape", "non-finite", "provenance", "oversize"}
N_IN_A_BATCH = 100

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


# -- the wire ---------------------------------------------------------------------------------------------------------


def read_stream(frames: list[bytes]) -> list[AnyMessage]:
    """Read frames as a server does after hello."""
    assembler, found = Assembler(FLEET), list[AnyMessage | None]()
    for content in frames:
        frame = _parse_frame(content)
        match frame.WhichOneof("content"):
            case "hello":
                check_hello(frame.hello)
            case "message":
                found.append(assembler.start(frame.message))
            case "chunk":
                found.append(assembler.add(frame.chunk))
        assert len(assembler._buffer) <= FLEET.n_params * FLEET.dtype.itemsize
    return [message for message in found if message is not None]


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


def frames_of(message: AnyMessage) -> list[bytes]:
    encoded, tensors = encode(message)
    return [frame.SerializeToString() for frame in (pb.Frame(message=encoded), *chunks(tensors))]


def check_batch(message: AnyMessage, seed: int) -> None:
    """Spoil a message in many ways: each is refused under a known kind, or is a message that could have been sent."""
    rng, frames = np.random.default_rng(seed), frames_of(message)
    assert len(read_stream(frames)) == 1
    for _ in range(N_IN_A_BATCH):
        try:
            found = read_stream(spoil_stream(frames, rng))
        except RefusedMessageError as error:
            assert error.kind in KINDS  # noqa: PT017
        else:
            for one in found:
                assert len(read_stream(frames_of(one))) == 1


HELLO = pb.Hello(wire=1, fleet="f", device=1, to=2, addresses={1: "10.0.0.1:7000"}, revocations=b"{}")
STREAMS = any_message(FLEET)


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


@given(st.integers(0, 2**32))
def test_a_spoilt_hello_is_refused_or_can_be_used(seed: int) -> None:
    rng, content = np.random.default_rng(seed), pb.Frame(hello=HELLO).SerializeToString()
    for _ in range(20):
        try:
            read_stream([spoil(content, rng)])
        except RefusedMessageError as error:
            assert error.kind in KINDS  # noqa: PT017


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_random_frames_are_refused_or_are_nothing(frames: list[bytes]) -> None:
    try:
        read_stream(frames)
    except RefusedMessageError as error:
        assert error.kind in KINDS  # noqa: PT017


# -- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """A file that is read, and what reads it."""

    name: str
    content: Callable[[Path], bytes]  #: as it is in a folder where all is well
    read: Callable[[Path], object]  #: given that folder


def node_toml(_: Path) -> bytes:
    peers = {"0": "10.0.0.1:7000", "2": "[::1]:7000"}
    config = NodeConfig(device=1, listen="127.0.0.1:0", state="state", peers=peers, seeds=("a:1",), credentials="c")
    return config.to_toml().encode()


def closed_round(_: Path) -> bytes:
    roster = Roster({0: 0, 1: 2})
    models = {GLOBAL: np.arange(5, dtype=np.float32)}
    return encode_round(
        ClosedRound(Version(7, 3, 0, "abc0"), roster, models, "ff", DeviceSet.of([0, 1]), {2: "failed"}, 7)
    )


def records(_: Path) -> bytes:
    closing = {"parent": "ff", "included": (0, 1), "missing": {"2": "left"}, "n_samples": 7, "loss": 0.5, "bytes": 9}
    return encode_records(
        [
            RoundClosed(time_s=1.5, device=1, round=3, messages={"report": 1}, heads=(0,), stall_s=0.0, **closing),  # type: ignore[arg-type]
            FailureHappened(time_s=1.0, device=2, what="died", by=1),
            Traffic(time_s=2.0, device=1, history="ff", sent=((0, "mean", 9),), control_messages=2, control_bytes=30),
            RunEnded(time_s=3.0, reason="over", survivors=(0, 1)),
        ]
    )


FILES = [
    File("node.toml", node_toml, lambda folder: NodeConfig.from_file(folder / "node.toml")),
    File("round.safetensors", closed_round, lambda folder: read_round(folder / "round.safetensors")),
    File("life.json", lambda _: b'{"device":1,"incarnation":4}', lambda folder: DeviceDisk(folder, 1).next_life()),
    File("records.jsonl", records, lambda f: list(decode_records((f / "records.jsonl").read_bytes().splitlines()))),
    File(REVOCATIONS, lambda folder: (folder / REVOCATIONS).read_bytes(), TLS),
    File(KEY, lambda folder: (folder / KEY).read_bytes(), TLS),
    File(CERTIFICATE, lambda folder: (folder / CERTIFICATE).read_bytes(), TLS),
    File(AUTHORITY, lambda folder: (folder / AUTHORITY).read_bytes(), TLS),
    File(
        "devices.json",
        lambda folder: (folder.parents[1] / "devices.json").read_bytes(),
        lambda folder: Authority(folder.parents[1]).entries(),
    ),
]


def check_file(file: File, folder: Path, content: bytes) -> None:
    """Check that a reader takes a file or says in one sentence what is wrong."""
    path = (folder.parents[1] if file.name == "devices.json" else folder) / file.name
    path.write_bytes(content)
    try:
        file.read(folder)
    except TolFLError as error:
        assert str(error)  # noqa: PT017


@pytest.fixture(params=FILES, ids=lambda file: file.name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[File, Path, bytes]:
    """Give a file, the folder in which all else is well, and what should be in it."""
    authority = Authority.create(tmp_path / "fleet", "plant")
    folder = authority.issue("gateway", 1)
    file: File = request.param
    content = file.content(folder)
    check_file(file, folder, content)
    file.read(folder)
    return file, folder, content


@given(seed=st.integers(0, 2**32))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_spoilt_file_is_read_or_named(place: tuple[File, Path, bytes], seed: int) -> None:
    file, folder, content = place
    rng = np.random.default_rng(seed)
    for _ in range(10):
        check_file(file, folder, spoil(content, rng))


@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=50).map(lambda text: text.encode())))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_random_file_is_read_or_named(place: tuple[File, Path, bytes], content: bytes) -> None:
    file, folder, _ = place
    check_file(file, folder, content)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("included", [-1]),
        ("included", [10**12]),
        ("roster", {"-1": 0}),
        ("roster", {"0": "x"}),
        ("missing", {"99999999999": "left"}),
        ("version", {}),
        ("n_samples", "many"),
        ("is_over", None),
    ],
    ids=str,
)
def test_a_round_with_a_value_that_cannot_be_is_named(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "round.safetensors"
    path.write_bytes(closed_round(tmp_path))
    with safe_open(path, framework="numpy") as file:
        stored = json.loads(file.metadata()["round"])
    metadata = {"round": json.dumps({**stored, field: value})}
    path.write_bytes(safetensors.numpy.save({GLOBAL: np.zeros(5, np.float32)}, metadata=metadata))

    with pytest.raises(RunDirectoryError, match="delete it to start anew"):
        read_round(path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
def test_thousands_of_spoilt_files_are_read_or_named(place: tuple[File, Path, bytes], seed: int) -> None:
    file, folder, content = place
    rng = np.random.default_rng(seed)
    for _ in range(20):
        check_file(file, folder, spoil(content, rng))
