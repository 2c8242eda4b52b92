"""Spoilt bytes for every file of a device and of an authority: read, or named in one sentence."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from cryptography import x509
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from tests.net.test_wire import spoil
from tolfl.core.contribution import GLOBAL
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.records import FailureHappened, RoundClosed, RunEnded, Traffic, decode_records, encode_records
from tolfl.net.enrolment import AUTHORITY, CERTIFICATE, KEY, REVOCATIONS, Authority, EnrolmentError
from tolfl.net.node_config import NodeConfig
from tolfl.net.storage import DeviceStorage, encode_round, read_round
from tolfl.net.tls import Credentials
from tolfl.protocol.history import ClosedRound, Roster, Version

pytestmark = pytest.mark.slow


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
    File(
        "life.json",
        lambda _: b'{"device":1,"incarnation":4}',
        lambda folder: DeviceStorage(folder, 1).next_incarnation(),
    ),
    File("records.jsonl", records, lambda f: list(decode_records((f / "records.jsonl").read_bytes().splitlines()))),
    File(REVOCATIONS, lambda folder: (folder / REVOCATIONS).read_bytes(), Credentials),
    File(KEY, lambda folder: (folder / KEY).read_bytes(), Credentials),
    File(CERTIFICATE, lambda folder: (folder / CERTIFICATE).read_bytes(), Credentials),
    File(AUTHORITY, lambda folder: (folder / AUTHORITY).read_bytes(), Credentials),
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


def test_a_certificate_with_a_negative_serial_number_is_named(tmp_path: Path) -> None:
    folder = Authority.create(tmp_path / "fleet", "plant").issue("gateway", 1)
    path = folder / CERTIFICATE
    number = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
    serial = number.to_bytes(number.bit_length() // 8 + 1)
    der = ssl.PEM_cert_to_DER_cert(path.read_text())
    assert der.count(serial) == 1
    path.write_text(ssl.DER_cert_to_PEM_cert(der.replace(serial, b"\x80" + serial[1:])))

    with pytest.raises(EnrolmentError, match="is no certificate that tolfl enroll made"):
        Credentials(folder)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
def test_thousands_of_spoilt_files_are_read_or_named(place: tuple[File, Path, bytes], seed: int) -> None:
    file, folder, content = place
    rng = np.random.default_rng(seed)
    for _ in range(20):
        check_file(file, folder, spoil(content, rng))
