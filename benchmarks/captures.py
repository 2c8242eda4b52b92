"""`python -m benchmarks.captures`: a week of the four published regions as pcap, and back to the twelve statistics.

Run it on one core: OMP_NUM_THREADS=1 taskset -c 0 python -m benchmarks.captures [--days 7] [--folder /tmp]
A week takes 4.8 GB in the folder while it runs. dpkt reads some of the same packets for comparison.
"""

from __future__ import annotations

import argparse
import resource
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import dpkt

from tolfl.signals import published_regions, simulate
from tolfl.signals.captures.windows import window_rows
from tolfl.signals.pcap_writer import Written, write_pcap
from tolfl.signals.regions import PUBLISHED_SEEDS

GOAL_S = 90.0
DPKT_PACKETS = 200_000


def written(folder: Path, days: float) -> list[Written]:
    """Simulate and write all four regions."""
    return [
        write_pcap(folder / str(region.number), "region", simulate(region, days * 86_400, seed), region)
        for region, seed in zip(published_regions(), PUBLISHED_SEEDS, strict=True)
    ]


def cpu_of_dpkt(path: Path) -> float:
    """Return microseconds per packet that dpkt needs for time, addresses, length and protocol."""
    with path.open("rb") as file:
        started = time.process_time()
        seen = []
        for when, data in islice(dpkt.pcap.Reader(file), DPKT_PACKETS):
            frame = dpkt.ethernet.Ethernet(data)
            seen.append((when, frame.src, frame.dst, frame.ip.len, frame.ip.p))
        return 1e6 * (time.process_time() - started) / len(seen)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Clock:
    """Seconds by the wall and of the processor; the second are what a busy machine does not change much."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--folder", default=None, help="where there is room (default: the system's)")
    arguments = parser.parse_args()
    print(f"before anything: {peak_mb():.0f} MB of memory")
    with TemporaryDirectory(dir=arguments.folder) as folder:
        clock = Clock()
        parts = written(Path(folder), arguments.days)
        wall, cpu = clock.read()
        n_packets, n_bytes = sum(part.n_packets for part in parts), sum(part.n_bytes for part in parts)
        print(f"{arguments.days:g} days, four regions: {n_packets:,} packets, {n_bytes / 1e9:.2f} GB")
        print(f"written in {wall:.1f} s ({cpu:.1f} s of the processor), goal {GOAL_S * arguments.days / 7:.1f} s")
        print(f"peak memory {peak_mb():.0f} MB")
        clock = Clock()
        n_rows = sum(len(rows.start_s) for part in parts for rows in window_rows([part.path]))
        wall, cpu = clock.read()
        print(f"read in {wall:.1f} s ({cpu:.1f} s of the processor): {n_rows:,} windows of 1 s")
        print(f"{n_packets / wall:,.0f} packets/s; peak memory {peak_mb():.0f} MB")
        ours, theirs = 1e6 * cpu / n_packets, cpu_of_dpkt(parts[0].path)
        print(
            f"{ours:.1f} microseconds per packet with statistics; dpkt {theirs:.0f} without: {theirs / ours:.0f} times"
        )


if __name__ == "__main__":
    main()
