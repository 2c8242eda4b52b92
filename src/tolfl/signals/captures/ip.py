"""What IP headers say, for many packets at once: the protocol, the length, the addresses."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.captures.numbers import Int64, Numbers

IPV4, IPV6 = 0x0800, 0x86DD  #: as Ethernet numbers them
NO_PROTOCOL = 255  #: reserved, so no packet has it
_FRAGMENT, _AUTHENTICATION = 44, 51
_EXTENSIONS = (0, 43, _FRAGMENT, _AUTHENTICATION, 60)  #: headers of IPv6 between its own and the protocol's
_MOST_EXTENSIONS = 8
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Opaque(IntEnum):
    """Why a packet is neither TCP nor UDP nor any other protocol of IP."""

    NOT = 0
    NO_IP = 1
    CUT = 2
    DAMAGED = 3


REASONS = {
    Opaque.NO_IP: "without IP",
    Opaque.CUT: "cut before the protocol",
    Opaque.DAMAGED: "with an impossible IP header",
}


class Internet(NamedTuple):
    """The IP headers of some packets."""

    protocol: NDArray[np.uint8]
    """`NO_PROTOCOL` where there is none to be read."""
    n_bytes: Int64
    """Of the whole IP packet; 0 where the header does not say."""
    source: NDArray[np.uint64]
    destination: NDArray[np.uint64]
    opaque: NDArray[np.uint8]


def read_ip(numbers: Numbers, at: Int64, end: Int64, kind: Int64) -> Internet:
    """Read the IP headers that begin at `at`, of packets whose captured bytes end at `end`.

    `kind` is what Ethernet calls the type; a packet of another kind than IP has nothing to read.
    """
    n_packets = len(at)
    found = Internet(
        np.full(n_packets, NO_PROTOCOL, np.uint8),
        np.zeros(n_packets, np.int64),
        np.zeros(n_packets, np.uint64),
        np.zeros(n_packets, np.uint64),
        np.full(n_packets, Opaque.NO_IP, np.uint8),
    )
    for own_kind, version, header_bytes, read in ((IPV4, 4, 20, _read_v4), (IPV6, 6, 40, _read_v6)):
        is_own = kind == own_kind
        if not is_own.any():
            continue
        found.opaque[is_own] = Opaque.CUT
        rows = np.flatnonzero(is_own & (end - at >= header_bytes))
        first = numbers.data.take(at[rows], mode="clip")
        is_good = (first >> 4 == version) & ((version == 6) | (first & 15 >= 5))
        found.opaque[rows[~is_good]] = Opaque.DAMAGED
        rows = rows[is_good]
        read(found, rows, numbers, at[rows], end[rows])
    return found


def _read_v4(found: Internet, rows: Int64, numbers: Numbers, at: Int64, end: Int64) -> None:
    del end  # its 20 bytes are there
    found.protocol[rows] = numbers.at(at + 9, 1)
    found.n_bytes[rows] = numbers.at(at + 2, 2)
    # A version in front, so that no IP address is some hardware address by chance.
    found.source[rows] = (numbers.at(at + 12, 4) | (4 << 48)).astype(np.uint64)
    found.destination[rows] = (numbers.at(at + 16, 4) | (4 << 48)).astype(np.uint64)
    found.opaque[rows] = Opaque.NOT


def _read_v6(found: Internet, rows: Int64, numbers: Numbers, at: Int64, end: Int64) -> None:
    payload_bytes = numbers.at(at + 4, 2)
    found.n_bytes[rows] = np.where(payload_bytes == 0, 0, payload_bytes + 40)  # 0: a jumbogram says it elsewhere
    found.source[rows] = _digest(numbers.words(at + 8), numbers.words(at + 16))
    found.destination[rows] = _digest(numbers.words(at + 24), numbers.words(at + 32))
    protocol, header = numbers.at(at + 6, 1), at + 40
    for _ in range(_MOST_EXTENSIONS):
        is_extension = np.isin(protocol, _EXTENSIONS) & (header + 8 <= end)
        if not is_extension.any():
            break
        own_bytes = (numbers.at(header + 1, 1) + 1) * 8
        own_bytes = np.where(protocol == _AUTHENTICATION, (numbers.at(header + 1, 1) + 2) * 4, own_bytes)
        own_bytes = np.where(protocol == _FRAGMENT, 8, own_bytes)
        following = numbers.at(header, 1)
        protocol = np.where(is_extension, following, protocol)
        header = np.where(is_extension, header + own_bytes, header)
    is_cut = np.isin(protocol, _EXTENSIONS)
    found.protocol[rows] = np.where(is_cut, NO_PROTOCOL, protocol)
    found.opaque[rows] = np.where(is_cut, Opaque.CUT, Opaque.NOT)


def _digest(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 63 bits for 128, and a bit that only these have; two addresses meet once in 10**18 pairs."""
    mixed = high * _ODD
    mixed = (mixed ^ (mixed >> np.uint64(29)) ^ low) * _ODD
    digest: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(32))) | np.uint64(2**63)
    return digest
