"""`python -m benchmarks.fit --against REV`: CPU seconds to fit a detector, against the code at a git revision.

The revision is checked out into a temporary worktree. Both codes fit the same rows in processes of their own, in turns,
so that a machine that is busy for a while slows down both; a ratio above 1 says that the present code takes longer.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODELS = ("mahalanobis", "pca")
#: Fitted once before the clock starts: imports, and what is computed once in a process. Prints the CPU seconds.
_FIT = """
import sys, time
import numpy as np
from tolfl.detect import DetectorSpec, fit_detector
n_devices, model = int(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(0)
rows = {f"device-{number:04}": rng.normal(size=(60, 8)) for number in range(n_devices)}
fit_detector(dict(list(rows.items())[:3]), DetectorSpec(model=model))
started = time.process_time()
fit_detector(rows, DetectorSpec(model=model, clusters=max(2, n_devices // 10)))
print(time.process_time() - started)
"""


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Give the code at a revision for as long as the context lasts."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tree), revision], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def cpu_seconds(tree: Path, n_devices: int, model: str) -> float:
    """Return how long the code of a tree takes."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _FIT, str(n_devices), model]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def compare(before: Path, n_devices: int, model: str, repeats: int) -> str:
    """Return a row: CPU seconds of both, the median of their ratios, the lowest and the highest."""
    pairs = [(cpu_seconds(before, n_devices, model), cpu_seconds(ROOT, n_devices, model)) for _ in range(repeats)]
    ratios = sorted(now / then for then, now in pairs)
    then, now = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return f"{model:<12} {n_devices:>7,} {then:>9.3f} {now:>9.3f} {statistics.median(ratios):>7.2f}  {spread}"


def main() -> None:
    """Print a row per model and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--against", required=True, help="the git revision to compare with")
    parser.add_argument("--devices", type=int, nargs="+", default=[10, 1000])
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    with checked_out(asked.against) as before:
        print(f"{'model':<12} {'devices':>7} {'before s':>9} {'now s':>9} {'ratio':>7}  lowest to highest")
        for model in MODELS:
            for n_devices in asked.devices:
                print(compare(before, n_devices, model, asked.repeats), flush=True)


if __name__ == "__main__":
    main()
