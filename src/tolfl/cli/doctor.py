"""`tolfl doctor`: what on this machine will cause problems, and how to fix it. A check changes nothing."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tolfl.cli import flags
from tolfl.cli.output import show, table_of
from tolfl.core.errors import EXTRAS, DataError, RunDirectoryError, TolFLError

if TYPE_CHECKING:
    from rich.text import Text

    from tolfl.cli.output import Line
    from tolfl.net.node_config import NodeConfig
    from tolfl.net.tls import Credentials


class Level(StrEnum):
    """Severity of a result."""

    OK = "ok"
    NOTE = "note"  #: something optional is missing
    WARNING = "warning"  #: it works, with a limit or an expiry
    PROBLEM = "problem"  #: something that was checked does not work


class CheckResult(NamedTuple):
    """One line of doctor: what was checked, what was found, and how to fix it."""

    name: str
    state: Level
    found: str
    todo: str = ""

    @property
    def sentence(self) -> str:
        """What was found and how to fix it, as one sentence."""
        return f"{self.found}; {self.todo}" if self.todo else self.found


Checks = Iterator[CheckResult]
OK, NOTE, WARNING, PROBLEM = Level
_COLOURS = {OK: "green", NOTE: "cyan", WARNING: "yellow", PROBLEM: "bold red"}
_SOON = timedelta(days=30)
_DASHBOARD = "127.0.0.1:8350"
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
    format: flags.HowShown = "table",
) -> None:
    """Check versions, ports, certificates, clock, limits and data; print each problem with its fix.

    A note is about something optional. With a problem the exit code is 1. Nothing is changed.

    Example: tolfl doctor

    Example: tolfl doctor --config device.toml

    Example: tolfl doctor --fleet fleet --data-dir ~/data --format json
    """
    areas = {
        "versions": [*check_versions()],
        "device": [],
        "certificates": [] if credentials is None else [*check_certificate(credentials)],
        "ports": [*check_ports()],
        "clock": [*check_clock()],
        "limits": [*check_limits(out)],
        "data": [*check_data(data_dir or "")],
    }
    if config is not None:
        for area, result in check_device(config):
            areas[area].append(result)
    if fleet is not None:
        areas["certificates"] += check_fleet(fleet)
    found = [{"area": area, **one._asdict()} for area, results in areas.items() for one in results]
    show(found, format, _lines_of(areas))
    if any(one["state"] is PROBLEM for one in found):
        raise typer.Exit(1)


def _lines_of(areas: dict[str, list[CheckResult]]) -> Iterator[Line]:
    from rich.text import Text

    rows: list[tuple[str | Text, ...]] = []
    for area, results in areas.items():
        rows += [(Text(area, style="bold"),)] * bool(results)
        rows += [(Text(f"  {one.state}", style=_COLOURS[one.state]), one.name, one.sentence) for one in results]
    yield table_of(["", "", ""], rows, whole=0)
    states = [one.state for results in areas.values() for one in results]
    counts = [(state, states.count(state)) for state in (PROBLEM, WARNING)]
    yield ", ".join(f"{count} {state}{'s' * (count != 1)}" for state, count in counts)


# -- versions ---------------------------------------------------------------------------------------------------


def check_versions() -> Checks:
    """Check the installed packages."""
    from tolfl.kernel import KernelError, chosen_kernel

    yield CheckResult("python", OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield CheckResult("tolfl", OK, version("tolfl"))
    try:
        chosen = chosen_kernel()
        slow = f", right but slow: {chosen.problem}" if chosen.problem else ""
        state, found = WARNING if slow else OK, f"{chosen.kernel.name}{slow}"
    except KernelError as error:
        state, found = PROBLEM, error.problem
    what, _, fix = found.rpartition("; ") if state is not OK else (found, "", "")
    yield CheckResult("kernel", state, what, fix)
    if wrong := unmet(""):
        yield CheckResult("packages", PROBLEM, ", ".join(wrong), "run: pip install --upgrade tolfl")
    else:
        yield CheckResult("packages", OK, "all that tolfl needs are installed, in versions that it knows")
    for extra in dict.fromkeys(extra for extra, _ in EXTRAS.values()):
        what = ", ".join(dict.fromkeys(what for one, what in EXTRAS.values() if one == extra))
        if wrong := unmet(extra):
            state = NOTE if all(one.endswith("is not installed") for one in wrong) else WARNING
            yield CheckResult(extra, state, ", ".join(wrong), f"for {what}, run: pip install 'tolfl[{extra}]'")
        else:
            yield CheckResult(extra, OK, f"installed, for {what}")


def unmet(extra: str) -> list[str]:
    """Return what is wrong with the packages of an extra; without one: with those that are always needed."""
    from packaging.requirements import Requirement

    wrong = []
    for requirement in map(Requirement, requires("tolfl") or []):
        marker = requirement.marker
        if {group for group in ("", extra) if marker is None or marker.evaluate({"extra": group})} != {extra}:
            continue
        try:
            there = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(there, prereleases=True):
            wrong.append(f"{requirement.name} {there} is not {requirement.specifier}")
    return wrong


# -- ports -------------------------------------------------------------------------------------------------------


def check_ports() -> Checks:
    """Check whether devices on this machine can listen."""
    if problem := why_not_bound("127.0.0.1:0"):
        found = f"no port of 127.0.0.1 can be opened ({problem.strerror})"
        yield CheckResult("loopback", PROBLEM, found, "check what forbids it: a sandbox or a firewall")
        return
    yield CheckResult("loopback", OK, "ports of 127.0.0.1 can be opened")
    port = _DASHBOARD.partition(":")[2]
    if why_not_bound(_DASHBOARD):
        yield CheckResult("dashboard", WARNING, f"port {port} is taken", "show the dashboard elsewhere, with --port 0")
    else:
        yield CheckResult("dashboard", OK, f"port {port} is free")


def why_not_bound(address: str) -> OSError | None:
    """Return why an address cannot be listened on at the moment; None: it can."""
    from tolfl.net.addresses import split_address

    try:
        family, kind, protocol, _, place = socket.getaddrinfo(*split_address(address), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a device does
            one.bind(place)
    except OSError as error:
        return error
    return None


# -- a device and what its configuration names --------------------------------------------------------------------


def check_device(path: Path) -> Iterator[tuple[str, CheckResult]]:
    """Check a device's configuration and all files that it names; yield areas and results."""
    from tolfl.net.node_config import NodeConfig
    from tolfl.net.prepare import credentials_of

    try:
        config = NodeConfig.from_file(path)
    except TolFLError as error:
        yield "device", CheckResult("configuration", PROBLEM, str(error), "see docs/reference/network.md")
        return
    yield "device", CheckResult("configuration", OK, f"device {config.device}, listens at {config.listen}")
    yield "device", _specification(config)
    for name, place in (("data", config.data), ("samples", config.samples)):
        if place and not Path(place).exists():
            yield "device", CheckResult(name, PROBLEM, f"{place} is not there", f"name {name} that are")
    credentials = None
    try:
        credentials = credentials_of(config)
    except TolFLError as error:
        if not config.credentials:  # else the check of the certificate reports it
            yield "device", CheckResult("credentials", PROBLEM, str(error))
    for result in check_certificate(Path(config.credentials), config.device) if config.credentials else ():
        yield "certificates", result
    for name, address in (("listen", config.listen), ("metrics", config.metrics)):
        if address:
            yield "ports", _listening(name, address, credentials)
    named = [(f"peer {device}", address) for device, address in config.peers.items() if int(device) != config.device]
    for name, address in [*named, *(("seed", address) for address in config.seeds)]:
        yield "ports", _peer(name, address, credentials)


