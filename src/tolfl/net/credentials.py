"""The one place where credentials go in: how a device listens, how it dials, and who is at the other end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from tolfl.net.addresses import split_address
from tolfl.net.authority import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    REVOCATIONS,
    EnrolmentError,
    Revocations,
    any_device_name,
    device_name,
    operator_name,
    read_certificate,
    read_key,
    read_revocations,
)
from tolfl.net.wire import MAX_FRAME_BYTES

_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    # The back-stop for links on which nothing is due; the failure detector is much faster.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
_SERVER_OPTIONS = (
    *_OPTIONS,
    # More than a frame may have, so that what is too large is counted; the rest is refused before anybody sees it.
    ("grpc.max_receive_message_length", 4 * MAX_FRAME_BYTES),
    ("grpc.so_reuseport", 0),  # a port that is taken must be an error, not shared
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Strangers: who does not finish a handshake, and who opens stream after stream on one connection.
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_concurrent_streams", 16),
)
_CHANNEL_OPTIONS = (
    *_OPTIONS,
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own: a heartbeat must not queue behind a model
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)
_DEVICE = re.compile(r"d(\d+)-g(\d+)\.([a-z0-9-]+)\.tolfl")


@dataclass(frozen=True)
class Identity:
    """Who is at the other end, as its certificate says."""

    device: int | None = None
    generation: int = 0
    is_operator: bool = False


class Credentials(Protocol):
    """What a device shows, and what it wants to see."""

    def server(self) -> grpc.aio.Server:
        """Return a server that has no port yet."""

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Open a port and return its number; 0 if it is taken."""

    def dial(self, address: str, device: int | None) -> grpc.aio.Channel:
        """Return a channel to an address where a device is expected; None: whoever answers."""

    def identify(self, context: Any) -> Identity | None:
        """Return who called; None where nobody shows anything."""

    def is_revoked(self, identity: Identity | None) -> bool:
        """Tell whether the fleet has taken a certificate back."""

    identity: Identity | None  #: what its own certificate says
    revocations: bytes  #: the signed list, to be passed on

    def learn(self, revocations: bytes) -> frozenset[int] | None:
        """Take over a list that is newer and signed; return whom it cuts off, or None where it is no news."""

    def reread(self) -> frozenset[int] | None:
        """Look at the list on disk again, which an operator may have replaced."""


