"""`python -m benchmarks.flower_deployed`: deployed Flower and a deployed fleet, on the same work, in turns.

rounds  seconds per round of ten devices; the longest round when a client is killed (SIGKILL), less the median quiet one
server  the server is killed, its ServerApp alone or the whole SuperLink: what is left, and what brings it back

Flower's environment is the one of `make bench-flower` (.venv-flower); this runs in tolfl's own. Flower: a SuperLink
with a database file and ten SuperNodes, plain text; tolfl: what `tolfl up` starts, mutual TLS.

Example: python -m benchmarks.flower_deployed --only rounds --repeats 2
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.common import machine, spread
from benchmarks.flower_deployed import tolfl_side
from benchmarks.flower_deployed.flower_side import BIN, FlowerFleet
from benchmarks.flower_deployed.stalls import disturbed_s, lengths
from benchmarks.simulator import BATCH_SIZE, LR, N_FEATURES, N_SAMPLES, spec_for
from tolfl.core.contribution import GLOBAL
from tolfl.core.spec import RunSpec
from tolfl.datasets import load
from tolfl.sim.simulation import run

#: More rounds than anybody waits for.
ENDLESS = 1_000_000
#: The two draw batches and dropout in different ways; their losses after the same rounds may differ by this share.
TOLERANCE = 0.1
#: How long the benchmark looks whether rounds go on without a server; some quiet rounds of Flower's.
WATCH_S = 60.0


@dataclass
class Measured:
    """One deployment of one side."""

    startup_s: float
    quiet: list[float]
    killed: dict[str, list[float]]  #: who -> the longest round from each kill to the first one without the lost device


def spec(n_devices: int) -> RunSpec:
    return msgspec.structs.replace(spec_for(n_devices, N_SAMPLES // n_devices, ENDLESS), min_devices=2)


# -- Flower -----------------------------------------------------------------------------------------------------


def started(folder: Path, n_devices: int) -> tuple[FlowerFleet, float]:
    fleet, began = FlowerFleet(spec(n_devices), folder), time.monotonic()
    try:
        fleet.start_superlink()
        for device in range(n_devices):
            fleet.start_node(device)
        fleet.submit()
        fleet.wait_for_rounds(1, n_devices)
    except BaseException:
        fleet.stop()
        raise
    return fleet, time.monotonic() - began


def check_same_work(spec: RunSpec, theirs: float, n_rounds: int) -> None:
    """Compare the training loss with that of a simulated run of as many rounds: batches are drawn in different ways."""
    alike = msgspec.structs.replace(spec, rounds=n_rounds)
    data = load(alike)
    mine = float(run(alike)[0].models[GLOBAL].anomaly_score(data.pool).mean())
    line = f"training loss after {n_rounds} rounds: Flower {theirs:.3f}, tolfl {mine:.3f}"
    print(f"<!-- {line} -->", flush=True)
    if not abs(theirs / mine - 1) < TOLERANCE:
        raise SystemExit(f"{line}: that is not the same work")


def flower_rounds(folder: Path, n_devices: int, quiet_rounds: int, kills: int, rng: np.random.Generator) -> Measured:
    """Measure quiet rounds, then kill one client after the other; none comes back, so later rounds have less to do."""
    fleet, startup_s = started(folder, n_devices)
    disturbed = []
    try:
        quiet = lengths(fleet.wait_for_rounds(quiet_rounds, n_devices)[-quiet_rounds - 1 :])
        loss, n_rounds = fleet.loss(), fleet.rounds()[-1].number
        for lost in range(kills):
            time.sleep(rng.uniform(0, statistics.median(quiet)))
            at_s, n_left = time.time(), n_devices - 1 - lost
            fleet.kill_node(lost)
            fleet.wait_for_rounds(1, n_left)
            disturbed.append(disturbed_s(fleet.rounds(), at_s, n_left))
            print(f"<!-- a client was killed: {disturbed[-1]:.1f} s -->", flush=True)
    finally:
        fleet.stop()
    check_same_work(fleet.spec, loss, n_rounds)
    return Measured(startup_s, quiet, {"client": disturbed})


def tolfl_rounds(folder: Path, n_devices: int, quiet_rounds: int, kills: int, rng: np.random.Generator) -> Measured:
    return Measured(*tolfl_side.measure(spec(n_devices), folder, 10 * quiet_rounds, kills, rng))


def flower_server(folder: Path, n_devices: int) -> list[str]:
    """Kill the ServerApp, then the SuperLink; return a row for each."""
    fleet, _ = started(folder, n_devices)
    rows = []
    try:
        for what, kill in {"ServerApp": fleet.kill_server_app, "SuperLink": fleet.kill_superlink}.items():
            before = len(fleet.rounds())
            kill()
            time.sleep(WATCH_S)
            alone = len(fleet.rounds()) - before
            nodes = sum(process.poll() is None for process in fleet.nodes.values())
            by_itself = "-"
            if what == "SuperLink":
                fleet.start_superlink()
                time.sleep(WATCH_S)
                by_itself = str(len(fleet.rounds()) - before - alone)
            said = fleet.statuses()[0]
            began = time.monotonic()
            fleet.submit()
            fleet.wait_for_rounds(1, n_devices)
            again_s = time.monotonic() - began
            rows.append(f"| Flower's {what} | {alone} | {nodes} | {by_itself} | {said} | {again_s:.0f} |")
    finally:
        fleet.stop()
    return rows


# -- tables -----------------------------------------------------------------------------------------------------


def rounds(arguments: argparse.Namespace, folder: Path) -> None:
    sides: dict[str, list[Measured]] = {name: [] for name in arguments.sides}
    rng = np.random.default_rng(0)  # of the moment in a round at which somebody is killed
    measures = {"Flower": flower_rounds, "tolfl": tolfl_rounds}
    for repeat in range(arguments.repeats):
        for name, side in sides.items():
            place = folder / f"{name}-{repeat}"
            side.append(measures[name](place, arguments.devices, arguments.quiet, arguments.kills, rng))
            print(f"<!-- {name} {side[-1]} -->", flush=True)
    print("\n| | start to the end of the first round, s | s/round, median (range) | rounds |\n|---|---|---|---|")
    for name, side in sides.items():
        quiet = [second for one in side for second in one.quiet]
        print(f"| {name} | {spread([one.startup_s for one in side])} | {spread(quiet)} | {len(quiet)} |")
    print("\n| killed | stall, s, median (range) | n |\n|---|---|---|")
    for name, side in sides.items():
        for role in side[0].killed:
            stalls = [seconds - statistics.median(one.quiet) for one in side for seconds in one.killed[role]]
            print(f"| {name}: a {role} | {spread(stalls)} | {len(stalls)} |", flush=True)


def server(arguments: argparse.Namespace, folder: Path) -> None:
    print(
        f"| killed | rounds in the {WATCH_S:g} s after | SuperNodes left | rounds in {WATCH_S:g} s after its restart "
        "| what `flwr ls` says of the run | from a new `flwr run` to its first round, s |\n|---|---|---|---|---|---|"
    )
    print(*flower_server(folder / "flower-server", arguments.devices), sep="\n", flush=True)


PARTS = {"rounds": rounds, "server": server}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--sides", nargs="*", choices=["Flower", "tolfl"], default=["Flower", "tolfl"])
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=1, help="deployments of each side")
    parser.add_argument("--kills", type=int, default=3, help="of each kind in one deployment")
    parser.add_argument("--quiet", type=int, default=3, help="quiet rounds of Flower in one repeat; of tolfl ten times")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not (BIN / "flower-superlink").exists():
        sys.exit(f"there is no Flower in {BIN}; make bench-flower makes its environment")
    version = subprocess.run([BIN / "flower-superlink", "--version"], capture_output=True, text=True, check=True).stdout
    print(machine(version.strip()))
    print(
        f"{N_SAMPLES} samples of {N_FEATURES} features on {arguments.devices} devices, "
        f"batch {BATCH_SIZE}, lr {LR}, one epoch; load {os.getloadavg()[0]:.1f}\n",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="tolfl-beside-flower-", ignore_cleanup_errors=True) as folder:
        for name in arguments.only:
            PARTS[name](arguments, Path(folder))
            print()


if __name__ == "__main__":
    main()
