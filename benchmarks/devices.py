"""What a simulated round costs against the number of devices: CPU seconds and memory, from 10 to 1,000,000.

python -m benchmarks.devices [--devices 10 100 1000 10000 100000 1000000] [--picture docs/figures/cost-per-device.png]

Nine rows of 112 features a device, clusters of up to 1,000 devices, nobody fails. Rows that do not fit into a GiB are
drawn anew in every round; the seconds for that are counted apart. Each number of devices has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tolfl.core.plot_style import BLUE, bare
from tolfl.core.spec import BlobsSpec, RunSpec, TrainSpec
from tolfl.datasets.blobs import PiecewiseBlobs
from tolfl.runs.outcome import data_for
from tolfl.sim.simulation import Runs

SAMPLES, FEATURES, CLUSTER = 9, 112, 1000
COUNTS = [10, 100, 1000, 10_000, 100_000, 1_000_000]


def measured(n_devices: int) -> dict[str, float]:
    """Return the CPU seconds of a round, of drawing in it, and the peak memory of this process."""
    rounds = 5 if n_devices <= 10_000 else 1
    blobs = BlobsSpec(samples_per_device=SAMPLES, n_features=FEATURES, n_test=200)
    clusters = max(1, n_devices // CLUSTER)
    train = TrainSpec(lr=0.02, batch_size=32)
    spec = RunSpec(data="blobs", devices=n_devices, clusters=clusters, rounds=rounds, blobs=blobs, train=train)
    data = data_for(spec)
    runs, seconds, drawing = Runs(spec, data), [], []
    started, drawn = time.process_time(), _drawn(data)
    for _ in runs:
        seconds.append(time.process_time() - started)
        drawing.append(_drawn(data) - drawn)
        started, drawn = time.process_time(), _drawn(data)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cpu_s": statistics.median(seconds), "drawing_s": statistics.median(drawing), "peak_mib": peak_mib}


def _drawn(data: object) -> float:
    return data.drawing_s if isinstance(data, PiecewiseBlobs) else 0.0


def draw(found: dict[int, dict[str, float]], path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415  (only with --picture)

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    counts = list(found)
    per_device = [1e6 * (row["cpu_s"] - row["drawing_s"]) / n for n, row in found.items()]
    axes.semilogx(counts, per_device, "o-", color=BLUE)
    axes.set(xlabel="devices", ylabel="microseconds of the CPU\nper device and round", ylim=(0, 1.15 * max(per_device)))
    for n, micro in zip(counts, per_device, strict=True):
        axes.annotate(f"{micro:.0f}", (n, micro), textcoords="offset points", xytext=(0, 7), ha="center", fontsize=9)
    bare(axes)
    largest, micro = counts[-1], per_device[-1]
    axes.set_title(f"A round of {largest:,} devices takes {micro:.0f} us of the CPU a device", fontsize=10, loc="left")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs="*", default=COUNTS)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments.one)))
        return
    found: dict[int, dict[str, float]] = {}
    print("| devices | CPU s a round | of it drawing | us a device | peak, MiB |\n|---|---|---|---|---|")
    for n in arguments.devices:
        command = [sys.executable, "-m", "benchmarks.devices", "--one", str(n)]
        found[n] = row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        net = row["cpu_s"] - row["drawing_s"]
        print(
            f"| {n:,} | {row['cpu_s']:.4f} | {row['drawing_s']:.2f} | {1e6 * net / n:.0f} | {row['peak_mib']:.0f} |",
            flush=True,
        )
    if arguments.picture:
        draw(found, arguments.picture)


if __name__ == "__main__":
    main()
