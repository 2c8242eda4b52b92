"""Link layers of captures: from records to packets with times, lengths, addresses and protocol.

The length of a packet is what the simulation calls its wire length: link header and IP packet, without padding behind
it, without a checksum at its end, without what the capture program put in front (radiotap, "cooked" headers). Where a
capture has no link header, the 14 bytes of Ethernet's are counted in its place. 802.11 has a file of its own, `wlan`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.captures.capture_records import NS, Int64, Numbers, RecordBlock, Tally
from tolfl.signals.packets import TCP, UDP, Packets

IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806  #: as Ethernet numbers them
NO_PROTOCOL = 255  #: reserved, so no packet has it
_FRAGMENT, _AUTHENTICATION = 44, 51
_EXTENSIONS = (0, 43, _FRAGMENT, _AUTHENTICATION, 60)  #: headers of IPv6 between its own and the protocol's
_MOST_EXTENSIONS = 8
_ODD = np.uint64(0x9E3779B97F4A7C15)


#: What a packet is beside its protocol, as bits: a TCP connection asked for, or refused; ICMP, DNS, ARP.
IS_SYN, IS_RST, IS_ICMP, IS_DNS, IS_ARP = 1, 2, 4, 8, 16
_ICMP, _ICMP_6, _DNS_PORT = 1, 58, 53
_SYN, _RST, _ACK = 2, 4, 16  #: of TCP's flags


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
    signs: NDArray[np.uint8]
    """`IS_SYN` and others."""
    above: Int64
    """Where the header of the protocol begins; 0 where there is none."""


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
        np.where(kind == ARP, IS_ARP, 0).astype(np.uint8),
        np.zeros(n_packets, np.int64),
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
    _read_signs(found, numbers, end)
    return found


def _read_signs(found: Internet, numbers: Numbers, end: Int64) -> None:
    protocol, at, signs = found.protocol, found.above, found.signs
    signs |= np.where(np.isin(protocol, (_ICMP, _ICMP_6)), IS_ICMP, 0).astype(np.uint8)
    has_ports = (at > 0) & (at + 4 <= end) & ((protocol == TCP) | (protocol == UDP))
    rows = np.flatnonzero(has_ports)
    is_dns = (numbers.at(at[rows], 2) == _DNS_PORT) | (numbers.at(at[rows] + 2, 2) == _DNS_PORT)
    signs[rows[is_dns]] |= IS_DNS
    rows = np.flatnonzero(has_ports & (protocol == TCP) & (at + 14 <= end))
    flags = numbers.at(at[rows] + 13, 1)
    signs[rows[flags & (_SYN | _ACK) == _SYN]] |= IS_SYN
    signs[rows[flags & _RST > 0]] |= IS_RST


def _read_v4(found: Internet, rows: Int64, numbers: Numbers, at: Int64, end: Int64) -> None:
    del end  # its 20 bytes are there
    found.protocol[rows] = numbers.at(at + 9, 1)
    found.n_bytes[rows] = numbers.at(at + 2, 2)
    # A version in front, so that no IP address is some hardware address by chance.
    found.source[rows] = (numbers.at(at + 12, 4) | (4 << 48)).astype(np.uint64)
    found.destination[rows] = (numbers.at(at + 16, 4) | (4 << 48)).astype(np.uint64)
    found.opaque[rows] = Opaque.NOT
    is_first = numbers.at(at + 6, 2) & 0x1FFF == 0  # of a fragmented packet, only the first has the ports
    found.above[rows] = np.where(is_first, at + 4 * (numbers.at(at, 1) & 15), 0)


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
    found.above[rows] = np.where(is_cut, 0, header)


def _digest(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 63 bits for 128, and a bit that only these have; two addresses meet once in 10**18 pairs."""
    mixed = high * _ODD
    mixed = (mixed ^ (mixed >> np.uint64(29)) ^ low) * _ODD
    digest: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(32))) | np.uint64(2**63)
    return digest


_ETHERNET_BYTES = 14
_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)  #: VLAN, and VLAN in VLAN under its several numbers
_MOST_TAGS = 4
NOBODY = np.uint64(2**62)  #: stands for an address that a frame does not have