def _specification(config: NodeConfig) -> CheckResult:
    from tolfl.core.spec import RunSpec
    from tolfl.net.prepare import check_networked

    try:
        spec = check_networked(RunSpec.from_file(Path(config.spec)))
    except TolFLError as error:
        return CheckResult("specification", PROBLEM, str(error))
    found = f"{config.spec}: {spec.scheme}, {spec.devices} devices, {spec.rounds} rounds"
    if config.device < spec.devices:
        return CheckResult("specification", OK, found)
    todo = f"ids go from 0 to {spec.devices - 1}"
    return CheckResult("specification", PROBLEM, f"{found}; this is device {config.device}", todo)


def _listening(name: str, address: str, credentials: Credentials | None) -> CheckResult:
    problem = why_not_bound(address)
    if problem is None:
        return CheckResult(name, OK, f"{address} is free")
    if problem.errno != errno.EADDRINUSE:
        found = f"cannot listen on {address} ({problem.strerror})"
        return CheckResult(name, PROBLEM, found, "use an address of this machine, or 0.0.0.0")
    if name == "listen" and _answers(address, credentials):
        return CheckResult(name, OK, f"a device of the fleet answers at {address}: it is running already")
    todo = "end the program that uses it, or choose another port"
    return CheckResult(name, PROBLEM, f"{address} is taken", todo)


