"""Blocks of pcapng: sections of either byte order, interfaces with a link type and a clock of their own."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tolfl.signals.captures.capture_records import (
    NS,
    RECORD,
    SPARE_BYTES,
    CaptureFileError,
    Cutter,
    Int64,
    Numbers,
    Readable,
    RecordBlock,
    Tally,
    cut_short,
)

SECTION = bytes.fromhex("0a0d0d0a")  #: the same in both byte orders
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 0x0A0D0D0A, 1, 2, 3, 6
_ORDERS = {bytes.fromhex("4d3c2b1a"): "<", bytes.fromhex("1a2b3c4d"): ">"}
_RESOLUTION, _OFFSET = 9, 14  #: options of an interface
_LONGEST_BLOCK_BYTES = 64 * 2**20
_MOST_INTERFACES = 65_536
_NO_TIME = "without a time (simple packet block)"
_BAD_TIME, _BAD_INTERFACE = "with an impossible time", "of an interface that is not described"
_BAD_LENGTH = "with a length that does not fit its block"


@dataclass(frozen=True, slots=True)
class _Clock:
    """Units per second, as a power of 10 or of 2, and what is added."""

    exponent: int = 6
    is_binary: bool = False
    offset_s: int = 0

    def ns(self, ticks: Int64) -> Int64:
        """Return nanoseconds since 1970; -1 where they do not fit into 63 bits."""
        if self.is_binary:
            seconds, part = ticks >> self.exponent, ticks & ((1 << self.exponent) - 1)
            spare = max(0, self.exponent - 32)  # the product below has room for 32 bits and a billion
            fraction = ((part >> spare) * NS) >> (self.exponent - spare)
        else:
            per_second = 10**self.exponent
            seconds, part = np.divmod(ticks, per_second)
            fraction = part * (NS // per_second) if per_second <= NS else part // (per_second // NS)
        seconds = seconds + self.offset_s
        is_possible = (ticks >= 0) & (seconds >= 0) & (seconds < 2**63 // NS)
        return np.where(is_possible, np.where(is_possible, seconds, 0) * NS + fraction, -1)


@dataclass(slots=True)
class _Section:
    """What has been said since the section began."""

    order: str
    links: list[int] = field(default_factory=list)
    clocks: list[_Clock] = field(default_factory=list)


def pcapng_records(stream: Readable, magic: bytes, tally: Tally) -> Iterator[RecordBlock]:
    """Yield the packets of a pcapng file, a block at a time; kinds of blocks that hold no packet are skipped."""
    cutter = Cutter(stream)
    section = _Section("<")
    for block in cutter.blocks(magic, 0):
        at = 0
        while True:
            starts, at = _walk(_BlockStart(stream.path, block, cutter.position), at, section, tally)
            yield _records(block, starts, section, tally)
            if block[at : at + 4] != SECTION:
                break
            section_or_none, at = _begun(_BlockStart(stream.path, block, cutter.position), at)
            if section_or_none is None:
                break
            section = section_or_none
        cutter.used(block, at)
    if cutter.n_left:
        tally.notes.append(cut_short(cutter.position + cutter.n_left, tally.n_packets))


class _BlockStart(NamedTuple):
    path: Path
    block: bytes
    position: int

    @property
    def n_bytes(self) -> int:
        return len(self.block) - SPARE_BYTES

    def check(self, at: int, length: int) -> None:
        """Refuse a length that cannot be: from there on, nothing can be found in the file."""
        if length < 12 or length % 4 or length > _LONGEST_BLOCK_BYTES:
            where = f"the block at byte {self.position + at} claims {length} bytes"
            raise CaptureFileError(self.path, f"{where}: the file is damaged there; copy it again")


def _begun(place: _BlockStart, at: int) -> tuple[_Section | None, int]:
    """Return the section that begins here and where its header ends; None if the header is not whole yet."""
    if at + 28 > place.n_bytes:
        return None, at
    order = _ORDERS.get(place.block[at + 8 : at + 12])
    if order is None:
        where = f"the section at byte {place.position + at}"
        raise CaptureFileError(place.path, f"{where} does not say its byte order; copy the file again")
    (length,) = struct.unpack_from(f"{order}I", place.block, at + 4)
    place.check(at, length)
    return (_Section(order), at + length) if at + length <= place.n_bytes else (None, at)


def _walk(place: _BlockStart, at: int, section: _Section, tally: Tally) -> tuple[list[int], int]:
    """Return where blocks with packets begin, and where a new section begins or a block is not whole."""
    header_at = struct.Struct(f"{section.order}II").unpack_from
    block, n_bytes = place.block, place.n_bytes
    starts: list[int] = []
    while at + 12 <= n_bytes:
        kind, length = header_at(block, at)
        if kind == _SECTION:
            break
        place.check(at, length)
        if at + length > n_bytes:
            break
        if kind in {_PACKET, _OLD_PACKET} and length >= 32:
            starts.append(at)
        elif kind == _INTERFACE:
            _describe(place.path, block[at : at + length], section)
        elif kind == _SIMPLE_PACKET:
            tally.n_packets += 1
            tally.left_out[_NO_TIME] += 1
        at += length
    return starts, at


def _describe(path: Path, block: bytes, section: _Section) -> None:
    """Note an interface: its link type, and its clock from the options."""
    if len(block) < 20 or len(section.links) >= _MOST_INTERFACES:
        raise CaptureFileError(path, f"interface {len(section.links)} is not described as it should be; copy it again")
    order = section.order
    section.links.append(struct.unpack_from(f"{order}H", block, 8)[0])
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
        raise CaptureFileError(
            path, f"interface {len(section.links) - 1} claims a clock that does not exist; copy the file again"
        )
    section.clocks.append(_Clock(exponent, is_binary, offset_s))


def _records(block: bytes, starts: list[int], section: _Section, tally: Tally) -> RecordBlock:
    numbers = Numbers(np.frombuffer(block, np.uint8), section.order)
    at = np.array(starts, np.int64)
    is_old = numbers.at(at, 4) == _OLD_PACKET
    interface = np.where(is_old, numbers.at(at + 8, 2), numbers.at(at + 8, 4))
    rows = np.empty(len(at), RECORD)
    rows["start"], rows["captured"], rows["original"] = at + 28, numbers.at(at + 20, 4), numbers.at(at + 24, 4)
    is_described = interface < len(section.links)
    interface = np.where(is_described, interface, 0)
    ticks = (numbers.at(at + 12, 4) << 32) | numbers.at(at + 16, 4)
    rows["time_ns"], rows["link"] = -1, np.array(section.links or [0])[interface]
    for number in np.unique(interface[is_described]).tolist():
        is_here = interface == number
        rows["time_ns"][is_here] = section.clocks[number].ns(ticks[is_here])
    fits = rows["captured"] + 32 <= numbers.at(at + 4, 4)
    tally.n_packets += len(at)
    reasons = {_BAD_INTERFACE: ~is_described, _BAD_LENGTH: is_described & ~fits}
    reasons[_BAD_TIME] = is_described & fits & (rows["time_ns"] < 0)
    tally.left_out.update({reason: int(is_so.sum()) for reason, is_so in reasons.items() if is_so.any()})
    return RecordBlock(numbers.data, rows[is_described & fits & (rows["time_ns"] >= 0)])
