"""From captures to statistics: what comes out is what the simulation says of its own packets."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.signals.capture_files import WLAN, A, B, C, Frame, ethernet, ipv4, ipv6, management, pcap, read
from tests.signals.test_pcap_writer import REGION, packets_of
from tolfl.core.errors import DataFileError, RunDirectoryError, SpecError
from tolfl.core.spec import CommsMLSettings
from tolfl.signals import capture_rows as module
from tolfl.signals.capture_rows import CAPTURE_GRID, feature_names, grid_of, window_rows
from tolfl.signals.comms_ml_generator import comms_ml, traffic_parts, write_parts
from tolfl.signals.link_layers import PacketRows
from tolfl.signals.pcap import CaptureSummary
from tolfl.signals.pcap_writer import MONDAY_S, write_pcap
from tolfl.signals.traffic import default_regions, simulate
from tolfl.signals.windows import (
    STATISTICS,
    TCP,
    UDP,
    Packets,
    SignalRows,
    WindowGrid,
    Windows,
    numbered_windows,
    window_statistics,
    windows_of,
)
from tolfl.tables.schema import name_and_unit

SECOND = 10**9


def all_rows(
    paths: list[Path] | tuple[Path, ...], grid: WindowGrid = CAPTURE_GRID, summary: CaptureSummary | None = None
) -> SignalRows:
    """Return the whole windows of a capture."""
    parts = list(window_rows(paths, grid, summary))
    is_whole = np.concatenate([part.is_whole for part in parts])
    return SignalRows(
        parts[0].names,
        np.concatenate([part.start_s for part in parts])[is_whole],
        np.concatenate([part.features for part in parts])[is_whole],
        np.zeros(int(is_whole.sum()), np.bool_),
    )


def simulated_windows(packets: Packets, grid: WindowGrid) -> Windows:
    """Return the windows of simulated packets; those without a pause begin at multiples of their length since 1970."""
    until_s = float(packets["time_s"][-1])
    if grid.duration_s < grid.interval_s:
        return windows_of(packets, grid, until_s=until_s)
    step_ns = round(grid.interval_s * SECOND)
    times_ns = MONDAY_S * SECOND + np.round(packets["time_s"] * SECOND).astype(np.int64)
    number = times_ns // step_ns
    windows = numbered_windows(packets, number - number[0], 0.0, grid.interval_s)
    start_ns = number[windows.first] * step_ns
    is_whole = (start_ns >= times_ns[0]) & (start_ns + step_ns <= times_ns[-1])
    return replace(windows, start_s=(start_ns - MONDAY_S * SECOND) / SECOND).select(is_whole)


def capture(folder: Path, times_ns: list[int]) -> Path:
    """Write small UDP packets at these times."""
    path = folder / "capture.pcap"
    data = ethernet(0x0800, ipv4(UDP, bytes(20)))
    path.write_bytes(pcap(Frame(data, 1_700_000_000 * SECOND + time_ns) for time_ns in times_ns))
    return path


@pytest.mark.parametrize("grid", [WindowGrid(1, 60), WindowGrid(1, 1), WindowGrid(0.5, 7), WindowGrid(3600, 3600)])
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_capture_of_a_region_has_the_statistics_of_its_simulation(
    tmp_path: Path, grid: WindowGrid, number: int
) -> None:
    region = default_regions()[number]
    packets = simulate(region, 4 * 3600.0, seed=11)
    summary = CaptureSummary()
    found = all_rows([write_pcap(tmp_path, "x", packets, region)], grid, summary)
    windows = simulated_windows(packets, grid)
    expected = window_statistics(windows)

    exact = [place for place, name in enumerate(STATISTICS) if not name.startswith("gap")]
    assert len(expected) >= 2
    assert np.array_equal(found.features[:, exact], expected[:, exact])
    assert np.abs(found.features[:, :12] - expected).max() <= 1.001e-9  # files have whole nanoseconds
    assert np.abs(found.start_s - MONDAY_S - windows.start_s).max() < 1e-6
    assert (summary.n_packets, summary.sentence) == (len(packets), "")


milliseconds = st.integers(0, 20_000)
packet_rows = st.tuples(milliseconds, st.integers(1, 60), st.integers(0, 2), st.integers(0, 2))


@given(st.lists(packet_rows, min_size=1, max_size=60), st.integers(1, 3000), st.integers(0, 3000), st.integers(1, 40))
def test_any_packets_in_any_windows_have_the_statistics_of_their_simulation(
    rows: list[tuple[int, int, int, int]], window_ms: int, pause_ms: int, at_once: int
) -> None:
    # Eighths of a second are exact in binary: a packet on the edge of a window is on the same side for both.
    packets = packets_of([(ms / 8, *rest) for ms, *rest in sorted(rows)])  # type: ignore[misc]
    grid = WindowGrid(window_ms / 8, (window_ms + pause_ms) / 8)
    expected = simulated_windows(packets, grid)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PACKETS_AT_ONCE", at_once)
        paths = [write_pcap(Path(folder), "x", packets, REGION)]
        found = all_rows(paths, grid)

    assert np.array_equal(found.features[:, :12], window_statistics(expected))
    assert np.array_equal(found.start_s - MONDAY_S, expected.start_s)


def test_the_twelve_statistics_by_hand(tmp_path: Path) -> None:
    frames = [
        Frame(ethernet(0x0800, ipv4(TCP, bytes(20)), A, B), 100 * SECOND),
        Frame(ethernet(0x0800, ipv4(UDP, bytes(80)), C, B), 100 * SECOND + 300_000_000),
        Frame(ethernet(0x0806, bytes(40), A, C), 100 * SECOND + 400_000_000),
        Frame(ethernet(0x0800, ipv4(UDP, bytes(80)), A, B), 102 * SECOND + 500_000_000),
        Frame(ethernet(0x0800, ipv4(UDP, bytes(8)), A, B), 103 * SECOND + 500_000_000),
    ]
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap(frames))
    found = all_rows([path])

    # packets; gaps; TCP, UDP; lengths 54, 114, 54; two lengths, two sources, two destinations.
    first: list[float] = [3, 0.1, 0.3, 0.2, 1, 1, 54, 114, 74, 2, 2, 2]
    alone: list[float] = [1, 0, 0, 0, 0, 1, 114, 114, 114, 1, 1, 1]
    assert found.start_s.tolist() == [100, 102]
    assert np.allclose(found.features[:, :12], [first, alone], rtol=0, atol=1e-9)


@given(st.lists(st.integers(0, 900), min_size=2, max_size=40), st.integers(1, 10), st.randoms(use_true_random=False))
def test_packets_a_little_out_of_order_change_nothing(times: list[int], at_once: int, shuffle: object) -> None:
    ordered = sorted(times)
    # The first stays: the windows start there. Neighbours within half a second change places.
    keys = [ordered[0] - 1000] + [time + shuffle.uniform(0, 50) for time in ordered[1:]]  # type: ignore[attr-defined]
    shaken = [time for _, time in sorted(zip(keys, ordered, strict=True))]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PACKETS_AT_ONCE", at_once)
        end = [200 * SECOND]
        expected = all_rows([capture(Path(folder), [time * SECOND // 100 for time in ordered] + end)])
        summary = CaptureSummary()
        found = all_rows([capture(Path(folder), [time * SECOND // 100 for time in shaken] + end)], summary=summary)

    assert np.array_equal(found.features, expected.features, equal_nan=True)
    assert np.array_equal(found.start_s, expected.start_s)
    assert summary.sentence == ""


def test_packets_that_come_too_late_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PACKETS_AT_ONCE", 1)
    monkeypatch.setattr("tolfl.signals.pcap.BLOCK_BYTES", 100)
    summary = CaptureSummary()
    times = [5 * SECOND, 9 * SECOND, 6 * SECOND, 4 * SECOND, 12 * SECOND]
    found = all_rows([capture(tmp_path, times)], summary=summary)

    assert found.features[:, 0].tolist() == [1, 1]
    assert summary.left_out == {"later than their window": 2}


def test_one_time_far_ahead_is_left_out_and_the_others_count(tmp_path: Path) -> None:
    summary = CaptureSummary()
    times = [0, 1, 2, 2**32 // 1000, 3, 4, 5, 6]
    found = all_rows([capture(tmp_path, [time * SECOND for time in times])], summary=summary)

    assert found.features[:, 0].tolist() == [1] * 6
    assert summary.left_out == {"with a time far from their neighbours'": 1}
    assert summary.n_clock_steps == 0


@pytest.mark.parametrize("at_once", [1, 7, 65_536])
def test_a_clock_that_steps_back_costs_two_windows_whatever_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(module, "_PACKETS_AT_ONCE", at_once)
    monkeypatch.setattr("tolfl.signals.pcap.BLOCK_BYTES", 5000)
    summary = CaptureSummary()
    steady = [place * SECOND // 10 for place in range(1000)]
    stepped = steady[:755] + [time - 60 * SECOND for time in steady[755:]]
    found = all_rows([capture(tmp_path, stepped)], summary=summary)

    assert found.features[:, 0].tolist() == [10] * 98
    assert summary.n_clock_steps == 1
    assert "stepped 1 time(s), last by -59.900 s" in summary.sentence
    assert not summary.left_out


@given(st.lists(st.integers(0, 30_000), min_size=1, max_size=50), st.integers(1, 9), st.integers(20, 400))
def test_how_packets_are_batched_changes_nothing(ms: list[int], at_once: int, block_bytes: int) -> None:
    times = [time * 1_000_000 for time in ms]
    found = []
    for n_packets, n_bytes in ((65_536, 2**22), (at_once, block_bytes)):
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_PACKETS_AT_ONCE", n_packets)
            patch.setattr("tolfl.signals.pcap.BLOCK_BYTES", n_bytes)
            summary = CaptureSummary()
            parts = list(window_rows([capture(Path(folder), times)], summary=summary))
            rows = [
                row
                for part in parts
                for row in zip(part.start_s, part.is_whole, *np.nan_to_num(part.features, nan=-1).T, strict=True)
            ]
            found.append((rows, summary))

    assert found[0] == found[1]


def test_a_capture_that_ends_in_a_packet_keeps_the_whole_ones(tmp_path: Path) -> None:
    path, summary = capture(tmp_path, [place * SECOND // 2 for place in range(9)]), CaptureSummary()
    path.write_bytes(path.read_bytes()[:-3])
    found = all_rows([path], summary=summary)

    assert found.features[:, 0].tolist() == [2, 2, 2]
    assert "ends in the middle of a packet" in summary.sentence


@pytest.mark.parametrize(("last_ns", "n_rows"), [(2 * SECOND, 2), (2 * SECOND - 1, 1)])
def test_the_last_window_counts_if_the_capture_goes_on_to_its_end(tmp_path: Path, last_ns: int, n_rows: int) -> None:
    found = all_rows([capture(tmp_path, [0, SECOND, last_ns])])

    assert len(found.start_s) == n_rows


def test_files_that_follow_one_another_are_one_capture(tmp_path: Path) -> None:
    region = default_regions()[0]
    packets = simulate(region, 3600.0, seed=1)
    whole = all_rows([write_pcap(tmp_path, "whole", packets, region)])
    rotated = [
        write_pcap(tmp_path, f"x_{number:05d}", packets[places], region)
        for number, places in enumerate(np.array_split(np.arange(len(packets)), 7))
    ]

    assert np.array_equal(all_rows(rotated).features, whole.features, equal_nan=True)


def test_a_capture_without_a_window_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="there is no packet that could be used; capture again"):
        all_rows([capture(tmp_path, [])])


def test_rows_per_channel_need_frames_that_say_theirs(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap([Frame(management(8))] * 3, link=WLAN))

    with pytest.raises(DataFileError, match=r"no frame has its channel; capture with radiotap .*, or leave --per out"):
        list(window_rows([path], per="channel"))


def test_a_capture_that_nobody_understands_says_why(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap([Frame(bytes(60))] * 3, link=195))

    with pytest.raises(
        DataFileError,
        match=r"\(3 of link type 195 \(802.15.4\)\); there are no features for it; make a table: tshark",
    ):
        all_rows([path])


@pytest.mark.parametrize(
    "grid", [WindowGrid(2, 1), WindowGrid(0, 1), WindowGrid(float("nan"), 1), WindowGrid(1, float("inf"))]
)
def test_windows_that_cannot_be_are_refused(tmp_path: Path, grid: WindowGrid) -> None:
    with pytest.raises(SpecError, match="the step must be at least the window"):
        all_rows([capture(tmp_path, [0, SECOND])], grid)


@given(st.floats(1e-3, 1e4), st.floats(0, 1e4))
def test_names_say_which_windows_they_are_of(window_s: float, pause_s: float) -> None:
    grid = WindowGrid(float(f"{window_s:.9g}"), float(f"{window_s + pause_s:.9g}"))

    names = [name_and_unit(name)[0] for name in feature_names(PacketRows.features, grid)]

    assert grid_of(names) == grid
    assert len(set(names)) == 18


def test_the_usual_windows_are_called_as_in_the_simulation() -> None:
    names = feature_names(PacketRows.features)

    assert tuple(name_and_unit(name)[0] for name in names[:12]) == STATISTICS
    assert names[8] == "wire_mean_bytes [bytes; volume]"


def test_a_scan_shows_in_shares_and_peers(tmp_path: Path) -> None:
    syn, rst = (struct.pack(">HHIIBBHHH", 1024, 80, 0, 0, 0x50, flags, 0, 0, 0) for flags in (2, 0x14))
    dns, arp = struct.pack(">HHHH", 53, 5353, 8, 0), ethernet(0x0806, bytes(28))
    packets = [ethernet(0x0800, ipv4(TCP, syn, destination=f"0a0000{last:02x}")) for last in range(2, 10)]
    packets += [ethernet(0x0800, ipv4(TCP, rst)), ethernet(0x0800, ipv4(UDP, dns)), ethernet(0x0800, ipv4(1, bytes(8)))]
    fragment = bytearray(ipv4(UDP, dns))
    fragment[6:8] = b"\x00\x07"  # what follows the header is no port
    packets += [arp, ethernet(0x0800, bytes(fragment)), ethernet(0x86DD, ipv6(58, bytes(8)))]
    frames = [Frame(data, 1_700_000_000 * SECOND + place) for place, data in enumerate(packets)]
    (tmp_path / "scan.pcap").write_bytes(
        pcap([*frames, *(Frame(arp, (1_700_000_000 + later) * SECOND) for later in (1, 2))])
    )
    rows = all_rows([tmp_path / "scan.pcap"], WindowGrid(1, 1))

    # Of 14 packets; nine IPv4 addresses, and two of IPv6. A window of one packet has no shares.
    assert rows.features[0, 12:] == pytest.approx([8 / 14, 1 / 14, 2 / 14, 1 / 14, 1 / 14, 11])
    assert np.isnan(rows.features[1, 12:17]).all()


@pytest.mark.parametrize("variant", ["default", pytest.param("published", marks=pytest.mark.slow)])
def test_captures_of_comms_ml_hold_the_statistics_of_its_samples(tmp_path: Path, variant: str) -> None:
    settings = CommsMLSettings(variant=variant, windows_per_region=6)  # type: ignore[arg-type]
    samples = comms_ml(3, settings)
    parts = traffic_parts(samples, 3, settings)
    if variant == "published":  # a week of the smallest region is enough
        parts = parts[3:]
    for part, (path, _) in zip(parts, write_parts(tmp_path, parts), strict=True):
        is_own = (samples.kind == part.kind) & (samples.region == part.region.number)
        found = all_rows([path], WindowGrid(1, 60))
        # Samples are the windows that have a packet of the router; the last one ends where the capture does.
        starts = samples.start_s[is_own][:-1] + MONDAY_S
        places = np.abs(found.start_s[:, None] - starts).argmin(axis=0)
        assert np.abs(found.start_s[places] - starts).max() < 1e-6
        assert np.allclose(found.features[places, :12], samples.features[is_own, :12][:-1], rtol=1e-6, atol=2e-9)
        assert path.parent.name == part.kind

    with pytest.raises(RunDirectoryError, match="has captures already"):
        list(write_parts(tmp_path, parts))


def test_the_packets_of_a_capture_are_as_long_as_they_were_measured(tmp_path: Path) -> None:
    found, _ = read(capture(tmp_path, [0]))

    assert found["wire_bytes"].tolist() == [54]


def test_memory_does_not_grow_with_the_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tolfl.signals.pcap.BLOCK_BYTES", 2**17)
    monkeypatch.setattr(module, "_PACKETS_AT_ONCE", 512)
    region = default_regions()[3]
    peaks = []
    for hours in (1, 6):
        packets = simulate(region, hours * 3600.0, seed=1)
        paths = [write_pcap(tmp_path / str(hours), "x", packets, region)]
        tracemalloc.start()
        n_rows = sum(len(rows.start_s) for rows in window_rows(paths))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert n_rows > 1000 * hours

    assert paths[0].stat().st_size > 50 * peaks[1]
    assert peaks[1] < 1.2 * peaks[0]
