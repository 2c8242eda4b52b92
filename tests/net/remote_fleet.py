"""A fleet with one machine for each device, as far as the devices can tell."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from tests.net.namespaces import Network
from tolfl.core.records import AnyRecord, RosterChanged, RoundClosed, decode_records
from tolfl.core.spec import RunSpec
from tolfl.net.client import ask_all
from tolfl.net.node_config import NodeConfig
from tolfl.net.wire import StatusReply
from tolfl.runs.run_reader import RECORDS

_PORT = 7000
_LOOK_S = 0.05
PATIENCE_S = 60.0
#: Until the first round: a process imports for seconds, and on a busy machine for many.
START_PATIENCE_S = 180.0


class RemoteFleet:
    """The devices of a run on the machines of a network; use it as a context, inside the network's."""

    def __init__(
        self, network: Network, spec: RunSpec, folder: Path, seeds: Mapping[int, Iterable[int]] | None = None
    ) -> None:
        self.network, self.spec, self._folder = network, spec, folder
        self.devices = range(spec.devices)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started_unix = time.time()
        (folder / "spec.toml").write_text(spec.to_toml())
        for device in self.devices:
            self._folder_of(device).mkdir()
            known: Iterable[int] = self.devices if seeds is None else ()
            config = NodeConfig(
                device=device,
                listen=self.address(device),
                state=".",
                spec="../spec.toml",
                peers={str(peer): self.address(peer) for peer in known if peer != device},
                seeds=tuple(self.address(peer) for peer in (seeds or {}).get(device, ())),
                start_timeout_s=START_PATIENCE_S,
                started_unix=self._started_unix,
                insecure=True,
            )
            self._config_of(device).write_text(config.to_toml())

    def __enter__(self) -> RemoteFleet:
        for device in self.devices:
            command = [sys.executable, "-m", "tests.net.run_node", str(self._config_of(device))]
            self._processes[device] = self.network.start(device, command, self._folder_of(device) / "log.txt")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def _folder_of(self, device: int) -> Path:
        return self._folder / str(device)

    def _config_of(self, device: int) -> Path:
        return self._folder_of(device) / "node.toml"

    def address(self, device: int) -> str:
        """Return where a device listens."""
        return f"{self.network.address(device)}:{_PORT}"

    @property
    def now_s(self) -> float:
        """The time as records have it."""
        return time.time() - self._started_unix

    # -- looking ------------------------------------------------------------------------------------------------

    def lines(self) -> list[AnyRecord]:
        """Return what all devices have written so far, in the order of time."""
        lines: list[AnyRecord] = []
        for device in self.devices:
            path = self._folder_of(device) / RECORDS
            if path.exists():
                content = path.read_bytes()
                lines += decode_records(content[: content.rfind(b"\n") + 1].splitlines(), source=str(path))
        return sorted(lines, key=lambda line: line.time_s)

    def rounds_since(self, time_s: float) -> list[RoundClosed]:
        """Return the rounds that were closed after a moment."""
        return [line for line in self.lines() if isinstance(line, RoundClosed) and line.time_s > time_s]

    def statuses(self) -> dict[int, StatusReply]:
        """Ask every device; those who do not answer are left out."""
        answers = ask_all([self.address(device) for device in self.devices])
        return {answer.status.device: answer.status for answer in answers if answer.status is not None}

    def statuses_of_all(self) -> dict[int, StatusReply]:
        """Ask until every device has answered; on a busy machine one may take too long at first."""
        found: dict[int, StatusReply] = {}

        def have_all_answered() -> bool:
            found.update(self.statuses())
            return len(found) == len(self.devices)

        self.wait_until(have_all_answered, "all answer")
        return found

    def lives(self) -> dict[int, int]:
        """Return the life that each device is in, as it keeps it on its disk."""
        kept = {device: (self._folder_of(device) / "life.json").read_bytes() for device in self.devices}
        return {device: int(msgspec.json.decode(life)["incarnation"]) for device, life in kept.items()}

    def wait_until(self, is_so: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Look until something is so; a device that fails meanwhile, or too long a wait, is an error with all logs."""
        deadline = time.monotonic() + patience_s
        while not is_so():
            has_failed = any(process.poll() for process in self._processes.values())
            if has_failed or time.monotonic() > deadline:
                raise AssertionError(f"waited {patience_s:g} s at most until {what}\n{self._story()}")
            time.sleep(_LOOK_S)

    def wait_for_the_start(self) -> None:
        """Wait until all devices have closed a round together."""
        everybody = tuple(self.devices)
        self.wait_until(
            lambda: any(line.included == everybody for line in self.rounds_since(0.0)), "all train", START_PATIENCE_S
        )

    def wait_for_round_of(self, devices: Iterable[int], since_s: float) -> RoundClosed:
        """Wait for a round with the samples of exactly these devices; return the first."""
        included, found = tuple(sorted(devices)), list[RoundClosed]()

        def is_closed() -> bool:
            found[:] = [line for line in self.rounds_since(since_s) if line.included == included]
            return bool(found)

        self.wait_until(is_closed, f"{included} close a round")
        return found[0]

    def kill(self, device: int) -> None:
        """Kill a device's process, and forget it: its exit is no failure of the test."""
        process = self._processes.pop(device)
        process.kill()
        process.wait()

    def stop(self, devices: Iterable[int]) -> None:
        """Let devices leave in good order, all at once."""
        leaving = [self._processes.pop(device) for device in devices]
        for process in leaving:
            process.terminate()
        for process in leaving:
            process.wait()

    def wait_for_the_end(self, patience_s: float) -> None:
        """Wait until every process has ended, in good order."""
        self.wait_until(
            lambda: all(process.poll() is not None for process in self._processes.values()), "all end", patience_s
        )
        codes = {device: process.returncode for device, process in self._processes.items()}
        assert not any(codes.values()), f"exit codes {codes}\n{self._story()}"

    def _story(self) -> str:
        parts = []
        for device, process in self._processes.items():
            said = (self._folder_of(device) / "log.txt").read_text(errors="replace").strip().splitlines()[-10:]
            records = self._folder_of(device) / RECORDS
            wrote = records.read_text().splitlines() if records.exists() else []
            news = [line for line in wrote if '"traffic"' not in line][-6:]
            parts.append(f"-- device {device}, exit code {process.poll()}\n" + "\n".join([*said, *news]))
        return "\n".join(parts)

    # -- histories ----------------------------------------------------------------------------------------------

    def chain(self, history: str) -> list[str]:
        """Return the histories that one extends, from the newest back, as the records tell."""
        parents = {
            str(line.version).rpartition(".")[2]: line.parent
            for line in self.lines()
            if isinstance(line, RoundClosed | RosterChanged)
        }
        chain = [history]
        while chain[-1] in parents:
            chain.append(parents[chain[-1]])
        return chain

    def is_one_history(self) -> bool:
        """Tell whether what each device holds is a part of what the furthest one holds."""
        versions = [status.version for status in self.statuses().values()]
        if len(versions) < len(self.devices):
            return False
        furthest = max(versions, key=lambda version: (version.work, version.round, version.revision))
        chain = self.chain(furthest.history)
        return all(version.history in chain for version in versions)
