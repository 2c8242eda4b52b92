"""A fleet behind mutual TLS, and those who try to get in: raw connections, certificates of any kind, any frames."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.net.nodes import PATIENCE_S, SMALL, Fleet, held_back, is_same
from tests.sim.fleets import params
from tolfl.core.contribution import GLOBAL, Contribution, Part
from tolfl.core.device_set import DeviceSet
from tolfl.core.records import FailureHappened
from tolfl.core.spec import RunSpec
from tolfl.learners import State
from tolfl.net.addresses import split_address
from tolfl.net.client import ask
from tolfl.net.connection import next_frame
from tolfl.net.enrolment import AUTHORITY, CERTIFICATE, KEY, Authority, any_device_name, device_name
from tolfl.net.node_config import NodeConfig
from tolfl.net.tls import Credentials
from tolfl.net.wire import (
    LENGTH,
    WIRE_VERSION,
    Codec,
    Frame,
    Hello,
    Ping,
    Pong,
    Rejection,
    StatusReply,
    chunks,
    encode_frame,
)
from tolfl.protocol import messages
from tolfl.protocol.messages import AnyMessage
from tolfl.sim.simulation import run


def without_stale(refused: Mapping[str, int]) -> dict[str, int]:
    """Leave out what honest devices send, too: on a busy machine a report may come twice, and once too late."""
    return {kind: count for kind, count in refused.items() if kind != "stale" and count}


class SecureFleet(Fleet):
    """Devices with certificates of one authority, and an operator who asks them."""

    def __init__(self, folder: Path, spec: RunSpec = SMALL) -> None:
        super().__init__(folder, spec)
        self.authority = Authority.create(folder / "fleet", "plant")
        self.authority.issue("me", None)
        for device in range(spec.devices):
            self.authority.issue(f"device-{device}", device)

    def credentials(self, device: int) -> Path:
        """Return the folder with the certificate that a device was given first."""
        return self.authority.folder_of(f"device-{device}")

    def config(self, device: int, **changes: object) -> NodeConfig:
        """Return the configuration of a device that shows its certificate."""
        return super().config(device, **{"insecure": False, "credentials": str(self.credentials(device)), **changes})

    async def status(self, device: int) -> StatusReply:
        """Ask a device over the network, as the operator."""
        operator = Credentials(self.authority.folder_of("me"))
        reply = None
        async with asyncio.timeout(PATIENCE_S):
            while reply is None:  # on a busy machine an answer may take longer than anybody waits for it
                reply = await ask(self.addresses[device], operator)
        return reply

    async def refused(self, device: int) -> dict[str, int]:
        """Return what a device has turned away, by kind."""
        return without_stale((await self.status(device)).refused)


@asynccontextmanager
async def secure_fleet_of(folder: Path, spec: RunSpec = SMALL) -> AsyncIterator[SecureFleet]:
    """Give a fleet behind TLS, and stop it whatever happens."""
    fleet = SecureFleet(folder, spec)
    try:
        yield fleet
    finally:
        await fleet.close()


async def in_mid_run(fleet: SecureFleet, liar: int) -> threading.Event:
    """Start all devices but one, whose certificate a liar has; they stop at the second round, until the event."""
    honest = [device for device in range(fleet.spec.devices) if device != liar]
    for device in honest:
        fleet.prepare(device, absent=(liar,))
    gate = held_back(fleet.nodes[honest[0]], lambda index: index < 1)
    fleet.launch(*honest)
    await fleet.until_round(1)
    return gate


async def check_unharmed(fleet: SecureFleet, liar: int) -> None:
    """Check that all end with the model of the simulator without one device, and that nobody else was lost."""
    honest = [device for device in range(fleet.spec.devices) if device != liar]
    assert await fleet.ends(*honest) == ["over"] * len(honest)
    expected = params(run(msgspec.structs.replace(fleet.spec, fail=f"device:{liar}@0"))[0])
    assert all(is_same(fleet.params(device), expected) for device in honest)
    lines = [line for device in honest for line in fleet.records(device)]
    assert {line.device for line in lines if isinstance(line, FailureHappened)} <= {liar}


# -- certificates ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """What a peer shows and whom it trusts, with none of the checks of an honest device."""

    key: bytes | None
    chain: bytes | None
    root: bytes

    @classmethod
    def of(cls, folder: Path) -> Shown:
        """Return what is in a folder of credentials."""
        return cls(*((folder / name).read_bytes() for name in (KEY, CERTIFICATE, AUTHORITY)))

    def context(self) -> ssl.SSLContext:
        """Return what a connection is made with, whoever is at its other end."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=self.root.decode())
        if self.key is not None and self.chain is not None:
            with tempfile.NamedTemporaryFile() as file:  # `ssl` reads keys from files only
                file.write(self.key + self.chain)
                file.flush()
                context.load_cert_chain(file.name)
        return context

    async def dial(self, address: str) -> Stream:
        """Return a connection to an address, whoever is there."""
        return Stream(*await asyncio.open_connection(*split_address(address), ssl=self.context()))


