"""Captures as the twelve statistics of windows, whatever their size.

All packets of a capture count, in both directions: a capture is what one receiver heard, and in the simulation the
statistics are those of all packets in the region, too. The rules:

- The first window starts at the first packet. A packet that is older than that, or that comes after its window was
  closed, is left out and counted.
- A window is closed when a packet comes that is more than `LATENESS_S` younger than its end, and at the end of the
  capture if it goes on until the window's end. The last window is left out if it is not whole.
- A window without a packet gives no row.

Memory holds the packets of the windows that are open and one block of the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.captures.packets import Heard, heard_in, joined
from tolfl.signals.captures.pcap_reading import records_in
from tolfl.signals.captures.records import NS, CaptureFileError, Tally
from tolfl.signals.statistics import STATISTICS, window_statistics
from tolfl.signals.windows import WindowGrid, numbered_windows

Float = NDArray[np.float64]

#: Every packet counts. The simulation looks at one second of each minute: `WindowGrid(1, 60)`.
CAPTURE_GRID = WindowGrid(1.0, 1.0)
LATENESS_S = 1.0  #: several network queues, or several interfaces, write packets a little out of order
_PACKETS_AT_ONCE = 65_536  #: windows are looked for when so many have come
_UNITS = {"gap_min_s": "s", "gap_max_s": "s", "gap_mean_s": "s"} | {
    f"wire_{what}_bytes": "bytes" for what in ("min", "max", "mean")
}
_WITH_GRID = re.compile(r"\w+ \((?P<window>[^ ]+) s every (?P<step>[^ ]+) s\)")


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class CaptureRows:
    """Some windows in order of time."""

    start_s: Float
    """When each window starts, in seconds since 1970."""
    features: Float
    """Shape `(n_windows, 12)`."""


def window_rows(
    paths: Sequence[Path], grid: WindowGrid = CAPTURE_GRID, tally: Tally | None = None
) -> Iterator[CaptureRows]:
    """Yield the windows of a capture, which may be several files that follow one another.

    What was not understood is counted in `tally`.
    """
    tally = Tally() if tally is None else tally
    _check(grid)
    blocks = chain.from_iterable(records_in(path, tally) for path in paths)
    cutter = _Windows(grid, tally)
    n_rows = 0
    for heard in _gathered(heard_in(records, tally) for records in blocks):
        for rows in cutter.add(heard):
            n_rows += len(rows.start_s)
            yield rows
    for rows in cutter.close():
        n_rows += len(rows.start_s)
        yield rows
    if not n_rows:
        raise CaptureFileError(paths[0], _nothing(cutter.span_s, grid, tally))


def feature_names(grid: WindowGrid = CAPTURE_GRID) -> tuple[str, ...]:
    """Return what the statistics of captures are called: any other grid than the usual one is part of the names.

    So a detector knows its windows, and rows of other windows do not fit it.

    >>> feature_names(WindowGrid(1, 60))[:2]
    ('packets (1 s every 60 s)', 'gap_min_s (1 s every 60 s)')
    """
    if grid == CAPTURE_GRID:
        return STATISTICS
    return tuple(f"{name} ({grid.duration_s:.12g} s every {grid.interval_s:.12g} s)" for name in STATISTICS)


def names_with_units(grid: WindowGrid = CAPTURE_GRID) -> tuple[str, ...]:
    """Return the names with units in brackets behind them."""
    units = (_UNITS.get(statistic, "") for statistic in STATISTICS)
    return tuple(f"{name} [{unit}]" if unit else name for name, unit in zip(feature_names(grid), units, strict=True))


def grid_of(names: Iterable[str]) -> WindowGrid:
    """Return the windows that features were made of, by their names.

    >>> grid_of(feature_names(WindowGrid(0.5, 30))), grid_of(["packets"])
    (WindowGrid(duration_s=0.5, interval_s=30.0), WindowGrid(duration_s=1.0, interval_s=1.0))
    """
    for name in names:
        if match := _WITH_GRID.fullmatch(name):
            return WindowGrid(float(match["window"]), float(match["step"]))
    return CAPTURE_GRID


class _Windows:
    """Packets go in as they come, windows come out when they are over."""

    def __init__(self, grid: WindowGrid, tally: Tally) -> None:
        self._grid, self._tally = grid, tally
        self._window_ns, self._step_ns = round(grid.duration_s * NS), round(grid.interval_s * NS)
        self._start_ns = self._last_ns = 0
        self._next = 0  #: windows with smaller numbers are closed
        self._open: Heard | None = None

    @property
    def span_s(self) -> float | None:
        """From the first to the last packet; None if there was none."""
        return None if self._open is None else (self._last_ns - self._start_ns) / NS

    def add(self, heard: Heard) -> Iterator[CaptureRows]:
        if not len(heard):
            return
        if self._open is None:
            self._start_ns = self._last_ns = int(heard.time_ns[0])
            self._open = heard.take(np.zeros(len(heard), np.bool_))
        self._last_ns = max(self._last_ns, int(heard.time_ns.max()))
        since = heard.time_ns - self._start_ns
        number = since // self._step_ns
        is_inside = since - number * self._step_ns < self._window_ns
        self._count("older than the first packet", since < 0)
        self._count("later than their window", is_inside & (since >= 0) & (number < self._next))
        self._open = joined([self._open, heard.take(is_inside & (number >= self._next))])
        yield from self._closed(self._last_ns - round(LATENESS_S * NS))

    def close(self) -> Iterator[CaptureRows]:
        yield from self._closed(self._last_ns)

    def _count(self, reason: str, is_so: NDArray[np.bool_]) -> None:
        if is_so.any():
            self._tally.left_out[reason] += int(is_so.sum())

    def _closed(self, until_ns: int) -> Iterator[CaptureRows]:
        """Yield the windows that end at `until_ns` or before."""
        end = (until_ns - self._start_ns - self._window_ns) // self._step_ns + 1
        if self._open is None or end <= self._next:
            return
        self._next = end
        number = (self._open.time_ns - self._start_ns) // self._step_ns
        is_over = number < end
        over = self._open.take(is_over)
        self._open = self._open.take(~is_over)
        if len(over):
            yield self._rows(over)

    def _rows(self, over: Heard) -> CaptureRows:
        # Stable, so that packets of the same instant stay in the order of the file.
        over = over.take(np.argsort(over.time_ns, kind="stable"))
        since = over.time_ns - self._start_ns
        windows = numbered_windows(over.packets(self._start_ns), since // self._step_ns, 0.0, self._grid.interval_s)
        start_ns = self._start_ns + since[windows.first] // self._step_ns * self._step_ns
        # In two parts: nanoseconds since 1970 have more digits than a float.
        return CaptureRows(start_ns // NS + start_ns % NS / NS, window_statistics(windows))


def _gathered(parts: Iterable[Heard]) -> Iterator[Heard]:
    """Yield packets by the ten thousand: small steps would cost more than the packets."""
    waiting: list[Heard] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= _PACKETS_AT_ONCE:
            yield joined(waiting)
            waiting = []
    if waiting:
        yield joined(waiting)


def _check(grid: WindowGrid) -> None:
    if not (1e-9 <= grid.duration_s <= grid.interval_s < math.inf):
        raise SpecError(
            f"windows of {grid.duration_s:g} s every {grid.interval_s:g} s; the step must be at least the window"
        )


def _nothing(span_s: float | None, grid: WindowGrid, tally: Tally) -> str:
    if span_s is None:
        why = f": {tally.sentence}" if tally.n_packets else ""
        return f"there is no packet that could be used{why}; capture again"
    return (
        f"the {span_s:g} s from the first packet to the last hold no whole window of {grid.duration_s:g} s; "
        "use a longer capture or shorter windows"
    )
