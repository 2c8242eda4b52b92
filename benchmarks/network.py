"""`python -m benchmarks.network`: what the real network costs, and how long it stands still when a device fails.

stall   from the signal (SIGKILL, SIGSTOP, or messages dropped by command) until a survivor holds the device for failed,
        and until the next closed round with all survivors and without it; for each role, at random moments
rounds  seconds per round of ten processes, and the longest local training among them in the same rounds
wire    bytes on the wire in a network namespace of its own, against messages times the size of a model (needs root)
memory  resident memory of a device, and its share of it
many    fifty devices: do they start, close rounds, survive the death of a head?
start   fifty devices with TLS that learn a detector: time and CPU until the first round of all
busy    minutes beside eight busy loops: is a live device declared failed?

Example: python -m benchmarks.network --only stall wire --repeats 20
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.common import machine
from benchmarks.fleets import Fleet, TimedLauncher
from tolfl.core.records import RunStarted, Traffic
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec

#: More rounds than any measurement waits for.
ENDLESS = 1_000_000
#: Clusters 0-1, 2-3 and 4-5.
ROLES = {"member": 1, "head": 2, "closer": 4}
STALL_GOAL_S = {"SIGKILL": 1.0, "SIGSTOP": 2.5, "cut": 2.5}
WIRE_GOAL = 0.02
BUSY_LOOPS = 8


def spec_for(devices: int, clusters: int, samples: int, rounds: int = ENDLESS, timing: str = "localhost") -> RunSpec:
    blobs = BlobsSpec(samples_per_device=samples, n_features=112, n_test=10, n_validation=0)
    return RunSpec(data="blobs", devices=devices, clusters=clusters, rounds=rounds, timing=timing, blobs=blobs)


def load() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


# -- stall ------------------------------------------------------------------------------------------------------


def stall(arguments: argparse.Namespace) -> None:
    rng = np.random.default_rng(arguments.seed)
    # A side of fewer than four does not train: whoever is cut off alone must not win with a history of its own.
    spec = msgspec.structs.replace(spec_for(6, 3, samples=1000), min_devices=4)
    print(
        "| failure of | by | n | noticed after, s, median | worst | next round after, s, median | worst | goal |",
        end="",
    )
    print(" quiet round, s |\n|---|---|---|---|---|---|---|---|---|")
    with Fleet(spec) as fleet:
        fleet.wait_for_round_of(fleet.devices, since_s=0.0)
        for how in arguments.by:
            for role, device in ROLES.items():
                taken = [one_stall(fleet, device, how, rng) for _ in range(arguments.repeats)]
                noticed, stalled, quiet = zip(*taken, strict=True)
                row = " | ".join(f"{statistics.median(of):.2f} | {max(of):.2f}" for of in (noticed, stalled))
                goal, quiet_s = STALL_GOAL_S[how], statistics.median(quiet)
                print(f"| {role} | {how} | {len(taken)} | {row} | {goal:g} | {quiet_s:.3f} |", flush=True)


def one_stall(fleet: Fleet, lost: int, how: str, rng: np.random.Generator) -> tuple[float, float, float]:
    """Hurt a device at a random moment of a round, and heal it.

    Returns
    -------
    Seconds until somebody noticed, seconds until the next round of the survivors, and a quiet round before. Nothing is
    subtracted: a detector is as fast as it is, however long rounds take.
    """
    quiet_s = statistics.median(fleet.wait_for_rounds(10))
    time.sleep(rng.uniform(0, quiet_s))
    at_s = fleet.now_s
    _HURT[how](fleet, lost)
    survivors = [device for device in fleet.devices if device != lost]
    stalled_s = fleet.wait_for_round_of(survivors, since_s=at_s).time_s - at_s
    fleet.wait_until(lambda: bool(noted(fleet, lost, at_s)), "somebody has noted the failure")
    noticed_s = min(noted(fleet, lost, at_s)) - at_s
    if how == "SIGKILL":
        fleet.wait_until(lambda: not fleet.launcher.processes[lost].is_running, "the killed process is gone")
    _HEAL[how](fleet, lost)
    fleet.wait_for_round_of(fleet.devices, since_s=fleet.now_s)
    return noticed_s, stalled_s, quiet_s


def noted(fleet: Fleet, lost: int, since_s: float) -> list[float]:
    """Return when others noted the failure of a device."""
    return [line.time_s for line in fleet.deaths(since_s) if line.device == lost and line.by != lost]


_HURT: dict[str, Callable[[Fleet, int], None]] = {
    "SIGKILL": lambda fleet, device: fleet.launcher.kill(device),
    "SIGSTOP": lambda fleet, device: fleet.launcher.freeze(device),
    "cut": lambda fleet, device: fleet.cut(device, is_cut=True),
}
_HEAL: dict[str, Callable[[Fleet, int], None]] = {
    "SIGKILL": lambda fleet, device: fleet.launcher.revive(device),
    "SIGSTOP": lambda fleet, device: fleet.launcher.thaw(device),
    "cut": lambda fleet, device: fleet.cut(device, is_cut=False),
}


# -- rounds and memory ------------------------------------------------------------------------------------------


def rounds(arguments: argparse.Namespace) -> None:
    print("| devices | clusters | samples each | s/round, median | worst | slowest training, median | ratio |")
    print("|---|---|---|---|---|---|---|")
    for samples in (200, 2000):
        with Fleet(spec_for(10, 5, samples), TimedLauncher) as fleet:
            fleet.wait_for_round_of(fleet.devices, since_s=0.0)
            since_s = fleet.now_s
            taken = fleet.wait_for_rounds(4 * arguments.repeats)
            numbers = [line.round or 0 for line in fleet.rounds(since_s)][1:]
            trained = [fleet.training_s(device) for device in fleet.devices]
        slowest = [max(seconds[number] for seconds in trained) for number in numbers]
        median, training = statistics.median(taken), statistics.median(slowest)
        row = f"{median:.3f} | {max(taken):.3f} | {training:.3f} | {median / training:.2f}"
        print(f"| 10 | 5 | {samples} | {row} |", flush=True)


def memory(arguments: argparse.Namespace) -> None:  # noqa: ARG001  (each measurement is given all options)
    print("| devices | resident, MiB, median | worst | share, MiB, median | worst |\n|---|---|---|---|---|")
    with Fleet(spec_for(10, 5, samples=200)) as fleet:
        fleet.wait_for_round_of(fleet.devices, since_s=0.0)
        fleet.wait_for_rounds(10)
        taken = [fleet.memory_mib(device) for device in fleet.devices]
    resident, share = zip(*taken, strict=True)
    row = " | ".join(f"{value:.0f}" for kind in (resident, share) for value in (statistics.median(kind), max(kind)))
    print(f"| 10 | {row} |", flush=True)


# -- wire -------------------------------------------------------------------------------------------------------


def wire(arguments: argparse.Namespace) -> None:
    if os.geteuid() or shutil.which("unshare") is None or shutil.which("ip") is None:
        print("skipped: needs root, unshare and ip")
        return
    inside = [sys.executable, "-m", "benchmarks.network", "--inside", "--repeats", str(arguments.repeats)]
    subprocess.run(["unshare", "--net", *inside], check=True)


def wire_inside(arguments: argparse.Namespace) -> None:
    """Compare what passed the loopback of this namespace with what the devices say they sent."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    print("A model of next to nothing shows what all else costs: connections, heartbeats, small messages, headers.\n")
    print(
        "| model, KB | rounds | models sent | times size, MB | on the wire, MB | over | goal | all else, KB a round |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for hidden in ((1,), (128, 64), (512, 128), (1024, 512)):
        spec = spec_for(6, 3, samples=50, rounds=10 * arguments.repeats, timing="lan")
        before = loopback_bytes()
        with Fleet(msgspec.structs.replace(spec, model=ModelSpec(hidden=hidden))) as fleet:
            fleet.wait_for_the_end()
        print(wire_row(fleet, spec.rounds, loopback_bytes() - before), flush=True)


def loopback_bytes() -> int:
    row = next(row for row in Path("/proc/net/dev").read_text().splitlines() if row.strip().startswith("lo:"))
    return int(row.split()[1])


def wire_row(fleet: Fleet, n_rounds: int, on_wire: int) -> str:
    model_bytes = next(line.model_bytes for line in fleet.lines if isinstance(line, RunStarted))
    n_sent = sum(len(line.sent) for line in fleet.lines if isinstance(line, Traffic))
    models = n_sent * model_bytes
    row = f"{model_bytes / 1e3:.0f} | {n_rounds} | {n_sent} | {models / 1e6:.1f} | {on_wire / 1e6:.1f}"
    goal = f"{WIRE_GOAL:.0%}" if model_bytes > 100e3 else "-"
    return f"| {row} | {on_wire / models - 1:.2%} | {goal} | {(on_wire - models) / n_rounds / 1e3:.1f} |"


# -- many and busy ----------------------------------------------------------------------------------------------


def many(arguments: argparse.Namespace) -> None:  # noqa: ARG001
    n_devices = 50
    print(
        "| devices | start to first round of all, s | s/round | head killed, all others go on after, s | falsely dead |"
    )
    print("|---|---|---|---|---|")
    spec = spec_for(n_devices, 5, samples=50, timing="lan")
    began = time.monotonic()
    with Fleet(msgspec.structs.replace(spec, min_devices=26)) as fleet:
        fleet.wait_for_round_of(fleet.devices, since_s=0.0, timeout_s=600)
        started_s = time.monotonic() - began
        quiet_s = statistics.median(fleet.wait_for_rounds(5, timeout_s=300))
        lost, at_s = 10, fleet.now_s
        fleet.launcher.kill(lost)
        survivors = [device for device in fleet.devices if device != lost]
        stalled = fleet.wait_for_round_of(survivors, since_s=at_s).time_s - at_s
        wrong = {line.device for line in fleet.deaths()} - {lost}
    print(f"| {n_devices} | {started_s:.0f} | {quiet_s:.2f} | {stalled:.2f} | {len(wrong)} |", flush=True)


def start(arguments: argparse.Namespace) -> None:
    print("| devices | start to first round of all, s | CPU of a device until then, s, median | worst | of all, s |")
    print("|---|---|---|---|---|")
    spec = msgspec.structs.replace(spec_for(arguments.devices, 5, samples=50), learn={"what": "detector"})
    began = time.monotonic()
    with Fleet(msgspec.structs.replace(spec, timing="lan"), is_insecure=False) as fleet:
        fleet.wait_for_round_of(fleet.devices, since_s=0.0, timeout_s=600)
        started_s, cpu_s = time.monotonic() - began, [fleet.cpu_s(device) for device in fleet.devices]
    row = f"{started_s:.0f} | {statistics.median(cpu_s):.2f} | {max(cpu_s):.2f} | {sum(cpu_s):.0f}"
    print(f"| {arguments.devices} | {row} |", flush=True)


def busy(arguments: argparse.Namespace) -> None:
    print("| devices | busy loops | seconds | rounds closed | longest round, s | falsely dead (goal: 0) |")
    print("|---|---|---|---|---|---|")
    with Fleet(spec_for(6, 3, samples=200, timing="lan")) as fleet:
        fleet.wait_for_round_of(fleet.devices, since_s=0.0)
        busy_s = 60 * arguments.minutes
        with busy_loops(BUSY_LOOPS):
            since_s = fleet.now_s
            fleet.wait_until(lambda: fleet.now_s > since_s + busy_s, "the time is over", busy_s + 60)
            closed, wrong = fleet.rounds(since_s), fleet.deaths(since_s)
    longest = max(later.time_s - earlier.time_s for earlier, later in itertools.pairwise(closed))
    print(f"| 6 | {BUSY_LOOPS} | {busy_s:g} | {len(closed)} | {longest:.2f} | {len(wrong)} |", flush=True)


@contextmanager
def busy_loops(n: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


MEASUREMENTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "stall": stall,
    "rounds": rounds,
    "wire": wire,
    "memory": memory,
    "many": many,
    "start": start,
    "busy": busy,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(MEASUREMENTS), default=list(MEASUREMENTS))
    parser.add_argument("--repeats", type=int, default=5, help="failures of each kind; rounds are some times as many")
    parser.add_argument(
        "--by", nargs="*", choices=list(STALL_GOAL_S), default=list(STALL_GOAL_S), help="kinds of stall"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--devices", type=int, default=50, help="of `start`")
    parser.add_argument("--minutes", type=float, default=1.0, help="of `busy`")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        wire_inside(arguments)
        return
    print(machine())
    for name in arguments.only:
        print(f"\n{name}, load of the machine {load()}\n", flush=True)
        MEASUREMENTS[name](arguments)


if __name__ == "__main__":
    main()
