"""`python -m benchmarks.tables_io`: is scoring as fast as reading?

CPU seconds on one core, every line a ratio within this run: `tolfl score` of a CSV file to CSV against pyarrow's
reading of the same file; one row in a fresh process, with its memory; the memory of scoring 5 million rows; fitting
against scikit-learn's detectors and, where it is installed, PyOD's.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest

from tolfl.detect import Detector, DetectorSpec, fit_detector
from tolfl.detect.features import Features
from tolfl.detect.scoring import ScoreRequest, score_stream
from tolfl.tables import blocks, settle

_SPAWN = """
import os, sys
with open(os.devnull, "w") as out:
    child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)])
_, status, used = os.wait4(child, 0)
assert status == 0, status
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this process that something takes; the least of three."""
    times = []
    for _ in range(3):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return min(times)


def table(path: Path, n_rows: int, n_columns: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(8, n_columns))
    rows = np.round(rng.normal(size=(n_rows, 8)) @ mixing + 0.1 * rng.normal(size=(n_rows, n_columns)), 4)
    pa_csv.write_csv(pa.table({f"c{place}": column for place, column in enumerate(rows.T)}), path)
    return rows


def detector_of(rows: np.ndarray) -> Detector:
    names = Features.named([f"c{place}" for place in range(rows.shape[1])])
    return fit_detector({"a": rows[:1000], "b": rows[1000:2000]}, DetectorSpec(), names)


def speeds(folder: Path, megabytes: float, n_columns: int) -> None:
    path = folder / f"{n_columns}.csv"
    rows = table(path, max(3000, int(megabytes * 1e6 / (8.2 * n_columns))), n_columns)
    size, detector = path.stat().st_size / 1e6, detector_of(rows)
    one_thread = pa_csv.ReadOptions(use_threads=False)
    reading = cpu_s(lambda: pa_csv.read_csv(path, one_thread))
    settling = cpu_s(lambda: settle(blocks(path)))
    with Path(os.devnull).open("wb") as out:
        scoring = cpu_s(lambda: score_stream(detector, ScoreRequest(str(path), format="csv"), out, sys.stderr))
    print(
        f"{n_columns} columns, {size:.0f} MB: pyarrow reads {size / reading:.0f} MB/s, a schema is settled at "
        f"{size / settling:.0f}, scored to CSV at {size / scoring:.0f}, {scoring / reading:.1f} times reading"
    )


def one_row(folder: Path) -> None:
    path = folder / "model.tolfl"
    rows = table(folder / "few.csv", 2000, 15)
    detector_of(rows).save(path)
    lines = (folder / "few.csv").read_text().splitlines()
    (folder / "one.csv").write_text("\n".join(lines[:2]) + "\n")
    seconds, megabytes = used_by([sys.executable, "-m", "tolfl", "score", str(path), str(folder / "one.csv")])
    print(f"one row: {seconds:.2f} s of CPU, {megabytes:.0f} MB at most")


def used_by(command: list[str]) -> tuple[float, float]:
    """Return the CPU seconds and the most megabytes of a command, which a process without packages starts.

    The peak of a child counts what its parent had when it was started: this process has scikit-learn.
    """
    done = subprocess.run([sys.executable, "-S", "-c", _SPAWN, *command], check=True, capture_output=True, text=True)
    seconds, megabytes = map(float, done.stdout.splitlines()[-1].split())
    return seconds, megabytes


def many_rows(folder: Path, n_rows: int) -> None:
    """Say how much memory scoring takes for more and more rows of one file."""
    path = folder / "model.tolfl"
    rows = table(folder / "some.csv", 100_000, 15)
    detector_of(rows).save(path)
    header, _, lines = (folder / "some.csv").read_bytes().partition(b"\n")
    for n in (n_rows // 10, n_rows):
        with (folder / "many.csv").open("wb") as file:
            file.write(header + b"\n")
            for _ in range(n // 100_000):
                file.write(lines)
        command = [sys.executable, "-m", "tolfl", "score", str(path), str(folder / "many.csv"), "--alert-only"]
        seconds, megabytes = used_by([*command, "--format", "csv"])
        print(f"{n // 100_000 * 100_000:,} rows: {megabytes:.0f} MB at most, {seconds:.1f} s of CPU")


def fits(n_rows: int, n_columns: int) -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(n_rows, 8)) @ rng.normal(size=(8, n_columns))).astype(np.float32)
    rows += rng.normal(scale=0.1, size=rows.shape).astype(np.float32)
    names = Features.named([f"c{place}" for place in range(n_columns)])
    cells = cpu_s(lambda: fit_detector({"a": rows}, DetectorSpec(), names))
    pca = cpu_s(lambda: fit_detector({"a": rows}, DetectorSpec(model="pca", n_components=8), names))
    forest = cpu_s(lambda: IsolationForest(random_state=0).fit(rows).score_samples(rows))
    print(f"fit {n_rows} x {n_columns}: cells {cells:.2f} s, {cells / forest:.2f} times IsolationForest")
    print(f"  (which fits and scores); pca {pca:.3f} s")
    for precision in ("single", "double"):
        given = rows.astype(precision)
        fit = cpu_s(partial(PCA(8, svd_solver="covariance_eigh").fit, given))
        both = fit + cpu_s(partial(PCA(8, svd_solver="covariance_eigh").fit(given).score_samples, given))
        print(
            f"  {pca / fit:.1f} times scikit-learn's PCA in {precision} precision, {pca / both:.1f} if that scores, too"
        )
    if importlib.util.find_spec("pyod") is None:
        return
    for name in ("ecod.ECOD", "pca.PCA"):
        module, _, kind = name.partition(".")
        rival = getattr(importlib.import_module(f"pyod.models.{module}"), kind)
        taken = cpu_s(partial(rival().fit, rows))
        print(f"  PyOD's {kind} {taken:.2f} s: cells take {cells / taken:.2f} times as long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=20.0, help="of each CSV file")
    parser.add_argument("--rows", type=int, default=100_000, help="to fit; 0: none")
    parser.add_argument("--score-rows", type=int, default=5_000_000, help="of a file to score; 0: none")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one_row(Path(folder))
        for n_columns in (15, 112):
            speeds(Path(folder), asked.megabytes, n_columns)
        if asked.score_rows:
            many_rows(Path(folder), asked.score_rows)
    for n_columns in (15, 112, 784) if asked.rows else ():
        fits(asked.rows, n_columns)


if __name__ == "__main__":
    main()
