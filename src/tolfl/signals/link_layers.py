"""Packets of captures that are not 802.11: times, lengths, addresses and protocol by link layer; their windows as rows.

The length of a packet is what the simulation calls its wire length: link header and IP packet, without padding behind
it, without a checksum at its end, without what the capture program put in front (radiotap, "cooked" headers). Where a
capture has no link header, the 14 bytes of Ethernet's are counted in its place. 802.11 has a file of its own, `wlan`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.pcap import NS, CaptureSummary, Int64, Numbers, RecordBlock
from tolfl.signals.windows import (
    STATISTICS,
    TCP,
    UDP,
    CaptureFeature,
    Float,
    Packets,
    WindowGrid,
    Windows,
    count,
    different,
    window_statistics,
)

#: A packet of a capture. Addresses are numbers that serve as identities only; IP addresses are 0 without IP.
CAPTURED = np.dtype(
    [
        ("time_ns", "i8"), ("source", "u8"), ("destination", "u8"), ("from_ip", "u8"), ("to_ip", "u8"),
        ("wire_bytes", "i4"), ("protocol", "u1"), ("signs", "u1"),
    ], align=True,
)  # fmt: skip
NO_PROTOCOL = 255  #: reserved, so no packet has it
NOBODY = np.uint64(2**62)  #: stands for an address that a frame does not have
#: What a packet is beside its protocol, as bits: a TCP connection asked for, or refused; ICMP, DNS, ARP.
IS_SYN, IS_RST, IS_ICMP, IS_DNS, IS_ARP = 1, 2, 4, 8, 16

_IPV4, _IPV6, _ARP = 0x0800, 0x86DD, 0x0806  #: as Ethernet numbers them
_ICMP, _ICMP_6, _DNS_PORT = 1, 58, 53
_SYN, _RST, _ACK = 2, 4, 16  #: of TCP's flags
_FRAGMENT, _AUTHENTICATION = 44, 51
_EXTENSIONS = (0, 43, _FRAGMENT, _AUTHENTICATION, 60)  #: headers of IPv6 between its own and the protocol's
_MOST_EXTENSIONS = 8
_ODD = np.uint64(0x9E3779B97F4A7C15)

_ETHERNET_BYTES = 14
_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)  #: VLAN, and VLAN in VLAN under its several numbers
_MOST_TAGS = 4


class _Link(NamedTuple):
    """What is ahead of the IP packet."""

    n_bytes: int  #: without VLAN tags
    kind_at: int | None = None  #: where it says, in Ethernet's numbers, what comes; None: the packet's first byte does
    destination_at: int | None = None  #: a hardware address; None: there is no pair of them
    source_at: int = 0


#: By their numbers at tcpdump.org. Ethernet; raw IP; BSD's loopback (the family in front has no one byte order); Linux'
#: cooked captures.
_LINKS = {
    1: _Link(_ETHERNET_BYTES, 12, destination_at=0, source_at=6),
    **dict.fromkeys((12, 14, 101, 228, 229), _Link(0)),
    **dict.fromkeys((0, 108), _Link(4)),
    113: _Link(16, 14),
    276: _Link(20, 0),
}
LINKS = tuple(_LINKS)  #: link types that are read here
#: Names of link types that are not supported.
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
#: Advice, by a part of the name.
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


#: Why a packet is neither TCP nor UDP nor any other protocol of IP, by number; 0: it is one.
_READ, _NO_IP, _CUT, _DAMAGED = range(4)
_REASONS = ("", "without IP", "cut before the protocol", "with an impossible IP header")


def packets_in(records: RecordBlock, summary: CaptureSummary) -> Packets:
    """Return the packets of a block of these links, as `CAPTURED`; what cannot be read is counted."""
    found = np.zeros(len(records.rows), CAPTURED)
    found["time_ns"] = records.rows["time_ns"]
    is_there = np.zeros(len(found), np.bool_)
    for link in np.unique(records.rows["link"]).tolist():
        is_own = records.rows["link"] == link
        part = found.compress(is_own)
        is_whole, unread = _read_link(_LINKS[link], replace(records, rows=records.rows.compress(is_own)), part)
        found[is_own], is_there[is_own] = part, is_whole
        counts = np.bincount(unread[is_whole], minlength=len(_REASONS)).tolist()
        summary.unparsed.update({why: count for why, count in zip(_REASONS[1:], counts[1:], strict=True) if count})
        if n_cut := int((~is_whole).sum()):
            summary.left_out["cut before the addresses"] += n_cut
    return found.compress(is_there)


def _read_link(link: _Link, records: RecordBlock, found: Packets) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
    """Fill in packets of one link type; return which are captured up to their addresses, and why some are not read."""
    numbers, rows = Numbers(records.data), records.rows
    at, captured, original = rows["start"], rows["captured"], rows["original"]
    header = np.full(len(at), link.n_bytes)
    if link.kind_at is not None:
        kind = numbers.at(at + link.kind_at, 2)
        _skip_tags(numbers, at, captured, header, kind)
    else:
        version = numbers.data.take(at + link.n_bytes, mode="clip") >> 4
        kind = np.select([version == 4, version == 6], [_IPV4, _IPV6], 0)
    ip_bytes, unread = _read_ip(numbers, at + header, at + captured, kind, found)
    by_header = header + ip_bytes  # where the packet says its length and it fits; else all there was
    found["wire_bytes"] = np.where((ip_bytes >= 20) & (by_header <= original), by_header, original)
    if link.destination_at is not None:
        found["source"], found["destination"] = (
            numbers.at(at + one, 6) for one in (link.source_at, link.destination_at)
        )
        return captured >= link.n_bytes, unread
    for address, ip in (("source", "from_ip"), ("destination", "to_ip")):
        found[address] = np.where(unread == _READ, found[ip], NOBODY)
    found["wire_bytes"] += _ETHERNET_BYTES - link.n_bytes
    return captured > link.n_bytes, unread


def _skip_tags(numbers: Numbers, at: Int64, captured: Int64, header: Int64, kind: Int64) -> None:
    """Move on to the end of each header, VLAN tags included, and to the type behind them."""
    for _ in range(_MOST_TAGS):
        is_tagged = np.isin(kind, _TAGS) & (header + 4 <= captured)
        if not is_tagged.any():
            break
        header[is_tagged] += 4
        kind[is_tagged] = numbers.at((at + header - 2)[is_tagged], 2)


def _read_ip(numbers: Numbers, at: Int64, end: Int64, kind: Int64, found: Packets) -> tuple[Int64, NDArray[np.uint8]]:
    """Read the IP headers that begin at `at`, of packets whose captured bytes end at `end`.

    `kind` is what Ethernet calls the type; a packet of another kind than IP has nothing to read. Return the length of
    each IP packet (0: its header does not say) and why some are not read.
    """
    found["protocol"], found["signs"] = NO_PROTOCOL, np.where(kind == _ARP, IS_ARP, 0)
    ip_bytes, above = np.zeros((2, len(at)), np.int64)
    unread = np.full(len(at), _NO_IP, np.uint8)
    for own_kind, version, header_bytes, read in ((_IPV4, 4, 20, _read_v4), (_IPV6, 6, 40, _read_v6)):
        is_own = kind == own_kind
        if not is_own.any():
            continue
        unread[is_own] = _CUT
        rows = np.flatnonzero(is_own & (end - at >= header_bytes))
        first = numbers.data.take(at[rows], mode="clip")
        is_good = (first >> 4 == version) & ((version == 6) | (first & 15 >= 5))
        unread[rows[~is_good]] = _DAMAGED
        rows = rows[is_good]
        ip_bytes[rows], above[rows], unread[rows] = read(found, rows, numbers, at[rows], end[rows])
    _read_signs(found, numbers, above, end)
    return ip_bytes, unread


def _read_v4(
    found: Packets, rows: Int64, numbers: Numbers, at: Int64, end: Int64
) -> tuple[Int64, Int64, NDArray[np.uint8]]:
    """Take protocol and addresses; return lengths, where the protocols' headers begin (0: nowhere), and why not."""
    del end  # its 20 bytes are there
    found["protocol"][rows] = numbers.at(at + 9, 1)
    # A version in front, so that no IP address is some hardware address by chance.
    found["from_ip"][rows], found["to_ip"][rows] = (numbers.at(at + place, 4) | (4 << 48) for place in (12, 16))
    is_first = numbers.at(at + 6, 2) & 0x1FFF == 0  # of a fragmented packet, only the first has the ports
    above = np.where(is_first, at + 4 * (numbers.at(at, 1) & 15), 0)
    return numbers.at(at + 2, 2), above, np.full(len(rows), _READ, np.uint8)


