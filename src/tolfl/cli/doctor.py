"""`tolfl doctor`: what on this machine will cause problems, and how to fix it. A check changes nothing."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.flags import Format
from tolfl.cli.output import console_for_tables, new_table, show_json
from tolfl.core.errors import TolFLError

if TYPE_CHECKING:
    from cryptography import x509

    from tolfl.net.node_config import NodeConfig
    from tolfl.net.tls import Credentials


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"  #: something that only some people need is not there
    WARNING = "warning"  #: it works, and may not for long, or not for everything
    PROBLEM = "problem"  #: something that was asked about does not work


class CheckResult(msgspec.Struct, frozen=True):
    """One line of doctor: what was checked, what was found, and how to fix it."""

    area: str
    name: str
    state: Level
    found: str
    todo: str = ""

    @property
    def sentence(self) -> str:
        """What was found and how to fix it, as one sentence."""
        return f"{self.found}; {self.todo}" if self.todo else self.found


_AREAS = ("versions", "device", "certificates", "ports", "clock", "limits", "data")
_COLOURS = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
_LOWEST_PYTHON = (3, 11, 4)
#: Groups of packages that are asked for by name, and what does not work without them.
_EXTRAS = {
    "tables": "reading CSV, Parquet and their like, figures and FederatedDetector",
    "study": "generated Bluetooth, spectrograms and statistics of experiments",
    "discovery": "finding devices in a local network",
    "dashboard": "tolfl dashboard",
    "export": "tolfl export",
    "ray": "tolfl reproduce --on ray",
    "torch": "a module of your own",
    "track": "--track",
}


_SOON = timedelta(days=30)
_DASHBOARD_PORT = 8350
_GIB = 2**30
DEVICE_BYTES = 0.1 * _GIB  #: of a process of `tolfl up`; on comms-ml its peak was 70 MiB
_UNSYNCHRONISED = 5  #: TIME_ERROR of adjtimex(2)
_TIMEX_BYTES = 512  #: more than the structure has anywhere


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A device's TOML file: is its port free, do its peers answer?")
    ] = None,
    fleet: Annotated[Path | None, typer.Option(help="The folder of a fleet's authority (tolfl enroll).")] = None,
    credentials: Annotated[
        Path | None, typer.Option(help="A folder with a key and a certificate (tolfl enroll).")
    ] = None,
    data_dir: flags.DataDir = None,
    out: Annotated[Path, typer.Option(help="Where runs are going to be written.")] = Path("runs"),
    format: flags.HowShown = Format.TABLE,
) -> None:
    """Check versions, ports, certificates, clock, limits and data; say what is wrong and what to do.

    A note is about something that only some people need. With a problem the exit code is 1. Nothing is changed.

    Example: tolfl doctor

    Example: tolfl doctor --config device.toml

    Example: tolfl doctor --fleet fleet --data-dir ~/data --format json
    """
    found = _examined(config, fleet, credentials, data_dir or "", out)
    findings = sorted(found, key=lambda finding: _AREAS.index(finding.area))
    if format is Format.JSON:
        show_json(findings)
    else:
        _show(findings)
    if any(finding.state is Level.PROBLEM for finding in findings):
        raise typer.Exit(1)


def _examined(
    config: Path | None, fleet: Path | None, credentials: Path | None, data_dir: str, out: Path
) -> Iterator[CheckResult]:
    yield from version_findings()
    yield from port_findings()
    if config is not None:
        yield from device_findings(config)
    if credentials is not None:
        yield from certificate_findings(credentials)
    if fleet is not None:
        yield from fleet_findings(fleet)
    yield from clock_findings()
    yield from limit_findings(out)
    yield from data_findings(data_dir)


def _show(findings: list[CheckResult]) -> None:
    from rich.text import Text

    console = console_for_tables()
    table = new_table("", "", "")
    table.show_header, table.columns[0].no_wrap = False, True
    area = ""
    for finding in findings:
        if finding.area != area:
            area = finding.area
            table.add_row(Text(area, style="bold"))
        table.add_row(Text(f"  {finding.state}", style=_COLOURS[finding.state]), finding.name, finding.sentence)
    console.print(table)
    counts = [(state, sum(finding.state is state for finding in findings)) for state in (Level.PROBLEM, Level.WARNING)]
    console.print(", ".join(f"{count} {state}{'s' * (count != 1)}" for state, count in counts))


# -- versions ---------------------------------------------------------------------------------------------------


def version_findings() -> Iterator[CheckResult]:
    """Look at what is installed."""
    yield _python()
    yield CheckResult("versions", "tolfl", Level.OK, f"{version('tolfl')}")
    yield _kernel()
    yield _packages()
    for extra, what in _EXTRAS.items():
        yield _extra(extra, what)


def _python() -> CheckResult:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < _LOWEST_PYTHON:
        return CheckResult("versions", "python", Level.PROBLEM, found, "tolfl needs 3.11.4 or newer")
    return CheckResult("versions", "python", Level.OK, found)


def _kernel() -> CheckResult:
    """Say which kernel trains and scores."""
    from tolfl.kernel import KernelError, chosen_kernel

    try:
        chosen = chosen_kernel()
    except KernelError as error:
        return CheckResult("versions", "kernel", Level.PROBLEM, error.problem, "install a C compiler, such as gcc")
    if chosen.problem:
        found = f"{chosen.kernel.name}, right but slow: {chosen.problem}"
        return CheckResult("versions", "kernel", Level.WARNING, found, "install a C compiler, such as gcc")
    return CheckResult("versions", "kernel", Level.OK, chosen.kernel.name)


def _packages() -> CheckResult:
    wrong = unmet("")
    if wrong:
        return CheckResult("versions", "packages", Level.PROBLEM, ", ".join(wrong), "run: pip install --upgrade tolfl")
    return CheckResult(
        "versions", "packages", Level.OK, "all that tolfl needs are installed, in versions that it knows"
    )


def _extra(extra: str, what: str) -> CheckResult:
    wrong, command = unmet(extra), f"pip install 'tolfl[{extra}]'"
    if not wrong:
        return CheckResult("versions", extra, Level.OK, f"installed: {what} works")
    if all(one.endswith("is not installed") for one in wrong):
        return CheckResult("versions", extra, Level.NOTE, f"{', '.join(wrong)}", f"for {what}, run: {command}")
    return CheckResult("versions", extra, Level.WARNING, f"{', '.join(wrong)}", f"for {what}, run: {command}")


def unmet(extra: str) -> list[str]:
    """Return what is wrong with the packages of an extra; of none: with those that everybody needs."""
    from packaging.requirements import Requirement

    wrong = []
    for line in requires("tolfl") or []:
        requirement = Requirement(line)
        if not _is_of(requirement.marker, extra):
            continue
        try:
            there = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(there, prereleases=True):
            wrong.append(f"{requirement.name} {there} is not {requirement.specifier}")
    return wrong


def _is_of(marker: object, extra: str) -> bool:
    from packaging.markers import Marker

    if not isinstance(marker, Marker):
        return not extra
    return marker.evaluate({"extra": extra}) and (not extra or not marker.evaluate({"extra": ""}))


# -- ports -------------------------------------------------------------------------------------------------------


def port_findings() -> Iterator[CheckResult]:
    """Look whether devices on this machine could listen at all."""
    problem = why_not_bound("127.0.0.1:0")
    if problem is not None:
        found = f"no port of 127.0.0.1 can be opened ({problem.strerror})"
        yield CheckResult("ports", "loopback", Level.PROBLEM, found, "see what forbids it: a sandbox or a firewall")
        return
    yield CheckResult("ports", "loopback", Level.OK, "ports of 127.0.0.1 can be opened")
    if why_not_bound(f"127.0.0.1:{_DASHBOARD_PORT}") is not None:
        todo = "show the dashboard elsewhere, with --port 0"
        yield CheckResult("ports", "dashboard", Level.WARNING, f"port {_DASHBOARD_PORT} is taken", todo)
    else:
        yield CheckResult("ports", "dashboard", Level.OK, f"port {_DASHBOARD_PORT} is free")


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


def device_findings(path: Path) -> Iterator[CheckResult]:
    """Look at a device's configuration and all that it names."""
    from tolfl.net.node_config import NodeConfig

    try:
        config = NodeConfig.from_file(path)
    except TolFLError as error:
        yield CheckResult("device", "configuration", Level.PROBLEM, str(error), "see docs/reference/network.md")
        return
    yield CheckResult("device", "configuration", Level.OK, f"device {config.device}, listens at {config.listen}")
    yield from _files(config)
    credentials = None
    if config.credentials:
        yield from certificate_findings(Path(config.credentials), config.device)
    try:
        from tolfl.net.prepare import credentials_of

        credentials = credentials_of(config)
    except TolFLError as error:
        if not config.credentials:  # else it was said above
            yield CheckResult("device", "credentials", Level.PROBLEM, str(error))
    yield from _listening(config, credentials)
    yield from _peers(config, credentials)


