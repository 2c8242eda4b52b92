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


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return the median and the range.

    >>> spread([1.0, 4.0, 2.0])
    '2.00 (1.00-4.00)'
    """
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"