class NoCredentials:
    """Plain text, for loopback and for networks of one's own making."""

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.revocations = b""

    def server(self) -> grpc.aio.Server:
        """Return a server that has no port yet."""
        return grpc.aio.server(options=_SERVER_OPTIONS)

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Open a port and return its number."""
        return int(server.add_insecure_port(address))

    def dial(self, address: str, device: int | None) -> grpc.aio.Channel:  # noqa: ARG002  (nobody can prove who it is)
        """Return a channel to an address."""
        return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)

    def identify(self, context: Any) -> Identity | None:  # noqa: ARG002
        """Return None: nobody shows anything."""
        return None

    def is_revoked(self, identity: Identity | None) -> bool:  # noqa: ARG002
        """Return False: there is nothing to revoke."""
        return False

    def learn(self, revocations: bytes) -> frozenset[int] | None:  # noqa: ARG002
        """Return None: there is nothing to learn."""
        return None

    def reread(self) -> frozenset[int] | None:
        """Return None: there is nothing to learn."""
        return None


class TLS:
    """Mutual TLS (1.2 or newer) with certificates of the fleet's authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            key, own = read_key(folder / KEY), read_certificate(folder / CERTIFICATE)
            self._authority = read_certificate(folder / AUTHORITY)
            self._key = (folder / KEY).read_bytes()
            self._chain = (folder / CERTIFICATE).read_bytes()
            self._root = (folder / AUTHORITY).read_bytes()
        except OSError as error:
            problem = f"{Path(str(error.filename)).name}: {error.strerror}"
            raise EnrolmentError(f"credentials {folder}: cannot be read ({problem}); see tolfl enroll") from None
        names = _names_in(own)
        self.fleet = names[0].split(".")[1] if names and names[0].count(".") == 2 else ""
        self.identity: Identity | None = identity_of(names, self.fleet)
        if self.identity is None:
            raise EnrolmentError(f"credentials {folder}: {CERTIFICATE} is no certificate of a fleet; see tolfl enroll")
        _check_pair(folder, key, own, self._authority)
        self.revocations, self._lowest = b"", Revocations()
        if (folder / REVOCATIONS).exists():
            self._read_list()

    def _read_list(self) -> None:
        try:
            self.learn((self.folder / REVOCATIONS).read_bytes())
        except (OSError, EnrolmentError) as error:
            raise EnrolmentError(f"credentials {self.folder}: {REVOCATIONS}: {error}; copy the newest list") from None

    def server(self) -> grpc.aio.Server:
        """Return a server that has no port yet."""
        return grpc.aio.server(options=_SERVER_OPTIONS)

    def listen(self, server: grpc.aio.Server, address: str) -> int:
        """Open a port and return its number."""
        pair = (self._key, self._chain)
        wanted = grpc.ssl_server_credentials([pair], root_certificates=self._root, require_client_auth=True)
        return int(server.add_secure_port(address, wanted))

    def dial(self, address: str, device: int | None) -> grpc.aio.Channel:
        """Return a channel that only the device that is wanted can answer, in a generation that counts."""
        name = any_device_name(self.fleet)
        if device is not None:
            name = device_name(self.fleet, device, self._lowest.of(device))
        shown = grpc.ssl_channel_credentials(self._root, self._key, self._chain)
        options = (*_CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", name))
        return grpc.aio.secure_channel(address, shown, options=options)

    def identify(self, context: Any) -> Identity | None:
        """Return who called; nobody in particular, if the certificate names neither a device nor an operator."""
        shown = context.auth_context().get("x509_subject_alternative_name", [])
        return identity_of([name.decode() for name in shown], self.fleet) or Identity()

    def is_revoked(self, identity: Identity | None) -> bool:
        """Tell whether the fleet has taken a certificate back."""
        return (
            identity is not None
            and identity.device is not None
            and identity.generation < self._lowest.of(identity.device)
        )

    def learn(self, revocations: bytes) -> frozenset[int] | None:
        """Take over a list that is newer and signed; return whom it cuts off, or None where it is no news."""
        if not revocations or revocations == self.revocations:
            return None
        before, found = self._lowest, read_revocations(revocations, self._authority)
        if found.version <= before.version and self.revocations:
            return None
        self.revocations, self._lowest = revocations, found
        return frozenset(int(device) for device in found.lowest if found.of(int(device)) > before.of(int(device)))

    def reread(self) -> frozenset[int] | None:
        """Look at the list on disk again, which an operator may have replaced."""
        try:
            return self.learn((self.folder / REVOCATIONS).read_bytes())
        except (OSError, EnrolmentError):
            return None  # what is there is no list, or not whole yet: the old one stays


def _check_pair(
    folder: Path, key: ec.EllipticCurvePrivateKey, own: x509.Certificate, authority: x509.Certificate
) -> None:
    """Say now what would otherwise be a handshake that fails for no reason that anybody sees."""
    if key.public_key() != own.public_key():
        raise EnrolmentError(f"credentials {folder}: {KEY} is not the key of {CERTIFICATE}; copy both again")
    try:
        own.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise EnrolmentError(f"credentials {folder}: {CERTIFICATE} is not of {AUTHORITY}; copy both again") from None
    if own.not_valid_after_utc < datetime.now(UTC):
        ended = own.not_valid_after_utc.date().isoformat()
        raise EnrolmentError(f"credentials {folder}: {CERTIFICATE} ended on {ended}; tolfl enroll renew")


def _names_in(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name) for name in names.get_values_for_type(x509.DNSName)]


def identity_of(names: Sequence[str], fleet: str) -> Identity | None:
    """Return whom the names in a certificate mean; None: nobody of the fleet."""
    if operator_name(fleet) in names:
        return Identity(is_operator=True)
    for name in names:
        match = _DEVICE.fullmatch(name)
        if match is not None and match[3] == fleet:
            return Identity(int(match[1]), int(match[2]))
    return None


def is_loopback(address: str) -> bool:
    """Tell whether an address can be reached from this machine alone."""
    host = split_address(address)[0]
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
