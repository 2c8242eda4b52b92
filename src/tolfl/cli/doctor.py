"""`tolfl doctor`: what on this machine will cause problems, and how to fix it. A check changes nothing."""

from __future__ import annotations

import errno
import os
import platform
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tolfl.cli import flags
from tolfl.cli.output import show, table_of
from tolfl.core.errors import EXTRAS, DataError, RunDirectoryError, TolFLError

if TYPE_CHECKING:
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

    area: str
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
_GIB = 2**30
DEVICE_BYTES = 0.1 * _GIB  #: of a process of `tolfl up`; on comms-ml its peak was 70 MiB


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A device's TOML file: is its port free, do its peers answer?")
    ] = None,
    fleet: Annotated[Path | None, typer.Option(help="The folder of a fleet's authority (tolfl enroll).")] = None,
    data_dir: flags.DataDir = None,
    out: Annotated[Path, typer.Option(help="Where runs are going to be written.")] = Path("runs"),
    format: flags.HowShown = "table",
) -> None:
    """Check versions, a device's files, ports and certificates, memory, disk and data; print each problem with its fix.

    A note is about something optional. With a problem the exit code is 1. Nothing is changed.

    Example: tolfl doctor

    Example: tolfl doctor --config device.toml

    Example: tolfl doctor --fleet fleet --data-dir ~/data --format json
    """
    checks = [check_versions(), check_machine(out), check_data(data_dir or "")]
    checks += [] if config is None else [check_device(config)]
    checks += [] if fleet is None else [check_fleet(fleet)]
    found = list(chain.from_iterable(checks))
    show([one._asdict() for one in found], format, _lines_of(found))
    if any(one.state is PROBLEM for one in found):
        raise typer.Exit(1)


def _lines_of(found: list[CheckResult]) -> Iterator[Line]:
    from rich.text import Text

    rows = ((Text(one.state, style=_COLOURS[one.state]), one.area, one.name, one.sentence) for one in found)
    yield table_of(["", "", "", ""], rows, whole=0)
    states = [one.state for one in found]
    counts = [(state, states.count(state)) for state in (PROBLEM, WARNING)]
    yield ", ".join(f"{count} {state}{'s' * (count != 1)}" for state, count in counts)


# -- versions ---------------------------------------------------------------------------------------------------


