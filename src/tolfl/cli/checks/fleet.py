"""A fleet: the authority's folder, a device's certificate, its port, and whether its peers answer."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tolfl.cli.checks.finding import Finding, State
from tolfl.core.errors import TolFLError

if TYPE_CHECKING:
    from cryptography import x509

    from tolfl.net.node_config import NodeConfig
    from tolfl.net.tls import Credentials

_SOON = timedelta(days=30)
_DASHBOARD_PORT = 8350


# -- ports -------------------------------------------------------------------------------------------------------


def port_findings() -> Iterator[Finding]:
    """Look whether devices on this machine could listen at all."""
    problem = why_not_bound("127.0.0.1:0")
    if problem is not None:
        found = f"no port of 127.0.0.1 can be opened ({problem.strerror})"
        yield Finding("ports", "loopback", State.PROBLEM, found, "see what forbids it: a sandbox or a firewall")
        return
    yield Finding("ports", "loopback", State.OK, "ports of 127.0.0.1 can be opened")
    if why_not_bound(f"127.0.0.1:{_DASHBOARD_PORT}") is not None:
        todo = "show the dashboard elsewhere, with --port 0"
        yield Finding("ports", "dashboard", State.WARNING, f"port {_DASHBOARD_PORT} is taken", todo)
    else:
        yield Finding("ports", "dashboard", State.OK, f"port {_DASHBOARD_PORT} is free")


def why_not_bound(address: str) -> OSError | None:
    """Return why nobody can listen at an address at the moment; None: one can."""
    from tolfl.net.addresses import split_address

    try:
        family, kind, protocol, _, place = socket.getaddrinfo(*split_address(address), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a device does
            one.bind(place)
    except OSError as error:
        return error
    return None


def device_findings(path: Path) -> Iterator[Finding]:
    """Look at a device's configuration and all that it names."""
    from tolfl.net.node_config import NodeConfig

    try:
        config = NodeConfig.from_file(path)
    except TolFLError as error:
        yield Finding("device", "configuration", State.PROBLEM, str(error), "see docs/reference/network.md")
        return
    yield Finding("device", "configuration", State.OK, f"device {config.device}, listens at {config.listen}")
    yield from _files(config)
    credentials = None
    if config.credentials:
        yield from certificate_findings(Path(config.credentials), config.device)
    try:
        from tolfl.net.prepare import credentials_of

        credentials = credentials_of(config)
    except TolFLError as error:
        if not config.credentials:  # else it was said above
            yield Finding("device", "credentials", State.PROBLEM, str(error))
    yield from _listening(config, credentials)
    yield from _peers(config, credentials)


def _files(config: NodeConfig) -> Iterator[Finding]:
    from tolfl.core.spec import RunSpec
    from tolfl.net.prepare import check_networked

    try:
        spec = check_networked(RunSpec.from_file(Path(config.spec)))
    except TolFLError as error:
        yield Finding("device", "specification", State.PROBLEM, str(error))
    else:
        found = f"{config.spec}: {spec.scheme}, {spec.devices} devices, {spec.rounds} rounds"
        if config.device >= spec.devices:
            todo = f"ids go from 0 to {spec.devices - 1}"
            yield Finding("device", "specification", State.PROBLEM, f"{found}; this is device {config.device}", todo)
        else:
            yield Finding("device", "specification", State.OK, found)
    for name in ("data", "samples"):
        place = getattr(config, name)
        if place and not Path(place).exists():
            yield Finding("device", name, State.PROBLEM, f"{place} is not there", f"name {name} that are")


def _listening(config: NodeConfig, credentials: Credentials | None) -> Iterator[Finding]:
    for name, address in (("listen", config.listen), ("metrics", config.metrics)):
        if not address:
            continue
        problem = why_not_bound(address)
        if problem is None:
            yield Finding("ports", name, State.OK, f"{address} is free")
        elif problem.errno == errno.EADDRINUSE and name == "listen" and _answers(address, credentials):
            yield Finding("ports", name, State.OK, f"a device of the fleet answers at {address}: it runs already")
        elif problem.errno == errno.EADDRINUSE:
            todo = "end the program that uses it, or choose another port"
            yield Finding("ports", name, State.PROBLEM, f"{address} is taken", todo)
        else:
            found = f"nobody can listen at {address} ({problem.strerror})"
            yield Finding("ports", name, State.PROBLEM, found, "use an address of this machine, or 0.0.0.0")