class LinkFields(NamedTuple):
    """The packets of one link type."""

    source: NDArray[np.uint64]
    destination: NDArray[np.uint64]
    wire_bytes: Int64
    internet: Internet
    is_there: NDArray[np.bool_]
    """Whether the capture holds the packet up to its addresses; the others are nothing but a time."""


def _ethernet(records: RecordBlock) -> LinkFields:
    numbers, at, end = _opened(records)
    kind = numbers.at(at + 12, 2)
    header = np.full(len(at), _ETHERNET_BYTES, np.int64)
    for _ in range(_MOST_TAGS):
        is_tagged = np.isin(kind, _TAGS) & (header + 4 <= records.captured)
        if not is_tagged.any():
            break
        header[is_tagged] += 4
        kind[is_tagged] = numbers.at((at + header - 2)[is_tagged], 2)
    internet = read_ip(numbers, at + header, end, kind)
    is_there = records.captured >= _ETHERNET_BYTES
    wire_bytes = _measured(internet, header, records.original)
    source, destination = (numbers.at(at + place, 6).astype(np.uint64) for place in (6, 0))
    return LinkFields(source, destination, wire_bytes, internet, is_there)


def _raw(records: RecordBlock) -> LinkFields:
    return _bare(records, 0, None)


def _loopback(records: RecordBlock) -> LinkFields:
    """BSD's loopback: four bytes with the family in front, in the order of whoever captured."""
    return _bare(records, 4, None)


def _cooked(records: RecordBlock) -> LinkFields:
    numbers, at, _ = _opened(records)
    return _bare(records, 16, numbers.at(at + 14, 2))


def _cooked_2(records: RecordBlock) -> LinkFields:
    numbers, at, _ = _opened(records)
    return _bare(records, 20, numbers.at(at, 2))


def _bare(records: RecordBlock, front: int, kind: Int64 | None) -> LinkFields:
    """Read packets without a pair of hardware addresses: the IP addresses say who sends to whom."""
    numbers, at, end = _opened(records)
    if kind is None:  # the version at the beginning says what it is
        version = numbers.data.take(at + front, mode="clip") >> 4
        kind = np.select([version == 4, version == 6], [IPV4, IPV6], 0).astype(np.int64)
    internet = read_ip(numbers, at + front, end, kind)
    has_ip = internet.opaque == Opaque.NOT
    wire_bytes = _measured(internet, np.full(len(at), front, np.int64), records.original) - front + _ETHERNET_BYTES
    source, destination = (np.where(has_ip, ip, NOBODY) for ip in (internet.source, internet.destination))
    return LinkFields(source, destination, wire_bytes, internet, records.captured > front)


def _opened(records: RecordBlock) -> tuple[Numbers, Int64, Int64]:
    return Numbers(records.data), records.start, records.start + records.captured


def _measured(internet: Internet, header: Int64, original: Int64) -> Int64:
    """Return header and IP packet where the packet says its length and it fits; else all there was."""
    by_header = header + internet.n_bytes
    return np.where((internet.n_bytes >= 20) & (by_header <= original), by_header, original)


#: Readers by link type, as tcpdump.org numbers them.
READERS: dict[int, Callable[[RecordBlock], LinkFields]] = {
    0: _loopback,
    1: _ethernet,
    12: _raw,
    14: _raw,
    101: _raw,
    108: _loopback,
    113: _cooked,
    228: _raw,
    229: _raw,
    276: _cooked_2,
}
#: Link types that are not understood, by the names that people know.
_NAMES = {
    119: "802.11 with a Prism header",
    163: "802.11 with an AVS header",
    187: "Bluetooth HCI",
    189: "USB",
    192: "802.11 with a PPI header",
    195: "802.15.4",
    201: "Bluetooth HCI",
    215: "802.15.4",
    220: "USB",
    230: "802.15.4",
    249: "USB",
    251: "Bluetooth Low Energy",
    254: "Bluetooth",
    256: "Bluetooth Low Energy",
    272: "nRF Bluetooth Low Energy",
    283: "802.15.4",
}
_AS_TABLE = (
    "there are no features for it; make a table: tshark -r FILE -T fields -E header=y -E separator=, "
    "-e frame.time_epoch -e frame.len > frames.csv"
)
#: What would help, by a part of the name.
ADVICE = (
    ("802.11 with", "capture with radiotap: tcpdump -y IEEE802_11_RADIO, or dumpcap -y IEEE802_11_RADIO"),
    ("Bluetooth", _AS_TABLE),
    ("802.15.4", _AS_TABLE),
    ("USB", _AS_TABLE),
    ("cut before", "capture again with a longer snap length: tcpdump -s 256, dumpcap -s 256"),
)


