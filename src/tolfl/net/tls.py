"""Authentication: mutual TLS 1.3 with certificates of the fleet's authority, or plain text on loopback."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from tolfl.net.addresses import split_address
from tolfl.net.enrolment import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    REVOCATIONS,
    EnrolmentError,
    Revocations,
    operator_name,
    read_certificate,
    read_key,
    read_revocations,
)

_DEVICE = re.compile(r"d(\d+)-g(\d+)\.([a-z0-9-]+)\.tolfl")


@dataclass(frozen=True)
class Identity:
    """Who is at the other end, as its certificate says."""

    device: int | None = None
    generation: int = 0
    is_operator: bool = False


class Credentials:
    """What a device or an operator shows, and whom it accepts; without a folder plain text, for loopback.

    Certificates are checked against the fleet's authority by TLS, and by name and generation here: addresses prove
    nothing, so no host name is checked.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder, self.fleet = folder, ""
        self.identity: Identity | None = None  #: what the own certificate says
        self.server_context: ssl.SSLContext | None = None
        self.client_context: ssl.SSLContext | None = None
        self.revocations, self._lowest = b"", Revocations()  #: the signed list, and what it says
        self._list_read_ns = 0
        if folder is not None:
            self._load(folder)

    def _load(self, folder: Path) -> None:
        try:
            key, own = read_key(folder / KEY), read_certificate(folder / CERTIFICATE)
            self._authority = read_certificate(folder / AUTHORITY)
        except OSError as error:
            problem = f"{Path(str(error.filename)).name}: {error.strerror}"
            raise EnrolmentError(f"credentials {folder}: cannot be read ({problem}); see tolfl enroll") from None
        names = _names_in(own)
        self.fleet = names[0].split(".")[1] if names and names[0].count(".") == 2 else ""
        self.identity = identity_of(names, self.fleet)
        if self.identity is None:
            raise EnrolmentError(f"credentials {folder}: {CERTIFICATE} is no certificate of a fleet; see tolfl enroll")
        _check_pair(folder, key, own, self._authority)
        self.ends = own.not_valid_after_utc
        self.server_context = _context(folder, ssl.PROTOCOL_TLS_SERVER)
        self.client_context = _context(folder, ssl.PROTOCOL_TLS_CLIENT)
        if (folder / REVOCATIONS).exists():
            self._read_list(folder)

    def _read_list(self, folder: Path) -> None:
        try:
            self.learn((folder / REVOCATIONS).read_bytes())
        except (OSError, EnrolmentError) as error:
            raise EnrolmentError(f"credentials {folder}: {REVOCATIONS}: {error}; copy the newest list") from None

    @property
    def trouble(self) -> str:
        """What the operator should do: renew a certificate that has ended."""
        if self.folder is None or self.ends > datetime.now(UTC):
            return ""
        return f"its certificate ended on {self.ends.date().isoformat()}: tolfl enroll renew, then restart the device"

    def identify(self, writer: asyncio.StreamWriter) -> Identity | None:
        """Return who is at the other end, as its certificate says; None in plain text, where nobody shows anything."""
        if self.folder is None:
            return None
        shown = writer.get_extra_info("peercert").get("subjectAltName", ())
        return identity_of([name for kind, name in shown if kind == "DNS"], self.fleet) or Identity()

    def is_revoked(self, identity: Identity | None) -> bool:
        """Return whether the fleet has taken a certificate back."""
        return (
            identity is not None
            and identity.device is not None
            and identity.generation < self._lowest.of(identity.device)
        )

    def learn(self, revocations: bytes) -> frozenset[int] | None:
        """Take over a list that is newer and signed; return whom it cuts off, or None where it is not newer."""
        if self.folder is None or not revocations or revocations == self.revocations:
            return None
        before, found = self._lowest, read_revocations(revocations, self._authority)
        if found.version <= before.version and self.revocations:
            return None
        self.revocations, self._lowest = revocations, found
        return frozenset(int(device) for device in found.lowest if found.of(int(device)) > before.of(int(device)))

    def reread(self) -> frozenset[int] | None:
        """Look at the list on disk again, if an operator has replaced it."""
        if self.folder is None:
            return None
        try:
            changed_ns = (self.folder / REVOCATIONS).stat().st_mtime_ns
            if changed_ns == self._list_read_ns:
                return None
            cut_off = self.learn((self.folder / REVOCATIONS).read_bytes())
        except (OSError, EnrolmentError):
            return None  # what is there is no list, or not whole yet: the old one stays
        self._list_read_ns = changed_ns
        return cut_off


def _context(folder: Path, purpose: int) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
        context.load_verify_locations(folder / AUTHORITY)
    except (OSError, ssl.SSLError) as error:
        raise EnrolmentError(f"credentials {folder}: cannot be used ({error}); copy all files again") from None
    if purpose == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # nobody resumes a session: each connection shows its certificate
    return context


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
    """Return whether an address can be reached from this machine alone."""
    host = split_address(address)[0]
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
