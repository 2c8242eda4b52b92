"""Captures of other people, put together byte by byte: every format and link type that is read."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tolfl.signals.capture_rows import own_records
from tolfl.signals.link_layers import CAPTURED, LINKS, packets_in
from tolfl.signals.pcap import CaptureSummary, records_in
from tolfl.signals.windows import Packets

ETHERNET, RAW, WLAN, COOKED, RADIOTAP, COOKED_2, LOOPBACK = 1, 101, 105, 113, 127, 276, 0
A, B, C, D = (bytes.fromhex(f"0200000000{last:02x}") for last in (0xA, 0xB, 0xC, 0xD))


@dataclass(frozen=True)
class Frame:
    """A packet in a capture: what is kept of it, and how long it was (None: as long as what is kept)."""

    data: bytes
    time_ns: int = 1_700_000_000_000_000_000
    original: int | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        return len(self.data), len(self.data) if self.original is None else self.original


def pcap(frames: Iterable[Frame], link: int = ETHERNET, order: str = "<", is_nano: bool = True) -> bytes:
    magic, tick_ns = (0xA1B23C4D, 1) if is_nano else (0xA1B2C3D4, 1000)
    parts = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262_144, link)]
    for frame in frames:
        seconds, rest = divmod(frame.time_ns, 10**9)
        parts += [struct.pack(f"{order}IIII", seconds, rest // tick_ns, *frame.lengths), frame.data]
    return b"".join(parts)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + length + body + length


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(
    link: int = ETHERNET, resolution: int | None = None, offset_s: int | None = None, order: str = "<"
) -> bytes:
    options = b""
    if resolution is not None:
        options += struct.pack(f"{order}HHB3x", 9, 1, resolution)
    if offset_s is not None:
        options += struct.pack(f"{order}HHq", 14, 8, offset_s)
    if options:
        options += bytes(4)
    return block(1, struct.pack(f"{order}HHI", link, 0, 0) + options, order)


def packet(data: bytes, ticks: int, number: int = 0, order: str = "<", original: int | None = None) -> bytes:
    lengths = (len(data), len(data) if original is None else original)
    body = struct.pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, *lengths) + data
    return block(6, body, order)


def ipv4(protocol: int, payload: bytes, source: str = "0a000001", destination: str = "0a000002") -> bytes:
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0)
    return header + bytes.fromhex(source) + bytes.fromhex(destination) + payload


def ipv6(next_header: int, payload: bytes, last: int = 1) -> bytes:
    addresses = bytes.fromhex("20010db8") + bytes(11) + bytes([last]) + bytes.fromhex("20010db8") + bytes(11) + b"\x63"
    return struct.pack(">IHBB", 6 << 28, len(payload), next_header, 64) + addresses + payload


def ethernet(kind: int, payload: bytes, source: bytes = A, destination: bytes = B, tags: Sequence[int] = ()) -> bytes:
    labels = b"".join(struct.pack(">HH", tag, 7) for tag in tags)
    return destination + source + labels + struct.pack(">H", kind) + payload


def wlan(  # a data frame, unless said otherwise
    payload: bytes, kind: int = 0x0800, subtype: int = 0, more: int = 0, addresses: Sequence[bytes] = (A, B, C)
) -> bytes:
    control = bytes([0x08 | subtype << 4, more])
    qos = bytes(2) if subtype & 8 else b""
    fourth = addresses[3] if len(addresses) > 3 else b""
    snap = bytes.fromhex("aaaa03000000") + struct.pack(">H", kind)
    return control + bytes(2) + b"".join(addresses[:3]) + bytes(2) + fourth + qos + snap + payload


def management(subtype: int, sender: bytes = B, number: int = 0) -> bytes:
    return bytes([subtype << 4, 0, 0, 0]) + A + sender + C + (number << 4).to_bytes(2, "little") + bytes(2)


def beacon(clock_us: int, sender: bytes = C, name: bytes = b"x") -> bytes:
    return (
        management(8, sender)[:16]
        + sender
        + bytes(2)
        + clock_us.to_bytes(8, "little")
        + bytes(5)
        + bytes([len(name)])
        + name
    )


def radiotap(frame: bytes, flags: int | None = None, has_time: bool = False, words: int = 1) -> bytes:
    present = (1 if has_time else 0) | (2 if flags is not None else 0)
    listed = [present | (1 << 31 if words > 1 else 0)] + [
        (1 << 31 if word < words - 1 else 0) for word in range(1, words)
    ]
    header = b"".join(struct.pack("<I", word) for word in listed)
    if has_time:
        header += bytes(-(4 + len(header)) % 8) + bytes(range(8))
    if flags is not None:
        header += bytes([flags])
    return struct.pack("<BBH", 0, 0, 4 + len(header)) + header + frame


def read(path: Path) -> tuple[Packets, CaptureSummary]:
    """Return all packets of a capture, and what was not understood."""
    summary = CaptureSummary()
    own = (own_records(records, summary, LINKS) for records in records_in(path, summary))
    blocks = [packets_in(records, summary) for records in own]
    return np.concatenate([np.empty(0, CAPTURED), *blocks]), summary


def heard(folder: Path, frames: Iterable[bytes | Frame], link: int = ETHERNET) -> tuple[Packets, CaptureSummary]:
    """Return what is read of frames of a link type."""
    path = folder / "frames.pcap"
    path.write_bytes(pcap([frame if isinstance(frame, Frame) else Frame(frame) for frame in frames], link))
    return read(path)


def address(number: bytes) -> int:
    return int.from_bytes(number, "big")


def names(values: np.ndarray) -> list[int]:
    return [int(value) for value in values.tolist()]
