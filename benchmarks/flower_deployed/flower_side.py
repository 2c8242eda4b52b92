"""Flower, deployed on this machine: a SuperLink, ten SuperNodes, and the app that they run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.flower_deployed.stalls import Round
from tolfl.core.spec import RunSpec
from tolfl.datasets import load
from tolfl.learners.registry import autoencoder_for
from tolfl.net.addresses import free_ports
from tolfl.runs.outcome import fleet_of

APP = Path(__file__).parent / "app"
#: Flower has an environment of its own: its pins do not fit ours.
BIN = Path(__file__).parents[2] / ".venv-flower" / "bin"
_LOOK_S = 0.05


class FlowerFleet:
    """Its processes; a SuperNode is killed with what it has started, as if it had a machine of its own."""

    def __init__(self, spec: RunSpec, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        self.n_devices = spec.devices
        self._port, *self._node_ports = free_ports(1 + spec.devices)
        self._environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_HOME": str(folder / "home"),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",  # how soon a message gets its process; Flower's own: 1 s
            "OMP_NUM_THREADS": "1",
        }
        self.superlink: subprocess.Popen[bytes] | None = None
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._write_files()

    def _write_files(self) -> None:
        (self.folder / "home").mkdir(parents=True)
        connection = f'[superlink]\ndefault = "bench"\n\n[superlink.bench]\naddress = "127.0.0.1:{self._port}"\n'
        (self.folder / "home" / "config.toml").write_text(f"{connection}insecure = true\n")
        data = load(self.spec)
        for device in range(self.n_devices):
            np.save(self.folder / f"samples-{device}.npy", data.slice_of(device))
        architecture = autoencoder_for(fleet_of(self.spec, data))
        self._module = architecture.to_module(architecture.initial(self.spec.seed))
        with torch.no_grad():
            np.save(self.folder / "model.npy", nn.utils.parameters_to_vector(self._module.parameters()).numpy())

    def loss(self) -> float:
        """Return the mean training loss of the newest model, dropout off."""
        samples = torch.from_numpy(load(self.spec).pool)
        with torch.no_grad():
            nn.utils.vector_to_parameters(
                torch.from_numpy(np.load(self.folder / "model.npy")), self._module.parameters()
            )
            return float((self._module(samples) - samples).square().sum(dim=1).mean())

    # -- processes ----------------------------------------------------------------------------------------------

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(BIN / arguments[0]), *arguments[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def start_superlink(self) -> None:
        self.superlink = self._start(
            "superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self._port),
            "--database", str(self.folder / "superlink.db"), "--disable-runtime-dependency-installation",
        )  # fmt: skip
        self.wait_until(lambda: "127.0.0.1" in self.log("superlink"), "the SuperLink listens", 60)

    def start_node(self, device: int) -> None:
        self.nodes[device] = self._start(
            f"node-{device}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self._port}",
            "--host", "127.0.0.1", "--port", str(self._node_ports[device]),
            "--node-config", f"partition-id={device} num-partitions={self.n_devices}",
        )  # fmt: skip

    def submit(self, devices: int | None = None) -> None:
        """Start a run of the app."""
        spec, model = self.spec, self.spec.model
        widths = [spec.blobs.n_features, *model.hidden, model.code, *reversed(model.hidden), spec.blobs.n_features]
        config = {
            "folder": f'"{self.folder}"',
            "devices": devices or self.n_devices,
            "widths": f'"{",".join(map(str, widths))}"',
            "dropout": float(model.dropout),
            "lr": float(spec.train.lr or 0),
            "batch-size": spec.train.batch_size,
        }
        self.flwr("run", str(APP), "bench", "--run-config", " ".join(f"{key}={value}" for key, value in config.items()))

    def flwr(self, *arguments: str) -> str:
        command = [str(BIN / "flwr"), *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"flwr {arguments[0]} failed\n{done.stdout}{done.stderr}")
        return done.stdout

    def statuses(self) -> list[str]:
        """Return what the SuperLink says of its runs, the newest first."""
        runs = json.loads(self.flwr("ls", "bench", "--format", "json"))["runs"]
        return [str(run["status"]) for run in runs]

    def kill_node(self, device: int) -> None:
        """Kill a SuperNode and what it has started: its machine loses power."""
        _kill(self.nodes.pop(device), self._node_ports[device])

    def kill_superlink(self) -> None:
        """Kill the machine of the SuperLink, on which the ServerApp runs, too."""
        assert self.superlink is not None
        _kill(self.superlink, self._port)

    def kill_server_app(self) -> None:
        """Kill the process of the ServerApp alone."""
        found = [pid for pid, command in _served_by(self._port).items() if "flwr-serverapp" in command]
        if len(found) != 1:
            raise SystemExit(f"there are {len(found)} ServerApps")
        os.kill(found[0], signal.SIGKILL)

    def stop(self) -> None:
        for device in list(self.nodes):
            self.kill_node(device)
        if self.superlink is not None:
            self.kill_superlink()

    # -- looking ------------------------------------------------------------------------------------------------

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def rounds(self) -> list[Round]:
        """Return the rounds as the app noted them when they had ended; round 0 is the start of a run."""
        path = self.folder / "rounds.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [Round(line["time"], line["clients"], line["round"]) for line in lines]

    def wait_until(self, is_so: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > deadline:
                logs = self.log("superlink")[-2000:] + self.log("node-0")[-1000:]
                raise SystemExit(f"waited {timeout_s:g} s until {what}\n{self.rounds()[-3:]}\n{logs}")
            time.sleep(_LOOK_S)

    def wait_for_rounds(self, n: int, clients: int, timeout_s: float = 300) -> list[Round]:
        """Wait for n more rounds with so many clients; return what was noted meanwhile, and the line before."""
        first = max(len(self.rounds()) - 1, 0)

        def whole() -> list[Round]:
            return [one for one in self.rounds()[first + 1 :] if one.n_devices == clients and one.number]

        self.wait_until(lambda: len(whole()) >= n, f"{n} rounds of {clients} clients", timeout_s)
        return self.rounds()[first:]


def _served_by(port: int) -> dict[int, str]:
    """Return the processes that a SuperLink or SuperNode has started, which talk to its port, with their commands."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if f"--runtime-api-address 127.0.0.1:{port} " in command:
                    found[int(entry.name)] = command
    return found


def _kill(process: subprocess.Popen[bytes], port: int) -> None:
    process.kill()
    process.wait()
    for pid in _served_by(port):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
