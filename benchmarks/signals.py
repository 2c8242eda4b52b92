"""Simulated traffic, captures and radio: how fast each is made and read.

python -m benchmarks.signals week [--repeats 5]   the four published regions, from nothing to the twelve statistics
python -m benchmarks.signals captures [--days 7] [--folder /tmp]   as pcap, and back to the twelve statistics
python -m benchmarks.signals frames [--seconds 1]   Wi-Fi frames and Bluetooth packets, and samples against real time

Run it on one core: OMP_NUM_THREADS=1 taskset -c 0 python -m benchmarks.signals ... A week of captures takes 4.8 GB in
the folder while it runs; dpkt reads some of the same packets for comparison. Frames are counted in processor time.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import dpkt
import numpy as np

from benchmarks.common import spread
from tolfl.signals.bluetooth import br_packet
from tolfl.signals.capture_rows import window_rows
from tolfl.signals.comms_ml_generator import comms_ml
from tolfl.signals.pcap import CaptureSummary
from tolfl.signals.pcap_writer import write_pcap
from tolfl.signals.traffic import PUBLISHED_DURATION_S, PUBLISHED_SEEDS, published_regions, simulate
from tolfl.signals.wifi import legacy_frame
from tolfl.signals.wifi_vht import vht_frame
from tolfl.signals.windows import WindowGrid, window_statistics, windows_of

WEEK_GOAL_S, CAPTURES_GOAL_S = 5.0, 90.0
DPKT_PACKETS = 200_000
PAYLOAD = np.random.default_rng(0).bytes(4000)


class Clock:
    """Seconds by the wall and of the processor; the second are what a busy machine does not change much."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


def a_week() -> tuple[int, int]:
    """Return how many packets were sent and how many windows have a router packet."""
    n_packets = n_windows = 0
    grid = WindowGrid()
    for region, seed in zip(published_regions(), PUBLISHED_SEEDS, strict=True):
        packets = simulate(region, PUBLISHED_DURATION_S, seed)  # all of them, sorted: no short cut for the windows
        windows = windows_of(packets, grid, until_s=PUBLISHED_DURATION_S)
        kept = windows.select(windows.have(windows.packets["source"] == region.router))
        n_packets += len(packets)
        n_windows += len(window_statistics(kept))
    return n_packets, n_windows


def week(arguments: argparse.Namespace) -> None:
    seconds = []
    for _ in range(arguments.repeats):
        clock = Clock()
        n_packets, n_windows = a_week()
        seconds.append(clock.read()[0])
    print(f"a week, four regions: {n_packets:,} packets, {n_windows:,} windows kept")
    print(f"median {spread(seconds)} s; goal {WEEK_GOAL_S:g} s")
    clock = Clock()
    n_samples = len(comms_ml(0).features)
    print(f"the default data set: {n_samples:,} samples in {clock.read()[0]:.1f} s")


def written(folder: Path, days: float) -> list[Path]:
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


def captures(arguments: argparse.Namespace) -> None:
    print(f"before anything: {peak_mb():.0f} MB of memory")
    with TemporaryDirectory(dir=arguments.folder) as folder:
        clock = Clock()
        parts = written(Path(folder), arguments.days)
        wall, cpu = clock.read()
        print(f"{arguments.days:g} days, four regions: {sum(part.stat().st_size for part in parts) / 1e9:.2f} GB")
        print(
            f"written in {wall:.1f} s ({cpu:.1f} s of the processor), goal {CAPTURES_GOAL_S * arguments.days / 7:.1f} s"
        )
        print(f"peak memory {peak_mb():.0f} MB")
        clock, summary = Clock(), CaptureSummary()
        n_rows = sum(len(rows.start_s) for part in parts for rows in window_rows([part], summary=summary))
        wall, cpu = clock.read()
        n_packets = summary.n_packets
        print(f"read in {wall:.1f} s ({cpu:.1f} s of the processor): {n_rows:,} windows of 1 s")
        print(f"{n_packets / wall:,.0f} packets/s; peak memory {peak_mb():.0f} MB")
        ours, theirs = 1e6 * cpu / n_packets, cpu_of_dpkt(parts[0])
        print(
            f"{ours:.1f} microseconds per packet with statistics; dpkt {theirs:.0f} without: {theirs / ours:.0f} times"
        )


def cases() -> list[tuple[str, float, Callable[[], np.ndarray]]]:
    """Return what is made, at how many million samples per second, and how."""
    return [
        ("legacy, 6 Mb/s, 1500 bytes", 20, lambda: legacy_frame(PAYLOAD[:1500], 6)),
        ("legacy, 54 Mb/s, 1500 bytes", 20, lambda: legacy_frame(PAYLOAD[:1500], 54)),
        ("VHT 20 MHz, MCS 4, 1500 bytes", 20, lambda: vht_frame(PAYLOAD[:1500], 20, 4)),
        ("VHT 80 MHz, MCS 7, 1500 bytes", 80, lambda: vht_frame(PAYLOAD[:1500], 80, 7)),
        ("VHT 160 MHz, MCS 1, 1500 bytes", 160, lambda: vht_frame(PAYLOAD[:1500], 160, 1)),
        ("VHT 160 MHz, MCS 1, 1.5 times", 240, lambda: vht_frame(PAYLOAD[:1500], 160, 1, oversampling=1.5)),
        ("VHT 160 MHz, MCS 9, 40,000 bytes", 160, lambda: vht_frame(PAYLOAD * 10, 160, 9, window_s=100e-9)),
        ("Bluetooth DH1, 27 bytes", 20, lambda: br_packet(PAYLOAD[:27], 0x9E8B33, 0, rate_hz=20e6)),
        (
            "Bluetooth DH5, 339 bytes",
            20,
            lambda: br_packet(PAYLOAD[:339], 0x9E8B33, 0, rate_hz=20e6, packet_type="DH5"),
        ),
    ]


def frames(arguments: argparse.Namespace) -> None:
    print("| what | per second | million samples/s | of real time |\n|---|---|---|---|")
    for name, rate_mhz, make in cases():
        n_samples = len(make())  # the first one also makes the tables
        n_made, started = 0, time.process_time()
        while (spent_s := time.process_time() - started) < arguments.seconds:
            make()
            n_made += 1
        samples_mhz = n_made * n_samples / spent_s / 1e6
        print(f"| {name} | {n_made / spent_s:,.0f} | {samples_mhz:.1f} | {samples_mhz / rate_mhz:.2f}x |", flush=True)


PARTS = {"week": week, "captures": captures, "frames": frames}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=PARTS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--folder", help="where there is room (default: the system's)")
    parser.add_argument("--seconds", type=float, default=1.0, help="spent on each frame")
    arguments = parser.parse_args()
    PARTS[arguments.what](arguments)


if __name__ == "__main__":
    main()
