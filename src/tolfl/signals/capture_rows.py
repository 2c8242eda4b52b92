"""Captures as rows of windows, whatever their size, and while they are being made.

All packets of a capture count, in both directions: a capture is what one receiver picks up, and in the simulation the
statistics are those of all packets in the region, too. The rules, which give the same rows for any batches:

- Windows that follow one another without a pause begin at multiples of their length since 1970, so that a restart
  changes nothing. With a pause between them, the first one starts at the first packet, as in the simulation.
- A window is closed when a packet comes that is more than `LATENESS_S` younger than its end; a packet that comes for it
  later is left out and counted. Of a live capture, it is closed in silence by the monotonic clock, too.
- The first and the last window of such a grid are not whole, and marked as partial.
- A packet that is more than `JUMP_S` off the newest time waits for the next three. If they go on as before, its time
  is wrong: it is left out and counted. If they agree with it, time has passed (up to an hour), or the clock stepped:
  what is open is closed as partial, and windows begin anew there.

The first packet that is understood says of which family the capture is, and so which features there are: frames of
802.11 (`wlan`), or packets of all other links (`link_layers`). Packets of the other family are left out and counted.

Memory holds the packets of the windows that are open and one block of the file.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError, SpecError
from tolfl.signals.link_layers import ADVICE, PacketRows, link_name
from tolfl.signals.pcap import NS, CaptureSummary, Int64, RecordBlock, records_in, records_of
from tolfl.signals.windows import CaptureFeature, Float, SignalRows, WindowGrid
from tolfl.signals.wlan import Networks, WlanRows

Captured = NDArray[np.void]  #: packets, as their family has them


class Family(Protocol):
    """What the packets of a capture are, and how windows of them become rows."""

    links: tuple[int, ...]  #: link types, as tcpdump.org numbers them
    packet: np.dtype[np.void]  #: with a field `time_ns`
    features: tuple[CaptureFeature, ...]
    is_row_without_packets: bool  #: else a window without packets is none
    per: str  #: what rows are of beside the window; nothing: of all its packets

    def __init__(self, grid: WindowGrid, per: str, known: Networks | None) -> None: ...

    def read(self, records: RecordBlock, summary: CaptureSummary, /) -> Captured:
        """Return the packets of a block; what cannot be read is counted."""

    def rows(self, packets: Captured, window: Int64, starts_ns: Int64) -> tuple[Float, Int64, list[str]]:
        """Return features of packets in order of time, the window of each row, and its key where rows have one.

        `window` is the place of each packet's window in `starts_ns`.
        """

    def forget(self) -> None:
        """Begin anew after a step of the clock."""


_FAMILIES: tuple[type[Family], ...] = (PacketRows, WlanRows)
_LINKS = tuple(chain.from_iterable(family.links for family in _FAMILIES))

#: Every packet counts. The simulation looks at one second of each minute: `WindowGrid(1, 60)`.
CAPTURE_GRID = WindowGrid(1.0, 1.0)
LATENESS_S = 1.0  #: several network queues, or several interfaces, write packets a little out of order
JUMP_S = 10.0  #: a packet further from the newest time waits for others that confirm it
_LATENESS_NS, _JUMP_NS, _SILENCE_NS = round(LATENESS_S * NS), round(JUMP_S * NS), 3600 * NS
_WITHOUT_KEYS = {
    "bssid": "no frame names its network; leave --per out",
    "channel": "no frame has its channel; capture with radiotap (tcpdump -y IEEE802_11_RADIO), or leave --per out",
}
_WITNESSES = 3  #: packets that decide about one whose time is far off
_CHECKED_AT_ONCE = 16_384  #: times; one that is far off costs no more than these
_PACKETS_AT_ONCE = 65_536  #: windows are looked for when so many have come
_WINDOWS_AT_ONCE = 1024  #: rows of a long silence
_AT_MOST_S = 0.25  #: or, of a live capture, after so long
_WITH_GRID = re.compile(r"\w+ \((?P<window>[^ ]+) s every (?P<step>[^ ]+) s(, per \w+)?\)")
_WITH_KEY = re.compile(r"\w+ \((.*, )?per (?P<per>bssid|channel)\)")


def window_rows(
    paths: Sequence[Path],
    grid: WindowGrid = CAPTURE_GRID,
    summary: CaptureSummary | None = None,
    per: str = "",
    known: Networks | None = None,
) -> Iterator[SignalRows]:
    """Yield the windows of a capture, which may be several files that follow one another.

    What was not understood is counted in `summary`. `per` is `bssid` or `channel`: a row for each, of 802.11.
    `known` are the networks of 802.11 that are not new.
    """
    summary = CaptureSummary() if summary is None else summary
    n_rows = 0
    for rows in _rows_of(chain.from_iterable(records_in(path, summary) for path in paths), grid, summary, per, known):
        n_rows += len(rows.start_s)
        yield rows
    if not n_rows:
        raise DataFileError(paths[0], _nothing(summary, per))


def live_rows(
    streams: Iterable[tuple[Path, Iterator[bytes]]],
    grid: WindowGrid,
    summary: CaptureSummary,
    per: str = "",
    known: Networks | None = None,
) -> Iterator[SignalRows]:
    """Yield the windows of captures that are still being made, at most a second after each is over.

    Each is a name and its bytes, as `live_streams` gives them. At least four times a second something comes: where no
    window is over, rows that are none.
    """
    blocks = chain.from_iterable(records_of(path, chunks, summary, is_live=True) for path, chunks in streams)
    yield from _rows_of(blocks, grid, summary, per, known, is_live=True)


def _rows_of(
    blocks: Iterable[RecordBlock],
    grid: WindowGrid,
    summary: CaptureSummary,
    per: str,
    known: Networks | None,
    is_live: bool = False,
) -> Iterator[SignalRows]:
    """Yield rows of packets, taken by the ten thousand: small steps would cost more than the packets."""
    check_grid(grid)
    windows: CaptureWindows | None = None
    waiting: list[Captured] = []
    yielded_s = packet_s = time.monotonic()
    for records in blocks:
        now_s = time.monotonic()
        if windows is None and (family := _family_of(records)) is not None:
            windows = CaptureWindows(grid, summary, family(grid, per, known))
        if windows is None:
            own_records(records, summary)
            if is_live:
                yield SignalRows((), np.empty(0), np.empty((0, 0)))
            continue
        if len(records.rows):
            waiting.append(windows.family.read(own_records(records, summary, windows.family.links), summary))
            packet_s = now_s
        is_due = is_live and (not len(records.rows) or now_s - yielded_s >= _AT_MOST_S)
        if waiting and (is_due or sum(map(len, waiting)) >= _PACKETS_AT_ONCE):
            yield from windows.add(np.concatenate(waiting))
            waiting, yielded_s = [], now_s
        elif is_due:
            yield from windows.silence(round((now_s - packet_s) * NS))
            yielded_s = now_s
        if is_due:
            yield windows.no_rows
    if windows is not None:
        yield from windows.add(np.concatenate([windows.nothing, *waiting]), is_end=True)
        yield from windows.close()


def _family_of(records: RecordBlock) -> type[Family] | None:
    """Return the family of the first packet that is understood; None: there is none yet."""
    links = records.rows["link"]
    known = links[np.isin(links, _LINKS)]
    return next((family for family in _FAMILIES if len(known) and int(known[0]) in family.links), None)


def own_records(records: RecordBlock, summary: CaptureSummary, own: Sequence[int] = ()) -> RecordBlock:
    """Return the packets of a capture's own links; others are counted."""
    links = records.rows["link"]
    is_own = np.isin(links, own)
    for link, n_packets in zip(*np.unique(links[~is_own], return_counts=True), strict=True):
        beside = "beside others of" if int(link) in _LINKS else "of"
        summary.left_out[f"{beside} {link_name(int(link))}"] += int(n_packets)
    return replace(records, rows=records.rows[is_own])


