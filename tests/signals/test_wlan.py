"""Frames of 802.11 as rows: by hand, damaged, in silence, per network."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.signals.capture_files import (
    ETHERNET,
    RADIOTAP,
    WLAN,
    B,
    C,
    Frame,
    beacon,
    ethernet,
    management,
    pcap,
    radiotap,
)
from tolfl.core.errors import DataFileError
from tolfl.signals.capture_rows import window_rows
from tolfl.signals.pcap import CaptureSummary
from tolfl.signals.windows import WindowGrid
from tolfl.signals.wlan import Networks, as_bytes, bursts_in, joined_networks, networks_in, networks_known

SECOND = 10**9
START = 1_700_000_000 * SECOND


def rows_of(
    folder: Path, frames: list[Frame], link: int = WLAN, per: str = "", known: Networks | None = None
) -> tuple[list[dict[str, float]], CaptureSummary]:
    path, summary = folder / "x.pcap", CaptureSummary()
    path.write_bytes(pcap(frames, link))
    found = []
    for part in window_rows([path], summary=summary, per=per, known=known):
        names = [name.split(" ")[0] for name in part.names]
        found += [dict(zip(names, row, strict=True)) for row in part.features.tolist()]
    return found, summary


def test_a_flood_is_counted_and_echoes_in_the_sums_and_silence_is_a_row(tmp_path: Path) -> None:
    flood = [Frame(management(12, number=place), START + SECOND + place * SECOND // 64) for place in range(64)]
    frames = [Frame(management(8), START), *flood, Frame(management(8), START + 5 * SECOND)]
    found, summary = rows_of(tmp_path, frames)

    assert [row["deauthentications"] for row in found] == [0, 64, 0, 0, 0, 0]
    assert [row["deauthentications_10s"] for row in found] == [0, 64, 64, 64, 64, 64]
    assert [row["frames"] for row in found] == [1, 64, 0, 0, 0, 1]
    assert found[1]["transmitters"] == found[1]["receivers"] == 1
    assert found[3]["longest_wait"] == pytest.approx(2 + 1 / 64)
    assert np.isnan(found[3]["retry_share"])
    assert summary.sentence == ""


@pytest.mark.parametrize("per", ["", "bssid"])
@pytest.mark.parametrize("at_once", [1, 65_536])
def test_a_second_sender_of_an_address_is_a_jump_of_its_clock_also_in_another_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per: str, at_once: int
) -> None:
    monkeypatch.setattr("tolfl.signals.capture_rows._PACKETS_AT_ONCE", at_once)
    monkeypatch.setattr("tolfl.signals.pcap.BLOCK_BYTES", 200)
    # Once a second: 50 us off each (a crystal), from second 3 on a twin in between, 0.3 s later.
    own = [(second * SECOND, second * 1_000_050) for second in range(6)]
    twins = [(second * SECOND + 3 * SECOND // 10, 77) for second in (3, 4)]
    frames = [Frame(beacon(1 + clock), START + at) for at, clock in sorted(own + twins)]
    found, _ = rows_of(tmp_path, frames, per=per)

    assert [row["clock_jumps"] for row in found] == [0, 0, 0, 1, 2, 1]
    assert [row["clock_jumps_10s"] for row in found] == [0, 0, 0, 1, 3, 4]


@pytest.mark.parametrize(("pause_s", "n_jumps"), [(590, 1), (610, 0), (-60, 0)])
def test_clocks_are_compared_over_ten_minutes_and_not_across_a_step_of_the_capture_clock(
    tmp_path: Path, pause_s: int, n_jumps: int
) -> None:
    times = [0, 1, 2, *(2 + pause_s + second for second in range(4))]
    frames = [Frame(beacon(10**9 + (place + 1) * 10**6), START + at * SECOND) for place, at in enumerate(times)]
    found, summary = rows_of(tmp_path, frames)

    assert sum(row["clock_jumps"] for row in found) == n_jumps
    assert summary.n_clock_steps == (pause_s < 0)


def test_frames_of_a_network_that_nobody_knows_are_counted_and_of_the_fit_those_of_a_single_window(
    tmp_path: Path,
) -> None:
    usual = [Frame(beacon(second, C), START + second * SECOND) for second in range(4)]
    once = [Frame(beacon(0, B), START + 2 * SECOND + place) for place in (1, 2)]
    path = tmp_path / "usual.pcap"
    path.write_bytes(pcap([*usual, *once], WLAN))
    heard = networks_in([path], WindowGrid(1, 1))
    assert heard is not None
    frames = [*usual, *once, Frame(beacon(0, C, b"other"), START + 3 * SECOND)]

    def new(known: Networks | None, name: str = "new_network_frames") -> list[float]:
        return [row[name] for row in rows_of(tmp_path, frames, known=known)[0]]

    assert new(heard.of_several_windows) == [0, 0, 2, 1]
    assert new(heard.of_several_windows, "new_network_frames_10s") == [0, 0, 2, 3]
    assert new(heard.all) == [0, 0, 0, 1]
    assert np.isnan([*new(None), *new(None, "new_network_frames_10s")]).all()


def test_known_networks_come_back_from_their_file_and_of_too_many_the_newer_stay(tmp_path: Path) -> None:
    path = tmp_path / "known.networks"
    assert networks_known(path) is None
    path.write_bytes(as_bytes(np.array([3, 2**64 - 1], np.uint64)))
    known = networks_known(path)
    assert known is not None
    more = np.arange(10, 10 + 4095, dtype=np.uint64)
    both = joined_networks(known, more)

    assert known.tolist() == [3, 2**64 - 1]
    assert both is not None
    assert both.tolist() == [3, *more.tolist()]
    path.write_bytes(b"123")
    with pytest.raises(DataFileError, match=r"known.networks: is no list of networks; remove it, or fit again"):
        networks_known(path)


def test_a_capture_of_another_link_has_no_networks_and_of_a_flood_of_names_the_lasting_ones_stay(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap([Frame(ethernet(0x0800, bytes(40)), START)], ETHERNET))
    assert networks_in([path], WindowGrid(1, 1)) is None
    lasting = [Frame(beacon(0, C), START + second * SECOND) for second in (0, 5)]
    flood = [Frame(beacon(0, C, b"%d" % place), START + SECOND) for place in range(5000)]
    path.write_bytes(pcap([lasting[0], *flood, lasting[1]], WLAN))
    heard = networks_in([path], WindowGrid(1, 1))

    assert heard is not None
    assert len(heard.all) == 4096
    assert len(heard.of_several_windows) == 1


def test_a_wrong_checksum_counts_as_such_and_in_nothing_else(tmp_path: Path) -> None:
    frames = [radiotap(management(12), 0x40), radiotap(management(12), 0), b"\x01\0\x08\0\0\0\0\0"]
    found, summary = rows_of(tmp_path, [Frame(data, START) for data in frames], RADIOTAP)

    assert (found[0]["bad_checksums"], found[0]["deauthentications"]) == (1, 1)
    assert summary.left_out == {"cut before the addresses": 1}


def test_rows_per_network_have_the_frames_of_their_network(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    other = management(8)[:16] + bytes.fromhex("02000000000f") + management(8)[22:]
    path.write_bytes(pcap([Frame(management(8), START), Frame(other, START + 1), Frame(other, START + 2)], WLAN))
    (part,) = window_rows([path], per="bssid")

    assert dict(zip(part.keys, part.features[:, 0].tolist(), strict=True)) == {
        "02:00:00:00:00:0c": 1,
        "02:00:00:00:00:0f": 2,
    }


@given(st.sampled_from([WLAN, RADIOTAP]), st.lists(st.binary(max_size=120), min_size=1, max_size=8))
def test_any_bytes_are_a_frame_or_counted(link: int, frames: list[bytes]) -> None:
    good = management(8) if link == WLAN else radiotap(management(8), 0)
    with TemporaryDirectory() as folder:
        found, summary = rows_of(Path(folder), [Frame(data, START) for data in [*frames, good]], link)

    assert sum(row["frames"] + row["bad_checksums"] for row in found) + summary.left_out.total() == len(frames) + 1


def test_bursts_are_found_with_what_sums_echo() -> None:
    counts = np.zeros((40, 1))
    counts[10] = 500
    is_near, sentence = bursts_in(["deauthentications [; count]"], counts, np.arange(40.0))

    assert np.flatnonzero(is_near).tolist() == list(range(9, 22))
    assert "deauthentications up to 500" in sentence
