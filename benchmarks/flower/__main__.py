"""`make bench-flower`: seconds per round against Flower's simulation engine on Ray, on the same work.

python -m benchmarks.flower [--devices 10 100 1000] [--rounds 6] [--repeats 2] [--tune]

Each measurement is a process of its own, and the two sides take turns. A round is timed where it ends, on the server's
side; the first two are left out. Start-up is what the first round takes longer than a later one, from the call on
(imports left out): Ray and its workers there, the data on both sides.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import machine, spread
from benchmarks.flower.app import Settings, architecture_of, simulate
from benchmarks.simulator import BATCH_SIZE, LR, N_FEATURES, N_SAMPLES, ours, spec_for
from tolfl.core.contribution import GLOBAL
from tolfl.datasets import load
from tolfl.sim.simulation import run

GOALS = {10: 8, 100: 40, 1000: 200}
#: Timed rounds of Flower in one repeat; a round of 1000 devices takes it half a minute. tolfl: three times as many.
ROUNDS = {10: 12, 100: 8, 1000: 3}
WARM_UP = 2
#: The two draw batches and dropout in different ways; their losses after the same rounds may differ by this share.
TOLERANCE = 0.05

#: What `--tune` tries. One actor is slower; the others differ by less than a busy machine adds.
TRIED = (Settings(), Settings(flat=False), Settings(actors=1), Settings(actors=3), Settings(pull_s=0.1))
#: Looking more often was no faster with a thousand devices, so Flower's own choice stays there.
BEST = {1000: Settings(pull_s=0.1)}


@dataclass(frozen=True)
class Timing:
    """One process's measurement."""

    startup_s: float
    seconds: list[float]  #: of each timed round
    loss: float  #: of the model after `WARM_UP` and the timed rounds of Flower, on all training samples


def loss_of(n_devices: int, params: NDArray[np.float32]) -> float:
    """Return the mean training loss of a model, dropout off."""
    spec = spec_for(n_devices, N_SAMPLES // n_devices, rounds=1)
    return float(architecture_of(spec).sample_losses(params, load(spec).pool).mean())


def time_flower(n_devices: int, rounds: int, settings: Settings) -> Timing:
    simulated = simulate(n_devices, WARM_UP + rounds, settings)
    seconds = simulated.seconds[WARM_UP - 1 :]
    startup_s = simulated.seconds_to_first - statistics.median(seconds)
    return Timing(startup_s, seconds, loss_of(n_devices, simulated.params))


def time_ours(n_devices: int, rounds: int) -> Timing:
    n_samples = N_SAMPLES // n_devices
    started = time.perf_counter()
    going = ours(spec_for(n_devices, n_samples, rounds=WARM_UP + 3 * rounds))
    _, second = next(going)  # it keeps the first round for itself
    to_first = time.perf_counter() - started - second
    seconds = [clock_s for _, clock_s in islice(going, 3 * rounds)]
    state = run(spec_for(n_devices, n_samples, WARM_UP + rounds))[0].state
    assert state is not None
    return Timing(to_first - statistics.median(seconds), seconds, loss_of(n_devices, state[GLOBAL]))


def in_a_process(side: str, n_devices: int, rounds: int, settings: Settings) -> Timing:
    """Measure in a process of its own, and hand back what it printed last."""
    given = json.dumps([side, n_devices, rounds, asdict(settings)])
    command = [sys.executable, "-m", "benchmarks.flower", "--measure", given]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        sys.exit(f"{side} with {n_devices} devices failed\n{finished.stdout}{finished.stderr}")
    return Timing(**json.loads(finished.stdout.splitlines()[-1]))


def measure(given: str) -> None:
    side, n_devices, rounds, settings = json.loads(given)
    timing = time_ours(n_devices, rounds) if side == "tolfl" else time_flower(n_devices, rounds, Settings(**settings))
    print(json.dumps(asdict(timing)))


def compare(n_devices: int, rounds: int, repeats: int) -> tuple[str, str]:
    """Time both in turns; return a row, and a line about the losses."""
    theirs, mine = [], []
    settings = BEST.get(n_devices, Settings())
    for _ in range(repeats):
        theirs.append(in_a_process("flower", n_devices, rounds, settings))
        mine.append(in_a_process("tolfl", n_devices, rounds, settings))
    slow, fast = ([second for timing in side for second in timing.seconds] for side in (theirs, mine))
    ratio = statistics.median(slow) / statistics.median(fast)
    row = (
        f"| {n_devices} | {spread(slow)} | {median_startup(theirs):.1f} | {spread(fast)} | {median_startup(mine):.2f} "
        f"| **{ratio:.1f}x** | {GOALS.get(n_devices, '-')}x |"
    )
    losses = [statistics.mean(timing.loss for timing in side) for side in (theirs, mine)]
    apart = abs(losses[0] / losses[1] - 1)
    line = (
        f"{n_devices} devices: training loss after {WARM_UP + rounds} rounds {losses[0]:.3f} (Flower), "
        f"{losses[1]:.3f} (tolfl), {apart:.1%} apart; {len(slow)} and {len(fast)} rounds timed; "
        f"Flower with {settings.actors} actors, replies looked for every {settings.pull_s} s"
    )
    if not apart <= TOLERANCE:
        sys.exit(f"{line}: that is not the same work")
    return row, line


def median_startup(timings: Sequence[Timing]) -> float:
    return statistics.median(timing.startup_s for timing in timings)


def tune(devices: Sequence[int], rounds: int | None, repeats: int) -> None:
    """Print Flower's seconds per round for each setting that was tried, the settings in turns."""
    print("| devices | actors | arrays | looks for replies every | Flower, s/round (range) |\n|---|---|---|---|---|")
    for n_devices in devices:
        seconds: dict[Settings, list[float]] = {settings: [] for settings in TRIED}
        for _ in range(repeats):
            for settings in TRIED:
                timing = in_a_process("flower", n_devices, rounds or ROUNDS.get(n_devices, 3), settings)
                seconds[settings] += timing.seconds
        for settings, taken in seconds.items():
            arrays = "one vector" if settings.flat else "state dict"
            print(f"| {n_devices} | {settings.actors} | {arrays} | {settings.pull_s} s | {spread(taken)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs="*", default=list(GOALS))
    parser.add_argument("--rounds", type=int, help="timed rounds of Flower in one repeat (default: fewer if slow)")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--tune", action="store_true", help="try Flower's settings instead")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return
    print(machine(*(f"{name} {importlib.metadata.version(name)}" for name in ("flwr", "ray", "torch", "numpy"))))
    print(
        f"{N_SAMPLES} samples of {N_FEATURES} features in all, batch {BATCH_SIZE}, lr {LR}, dropout 0.2, one local "
        f"epoch, all devices in every round\n",
        flush=True,
    )
    if arguments.tune:
        tune(arguments.devices, arguments.rounds, arguments.repeats)
        return
    print("| devices | Flower, s/round (range) | start-up, s | tolfl, s/round (range) | start-up, s | ratio | goal |")
    print("|---|---|---|---|---|---|---|", flush=True)
    lines = []
    for n_devices in arguments.devices:
        row, line = compare(n_devices, arguments.rounds or ROUNDS.get(n_devices, 3), arguments.repeats)
        print(row, flush=True)
        lines.append(line)
    print("\nThe same work:", *lines, sep="\n- ")


if __name__ == "__main__":
    main()