def _read_v6(
    found: Packets, rows: Int64, numbers: Numbers, at: Int64, end: Int64
) -> tuple[Int64, Int64, NDArray[np.uint8]]:
    """As `_read_v4`, past the extension headers."""
    payload_bytes = numbers.at(at + 4, 2)
    found["from_ip"][rows] = _digest(numbers.words(at + 8), numbers.words(at + 16))
    found["to_ip"][rows] = _digest(numbers.words(at + 24), numbers.words(at + 32))
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
    found["protocol"][rows] = np.where(is_cut, NO_PROTOCOL, protocol)
    ip_bytes = np.where(payload_bytes == 0, 0, payload_bytes + 40)  # 0: a jumbogram says it elsewhere
    return ip_bytes, np.where(is_cut, 0, header), np.where(is_cut, _CUT, _READ).astype(np.uint8)


def _read_signs(found: Packets, numbers: Numbers, at: Int64, end: Int64) -> None:
    """Note what ports, flags and protocols say; `at` is where the header above IP begins, 0 where there is none."""
    protocol, signs = found["protocol"], found["signs"]
    signs[np.isin(protocol, (_ICMP, _ICMP_6))] |= IS_ICMP
    has_ports = (at > 0) & (at + 4 <= end) & ((protocol == TCP) | (protocol == UDP))
    rows = np.flatnonzero(has_ports)
    is_dns = (numbers.at(at[rows], 2) == _DNS_PORT) | (numbers.at(at[rows] + 2, 2) == _DNS_PORT)
    signs[rows[is_dns]] |= IS_DNS
    rows = np.flatnonzero(has_ports & (protocol == TCP) & (at + 14 <= end))
    flags = numbers.at(at[rows] + 13, 1)
    signs[rows[flags & (_SYN | _ACK) == _SYN]] |= IS_SYN
    signs[rows[flags & _RST > 0]] |= IS_RST


