"""`python -m benchmarks.rivals`: what a round of each clustered scheme costs, against its formula and against FL.

Models moved, with a member as the server (N devices, m models): FL, FedGroup and FeSEM N - 1 up and N - 1 down; IFCA
sends all m models to everybody, so m(N - 1) down. Seconds per round are measured in turns, FL beside each rival.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import msgspec

from benchmarks.__main__ import spec_for
from tolfl.core.records import RoundClosed
from tolfl.core.spec import IFCASpec, RunSpec
from tolfl.sim.simulation import Runs

N_SAMPLES = 9000
#: Cold start and restarts are over by then.
SETTLED = 4


def formula(scheme: str, n_devices: int, m: int) -> int:
    """Return how many models the devices of a scheme move in a round."""
    return (n_devices - 1) * (1 + (m if scheme == "ifca" else 1))


def rounds_of(spec: RunSpec) -> Iterator[tuple[float, Runs]]:
    """Yield the seconds of one settled round after the other."""
    runs = Runs(spec)
    rounds = iter(runs)
    for _ in range(SETTLED):
        next(rounds)
    while True:
        started = time.perf_counter()
        next(rounds)
        yield time.perf_counter() - started, runs


def compare(scheme: str, n_devices: int, repeats: int) -> str:
    """Return a row: models per round and their formula, seconds per round and their ratio to FL's."""
    base = spec_for(n_devices, N_SAMPLES // n_devices, rounds=SETTLED + repeats + 2)
    base = msgspec.structs.replace(base, ifca=IFCASpec(warm_rounds=1, trial_rounds=2))
    mine = rounds_of(msgspec.structs.replace(base, scheme=scheme))
    plain = rounds_of(msgspec.structs.replace(base, scheme="fl"))
    seconds, of_fl = [], []
    for _ in range(repeats):
        of_fl.append(next(plain)[0])
        spent, runs = next(mine)
        seconds.append(spent)
    simulation = runs.simulations[0]
    last = [record for record in simulation.records if isinstance(record, RoundClosed)][-1]
    moved = last.bytes / simulation.learner.model_bytes
    expected = formula(scheme, n_devices, simulation.spec.clusters or 1)
    if moved != expected:
        raise SystemExit(f"{scheme} moved {moved:g} models in round {last.round}; its formula says {expected}")
    median, fl = statistics.median(seconds), statistics.median(of_fl)
    return f"| {scheme} | {n_devices} | {moved:g} | {expected} | {median:.4f} | {fl:.4f} | {median / fl:.2f}x |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--devices", type=int, nargs="*", default=[10, 100, 1000])
    arguments = parser.parse_args()
    print(f"{N_SAMPLES} samples of 112 features in all, m = 5 models, rounds after the cold start\n")
    print(
        "| scheme | devices | models moved | formula | s/round | FL beside it | ratio |\n|---|---|---|---|---|---|---|"
    )
    for n_devices in arguments.devices:
        for scheme in ("fedgroup", "ifca", "fesem"):
            print(compare(scheme, n_devices, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
