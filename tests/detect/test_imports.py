from __future__ import annotations

import subprocess
import sys

_LOADED = """
import sys
import tolfl.detect.detector, tolfl.detect.scoring, tolfl.detect.thresholds
heavy = ("torch", "scipy", "sklearn", "matplotlib", "tolfl.learners", "tolfl.protocol", "tolfl.runs", "tolfl.sim")
print(",".join(name for name in heavy if name in sys.modules))
"""


def test_scoring_loads_no_heavy_package_and_nothing_that_trains() -> None:
    loaded = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == ""
