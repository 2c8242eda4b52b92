"""CPU time until a command shows its help: what every command costs before it does anything.

`python -m benchmarks.start_up` starts each command's `--help` five times. The aim is 0.4 s or less.

November 2026, 2 cores of an AMD EPYC with twenty other processes on them: the least of five
was 0.28 s for `tolfl --help` and 0.34 to 0.43 s for a command (0.39 s and less for all but fit, compare, enroll device
and up).
"""

from __future__ import annotations

import resource
import subprocess
import sys

from docs.generate.commands import commands

_TIMES = 5
_TOLFL = (sys.executable, "-c", "import sys; sys.argv[0] = 'tolfl'; from tolfl.cli import main; main()")


def cpu_s(arguments: list[str]) -> float:
    """Return the CPU time of a command, of its own and of the system for it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*_TOLFL, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    print("| command | CPU s, least and most of five |\n|---|---|")
    for name in commands():
        taken = [cpu_s([*name.split()[1:], "--help"]) for _ in range(_TIMES)]
        print(f"| {name} --help | {min(taken):.2f} {max(taken):.2f} |", flush=True)