def _digest(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 63 bits for 128, and a bit that only these have; two addresses meet once in 10**18 pairs."""
    mixed = high * _ODD
    mixed = (mixed ^ (mixed >> np.uint64(29)) ^ low) * _ODD
    digest: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(32))) | np.uint64(2**63)
    return digest


# -- windows of packets as rows ----------------------------------------------------------------------------------------

_LEAST_PACKETS = 10  #: that a share is taken of
_SHARES = {"syn_share": IS_SYN, "rst_share": IS_RST, "icmp_share": IS_ICMP, "dns_share": IS_DNS, "arp_share": IS_ARP}


def _of_statistic(name: str) -> CaptureFeature:
    if name.startswith("gap"):
        return CaptureFeature(name, "s", "duration")
    return CaptureFeature(name, "bytes", "volume") if name.endswith("bytes") else CaptureFeature(name, "", "count")


class PacketRows:
    """Packets of all links but 802.11 as rows of windows; one without a packet is no row."""

    links = LINKS
    packet = CAPTURED
    features = (
        *map(_of_statistic, STATISTICS),
        *(CaptureFeature(name, "", "share") for name in _SHARES),
        CaptureFeature("peers", "", "count"),
    )
    is_row_without_packets = False
    read = staticmethod(packets_in)
    per = ""

    def __init__(self, grid: WindowGrid, per: str = "", known: object = None) -> None:
        del grid, known
        if per:
            raise SpecError(f"rows per {per} are of 802.11, and this capture is of another link; leave --per out")

    def forget(self) -> None:
        """Begin anew after a step of the clock: a window has nothing of others."""

    def rows(self, packets: Packets, window: Int64, starts_ns: Int64) -> tuple[Float, Int64, list[str]]:
        """Return features of packets in order of time, the window of each row, and no keys.

        A share of fewer than ten packets is missing. Peers are the IP addresses that send or are sent to.
        """
        # Times since the beginning of each window: how packets were batched does not show in the last bit.
        since_s = (packets["time_ns"] - starts_ns[window]) / NS
        first = np.flatnonzero(np.diff(window, prepend=-1))
        windows = Windows(packets, since_s, first, np.zeros(len(first)))
        sizes = windows.sizes
        shares = [
            np.where(sizes >= _LEAST_PACKETS, count(windows, packets["signs"] & sign > 0) / sizes, np.nan)
            for sign in _SHARES.values()
        ]
        addresses = np.concatenate([packets["from_ip"], packets["to_ip"]])
        of_peers = different(addresses[addresses > 0], np.tile(windows.number, 2)[addresses > 0])[0]
        peers = np.bincount(of_peers, minlength=len(windows)).astype(float)
        return np.column_stack([window_statistics(windows), *shares, peers]), window[first], []