def feature_names(
    features: Sequence[CaptureFeature], grid: WindowGrid = CAPTURE_GRID, per: str = ""
) -> tuple[str, ...]:
    """Return what features are called: with units and what they measure, and what each row is about.

    Any other grid than the usual one is part of the names: so a detector knows its windows, and rows of other windows
    do not fit it.

    >>> feature_names(PacketRows.features)[:2]
    ('packets [; count]', 'gap_min_s [s; duration]')
    >>> feature_names(WlanRows.features, WindowGrid(10, 10), "bssid")[-1]
    'new_network_frames_10s (10 s every 10 s, per bssid) [; count]'
    """
    about = [] if grid == CAPTURE_GRID else [f"{grid.duration_s:.12g} s every {grid.interval_s:.12g} s"]
    about += [f"per {per}"] if per else []
    note = f" ({', '.join(about)})" if about else ""
    return tuple(f"{one.name}{note} [{one.unit}; {one.measure}]" for one in features)


def grid_of(names: Iterable[str]) -> WindowGrid:
    """Return the windows that features were made of, by their names.

    >>> grid_of(["packets (0.5 s every 30 s)"]), grid_of(["packets"])
    (WindowGrid(duration_s=0.5, interval_s=30.0), WindowGrid(duration_s=1.0, interval_s=1.0))
    """
    for name in names:
        if match := _WITH_GRID.fullmatch(name):
            return WindowGrid(float(match["window"]), float(match["step"]))
    return CAPTURE_GRID


