"""Simulated packets as pcap files: Ethernet, IPv4 and UDP with right lengths and checksums, times in nanoseconds.

Blocks of some thousand packets are put together with NumPy and written at once, so that memory does not grow with the
traffic, and a week of it takes about as long as the disk needs.

The simulation has the length of a payload, not its content, so payloads are zeros. Three more rules:

- **Short frames.** A frame of less than 60 bytes (a payload of less than 18) is padded with zeros to 60, as a network
  card sends it; the IP and UDP lengths are those of the payload. Whoever reads a frame's length from its IP header gets
  the simulation's 43 bytes and more.
- **Group addresses.** Nobody can send from an address with the group bit, the lowest bit of its first byte. Where a
  configuration gives a node such an address, the bit is cleared and the bit beside it ("locally administered") is set,
  in frames from the node and in frames to it: `01:02:03:04:05:06` is written as `02:02:03:04:05:06`.
- **IP addresses and ports.** Node *n* (from 0) of region *r* is `10.r.0.(n + 1)` and has the port 49152 + n.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.signals.traffic import Region
from tolfl.signals.windows import HEADER_BYTES, UDP, Packets

SHORTEST_FRAME_BYTES = 60  #: without the checksum at the end, which captures leave out
_IP_BYTES, _UDP_BYTES = 20, 8
_LONGEST_PAYLOAD_BYTES = 65_535 - _IP_BYTES - _UDP_BYTES
_FIRST_PORT, _N_PORTS = 49_152, 16_384  #: the dynamic ports, which are not assigned to a protocol
_MOST_HOSTS = 65_534  #: of 10.r.0.0/16
_DONT_FRAGMENT, _TTL = 0x4000, 64
HEADERS = np.dtype(
    [
        ("destination", "u1", 6), ("source", "u1", 6), ("ethertype", ">u2"),
        ("version", "u1"), ("service", "u1"), ("ip_bytes", ">u2"), ("identification", ">u2"), ("fragment", ">u2"),
        ("ttl", "u1"), ("protocol", "u1"), ("ip_checksum", ">u2"), ("source_ip", ">u4"), ("destination_ip", ">u4"),
        ("source_port", ">u2"), ("destination_port", ">u2"), ("udp_bytes", ">u2"), ("udp_checksum", ">u2"),
    ]
)  # fmt: skip
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class Hosts:
    """What the addresses of a region are in frames, by their number."""

    hardware: NDArray[np.uint8]
    """Shape `(n_addresses, 6)`."""
    ip: Int64
    port: Int64

    @classmethod
    def of(cls, region: Region) -> Hosts:
        """Return the hosts of a region, after the rules for group addresses and for IP.

        >>> Hosts.of(Region(3, ("01:02:03:04:05:06",), (), router=0)).hardware.tolist()
        [[2, 2, 3, 4, 5, 6]]
        """
        n_hosts = len(region.addresses)
        if n_hosts > _MOST_HOSTS or region.number > 255:
            raise SpecError(
                f"region {region.number} with {n_hosts} addresses; frames have room for regions 0 to 255 "
                f"with {_MOST_HOSTS} addresses each"
            )
        index = np.arange(n_hosts, dtype=np.int64)
        ip = (10 << 24) + (region.number << 16) + index + 1
        return cls(_hardware(region.addresses), ip, _FIRST_PORT + index % _N_PORTS)


def udp_headers(packets: Packets, hosts: Hosts) -> NDArray[np.void]:
    """Return the 42 bytes of headers of each packet as records of `HEADERS`; the payload behind them is zeros."""
    payload_bytes = packets["wire_bytes"].astype(np.int64) - HEADER_BYTES
    source, destination = packets["source"], packets["destination"]
    if not ((packets["protocol"] == UDP).all() and payload_bytes.max(initial=0) <= _LONGEST_PAYLOAD_BYTES):
        raise SpecError(f"frames are written for UDP packets with at most {_LONGEST_PAYLOAD_BYTES} bytes of payload")
    headers = np.zeros(len(packets), HEADERS)
    udp_bytes = payload_bytes + _UDP_BYTES
    ip_bytes = udp_bytes + _IP_BYTES
    source_ip, destination_ip = hosts.ip[source], hosts.ip[destination]
    source_port, destination_port = hosts.port[source], hosts.port[destination]
    of_addresses = sum((ip >> 16) + (ip & 0xFFFF) for ip in (source_ip, destination_ip))
    headers["destination"], headers["source"] = hosts.hardware[destination], hosts.hardware[source]
    headers["ethertype"] = 0x0800
    headers["version"], headers["ip_bytes"], headers["fragment"] = 0x45, ip_bytes, _DONT_FRAGMENT
    headers["ttl"], headers["protocol"] = _TTL, UDP
    headers["ip_checksum"] = _checksum(0x4500 + _DONT_FRAGMENT + (_TTL << 8) + UDP + ip_bytes + of_addresses)
    headers["source_ip"], headers["destination_ip"] = source_ip, destination_ip
    headers["source_port"], headers["destination_port"], headers["udp_bytes"] = source_port, destination_port, udp_bytes
    # The length is summed twice: once in the pseudo header, once in UDP's own. Zeros add nothing.
    udp_checksum = _checksum(of_addresses + UDP + source_port + destination_port + 2 * udp_bytes)
    headers["udp_checksum"] = np.where(udp_checksum == 0, 0xFFFF, udp_checksum)  # 0 would mean that there is none
    return headers


def _checksum(total: Int64) -> Int64:
    """Return the one's complement of a sum of 16-bit words (RFC 1071); two folds are enough for 2**32."""
    for _ in range(2):
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _hardware(addresses: Sequence[str]) -> NDArray[np.uint8]:
    found = np.zeros((len(addresses), 6), np.uint8)
    for number, address in enumerate(addresses):
        try:
            parts = bytes.fromhex(address.replace(":", "").replace("-", ""))
        except ValueError:
            parts = b""
        if len(parts) != 6:
            raise SpecError(f"{address!r} is no hardware address; write six bytes, as in 02:00:00:00:00:01")
        found[number] = np.frombuffer(parts, np.uint8)
    is_group = (found[:, 0] & 1).astype(np.bool_)
    found[is_group, 0] = (found[is_group, 0] & 0xFE) | 2
    if len(np.unique(found, axis=0)) < len(found):
        raise SpecError("two nodes have the same hardware address once group bits are cleared; change one of them")
    return found


