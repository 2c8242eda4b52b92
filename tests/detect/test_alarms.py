"""Alarms grouped in time."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tolfl.detect.scoring import Alarm, AlarmGroup, AlarmGroups

GAP = 10.0


def grouped(alarms: list[Alarm]) -> list[AlarmGroup]:
    groups = AlarmGroups(GAP)
    return [*(group for alarm in alarms for group in groups.add(alarm)), *groups.close()]


def alarms_at(places: list[tuple[str, float]]) -> list[Alarm]:
    return [Alarm(device, place, row, score=float(row), p_value=0.01) for row, (device, place) in enumerate(places)]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 200)), max_size=60).map(
        lambda x: sorted(x, key=lambda y: y[1])
    )
)
def test_each_alarm_is_in_one_group_and_groups_are_far_apart(places: list[tuple[str, float]]) -> None:
    groups = grouped(alarms_at(places))

    assert sum(group.n_alarms for group in groups) == len(places)
    for device in "abc":
        own = sorted((group for group in groups if group.first.device == device), key=lambda group: group.first.place)
        assert all(after.first.place - before.last.place > GAP for before, after in pairwise(own))
        for group in own:
            inside = [
                place for name, place in places if name == device and group.first.place <= place <= group.last.place
            ]
            assert len(inside) == group.n_alarms
            assert all(after - before <= GAP for before, after in pairwise(inside))


def test_a_group_knows_its_ends_and_its_peak() -> None:
    first, second = Alarm("a", 5.0, 1, 9.0, 0.01, time="five"), Alarm("a", 7.0, 2, 3.0, 0.02, time="seven")
    (group,) = grouped([first, second])

    assert (group.first, group.last, group.peak) == (first, second, first)


def test_a_group_is_closed_as_soon_as_its_device_has_been_quiet() -> None:
    groups = AlarmGroups(GAP)
    assert list(groups.add(Alarm("a", 0.0, 1, 1.0, 0.01))) == []

    assert list(groups.passed("b", 50.0)) == []  # another device says nothing about this one
    assert list(groups.passed("a", 10.0)) == []
    assert [group.n_alarms for group in groups.passed("a", 10.5)] == [1]
    assert list(groups.close()) == []


def test_a_late_row_widens_its_group() -> None:
    (group,) = grouped(alarms_at([("a", 20.0), ("a", 15.0)]))

    assert (group.first.place, group.last.place, group.n_alarms) == (15.0, 20.0, 2)
