"""A page of instructions as a script: its fenced blocks, and hosts on which to follow them word by word."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec
import numpy as np

from tests.net.namespaces import Network
from tolfl.core.records import AnyRecord, decode_records
from tolfl.net.client import ask_all
from tolfl.net.tls import Credentials
from tolfl.net.wire import StatusReply
from tolfl.runs.run_reader import RECORDS

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "run-a-fleet.md"
UNIT = REPOSITORY / "deploy" / "tolfl@.service"
PATIENCE_S = 120.0
#: What the page asks for that would change the machine of the test: users, packages, units.
NOT_TRIED = ("useradd ", "chown ", "cp deploy/", "/opt/tolfl/bin/pip ")
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_TOLFL = str(Path(sys.executable).with_name("tolfl"))


@dataclass(frozen=True)
class Block:
    """A fenced block of the page; the first line of a list of commands says where they are typed."""

    section: str
    language: str
    place: str
    text: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line.strip() and not line.startswith("#")]


def blocks_of(page: Path = PAGE) -> list[Block]:
    text, found = page.read_text(), []
    for match in _BLOCK.finditer(text):
        titles = re.findall(r"^## (.*)$", text[: match.start()], re.MULTILINE)
        body = textwrap.dedent(match["body"])
        first = body.splitlines()[0]
        place = first.removeprefix("# ") if first.startswith("# ") else ""
        found.append(Block(titles[-1] if titles else "", match["language"], place, body))
    return found


def block(section: str, containing: str) -> Block:
    """Return the one block of a section with some words in it."""
    (found,) = (one for one in blocks_of() if one.section == section and containing in one.text)
    return found


def service_command(instance: str) -> list[str]:
    """Return what the unit in deploy/ starts."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    return shlex.split(unit["Service"]["ExecStart"].replace("%i", instance))