#: Time 0 of a simulation is Monday 00:00; in files it is this one, 1 January 2024 UTC.
MONDAY_S = 1_704_067_200
_NANOSECOND_MAGIC, _ETHERNET, _SNAP_BYTES = 0xA1B23C4D, 1, 262_144
_RECORD_BYTES = 16  #: in front of each frame: seconds, nanoseconds, captured and original length
_PACKETS_AT_ONCE = 8192  #: some 6 MB
_NS = 1_000_000_000
#: Magic number, version 2.4, time zone, accuracy of times, longest packet, link type.
_FILE_HEADER = struct.pack("<IHHiIII", _NANOSECOND_MAGIC, 2, 4, 0, 0, _SNAP_BYTES, _ETHERNET)
_RECORD = np.dtype(
    [("seconds", "<u4"), ("nanoseconds", "<u4"), ("captured", "<u4"), ("original", "<u4"), ("headers", HEADERS)]
)


def write_pcap(folder: Path, name: str, packets: Packets, region: Region) -> Path:
    """Write the packets of a region as `name.pcap`, some thousand at a time, and return its path."""
    hosts, path = Hosts.of(region), folder / f"{name}.pcap"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(_FILE_HEADER)
            for first in range(0, len(packets), _PACKETS_AT_ONCE):
                file.write(_block(packets[first : first + _PACKETS_AT_ONCE], hosts).data)
    except OSError as error:
        raise RunDirectoryError(folder, f"cannot be written ({error.strerror}); choose another folder") from None
    return path


def time_ns(packets: Packets) -> NDArray[np.int64]:
    """Return when packets were sent in nanoseconds since 1970, as files have it."""
    return np.asarray(np.rint(packets["time_s"] * _NS), np.int64) + MONDAY_S * _NS


def _block(packets: Packets, hosts: Hosts) -> NDArray[np.uint8]:
    frames = np.maximum(packets["wire_bytes"].astype(np.int64), SHORTEST_FRAME_BYTES)
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
