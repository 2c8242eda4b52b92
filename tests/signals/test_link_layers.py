"""Headers of every link type: who, to whom, how long, TCP or UDP; numbers by hand."""

from __future__ import annotations

import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.signals.capture_files import (
    COOKED,
    COOKED_2,
    LOOPBACK,
    RAW,
    A,
    B,
    C,
    Frame,
    address,
    ethernet,
    heard,
    ipv4,
    ipv6,
    names,
)
from tolfl.signals.link_layers import NO_PROTOCOL, NOBODY
from tolfl.signals.windows import TCP, UDP

HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, OPTIONS, ICMP6 = 0, 43, 44, 51, 60, 58


def test_ethernet_counts_tags_and_leaves_out_padding(tmp_path: Path) -> None:
    short = ipv4(UDP, bytes(9))  # 29 bytes
    frames = [
        ethernet(0x0800, short) + bytes(17),
        ethernet(0x0800, short, tags=[0x8100]) + bytes(13),
        ethernet(0x86DD, ipv6(TCP, bytes(20)), source=C, tags=[0x88A8, 0x8100]) + b"fcs!",
        ethernet(0x0806, bytes(46), source=C),
    ]
    found, summary = heard(tmp_path, frames)

    assert found["wire_bytes"].tolist() == [14 + 29, 18 + 29, 22 + 60, 60]
    assert found["protocol"].tolist() == [UDP, UDP, TCP, NO_PROTOCOL]
    assert names(found["source"]) == [address(A), address(A), address(C), address(C)]
    assert set(names(found["destination"])) == {address(B)}
    assert summary.unparsed == {"without IP": 1}
    assert not summary.left_out


@pytest.mark.parametrize(
    ("chain", "protocol"),
    [
        ((), ICMP6),
        ((HOP_BY_HOP,), UDP),
        ((HOP_BY_HOP, ROUTING, OPTIONS), TCP),
        ((FRAGMENT,), UDP),
        ((AUTHENTICATION,), TCP),
        ((OPTIONS,) * 8, UDP),
    ],
)
def test_the_protocol_of_ipv6_stands_behind_its_extensions(
    tmp_path: Path, chain: tuple[int, ...], protocol: int
) -> None:
    kinds = [*chain, protocol]
    body = b""
    for kind, following in zip(chain, kinds[1:], strict=True):
        length = {FRAGMENT: 77, AUTHENTICATION: 4}.get(kind, 1)  # a fragment's is no length: it always has 8 bytes
        size = {FRAGMENT: 8, AUTHENTICATION: 24}.get(kind, 16)
        body += bytes([following, length]) + bytes(size - 2)
    found, summary = heard(tmp_path, [ethernet(0x86DD, ipv6(kinds[0], body + bytes(12)))])

    assert found["protocol"].tolist() == [protocol]
    assert summary.sentence == ""


def test_a_cut_packet_has_its_original_length(tmp_path: Path) -> None:
    whole = ethernet(0x0800, ipv4(TCP, bytes(1000)))
    frames = [Frame(whole[:kept], original=len(whole)) for kept in (34, 54, 33, 14, 13, 0)]
    found, summary = heard(tmp_path, frames)

    assert found["wire_bytes"].tolist() == [1034] * 4
    assert found["protocol"].tolist() == [TCP, TCP, NO_PROTOCOL, NO_PROTOCOL]
    assert summary.unparsed == {"cut before the protocol": 2}
    assert summary.left_out == {"cut before the addresses": 2}


def test_ip_headers_that_lie_do_not_count_as_ip(tmp_path: Path) -> None:
    good = ipv4(UDP, bytes(30))
    frames = [
        ethernet(0x0800, b"\x65" + good[1:]),  # version 6 in a packet of version 4
        ethernet(0x0800, b"\x44" + good[1:]),  # a header of 16 bytes
        ethernet(0x0800, good[:2] + b"\xff\xff" + good[4:]),  # longer than the frame
        ethernet(0x0800, good[:2] + b"\0\0" + good[4:]),  # left to the network card
    ]
    found, summary = heard(tmp_path, frames)

    assert found["protocol"].tolist() == [NO_PROTOCOL, NO_PROTOCOL, UDP, UDP]
    assert found["wire_bytes"].tolist() == [64, 64, 64, 64]
    assert summary.unparsed == {"with an impossible IP header": 2}


