"""The kernel's share of what a large matrix product reaches, and what it costs without a compiler.

OPENBLAS_NUM_THREADS=1 python -m benchmarks.kernel [--repeats 5]
"""

from __future__ import annotations

import argparse
import platform
import time

import numpy as np

from tolfl.core.spec import TrainSettings
from tolfl.kernel import Kernel, Network, TrainJob, kernel
from tolfl.kernel.fallback import NumpyKernel

#: Features, devices and samples of each; what share of sgemm is wanted.
WORK = {(112, 1, 900): None, (112, 10, 900): 80, (112, 1000, 9): None, (784, 10, 300): 85}


def jobs_for(n_features: int, n_devices: int, n_samples: int) -> tuple[Network, list[TrainJob]]:
    network = Network.autoencoder(n_features, [128, 64], 32, 0.2, has_code_relu=False)
    rng = np.random.default_rng(0)
    pool = rng.random((n_devices * n_samples, n_features), dtype=np.float32)
    start = rng.uniform(-0.08, 0.08, network.n_params).astype(np.float32)
    return network, [
        TrainJob(0, device, 0, start, pool, device * n_samples, (device + 1) * n_samples) for device in range(n_devices)
    ]


def cpu_seconds(found: Kernel, network: Network, jobs: list[TrainJob]) -> float:
    total = np.full(network.n_params, -0.0, np.float32)
    weights = np.array([job.n_samples for job in jobs], np.float32)
    started = time.process_time()
    found.add(network, TrainSettings(lr=0.002), jobs, weights, total)
    return time.process_time() - started


def sgemm_flops() -> float:
    """Return what NumPy's library reaches on square matrices of 1,024, in operations per CPU second."""
    matrix = np.random.default_rng(0).random((1024, 1024), dtype=np.float32)
    started = time.process_time()
    for _ in range(4):
        matrix @ matrix
    return 4 * 2 * 1024**3 / (time.process_time() - started)


def flops_of(network: Network, n_samples: int) -> int:
    """Return the operations of forward and backward pass; the first layer passes nothing further down."""
    sizes = [layer.n_in * layer.n_out for layer in network.layers]
    return n_samples * 2 * (3 * sum(sizes) - sizes[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(f"{platform.machine()}, {kernel().name}; CPU time, one thread, least of {repeats}, in turns\n")
    print("| features | devices | samples of each | ms a round | share of sgemm | goal |\n|---|---|---|---|---|---|")
    for (n_features, n_devices, n_samples), goal in WORK.items():
        network, jobs = jobs_for(n_features, n_devices, n_samples)
        ours, theirs = [], []
        for _ in range(repeats):
            theirs.append(sgemm_flops())
            ours.append(cpu_seconds(kernel(), network, jobs))
        share = flops_of(network, n_devices * n_samples) / min(ours) / max(theirs)
        wanted = f"{goal} %" if goal else "-"
        print(
            f"| {n_features} | {n_devices} | {n_samples} | {min(ours) * 1e3:.1f} | {share:.0%} | {wanted} |", flush=True
        )
    network, jobs = jobs_for(112, 1, 90)
    slow, fast = cpu_seconds(NumpyKernel(), network, jobs), min(cpu_seconds(kernel(), network, jobs) for _ in range(9))
    print(f"\nOne device, 90 samples of 112 features: NumPy {slow * 1e3:.0f} ms, compiled {fast * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