def _files(config: NodeConfig) -> Iterator[CheckResult]:
    from tolfl.core.spec import RunSpec
    from tolfl.net.prepare import check_networked

    try:
        spec = check_networked(RunSpec.from_file(Path(config.spec)))
    except TolFLError as error:
        yield CheckResult("device", "specification", Level.PROBLEM, str(error))
    else:
        found = f"{config.spec}: {spec.scheme}, {spec.devices} devices, {spec.rounds} rounds"
        if config.device >= spec.devices:
            todo = f"ids go from 0 to {spec.devices - 1}"
            yield CheckResult(
                "device", "specification", Level.PROBLEM, f"{found}; this is device {config.device}", todo
            )
        else:
            yield CheckResult("device", "specification", Level.OK, found)
    for name in ("data", "samples"):
        place = getattr(config, name)
        if place and not Path(place).exists():
            yield CheckResult("device", name, Level.PROBLEM, f"{place} is not there", f"name {name} that are")


def _listening(config: NodeConfig, credentials: Credentials | None) -> Iterator[CheckResult]:
    for name, address in (("listen", config.listen), ("metrics", config.metrics)):
        if not address:
            continue
        problem = why_not_bound(address)
        if problem is None:
            yield CheckResult("ports", name, Level.OK, f"{address} is free")
        elif problem.errno == errno.EADDRINUSE and name == "listen" and _answers(address, credentials):
            yield CheckResult("ports", name, Level.OK, f"a device of the fleet answers at {address}: it runs already")
        elif problem.errno == errno.EADDRINUSE:
            todo = "end the program that uses it, or choose another port"
            yield CheckResult("ports", name, Level.PROBLEM, f"{address} is taken", todo)
        else:
            found = f"nobody can listen at {address} ({problem.strerror})"
            yield CheckResult("ports", name, Level.PROBLEM, found, "use an address of this machine, or 0.0.0.0")