@dataclass(frozen=True)
class Stream:
    """A connection on which anything may be sent."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *frames: Frame | bytes) -> None:
        """Send frames, and bytes as they are."""
        self.writer.writelines(one if isinstance(one, bytes) else encode_frame(one) for one in frames)

    async def answer(self) -> str:
        """Return how the other side ends: the kind of its rejection, `closed`, or `open` if it answers the ping 77."""
        with suppress(OSError, EOFError):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    frame = await next_frame(self.reader)
                    if isinstance(frame, Rejection):
                        return frame.kind
                    if frame == Pong(77):
                        return "open"
                    if isinstance(frame, Ping):
                        self.send(Pong(frame.number))
        return "closed"

    def close(self) -> None:
        """Break the connection."""
        self.writer.transport.abort()


def framed(content: bytes) -> bytes:
    """Return bytes as a frame, whatever they are."""
    return LENGTH.pack(len(content)) + content


def certificate_for(
    names: Sequence[str], issuer: x509.Certificate, issuer_key: ec.EllipticCurvePrivateKey, days: float = 1.0
) -> tuple[bytes, bytes]:
    """Return a key and a certificate with these names, good from long ago until so many days from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=10))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, certificate.public_bytes(serialization.Encoding.PEM)


def issuer_in(folder: Path, certificate: str = AUTHORITY) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return a certificate and its key, to sign with, whether that is allowed or not."""
    key = serialization.load_pem_private_key((folder / KEY).read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate((folder / certificate).read_bytes()), key


def expired(fleet: SecureFleet, device: int) -> Shown:
    """Return a certificate of a device that the authority has signed and that ended yesterday."""
    names = [device_name("plant", device, 1), any_device_name("plant")]
    pair = certificate_for(names, *issuer_in(fleet.authority.folder), days=-1.0)
    return Shown(*pair, root=Shown.of(fleet.credentials(device)).root)


def expire(fleet: SecureFleet, device: int) -> None:
    """Let the certificate of a device have ended yesterday."""
    shown, folder = expired(fleet, device), fleet.credentials(device)
    assert shown.key is not None
    assert shown.chain is not None
    (folder / KEY).write_bytes(shown.key)
    (folder / CERTIFICATE).write_bytes(shown.chain)


# -- an enrolled peer that does as it likes -------------------------------------------------------------------------


class Peer:
    """Raw connections to one device of a fleet, under the certificate and name of another."""

    def __init__(self, fleet: SecureFleet, me: int, to: int, shown: Shown | None = None) -> None:
        self.me, self.to, self._node = me, to, fleet.nodes[to]
        self.shown, self.address = shown or Shown.of(fleet.credentials(me)), fleet.addresses[to]

    @property
    def n_params(self) -> int:
        """How many numbers the model has."""
        state = cast("State", self._node.device.record.state)
        return state[GLOBAL].size

    async def dial(self) -> Stream:
        """Return a new connection."""
        return await self.shown.dial(self.address)

    def hello(self, **changes: Any) -> Hello:
        """Return a first frame that is right but for these changes."""
        right = {"wire": WIRE_VERSION, "fleet": self._node.fleet, "device": self.me, "to": self.to, "process": 1}
        return Hello(**{**right, **changes})

    async def tell(self, *frames: Frame | bytes, hello: Hello | None = None, first: bytes = b"") -> str:
        """Say hello and then these frames; return how the other side ends, or `open` if it goes on listening."""
        try:
            stream = await self.dial()
        except (OSError, EOFError):
            return "no handshake"
        try:
            stream.send(first or hello or self.hello(), *frames, Ping(77))
            return await stream.answer()
        finally:
            stream.close()

    # -- what it may say --------------------------------------------------------------------------------------------

    def header(self, **changes: object) -> tuple[Any, ...]:
        """Return the header of a message that fits the round which runs."""
        fields = {"sender": self.me, "incarnation": 0, "version": self._node.device.version, "dead": frozenset()}
        return tuple({**fields, **changes}.values())

    def encoded(self, message: AnyMessage) -> list[bytes]:
        """Return the frames of a message."""
        head, arrays = Codec.encode(message)
        return [head, *chunks(arrays)]

    def report(self, vector: np.ndarray[Any, Any] | None = None, **header: object) -> messages.Report:
        """Return a report of the round that runs."""
        only = DeviceSet.of([self.me])
        vector = np.ones(self.n_params, np.float32) if vector is None else vector
        contribution = Contribution(only, 40, {GLOBAL: Part(40, vector, 40, only, 0.5, 40)})
        sender, incarnation, version, dead = self.header(**header)
        return messages.Report(sender, incarnation, version, dead, contribution, {})
