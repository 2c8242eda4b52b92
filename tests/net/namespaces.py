"""Machines of one's own: a network namespace for each device, a cable from each to a switch, and ways to spoil them.

The cables end in a switch that is a namespace, too, so removing the namespaces removes everything. One more cable goes
to the machine of the test, which can ask every device for its status. It is never spoiled by a silent cut.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.host_interfaces import interfaces_lock

_PREFIX = "tolfl-test-"
_NAMESPACES = Path("/run/netns")
_TOOLS = ("ip", "tc", "nft")
_REPOSITORY = Path(__file__).parents[2]
_HOST = 254


class Network:
    """A switch with a machine for each device; use it as a context."""

    def __init__(self, n_devices: int) -> None:
        self._mark = f"{_PREFIX}{os.getpid()}"
        self._switch = f"{self._mark}-switch"
        # Addresses that are set aside for trying out networks (RFC 2544): nobody else on the machine has them.
        self._subnet = f"198.{18 + os.getpid() // 256 % 2}.{os.getpid() % 256}"
        self._host_cable = f"tolfl{os.getpid()}"
        self.devices = range(n_devices)

    def __enter__(self) -> Network:
        remove_leftovers()
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _build(self) -> None:
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
        for device in self.devices:
            name = self._machine(device)
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            self._plug_in(device, name)
            _run("ip", "-n", name, "address", "add", f"{self.address(device)}/24", "dev", "cable")
            _run("ip", "-n", name, "link", "set", "cable", "up")
            self._rules(device, [])
        with interfaces_lock():
            self._plug_in_host()

    def _plug_in_host(self) -> None:
        cable = self._host_cable
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "host", "netns", self._switch)
        _run("ip", "-n", self._switch, "link", "set", "host", "master", "bridge", "up")
        _run("ip", "link", "set", cable, "addrgenmode", "none")  # or an IPv6 address comes some seconds later
        _run("ip", "address", "add", f"{self._subnet}.{_HOST}/24", "dev", cable)
        _run("ip", "link", "set", cable, "up")

    def _plug_in(self, device: int, name: str) -> None:
        port = self._port(device)
        _run("ip", "link", "add", "cable", "netns", name, "type", "veth", "peer", "name", port, "netns", self._switch)
        _run("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")

    def _remove(self) -> None:
        _remove_all(f"{self._mark}-")

    def _machine(self, device: int) -> str:
        return f"{self._mark}-{device}"

    def _port(self, device: int) -> str:
        return f"port{device}"

    def address(self, device: int) -> str:
        """Return the address of a device's machine."""
        return f"{self._subnet}.{device + 1}"

    def start(self, device: int, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process on the machine of a device."""
        with log.open("ab") as file:
            return subprocess.Popen(
                ["ip", "netns", "exec", self._machine(device), *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=_REPOSITORY,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    # -- spoiling -----------------------------------------------------------------------------------------------

    def pull_cable(self, device: int) -> None:
        """Unplug a machine: both ends see that the link is down."""
        _run("ip", "-n", self._switch, "link", "set", self._port(device), "down")

    def plug_cable(self, device: int) -> None:
        """Plug the cable in again."""
        _run("ip", "-n", self._switch, "link", "set", self._port(device), "up")

    def separate(self, one: Iterable[int], other: Iterable[int]) -> None:
        """Drop, silently, whatever goes between two groups of machines."""
        sides = (sorted(one), sorted(other))
        for here, there in (sides, sides[::-1]):
            unheard = ", ".join(self.address(device) for device in there)
            for device in here:
                self._rules(device, [f"ip saddr {{ {unheard} }} counter drop"])

    def let_nobody_dial(self, device: int, is_refused: bool) -> None:
        """Stop every new connection to a machine, as a firewall or an address translation does; it may dial out."""
        verdict = "reject with tcp reset" if is_refused else "drop"
        self._rules(device, [f"tcp flags & (syn|ack) == syn counter {verdict}"])

    def deafen(self, device: int, to: Iterable[int]) -> None:
        """Drop, silently, whatever comes in at a machine from others; what it sends still arrives."""
        unheard = ", ".join(self.address(other) for other in to)
        self._rules(device, [f"ip saddr {{ {unheard} }} counter drop"])

    def reunite(self) -> None:
        """Let everything through again."""
        for device in self.devices:
            self._rules(device, [])

    def slow_down(self, rate: str, loss_percent: int) -> None:
        """Make every cable slow in both directions, and lose some of what comes in at each machine."""
        bucket = ("root", "tbf", "rate", rate, "burst", "32kb", "latency", "100ms")
        for device in self.devices:
            _run("tc", "-n", self._machine(device), "qdisc", "add", "dev", "cable", *bucket)
            _run("tc", "-n", self._switch, "qdisc", "add", "dev", self._port(device), *bucket)
            self._rules(device, [f"numgen random mod 100 < {loss_percent} counter drop"])

    def _rules(self, device: int, rules: Sequence[str]) -> None:
        lines = "\n".join(["type filter hook input priority 0", *rules])
        table = f"table inet spoilt {{\nchain incoming {{\n{lines}\n}}\n}}\n"
        # The first line makes the table where there is none yet, so that the second always has one to take away.
        script = f"table inet spoilt\ndelete table inet spoilt\n{table}"
        _run("ip", "netns", "exec", self._machine(device), "nft", "-f", "-", script=script)

    def lost_packets(self, device: int) -> int:
        """Return how many packets were lost on their way into a machine since it was spoilt."""
        listed = _run("ip", "netns", "exec", self._machine(device), "nft", "list", "table", "inet", "spoilt")
        return sum(int(count) for count in re.findall(r"counter packets (\d+)", listed))


def why_not() -> str:
    """Return why there can be no namespaces here; empty: there can."""
    if os.geteuid():
        return "network namespaces need root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"network namespaces need {', '.join(missing)}"
    name = f"{_PREFIX}{os.getpid()}-probe"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"`ip netns add` is not permitted here: {tried.stderr.strip()}"
    _run("ip", "netns", "delete", name)
    return ""


def remove_leftovers() -> None:
    """Remove the namespaces of test processes that are gone: they crashed, or were killed."""
    for path in _NAMESPACES.glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            _remove_all(f"{_PREFIX}{owner}-")


def left_behind() -> list[str]:
    """Return the namespaces and cables of this test process that still exist."""
    mine = [path.name for path in _NAMESPACES.glob(f"{_PREFIX}{os.getpid()}-*")]
    return mine + [path.name for path in Path("/sys/class/net").glob(f"tolfl{os.getpid()}")]


def _remove_all(prefix: str) -> None:
    with interfaces_lock():
        _remove_namespaces(prefix)


def _remove_namespaces(prefix: str) -> None:
    for path in sorted(_NAMESPACES.glob(f"{prefix}*")):
        for pid in _run("ip", "netns", "pids", path.name).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _run("ip", "netns", "delete", path.name)
    # A namespace goes when its last process has gone; the cable to this machine should not wait for that.
    cable = f"tolfl{prefix.removeprefix(_PREFIX).rstrip('-')}"
    if Path("/sys/class/net", cable).exists():
        subprocess.run(["ip", "link", "delete", cable], capture_output=True, check=False)


def _run(*command: str, script: str | None = None) -> str:
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
