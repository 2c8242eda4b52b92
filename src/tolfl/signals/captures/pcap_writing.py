"""Simulated packets as pcap files with times in nanoseconds, a new file whenever one is full.

Blocks of some thousand packets are put together with NumPy and written at once, so that memory does not grow with the
traffic, and a week of it takes about as long as the disk needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.signals.captures.ethernet import HEADERS, Hosts, frame_bytes, udp_headers
from tolfl.signals.packets import Packets
from tolfl.signals.regions import Region

#: Time 0 of a simulation is Monday 00:00; in files it is this one, 1 January 2024 UTC.
MONDAY_S = 1_704_067_200
FILE_BYTES = 1_000_000_000  #: when a new file is begun
_NANOSECOND_MAGIC, _ETHERNET, _SNAP_BYTES = 0xA1B23C4D, 1, 262_144
_RECORD_BYTES = 16  #: in front of each frame: seconds, nanoseconds, captured and original length
_PACKETS_AT_ONCE = 8192  #: some 6 MB
_NS = 1_000_000_000

_FILE_HEADER = np.array(
    [(_NANOSECOND_MAGIC, 2, 4, 0, 0, _SNAP_BYTES, _ETHERNET)],
    np.dtype([("magic", "<u4"), ("major", "<u2"), ("minor", "<u2"), ("zone", "<i4"), ("sigfigs", "<u4"),
              ("snap_bytes", "<u4"), ("link", "<u4")]),
).tobytes()  # fmt: skip
_RECORD = np.dtype(
    [("seconds", "<u4"), ("nanoseconds", "<u4"), ("captured", "<u4"), ("original", "<u4"), ("headers", HEADERS)]
)


class Written(NamedTuple):
    """What was written."""

    paths: tuple[Path, ...]
    n_packets: int
    n_bytes: int


def write_pcap(folder: Path, name: str, packets: Packets, region: Region, file_bytes: int = FILE_BYTES) -> Written:
    """Write the packets of a region as `name.pcap`, or as several files of at most `file_bytes` bytes each.

    Several files are called as dumpcap calls them, by number and time of the first packet:
    `name_00001_20240101000000.pcap`. Every file has at least one packet, whatever its size.
    """
    if file_bytes < 1:
        raise SpecError(f"files of {file_bytes} bytes; use at least 1")
    hosts = Hosts.of(region)
    sizes = frame_bytes(packets.payload_bytes) + _RECORD_BYTES
    pieces = list(_pieces(sizes, file_bytes - len(_FILE_HEADER)))
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, piece in enumerate(pieces, start=1):
            path = folder / (f"{name}.pcap" if len(pieces) == 1 else _rotated(name, number, packets, piece.start))
            _write_file(path, packets, piece, hosts)
            paths.append(path)
    except OSError as error:
        raise RunDirectoryError(folder, f"cannot be written ({error.strerror}); choose another folder") from None
    return Written(tuple(paths), len(packets), int(sizes.sum()) + len(_FILE_HEADER) * len(paths))


def pcap_blocks(packets: Packets, hosts: Hosts) -> Iterator[NDArray[np.uint8]]:
    """Yield the packets as they stand in a pcap file, behind its header, some thousand at a time."""
    for first in range(0, len(packets), _PACKETS_AT_ONCE):
        yield _block(packets.take(np.arange(first, min(first + _PACKETS_AT_ONCE, len(packets)))), hosts)


def time_ns(packets: Packets) -> NDArray[np.int64]:
    """Return when packets were sent in nanoseconds since 1970, as files have it."""
    return np.rint(packets.time_s * _NS).astype(np.int64) + MONDAY_S * _NS


def _block(packets: Packets, hosts: Hosts) -> NDArray[np.uint8]:
    frames = frame_bytes(packets.payload_bytes)
    records = np.zeros(len(packets), _RECORD)
    records["seconds"], records["nanoseconds"] = np.divmod(time_ns(packets), _NS)
    records["captured"] = records["original"] = frames
    records["headers"] = udp_headers(packets, hosts)
    ends = np.cumsum(frames + _RECORD_BYTES)
    block = np.zeros(int(ends[-1]), np.uint8)
    # One place of 58 bytes at every byte: with it a single assignment copies all headers to where they belong.
    whole = np.dtype((np.void, _RECORD.itemsize))
    places = np.ndarray((len(block) - _RECORD.itemsize + 1,), whole, buffer=block, strides=(1,))
    places[ends - frames - _RECORD_BYTES] = records.view(whole)
    return block


def _pieces(sizes: NDArray[np.int64], room: int) -> Iterator[slice]:
    """Yield which packets go into which file; without any packet, one empty file."""
    ends = np.cumsum(sizes)
    first, before = 0, 0
    while True:
        end = max(int(np.searchsorted(ends, before + room, side="right")), first + 1)
        yield slice(first, min(end, len(sizes)))
        if end >= len(sizes):
            return
        first, before = end, int(ends[end - 1])


def _rotated(name: str, number: int, packets: Packets, first: int) -> str:
    when = datetime.fromtimestamp(MONDAY_S + int(packets.time_s[first]), UTC)
    return f"{name}_{number:05d}_{when:%Y%m%d%H%M%S}.pcap"


def _write_file(path: Path, packets: Packets, piece: slice, hosts: Hosts) -> None:
    with path.open("wb") as file:
        file.write(_FILE_HEADER)
        for block in pcap_blocks(packets.take(np.arange(piece.start, piece.stop)), hosts):
            file.write(block.data)
