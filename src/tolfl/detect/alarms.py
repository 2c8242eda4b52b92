"""Alarms grouped in time: what lasts for an hour is one event to an operator, not sixty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tolfl.detect.explaining import FeatureShare


class Alarm(msgspec.Struct, frozen=True):
    """One row above its threshold."""

    device: str
    place: float  #: seconds, or the number of the row where there is no time
    row: int
    score: float
    p_value: float
    features: tuple[FeatureShare, ...] = ()
    time: str = ""  #: as it was given


class AlarmGroup(msgspec.Struct, frozen=True):
    """Alarms of one device that follow each other closely."""

    device: str
    first: float
    last: float
    n_alarms: int
    peak: Alarm  #: the one with the highest score
    first_row: int
    last_row: int
    first_time: str = ""
    last_time: str = ""


@dataclass
class _Open:
    alarms: int
    first: Alarm
    last: Alarm
    peak: Alarm

    def closed(self) -> AlarmGroup:
        first, last = self.first, self.last
        return AlarmGroup(
            first.device, first.place, last.place, self.alarms, self.peak, first.row, last.row, first.time, last.time
        )


class AlarmGroups:
    """Groups alarms as they come; a group is closed when its device has been quiet for longer than `gap`.

    >>> groups = AlarmGroups(gap=10)
    >>> alarms = [Alarm("a", place, row, 1.0, 0.01) for row, place in enumerate([0.0, 5.0, 30.0])]
    >>> [group.n_alarms for alarm in alarms for group in groups.add(alarm)], [g.n_alarms for g in groups.close()]
    ([2], [1])
    """

    def __init__(self, gap: float) -> None:
        self.gap = gap
        self._open: dict[str, _Open] = {}

    @property
    def open_devices(self) -> tuple[str, ...]:
        """The devices whose last group may go on."""
        return tuple(self._open)

    def add(self, alarm: Alarm) -> list[AlarmGroup]:
        """Take an alarm in; return the group before it, if it is over."""
        over = self.passed(alarm.device, alarm.place)
        group = self._open.get(alarm.device)
        if group is None:
            self._open[alarm.device] = _Open(1, alarm, alarm, alarm)
            return over
        group.alarms += 1
        # Rows may come late: a group spans all of its alarms, in whatever order.
        group.first = min(group.first, alarm, key=lambda one: one.place)
        group.last = max(group.last, alarm, key=lambda one: one.place)
        group.peak = max(group.peak, alarm, key=lambda one: one.score)
        return over

    def passed(self, device: str, place: float) -> list[AlarmGroup]:
        """Say how far a device is; return its group, if that is over."""
        group = self._open.get(device)
        if group is None or place - group.last.place <= self.gap:
            return []
        del self._open[device]
        return [group.closed()]

    def close(self) -> list[AlarmGroup]:
        """Return what is still open, the first one first."""
        groups = [group.closed() for group in sorted(self._open.values(), key=lambda one: one.first.place)]
        self._open.clear()
        return groups


def grouped(alarms: Sequence[Alarm], gap: float) -> list[AlarmGroup]:
    """Return the groups of alarms that are all known."""
    groups = AlarmGroups(gap)
    found = [group for alarm in alarms for group in groups.add(alarm)]
    return [*found, *groups.close()]