def _peer(name: str, address: str, credentials: Credentials | None) -> CheckResult:
    from tolfl.net.addresses import is_listening

    if not is_listening(address):
        todo = "start it, or check the network between; a run begins without it after a while"
        return CheckResult(name, WARNING, f"no process listens on {address}", todo)
    if credentials is not None and not _answers(address, credentials):
        todo = "check that both have valid certificates of one fleet, and run doctor there"
        return CheckResult(name, PROBLEM, f"{address} is open, but no device of this fleet answers", todo)
    return CheckResult(name, OK, f"{address} answers")


def _answers(address: str, credentials: Credentials | None) -> bool:
    from tolfl.net.client import ask_all

    return ask_all([address], credentials)[0].status is not None


# -- certificates ------------------------------------------------------------------------------------------------


def check_certificate(folder: Path, device: int | None = None, now: datetime | None = None) -> Checks:
    """Check the key and certificate of a device or an operator; `device`: whose they should be."""
    from tolfl.net.enrolment import AUTHORITY, CERTIFICATE, read_certificate
    from tolfl.net.tls import Credentials

    now, name = now or datetime.now(UTC), folder.name
    try:
        shown = Credentials(folder)
        certificate, authority = read_certificate(folder / CERTIFICATE), read_certificate(folder / AUTHORITY)
    except TolFLError as error:
        yield CheckResult(name, PROBLEM, str(error))
        return
    identity = shown.identity
    who = "nobody" if identity is None else "an operator" if identity.is_operator else f"device {identity.device}"
    if device is not None and (identity is None or identity.device != device):
        todo = f"copy those of device {device} here (tolfl enroll list)"
        yield CheckResult(name, PROBLEM, f"they are those of {who}, not of device {device}", todo)
    begins, who = certificate.not_valid_before_utc, f"{who} of {shown.fleet}"
    if shown.is_revoked(identity):
        yield CheckResult(name, PROBLEM, f"{who} was revoked", "enrol the device anew, under another name")
    elif now < begins:
        found = f"{who}: valid from {begins:%Y-%m-%d %H:%M} UTC on, this clock shows {now:%Y-%m-%d %H:%M} UTC"
        yield CheckResult(name, PROBLEM, found, "set the clock of this machine")
    else:
        yield _until(name, who, certificate.not_valid_after_utc, f"run: tolfl enroll renew {name}", now)
        if authority.not_valid_after_utc - now < _SOON:
            yield _until(f"{name}, authority", shown.fleet, authority.not_valid_after_utc, "make a new fleet", now)


def check_fleet(folder: Path, now: datetime | None = None) -> Checks:
    """Check the folder of a fleet's authority, and every certificate that it issued."""
    from tolfl.net.enrolment import AUTHORITY, Authority, read_certificate

    now = now or datetime.now(UTC)
    try:
        authority = Authority(folder)
        entries, ends = authority.entries(), read_certificate(folder / AUTHORITY).not_valid_after_utc
        authority.revocations()
    except TolFLError as error:
        yield CheckResult("authority", PROBLEM, str(error))
        return
    yield _until("authority", f"fleet {authority.fleet}, {len(entries)} enrolled", ends, "make a new fleet", now)
    for name, entry in entries.items():
        if entry.is_revoked:
            yield CheckResult(name, OK, "revoked")
        elif authority.folder_of(name).is_dir():
            yield from check_certificate(authority.folder_of(name), entry.device, now)
        else:  # moved to its device: the register still has its expiry
            ends = datetime.fromisoformat(entry.expires).replace(tzinfo=UTC)
            yield _until(name, "moved to its device", ends, f"run: tolfl enroll renew {name}", now)


