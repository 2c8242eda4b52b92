"""Fleets of `tolfl node` processes over TLS, each with a table of its own, and what their records lead to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.net.fleet_processes import PATIENCE_S, kill_all
from tests.net.nodes import free_addresses
from tests.net.replay import chain_to, lines_of_devices, state_after
from tolfl.core.spec import RunSpec
from tolfl.datasets import load_raw
from tolfl.datasets.federated import Samples
from tolfl.datasets.own_table import own_rows, table_spec
from tolfl.detect.detector_learner import DETECTOR_FILE
from tolfl.learners import Fleet
from tolfl.learners.registry import scaled_learner_of
from tolfl.net.enrolment import Authority
from tolfl.net.node_config import NodeConfig
from tolfl.net.storage import read_round, round_path

COLUMNS = ("warm", "flow", "load", *(f"mode (hash {place})" for place in range(32)), "mode (rarity)")

#: How their tables are written, and what is not learned from.
SCHEMA = {"decimal": ",", "left_out": {"serial": "a counter"}}


def write_table(path: Path, device: int, n_rows: int = 60) -> None:
    """Write the readings of one device: its columns in an order of its own, and one that the fleet does not use."""
    rng = np.random.default_rng(device)
    numbers = rng.normal(rng.normal(size=3), 1.0, size=(n_rows, 3)).round(4)
    columns: dict[str, Sequence[object]] = {
        "warm": numbers[:, 0].tolist(),
        "flow": numbers[:, 1].tolist(),
        "load": numbers[:, 2].tolist(),
        "mode": rng.choice(["eco", "full"], n_rows).tolist(),
        "serial": list(range(n_rows)),
    }
    order = list(rng.permutation(list(columns)))
    rows = zip(*(columns[name] for name in order), strict=True)
    path.write_text("\n".join([",".join(order), *(",".join(map(str, row)) for row in rows)]) + "\n")


class OwnTables:
    """Devices that share a specification and nothing else."""

    def __init__(self, folder: Path, n_devices: int, learn: Mapping[str, object], **fields: object) -> None:
        agreed: dict[str, object] = {
            "columns": list(COLUMNS),
            "names": [f"site-{device}" for device in range(n_devices)],
        }
        agreed["schema"] = SCHEMA
        self.folder, self.devices = folder, list(range(n_devices))
        self.spec = RunSpec(
            devices=n_devices,
            clusters=max(1, n_devices // 2),
            timing="lan",
            learn={"what": "detector", **agreed, **learn},
            **fields,  # type: ignore[arg-type]
        )
        self.processes: dict[int, subprocess.Popen[str]] = {}
        (folder / "spec.toml").write_text(self.spec.to_toml())
        authority, addresses = Authority.create(folder / "fleet", "plant"), free_addresses(n_devices)
        for device in self.devices:
            state = self.state(device)
            state.mkdir(parents=True)
            write_table(state / "table.csv", device)
            credentials = authority.issue(f"device-{device}", device)
            config = NodeConfig(
                device=device,
                listen=addresses[device],
                state=".",
                spec="../../spec.toml",
                data="table.csv",
                peers={str(peer): address for peer, address in enumerate(addresses) if peer != device},
                start_timeout_s=PATIENCE_S,
                credentials=str(credentials),
            )
            (state / "node.toml").write_text(config.to_toml())

    def state(self, device: int) -> Path:
        return self.folder / "devices" / str(device)

    def start(self, *devices: int) -> None:
        for device in devices or self.devices:
            command = [sys.executable, "-m", "tolfl", "node", "--config", str(self.state(device) / "node.toml")]
            self.processes[device] = subprocess.Popen(
                command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )

    def n_closed(self) -> int:
        """Return how many rounds the devices have written down."""
        paths = (self.folder / "devices").glob("*/records.jsonl")
        return sum(path.read_bytes().count(b'"kind":"round_closed"') for path in paths)

    def ends(self) -> dict[int, tuple[int, str]]:
        """Wait for the end of all; return exit codes, and what was said last."""
        said = {device: process.communicate(timeout=PATIENCE_S)[1] for device, process in self.processes.items()}
        return {device: (self.processes[device].returncode, text) for device, text in said.items()}

    def file_of(self, device: int) -> bytes:
        return (self.state(device) / DETECTOR_FILE).read_bytes()

    def rows_of(self, device: int) -> Samples:
        own = table_spec(self.spec, str(self.state(device) / "table.csv"))
        return own_rows(load_raw(own), own, COLUMNS)

    def replayed_file(self, survivor: int) -> bytes:
        """Return the detector that the records of all lead to, along the history that a survivor holds."""
        record, _ = read_round(round_path(self.state(survivor)))
        chain = chain_to(record.version.history, lines_of_devices(self.folder))
        learner = scaled_learner_of(Fleet(self.spec, (len(COLUMNS),), COLUMNS, self.spec.learn["names"], form=SCHEMA))
        state = state_after(chain, learner, self.spec.seed, self.rows_of, is_exact=True)
        return learner.results(state)["detector"].files()[DETECTOR_FILE]

    def close(self) -> None:
        kill_all([process.pid for process in self.processes.values() if process.poll() is None])
        for process in self.processes.values():
            process.wait()


@contextmanager
def own_tables(folder: Path, n_devices: int, learn: Mapping[str, object], **fields: object) -> Iterator[OwnTables]:
    """Give a fleet that is not started yet; whatever happens, nothing of it remains."""
    fleet = OwnTables(folder, n_devices, learn, **fields)
    try:
        yield fleet
    finally:
        fleet.close()
