"""A fleet of real processes to measure: started, watched, hurt and cleared away.

python -m benchmarks.fleets node.toml: a device that writes down how long it trained, `tolfl node` and nothing else
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

from tolfl.core.contribution import Contribution
from tolfl.core.records import AnyRecord, FailureHappened, RoundClosed
from tolfl.core.spec import RunSpec
from tolfl.net.client import command
from tolfl.net.launcher import Launcher, Process
from tolfl.net.node_config import NodeConfig
from tolfl.net.prepare import prepare
from tolfl.net.trainer import Trainer
from tolfl.net.wire import CommandRequest
from tolfl.protocol.history import Version

_LOOK_S = 0.02
#: Of a timed device, a line for each round: its number and the seconds of local training.
TRAINING = "training.txt"


class TimedLauncher(Launcher):
    """Starts devices that write down how long they train, each of them once."""

    def _spawn(self, process: Process) -> None:
        config = process.folder / "node.toml"
        with (process.folder / "log.txt").open("ab") as log:
            process.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fleets", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )


class Fleet:
    """Real devices on this machine, for as long as the context lasts."""

    def __init__(self, spec: RunSpec, kind: type[Launcher] = Launcher, is_insecure: bool = True) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tolfl-bench-", ignore_cleanup_errors=True)
        self.launcher = kind(spec, Path(self._folder.name) / "run", is_insecure=is_insecure)
        self.devices = range(spec.devices)
        self.lines: list[AnyRecord] = []

    def __enter__(self) -> Fleet:
        self.launcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.launcher.stop()
        self._folder.cleanup()

    @property
    def now_s(self) -> float:
        return self.launcher.now_s

    # -- watching -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        self.launcher.look()
        self.lines += self.launcher.view.news
        self.launcher.view.news.clear()

    def rounds(self, since_s: float = 0.0) -> list[RoundClosed]:
        """Return the closed rounds after a moment, each once."""
        found = [line for line in self.lines if isinstance(line, RoundClosed) and line.time_s > since_s]
        return sorted({line.version: line for line in reversed(found)}.values(), key=lambda line: line.time_s)

    def deaths(self, since_s: float = 0.0) -> list[FailureHappened]:
        """Return what devices noted of the deaths of others."""
        found = (line for line in self.lines if isinstance(line, FailureHappened) and line.time_s > since_s)
        return [line for line in found if line.by is not None]

    def wait_until(self, is_so: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            self.look()
            if is_so():
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"waited {timeout_s:g} s until {what}; the last lines: {self.lines[-5:]}")
            time.sleep(_LOOK_S)

    def wait_for_round_of(self, devices: Collection[int], since_s: float, timeout_s: float = 120.0) -> RoundClosed:
        """Return the first round after a moment with the samples of exactly these devices."""
        included, found = tuple(sorted(devices)), list[RoundClosed]()

        def is_closed() -> bool:
            found[:] = [line for line in self.rounds(since_s) if line.included == included]
            return bool(found)

        self.wait_until(is_closed, f"{len(included)} devices close a round", timeout_s)
        return found[0]

    def wait_for_rounds(self, n: int, timeout_s: float = 120.0) -> list[float]:
        """Wait for n more rounds of everybody; return how long each took."""
        since_s = self.now_s

        def whole() -> list[RoundClosed]:
            return [line for line in self.rounds(since_s) if len(line.included) == len(self.devices)]

        self.wait_until(lambda: len(whole()) > n, f"{n} quiet rounds", timeout_s)
        times = [line.time_s for line in whole()]
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    def wait_for_the_end(self, timeout_s: float = 600.0) -> None:
        """Wait until every device has ended by itself."""
        processes = self.launcher.processes
        self.wait_until(lambda: not any(one.is_running for one in processes), "the run is over", timeout_s)

    # -- hurting ------------------------------------------------------------------------------------------------

    def cut(self, lost: int, is_cut: bool) -> None:
        """Drop messages between a device and all others, on both sides; or let them pass again."""
        others = [device for device in self.devices if device != lost]
        sides: Iterable[tuple[int, list[int]]] = [(lost, others), *((device, [lost]) for device in others)]
        for device, unheard in sides:
            request = CommandRequest(token=self.launcher.token, cut=tuple(unheard) if is_cut else ())
            command(self.launcher.address_of(device), request)

    # -- measuring ----------------------------------------------------------------------------------------------

    def training_s(self, device: int) -> dict[int, float]:
        """Return the seconds that a device trained in each round, if its launcher was a timed one."""
        lines = (self.launcher.processes[device].folder / TRAINING).read_text().splitlines()
        return {int(number): float(seconds) for number, seconds in (line.split() for line in lines)}

    def cpu_s(self, device: int) -> float:
        """Return the seconds of the processor that a device has used since it started."""
        after_name = Path(f"/proc/{self.launcher.processes[device].pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self, device: int) -> tuple[float, float]:
        """Return resident memory, and the device's fair share of it where pages are shared with others."""
        rollup = Path(f"/proc/{self.launcher.processes[device].pid}/smaps_rollup").read_text()
        kib = {name: int(rest.split()[0]) for name, _, rest in (row.partition(":") for row in rollup.splitlines()[1:])}
        return kib["Rss"] / 1024, kib["Pss"] / 1024


def time_training(log: Path) -> None:
    """Let every trainer of this process write down the seconds from the start of a training to its end."""
    untimed = Trainer.start

    def start(self: Trainer, version: Version, state: object) -> Future[Contribution]:
        began = time.perf_counter()

        def note(result: Future[Contribution]) -> None:
            if not result.cancelled():
                with log.open("a") as file:
                    file.write(f"{version.round} {time.perf_counter() - began:.6f}\n")

        training = untimed(self, version, state)
        training.add_done_callback(note)
        return training

    Trainer.start = start  # type: ignore[method-assign]


async def live(config: NodeConfig) -> str:
    return await prepare(config).run()


if __name__ == "__main__":
    settings = NodeConfig.from_file(Path(sys.argv[1]))
    time_training(Path(settings.state) / TRAINING)
    asyncio.run(live(settings))