def check_versions() -> Checks:
    """Check the installed packages."""
    from tolfl.kernel import KernelError, chosen_kernel

    yield CheckResult(
        "versions", "python", OK, f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    yield CheckResult("versions", "tolfl", OK, version("tolfl"))
    try:
        chosen = chosen_kernel()
        slow = f", right but slow: {chosen.problem}" if chosen.problem else ""
        yield CheckResult("versions", "kernel", WARNING if slow else OK, f"{chosen.kernel.name}{slow}")
    except KernelError as error:
        yield CheckResult("versions", "kernel", PROBLEM, error.problem)
    for extra in dict.fromkeys(extra for extra, _ in EXTRAS.values()):
        names = [name for name, (of, _) in EXTRAS.items() if of == extra]
        what = ", ".join(dict.fromkeys(EXTRAS[name][1] for name in names))
        if missing := ", ".join(name for name in names if find_spec(name) is None):
            fix = f"for {what}, run: pip install 'tolfl[{extra}]'"
            yield CheckResult("versions", extra, NOTE, f"without {missing}", fix)
        else:
            yield CheckResult("versions", extra, OK, f"installed, for {what}")


# -- a device and what its configuration names ------------------------------------------------------------------


def check_device(path: Path) -> Checks:
    """Check a device's configuration and all files, addresses and certificates that it names."""
    from tolfl.net.node_config import NodeConfig
    from tolfl.net.prepare import credentials_of

    try:
        config = NodeConfig.from_file(path)
    except TolFLError as error:
        yield CheckResult("device", "configuration", PROBLEM, str(error), "see docs/reference/network.md")
        return
    yield CheckResult("device", "configuration", OK, f"device {config.device}, listens at {config.listen}")
    yield _specification(config)
    for name, place in (("data", config.data), ("samples", config.samples)):
        if place and not Path(place).exists():
            yield CheckResult("device", name, PROBLEM, f"{place} is not there", f"name {name} that are")
    credentials = None
    try:
        credentials = credentials_of(config)
    except TolFLError as error:
        if not config.credentials:  # else the check of the certificate reports it
            yield CheckResult("device", "credentials", PROBLEM, str(error))
    yield from check_certificate(Path(config.credentials), config.device) if config.credentials else ()
    for name, address in (("listen", config.listen), ("metrics", config.metrics)):
        if address:
            yield _listening(name, address, credentials)
    named = [(f"peer {device}", address) for device, address in config.peers.items() if int(device) != config.device]
    for name, address in [*named, *(("seed", address) for address in config.seeds)]:
        yield _peer(name, address, credentials)


def _specification(config: NodeConfig) -> CheckResult:
    from tolfl.core.spec import RunSpec
    from tolfl.net.prepare import check_networked

    try:
        spec = check_networked(RunSpec.from_file(Path(config.spec)))
    except TolFLError as error:
        return CheckResult("device", "specification", PROBLEM, str(error))
    found = f"{config.spec}: {spec.scheme}, {spec.devices} devices, {spec.rounds} rounds"
    if config.device < spec.devices:
        return CheckResult("device", "specification", OK, found)
    todo = f"ids go from 0 to {spec.devices - 1}"
    return CheckResult("device", "specification", PROBLEM, f"{found}; this is device {config.device}", todo)


def _listening(name: str, address: str, credentials: Credentials | None) -> CheckResult:
    problem = why_not_bound(address)
    if problem is None:
        return CheckResult("ports", name, OK, f"{address} is free")
    if problem.errno != errno.EADDRINUSE:
        found = f"cannot listen on {address} ({problem.strerror})"
        return CheckResult("ports", name, PROBLEM, found, "use an address of this machine, or 0.0.0.0")
    if name == "listen" and _answers(address, credentials):
        return CheckResult("ports", name, OK, f"a device of the fleet answers at {address}: it is running already")
    todo = "end the program that uses it, or choose another port"
    return CheckResult("ports", name, PROBLEM, f"{address} is taken", todo)


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


def _peer(name: str, address: str, credentials: Credentials | None) -> CheckResult:
    from tolfl.net.addresses import is_listening

    if not is_listening(address):
        todo = "start it, or check the network between; a run begins without it after a while"
        return CheckResult("ports", name, WARNING, f"no process listens on {address}", todo)
    if credentials is not None and not _answers(address, credentials):
        todo = "check that both have valid certificates of one fleet, and run doctor there"
        return CheckResult("ports", name, PROBLEM, f"{address} is open, but no device of this fleet answers", todo)
    return CheckResult("ports", name, OK, f"{address} answers")


def _answers(address: str, credentials: Credentials | None) -> bool:
    from tolfl.net.client import ask_all

    return ask_all([address], credentials)[0].status is not None


# -- certificates -----------------------------------------------------------------------------------------------


def check_certificate(folder: Path, device: int | None = None, now: datetime | None = None) -> Checks:
    """Check the key and certificate of a device or an operator; `device`: whose they should be."""
    from tolfl.net.enrolment import CERTIFICATE, read_certificate
    from tolfl.net.tls import Credentials

    now = now or datetime.now(UTC)
    try:
        shown, certificate = Credentials(folder), read_certificate(folder / CERTIFICATE)
    except TolFLError as error:
        yield CheckResult("certificates", folder.name, PROBLEM, str(error))
        return
    identity = shown.identity
    who = "nobody" if identity is None else "an operator" if identity.is_operator else f"device {identity.device}"
    if device is not None and (identity is None or identity.device != device):
        found, todo = f"they are those of {who}, not of device {device}", f"copy those of device {device} here"
        yield CheckResult("certificates", folder.name, PROBLEM, found, f"{todo} (tolfl enroll list)")
    begins = certificate.not_valid_before_utc
    if shown.is_revoked(identity):
        todo = "enrol the device anew, under another name"
        yield CheckResult("certificates", folder.name, PROBLEM, f"{who} was revoked", todo)
    elif now < begins:
        found = f"{who}: valid from {begins:%Y-%m-%d %H:%M} UTC on, this clock shows {now:%Y-%m-%d %H:%M} UTC"
        yield CheckResult("certificates", folder.name, PROBLEM, found, "set the clock of this machine")
    else:
        todo = f"run: tolfl enroll renew {folder.name}"
        yield _until(folder.name, f"{who} of {shown.fleet}", certificate.not_valid_after_utc, todo, now)


def check_fleet(folder: Path) -> Checks:
    """Check the folder of a fleet's authority, and every certificate that it issued."""
    from tolfl.net.enrolment import AUTHORITY, Authority, read_certificate

    now = datetime.now(UTC)
    try:
        authority = Authority(folder)
        entries, ends = authority.entries(), read_certificate(folder / AUTHORITY).not_valid_after_utc
        authority.revocations()
    except TolFLError as error:
        yield CheckResult("certificates", "authority", PROBLEM, str(error))
        return
    yield _until("authority", f"fleet {authority.fleet}, {len(entries)} enrolled", ends, "make a new fleet", now)
    for name, entry in entries.items():
        if entry.is_revoked:
            yield CheckResult("certificates", name, OK, "revoked")
        elif authority.folder_of(name).is_dir():
            yield from check_certificate(authority.folder_of(name), entry.device)
        else:  # moved to its device: the register still has its expiry
            ends = datetime.fromisoformat(entry.expires).replace(tzinfo=UTC)
            yield _until(name, "moved to its device", ends, f"run: tolfl enroll renew {name}", now)


def _until(name: str, who: str, ends: datetime, todo: str, now: datetime) -> CheckResult:
    if ends < now:
        return CheckResult("certificates", name, PROBLEM, f"{who}: ended on {ends:%Y-%m-%d}", todo)
    found = f"{who}: good until {ends:%Y-%m-%d}"
    if ends - now < _SOON:
        return CheckResult("certificates", name, WARNING, f"{found}, {(ends - now).days} days", todo)
    return CheckResult("certificates", name, OK, found)


# -- memory, disk, data -----------------------------------------------------------------------------------------


def check_machine(out: Path) -> Checks:
    """Check free memory, and whether the folder of results can be written; nothing is left behind."""
    if (free := free_memory()) is None:
        yield CheckResult("machine", "memory", NOTE, "not known here", "a device of tolfl up takes about 0.1 GiB")
    else:
        found = f"{free / _GIB:.1f} GiB free, room for about {int(free / DEVICE_BYTES)} devices of tolfl up"
        state = WARNING if free < 3 * DEVICE_BYTES else OK
        yield CheckResult("machine", "memory", state, found, "" if state is OK else "close other programs")
    try:
        found = f"{out} can be written, {flags.free_bytes(out) / _GIB:.1f} GiB free"
        yield CheckResult("machine", "out", OK, found)
    except RunDirectoryError as error:
        found = f"{out} {error.problem.partition(';')[0]}"
        yield CheckResult("machine", "out", PROBLEM, found, "choose another --out")


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


def check_data(data_dir: str) -> Checks:
    """Check for every public data set whether it is here."""
    from tolfl.datasets.public_sets import PUBLIC_SETS, find

    for name, text in (("--data-dir", data_dir), ("TOLFL_DATA", os.environ.get("TOLFL_DATA", ""))):
        if text and not Path(text).expanduser().is_dir():
            yield CheckResult("data", name, PROBLEM, f"{text} is no folder", "name one that is there, or make it")
            data_dir = "" if name == "--data-dir" else data_dir
    for name, known in PUBLIC_SETS.items():
        try:
            yield CheckResult("data", name, OK, f"in {find(name, data_dir)}")
        except DataError:
            fetch = f"download it from {known.by_hand}" if known.by_hand else f"run: tolfl data get {name}"
            yield CheckResult("data", name, NOTE, "not here", f"if you want it, {fetch}")
