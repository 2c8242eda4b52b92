"""Frames of 802.11 in monitor mode, and their windows as rows: what floods, twins, jammers and unknown networks change.

Read are headers, what the receiver says of a frame (radiotap), and names in beacons. A frame with a wrong checksum
counts as such and in nothing else. A window without frames is a row, too: its counts are 0, and the rest is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError
from tolfl.signals.link_layers import LINKS
from tolfl.signals.pcap import NS, CaptureSummary, Int64, Numbers, RecordBlock, records_in
from tolfl.signals.windows import CaptureFeature, WindowGrid, different

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


# -- windows of frames as rows -----------------------------------------------------------------------------------------

Float = NDArray[np.float64]
Bools = NDArray[np.bool_]

SUMMED_S = 10.0  #: rare frames are summed over so long: slow attacks
_LEAST_FRAMES = 10  #: that a share or a spread is taken of
_MOST_KEYS = 256  #: networks or channels that have rows of their own at once
#: Frames by what they are: 16 times the type plus the subtype.
_KINDS = {
    "beacons": (8,),
    "probe_requests": (4,),
    "probe_responses": (5,),
    "authentications": (11,),
    "associations": (0, 1, 2, 3),
    "deauthentications": (12,),
    "disassociations": (10,),
    "actions": (13, 14),
    "rts_cts": (27, 28),
    "acks": (29,),
    "block_acks": (24, 25),
    "data_frames": (32, 33, 34, 35, 40, 41, 42, 43),
    "null_frames": (36, 44),
}
_QOS_DATA = (40, 41, 42, 43, 44)
_RETRY, _PROTECTED = 8, 0x40  #: of the frame control
_CLOCK_OFF_US = 100_000
_CLOCK_KEPT_NS = 600 * NS  #: crystals are up to 0.01 % off: 0.06 s in so long
_MOST_CLOCKS = 4096  #: of networks, the newest
_COUNTS = (
    "frames", *_KINDS, "channels", "bad_checksums", "largest_talker", "transmitters", "receivers", "networks", "names",
    "twins", "sequence_steps_back", "clock_jumps", "new_network_frames",
)  # fmt: skip
_SHARES = ("retry_share", "protected_share", "random_address_share")
_SUMMED = (
    "beacons", "probe_requests", "probe_responses", "authentications", "associations", "deauthentications",
    "disassociations", "actions", "clock_jumps", "new_network_frames",
)  # fmt: skip


class WlanRows:
    """Frames of 802.11 as rows of windows that follow one another; what a window carries over to the next is kept.

    Parameters
    ----------
    per
        Nothing: one row per window. `bssid`, `channel`: one row per window and network, or channel, with a frame in
        the last ten seconds.
    known
        The networks that are not new; None: unknown, and the feature of new ones is missing.
    """

    links: tuple[int, ...] = (WLAN, RADIOTAP)
    packet = FRAME
    features = (
        *(CaptureFeature(name, "", "count") for name in _COUNTS),
        *(CaptureFeature(name, "", "share") for name in _SHARES),
        CaptureFeature("signal_mean", "dBm", "level"),
        CaptureFeature("signal_max", "dBm", "level"),
        CaptureFeature("signal_spread", "dB", "level"),
        CaptureFeature("data_bytes", "bytes", "volume"),
        CaptureFeature("rate_mean", "Mb/s", "rate"),
        CaptureFeature("longest_wait", "s", "duration"),
        *(CaptureFeature(f"{name}_{SUMMED_S:g}s", "", "count") for name in _SUMMED),
    )
    is_row_without_packets = True  #: the network may be jammed
    read = staticmethod(frames_in)

    def __init__(self, grid: WindowGrid, per: str = "", known: Networks | None = None) -> None:
        self.per, self._window_ns, self._known = per, round(grid.duration_s * NS), known
        self._n_summed = max(1, round(SUMMED_S / grid.interval_s))
        self._keys = np.zeros(0 if per else 1, np.uint64)
        self._last_ns = np.full(len(self._keys), -1, np.int64)  #: of each key's newest frame; -1: none
        self._before = np.zeros((self._n_summed - 1, len(self._keys), len(_SUMMED)))  #: counts of the last windows
        self._clocks = np.empty(0, FRAME)  #: the last frame of each network that says its clock

    def forget(self) -> None:
        """Begin anew, as after a step of the clock."""
        self._clocks = self._clocks[:0]
        self._last_ns[:] = -1
        self._before[:] = 0

    def rows(self, frames: Frames, window: Int64, starts_ns: Int64) -> tuple[Float, Int64, list[str]]:
        """Return features of frames in order of time, the window of each row, and its key.

        `window` is the place of each frame's window in `starts_ns`.
        """
        place = np.zeros(len(frames), np.int64)
        if self.per:
            key = frames["bssid"] if self.per == "bssid" else frames["channel_mhz"].astype(np.uint64)
            self._meet(key[key > 0])
            place = np.searchsorted(self._keys, key)
            is_kept = (key > 0) & (place < len(self._keys))
            is_kept[is_kept] = self._keys[place[is_kept]] == key[is_kept]
            frames, place, window = frames[is_kept], place[is_kept], window[is_kept]
        n_windows, n_keys = len(starts_ns), len(self._keys)
        group = window * n_keys + place
        found = features_of(frames, group, n_windows * n_keys)
        waits, newest = self._waits(frames, group, starts_ns)
        found["longest_wait"] = waits
        found["new_network_frames"] = self._new_networks(frames, group, n_windows * n_keys)
        found["clock_jumps"] = self._clock_jumps(frames, group, n_windows * n_keys)
        self._sum(found, n_windows)
        table = np.column_stack([found[feature.name] for feature in self.features])
        which = np.arange(n_windows * n_keys)
        if self.per:
            ends = np.repeat(starts_ns + self._window_ns, n_keys)
            which = which[(newest >= 0) & (ends - newest <= SUMMED_S * NS)]
        keys = [self._name(one) for one in self._keys[which % max(n_keys, 1)].tolist()] if self.per else []
        return table[which], which // max(n_keys, 1), keys

    def _meet(self, keys: NDArray[np.uint64]) -> None:
        """Make room for keys that are new, and forget those that have been silent for long; at most `_MOST_KEYS`."""
        own, counts = np.unique(keys, return_counts=True)
        is_recent = (self._last_ns >= self._last_ns.max(initial=0) - SUMMED_S * NS) & (self._last_ns >= 0)
        new = np.setdiff1d(own[np.argsort(-counts, kind="stable")][:_MOST_KEYS], self._keys[is_recent])
        room = max(_MOST_KEYS - int(is_recent.sum()), 0)
        kept = np.concatenate([self._keys[is_recent], new[:room]])
        order = np.argsort(kept, kind="stable")
        n_new = len(kept) - int(is_recent.sum())
        self._last_ns = np.concatenate([self._last_ns[is_recent], np.full(n_new, -1, np.int64)])[order]
        nothing = np.zeros((len(self._before), n_new, len(_SUMMED)))
        self._before = np.concatenate([self._before[:, is_recent], nothing], axis=1)[:, order]
        self._keys = kept[order]

    def _name(self, key: int) -> str:
        return key.to_bytes(6, "big").hex(":") if self.per == "bssid" else f"{key} MHz"

    def _waits(self, frames: Frames, group: Int64, starts_ns: Int64) -> tuple[Float, Int64]:
        """Return the longest wait in each group, counted from its true beginning, and the newest frame so far."""
        n_windows, n_keys = len(starts_ns), len(self._keys)
        times, key = frames["time_ns"], group % max(n_keys, 1)
        order = np.lexsort((np.arange(len(times)), key))
        before = np.empty(len(times), np.int64)
        before[order[1:]] = times[order[:-1]]
        is_first = np.ones(len(times), np.bool_)
        is_first[1:] = key[order][1:] != key[order][:-1]
        before[order[is_first]] = self._last_ns[key[order[is_first]]]
        before = np.where(before < 0, times, before)
        waits = np.zeros(n_windows * n_keys)
        np.maximum.at(waits, group, (times - before) / NS)
        newest = np.full((n_windows, n_keys), -1, np.int64)
        np.maximum.at(newest.ravel(), group, times)
        newest[:1] = np.maximum(newest[:1], self._last_ns)
        newest = np.maximum.accumulate(newest, axis=0)
        self._last_ns = newest[-1].copy()
        ends = (starts_ns + self._window_ns)[:, None]
        still = np.where(newest >= 0, (ends - newest) / NS, np.nan)
        return np.fmax(waits, still.ravel()), newest.ravel()

    def _new_networks(self, frames: Frames, group: Int64, n_groups: int) -> Float:
        if self._known is None:
            return np.full(n_groups, np.nan)
        networks = networks_of(frames)
        is_new = (networks > 0) & ~np.isin(networks, self._known)
        return np.bincount(group[is_new], minlength=n_groups).astype(float)

    def _clock_jumps(self, frames: Frames, group: Int64, n_groups: int) -> Float:
        """Count where a network's own clock is off the capture's: two senders under one address have two clocks."""
        is_clock = np.isin(frames["kind"], ANNOUNCING) & (frames["timestamp_us"] > 0) & ~frames["is_bad"]
        n_kept = len(self._clocks)
        clocks = np.concatenate([self._clocks, frames[is_clock]])
        later, earlier = _neighbours([clocks["bssid"]], np.arange(len(clocks)))
        ticks_us = (clocks["timestamp_us"][later] - clocks["timestamp_us"][earlier]).view(np.int64)
        passed_ns = clocks["time_ns"][later] - clocks["time_ns"][earlier]
        is_off = (np.abs(ticks_us - passed_ns // 1000) > _CLOCK_OFF_US) & (passed_ns <= _CLOCK_KEPT_NS)
        is_last = np.ones(len(clocks), np.bool_)
        is_last[earlier] = False
        self._clocks = clocks[is_last][-_MOST_CLOCKS:]
        return np.bincount(group[is_clock][later[is_off] - n_kept], minlength=n_groups).astype(float)

    def _sum(self, found: dict[str, Float], n_windows: int) -> None:
        counts = np.stack([found[name].reshape(n_windows, -1) for name in _SUMMED], axis=2)
        all_counts = np.concatenate([self._before, counts])
        total = np.cumsum(np.concatenate([np.zeros((1, *counts.shape[1:])), all_counts]), axis=0)
        summed = total[self._n_summed :] - total[: -self._n_summed]
        self._before = all_counts[len(all_counts) - (self._n_summed - 1) :]
        for place, name in enumerate(_SUMMED):
            found[f"{name}_{SUMMED_S:g}s"] = summed[:, :, place].ravel()


def features_of(frames: Frames, group: Int64, n_groups: int) -> dict[str, Float]:
    """Return the features of groups of frames, but for those that look at other windows."""
    found = {"bad_checksums": np.bincount(group[frames["is_bad"]], minlength=n_groups).astype(float)}
    if frames["is_bad"].any():  # nothing in them can be trusted
        frames, group = frames[~frames["is_bad"]], group[~frames["is_bad"]]

    def count(is_counted: Bools) -> Float:
        return np.bincount(group[is_counted], minlength=n_groups).astype(float)

    def share(of: Bools, among: Bools) -> Float:
        n_all = count(among)
        return np.where(n_all >= _LEAST_FRAMES, count(of & among) / np.maximum(n_all, 1), np.nan)

    kind, flags, sender = frames["kind"], frames["flags"], frames["sender"]
    is_data, is_management = np.isin(kind, _KINDS["data_frames"]), kind >> 4 == MANAGEMENT
    found["frames"] = count(np.ones(len(frames), np.bool_))
    found |= {name: count(np.isin(kind, kinds)) for name, kinds in _KINDS.items()}
    has_sender = sender > 0
    found["transmitters"], found["largest_talker"] = _different(group, sender, n_groups, has_sender)
    is_unicast = (frames["receiver"] >> np.uint64(40)) & np.uint64(1) == 0
    found["receivers"] = _different(group, frames["receiver"], n_groups, is_unicast)[0]
    found["channels"] = _different(group, frames["channel_mhz"], n_groups, frames["channel_mhz"] > 0)[0]
    is_beacon = np.isin(kind, ANNOUNCING)
    is_named = is_beacon & (frames["name"] > 0)
    found["networks"] = _different(group, frames["bssid"], n_groups, is_beacon)[0]
    found["names"] = _different(group, frames["name"], n_groups, is_named)[0]
    found["twins"] = _different(group, networks_of(frames), n_groups, is_named)[0] - found["names"]
    found["sequence_steps_back"] = _steps_back(frames, group, n_groups)
    is_either = is_data | is_management
    found["retry_share"] = share(flags & _RETRY > 0, is_either)
    found["protected_share"] = share(flags & _PROTECTED > 0, is_data)
    found["random_address_share"] = share((sender >> np.uint64(41)) & np.uint64(1) > 0, has_sender)
    found |= _signal(frames, group, n_groups)
    found["data_bytes"] = np.bincount(group[is_data], frames["n_bytes"][is_data], n_groups)
    has_rate = np.isfinite(frames["rate_mbps"]) & is_either
    n_rates = count(has_rate)
    rates = np.bincount(group[has_rate], frames["rate_mbps"][has_rate], n_groups)
    found["rate_mean"] = np.where(n_rates > 0, rates / np.maximum(n_rates, 1), np.nan)
    return found


def _different(group: Int64, values: NDArray[np.generic], n_groups: int, mask: Bools) -> tuple[Float, Float]:
    """Return how many different values each group has, and how often it has the most frequent one."""
    group, values = group[mask], values[mask]
    largest = np.zeros(n_groups)
    found, counts = different(values, group)
    np.maximum.at(largest, found, counts)
    return np.bincount(found, minlength=n_groups).astype(float), largest


def _neighbours(keys: Sequence[NDArray[np.generic]], places: Int64) -> tuple[Int64, Int64]:
    """Return the places of frames and of those before them with the same keys."""
    order = places[np.lexsort((places, *(key[places] for key in keys)))]
    is_same = np.logical_and.reduce([key[order[1:]] == key[order[:-1]] for key in keys])
    return order[1:][is_same], order[:-1][is_same]


def _steps_back(frames: Frames, group: Int64, n_groups: int) -> Float:
    """Count sequence numbers of a sender that go back: another device uses its address."""
    is_counted = (frames["sequence"] >= 0) & ~np.isin(frames["kind"], _QOS_DATA) & (frames["flags"] & _RETRY == 0)
    later, earlier = _neighbours([frames["sender"], group], np.flatnonzero(is_counted & (frames["sender"] > 0)))
    back = (frames["sequence"][earlier].astype(np.int64) - frames["sequence"][later]) % 4096
    return np.bincount(group[later][(back > 0) & (back < 2048)], minlength=n_groups).astype(float)


def _signal(frames: Frames, group: Int64, n_groups: int) -> dict[str, Float]:
    has_signal = np.isfinite(frames["signal_dbm"])
    level, own = frames["signal_dbm"][has_signal].astype(float), group[has_signal]
    n = np.bincount(own, minlength=n_groups)
    mean = np.where(n > 0, np.bincount(own, level, n_groups) / np.maximum(n, 1), np.nan)
    square = np.bincount(own, level**2, n_groups) / np.maximum(n, 1) - mean**2
    highest = np.full(n_groups, -np.inf)
    np.maximum.at(highest, own, level)
    return {
        "signal_mean": mean,
        "signal_max": np.where(n > 0, highest, np.nan),
        "signal_spread": np.where(n >= _LEAST_FRAMES, np.sqrt(np.maximum(square, 0)), np.nan),
    }


#: Frames that come in numbers in an attack, and hardly ever else.
_ATTACK_FRAMES = ("deauthentications", "disassociations", "authentications", "associations")
_MANY = 20  #: in a window, and more than that above the median
_BEFORE_S, _BEHIND_S = 1.0, 11.0  #: what is near a burst: sums over ten seconds have it
_MOST_NAMED = 8


def bursts_in(names: Sequence[str], features: Float, starts_s: Float) -> tuple[Bools, str]:
    """Return which windows of 802.11 are in or near a burst of management frames, and a sentence on these.

    Such seconds look like an attack: a detector that learns from them takes them for usual. Sums over ten seconds still
    have a burst that is over. Of other captures, and without bursts, the sentence is empty.
    """
    plain = [name.split(" ")[0] for name in names]
    is_burst, peaks = np.zeros(len(features), np.bool_), []
    for name in _ATTACK_FRAMES:
        if name in plain:
            counts = features[:, plain.index(name)]
            is_many = counts > _MANY + np.median(counts)
            peaks += [f"{name} up to {counts.max():.0f}"] if is_many.any() else []
            is_burst |= is_many
    if not is_burst.any():
        return is_burst, ""
    when = starts_s[is_burst]
    off = starts_s[:, None] - when
    is_near: Bools = np.any((off >= -_BEFORE_S) & (off <= _BEHIND_S), axis=1)
    firsts = when[np.concatenate([[True], np.diff(when) > _BEHIND_S])]
    times = ", ".join(f"{datetime.fromtimestamp(one, UTC):%H:%M:%S}" for one in firsts[:_MOST_NAMED].tolist())
    more = ", ..." if len(firsts) > _MOST_NAMED else ""
    return (
        is_near,
        f"{int(is_burst.sum())} windows hold bursts that look like attacks ({', '.join(peaks)}), "
        f"from {times}{more} (UTC)",
    )


# -- known networks: those present while a device learned; all others are new ------------------------------------------

# A detector, which a fleet agrees on and people copy, does not have them: they stay on the device, in their own file.
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


def are_same_networks(one: Networks | None, other: Networks | None) -> bool:
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
