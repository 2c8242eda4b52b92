"""`python -m benchmarks.frames`: Wi-Fi frames and Bluetooth packets per second, and samples against real time.

Seconds are of processor time, on one core: OMP_NUM_THREADS=1 taskset -c 0 python -m benchmarks.frames [--seconds 1]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from tolfl.signals.bluetooth import br_packet
from tolfl.signals.wifi import legacy_frame
from tolfl.signals.wifi_vht import vht_frame

PAYLOAD = np.random.default_rng(0).bytes(4000)
Case = tuple[str, float, Callable[[], np.ndarray]]


def cases() -> list[Case]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="spent on each row")
    budget_s = parser.parse_args().seconds
    print("| what | per second | million samples/s | of real time |\n|---|---|---|---|")
    for name, rate_mhz, make in cases():
        n_samples = len(make())  # the first one also makes the tables
        n_made, started = 0, time.process_time()
        while (spent_s := time.process_time() - started) < budget_s:
            make()
            n_made += 1
        samples_mhz = n_made * n_samples / spent_s / 1e6
        print(f"| {name} | {n_made / spent_s:,.0f} | {samples_mhz:.1f} | {samples_mhz / rate_mhz:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