def write_table(path: Path, samples: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    header = ",".join(f"sensor-{column}" for column in range(samples.shape[1]))
    np.savetxt(path, samples, delimiter=",", header=header, comments="")


class Hosts:
    """The desk and the hosts of the page: 10.0.0.1 is the machine 0 of the network, and so on.

    The hosts share one disk with the test, so each has a folder for what the page puts into /etc and /var. Nobody runs
    ssh or systemd there: `ssh`, `scp` and `systemctl` are done by the test, the last one with the command of the unit.
    """

    def __init__(self, network: Network, folder: Path) -> None:
        self.network, self.desk, self._folder = network, folder / "desk", folder
        self.desk.mkdir()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._subnet = network.address(0).removesuffix("1")

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    # -- places -------------------------------------------------------------------------------------------------

    def _translated(self, text: str) -> str:
        return text.replace("10.0.0.", self._subnet)

    def root(self, host: int) -> Path:
        """Return the folder that stands for the root of a host's disk."""
        return self._folder / f"10.0.0.{host + 1}"

    def etc(self, host: int) -> Path:
        return self.root(host) / "etc" / "tolfl"

    def state(self, host: int) -> Path:
        return self.root(host) / "var" / "lib" / "tolfl" / "state"

    def _on_its_disk(self, host: int, text: str) -> str:
        for place in ("/etc/tolfl", "/var/lib/tolfl"):
            text = text.replace(place, f"{self.root(host)}{place}")
        return text

    def log(self, host: int) -> Path:
        return self.root(host) / "log.txt"

    def give(self, host: int, settings: dict[str, Any], samples: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        """Put device.toml, with addresses of this network, and the device's readings on a host."""
        content = self._on_its_disk(host, self._translated(msgspec.toml.encode(settings).decode()))
        (self.etc(host) / "device.toml").write_text(content)
        write_table(self.etc(host) / settings["data"], samples)

    # -- commands -----------------------------------------------------------------------------------------------

    def at_the_desk(self, lines: Iterable[str]) -> str:
        """Type lines at the desk; return what they print."""
        said = []
        for line in lines:
            if ">>" in line:
                self._append(line)
                continue
            words = shlex.split(self._translated(line))
            match words[0]:
                case "ssh":
                    said.append(self.on_host(self._host_at(words[1]), [shlex.join(words[2:])]))
                case "scp":
                    self._copy(words[1:])
                case "tolfl":
                    said.append(self._run([_TOLFL, *words[1:]], line))
                case _:
                    raise AssertionError(f"who types {line!r} at the desk?")
        return "".join(said)

    def _run(self, command: Sequence[str], line: str) -> str:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "400"}
        done = subprocess.run(command, cwd=self.desk, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    @contextmanager
    def begun_at_the_desk(self, line: str) -> Iterator[TextIO]:
        """Type a line at the desk that goes on until Ctrl-C; give what it says meanwhile."""
        _, *words = shlex.split(self._translated(line))
        with subprocess.Popen([_TOLFL, *words], cwd=self.desk, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield cast("TextIO", process.stderr)
            finally:
                process.send_signal(signal.SIGINT)

    def _append(self, line: str) -> None:
        """Do what `command >> file` does."""
        command, _, name = line.partition(" >> ")
        program, *rest = shlex.split(command)
        said = f"{' '.join(rest)}\n" if program == "echo" else self._run([_TOLFL, *rest], line)
        with (self.desk / name).open("a") as file:
            file.write(said)

    def _copy(self, words: list[str]) -> None:
        """Do what scp does, which is what cp does: a folder that is there already gets the new one inside."""
        flags = [word for word in words if word.startswith("-")]
        *sources, target = (word for word in words if not word.startswith("-"))
        address, _, path = target.partition(":")
        found = [str(one) for source in sources for one in sorted(self.desk.glob(source))]
        assert found, f"there is no {sources}"
        subprocess.run(["cp", *flags, *found, f"{self.root(self._host_at(address))}{path}"], check=True)

    def _host_at(self, address: str) -> int:
        return next(device for device in self.network.devices if self.network.address(device) == address)

    def on_host(self, host: int, lines: Iterable[str]) -> str:
        """Type lines on a host; return what they print."""
        said = []
        for line in lines:
            words = shlex.split(self._on_its_disk(host, line))
            if line.startswith(NOT_TRIED):
                continue
            if words[0] == "systemctl":
                self._systemctl(host, words[1], words[-1])
            elif words[:2] == ["tolfl", "node"]:
                self.start(host, [_TOLFL, *words[1:]])
            else:
                said.append(self._typed(host, [_TOLFL, *words[1:]] if words[0] == "tolfl" else words, line))
        return "".join(said)

    def _typed(self, host: int, words: list[str], line: str) -> str:
        self.root(host).mkdir(exist_ok=True)
        log = self.root(host) / "typed.txt"
        log.unlink(missing_ok=True)
        code = self.network.start(host, words, log).wait(PATIENCE_S)
        assert code == 0, f"{line}: {log.read_text()}"
        return log.read_text()

    def _systemctl(self, host: int, verb: str, service: str) -> None:
        name, _, instance = service.partition("@")
        assert name == "tolfl"
        if verb in ("stop", "restart"):
            self.stop(host)
        if verb in ("start", "restart", "enable"):
            program, *rest = service_command(instance)
            assert program == "/opt/tolfl/bin/tolfl"
            self.start(host, [_TOLFL, *(self._on_its_disk(host, word) for word in rest)])

    def start(self, host: int, command: Sequence[str]) -> None:
        assert host not in self.processes, f"a device runs on host {host}"
        self.processes[host] = self.network.start(host, command, self.log(host))

    def stop(self, host: int) -> None:
        """Stop a device as systemd does, if it runs."""
        process = self.processes.pop(host, None)
        if process is not None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, self.log(host).read_text()

    def kill(self, host: int) -> None:
        process = self.processes.pop(host)
        process.kill()
        process.wait()

    # -- looking ------------------------------------------------------------------------------------------------

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline_s:
                logs = "\n".join(f"{host}: {self.log(host).read_text()[-600:]}" for host in self.processes)
                raise AssertionError(f"waited in vain: {what}\n{self.statuses()}\n{logs}")
            time.sleep(0.05)

    def statuses(self) -> dict[int, StatusReply]:
        """Ask the devices on all hosts where one should run; return what they say, by host."""
        hosts = sorted(self.processes)
        answers = ask_all(
            [f"{self.network.address(host)}:7000" for host in hosts], Credentials(self.desk / "fleet/devices/me")
        )
        return {host: answer.status for host, answer in zip(hosts, answers, strict=True) if answer.status is not None}

    def status_of(self, host: int) -> StatusReply:
        """Ask until a device answers; on a busy machine it may take too long at first."""
        found: list[StatusReply] = []

        def has_answered() -> bool:
            found[:] = [status for one, status in self.statuses().items() if one == host]
            return bool(found)

        self.until(has_answered, f"the device on host {host} answers")
        return found[0]

    def newest_round(self) -> int:
        return max((status.version.round for status in self.statuses().values()), default=0)

    def records(self, host: int) -> list[AnyRecord]:
        path = self.state(host) / RECORDS
        content = path.read_bytes() if path.exists() else b""
        return list(decode_records(content[: content.rfind(b"\n") + 1].splitlines(), source=str(path)))

    def forget(self, host: int) -> None:
        """Lose a host with its disk."""
        shutil.rmtree(self.root(host))
