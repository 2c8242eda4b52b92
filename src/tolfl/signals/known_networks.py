"""Files of known networks: those present while a device learned; all others are new.

A network is known by its address and its name together, as a hash of both. A detector, which a fleet agrees on and
people copy, does not have them: they stay on the device, in a file of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tolfl.core.errors import DataFileError
from tolfl.signals.link_layers import LINKS
from tolfl.signals.pcap import NS, CaptureSummary, records_in
from tolfl.signals.windows import WindowGrid
from tolfl.signals.wlan import RADIOTAP, WLAN, Networks, frames_in, networks_of

MAX_NETWORKS = 4096  #: most networks in a list
DEVICE_FILE = "known.networks"  #: in the state folder of a device of a fleet


def networks_file(detector: Path) -> Path:
    """Return the file beside a detector's with the networks that it was fitted on.

    >>> networks_file(Path("street.tolfl")).name
    'street.tolfl.networks'
    """
    return detector.with_name(f"{detector.name}.networks")


def joined_networks(before: Networks | None, more: Networks | None) -> Networks | None:
    """Return what is known in the end, the newer ones where there are too many; None: there is no capture of 802.11."""
    if before is None or more is None:
        return before if more is None else more
    return np.sort(np.concatenate([more, np.setdiff1d(before, more)])[:MAX_NETWORKS])


def as_bytes(networks: Networks) -> bytes:
    """Return the content of such a file."""
    return networks.astype("<u8").tobytes()


def networks_known(path: Path) -> Networks | None:
    """Return the networks in a file; None: there is no such file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataFileError(path, f"cannot be read ({error.strerror}); check the path") from None
    if len(content) % 8:
        raise DataFileError(path, "is no list of networks; remove it, or fit again")
    return np.unique(np.frombuffer(content, "<u8").astype(np.uint64))


def are_same(one: Networks | None, other: Networks | None) -> bool:
    """Return whether the same networks are known."""
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


class CaptureNetworks(NamedTuple):
    """Hashes of networks, in order."""

    all: Networks
    """What is not among these is new to a detector that learned from the capture."""
    of_several_windows: Networks
    """What is not among these is new to all other windows of the capture than its own."""


def networks_in(paths: Sequence[Path], grid: WindowGrid) -> CaptureNetworks | None:
    """Return the networks of a capture of 802.11; None: it is of another link.

    Of more than a device may know, those count that were there for the longest time.
    """
    summary, origin_ns = CaptureSummary(), 0 if grid.duration_s == grid.interval_s else None
    window_ns, step_ns = round(grid.duration_s * NS), round(grid.interval_s * NS)
    found, has_frames = np.empty(0, np.uint64), False
    first = last = np.empty(0, np.int64)
    for path in paths:
        for records in records_in(path, summary):
            is_wlan = np.isin(records.rows["link"], (WLAN, RADIOTAP))
            if not is_wlan.any():
                if not has_frames and np.isin(records.rows["link"], LINKS).any():
                    return None
                continue
            has_frames = True
            frames = frames_in(replace(records, rows=records.rows[is_wlan]), summary)
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
    if not has_frames:
        return None
    kept = np.sort(np.argsort(first - last, kind="stable")[:MAX_NETWORKS])
    return CaptureNetworks(found[kept], found[kept][last[kept] > first[kept]])
