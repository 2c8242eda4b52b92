"""Simulated packets as frames: dpkt and tshark, which know nothing of us, read what was simulated."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import dpkt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.signals.pcap_writer import MONDAY_S, time_ns, write_pcap
from tolfl.signals.traffic import Region, RegionNode, default_regions, simulate
from tolfl.signals.windows import PACKET, TCP, UDP, Packets

REGION = Region(7, ("02:00:00:00:07:00", "01:02:03:04:05:06", "fe:dc:ba:98:76:54"), (), router=2)
NAMES = (bytes.fromhex("020000000700"), bytes.fromhex("020203040506"), bytes.fromhex("fedcba987654"))


def packets_of(rows: list[tuple[float, int, int, int]]) -> Packets:
    """Return packets of (time, payload, source, destination)."""
    return np.array([(time_s, payload + 42, *addresses, UDP) for time_s, payload, *addresses in rows], PACKET)


def ones_sum(data: bytes) -> int:
    """Return the sum of 16-bit words that a right checksum makes 0xFFFF (RFC 1071)."""
    total: int = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


rows = st.tuples(
    st.floats(0, 1e6), st.one_of(st.integers(1, 40), st.integers(1, 65_507)), st.integers(0, 2), st.integers(0, 2)
)


@given(st.lists(rows, max_size=20))
def test_dpkt_reads_the_packets_that_were_written(written: list[tuple[float, int, int, int]]) -> None:
    packets = packets_of(sorted(written))
    with TemporaryDirectory() as folder:
        path = write_pcap(Path(folder), "x", packets, REGION)
        with path.open("rb") as file:
            reader = dpkt.pcap.Reader(file)
            records = [frame for _, frame in reader]

    assert reader.datalink() == dpkt.pcap.DLT_EN10MB
    assert len(records) == len(packets)
    for place, data in enumerate(records):
        frame = dpkt.ethernet.Ethernet(data)
        payload = int(packets["wire_bytes"][place]) - 42
        assert len(data) == max(60, payload + 42)
        assert (frame.src, frame.dst) == (NAMES[packets["source"][place]], NAMES[packets["destination"][place]])
        assert frame.data.len == payload + 28
        assert frame.data.data.ulen == payload + 8
        assert len(bytes(frame.data.data.data)) == payload
        assert ones_sum(data[14:34]) == 0xFFFF
        pseudo = data[26:34] + struct.pack(">HH", UDP, payload + 8)
        assert ones_sum(pseudo + data[34 : 42 + payload]) == 0xFFFF
        assert frame.data.data.sum != 0


def test_one_packet_byte_by_byte(tmp_path: Path) -> None:
    path = write_pcap(tmp_path, "one", packets_of([(1.5, 1, 0, 2)]), REGION)
    content = path.read_bytes()

    assert content[:24].hex() == "4d3cb2a1020004000000000000000000" + "00000400" + "01000000"
    assert struct.unpack("<IIII", content[24:40]) == (MONDAY_S + 1, 500_000_000, 60, 60)
    # IP: 4500 + 001d + 4000 + 4011 + 0a07 + 0001 + 0a07 + 0003 = d940, complement 26bf.
    # UDP: 1412 of the addresses + 0011 + c000 + c002 + 2 * 0009 = 19437, folded 9438, complement 6bc7.
    addresses = "0a070001" + "0a070003"
    headers = "fedcba987654" + "020000000700" + "0800" + "4500001d00004000401126bf" + addresses
    assert content[40:74].hex() == headers
    assert content[74:82].hex() == "c000c00200096bc7"
    assert content[82:] == bytes(18)


def test_no_traffic_is_a_file_without_packets(tmp_path: Path) -> None:
    path = write_pcap(tmp_path, "silent", packets_of([]), REGION)

    assert path.stat().st_size == 24


def test_times_are_right_to_the_nanosecond_after_a_week() -> None:
    packets = packets_of([(604_799.123_456_789, 1, 0, 1)])

    assert time_ns(packets).tolist() == [(MONDAY_S + 604_799) * 10**9 + 123_456_789]


@pytest.mark.parametrize(
    ("region", "sentence"),
    [
        (Region(1, ("nonsense",), (), 0), "'nonsense' is no hardware address; write six bytes"),
        (Region(1, ("02:00:00:00:00:00", "03:00:00:00:00:00"), (), 0), "the same hardware address once group bits"),
        (Region(256, ("02:00:00:00:00:00",), (), 0), "region 256 with 1 addresses"),
    ],
    ids=["no address", "same address", "number"],
)
def test_a_region_that_has_no_frames_gets_a_sentence(region: Region, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=sentence):
        write_pcap(tmp_path, "x", packets_of([]), region)


def test_what_cannot_be_a_frame_gets_a_sentence(tmp_path: Path) -> None:
    good = packets_of([(0.0, 1, 0, 1)])
    tcp = good.copy()
    tcp["protocol"] = TCP
    (tmp_path / "file").write_text("")

    with pytest.raises(SpecError, match="UDP packets with at most 65507"):
        write_pcap(tmp_path, "x", tcp, REGION)
    with pytest.raises(SpecError, match="UDP packets with at most 65507"):
        write_pcap(tmp_path, "x", packets_of([(0.0, 65_508, 0, 1)]), REGION)
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        write_pcap(tmp_path / "file", "x", good, REGION)


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_finds_nothing_wrong(tmp_path: Path) -> None:
    group = default_regions()[1]  # and one address with the group bit
    region = Region(
        2, ("01:00:5e:00:00:01", *group.addresses[1:]), (*group.nodes, RegionNode(0, 1, None)), group.router
    )
    packets = simulate(region, 600.0, seed=5)
    checked = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
    fine = "ip.checksum.status == 1 && udp.checksum.status == 1 && !_ws.malformed && !_ws.expert"
    path = write_pcap(tmp_path, "x", packets, region)
    # Fields in place of a filter: a packet that tshark cannot read must show.
    command = ["tshark", "-n", "-r", str(path), *checked, "-T", "fields", "-e", "frame.len", "-e", "udp.length"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout.split("\n")[:-1]
    passed = subprocess.run(
        ["tshark", "-n", "-r", str(path), *checked, "-Y", fine, "-T", "fields", "-e", "frame.number"],
        check=True, capture_output=True, text=True, timeout=100,
    ).stdout.split()  # fmt: skip

    lengths = packets["wire_bytes"].tolist()
    assert [line.split("\t") for line in shown] == [[str(max(60, n)), str(n - 34)] for n in lengths]
    assert len(passed) == len(packets) > 1000