def _peers(config: NodeConfig, credentials: Credentials | None) -> Iterator[CheckResult]:
    from tolfl.net.addresses import is_listening

    named = [(f"peer {device}", address) for device, address in config.peers.items() if int(device) != config.device]
    for name, address in [*named, *(("seed", address) for address in config.seeds)]:
        if not is_listening(address):
            todo = "start it, or look at the network between; a run begins without it after a while"
            yield CheckResult("ports", name, Level.WARNING, f"nobody listens at {address}", todo)
        elif credentials is not None and not _answers(address, credentials):
            todo = "see that both have certificates of one fleet that are valid, and what its own doctor says"
            yield CheckResult(
                "ports", name, Level.PROBLEM, f"{address} is open, but no device of this fleet answers", todo
            )
        else:
            yield CheckResult("ports", name, Level.OK, f"{address} answers")


def _answers(address: str, credentials: Credentials | None) -> bool:
    from tolfl.net.client import ask_all

    return ask_all([address], credentials)[0].status is not None


# -- certificates ------------------------------------------------------------------------------------------------


def certificate_findings(folder: Path, device: int | None = None, now: datetime | None = None) -> Iterator[CheckResult]:
    """Look at the key and certificate of a device or an operator; `device`: whose they should be."""
    from tolfl.net.enrolment import AUTHORITY, CERTIFICATE, read_certificate
    from tolfl.net.tls import Credentials

    now, name = now or datetime.now(UTC), folder.name
    try:
        shown = Credentials(folder)
        certificate, authority = read_certificate(folder / CERTIFICATE), read_certificate(folder / AUTHORITY)
    except TolFLError as error:
        yield CheckResult("certificates", name, Level.PROBLEM, str(error))
        return
    identity = shown.identity
    who = "nobody" if identity is None else "an operator" if identity.is_operator else f"device {identity.device}"
    if device is not None and (identity is None or identity.device != device):
        todo = f"copy those of device {device} here (tolfl enroll list)"
        yield CheckResult("certificates", name, Level.PROBLEM, f"they are those of {who}, not of device {device}", todo)
    if shown.is_revoked(identity):
        todo = "enrol the device anew, under another name"
        yield CheckResult("certificates", name, Level.PROBLEM, f"{who} of {shown.fleet} was revoked", todo)
        return
    yield _dated(name, f"{who} of {shown.fleet}", certificate, f"run: tolfl enroll renew {name}", now)
    if authority.not_valid_after_utc - now < _SOON:
        yield _dated(f"{name}, authority", shown.fleet, authority, "make a new fleet", now)


