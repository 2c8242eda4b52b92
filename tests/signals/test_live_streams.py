"""Captures while they are being made: a pipe, a file that grows and is rotated, an interface."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.signals.capture_files import Frame, ethernet, ipv4, pcap
from tests.signals.test_pcap import pcapng
from tolfl.core.errors import DataFileError
from tolfl.signals.live_streams import following
from tolfl.signals.windows import UDP
from tolfl.tables import Block, blocks
from tolfl.tables.signal_blocks import capture_blocks

SECOND = 10**9
START = 1_700_000_000 * SECOND
DATA = ethernet(0x0800, ipv4(UDP, bytes(20)))


def frames(seconds: range) -> list[Frame]:
    """Return five packets in each second."""
    return [Frame(DATA, START + second * SECOND + place * SECOND // 5) for second in seconds for place in range(5)]


def whole_windows(blocks: Iterator[Block], n_wanted: int) -> list[float]:
    """Return how many packets the first whole windows have, as soon as there are so many."""
    found: list[float] = []
    began_s = time.monotonic()
    for block in blocks:
        if block.n_rows:
            assert block.is_partial is not None
            found += np.asarray(block.table["packets [; count]"])[~block.is_partial].tolist()
        if len(found) >= n_wanted or time.monotonic() - began_s > 30:
            break
    blocks.close()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("written", [pcap, pcapng])
def test_a_pipe_gives_each_window_while_it_is_still_open(written: object) -> None:
    read_end, write_end = os.pipe()
    content = written(frames(range(4)))  # type: ignore[operator]
    with open(read_end, "rb") as stream, open(write_end, "wb", buffering=0) as pipe:  # noqa: PTH123
        pipe.write(content[:333])
        threading.Timer(0.2, lambda: pipe.write(content[333:])).start()
        found = whole_windows(capture_blocks(stream), 4)

    # The last of them by the monotonic clock: the pipe is open, and nothing more comes.
    assert found == [5, 5, 5, 5]


def test_a_capture_that_is_unpacked_on_the_way_is_read_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as stream, open(write_end, "wb") as pipe:  # noqa: PTH123
        pipe.write(gzip.compress(pcap(frames(range(4)))))
        pipe.close()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        n_packets = sum(np.asarray(block.table["packets [; count]"]).sum() for block in blocks("-") if block.n_rows)

    assert n_packets == 20


def test_a_file_that_grows_and_its_successor_are_read_on(tmp_path: Path) -> None:
    first, second = tmp_path / "x_00001_20240101000000.pcap", tmp_path / "x_00002_20240101000003.pcap"
    content = pcap(frames(range(3)))
    first.write_bytes(content[:200])
    threading.Timer(0.3, lambda: first.write_bytes(content)).start()
    threading.Timer(0.6, lambda: second.write_bytes(pcap(frames(range(3, 6))))).start()

    assert whole_windows(capture_blocks([first], follow=True), 5)[:5] == [5, 5, 5, 5, 5]


def test_names_of_files_that_follow(tmp_path: Path) -> None:
    names = ["x_00001_20240101000000.pcap", "x_00003_20240101000009.pcap", "y.pcap", "y.pcap1", "y.pcap2", "z.pcap"]
    for name in names:
        (tmp_path / name).touch()

    found = {name: following(tmp_path / name) for name in names}
    assert [path.name if path else None for path in found.values()] == [
        "x_00003_20240101000009.pcap", None, "y.pcap1", "y.pcap2", None, None,
    ]  # fmt: skip


def _can_capture() -> bool:
    return os.geteuid() == 0 and shutil.which("dumpcap") is not None


@pytest.mark.skipif(not _can_capture(), reason="needs dumpcap and the right to capture")
def test_an_interface_is_heard_by_a_child_that_ends_with_the_loop() -> None:
    is_over = threading.Event()

    def talk() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not is_over.wait(0.05):
                sender.sendto(b"hello", ("127.0.0.1", 9))

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        found = whole_windows(capture_blocks("lo"), 1)
    finally:
        is_over.set()
        talker.join()

    assert found[0] >= 10


@pytest.mark.skipif(not _can_capture(), reason="needs dumpcap and the right to capture")
def test_an_interface_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(DataFileError, match=r"interface nosuch0: dumpcap ended .*; check the name: dumpcap -D"):
        list(capture_blocks("nosuch0"))


def test_without_a_capture_program_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(DataFileError, match="neither dumpcap nor tcpdump; install one of them"):
        list(capture_blocks("lo"))
