"""Windows and their twelve numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.signals.traffic import PUBLISHED_SEEDS, published_regions, simulate
from tolfl.signals.windows import PACKET, STATISTICS, TCP, UDP, WindowGrid, window_statistics, windows_of

#: Time, bytes, source, destination, protocol.
FOUR = np.array(
    [(10.0, 50, 0, 9, UDP), (10.2, 100, 9, 0, UDP), (10.25, 50, 9, 0, UDP), (10.75, 1500, 3, 9, TCP)], PACKET
)


def test_four_packets_give_the_twelve_numbers_worked_out_by_hand() -> None:
    (numbers,) = window_statistics(windows_of(FOUR, WindowGrid()))

    # Gaps 0.2, 0.05, 0.5.
    assert numbers == pytest.approx([4, 0.05, 0.5, 0.25, 1, 3, 50, 1500, 425, 3, 3, 2])
    assert len(STATISTICS) == 12


def test_a_lone_packet_has_gaps_of_zero() -> None:
    lone = FOUR[:1]
    (numbers,) = window_statistics(windows_of(lone, WindowGrid()))

    assert numbers.tolist() == [1, 0, 0, 0, 0, 1, 50, 50, 50, 1, 1, 1]


def test_windows_start_at_the_first_packet_and_leave_the_rest_of_the_minute_out() -> None:
    times = [5.0, 5.999, 6.0, 64.9, 65.0, 65.5, 185.0, 300.0]
    packets = np.array([(time, 43, 0, 1, UDP) for time in times], PACKET)
    windows = windows_of(packets, WindowGrid(), until_s=200.0)

    assert windows.start_s.tolist() == [5.0, 65.0, 185.0]
    assert windows.sizes.tolist() == [2, 2, 1]
    assert windows.packets["time_s"].tolist() == [5.0, 5.999, 65.0, 65.5, 185.0]


def test_a_window_that_the_simulation_cut_off_is_left_out() -> None:
    assert len(windows_of(FOUR, WindowGrid(), until_s=10.9)) == 0


def test_no_packets_are_no_windows() -> None:
    nothing = FOUR[:0]

    assert window_statistics(windows_of(nothing, WindowGrid())).shape == (0, 12)


@given(
    st.lists(
        st.tuples(st.integers(0, 900), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2)),
        min_size=1,
        max_size=40,
    )
)
def test_all_windows_at_once_are_each_window_alone(rows: list[tuple[int, int, int, int]]) -> None:
    packets = np.array(
        [(time / 4, payload + 42, *addresses, UDP) for time, payload, *addresses in sorted(rows)], PACKET
    )
    windows = windows_of(packets, WindowGrid(5.0, 20.0))
    numbers = window_statistics(windows)

    bounds = [*windows.first.tolist(), len(windows.packets)]
    for index in range(len(windows)):
        part = windows.packets[bounds[index] : bounds[index + 1]]
        gaps = np.diff(part["time_s"]) if len(part) > 1 else np.zeros(1)
        wire = part["wire_bytes"]
        expected = [len(part), gaps.min(), gaps.max(), gaps.mean(), 0, len(part)]
        expected += [wire.min(), wire.max(), wire.mean(), len(set(wire.tolist()))]
        expected += [len(set(part["source"].tolist())), len(set(part["destination"].tolist()))]
        assert numbers[index] == pytest.approx(expected)


@pytest.mark.parametrize(("index", "per_window"), list(enumerate([3.15, 8.50, 3.67, 3.11])))
def test_a_week_of_a_published_region_is_as_measured(index: int, per_window: float) -> None:
    region, grid = published_regions()[index], WindowGrid()
    windows = windows_of(simulate(region, 604_800.0, PUBLISHED_SEEDS[index], grid=grid), grid, until_s=604_800.0)
    kept = windows.select(windows.have(windows.packets["source"] == region.router))
    numbers = window_statistics(kept)

    # Measured once on another implementation of the same files; the standard errors of both are 0.04 to 0.08.
    assert numbers[:, 0].mean() == pytest.approx(per_window, abs=0.25)
    assert len(kept) / 10_080 == pytest.approx(0.195, abs=0.012)
    assert (numbers[:, 4] == 0).all()
    assert (numbers[:, 5] == numbers[:, 0]).all()
    assert set(numbers[:, 11]) == {1, 2}
