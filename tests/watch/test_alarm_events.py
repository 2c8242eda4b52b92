from __future__ import annotations

import msgspec
import pytest

from tolfl.watch.alarm_events import AlarmEvent, EventGroups, Memory, ScoredWindow


def events_of(ratios: list[float], groups: EventGroups | None = None, start_s: float = 1000.0) -> list[AlarmEvent]:
    groups = groups or EventGroups("0", "lo", "m")
    windows = [ScoredWindow("", start_s + place, ratio, 1.0, 0.01) for place, ratio in enumerate(ratios)]
    return [event for window in windows for event in groups.take(window)]


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.5], []),
        ([1.5, 0.1, 0.1, 1.5], []),
        ([2.0], ["open"]),
        ([1.5, 0.1, 1.5], ["open"]),
        ([3.0] + [0.4] * 9, ["open"]),
        ([3.0] + [0.4] * 10, ["open", "close"]),
        ([3.0] + [0.4] * 9 + [0.6] + [0.4] * 9, ["open"]),
        ([3.0] * 61, ["open", "update"]),
        ([1.5, 1.5, 3.0], ["open", "update"]),
    ],
    ids=["one", "far apart", "twice", "two of three", "nine quiet", "ten quiet", "not quite", "a minute", "worse"],
)
def test_groups_open_go_on_and_close_by_the_limits(ratios: list[float], expected: list[str]) -> None:
    assert [event.event for event in events_of(ratios)] == expected


def test_severity_is_the_worst_so_far() -> None:
    found = events_of([1.5, 1.5, 3.0] + [0.1] * 10)

    assert [event.severity for event in found] == ["warning", "high", "high"]
    assert found[-1].n_alarms == 3
    assert found[-1].score == 3.0


def test_an_extrapolated_limit_gives_a_notice() -> None:
    groups = EventGroups("0", "lo", "m")
    found = groups.take(ScoredWindow("", 0.0, 9.0, 1.0, 0.01, is_extrapolated=True))

    assert found[0].severity == "notice"


def test_a_source_that_was_silent_for_long_closes_its_group() -> None:
    groups = EventGroups("0", "lo", "m")
    events_of([3.0], groups)

    assert [event.event for event in events_of([0.1], groups, start_s=2000.0)] == ["close"]


def test_memory_that_was_stored_gives_the_same_ids_again() -> None:
    ratios = [3.0, 3.0] + [0.1] * 10 + [1.5, 1.5] + [0.1] * 10
    whole = events_of(ratios)
    groups = EventGroups("0", "lo", "m")
    first = events_of(ratios[:7], groups)
    stored = msgspec.json.decode(msgspec.json.encode(groups.memory), type=Memory)
    rest = events_of(ratios[7:], EventGroups("0", "lo", "m", stored), start_s=1007.0)

    assert first + rest == whole
    assert len({event.id for event in whole}) == len(whole) == 4


def test_addresses_that_somebody_invents_are_forgotten_and_open_groups_are_not() -> None:
    groups = EventGroups("0", "lo", "m")
    groups.take(ScoredWindow("attacked", 0.0, 5.0, 1.0, 0.001))
    for number in range(5000):
        groups.take(ScoredWindow(f"invented {number}", 1.0 + number / 1000, 0.1, 1.0, 0.9))

    assert len(groups.memory.keys) <= 1001
    assert groups.is_open("attacked")