def fleet_findings(folder: Path, now: datetime | None = None) -> Iterator[CheckResult]:
    """Look at the folder of a fleet's authority, and at every certificate that it handed out."""
    from tolfl.net.enrolment import AUTHORITY, Authority, read_certificate

    now = now or datetime.now(UTC)
    try:
        authority = Authority(folder)
        entries, certificate = authority.entries(), read_certificate(folder / AUTHORITY)
        authority.revocations()
    except TolFLError as error:
        yield CheckResult("certificates", "authority", Level.PROBLEM, str(error))
        return
    yield _dated("authority", f"fleet {authority.fleet}, {len(entries)} enrolled", certificate, "make a new fleet", now)
    for name, entry in entries.items():
        if entry.is_revoked:
            yield CheckResult("certificates", name, Level.OK, "revoked")
        elif authority.folder_of(name).is_dir():
            yield from certificate_findings(authority.folder_of(name), entry.device, now)
        else:  # moved to its device: the register still knows until when it is good
            ends = datetime.fromisoformat(entry.expires).replace(tzinfo=UTC)
            yield _until(name, "moved to its device", ends, f"run: tolfl enroll renew {name}", now)


def _dated(name: str, who: str, certificate: x509.Certificate, todo: str, now: datetime) -> CheckResult:
    begins = certificate.not_valid_before_utc
    if now < begins:
        found = f"{who}: good from {begins:%Y-%m-%d %H:%M} UTC on, and here it is {now:%Y-%m-%d %H:%M} UTC"
        return CheckResult("certificates", name, Level.PROBLEM, found, "set the clock of this machine")
    return _until(name, who, certificate.not_valid_after_utc, todo, now)


def _until(name: str, who: str, ends: datetime, todo: str, now: datetime) -> CheckResult:
    if ends < now:
        return CheckResult("certificates", name, Level.PROBLEM, f"{who}: ended on {ends:%Y-%m-%d}", todo)
    found = f"{who}: good until {ends:%Y-%m-%d}"
    if ends - now < _SOON:
        return CheckResult("certificates", name, Level.WARNING, f"{found}, {(ends - now).days} days", todo)
    return CheckResult("certificates", name, Level.OK, found)


# -- clock -------------------------------------------------------------------------------------------------------


