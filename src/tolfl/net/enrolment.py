"""The fleet's certificate authority: enrols devices and operators under a name, renews and revokes certificates.

A certificate binds a device's id and a generation to a key, as the DNS name `d3-g1.FLEET.tolfl`. To revoke a device is
to raise the lowest generation that the fleet accepts for its id: nobody dials or admits the old name any more, and a
replacement gets the new one. The list of lowest generations is signed, and devices pass it on to each other.
"""

from __future__ import annotations

import re
import secrets
import stat
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tolfl.core.errors import SpecError, TolFLError
from tolfl.runs.directory import replace_file

KEY, CERTIFICATE, AUTHORITY, REVOCATIONS = "key.pem", "cert.pem", "authority.pem", "revocations.json"
FLEET, LAUNCHER = "fleet", "launcher"  #: the authority of a fleet on one machine, and who may ask its devices
_REGISTRY = "devices.json"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
_SKEW = timedelta(minutes=5)  # clocks of small devices are not always right
_AUTHORITY_YEARS = 20
_SPOILT_EXTENSIONS = (x509.DuplicateExtension, x509.UnsupportedGeneralNameType)


class EnrolmentError(TolFLError):
    """A certificate, key or list that cannot be made, read or trusted."""


class EnrolmentRequestError(EnrolmentError, SpecError):
    """A name or id that no certificate can have."""


class Entry(msgspec.Struct):
    """One certificate that was handed out."""

    device: int | None  #: None: an operator, who may ask and command, and trains nothing
    generation: int
    expires: str
    is_revoked: bool = False


class Revocations(msgspec.Struct, frozen=True):
    """The lowest generation that counts, by device id; 1 for those who are not named."""

    version: int = 0
    lowest: dict[str, int] = {}

    def of(self, device: int) -> int:
        """Return the lowest generation that counts for a device."""
        return self.lowest.get(str(device), 1)


class _Signed(msgspec.Struct):
    content: str
    signature: str


def device_name(fleet: str, device: int, generation: int) -> str:
    """Return the DNS name in a device's certificate.

    >>> device_name("plant", 3, 1)
    'd3-g1.plant.tolfl'
    """
    return f"d{device}-g{generation}.{fleet}.tolfl"


def any_device_name(fleet: str) -> str:
    """Return the name that every device of a fleet has beside its own: for questions to whoever answers."""
    return f"device.{fleet}.tolfl"


def operator_name(fleet: str) -> str:
    """Return the name in the certificate of somebody who may ask and command."""
    return f"operator.{fleet}.tolfl"


