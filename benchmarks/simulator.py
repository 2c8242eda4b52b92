"""`make bench`: CPU and wall seconds per round against the usual research loop, and memory at 10,000 devices.

python -m benchmarks.simulator [--repeats 5] [--devices 10 100 1000] [--no-memory]
python -m benchmarks.simulator --rivals: what a round of each clustered scheme costs, against its formula and against FL

Models moved, with a member as the server (N devices, m models): FL, FedGroup and FeSEM N - 1 up and N - 1 down; IFCA
sends all m models to everybody, so m(N - 1) down. Seconds per round are measured in turns, ours beside the other.
"""

from __future__ import annotations

import argparse
import copy
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.common import machine
from tolfl.core.records import RoundClosed
from tolfl.core.spec import BlobsSpec, IFCASpec, RunSpec, TrainSpec
from tolfl.datasets import FederatedDataset, load
from tolfl.kernel import kernel
from tolfl.learners.autoencoder import Autoencoder
from tolfl.sim.simulation import Runs

#: One and the same work, shared out over more and more devices.
N_SAMPLES, N_FEATURES, BATCH_SIZE, LR = 9000, 112, 32, 0.02
GOALS = {10: 12, 100: 20, 1000: 80}  # of CPU time
MEMORY_GOAL_GIB = 1.5
#: Cold start and restarts of clustered schemes are over by then.
SETTLED = 4


def spec_for(n_devices: int, samples_per_device: int, rounds: int) -> RunSpec:
    blobs = BlobsSpec(samples_per_device=samples_per_device, n_features=N_FEATURES, n_test=100)
    train = TrainSpec(lr=LR, batch_size=BATCH_SIZE)
    return RunSpec(data="blobs", devices=n_devices, clusters=min(5, n_devices), rounds=rounds, blobs=blobs, train=train)


Seconds = tuple[float, float]  #: of the CPU, all threads together, and of the clock


def now() -> Seconds:
    return time.process_time(), time.perf_counter()


def since(started: Seconds) -> Seconds:
    cpu, wall = now()
    return cpu - started[0], wall - started[1]


def ours(spec: RunSpec) -> Iterator[Seconds]:
    """Yield the seconds of one round after the other: protocol, training and aggregation."""
    rounds = iter(Runs(spec))
    next(rounds)  # the first round also makes room for what later ones use again
    while True:
        started = now()
        next(rounds)
        yield since(started)


# -- against the usual research loop -----------------------------------------------------------------------------


def one_round(model: nn.Module, data: FederatedDataset, lr: float, batch_size: int) -> nn.Module:
    """Return the model after one round of the usual research loop.

    For each device deepcopy the model, go through a DataLoader, average state dicts: this is how most published
    federated-learning code simulates a round. Same model, data, batch size, optimiser and dropout as ours.
    """
    states: list[dict[str, Tensor]] = []
    counts: list[int] = []
    for device in range(data.n_devices):
        local = copy.deepcopy(model).train()
        optimizer = torch.optim.SGD(local.parameters(), lr=lr)
        slices = TensorDataset(torch.from_numpy(data.slice_of(device)))
        for (batch,) in DataLoader(slices, batch_size=batch_size, shuffle=True):
            optimizer.zero_grad()
            loss = (local(batch) - batch).square().sum(dim=1).mean()
            loss.backward()
            optimizer.step()
        states.append(local.state_dict())
        counts.append(data.n_samples(device))
    total = sum(counts)
    average = {
        name: torch.stack([state[name] * (n / total) for state, n in zip(states, counts, strict=True)]).sum(dim=0)
        for name in states[0]
    }
    result = copy.deepcopy(model)
    result.load_state_dict(average)
    return result


def theirs(spec: RunSpec) -> Iterator[Seconds]:
    """Yield the seconds of one round after the other of the usual research loop."""
    data = load(spec)
    architecture = Autoencoder(data.n_features, spec.model.hidden, spec.model.code, spec.model.dropout)
    model = architecture.to_module(architecture.initial(spec.seed))
    while True:
        started = now()
        model = one_round(model, data, LR, BATCH_SIZE)
        yield since(started)


def compare(n_devices: int, repeats: int) -> str:
    """Time both in turns, so that whatever else the machine does hits both; return a row."""
    spec = spec_for(n_devices, N_SAMPLES // n_devices, rounds=4 * repeats + 2)
    rival, mine = theirs(spec), ours(spec)
    slow: list[Seconds] = []
    fast: list[Seconds] = []
    for _ in range(repeats):
        slow.append(next(rival))
        fast += [next(mine) for _ in range(3)]
    (slow_cpu, slow_wall), (fast_cpu, fast_wall) = (
        [statistics.median(column) for column in zip(*rounds, strict=True)] for rounds in (slow, fast)
    )
    return (
        f"| {n_devices} | {slow_cpu:.3f} ({slow_wall:.3f}) | {fast_cpu:.4f} ({fast_wall:.4f}) "
        f"| **{slow_cpu / fast_cpu:.1f}x** ({slow_wall / fast_wall:.1f}x) | {GOALS.get(n_devices, '-')}x |"
    )


def memory_of_one_round(n_devices: int) -> None:
    """Run one round and print peak memory and seconds; in a process of its own, because peaks do not go down."""
    spec = spec_for(n_devices, 90, rounds=1)
    started = time.perf_counter()
    for _ in Runs(spec):
        pass
    seconds = time.perf_counter() - started
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"| {n_devices} | {peak_gib:.2f} | {seconds:.1f} |")


# -- clustered schemes against FL ---------------------------------------------------------------------------------


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


def compare_scheme(scheme: str, n_devices: int, repeats: int) -> str:
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


def rivals(repeats: int, counts: list[int]) -> None:
    print(f"{N_SAMPLES} samples of {N_FEATURES} features in all, m = 5 models, rounds after the cold start\n")
    print(
        "| scheme | devices | models moved | formula | s/round | FL beside it | ratio |\n|---|---|---|---|---|---|---|"
    )
    for n_devices in counts:
        for scheme in ("fedgroup", "ifca", "fesem"):
            print(compare_scheme(scheme, n_devices, repeats), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--devices", type=int, nargs="*", default=list(GOALS))
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--rivals", action="store_true", help="clustered schemes beside FL, and nothing else")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        memory_of_one_round(arguments.memory_of)
        return
    if arguments.rivals:
        rivals(arguments.repeats, arguments.devices)
        return
    print(machine(f"torch {torch.__version__}"))
    print(f"both as they come: torch's {torch.get_num_threads()} threads, tolfl's kernel {kernel().name}")
    print(f"{N_SAMPLES} samples of {N_FEATURES} features in all, batch {BATCH_SIZE}, dropout 0.2, one local epoch\n")
    print(
        "| devices | research loop, CPU s/round (wall) | tolfl, CPU s/round (wall) | ratio of medians | goal |\n"
        "|---|---|---|---|---|"
    )
    for n_devices in arguments.devices:
        print(compare(n_devices, arguments.repeats), flush=True)
    if arguments.no_memory:
        return
    print(f"\nOne round of devices with 90 samples each, data and scoring included (goal: {MEMORY_GOAL_GIB} GiB)\n")
    print("| devices | peak memory, GiB | seconds in all |\n|---|---|---|", flush=True)
    for n_devices in (1000, 10_000):
        subprocess.run([sys.executable, "-m", "benchmarks.simulator", "--memory-of", str(n_devices)], check=True)


if __name__ == "__main__":
    main()
