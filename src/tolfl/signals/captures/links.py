"""What the headers below IP say, by link type: who sends to whom, how long the packet is on its link, where IP begins.

The length of a packet is what the simulation calls its wire length: link header and IP packet, without padding behind
it, without a checksum at its end, without what the capture program put in front (radiotap, "cooked" headers). Where a
capture has no link header, the 14 bytes of Ethernet's are counted in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.captures.ip import IPV4, IPV6, Internet, Opaque, read_ip
from tolfl.signals.captures.numbers import Int64, Numbers
from tolfl.signals.captures.records import Records

_ETHERNET_BYTES = 14
_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)  #: VLAN, and VLAN in VLAN under its several numbers
_MOST_TAGS = 4
NOBODY = np.uint64(2**62)  #: stands for an address that a frame does not have


class Links(NamedTuple):
    """The packets of one link type."""

    source: NDArray[np.uint64]
    destination: NDArray[np.uint64]
    wire_bytes: Int64
    protocol: NDArray[np.uint8]
    opaque: NDArray[np.uint8]
    is_there: NDArray[np.bool_]
    """Whether the capture holds the packet up to its addresses; the others are nothing but a time."""


def _ethernet(records: Records) -> Links:
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
    return Links(source, destination, wire_bytes, internet.protocol, internet.opaque, is_there)


def _raw(records: Records) -> Links:
    return _bare(records, 0, None)


def _loopback(records: Records) -> Links:
    """BSD's loopback: four bytes with the family in front, in the order of whoever captured."""
    return _bare(records, 4, None)


def _cooked(records: Records) -> Links:
    numbers, at, _ = _opened(records)
    return _bare(records, 16, numbers.at(at + 14, 2))


def _cooked_2(records: Records) -> Links:
    numbers, at, _ = _opened(records)
    return _bare(records, 20, numbers.at(at, 2))


def _bare(records: Records, front: int, kind: Int64 | None) -> Links:
    """Read packets without a pair of hardware addresses: the IP addresses say who sends to whom."""
    numbers, at, end = _opened(records)
    if kind is None:  # the version at the beginning says what it is
        version = numbers.data.take(at + front, mode="clip") >> 4
        kind = np.select([version == 4, version == 6], [IPV4, IPV6], 0).astype(np.int64)
    internet = read_ip(numbers, at + front, end, kind)
    has_ip = internet.opaque == Opaque.NOT
    wire_bytes = _measured(internet, np.full(len(at), front, np.int64), records.original) - front + _ETHERNET_BYTES
    source, destination = (np.where(has_ip, ip, NOBODY) for ip in (internet.source, internet.destination))
    return Links(source, destination, wire_bytes, internet.protocol, internet.opaque, records.captured > front)


def _opened(records: Records) -> tuple[Numbers, Int64, Int64]:
    return Numbers(records.data), records.start, records.start + records.captured


def _measured(internet: Internet, header: Int64, original: Int64) -> Int64:
    """Return header and IP packet where the packet says its length and it fits; else all there was."""
    by_header = header + internet.n_bytes
    return np.where((internet.n_bytes >= 20) & (by_header <= original), by_header, original)


#: Readers by link type, as tcpdump.org numbers them.
READERS: dict[int, Callable[[Records], Links]] = {
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
)


def link_name(link: int) -> str:
    """Return what a link type is called.

    >>> link_name(195), link_name(999)
    ('link type 195 (802.15.4)', 'link type 999')
    """
    return f"link type {link} ({_NAMES[link]})" if link in _NAMES else f"link type {link}"