def clock_findings() -> Iterator[CheckResult]:
    """Check the clock: certificates have dates."""
    yield CheckResult("clock", "time", Level.OK, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    yield from _synchronised()


def _synchronised() -> Iterator[CheckResult]:
    """Ask the kernel whether somebody keeps its clock right; say nothing where it cannot be asked."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return
    state = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))  # all zero: it only reads
    if state == _UNSYNCHRONISED:
        todo = "switch on NTP (timedatectl set-ntp true) on machines that use certificates"
        yield CheckResult("clock", "NTP", Level.NOTE, "nobody keeps the clock right, says the kernel", todo)
    elif state >= 0:
        yield CheckResult("clock", "NTP", Level.OK, "the clock is kept right, says the kernel")


# -- limits ------------------------------------------------------------------------------------------------------


def limit_findings(out: Path) -> Iterator[CheckResult]:
    """Look at what the machine gives, and whether the folders that are written to can be."""
    yield _open_files()
    yield _memory(free_memory())
    yield from _folder("out", out, "choose another --out")
    yield from _folder("tmp", Path(tempfile.gettempdir()), "name another with TMPDIR")
    from tolfl.datasets.public_sets import cache_dir

    yield from _folder("cache", cache_dir(), "name another with XDG_CACHE_HOME, or use --data-dir", is_needed=False)


def _open_files() -> CheckResult:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 1024:
        todo = f"run: ulimit -n {min(4096, hard) if hard > 0 else 4096}"
        return CheckResult("limits", "open files", Level.WARNING, f"{soft}, too few for a large fleet", todo)
    return CheckResult("limits", "open files", Level.OK, "no limit" if soft == resource.RLIM_INFINITY else f"{soft}")


def _memory(free: int | None) -> CheckResult:
    if free is None:
        return CheckResult("limits", "memory", Level.NOTE, "not known here", "a device of tolfl up takes about 0.1 GiB")
    found = f"{free / _GIB:.1f} GiB free, room for about {int(free / DEVICE_BYTES)} devices of tolfl up"
    if free < DEVICE_BYTES:
        return CheckResult("limits", "memory", Level.PROBLEM, found, "close other programs")
    if free < 3 * DEVICE_BYTES:
        return CheckResult("limits", "memory", Level.WARNING, found, "close other programs, or run fewer devices")
    return CheckResult("limits", "memory", Level.OK, found)


def free_memory() -> int | None:
    """Return the bytes that programs can still get, also inside a container; None: the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    try:
        group = Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no group of its own, or one without a limit ("max")
        return free
    return min(free, max(0, most - used))


def _folder(name: str, folder: Path, todo: str, is_needed: bool = True) -> Iterator[CheckResult]:
    """Try to write where a command would, below the first folder that is there; nothing stays."""
    place = folder.expanduser().absolute()
    bad = Level.PROBLEM if is_needed else Level.WARNING
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
        free = shutil.disk_usage(place).free
    except OSError as error:
        yield CheckResult("limits", name, bad, f"{folder} cannot be written ({error.strerror})", todo)
        return
    found = f"{folder} can be written, {free / _GIB:.1f} GiB free"
    if free < 0.1 * _GIB:
        yield CheckResult("limits", name, bad, found, f"make room, or {todo}")
    elif free < _GIB:
        yield CheckResult("limits", name, Level.WARNING, found, f"make room, or {todo}")
    else:
        yield CheckResult("limits", name, Level.OK, found)


# -- data -------------------------------------------------------------------------------------------------------


def data_findings(data_dir: str) -> Iterator[CheckResult]:
    """Look for every data set that `tolfl data list` names."""
    from tolfl.core.errors import DataError
    from tolfl.datasets import DATASETS
    from tolfl.datasets.public_sets import PUBLIC_SETS, find

    for name, text in (("--data-dir", data_dir), ("TOLFL_DATA", os.environ.get("TOLFL_DATA", ""))):
        if text and not Path(text).expanduser().is_dir():
            yield CheckResult("data", name, Level.PROBLEM, f"{text} is no folder", "name one that is there, or make it")
            data_dir = "" if name == "--data-dir" else data_dir
    generated = [name for name in DATASETS if name not in PUBLIC_SETS]
    yield CheckResult("data", "generated", Level.OK, f"{', '.join(generated)}: made on this machine when asked for")
    for name, known in PUBLIC_SETS.items():
        try:
            yield CheckResult("data", name, Level.OK, f"in {find(name, data_dir)}")
        except DataError:
            fetch = f"download it from {known.by_hand}" if known.by_hand else f"run: tolfl data get {name}"
            yield CheckResult("data", name, Level.NOTE, "not here", f"if you want it, {fetch}")