def _peers(config: NodeConfig, credentials: Credentials | None) -> Iterator[Finding]:
    from tolfl.net.addresses import is_listening

    named = [(f"peer {device}", address) for device, address in config.peers.items() if int(device) != config.device]
    for name, address in [*named, *(("seed", address) for address in config.seeds)]:
        if not is_listening(address):
            todo = "start it, or look at the network between; a run begins without it after a while"
            yield Finding("ports", name, State.WARNING, f"nobody listens at {address}", todo)
        elif credentials is not None and not _answers(address, credentials):
            todo = "see that both have certificates of one fleet that are valid, and what its own doctor says"
            yield Finding("ports", name, State.PROBLEM, f"{address} is open, but no device of this fleet answers", todo)
        else:
            yield Finding("ports", name, State.OK, f"{address} answers")


def _answers(address: str, credentials: Credentials | None) -> bool:
    from tolfl.net.client import ask_all

    return ask_all([address], credentials)[0].status is not None


# -- certificates ------------------------------------------------------------------------------------------------


def certificate_findings(folder: Path, device: int | None = None, now: datetime | None = None) -> Iterator[Finding]:
    """Look at the key and certificate of a device or an operator; `device`: whose they should be."""
    from tolfl.net.enrolment import AUTHORITY, CERTIFICATE, read_certificate
    from tolfl.net.tls import Credentials

    now, name = now or datetime.now(UTC), folder.name
    try:
        shown = Credentials(folder)
        certificate, authority = read_certificate(folder / CERTIFICATE), read_certificate(folder / AUTHORITY)
    except TolFLError as error:
        yield Finding("certificates", name, State.PROBLEM, str(error))
        return
    identity = shown.identity
    who = "nobody" if identity is None else "an operator" if identity.is_operator else f"device {identity.device}"
    if device is not None and (identity is None or identity.device != device):
        todo = f"copy those of device {device} here (tolfl enroll list)"
        yield Finding("certificates", name, State.PROBLEM, f"they are those of {who}, not of device {device}", todo)
    if shown.is_revoked(identity):
        todo = "enrol the device anew, under another name"
        yield Finding("certificates", name, State.PROBLEM, f"{who} of {shown.fleet} was revoked", todo)
        return
    yield _dated(name, f"{who} of {shown.fleet}", certificate, f"run: tolfl enroll renew {name}", now)
    if authority.not_valid_after_utc - now < _SOON:
        yield _dated(f"{name}, authority", shown.fleet, authority, "make a new fleet", now)


def fleet_findings(folder: Path, now: datetime | None = None) -> Iterator[Finding]:
    """Look at the folder of a fleet's authority, and at every certificate that it handed out."""
    from tolfl.net.enrolment import AUTHORITY, Authority, read_certificate

    now = now or datetime.now(UTC)
    try:
        authority = Authority(folder)
        entries, certificate = authority.entries(), read_certificate(folder / AUTHORITY)
        authority.revocations()
    except TolFLError as error:
        yield Finding("certificates", "authority", State.PROBLEM, str(error))
        return
    yield _dated("authority", f"fleet {authority.fleet}, {len(entries)} enrolled", certificate, "make a new fleet", now)
    for name, entry in entries.items():
        if entry.is_revoked:
            yield Finding("certificates", name, State.OK, "revoked")
        elif authority.folder_of(name).is_dir():
            yield from certificate_findings(authority.folder_of(name), entry.device, now)
        else:  # moved to its device: the register still knows until when it is good
            ends = datetime.fromisoformat(entry.expires).replace(tzinfo=UTC)
            yield _until(name, "moved to its device", ends, f"run: tolfl enroll renew {name}", now)


def _dated(name: str, who: str, certificate: x509.Certificate, todo: str, now: datetime) -> Finding:
    begins = certificate.not_valid_before_utc
    if now < begins:
        found = f"{who}: good from {begins:%Y-%m-%d %H:%M} UTC on, and here it is {now:%Y-%m-%d %H:%M} UTC"
        return Finding("certificates", name, State.PROBLEM, found, "set the clock of this machine")
    return _until(name, who, certificate.not_valid_after_utc, todo, now)


def _until(name: str, who: str, ends: datetime, todo: str, now: datetime) -> Finding:
    if ends < now:
        return Finding("certificates", name, State.PROBLEM, f"{who}: ended on {ends:%Y-%m-%d}", todo)
    found = f"{who}: good until {ends:%Y-%m-%d}"
    if ends - now < _SOON:
        return Finding("certificates", name, State.WARNING, f"{found}, {(ends - now).days} days", todo)
    return Finding("certificates", name, State.OK, found)
