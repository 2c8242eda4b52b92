"""Alarms grouped in time: what lasts for an hour is one event to an operator, not sixty."""

from __future__ import annotations

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


@dataclass
class AlarmGroup:
    """Alarms of one device that follow each other closely."""

    n_alarms: int
    first: Alarm
    last: Alarm
    peak: Alarm  #: the one with the highest score


class AlarmGroups:
    """Groups alarms as they come; a group is closed when its device has been quiet for longer than `gap`.

    >>> groups = AlarmGroups(gap=10)
    >>> alarms = [Alarm("a", place, row, 1.0, 0.01) for row, place in enumerate([0.0, 5.0, 30.0])]
    >>> [group.n_alarms for alarm in alarms for group in groups.add(alarm)], [g.n_alarms for g in groups.close()]
    ([2], [1])
    """

    def __init__(self, gap: float) -> None:
        self.gap = gap
        self._open: dict[str, AlarmGroup] = {}

    @property
    def open_devices(self) -> tuple[str, ...]:
        """The devices whose last group may go on."""
        return tuple(self._open)

    def add(self, alarm: Alarm) -> list[AlarmGroup]:
        """Take an alarm in; return the group before it, if it is over."""
        over = self.passed(alarm.device, alarm.place)
        group = self._open.get(alarm.device)
        if group is None:
            self._open[alarm.device] = AlarmGroup(1, alarm, alarm, alarm)
            return over
        group.n_alarms += 1
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
        return [self._open.pop(device)]

    def close(self) -> list[AlarmGroup]:
        """Return what is still open, the first one first."""
        groups, self._open = list(self._open.values()), {}
        return sorted(groups, key=lambda group: group.first.place)
