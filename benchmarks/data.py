"""`python -m benchmarks.data`: from files to slices. Needs Fashion-MNIST (`tolfl data get`, or TOLFL_DATA)."""

from __future__ import annotations

import statistics
import time

from tolfl.core.spec import RunSpec
from tolfl.datasets import _load_raw, load

GOAL_S = 2.0
REPEATS = 5


def main() -> None:
    seconds = []
    for _ in range(REPEATS):
        _load_raw.cache_clear()
        started = time.perf_counter()
        data = load(RunSpec(data="fashion-mnist"))
        seconds.append(time.perf_counter() - started)
    print(f"Fashion-MNIST: {len(data.pool)} training samples on {data.n_devices} devices, read, split and shared out")
    print(f"median {statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f}); goal {GOAL_S:g} s")


if __name__ == "__main__":
    main()