@pytest.mark.parametrize(
    ("link", "front"),
    [
        (RAW, b""),
        (LOOPBACK, b"\x02\0\0\0"),
        (COOKED, struct.pack(">HHH8sH", 0, 1, 6, A, 0x0800)),
        (COOKED_2, struct.pack(">HHIHBB8s", 0x0800, 0, 3, 1, 0, 6, A)),
    ],
    ids=["raw", "loopback", "cooked", "cooked 2"],
)
def test_without_a_link_header_ip_addresses_say_who_it_is(tmp_path: Path, link: int, front: bytes) -> None:
    packets = [ipv4(TCP, bytes(20)), ipv4(UDP, bytes(8), source="0a000003"), ipv4(UDP, bytes(8), source="0a000003")]
    found, summary = heard(tmp_path, [front + one for one in packets], link)

    assert found["wire_bytes"].tolist() == [14 + 40, 14 + 28, 14 + 28]
    assert found["protocol"].tolist() == [TCP, UDP, UDP]
    assert len(set(names(found["source"]))) == 2
    assert len(set(names(found["destination"]))) == 1
    assert summary.sentence == ""


def test_raw_ipv6_addresses_differ_if_a_bit_does(tmp_path: Path) -> None:
    found, _ = heard(tmp_path, [ipv6(UDP, bytes(8), last) for last in range(256)], RAW)

    assert len(set(names(found["source"]))) == 256
    assert len(set(names(found["destination"]))) == 1


def test_cooked_packets_without_ip_come_from_nobody(tmp_path: Path) -> None:
    found, summary = heard(tmp_path, [struct.pack(">HHH8sH", 0, 1, 6, A, 0x0806) + bytes(28)], COOKED)

    assert names(found["source"]) == [int(NOBODY)]
    assert found["wire_bytes"].tolist() == [14 + 28]
    assert summary.unparsed == {"without IP": 1}


def test_a_vlan_tag_in_a_cooked_packet_is_part_of_its_length(tmp_path: Path) -> None:
    front = struct.pack(">HHH8sHHH", 0, 1, 6, A, 0x8100, 7, 0x0800)
    found, summary = heard(tmp_path, [front + ipv4(TCP, bytes(20))], COOKED)

    assert (found["wire_bytes"].tolist(), found["protocol"].tolist()) == ([18 + 40], [TCP])
    assert summary.sentence == ""


def test_an_unknown_link_type_is_counted_by_its_number(tmp_path: Path) -> None:
    found, summary = heard(tmp_path, [bytes(60), bytes(60)], 195)

    assert len(found) == 0
    assert summary.sentence == "2 of 2 packets are left out (2 of link type 195 (802.15.4))"


@given(
    st.lists(
        st.tuples(st.sampled_from([TCP, UDP, 253]), st.integers(0, 1400), st.integers(0, 2), st.booleans()),
        min_size=1,
        max_size=20,
    )
)
def test_dpkt_sees_the_same_packets(rows: list[tuple[int, int, int, bool]]) -> None:
    tags: tuple[list[int], ...] = ([], [0x8100], [0x88A8, 0x8100])
    frames = [
        ethernet(0x86DD if is_v6 else 0x0800, (ipv6 if is_v6 else ipv4)(protocol, bytes(size)), tags=tags[n_tags])
        for protocol, size, n_tags, is_v6 in rows
    ]
    with TemporaryDirectory() as folder:
        found, _ = heard(Path(folder), frames)
    seen = [dpkt.ethernet.Ethernet(frame) for frame in frames]

    assert found["wire_bytes"].tolist() == [len(frame) for frame in frames]
    numbers = [one.data.nxt if isinstance(one.data, dpkt.ip6.IP6) else one.data.p for one in seen]
    assert found["protocol"].tolist() == numbers
    assert names(found["source"]) == [address(one.src) for one in seen]


@given(st.sampled_from([0, 1, 101, 113, 228, 276]), st.lists(st.binary(max_size=120), min_size=1, max_size=8))
def test_any_bytes_are_a_packet_or_counted(link: int, frames: list[bytes]) -> None:
    with TemporaryDirectory() as folder:
        found, summary = heard(Path(folder), frames, link)

    assert len(found) + summary.left_out.total() == len(frames)
    assert (found["protocol"] == NO_PROTOCOL).sum() >= summary.unparsed.total()
