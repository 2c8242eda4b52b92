"""The networks in a capture of 802.11, to be told from new ones later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tolfl.signals.captures.capture_records import NS, Tally
from tolfl.signals.captures.known_networks import MAX_NETWORKS, Networks
from tolfl.signals.captures.link_layers import LINKS
from tolfl.signals.captures.pcap_reading import records_in
from tolfl.signals.captures.wlan import RADIOTAP, WLAN, frames_in
from tolfl.signals.captures.wlan_features import networks_of
from tolfl.signals.packets import WindowGrid


class HeardNetworks(NamedTuple):
    """Hashes of networks, in order."""

    all: Networks
    """What is not among these is new to whoever learned from the capture."""
    of_several_windows: Networks
    """What is not among these is new to all other windows of the capture than its own."""


def networks_in(paths: Sequence[Path], grid: WindowGrid) -> HeardNetworks | None:
    """Return the networks of a capture of 802.11; None: it is of another link.

    Of more than a device may know, those count that were heard over the longest time.
    """
    tally, origin_ns = Tally(), 0 if grid.duration_s == grid.interval_s else None
    window_ns, step_ns = round(grid.duration_s * NS), round(grid.interval_s * NS)
    found, has_frames = np.empty(0, np.uint64), False
    first = last = np.empty(0, np.int64)
    for path in paths:
        for records in records_in(path, tally):
            is_wlan = np.isin(records.rows["link"], (WLAN, RADIOTAP))
            if not is_wlan.any():
                if not has_frames and np.isin(records.rows["link"], LINKS).any():
                    return None
                continue
            has_frames = True
            frames = frames_in(replace(records, rows=records.rows[is_wlan]), tally)
            if not len(frames):
                continue
            origin_ns = int(frames["time_ns"][0]) if origin_ns is None else origin_ns
            number, since_ns = np.divmod(frames["time_ns"] - origin_ns, step_ns)
            networks = networks_of(frames)
            is_named = (networks > 0) & (since_ns < window_ns)
            number = number[is_named]
            found, which = np.unique(np.concatenate([found, networks[is_named]]), return_inverse=True)
            begins, ends = np.concatenate([first, number]), np.concatenate([last, number])
            first, last = np.full(len(found), np.iinfo(np.int64).max), np.full(len(found), np.iinfo(np.int64).min)
            np.minimum.at(first, which, begins)
            np.maximum.at(last, which, ends)
    kept = np.sort(np.argsort(first - last, kind="stable")[:MAX_NETWORKS])
    return HeardNetworks(found[kept], found[kept][last[kept] > first[kept]])
