"""Three devices learn together, then each watches a capture that grows; one is killed, all learn anew."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.net.fleet_processes import PATIENCE_S, wait_until
from tests.net.own_tables import OwnTables, own_tables
from tests.signals.capture_files import A, B, C, Frame, ethernet, ipv4, pcap
from tests.watch.alarms import lines_of
from tolfl.net.node_config import NodeConfig, WatchConfig
from tolfl.signals.capture_rows import feature_names
from tolfl.signals.link_layers import PacketRows
from tolfl.signals.windows import UDP
from tolfl.watch.kept_rows import kept_rows

SECOND = 10**9
START = 1_700_000_000


def frames(first: int, n_seconds: int, per_second: int, seed: int) -> list[Frame]:
    rng = np.random.default_rng([seed, first])
    found = []
    for second in range(first, first + n_seconds):
        for place in np.sort(rng.integers(0, SECOND, rng.poisson(per_second))).tolist():
            payload = ipv4(UDP, bytes(int(rng.integers(20, 200))))
            pair = [(A, B), (B, A), (A, C)][int(rng.integers(3))]
            found.append(Frame(ethernet(0x0800, payload, *pair), (START + second) * SECOND + place))
    return found


def grow(path: Path, *more: list[Frame]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(pcap(some)[24:] for some in more))


def watching(fleet: OwnTables, run: int = 1) -> None:
    """Let devices learn from and watch captures in place of tables."""
    spec = msgspec.structs.replace(fleet.spec, run=run)
    (fleet.folder / "spec.toml").write_text(spec.to_toml())
    for device in fleet.devices:
        folder = fleet.state(device)
        config = NodeConfig.from_file(folder / "node.toml")
        watch = WatchConfig(source=str(folder / "now.pcap"), follow=True, json=str(folder / "alarms.jsonl"))
        config = msgspec.structs.replace(config, data=str(folder / "usual.pcap"), watch=watch)
        (folder / "node.toml").write_text(config.to_toml())
        if run == 1:
            (folder / "usual.pcap").write_bytes(pcap(frames(0, 90, 20, device)))
            (folder / "now.pcap").write_bytes(pcap([]))


def has_opened(fleet: OwnTables, device: int, n_groups: int) -> bool:
    lines = lines_of(fleet.state(device) / "alarms.jsonl")
    return sum((line["event"], line["severity"]) == ("open", "high") for line in lines) == n_groups


def said_by(fleet: OwnTables, device: int) -> dict[int, tuple[str, int]]:
    """Return, of the status of one device: who is heard of, with the last word of each and the number of its alarms."""
    command = [sys.executable, "-m", "tolfl", "status", str(fleet.state(device) / "node.toml"), "--format", "json"]
    (said,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    answers = {said["device"]: said["watch"]} | {other["device"]: other["watch"] for other in said["others"]}
    return {
        one: ("silent", 0) if watch is None else (watch["latest"][0]["event"], len(watch["latest"]))
        for one, watch in sorted(answers.items())
    }


def shown_by(fleet: OwnTables, device: int) -> dict[int, tuple[int, bool]]:
    """Return, of the page of one device's address: how many alarms of each are there, and whether it is silent."""
    config = NodeConfig.from_file(fleet.state(device) / "node.toml")
    command = ["dashboard", config.listen, "--credentials", config.credentials, "--port", "0"]
    page = subprocess.Popen([sys.executable, "-m", "tolfl", *command], stderr=subprocess.PIPE, text=True)
    try:
        assert page.stderr is not None
        address = page.stderr.readline().split()[1]
        with urllib.request.urlopen(f"{address}api/lines", timeout=PATIENCE_S) as events:
            while events.readline() != b"event: alarms\n":
                pass
            _, data = events.readline(), events.readline()
        devices = json.loads(data.removeprefix(b"data: "))["devices"]
        return {one["device"]: (len(one["alarms"]), one["is_silent"]) for one in devices}
    finally:
        page.kill()
        page.communicate()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_devices_watch_by_themselves_whoever_is_down_and_learn_anew(tmp_path: Path) -> None:
    columns = list(feature_names(PacketRows.features))
    with own_tables(tmp_path, 3, {"columns": columns}) as fleet:
        watching(fleet)
        fleet.start()
        for device in fleet.devices:
            wait_until((fleet.state(device) / "detector.tolfl").exists, f"a detector of {device}")
            grow(fleet.state(device) / "now.pcap", frames(100, 40, 20, device), frames(140, 5, 400, device))
            grow(fleet.state(device) / "now.pcap", frames(145, 30, 20, device))
        for device in fleet.devices:
            wait_until(partial(has_opened, fleet, device, 1), f"the first alarm of {device}")

        fleet.processes[0].send_signal(signal.SIGKILL)
        fleet.processes[0].communicate()
        for device in fleet.devices:  # the killed one, too: it reads on when it is back
            grow(fleet.state(device) / "now.pcap", frames(180, 5, 400, device), frames(185, 30, 20, device))
        for device in (1, 2):
            wait_until(partial(has_opened, fleet, device, 2), f"the second alarm of {device}")
        told = said_by(fleet, 1)
        assert {one: n_groups for one, (_, n_groups) in told.items()} == {0: 0, 1: 2, 2: 2}, "0 is killed, and named"
        assert told[0] == ("silent", 0)
        assert shown_by(fleet, 1) == {0: (0, True), 1: (2, False), 2: (2, False)}
        began_s = time.monotonic()
        fleet.start(0)
        wait_until(partial(has_opened, fleet, 0, 2), "the alarm of the device that was killed")
        assert time.monotonic() - began_s < 60
        for process in fleet.processes.values():
            process.send_signal(signal.SIGTERM)
        fleet.ends()
        kept = kept_rows(fleet.state(1))
        assert kept is not None
        assert len(kept[1]) > 60
        assert kept[2] >= 10
        watching(fleet, run=2)
        fleet.start()
        for device in fleet.devices:
            wait_until((fleet.state(device) / "run-2/detector.tolfl").exists, f"run 2 of {device}")
        for process in fleet.processes.values():
            process.send_signal(signal.SIGTERM)
        said = fleet.ends()

    assert {device: text for device, (_, text) in said.items() if "rows that raised no alarm" not in text} == {}
    assert len({(fleet.state(device) / "run-2/detector.tolfl").read_bytes() for device in fleet.devices}) == 1
