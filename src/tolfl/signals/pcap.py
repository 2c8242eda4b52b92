"""Captures of any size, a block at a time: pcap with micro- or nanoseconds, either byte order; pcapng; also as gzip.

Why not dpkt, which reads both: it makes Python objects of every packet and header. Here one short loop finds where the
packets begin, which only the packet before can tell, and NumPy reads all fields of a block at once. With the
statistics that takes less than a tenth of dpkt's time (`benchmarks/signals.py`).
"""

from __future__ import annotations

import gzip
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError

Int64 = NDArray[np.int64]


class Numbers:
    """Unsigned numbers of a block, read with one look-up each.

    Parameters
    ----------
    data
        The bytes, and eight more behind them.
    order
        `>` (networks), or `<`.

    >>> numbers = Numbers(np.arange(12, dtype=np.uint8))
    >>> [hex(number) for number in numbers.at(np.array([0, 2]), 2).tolist()]
    ['0x1', '0x203']
    """

    def __init__(self, data: NDArray[np.uint8], order: str = ">") -> None:
        self.data, self._order = data, order
        # A word of eight bytes at every byte. In the machine's own order: NumPy looks others up one by one.
        self._words = np.ndarray((max(len(data) - 7, 0),), np.uint64, buffer=data, strides=(1,))
        self._is_swapped = (order == ">") == (sys.byteorder == "little")

    def at(self, places: Int64, n_bytes: int) -> Int64:
        """Return numbers of up to seven bytes; a place behind the block gives a number without meaning."""
        words = self.words(places)
        if self._order == ">":
            return (words >> np.uint64(64 - 8 * n_bytes)).astype(np.int64)
        return (words & np.uint64(2 ** (8 * n_bytes) - 1)).astype(np.int64)

    def words(self, places: Int64) -> NDArray[np.uint64]:
        """Return numbers of eight bytes."""
        # Not `take`: it would copy the overlapping words first, eight times the block.
        words = self._words[np.minimum(places, len(self._words) - 1)]
        return words.byteswap() if self._is_swapped else words


SPARE_BYTES = 8  #: behind the data of a block, so that a number may be read at its last byte
BLOCK_BYTES = 512 * 2**10  #: read at once: a few thousand packets, and what is made of them fits into a cache
NS = 1_000_000_000


#: A packet as its file has it: where in the block the captured bytes begin, how many they are, and how many the packet
#: had before the capture cut it; the link type is as tcpdump.org numbers them.
RECORD = np.dtype([("time_ns", "i8"), ("start", "i8"), ("captured", "i8"), ("original", "i8"), ("link", "i8")])


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class RecordBlock:
    """Packets of one block, as records of `RECORD`, and the bytes of the block with `SPARE_BYTES` more."""

    data: NDArray[np.uint8]
    rows: NDArray[np.void]


