"""`python -m benchmarks.signals`: a week of the four published regions, from nothing to the twelve statistics.

Run it on one core: OMP_NUM_THREADS=1 taskset -c 0 python -m benchmarks.signals [--repeats 5]
"""

from __future__ import annotations

import argparse
import statistics
import time

from tolfl.signals import WindowGrid, comms_ml, published_regions, simulate, window_statistics, windows_of
from tolfl.signals.regions import PUBLISHED_DURATION_S, PUBLISHED_SEEDS

GOAL_S = 5.0


def a_week() -> tuple[int, int]:
    """Return how many packets were sent and how many windows have a router packet."""
    n_packets = n_windows = 0
    grid = WindowGrid()
    for region, seed in zip(published_regions(), PUBLISHED_SEEDS, strict=True):
        packets = simulate(region, PUBLISHED_DURATION_S, seed)  # all of them, sorted: no short cut for the windows
        windows = windows_of(packets, grid, until_s=PUBLISHED_DURATION_S)
        kept = windows.select(windows.have(windows.packets.source == region.router))
        n_packets += len(packets)
        n_windows += len(window_statistics(kept))
    return n_packets, n_windows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        n_packets, n_windows = a_week()
        seconds.append(time.perf_counter() - started)
    print(f"a week, four regions: {n_packets:,} packets, {n_windows:,} windows kept")
    print(f"median {statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f}); goal {GOAL_S:g} s")
    started = time.perf_counter()
    n_samples = len(comms_ml(0).features)
    print(f"the default data set: {n_samples:,} samples in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
