"""A second of traffic every minute: which packets fall into which window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.packets import Packets

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """Windows of `duration_s` seconds, one every `interval_s` seconds.

    >>> WindowGrid().is_inside(np.array([5.0, 5.9, 6.1, 65.5]), start_s=5.0).tolist()
    [True, True, False, True]
    """

    duration_s: float = 1.0
    interval_s: float = 60.0

    def number(self, time_s: Float, start_s: float) -> NDArray[np.int64]:
        """Return the number of the interval that each time lies in; the first window starts at `start_s`."""
        return np.floor((time_s - start_s) / self.interval_s).astype(np.int64)

    def is_inside(self, time_s: Float, start_s: float) -> NDArray[np.bool_]:
        """Return whether each time lies in the window at the start of its interval."""
        since = time_s - start_s
        return since - np.floor(since / self.interval_s) * self.interval_s < self.duration_s


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The packets of all windows, one window after the other; no window is empty."""

    packets: Packets
    first: NDArray[np.intp]
    """Where each window begins in `packets`, shape `(n_windows,)`."""
    start_s: Float

    def __len__(self) -> int:
        return len(self.first)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """How many packets each window has."""
        return np.diff(self.first, append=len(self.packets))

    @property
    def number(self) -> NDArray[np.intp]:
        """The window of each packet."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def select(self, is_kept: NDArray[np.bool_]) -> Windows:
        """Return some of the windows."""
        sizes = self.sizes
        kept_sizes = sizes[is_kept]
        return Windows(
            self.packets.take(np.repeat(is_kept, sizes)), np.cumsum(kept_sizes) - kept_sizes, self.start_s[is_kept]
        )

    def have(self, is_wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which windows have a packet that is wanted."""
        found = np.zeros(len(self), np.bool_)
        found[self.number[is_wanted]] = True
        return found


def windows_of(packets: Packets, grid: WindowGrid, until_s: float = np.inf) -> Windows:
    """Cut packets into windows, the first of which starts at the first packet.

    Give packets in order of time: all of them, or all that lie inside the windows. One that would end after `until_s`
    is left out.
    """
    if not len(packets):
        return Windows(packets, np.empty(0, np.intp), np.empty(0))
    start_s = float(packets.time_s[0])
    inside = packets.take(grid.is_inside(packets.time_s, start_s))
    cut = numbered_windows(inside, grid.number(inside.time_s, start_s), start_s, grid.interval_s)
    return cut.select(cut.start_s + grid.duration_s <= until_s)


def numbered_windows(packets: Packets, number: NDArray[np.int64], start_s: float, interval_s: float) -> Windows:
    """Return windows of packets that already know the (ascending) number of theirs."""
    first = np.flatnonzero(np.diff(number, prepend=-1))
    return Windows(packets, first, start_s + number[first].astype(np.float64) * interval_s)
