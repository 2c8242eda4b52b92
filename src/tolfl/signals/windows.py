"""Time cut into windows: packets as records, the twelve statistics of a window, and windows as rows of features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UDP, TCP = 17, 6  #: the protocol field of an IP header
HEADER_BYTES = 42  #: of a UDP packet: Ethernet 14, IPv4 20, UDP 8
#: A simulated packet; addresses are numbers. Packets of a capture (`link_layers.CAPTURED`) have fields of these names.
PACKET = np.dtype(
    [("time_s", "f8"), ("wire_bytes", "i4"), ("source", "i4"), ("destination", "i4"), ("protocol", "u1")], align=True
)
Packets = NDArray[np.void]  #: records of `PACKET`, or of another type that has what the statistics need; by time

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


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class Windows:
    """The packets of all windows, one window after the other; no window is empty."""

    packets: Packets
    time_s: Float
    """When each packet was sent; where it counts from matters only within a window."""
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
        kept_sizes, inside = sizes[is_kept], np.repeat(is_kept, sizes)
        first = np.cumsum(kept_sizes) - kept_sizes
        return Windows(self.packets.compress(inside), self.time_s[inside], first, self.start_s[is_kept])

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
    start_s = float(packets["time_s"][0]) if len(packets) else 0.0
    inside = packets.compress(grid.is_inside(packets["time_s"], start_s))
    cut = numbered_windows(inside, grid.number(inside["time_s"], start_s), start_s, grid.interval_s)
    return cut.select(cut.start_s + grid.duration_s <= until_s)


def numbered_windows(packets: Packets, number: NDArray[np.int64], start_s: float, interval_s: float) -> Windows:
    """Return windows of packets that already know the (ascending) number of theirs."""
    first = np.flatnonzero(np.diff(number, prepend=-1))
    return Windows(packets, packets["time_s"], first, start_s + number[first].astype(np.float64) * interval_s)


#: In the order of the Comms-ML features. All of its traffic is UDP, so 4 is always 0 and 5 repeats 0.
STATISTICS = (
    "packets",
    "gap_min_s",
    "gap_max_s",
    "gap_mean_s",
    "tcp_packets",
    "udp_packets",
    "wire_min_bytes",
    "wire_max_bytes",
    "wire_mean_bytes",
    "unique_lengths",
    "unique_sources",
    "unique_destinations",
)


def window_statistics(windows: Windows) -> Float:
    """Return the twelve statistics of each window, shape `(n_windows, 12)`."""
    result = np.zeros((len(windows), len(STATISTICS)))
    if not len(windows):
        return result
    packets, first, sizes = windows.packets, windows.first, windows.sizes
    gaps, wire = gaps_s(windows), packets["wire_bytes"]
    result[:, 0] = sizes
    result[:, 1] = np.fmin.reduceat(gaps, first)
    result[:, 2] = np.fmax.reduceat(gaps, first)
    result[:, 3] = np.add.reduceat(np.nan_to_num(gaps), first) / np.maximum(sizes - 1, 1)
    result[:, 4] = count(windows, packets["protocol"] == TCP)
    result[:, 5] = count(windows, packets["protocol"] == UDP)
    result[:, 6] = np.minimum.reduceat(wire, first)
    result[:, 7] = np.maximum.reduceat(wire, first)
    result[:, 8] = np.add.reduceat(wire, first) / sizes
    result[:, 9] = n_unique(windows, wire)
    result[:, 10] = n_unique(windows, packets["source"])
    result[:, 11] = n_unique(windows, packets["destination"])
    return result


def gaps_s(windows: Windows) -> Float:
    """Return the time since the packet before in the same window: NaN for the first one, 0 for the only one."""
    gaps = np.diff(windows.time_s, prepend=windows.time_s[:1])
    gaps[windows.first] = np.where(windows.sizes == 1, 0.0, np.nan)
    return gaps


def count(windows: Windows, is_counted: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return how many packets of each window are counted."""
    return np.add.reduceat(is_counted, windows.first, dtype=np.intp)


def n_unique(windows: Windows, values: NDArray[np.generic]) -> NDArray[np.intp]:
    """Return how many different values each window has."""
    return np.bincount(different(values, windows.number)[0], minlength=len(windows))


def different(values: NDArray[np.generic], group: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.intp]]:
    """Return every value of a group once: its group, and how often it occurs there.

    >>> group, counts = different(np.array([7, 7, 5, 7]), np.array([0, 0, 0, 2]))
    >>> group.tolist(), counts.tolist()
    ([0, 0, 2], [1, 2, 1])
    """
    order = np.lexsort((values, group))
    values, group = values[order], group[order]
    is_new = np.ones(len(values), np.bool_)
    is_new[1:] = (values[1:] != values[:-1]) | (group[1:] != group[:-1])
    first = np.flatnonzero(is_new)
    return group[first], np.diff(first, append=len(values))


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class SignalRows:
    """Neighbouring windows in order of time; none, where a live source has nothing new."""

    names: tuple[str, ...]
    """Of the features, with units in brackets."""
    start_s: NDArray[np.float64]
    """When each window starts: of captures since 1970, of recordings and simulations since their beginning."""
    features: NDArray[np.float64]
    """Shape `(n_windows, n_features)`."""
    is_partial: NDArray[np.bool_] | None = None
    """Which windows a capture holds only a part of; None: this is no capture."""
    keys: tuple[str, ...] = ()
    """The network or channel that each row is about, where rows are per network or channel."""
    labels: tuple[str, ...] = ()
    """What the annotations of a recording say of each window."""

    @property
    def is_whole(self) -> NDArray[np.bool_]:
        """Which windows are there from their beginning to their end."""
        return np.ones(len(self.start_s), np.bool_) if self.is_partial is None else ~self.is_partial


class CaptureFeature(NamedTuple):
    """What a feature of captures is called, its unit, and what it measures."""

    name: str
    unit: str
    measure: str