def per_of(names: Iterable[str]) -> str:
    """Return what the rows behind features are about, by their names: a network, a channel, or (nothing) everything.

    >>> per_of(["frames (per bssid)"]), per_of(["frames"])
    ('bssid', '')
    """
    return next((match["per"] for name in names if (match := _WITH_KEY.fullmatch(name))), "")


class CaptureWindows:
    """Packets of one family go in as they come, windows come out when they are over."""

    def __init__(self, grid: WindowGrid, summary: CaptureSummary, family: Family) -> None:
        self._summary, self.family = summary, family
        self._window_ns, self._step_ns = round(grid.duration_s * NS), round(grid.interval_s * NS)
        self._names = feature_names(family.features, grid, family.per)
        self.nothing: Captured = np.empty(0, family.packet)
        self._now_ns: int | None = None  #: the newest time; None: no packet yet
        self._packet_ns = 0  #: the newest time of a packet; silence adds to it
        self._start_ns = 0  #: where window 0 starts
        self._next = 0  #: windows with smaller numbers are closed
        self._partial: int | None = None  #: the number of a window whose beginning the capture does not hold
        self._open: list[Captured] = []
        self._waiting = self.nothing  #: a packet whose time is far off, and those behind it

    @property
    def no_rows(self) -> SignalRows:
        """Rows that are none."""
        return SignalRows(self._names, np.empty(0), np.empty((0, len(self._names))), np.empty(0, np.bool_))

    def add(self, packets: Captured, *, is_end: bool = False) -> Iterator[SignalRows]:
        """Yield the windows that are over with these packets."""
        if len(self._waiting):
            packets, self._waiting = np.concatenate([self._waiting, packets]), self.nothing
        times, at = packets["time_ns"], 0
        while at < len(packets):
            if self._now_ns is None:
                self._begin(int(times[at]))
            assert self._now_ns is not None
            some = times[at : at + _CHECKED_AT_ONCE]
            newest = np.maximum.accumulate(np.concatenate([[self._now_ns], some]))[:-1]
            far = np.flatnonzero(np.abs(some - newest) > _JUMP_NS)
            n_good = int(far[0]) if len(far) else len(some)
            if n_good:
                self._take(packets[at : at + n_good], newest[:n_good])
                yield from self._closed(self._now_ns - _LATENESS_NS)
            at += n_good
            if not len(far):
                continue
            behind = times[at + 1 : at + 1 + _WITNESSES]
            if len(behind) < _WITNESSES and not is_end:
                self._waiting = packets[at:]
                return
            yield from self._far(packets[at : at + 1], behind)
            at += 1

    def silence(self, silent_ns: int) -> Iterator[SignalRows]:
        """Yield the windows that are over because nothing has come for so long."""
        if self._now_ns is None:
            return
        if len(self._waiting) and silent_ns > self._window_ns + _LATENESS_NS:
            yield from self.add(self.nothing, is_end=True)
        self._now_ns = max(self._now_ns, self._packet_ns + silent_ns)
        yield from self._closed(self._now_ns - _LATENESS_NS)

    def close(self) -> Iterator[SignalRows]:
        """Yield the windows that are open; the last one is partial, unless the capture goes on to its end."""
        if self._now_ns is None:
            return
        yield from self._closed(self._now_ns)
        last = (self._now_ns - self._start_ns) // self._step_ns
        if last >= self._next:
            yield from self._closed(self._start_ns + last * self._step_ns + self._window_ns, cut=last)

    def _begin(self, time_ns: int) -> None:
        if self._now_ns is None and self._window_ns < self._step_ns:
            self._start_ns = time_ns
        self._now_ns = self._packet_ns = time_ns
        self._next, since_ns = divmod(time_ns - self._start_ns, self._step_ns)
        self._partial = self._next if 0 < since_ns < self._window_ns else None

    def _take(self, packets: Captured, newest: Int64) -> None:
        since = packets["time_ns"] - self._start_ns
        number = since // self._step_ns
        is_inside = since - number * self._step_ns < self._window_ns
        is_closed = number * self._step_ns + (self._window_ns + _LATENESS_NS + self._start_ns) <= newest
        is_late = is_inside & (is_closed | (number < self._next))
        if is_late.any():
            self._summary.left_out["later than their window"] += int(is_late.sum())
        self._open.append(packets.compress(is_inside & ~is_late))
        self._packet_ns = max(self._packet_ns, int(packets["time_ns"].max()))
        self._now_ns = max(self._now_ns or 0, self._packet_ns)

    def _far(self, one: Captured, behind: Int64) -> Iterator[SignalRows]:
        """Decide about a packet whose time is far from the newest: a wrong time, time that has passed, or a step."""
        assert self._now_ns is not None
        new_ns, now_ns = int(one["time_ns"][0]), self._now_ns
        goes_on = np.abs(behind - now_ns) < np.abs(behind - new_ns)
        is_long = new_ns < now_ns or new_ns - now_ns > _SILENCE_NS
        if goes_on.mean() > 0.5 if len(behind) else is_long:
            self._summary.left_out["with a time far from their neighbours'"] += 1
            return
        if is_long:
            self._summary.n_clock_steps += 1
            self._summary.last_clock_step_s = (new_ns - now_ns) / NS
            yield from self.close()
            self._begin(new_ns)
            self.family.forget()
            now_ns = new_ns
        self._take(one, np.array([now_ns]))
        yield from self._closed(self._now_ns - _LATENESS_NS)

    def _closed(self, until_ns: int, cut: int | None = None) -> Iterator[SignalRows]:
        """Yield the windows that end at `until_ns` or before; the number of one that is cut there may be given."""
        end = (until_ns - self._start_ns - self._window_ns) // self._step_ns + 1
        if end <= self._next:
            return
        packets = np.concatenate([self.nothing, *self._open])
        is_over = (packets["time_ns"] - self._start_ns) // self._step_ns < end
        over = packets.compress(is_over)
        first, self._open, self._next = self._next, [packets.compress(~is_over)], end
        # Stable, so that packets of the same instant stay in the order of the file.
        over = over.take(np.argsort(over["time_ns"], kind="stable"))
        number = (over["time_ns"] - self._start_ns) // self._step_ns
        numbers: Sequence[int] = range(first, end) if self.family.is_row_without_packets else np.unique(number).tolist()
        for at in range(0, len(numbers), _WINDOWS_AT_ONCE):
            some = np.array(numbers[at : at + _WINDOWS_AT_ONCE])
            begin, stop = np.searchsorted(number, [some[0], some[-1] + 1])
            yield self._rows(over[begin:stop], np.searchsorted(some, number[begin:stop]), some, cut)

    def _rows(self, packets: Captured, window: Int64, numbers: Int64, cut: int | None) -> SignalRows:
        """Return rows of the windows with these numbers; `window` is the place of each packet's among them."""
        starts_ns = self._start_ns + numbers * self._step_ns
        features, which, keys = self.family.rows(packets, window, starts_ns)
        start_ns = starts_ns[which]
        # In two parts: nanoseconds since 1970 have more digits than a float.
        start_s = start_ns // NS + start_ns % NS / NS
        is_partial = np.isin(numbers[which], [one for one in (self._partial, cut) if one is not None])
        return SignalRows(self._names, start_s, features, is_partial, tuple(keys))


def check_grid(grid: WindowGrid) -> None:
    """Raise an error for impossible windows."""
    if not (1e-9 <= grid.duration_s <= grid.interval_s < math.inf):
        raise SpecError(
            f"windows of {grid.duration_s:g} s every {grid.interval_s:g} s; the step must be at least the window"
        )


def _nothing(summary: CaptureSummary, per: str) -> str:
    if not summary.n_packets:
        return "there is no packet that could be used; capture again"
    if per and summary.n_packets > summary.left_out.total():
        return _WITHOUT_KEYS[per]
    advice = next((advice for name, advice in ADVICE if any(name in why for why in summary.left_out)), "capture again")
    return f"there is no packet that could be used: {summary.sentence}; {advice}"
