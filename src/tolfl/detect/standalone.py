"""A detector and all that scores with it as one file that Python runs: `python score.pyz readings.csv`.

It is the code of `tolfl score`, packed, with the same input and output. It needs Python and the
packages numpy, pyarrow, msgspec, safetensors and threadpoolctl, and nothing of tolfl.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from importlib.resources import files
from pathlib import Path

from tolfl.core.errors import SpecError, TolFLError
from tolfl.detect.detector import Detector
from tolfl.detect.score_stream import FORMS, ScoreRequest, score_stream

NEEDS = ("numpy", "pyarrow", "msgspec", "safetensors", "threadpoolctl")
_MODEL = "model.tolfl"
_MAIN = """import sys
from tolfl.detect.standalone import main
sys.exit(main())
"""
_LOADED = """import sys
import tolfl.detect.standalone, tolfl.tables.signal_blocks, tolfl.tables.table_files, tolfl.tables.arrow_values
print(*sorted(name for name in sys.modules if name.split(".")[0] == "tolfl"))
"""


def standalone_scorer(detector: Detector) -> bytes:
    """Return the file: the modules that scoring loads, and the detector."""
    content = io.BytesIO(b"")
    content.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, source in _modules().items():
            _add(archive, name, source)
        _add(archive, "__main__.py", _MAIN.encode())
        _add(archive, _MODEL, detector.to_bytes())
    return content.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # Reproducible bytes: no time, no permissions of this machine.
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


@cache  # it starts an interpreter
def _modules() -> dict[str, bytes]:
    """Return the source of every module of tolfl that scoring loads, by its path in the archive."""
    found = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    root, modules = files("tolfl"), {}
    for name in found.stdout.split():
        inside = name.split(".")[1:]
        place = root.joinpath(*inside)
        is_package = place.is_dir()
        path = "/".join(["tolfl", *inside, "__init__.py"]) if is_package else "/".join(["tolfl", *inside]) + ".py"
        source = place.joinpath("__init__.py") if is_package else root.joinpath(*inside[:-1], f"{inside[-1]}.py")
        modules[path] = source.read_bytes()
    return modules


def main(arguments: list[str] | None = None) -> int:
    """Score a source with the detector inside; return 1 if a row could not be scored, 2 if nothing was."""
    parser = argparse.ArgumentParser(prog="score.pyz", description="Score rows with the detector inside.")
    parser.add_argument(
        "data", nargs="?", default="-", help="a table, capture, recording or a folder; -: standard input"
    )
    parser.add_argument("--device-column", default="", help="whose row it is: that device's own threshold is used")
    parser.add_argument("--time-column", default="", help="the column with the time")
    parser.add_argument("--alert-only", action="store_true", help="rows above the threshold only")
    parser.add_argument(
        "--group", type=float, help="alarms of a device are one group if at most so many seconds or rows lie between"
    )
    parser.add_argument("--top", type=int, default=3, help="so many features that make the score of an alarm")
    parser.add_argument("--explain-all", action="store_true", help="name these features for all rows")
    parser.add_argument("--fill-missing", action="store_true", help="take a missing value as the usual one")
    parser.add_argument("--encoding", default="", help="of CSV and JSON lines")
    parser.add_argument("--format", default="table", choices=list(FORMS))
    asked = vars(parser.parse_args(arguments))
    try:
        n_bad = score_stream(_inside(), ScoreRequest(**asked), sys.stdout.buffer, sys.stderr)
    except TolFLError as error:
        sys.stderr.write(f"score.pyz: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 1 if n_bad else 0


def _inside() -> Detector:
    """Return the detector of the archive that this module was loaded from."""
    loader = globals().get("__loader__")
    if not hasattr(loader, "get_data"):
        raise SpecError("there is no detector inside; make the scorer with tolfl export --to scorer")
    with tempfile.TemporaryDirectory(prefix="tolfl-") as folder:
        path = Path(folder) / _MODEL
        path.write_bytes(loader.get_data(_MODEL))  # type: ignore[union-attr]
        return Detector.load(path)