def _until(name: str, who: str, ends: datetime, todo: str, now: datetime) -> CheckResult:
    if ends < now:
        return CheckResult(name, PROBLEM, f"{who}: ended on {ends:%Y-%m-%d}", todo)
    found = f"{who}: good until {ends:%Y-%m-%d}"
    if ends - now < _SOON:
        return CheckResult(name, WARNING, f"{found}, {(ends - now).days} days", todo)
    return CheckResult(name, OK, found)


# -- clock, limits, data -----------------------------------------------------------------------------------------


def check_clock() -> Checks:
    """Check the clock: certificates have dates. Return nothing where the kernel has no status of it."""
    yield CheckResult("time", OK, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    state = -1 if adjtimex is None else adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))  # all zero: it only reads
    if state == _UNSYNCHRONISED:
        todo = "switch on NTP (timedatectl set-ntp true) on machines that use certificates"
        yield CheckResult("NTP", NOTE, "the clock is not synchronised, by the kernel's status", todo)
    elif state >= 0:
        yield CheckResult("NTP", OK, "the clock is synchronised, by the kernel's status")


def check_limits(out: Path) -> Checks:
    """Check the machine's limits, and whether the folders of results can be written."""
    from tolfl.datasets.public_sets import cache_dir

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 1024:
        todo = f"run: ulimit -n {min(4096, hard) if hard > 0 else 4096}"
        yield CheckResult("open files", WARNING, f"{soft}, too few for a large fleet", todo)
    else:
        yield CheckResult("open files", OK, "no limit" if soft == resource.RLIM_INFINITY else f"{soft}")
    if (free := free_memory()) is None:
        yield CheckResult("memory", NOTE, "not known here", "a device of tolfl up takes about 0.1 GiB")
    else:
        found = f"{free / _GIB:.1f} GiB free, room for about {int(free / DEVICE_BYTES)} devices of tolfl up"
        state = PROBLEM if free < DEVICE_BYTES else WARNING if free < 3 * DEVICE_BYTES else OK
        yield CheckResult("memory", state, found, "" if state is OK else "close other programs, or run fewer devices")
    from tempfile import gettempdir

    yield _folder("out", out, "choose another --out")
    yield _folder("tmp", Path(gettempdir()), "name another with TMPDIR")
    yield _folder("cache", cache_dir(), "name another with XDG_CACHE_HOME, or use --data-dir", bad=WARNING)


def free_memory() -> int | None:
    """Return the bytes of available memory, also inside a container; None: not known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    try:
        group = Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no control group of its own, or one without a limit ("max")
        return free
    return min(free, max(0, most - used))


def _folder(name: str, folder: Path, todo: str, bad: Level = PROBLEM) -> CheckResult:
    """Try to write where a command would, below the first existing folder; nothing is left behind."""
    try:
        free = flags.free_bytes(folder)
    except RunDirectoryError as error:
        return CheckResult(name, bad, f"{folder} {error.problem.partition(';')[0]}", todo)
    found = f"{folder} can be written, {free / _GIB:.1f} GiB free"
    if free >= _GIB:
        return CheckResult(name, OK, found)
    return CheckResult(name, bad if free < 0.1 * _GIB else WARNING, found, f"make room, or {todo}")


def check_data(data_dir: str) -> Checks:
    """Check for every data set that `tolfl data list` names."""
    from tolfl.datasets import DATASETS
    from tolfl.datasets.public_sets import PUBLIC_SETS, find

    for name, text in (("--data-dir", data_dir), ("TOLFL_DATA", os.environ.get("TOLFL_DATA", ""))):
        if text and not Path(text).expanduser().is_dir():
            yield CheckResult(name, PROBLEM, f"{text} is no folder", "name one that is there, or make it")
            data_dir = "" if name == "--data-dir" else data_dir
    generated = [name for name in DATASETS if name not in PUBLIC_SETS]
    yield CheckResult("generated", OK, f"{', '.join(generated)}: made on this machine when asked for")
    for name, known in PUBLIC_SETS.items():
        try:
            yield CheckResult(name, OK, f"in {find(name, data_dir)}")
        except DataError:
            fetch = f"download it from {known.by_hand}" if known.by_hand else f"run: tolfl data get {name}"
            yield CheckResult(name, NOTE, "not here", f"if you want it, {fetch}")
