"""One Flower app, unchanged, on Flower and on a fleet: what is left when the server is killed after three rounds?

    make bench-flower-app                  # both sides on this machine, one after the other, the same app and flwr
    make bench-flower-app FLOWER=--cost    # six devices: a round beside the app's own work, takeovers of both roles

Flower's side is a SuperLink with a database and three SuperNodes; the SuperLink is killed with what it has started, and
started again from its database after a while. The fleet's side is three devices with TLS; the head is killed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tolfl.core.records import RoundClosed
from tolfl.core.spec import RunSpec
from tolfl.net.addresses import free_ports
from tolfl.net.launcher import Launcher

ROOT = Path(__file__).resolve().parents[1]
APP = ROOT / "tests" / "flower" / "apps" / "linear"
ENVIRONMENT = ROOT / ".venv-flwr-newest"
N_DEVICES = 3
_LOOK_S = 0.05


def waited(is_so: Callable[[], bool], timeout_s: float) -> float | None:
    """Return after how many seconds something was so; None if it never was."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < timeout_s:
        if is_so():
            return time.monotonic() - began_s
        time.sleep(_LOOK_S)
    return None


class FlowerSide:
    """A SuperLink and its SuperNodes."""

    def __init__(self, folder: Path, n_rounds: int) -> None:
        self.folder, self.n_rounds = folder, n_rounds
        self.port, *self.node_ports = free_ports(1 + N_DEVICES)
        self.progress = folder / "rounds.txt"
        (folder / "home").mkdir(parents=True)
        connection = f'[superlink]\ndefault = "bench"\n\n[superlink.bench]\naddress = "127.0.0.1:{self.port}"\n'
        (folder / "home" / "config.toml").write_text(f"{connection}insecure = true\n")
        self.environment = {
            **os.environ,
            "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_HOME": str(folder / "home"),
            "OMP_NUM_THREADS": "1",
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(ENVIRONMENT / "bin" / arguments[0]), *arguments[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def start_superlink(self) -> None:
        self.start(
            "superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self.port),
            "--database", str(self.folder / "superlink.db"), "--disable-runtime-dependency-installation",
        )  # fmt: skip
        waited(lambda: "127.0.0.1" in (self.folder / "superlink.log").read_text(), 60)

    def start_nodes(self) -> None:
        for device, port in enumerate(self.node_ports):
            self.start(
                f"node-{device}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.port}",
                "--host", "127.0.0.1", "--port", str(port),
                "--node-config", f"partition-id={device} num-partitions={N_DEVICES}",
            )  # fmt: skip

    def flwr(self, *arguments: str) -> str:
        command = [str(ENVIRONMENT / "bin" / "flwr"), *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"flwr {arguments[0]} failed\n{done.stdout}{done.stderr}")
        return done.stdout

    def submit(self) -> None:
        config = f"num-server-rounds={self.n_rounds} progress='{self.progress}' min-nodes={N_DEVICES}"
        self.flwr("run", str(APP), "bench", "--run-config", config)

    @property
    def rounds_done(self) -> int:
        return int(self.progress.read_text().split()[-1]) if self.progress.exists() else -1

    @property
    def status(self) -> str:
        return str(json.loads(self.flwr("ls", "bench", "--format", "json"))["runs"][0]["status"])

    def kill(self, name: str) -> None:
        """Kill a process and all that it has started: its machine loses power."""
        process = self.processes.pop(name)
        for pid in [*_below(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)


def _below(pid: int) -> list[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        children = [
            int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()
        ]
        return [*children, *(inner for child in children for inner in _below(child))]
    return []


def flower(folder: Path, n_rounds: int, timeout_s: float) -> list[str]:
    side = FlowerSide(folder, n_rounds)
    try:
        side.start_superlink()
        side.start_nodes()
        side.submit()
        if waited(lambda: side.rounds_done >= 0, 120) is None:
            raise SystemExit(f"Flower's run never began; see {folder}/*.log")
        took_s = waited(lambda: side.rounds_done >= 3, 300)
        if took_s is None:
            raise SystemExit(f"Flower came to round {side.rounds_done}; see {folder}/*.log")
        before = side.rounds_done
        side.kill("superlink")
        waited(lambda: side.rounds_done > before, timeout_s)
        without = side.rounds_done - before
        side.start_superlink()
        waited(lambda: side.rounds_done > before + without, timeout_s)
        again = side.rounds_done - before - without
        return [
            f"{took_s / 3:.1f} s per round before the kill",
            f"{without} rounds in {timeout_s:g} s after the SuperLink was killed",
            f"{again} rounds in {timeout_s:g} s after its restart from its database; status {side.status}",
            f"{len(list(folder.rglob('final_weights.npy')))} copies of the model saved",
        ]
    finally:
        side.stop()


def fleet(folder: Path, n_rounds: int) -> list[str]:
    learn = {
        "what": f"flower:{APP}",
        "python": str(ENVIRONMENT),
        "run_config": f"num-server-rounds={n_rounds}",
    }
    launcher = Launcher(RunSpec(devices=N_DEVICES, clusters=N_DEVICES, learn=learn), folder)
    closed: list[RoundClosed] = []
    killed_s, head = 0.0, -1
    try:
        launcher.start()
        for view in launcher:
            closed += [line for line in view.news if isinstance(line, RoundClosed)]
            if head < 0 and view.rounds_done >= 7:  # the start, and three rounds of training and evaluation
                head, killed_s = view.heads[0], launcher.now_s
                launcher.kill(head)
    finally:
        launcher.stop()
    after = sorted(line.time_s for line in closed if line.time_s > killed_s and head not in line.included)
    before = sorted(line.time_s for line in closed if line.time_s <= killed_s and (line.round or 0) >= 1)
    files = [folder / "devices" / str(device) / "final_weights.npy" for device in launcher.survivors]
    names = {hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in files if path.exists()}
    rounds_s = (before[-1] - before[0]) / max(1, len(before) - 1)
    return [
        f"{2 * rounds_s:.2f} s per round (training and evaluation) before the kill",
        f"the next round was closed {after[0] - killed_s:.2f} s after head {head} was killed",
        f"{max(line.round or 0 for line in closed) // 2} of {n_rounds} rounds done",
        f"{len(files)} copies of the model saved by the app's own code, {len(names)} different",
    ]


def loop_s(scratch: Path, n_rounds: int, config: str) -> float:
    """Return the seconds of Flower's own loop over the app: six clients called one by one, in one process."""
    out = scratch / f"loop-{len(list(scratch.iterdir()))}"
    out.mkdir()
    command = [str(ENVIRONMENT / "bin" / "python"), str(APP.parent / "flower_loop.py"), str(APP), "6", "0", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    began_s = time.monotonic()
    subprocess.run(
        [*command, f"num-server-rounds={n_rounds}", config], check=True, env=environment, capture_output=True
    )
    return time.monotonic() - began_s


def cost(scratch: Path, n_rounds: int) -> list[str]:
    """Return what a round takes beside the same clients called one by one, and how long the loss of a role holds it up.

    The difference is pipe, processes, TLS and chain, and with few cores what twelve processes cost each other.
    """
    lines = []
    for n_numbers in (0, 62_000, 600_000):
        config = f"padding={n_numbers}"
        own_s = (loop_s(scratch, n_rounds, config) - loop_s(scratch, 1, config)) / (n_rounds - 1)
        learn = {
            "what": f"flower:{APP}",
            "python": str(ENVIRONMENT),
            "run_config": f"num-server-rounds={2 * n_rounds} {config}",
        }
        launcher = Launcher(RunSpec(devices=6, clusters=3, learn=learn), scratch / f"cost-{n_numbers}")
        closed: list[RoundClosed] = []
        kills: list[tuple[str, int, float]] = []
        try:
            launcher.start()
            for view in launcher:
                closed += [line for line in view.news if isinstance(line, RoundClosed)]
                if len(kills) < 2 and view.rounds_done >= 2 * n_rounds + len(kills) * n_rounds:
                    role = ("head", "closer")[len(kills)]
                    device = [head for head in view.heads if head not in {one for _, one, _ in kills}][-len(kills)]
                    kills.append((role, device, launcher.now_s))
                    launcher.kill(device)
        finally:
            launcher.stop()
        firsts = [min(line.time_s for line in closed if line.round == index) for index in range(1, 2 * n_rounds)]
        round_s = 2 * statistics.median(after - before for before, after in itertools.pairwise(firsts))
        lines.append(
            f"{7 + n_numbers:,} numbers: {round_s:.3f} s per round (training and evaluation), "
            f"{own_s:.3f} s in Flower's loop in one process: {round_s - own_s:.3f} s more"
        )
        for role, device, at_s in kills:
            after = min(line.time_s for line in closed if line.time_s > at_s and device not in line.included)
            lines.append(f"  {role} {device} killed: the next round without it was closed {after - at_s:.2f} s later")
        names = {
            hashlib.sha256((one.folder / "final_weights.npy").read_bytes()).hexdigest()
            for one in launcher.processes
            if one.device in launcher.survivors
        }
        lines.append(f"  {len(launcher.survivors)} survivors, {len(names)} different model files")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--timeout", type=float, default=40.0, help="seconds to wait for Flower after a kill or a restart"
    )
    parser.add_argument("--cost", action="store_true", help="what a round of six devices costs, and takeovers")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-flower-app-") as scratch:
        if arguments.cost:
            print("\n".join(cost(Path(scratch), arguments.rounds)))
            return
        for name, lines in (
            ("fleet", fleet(Path(scratch) / "fleet", arguments.rounds)),
            ("Flower", flower(Path(scratch) / "flower", arguments.rounds, arguments.timeout)),
        ):
            for line in lines:
                print(f"{name:<7} {line}")


if __name__ == "__main__":
    main()