class Authority:
    """The folder of a fleet's authority; whoever has its key decides who belongs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._key = read_key(folder / KEY)
            self._certificate = read_certificate(folder / AUTHORITY)
        except OSError as error:
            problem = f"{Path(str(error.filename)).name}: {error.strerror}"
            raise EnrolmentError(f"{folder} holds no authority ({problem}); tolfl enroll init makes one") from None
        names = self._certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if not names or self._key.public_key() != self._certificate.public_key():
            raise EnrolmentError(f"{folder}: {KEY} is not the key of {AUTHORITY}; restore both from one backup")
        self.fleet = str(names[0].value)

    @classmethod
    def create(cls, folder: Path, fleet: str = "") -> Authority:
        """Make a new authority; an existing one is never overwritten."""
        if (folder / KEY).exists():
            raise EnrolmentError(f"{folder} holds an authority already; its devices trust it: choose another folder")
        fleet = fleet or f"fleet-{secrets.token_hex(4)}"
        _check_name(fleet, "fleet")
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(_named(fleet), key, 365 * _AUTHORITY_YEARS).sign(key, hashes.SHA256())
        _write(folder / AUTHORITY, certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(folder / KEY, key)
        authority = cls(folder)
        authority._sign_revocations(Revocations())
        return authority

    # -- certificates -------------------------------------------------------------------------------------------

    def issue(self, name: str, device: int | None, days: int = 365) -> Path:
        """Make a key and a certificate; return the folder to be copied to the device."""
        _check_name(name, "device")
        entries = self.entries()
        if name in entries:
            raise EnrolmentError(f"{name!r} is enrolled already; renew it, or choose another name")
        taken = [other for other, entry in entries.items() if entry.device == device and not entry.is_revoked]
        if device is not None and taken:
            raise EnrolmentError(f"device {device} is {taken[0]!r} already; revoke it first, or choose another id")
        return self._hand_out(name, device, days)

    def renew(self, name: str, days: int = 365) -> Path:
        """Make a new key and certificate for a device that is enrolled."""
        entry = self._entry(name)
        if entry.is_revoked:
            raise EnrolmentError(f"{name!r} was revoked; enrol the device under another name")
        return self._hand_out(name, entry.device, days)

    def revoke(self, name: str) -> None:
        """Take back a certificate: the fleet accepts it no more once it has the new list."""
        entries, entry = self.entries(), self._entry(name)
        if entry.device is None:
            raise EnrolmentError(f"{name!r} is an operator; its certificate ends on {entry.expires}, and not before")
        if entry.is_revoked:
            return
        entries[name] = Entry(entry.device, entry.generation, entry.expires, is_revoked=True)
        before = self.revocations()
        lowest = {**before.lowest, str(entry.device): entry.generation + 1}
        self._sign_revocations(Revocations(before.version + 1, lowest))
        self._keep(entries)

    def entries(self) -> dict[str, Entry]:
        """Return every certificate that was handed out, by name."""
        path = self.folder / _REGISTRY
        if not path.exists():
            return {}
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Entry])
        except (OSError, ValueError) as error:
            raise EnrolmentError(f"{path} cannot be read ({error}); restore it from a backup") from None

    def revocations(self) -> Revocations:
        """Return the list as it is now."""
        path = self.folder / REVOCATIONS
        try:
            return read_revocations(path.read_bytes(), self._certificate)
        except (OSError, EnrolmentError) as error:
            # Never begun anew: a list with a lower number would be ignored, one with fewer names would let them in.
            raise EnrolmentError(f"{path} cannot be used ({error}); restore it from a backup or a device") from None

    def folder_of(self, name: str) -> Path:
        """Return the folder that was made for a device."""
        return self.folder / "devices" / name

    def _entry(self, name: str) -> Entry:
        entries = self.entries()
        if name not in entries:
            known = ", ".join(sorted(entries)) or "nobody yet"
            raise EnrolmentError(f"{name!r} is not enrolled; enrolled are: {known}")
        return entries[name]

    def _hand_out(self, name: str, device: int | None, days: int) -> Path:
        generation = 1 if device is None else self.revocations().of(device)
        names = [operator_name(self.fleet)]
        if device is not None:
            names = [device_name(self.fleet, device, generation), any_device_name(self.fleet)]
        key = ec.generate_private_key(ec.SECP256R1())
        both_ends = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            _certificate(_named(name), key, days, self._certificate.subject)
            .add_extension(both_ends, critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        folder = self.folder_of(name)
        _write_key(folder / KEY, key)
        _write(folder / CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))
        _write(folder / AUTHORITY, self._certificate.public_bytes(serialization.Encoding.PEM))
        _write(folder / REVOCATIONS, (self.folder / REVOCATIONS).read_bytes())
        entries = self.entries()
        entries[name] = Entry(device, generation, certificate.not_valid_after_utc.date().isoformat())
        self._keep(entries)
        return folder

    def _keep(self, entries: dict[str, Entry]) -> None:
        _write(self.folder / _REGISTRY, msgspec.json.format(msgspec.json.encode(entries), indent=2))

    def _sign_revocations(self, revocations: Revocations) -> None:
        content = msgspec.json.encode(revocations)
        signature = self._key.sign(content, ec.ECDSA(hashes.SHA256()))
        signed = _Signed(content.decode(), signature.hex())
        _write(self.folder / REVOCATIONS, msgspec.json.encode(signed))


def read_revocations(content: bytes, authority: x509.Certificate) -> Revocations:
    """Return a list that the authority has signed; anything else is refused."""
    key = authority.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise EnrolmentError(f"{AUTHORITY} is not a fleet's; see tolfl enroll")
    try:
        signed = msgspec.json.decode(content, type=_Signed)
        key.verify(bytes.fromhex(signed.signature), signed.content.encode(), ec.ECDSA(hashes.SHA256()))
        return msgspec.json.decode(signed.content, type=Revocations)
    except (ValueError, RecursionError, InvalidSignature):
        raise EnrolmentError("a list of revocations that this fleet's authority has not signed") from None


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return a private key, which nobody but its owner may be able to read."""
    content = path.read_bytes()
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise EnrolmentError(f"others can read {path}; chmod 600 it")
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None  # what the library says of it may quote it
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise EnrolmentError(f"{path} is no private key that tolfl enroll made")
    return key


def read_certificate(path: Path) -> x509.Certificate:
    """Return a certificate of which everything can be read that is asked of it later."""
    content = path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", CryptographyDeprecationWarning)  # of what no certificate may have
            certificate = x509.load_pem_x509_certificate(content)
        key = certificate.public_key()
        _ = certificate.subject, certificate.extensions, certificate.not_valid_after_utc
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion, CryptographyDeprecationWarning, *_SPOILT_EXTENSIONS):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise EnrolmentError(f"{path} is no certificate that tolfl enroll made")
    return certificate


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, issuer: x509.Name | None = None
) -> x509.CertificateBuilder:
    """Return a certificate that is not signed yet: of an authority, which issues its own, where nobody else does."""
    is_authority, now = issuer is None, datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise EnrolmentRequestError(f"{what} name {name!r}; use small letters, digits and hyphens, up to 42 of them")


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file, never readable by more than it should be."""
    try:
        path.with_name(path.name + ".part").unlink(missing_ok=True)  # others may be able to read what was left there
        replace_file(path, content, mode)
    except OSError as error:
        raise EnrolmentError(f"{path} cannot be written ({error.strerror})") from None


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(path, pem, mode=0o600)