@dataclass(slots=True)
class CaptureSummary:
    """How many packets a capture has, and what was not understood, by reason."""

    n_packets: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Packets that are in no window."""
    unparsed: Counter[str] = field(default_factory=Counter)
    """Packets that are counted and measured, but neither as TCP nor as UDP, for want of a readable IP header."""
    n_clock_steps: int = 0
    last_clock_step_s: float = 0.0
    """By how much the clock of the capture stepped last."""
    notes: list[str] = field(default_factory=list)
    """What else a person should know, in sentences without a full stop."""

    @property
    def sentence(self) -> str:
        """What a person should know; empty if everything was understood.

        >>> CaptureSummary(10, Counter({"link type 195": 3})).sentence
        '3 of 10 packets are left out (3 link type 195)'
        """
        parts = []
        if self.left_out:
            parts.append(f"{self.left_out.total()} of {self.n_packets} packets are left out ({_counts(self.left_out)})")
        if self.unparsed:
            parts.append(
                f"{self.unparsed.total()} of {self.n_packets} packets count, but neither as TCP nor as UDP "
                f"({_counts(self.unparsed)})"
            )
        if self.n_clock_steps:
            last = f"last by {self.last_clock_step_s:+.3f} s"
            parts.append(f"the clock of the capture stepped {self.n_clock_steps} time(s), {last}")
        return "; ".join(parts + self.notes)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in counter.most_common())


_GZIP = b"\x1f\x8b"
_FILE_HEADER_BYTES, _RECORD_BYTES = 24, 16
#: No capture program keeps more of a packet; a record that claims more is damaged.
_LONGEST_BYTES = 262_144
#: By the first four bytes: byte order, and nanoseconds per tick.
_KINDS = {
    bytes.fromhex("d4c3b2a1"): ("<", 1000),
    bytes.fromhex("a1b2c3d4"): (">", 1000),
    bytes.fromhex("4d3cb2a1"): ("<", 1),
    bytes.fromhex("a1b23c4d"): (">", 1),
}
#: Takes a block, with `SPARE_BYTES` behind it, and its position in the (unpacked) file; returns the packets in it, and
#: how many bytes it has used: the rest belongs to the next block.
_Cut = Callable[[bytes, int], tuple[list[RecordBlock], int]]


def records_in(path: Path, summary: CaptureSummary) -> Iterator[RecordBlock]:
    """Yield the packets of a capture file, a block at a time."""
    yield from records_of(path, _chunks_of(path, summary), summary)


def _chunks_of(path: Path, summary: CaptureSummary) -> Iterator[bytes]:
    """Yield a file in pieces, unpacked; what a gzip file lacks at its end is no error."""
    try:
        with path.open("rb") as file:
            stream = gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file
            while chunk := stream.read1(BLOCK_BYTES):
                yield chunk
    except EOFError:
        summary.notes.append(f"the gzip file is cut short; the {summary.n_packets} whole packets of it are used")
    except (zlib.error, gzip.BadGzipFile):
        raise DataFileError(path, "the gzip file is damaged; copy it again") from None
    except OSError as error:
        raise DataFileError(path, f"cannot be read ({error.strerror}); check the path") from None


def records_of(
    path: Path, chunks: Iterator[bytes], summary: CaptureSummary, *, is_live: bool = False
) -> Iterator[RecordBlock]:
    """Yield the packets of a capture that comes in pieces, a block at a time; its first bytes name the format.

    An empty piece says that nothing came for a while, and gives a block without packets. Only a live capture may end
    before its first byte.
    """
    rest, position = b"", 0
    cut: _Cut | None = None
    for chunk in chunks:
        rest += chunk
        if cut is None:
            if len(rest) < _FILE_HEADER_BYTES:
                yield RecordBlock(np.zeros(SPARE_BYTES, np.uint8), np.empty(0, RECORD))
                continue
            cut, position = _opened(path, rest, summary)
            rest = rest[position:]
        found, n_used = cut(rest + bytes(SPARE_BYTES), position)
        yield from found
        rest, position = rest[n_used:], position + n_used
    if cut is None and (rest or not is_live):
        _opened(path, rest, summary)  # which names the problem
    if rest:
        summary.notes.append(
            f"the file ends in the middle of a packet, at byte {position + len(rest)}; the {summary.n_packets} whole "
            "ones before it are used"
        )


def _opened(path: Path, head: bytes, summary: CaptureSummary) -> tuple[_Cut, int]:
    """Return what cuts the blocks of a capture that begins so, and how many bytes belong to no packet."""
    magic = head[:4]
    if not head:
        raise DataFileError(path, "the file is empty; capture again")
    if magic == SECTION:
        return _Sections(path, summary).cut, 0
    if magic not in _KINDS:
        raise DataFileError(
            path, f"is neither pcap nor pcapng (it begins with {magic.hex(' ')}); convert it: editcap {path.name} "
            "capture.pcap",
        )  # fmt: skip
    if len(head) < _FILE_HEADER_BYTES:
        raise DataFileError(path, "the file ends inside its header; capture or copy it again")
    order, ns_per_tick = _KINDS[magic]
    link = struct.unpack_from(f"{order}20xI", head)[0] & 0xFFFF  # above: whether frames have a checksum
    return partial(_cut_pcap, path, order, ns_per_tick, link, summary), _FILE_HEADER_BYTES


def _cut_pcap(
    path: Path, order: str, ns_per_tick: int, link: int, summary: CaptureSummary, block: bytes, _: int
) -> tuple[list[RecordBlock], int]:
    starts, end, claimed = _walk(block, len(block) - SPARE_BYTES, order)
    numbers = Numbers(np.frombuffer(block, np.uint8), order)
    at = np.array(starts, np.int64)
    rows = np.empty(len(at), RECORD)
    rows["time_ns"] = numbers.at(at, 4) * NS + numbers.at(at + 4, 4) * ns_per_tick
    rows["start"], rows["link"] = at + _RECORD_BYTES, link
    rows["captured"], rows["original"] = numbers.at(at + 8, 4), numbers.at(at + 12, 4)
    lengths = np.append(rows["captured"], claimed)
    if lengths.max() > _LONGEST_BYTES:
        place = int(np.argmax(lengths > _LONGEST_BYTES))
        raise DataFileError(
            path,
            f"packet {summary.n_packets + place + 1} claims {lengths[place]} bytes, more than any capture keeps: "
            "the file is damaged there; copy it again",
        )
    summary.n_packets += len(starts)
    return [RecordBlock(numbers.data, rows)], end


def _walk(block: bytes, n_bytes: int, order: str) -> tuple[list[int], int, int]:
    """Return where whole records begin, where the last one ends, and the length that one behind it claims."""
    length_at = struct.Struct(f"{order}I").unpack_from
    starts: list[int] = []
    at, last, claimed = 0, n_bytes - _RECORD_BYTES, 0
    while at <= last:
        (length,) = length_at(block, at + 8)
        end = at + _RECORD_BYTES + length
        if end > n_bytes:
            claimed = length
            break
        starts.append(at)
        at = end
    return starts, at, claimed


# -- pcapng: sections of either byte order, interfaces with a link type and a clock of their own ---------------------

SECTION = bytes.fromhex("0a0d0d0a")  #: the same in both byte orders
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 0x0A0D0D0A, 1, 2, 3, 6
_ORDERS = {bytes.fromhex("4d3c2b1a"): "<", bytes.fromhex("1a2b3c4d"): ">"}
_RESOLUTION, _OFFSET = 9, 14  #: options of an interface
_LONGEST_BLOCK_BYTES = 64 * 2**20
_MOST_INTERFACES = 65_536
_NO_TIME = "without a time (simple packet block)"
_BAD_TIME, _BAD_INTERFACE = "with an impossible time", "of an interface that is not described"
_BAD_LENGTH = "with a length that does not fit its block"


def _nanoseconds(ticks: Int64, exponent: int, is_binary: bool, offset_s: int) -> Int64:
    """Return nanoseconds since 1970, -1 where they do not fit into 63 bits, of 2 or 10 ** exponent ticks a second."""
    if is_binary:
        seconds, part = ticks >> exponent, ticks & ((1 << exponent) - 1)
        spare = max(0, exponent - 32)  # the product below has room for 32 bits and a billion
        fraction = ((part >> spare) * NS) >> (exponent - spare)
    else:
        per_second = 10**exponent
        seconds, part = np.divmod(ticks, per_second)
        fraction = part * (NS // per_second) if per_second <= NS else part // (per_second // NS)
    seconds = seconds + offset_s
    is_possible = (ticks >= 0) & (seconds >= 0) & (seconds < 2**63 // NS)
    return np.where(is_possible, np.where(is_possible, seconds, 0) * NS + fraction, -1)


@dataclass(slots=True)
class _Sections:
    """A pcapng file, and what is known since its last section began; blocks that hold no packet are skipped."""

    path: Path
    summary: CaptureSummary
    order: str = "<"
    links: list[int] = field(default_factory=list)
    clocks: list[tuple[int, bool, int]] = field(default_factory=list)  #: exponent, whether of 2, offset in seconds

    def cut(self, block: bytes, position: int) -> tuple[list[RecordBlock], int]:
        """Return the packets of each section in a block, and how many bytes have been used."""
        found, at = [], 0
        while True:
            starts, at = self._walk(block, position, at)
            found.append(self._packets(block, starts))
            length = self._begin(block, position, at) if block[at : at + 4] == SECTION else 0
            if not length:
                return found, at
            at += length

    def _begin(self, block: bytes, position: int, at: int) -> int:
        """Begin a section; return the length of its header, 0 if that is not whole yet."""
        n_bytes = len(block) - SPARE_BYTES
        if at + 28 > n_bytes:
            return 0
        order = _ORDERS.get(block[at + 8 : at + 12])
        if order is None:
            where = f"the section at byte {position + at}"
            raise DataFileError(self.path, f"{where} does not say its byte order; copy the file again")
        (length,) = struct.unpack_from(f"{order}I", block, at + 4)
        self._check_length(position + at, length)
        if at + length > n_bytes:
            return 0
        self.order, self.links, self.clocks = order, [], []
        return int(length)

    def _check_length(self, position: int, length: int) -> None:
        """Raise an error for an impossible length: behind it, no packet can be found in the file."""
        if length < 12 or length % 4 or length > _LONGEST_BLOCK_BYTES:
            where = f"the block at byte {position} claims {length} bytes"
            raise DataFileError(self.path, f"{where}: the file is damaged there; copy it again")

    def _walk(self, block: bytes, position: int, at: int) -> tuple[list[int], int]:
        """Return where blocks with packets begin, and where a new section begins or a block is not whole."""
        header_at = struct.Struct(f"{self.order}II").unpack_from
        n_bytes = len(block) - SPARE_BYTES
        starts: list[int] = []
        while at + 12 <= n_bytes:
            kind, length = header_at(block, at)
            if kind == _SECTION:
                break
            self._check_length(position + at, length)
            if at + length > n_bytes:
                break
            if kind in {_PACKET, _OLD_PACKET} and length >= 32:
                starts.append(at)
            elif kind == _INTERFACE:
                self._describe(block[at : at + length])
            elif kind == _SIMPLE_PACKET:
                self.summary.n_packets += 1
                self.summary.left_out[_NO_TIME] += 1
            at += length
        return starts, at

    def _describe(self, block: bytes) -> None:
        """Note an interface: its link type, and its clock from the options."""
        number, order = len(self.links), self.order
        if len(block) < 20 or number >= _MOST_INTERFACES:
            raise DataFileError(self.path, f"interface {number} is not described as it should be; copy it again")
        self.links.append(struct.unpack_from(f"{order}H", block, 8)[0])
        resolution, offset_s, at = 6, 0, 16
        while at + 4 <= len(block) - 4:
            code, length = struct.unpack_from(f"{order}HH", block, at)
            if code == 0 or at + 4 + length > len(block) - 4:
                break
            if code == _RESOLUTION and length >= 1:
                resolution = block[at + 4]
            elif code == _OFFSET and length == 8:
                offset_s = struct.unpack_from(f"{order}q", block, at + 4)[0]
            at += 4 + (length + 3) // 4 * 4
        is_binary, exponent = bool(resolution & 0x80), resolution & 0x7F
        if exponent > (62 if is_binary else 18) or abs(offset_s) > 2**62 // NS:
            raise DataFileError(
                self.path, f"interface {number} claims a clock that does not exist; copy the file again"
            )
        self.clocks.append((exponent, is_binary, offset_s))

    def _packets(self, block: bytes, starts: list[int]) -> RecordBlock:
        numbers = Numbers(np.frombuffer(block, np.uint8), self.order)
        at = np.array(starts, np.int64)
        is_old = numbers.at(at, 4) == _OLD_PACKET
        interface = np.where(is_old, numbers.at(at + 8, 2), numbers.at(at + 8, 4))
        rows = np.empty(len(at), RECORD)
        rows["start"], rows["captured"], rows["original"] = at + 28, numbers.at(at + 20, 4), numbers.at(at + 24, 4)
        is_described = interface < len(self.links)
        interface = np.where(is_described, interface, 0)
        ticks = (numbers.at(at + 12, 4) << 32) | numbers.at(at + 16, 4)
        rows["time_ns"], rows["link"] = -1, np.array(self.links or [0])[interface]
        for number in np.unique(interface[is_described]).tolist():
            is_here = interface == number
            rows["time_ns"][is_here] = _nanoseconds(ticks[is_here], *self.clocks[number])
        fits = rows["captured"] + 32 <= numbers.at(at + 4, 4)
        self.summary.n_packets += len(at)
        reasons = {_BAD_INTERFACE: ~is_described, _BAD_LENGTH: is_described & ~fits}
        reasons[_BAD_TIME] = is_described & fits & (rows["time_ns"] < 0)
        self.summary.left_out.update({reason: int(is_so.sum()) for reason, is_so in reasons.items() if is_so.any()})
        return RecordBlock(numbers.data, rows[is_described & fits & (rows["time_ns"] >= 0)])
