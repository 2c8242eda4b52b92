"""Captures of any size, a block at a time: pcap with micro- or nanoseconds, either byte order; pcapng; also as gzip.

Why not dpkt, which reads both: it makes Python objects of every packet and header. Here one short loop finds where the
packets begin, which only the packet before can tell, and NumPy reads all fields of a block at once. With the
statistics that takes less than a tenth of dpkt's time (`benchmarks/signals.py`).
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple

import numpy as np

from tolfl.signals.captures.capture_records import (
    NS,
    RECORD,
    CaptureFileError,
    Cutter,
    Numbers,
    Readable,
    RecordBlock,
    Tally,
    cut_short,
    exactly,
)
from tolfl.signals.captures.pcapng_reading import SECTION, pcapng_records

_GZIP = b"\x1f\x8b"
_FILE_HEADER_BYTES, _RECORD_BYTES = 24, 16
#: No capture program keeps more of a packet; a record that claims more is damaged.
_LONGEST_BYTES = 262_144


class _Kind(NamedTuple):
    order: str
    ns_per_tick: int


_KINDS = {
    bytes.fromhex("d4c3b2a1"): _Kind("<", 1000),
    bytes.fromhex("a1b2c3d4"): _Kind(">", 1000),
    bytes.fromhex("4d3cb2a1"): _Kind("<", 1),
    bytes.fromhex("a1b23c4d"): _Kind(">", 1),
}


class OpenCapture:
    """A capture file, open and unpacked; whatever goes wrong with the file becomes a sentence."""

    is_live = False

    def __init__(self, path: Path) -> None:
        self.path, self.is_over, self.is_cut = path, False, False
        try:
            with path.open("rb") as file:
                is_packed = file.read(2) == _GZIP
            self._file: BinaryIO | gzip.GzipFile = gzip.open(path, "rb") if is_packed else path.open("rb")  # noqa: SIM115
        except OSError as error:
            raise CaptureFileError(path, f"cannot be read ({error.strerror}); check the path") from None

    def __enter__(self) -> OpenCapture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def some(self, n_bytes: int) -> bytes:
        """Return at most so many bytes, nothing at the end; what a gzip file lacks at its end is no error."""
        try:
            found = self._file.read1(n_bytes) if isinstance(self._file, gzip.GzipFile) else self._file.read(n_bytes)
        except EOFError:
            found, self.is_cut = b"", True
        except (zlib.error, gzip.BadGzipFile):
            raise CaptureFileError(self.path, "the gzip file is damaged; copy it again") from None
        except OSError as error:
            raise CaptureFileError(self.path, f"cannot be read ({error.strerror}); check the disk") from None
        self.is_over = not found
        return found


def records_in(path: Path, tally: Tally) -> Iterator[RecordBlock]:
    """Yield the packets of a capture file, a block at a time."""
    with OpenCapture(path) as stream:
        yield from records_of(stream, tally)
        if stream.is_cut:
            tally.notes.append(f"the gzip file is cut short; the {tally.n_packets} whole packets of it are used")


def records_of(stream: Readable, tally: Tally) -> Iterator[RecordBlock]:
    """Yield the packets of a stream, a block at a time; what kind of capture it is, its first bytes say.

    Nothing but empty blocks come from a live stream in which nothing happens.
    """
    path, magic = stream.path, exactly(stream, 4)
    if not magic:
        if stream.is_live:
            return
        raise CaptureFileError(path, "the file is empty; capture again")
    if magic in _KINDS:
        yield from _pcap_records(stream, _KINDS[magic], tally)
    elif magic == SECTION:
        yield from pcapng_records(stream, magic, tally)
    else:
        raise CaptureFileError(
            path, f"is neither pcap nor pcapng (it begins with {magic.hex(' ')}); convert it: editcap {path.name} "
            "capture.pcap",
        )  # fmt: skip


def _pcap_records(stream: Readable, kind: _Kind, tally: Tally) -> Iterator[RecordBlock]:
    header = exactly(stream, _FILE_HEADER_BYTES - 4)
    if len(header) < _FILE_HEADER_BYTES - 4:
        raise CaptureFileError(stream.path, "the file ends inside its header; capture or copy it again")
    link = struct.unpack(f"{kind.order}16xI", header)[0] & 0xFFFF  # above: whether frames have a checksum
    cutter = Cutter(stream)
    for block in cutter.blocks(b"", _FILE_HEADER_BYTES):
        starts, end, claimed = _walk(block, len(block) - 8, kind.order)
        found = _records(block, starts, link, kind)
        captured = found.rows["captured"]
        lie = int(captured.max(initial=0))
        if max(lie, claimed) > _LONGEST_BYTES:
            place = int(np.argmax(captured > _LONGEST_BYTES)) if lie > _LONGEST_BYTES else len(starts)
            length = int(captured[place]) if lie > _LONGEST_BYTES else claimed
            raise CaptureFileError(
                stream.path,
                f"packet {tally.n_packets + place + 1} claims {length} bytes, more than any capture keeps: the file is "
                "damaged there; copy it again",
            )
        tally.n_packets += len(starts)
        cutter.used(block, end)
        yield found
    if cutter.n_left:
        tally.notes.append(cut_short(cutter.position + cutter.n_left, tally.n_packets))


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


def _records(block: bytes, starts: list[int], link: int, kind: _Kind) -> RecordBlock:
    numbers = Numbers(np.frombuffer(block, np.uint8), kind.order)
    at = np.array(starts, np.int64)
    rows = np.empty(len(at), RECORD)
    rows["time_ns"] = numbers.at(at, 4) * NS + numbers.at(at + 4, 4) * kind.ns_per_tick
    rows["start"], rows["link"] = at + _RECORD_BYTES, link
    rows["captured"], rows["original"] = numbers.at(at + 8, 4), numbers.at(at + 12, 4)
    return RecordBlock(numbers.data, rows)
