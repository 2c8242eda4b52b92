"""Files of every format give the same packets; damaged ones give a sentence."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import dpkt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.signals.capture_files import (
    ETHERNET,
    RAW,
    Frame,
    block,
    ethernet,
    interface,
    ipv4,
    names,
    packet,
    pcap,
    read,
    section,
)
from tolfl.core.errors import DataFileError
from tolfl.signals import pcap as module
from tolfl.signals.windows import TCP, UDP

SOME = [
    Frame(ethernet(0x0800, ipv4(protocol, bytes(size))), 1_700_000_000_000_000_000 + place * 1_234_567)
    for place, (protocol, size) in enumerate([(UDP, 30), (TCP, 200), (1, 64), (UDP, 1400), (UDP, 8)])
]


def written(folder: Path, content: bytes, name: str = "capture.pcap") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def pcapng(frames: list[Frame], order: str = "<") -> bytes:
    """Return a section with times in nanoseconds."""
    packets = (packet(frame.data, frame.time_ns, order=order) for frame in frames)
    return section(order) + interface(resolution=9, order=order) + b"".join(packets)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("is_nano", [True, False])
def test_both_byte_orders_and_both_units_of_time_give_the_same_packets(
    tmp_path: Path, order: str, is_nano: bool
) -> None:
    found, summary = read(written(tmp_path, pcap(SOME, order=order, is_nano=is_nano)))

    unit = 1 if is_nano else 1000
    assert names(found["time_ns"]) == [frame.time_ns // unit * unit for frame in SOME]
    assert found["wire_bytes"].tolist() == [len(frame.data) for frame in SOME]
    assert found["protocol"].tolist() == [UDP, TCP, 1, UDP, UDP]
    assert (summary.n_packets, summary.sentence) == (5, "")


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_gives_what_pcap_gives(tmp_path: Path, order: str) -> None:
    one, _ = read(written(tmp_path, pcap(SOME)))
    two, summary = read(written(tmp_path, pcapng(SOME, order), "capture.pcapng"))

    assert summary.sentence == ""
    assert np.array_equal(one, two)


def test_dpkt_writes_what_is_read(tmp_path: Path) -> None:
    file = io.BytesIO()
    writer = dpkt.pcapng.Writer(file)
    for frame in SOME:
        writer.writepkt(frame.data, frame.time_ns / 1e9)
    found, summary = read(written(tmp_path, file.getvalue()))

    assert summary.n_packets == len(SOME)
    assert np.abs(found["time_ns"] - np.array([frame.time_ns for frame in SOME])).max() <= 1000
    assert found["wire_bytes"].tolist() == [len(frame.data) for frame in SOME]


def test_gzip_is_unpacked_whatever_the_name_says(tmp_path: Path) -> None:
    plain, _ = read(written(tmp_path, pcap(SOME)))
    packed, _ = read(written(tmp_path, gzip.compress(pcap(SOME)), "packed.pcap"))

    assert np.array_equal(plain["time_ns"], packed["time_ns"])


@pytest.mark.parametrize(
    ("resolution", "offset_s", "ticks", "time_ns"),
    [
        (None, None, 1_000_001, 1_000_001_000),  # microseconds, where nothing is said
        (9, None, 5, 5),
        (3, None, 1_234, 1_234_000_000),
        (0, 100, 7, 107_000_000_000),
        (12, None, 3_999_999, 3_999),  # picoseconds: what is less than a nanosecond is cut off
        (0x80 | 10, None, 1024 + 512, 1_500_000_000),
        (0x80 | 60, None, 3 << 59, 1_500_000_000),
        (6, -2, 5_000_000, 3_000_000_000),
    ],
)
def test_every_interface_has_a_clock_of_its_own(
    tmp_path: Path, resolution: int | None, offset_s: int | None, ticks: int, time_ns: int
) -> None:
    content = section() + interface(resolution=9) + interface(RAW, resolution, offset_s)
    content += packet(SOME[0].data, 77, 0) + packet(ipv4(TCP, bytes(40)), ticks, 1)
    found, summary = read(written(tmp_path, content))

    assert names(found["time_ns"]) == [77, time_ns]
    assert found["wire_bytes"].tolist() == [len(SOME[0].data), 14 + 60]
    assert summary.sentence == ""


def test_a_new_section_forgets_interfaces_and_byte_order(tmp_path: Path) -> None:
    content = pcapng(SOME[:2]) + section(">") + interface(RAW, order=">") + packet(ipv4(UDP, b"x" * 9), 5, order=">")
    found, summary = read(written(tmp_path, content))

    assert summary.n_packets == 3
    assert names(found["time_ns"]) == [SOME[0].time_ns, SOME[1].time_ns, 5000]


def test_blocks_without_a_packet_are_skipped_and_old_packet_blocks_are_read(tmp_path: Path) -> None:
    data = SOME[0].data
    old = block(2, struct.pack("<HHIIII", 0, 9, 0, 44, len(data), len(data)) + data)
    content = section() + block(0x0BAD, b"custom") + interface() + block(5, bytes(12)) + old
    found, summary = read(written(tmp_path, content))

    assert names(found["time_ns"]) == [44_000]
    assert summary.n_packets == 1


def test_packets_that_cannot_be_placed_are_counted_by_reason(tmp_path: Path) -> None:
    data = SOME[0].data
    simple = block(3, struct.pack("<I", len(data)) + data)
    lying = struct.pack("<IIIII", 0, 0, 0, 5000, 5000) + data
    content = (
        section() + interface() + interface(999) + simple + packet(data, 1, 7) + packet(data, 2**63) + block(6, lying)
    )
    content += packet(data, 4, 1) + packet(data, 5)
    found, summary = read(written(tmp_path, content))

    assert names(found["time_ns"]) == [5000]
    assert summary.n_packets == 6
    assert summary.left_out == {
        "without a time (simple packet block)": 1,
        "of an interface that is not described": 1,
        "with an impossible time": 1,
        "with a length that does not fit its block": 1,
        "of link type 999": 1,
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the file is empty"),
        (b"\xd4", "neither pcap nor pcapng"),
        (b"PK\x03\x04 and more", r"neither pcap nor pcapng \(it begins with 50 4b 03 04\); convert it: editcap"),
        (pcap([])[:20], "ends inside its header"),
        (pcap(SOME) + struct.pack("<IIII", 0, 0, 2**31, 60), "packet 6 claims 2147483648 bytes"),
        (pcap([*SOME, Frame(bytes(262_145))]), "packet 6 claims 262145 bytes"),
        (pcapng(SOME) + struct.pack("<III", 6, 0, 0), "claims 0 bytes"),
        (pcapng(SOME) + struct.pack("<III", 6, 33, 0), "claims 33 bytes"),
        (pcapng(SOME) + struct.pack("<III", 6, 2**31, 0), "claims 2147483648 bytes"),
        (section()[:8] + bytes(24), "does not say its byte order"),
        (section() + interface(resolution=100), "interface 0 claims a clock that does not exist"),
        (section() + block(1, b""), "interface 0 is not described"),
        (b"\x1f\x8b" + bytes(20), "gzip file is damaged"),
    ],
)  # fmt: skip
def test_a_damaged_file_gets_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = written(tmp_path, content)

    with pytest.raises(DataFileError, match=sentence) as raised:
        read(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "n_packets", "sentence"),
    [
        (pcap(SOME)[:-1], 4, "ends in the middle of a packet, at byte"),
        (pcap(SOME) + bytes(15), 5, "the 5 whole ones before it are used"),
        (pcapng(SOME)[:-1], 4, "the 4 whole ones before it are used"),
        (pcapng(SOME) + section()[:10], 5, "the 5 whole ones before it are used"),
        (gzip.compress(pcap(SOME))[:-9], 5, "the gzip file is cut short"),
    ],
)
def test_a_cut_end_keeps_the_whole_packets(tmp_path: Path, content: bytes, n_packets: int, sentence: str) -> None:
    found, summary = read(written(tmp_path, content))

    assert len(found) == summary.n_packets == n_packets
    assert sentence in summary.sentence


def test_a_file_that_is_not_there_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="cannot be read"):
        read(tmp_path / "nowhere.pcap")


@given(st.data())
def test_damage_anywhere_is_a_sentence_or_a_count_and_never_a_crash(data: st.DataObject) -> None:
    whole = bytearray(data.draw(st.sampled_from([pcap(SOME), pcap(SOME, order=">"), pcapng(SOME), pcapng(SOME, ">")])))
    for place in data.draw(st.lists(st.integers(4, len(whole) - 1), max_size=8)):
        whole[place] = data.draw(st.integers(0, 255))
    content = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with TemporaryDirectory() as folder:
        try:
            found, summary = read(written(Path(folder), content))
        except DataFileError:
            return

    assert len(found) + summary.left_out.total() == summary.n_packets


@given(st.integers(1, 400), st.booleans())
def test_where_blocks_are_cut_changes_nothing(block_bytes: int, is_ng: bool) -> None:
    content = pcapng(SOME) + pcapng(SOME[::-1], ">") if is_ng else pcap([*SOME, Frame(bytes(9)), *SOME])
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = written(Path(folder), content)
        whole, summary = read(path)
        patch.setattr(module, "BLOCK_BYTES", block_bytes)
        pieces, summary_of_pieces = read(path)

    assert summary == summary_of_pieces
    assert np.array_equal(whole, pieces)


def test_the_link_type_is_read_below_the_bits_for_checksums(tmp_path: Path) -> None:
    found, _ = read(written(tmp_path, pcap(SOME, link=0x14000000 | ETHERNET)))

    assert len(found) == len(SOME)
