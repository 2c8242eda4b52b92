"""Fleets of real processes for tests: started, watched, struck, and gone without a trace afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from tolfl.core.records import AnyRecord, RoundClosed
from tolfl.core.spec import BlobsSpec, RunSpec
from tolfl.net.addresses import split_address
from tolfl.net.client import ask_all, command
from tolfl.net.launcher import Launcher
from tolfl.net.node_config import NodeConfig
from tolfl.net.wire import CommandRequest

#: Nothing takes that long, not even on a machine that has much else to do.
PATIENCE_S = 150.0
_AFTERMATH_S = 10.0
_POLL_S = 0.02


def small_spec(devices: int = 4, clusters: int = 2, rounds: int = 20, **fields: object) -> RunSpec:
    """Return a run whose rounds take hundredths of a second.

    `lan`: a machine that runs two test workers and their fleets makes a device wait for longer than `localhost` allows.
    """
    blobs = BlobsSpec(samples_per_device=50, n_test=200, n_validation=0)
    settled: dict[str, object] = {"data": "blobs", "blobs": blobs, "timing": "lan", **fields}
    return RunSpec(devices=devices, clusters=clusters, rounds=rounds, **settled)  # type: ignore[arg-type]


def wait_until(is_so: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait for something that nobody tells of but a look; what it was is said if it never comes."""
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {timeout_s:g} s in vain: {what}")
        time.sleep(_POLL_S)


def processes_below(folder: Path) -> list[int]:
    """Return the processes whose command line names a file below a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if f"{folder}/".encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def kill_all(pids: Sequence[int], number: signal.Signals = signal.SIGKILL) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def addresses_below(out: Path) -> dict[int, str]:
    """Return where the devices of a run directory listen."""
    files = sorted((out / "devices").glob("*/node.toml"), key=lambda file: int(file.parent.name))
    return {int(file.parent.name): NodeConfig.from_file(file).listen for file in files}


def is_listening(address: str) -> bool:
    try:
        socket.create_connection(split_address(address), timeout=1.0).close()
    except OSError:
        return False
    return True


def nothing_is_left_of(out: Path) -> None:
    """Check that no process and no open port remains of a run directory."""
    # A process that was killed is gone for its parent a moment before its sockets are.
    wait_until(lambda: not processes_below(out), f"no process of {out} is left", timeout_s=_AFTERMATH_S)
    ports = addresses_below(out).values()
    wait_until(lambda: not any(map(is_listening, ports)), f"no port of {out} is left open", timeout_s=_AFTERMATH_S)


class Fleet:
    """A launcher with its processes, and everything that was written so far."""

    def __init__(self, spec: RunSpec, out: Path, is_insecure: bool = True) -> None:
        self.spec, self.out = spec, out
        self.launcher = Launcher(spec, out, is_insecure=is_insecure)
        self.data = self.launcher.data
        self.lines: list[AnyRecord] = []
        self._wait_for_everybody()

    def _wait_for_everybody(self) -> None:
        """Let nobody begin without the others, however busy the machine is: who is in a round would depend on it."""
        for process in self.launcher.processes:
            path = process.folder / "node.toml"
            config = msgspec.toml.decode(path.read_bytes(), type=NodeConfig)
            path.write_text(msgspec.structs.replace(config, start_timeout_s=PATIENCE_S).to_toml())

    # -- looking ------------------------------------------------------------------------------------------------

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Watch until something is so; what the devices said last is told if it never is."""
        deadline_s = time.monotonic() + PATIENCE_S
        for view in self.launcher:
            self.lines += view.news
            if is_so():
                return
            if time.monotonic() > deadline_s:
                break
        else:
            if is_so():
                return
        raise AssertionError(f"it never came that {what}; {self._last_words()}")

    def _last_words(self) -> str:
        states = ", ".join(f"{one.device}: {one.ended or one.exit_code}" for one in self.launcher.processes)
        logs = "; ".join((one.folder / "log.txt").read_text().strip()[-300:] for one in self.launcher.processes)
        return f"{self.rounds_done} rounds are done; {states}; logs: {logs}"

    @property
    def rounds_done(self) -> int:
        return self.launcher.view.rounds_done

    @property
    def closed(self) -> list[RoundClosed]:
        return [line for line in self.lines if isinstance(line, RoundClosed)]

    @property
    def running(self) -> list[int]:
        return [one.device for one in self.launcher.processes if one.is_running]

    @property
    def survivors(self) -> list[int]:
        return self.launcher.survivors

    def until_round(self, n_done: int) -> None:
        self.until(lambda: self.rounds_done >= n_done, f"{n_done} rounds are done")

    def until_all_train(self, devices: Sequence[int], rounds: int = 1) -> None:
        """Wait for rounds from now on with exactly these devices inside."""
        first = len(self.closed)

        def is_so() -> bool:
            return sum(set(line.included) == set(devices) for line in self.closed[first:]) >= rounds

        self.until(is_so, f"devices {list(devices)} train together")

    def until_the_end(self) -> None:
        self.until(lambda: not self.running, "all devices have ended")

    def incarnation_of(self, device: int) -> int | None:
        (answer,) = ask_all([self.launcher.address_of(device)])
        return None if answer.status is None else answer.status.incarnation

    # -- striking -----------------------------------------------------------------------------------------------

    def cut_off(self, device: int, is_cut: bool = True) -> None:
        """Cut a device off from all others, or put it back."""
        others = [other for other in self.running if other != device]
        self.cut(device, others if is_cut else [])
        for other in others:
            self.cut(other, [device] if is_cut else [])

    def cut(self, device: int, devices: Sequence[int]) -> None:
        """Let no message pass between a device and these others, on its side."""
        request = CommandRequest(token=self.launcher.token, cut=tuple(devices))
        command(self.launcher.address_of(device), request)

    def leave_one_by_one(self) -> None:
        """Let the devices leave one after the other, so that nobody's last round is news to all others."""
        for process in self.launcher.processes:
            if process.process is not None and process.is_running:
                process.process.terminate()
                self.until(lambda p=process: not p.is_running, f"device {process.device} leaves")  # type: ignore[misc]

    def end(self) -> None:
        """Stop everything and check that nothing is left."""
        self.launcher.stop()
        nothing_is_left_of(self.out)