def link_name(link: int) -> str:
    """Return what a link type is called.

    >>> link_name(195), link_name(999)
    ('link type 195 (802.15.4)', 'link type 999')
    """
    return f"link type {link} ({_NAMES[link]})" if link in _NAMES else f"link type {link}"


_HEADER_BYTES, _TCP_HEADER_BYTES = 42, 54
_CUT = "cut before the addresses"


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class Heard:
    """Packets in the order of the file; addresses are numbers that mean nothing but who is who."""

    time_ns: Int64
    wire_bytes: NDArray[np.int32]
    source: NDArray[np.uint64]
    destination: NDArray[np.uint64]
    protocol: NDArray[np.uint8]
    signs: NDArray[np.uint8]  #: `IS_SYN` and others
    from_ip: NDArray[np.uint64]  #: 0: without IP
    to_ip: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Heard:
        """Return some of the packets, by mask or by index."""
        return Heard(*(getattr(self, one.name)[which] for one in fields(self)))

    def packets(self, start_ns: int | Int64) -> Packets:
        """Return the packets as the statistics want them, with times since `start_ns`, which each may have its own.

        `Packets` adds headers to a payload. What is measured is both together, so the headers are taken off here; a
        frame of 802.11 may be shorter than they are, and its payload negative.
        """
        headers = np.where(self.protocol == TCP, _TCP_HEADER_BYTES, _HEADER_BYTES).astype(np.int32)
        return Packets(
            (self.time_ns - start_ns) / NS,
            self.wire_bytes - headers,
            _numbered(self.source),
            _numbered(self.destination),
            self.protocol,
        )


def heard_in(records: RecordBlock, tally: Tally) -> Heard:
    """Read the headers of a block; what cannot be read is counted."""
    links = np.unique(records.link).tolist()
    parts, order = [], []
    for link in links:
        is_own = records.link == link
        if link not in READERS:
            tally.left_out[f"of {link_name(link)}"] += int(is_own.sum())
            continue
        own = records if len(links) == 1 else records.take(is_own)
        found = READERS[link](own)
        internet = found.internet
        _count(internet.opaque[found.is_there], int((~found.is_there).sum()), tally)
        heard = Heard(
            own.time_ns,
            found.wire_bytes.astype(np.int32),
            found.source,
            found.destination,
            internet.protocol,
            internet.signs,
            internet.source,
            internet.destination,
        )
        parts.append(heard.take(found.is_there))
        order.append(np.flatnonzero(is_own)[found.is_there])
    if len(parts) <= 1:
        return joined(parts)
    return joined(parts).take(np.argsort(np.concatenate(order)))


def joined(parts: Sequence[Heard]) -> Heard:
    """Return packets one after the other."""
    if not parts:
        none, small = np.empty(0, np.uint64), np.empty(0, np.uint8)
        return Heard(np.empty(0, np.int64), np.empty(0, np.int32), none, none, small, small, none, none)
    if len(parts) == 1:
        return parts[0]
    return Heard(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Heard)))


def _count(opaque: NDArray[np.uint8], n_cut: int, tally: Tally) -> None:
    if n_cut:
        tally.left_out[_CUT] += n_cut
    counts = np.bincount(opaque, minlength=len(REASONS) + 1)
    for code, reason in REASONS.items():
        if counts[code]:
            tally.opaque[reason] += int(counts[code])


def _numbered(addresses: NDArray[np.uint64]) -> NDArray[np.int32]:
    return np.unique(addresses, return_inverse=True)[1].astype(np.int32)
