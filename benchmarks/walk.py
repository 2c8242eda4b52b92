"""How far one has to walk to follow a command: its functions, files and depth in tolfl's own code.

`python -m benchmarks.walk` walks through a simulation, a fit, a score, an experiment and a report;
`python -m benchmarks.walk plan --data blobs --devices 4` through a command of your choice.

Functions, files and depth, of the first version (44b8bfb) and in November 2026, both counted by this script: simulate
326, 65, 29 and 307, 54, 19; fit 380, 78, 33 and 443, 58, 27; score 93, 20, 15 and 119, 16, 15; `reproduce
communication --quick` 437, 78, 31 and 435, 64, 26; `reproduce server --quick --data comms-ml` 536, 90, 38 and 516, 70,
32; report 70, 18, 11 and 104, 15, 13. So walks go through fewer files, but not through far fewer functions. Counted
with a kernel that was built before: to build it takes another 50 functions.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import sys
import tempfile
from pathlib import Path
from types import FrameType

import tolfl
from tolfl.cli import main

_ROOT = str(Path(tolfl.__file__).parent)
_TABLE = "\n".join(["site,power,state", *(f"s{i % 3},{i % 17}.{i % 10},ok" for i in range(90))])
_COMMANDS = (
    "simulate --data blobs --devices 4 --rounds 2 --out run",
    "fit readings.csv --device-column site --label-column state --typical ok --out detector.tolfl",
    "score detector.tolfl readings.csv",
    "reproduce communication --quick",
    "report run",
)


def walk(arguments: list[str]) -> tuple[int, int, int, object]:
    """Run a command; return how many functions and files it goes through, how deep, and its exit code."""
    seen: set[tuple[str, str]] = set()
    depth, deepest = 0, 0

    def follow(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal depth, deepest
        code_ = frame.f_code
        if not code_.co_filename.startswith(_ROOT) or event not in ("call", "return"):
            return
        if not code_.co_flags & inspect.CO_OPTIMIZED or "<" in code_.co_name:  # modules, classes, comprehensions
            return
        depth = max(0, depth + (1 if event == "call" else -1))
        deepest = max(deepest, depth)
        seen.add((code_.co_filename, code_.co_qualname))

    before, sys.argv, code = sys.argv, ["tolfl", *arguments], 0
    sys.setprofile(follow)
    try:
        shown = io.TextIOWrapper(io.BytesIO())  # `score` writes bytes
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()):
            main()
    except SystemExit as exit_:
        code = exit_.code or 0  # type: ignore[assignment]
    finally:
        sys.setprofile(None)
        sys.argv = before
    return len(seen), len({file for file, _ in seen}), deepest, code


def _print_walks(commands: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("readings.csv").write_text(_TABLE)
        print("| command | functions | files | depth | exit |\n|---|---|---|---|---|")
        for arguments in commands:
            print(f"| {' '.join(arguments)} | {' | '.join(str(found) for found in walk(arguments))} |", flush=True)


if __name__ == "__main__":
    _print_walks([sys.argv[1:]] if sys.argv[1:] else [command.split() for command in _COMMANDS])