@contextmanager
def fleet_of(spec: RunSpec, out: Path, is_insecure: bool = True) -> Iterator[Fleet]:
    """Start a fleet; whatever happens, nothing of it remains."""
    fleet = Fleet(spec, out, is_insecure)
    try:
        fleet.launcher.start()
        yield fleet
    finally:
        fleet.end()


class Up:
    """`tolfl up` as a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.out = folder / "run"
        command_line = [sys.executable, "-m", "tolfl", "up", "--out", str(self.out), *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command_line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def devices(self) -> list[int]:
        """Return the process ids of the devices."""
        return [pid for pid in processes_below(self.out) if pid != self.process.pid]

    def count(self, kind: str) -> int:
        """Return how many lines of a kind the devices have written."""
        paths = (self.out / "devices").glob("*/records.jsonl")
        return sum(path.read_bytes().count(f'"kind":"{kind}"'.encode()) for path in paths)

    def rounds_done(self) -> int:
        """Return how many rounds the devices have closed."""
        return self.count("round_closed")

    def until_round(self, n_done: int) -> None:
        def is_so() -> bool:
            assert self.process.poll() is None, self.process.communicate()
            return self.rounds_done() >= n_done

        wait_until(is_so, f"{n_done} rounds are done")

    def until_devices_have_ended(self) -> None:
        wait_until(lambda: not self.devices(), "all devices have ended")

    def result(self) -> tuple[int, str, str]:
        """Wait for the end; return exit code, standard output and standard error."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@contextmanager
def running_up(folder: Path, *arguments: str) -> Iterator[Up]:
    """Start `tolfl up`; whatever happens, nothing of it remains."""
    up = Up(folder, *arguments)
    try:
        yield up
    finally:
        kill_all([up.process.pid] if up.process.poll() is None else [])
        kill_all(up.devices())
        up.process.communicate()
        wait_until(lambda: not up.devices(), "what was killed is gone")
        nothing_is_left_of(up.out)
