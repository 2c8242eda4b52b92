"""Frames of 802.11 in monitor mode: their headers, what the receiver says of them (radiotap), and names in beacons."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.pcap import CaptureSummary, Int64, Numbers, RecordBlock

WLAN, RADIOTAP = 105, 127  #: link types, as tcpdump.org numbers them
MANAGEMENT, CONTROL, DATA = 0, 1, 2
#: Of a frame; `kind` is 16 times the type plus the subtype, `flags` the second byte of the frame control.
FRAME = np.dtype(
    [
        ("time_ns", "i8"), ("n_bytes", "i4"), ("kind", "u1"), ("flags", "u1"), ("receiver", "u8"), ("sender", "u8"),
        ("bssid", "u8"), ("sequence", "i2"), ("signal_dbm", "f4"), ("channel_mhz", "u2"), ("rate_mbps", "f4"),
        ("name", "u8"), ("timestamp_us", "u8"), ("is_bad", "?"),
    ]
)  # fmt: skip

Frames = NDArray[np.void]  #: records of `FRAME`
Networks = NDArray[np.uint64]  #: hashes of address and name, in order
ANNOUNCING = (8, 5)  #: kinds that say a network's name and clock: beacons, probe responses
_PAIR = np.uint64(0x9E3779B97F4A7C15)

#: Control frames that name no sender: the wrapper, clear to send, acknowledgement.
_WITHOUT_SENDER = (7, 12, 13)
_HAS_CHECKSUM, _HAS_BAD_CHECKSUM = 0x10, 0x40  #: radiotap's flags
#: Radiotap's fields in the order of their bits: alignment and size.
_FIELDS = (
    (8, 8), (1, 1), (1, 1), (2, 4), (2, 2), (1, 1), (1, 1), (2, 2), (2, 2), (2, 2), (1, 1), (1, 1), (1, 1), (1, 1),
    (2, 2), (2, 2), (1, 1), (1, 1), (4, 8), (1, 3),
)  # fmt: skip
_FLAGS, _RATE, _CHANNEL, _SIGNAL, _MCS = 1, 2, 3, 5, 19
_MCS_MBPS = np.array([6.5, 13, 19.5, 26, 39, 52, 58.5, 65])
_MOST_WORDS = 8  #: of radiotap's list of fields
_HASH_START, _HASH_STEP = np.uint64(1469598103934665603), np.uint64(1099511628211)  #: FNV-1a
_LONGEST_NAME = 32


def frames_in(records: RecordBlock, summary: CaptureSummary) -> Frames:
    """Return the frames of a block; what cannot be read is counted."""
    numbers, rows = Numbers(records.data), records.rows
    at, end = rows["start"], rows["start"] + rows["captured"]
    found = np.zeros(len(rows), FRAME)
    found["time_ns"] = rows["time_ns"]
    found["rate_mbps"] = found["signal_dbm"] = np.nan
    is_radiotap = rows["link"] == RADIOTAP
    front, flags = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    if is_radiotap.any():
        front, flags = _read_radiotap(Numbers(records.data, "<"), at, rows["captured"], is_radiotap, found)
    is_there = ~is_radiotap | (front > 0)
    at = at + front
    control, more = numbers.at(at, 1), numbers.at(at + 1, 1)
    kind, subtype = (control >> 2) & 3, control >> 4
    has_sender = (kind != CONTROL) | ~np.isin(subtype, _WITHOUT_SENDER)
    needed = np.select([kind == CONTROL, kind == 3], [np.where(has_sender, 16, 10), 10], 24)
    is_there &= end - at >= needed
    found["n_bytes"] = rows["original"] - front - 4 * (flags & _HAS_CHECKSUM > 0)
    found["is_bad"] = flags & _HAS_BAD_CHECKSUM > 0
    found["kind"], found["flags"] = kind * 16 + subtype, more
    first, second, third = (numbers.at(at + place, 6).astype(np.uint64) for place in (4, 10, 16))
    found["receiver"], found["sender"] = first, np.where(has_sender, second, 0)
    to_ds, from_ds = more & 1 > 0, more & 2 > 0
    is_data = kind == DATA
    of_network = [
        kind == MANAGEMENT,
        is_data & ~to_ds & ~from_ds,
        is_data & to_ds & ~from_ds,
        is_data & from_ds & ~to_ds,
    ]
    found["bssid"] = np.select(of_network, [third, third, first, second], np.uint64(0))
    little = Numbers(records.data, "<")
    found["sequence"] = np.where(kind != CONTROL, little.at(at + 22, 2) >> 4, -1)
    _read_names(little, at, end, np.flatnonzero((kind == MANAGEMENT) & np.isin(subtype, (5, 8)) & is_there), found)
    if not is_there.all():
        summary.left_out["cut before the addresses"] += int((~is_there).sum())
    return found.compress(is_there)


def _read_radiotap(
    numbers: Numbers, at: Int64, captured: Int64, is_own: NDArray[np.bool_], found: Frames
) -> tuple[Int64, Int64]:
    """Return the length of each radiotap header (0: damaged, or none) and its flags; take what else it says.

    Radiotap is little-endian, whoever captured. Where a field is follows from the list of fields alone, so it is worked
    out once for each list that occurs.
    """
    length, present = numbers.at(at + 2, 2), numbers.at(at + 4, 4)
    is_good = is_own & (captured >= 8) & (numbers.at(at, 1) == 0) & (length >= 8) & (length <= captured)
    n_words, word = np.ones(len(at), np.int64), present
    for _ in range(_MOST_WORDS):
        goes_on = (word >> 31) & 1 > 0
        if not goes_on.any():
            break
        word = np.where(goes_on, numbers.at(at + 4 + 4 * n_words, 4), 0)
        n_words += goes_on
    flags = np.zeros(len(at), np.int64)
    lists = present * 16 + n_words
    for listed in np.unique(lists[is_good]).tolist():
        rows = np.flatnonzero(is_good & (lists == listed))
        place, bits = 4 + 4 * (listed % 16), listed // 16
        for bit, (alignment, size) in enumerate(_FIELDS):
            if not bits >> bit & 1:
                continue
            place = -(-place // alignment) * alignment
            inside = rows[place + size <= length[rows]]
            _take_field(numbers, at[inside] + place, bit, inside, flags, found)
            place += size
    return np.where(is_good, length, 0), flags


def _take_field(numbers: Numbers, at: Int64, bit: int, rows: Int64, flags: Int64, found: Frames) -> None:
    if bit == _FLAGS:
        flags[rows] = numbers.at(at, 1)
    elif bit == _RATE:
        rate = numbers.at(at, 1) * 0.5
        found["rate_mbps"][rows] = np.where(rate > 0, rate, np.nan)
    elif bit == _CHANNEL:
        found["channel_mhz"][rows] = numbers.at(at, 2)
    elif bit == _SIGNAL:
        found["signal_dbm"][rows] = numbers.at(at, 1).astype(np.int8)
    elif bit == _MCS:
        is_wide, index = numbers.at(at + 1, 1) & 3 == 1, numbers.at(at + 2, 1)
        found["rate_mbps"][rows] = _MCS_MBPS[index % 8] * (index // 8 + 1) * np.where(is_wide, 2.08, 1.0)


def _read_names(numbers: Numbers, at: Int64, end: Int64, rows: Int64, found: Frames) -> None:
    """Take the clock and the hash of the name of beacons and probe responses; 0: no name is said."""
    rows = rows[(end - at)[rows] >= 38]
    body = at[rows]
    found["timestamp_us"][rows] = numbers.words(body + 24)
    length = numbers.at(body + 37, 1)
    has_name = (
        (numbers.at(body + 36, 1) == 0) & (length > 0) & (length <= _LONGEST_NAME) & (body + 38 + length <= end[rows])
    )
    hashed = np.full(len(rows), _HASH_START)
    for place in range(int(length[has_name].max(initial=0))):
        letter = numbers.at(body + 38 + place, 1).astype(np.uint64)
        hashed = np.where(place < length, (hashed ^ letter) * _HASH_STEP, hashed)
    found["name"][rows] = np.where(has_name, hashed, np.uint64(0))


def networks_of(frames: Frames) -> Networks:
    """Return the network that each frame announces; 0: none, or without a name."""
    is_named = np.isin(frames["kind"], ANNOUNCING) & (frames["name"] > 0) & ~frames["is_bad"]
    return np.where(is_named, (frames["name"] * _PAIR) ^ frames["bssid"], np.uint64(0))
