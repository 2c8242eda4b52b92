"""Numbers of a window, for all windows at once: the twelve of the Comms-ML data set, and what they are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.packets import TCP, UDP
from tolfl.signals.windows import Windows

Float = NDArray[np.float64]

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
    gaps, wire = gaps_s(windows), packets.wire_bytes
    result[:, 0] = sizes
    result[:, 1] = np.fmin.reduceat(gaps, first)
    result[:, 2] = np.fmax.reduceat(gaps, first)
    result[:, 3] = np.add.reduceat(np.nan_to_num(gaps), first) / np.maximum(sizes - 1, 1)
    result[:, 4] = count(windows, packets.protocol == TCP)
    result[:, 5] = count(windows, packets.protocol == UDP)
    result[:, 6] = np.minimum.reduceat(wire, first)
    result[:, 7] = np.maximum.reduceat(wire, first)
    result[:, 8] = np.add.reduceat(wire, first) / sizes
    result[:, 9] = n_unique(windows, wire)
    result[:, 10] = n_unique(windows, packets.source)
    result[:, 11] = n_unique(windows, packets.destination)
    return result


def gaps_s(windows: Windows) -> Float:
    """Return the time since the packet before in the same window: NaN for the first one, 0 for the only one."""
    time_s = windows.packets.time_s
    gaps = np.diff(time_s, prepend=time_s[:1])
    gaps[windows.first] = np.where(windows.sizes == 1, 0.0, np.nan)
    return gaps


def count(windows: Windows, is_counted: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return how many packets of each window are counted."""
    return np.add.reduceat(is_counted, windows.first, dtype=np.intp)


def n_unique(windows: Windows, values: NDArray[np.generic]) -> NDArray[np.intp]:
    """Return how many different values each window has."""
    order = np.lexsort((values, windows.number))
    ranked = values[order]
    is_new = np.ones(len(ranked), np.bool_)
    is_new[1:] = ranked[1:] != ranked[:-1]
    is_new[windows.first] = True
    return count(windows, is_new)
