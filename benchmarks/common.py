"""What benchmarks print alike: the machine, and a median with its range."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence


def machine(*more: str) -> str:
    """Return a line on the machine and the interpreter, with what else matters."""
    cores = f"{os.cpu_count()} cores"
    return ", ".join([platform.machine(), cores, f"Python {platform.python_version()}", *more])


def spread(values: Sequence[float]) -> str:
    """Return the median and the range.

    >>> spread([1.0, 4.0, 2.0])
    '2.000 (1.000-4.000)'
    """
    return f"{statistics.median(values):.3f} ({min(values):.3f}-{max(values):.3f})"
