"""Windows above their limit as groups that open, are updated and close, so that a long anomaly is one alarm.

A group opens when one window reaches twice its limit, or 2 of 3 windows reach it; it closes after 10 windows below half
the limit. While it is open there is an update a minute, and one when it becomes more severe. No clock, no disk: all
times are those of the windows, so the same windows give the same events, with the same ids.
"""

from __future__ import annotations

import hashlib

import msgspec

from tolfl.detect.features import FeatureShare

SEVERITIES = ("notice", "warning", "high")
_OPENS_AT, _QUIET_BELOW = 2.0, 0.5  #: of the limit
_N_RECENT, _N_REACHED = 3, 2
_N_QUIET = 10
_UPDATE_S = 60.0
_MOST_KEYS = 1000


class ScoredWindow(msgspec.Struct, frozen=True):
    """One window (or row) with its score and limit."""

    key: str  #: the device or network of the window, where a source has several; "": there is one
    start_s: float  #: since 1970; without a time: the number of the row
    score: float
    limit: float
    p_value: float
    window_s: float = 1.0
    by: str = "score"  #: or novelty: what `score` and `limit` are of
    is_extrapolated: bool = False  #: whether the limit rests on too few rows
    features: tuple[FeatureShare, ...] = ()  #: that make the score
    when: str = ""  #: the start as text, where there is a time

    @property
    def ratio(self) -> float:
        """The score in units of its limit."""
        return self.score / self.limit if self.limit > 0 else (0.0 if self.score <= 0 else _OPENS_AT)

    @property
    def severity(self) -> int:
        """How severe it is, if it is above its limit; by its place in `SEVERITIES`."""
        return 0 if self.is_extrapolated else 2 if self.ratio >= _OPENS_AT else 1

    @property
    def name(self) -> str:
        """When it starts, or which row it is, as text."""
        return self.when or f"row {self.start_s:.0f}"


class AlarmEvent(msgspec.Struct, frozen=True):
    """The event that is sent: a group of alarms has opened, was updated or closed."""

    id: str  #: the group's name and the number of the event in it; the same event again has the same id
    event: str  #: open, update, close
    severity: str  #: notice (the limit rests on too few rows), warning, high (twice the limit); the worst so far
    device: str  #: as named by `--device`
    source: str  #: what is watched
    key: str  #: whose rows, with `--device-column`
    model: str  #: the first 12 digits of the SHA-256 of the detector's file
    start: str  #: of the first window: UTC of a capture, as written in a table, `row 12` where there is no time
    end: str  #: of the last window above the limit
    n_alarms: int  #: windows above the limit so far
    by: str  #: score (the joint score) or novelty: which is further above its limit in the worst window
    score: float  #: of the worst window, as `by` says
    limit: float  #: that it was compared with
    p_value: float  #: of the joint score of the worst window
    #: of the worst window: name, unit, share of the score, value, expected; with novelty low and high, the usual range
    features: tuple[FeatureShare, ...]

    @property
    def level(self) -> int:
        """The severity as a number."""
        return SEVERITIES.index(self.severity)


class _Group(msgspec.Struct):
    name: str
    start: str
    end: str
    worst: ScoredWindow
    severity: int
    n_alarms: int
    n_events: int = 0
    n_quiet: int = 0
    said_s: float = 0.0


class _Key(msgspec.Struct):
    """The state of one key."""

    last_s: float
    recent: list[ScoredWindow] = []  #: the last windows, while no group is open
    group: _Group | None = None


class Memory(msgspec.Struct):
    """The state of all groups, to be stored with their events."""

    keys: dict[str, _Key] = {}
    n_judged: int = 0  #: windows so far
    passed_s: float | None = None  #: the start of the last one


class EventGroups:
    """Turns scored windows into events.

    >>> groups = EventGroups("0", "interface lo", "abc")
    >>> [event.event for event in groups.take(ScoredWindow("", 60.0, 5.0, 1.0, 0.001))]
    ['open']
    >>> [event.event for second in range(10) for event in groups.take(ScoredWindow("", 61.0 + second, 0.1, 1.0, 0.9))]
    ['close']
    """

    def __init__(self, device: str, source: str, model: str, memory: Memory | None = None) -> None:
        self.device, self.source, self.model = device, source, model
        self.memory = memory or Memory()

    def take(self, window: ScoredWindow) -> list[AlarmEvent]:
        """Take in a window; return what is to be sent."""
        if window.key not in self.memory.keys and len(self.memory.keys) >= _MOST_KEYS:
            self._forget(window)
        known = self.memory.keys.setdefault(window.key, _Key(window.start_s))
        events = []
        if window.start_s - known.last_s > _N_QUIET * window.window_s:  # nothing was seen for so long
            known.recent.clear()
            if known.group is not None:
                events.append(self._event(known, window, "close"))
        known.last_s = self.memory.passed_s = window.start_s
        self.memory.n_judged += 1
        if known.group is None:
            known.recent = [*known.recent[1 - _N_RECENT :], window]
            reached = [one for one in known.recent if one.ratio > 1]
            if window.ratio >= _OPENS_AT or (window.ratio > 1 and len(reached) >= _N_REACHED):
                known.group = self._opened(reached)
                known.recent = []
                events.append(self._event(known, window, "open"))
            return events
        group = known.group
        severity = max(group.severity, window.severity) if window.ratio > 1 else group.severity
        if window.ratio > 1:
            group.n_alarms, group.end = group.n_alarms + 1, window.name
            group.worst = max(group.worst, window, key=lambda one: one.ratio)
        group.n_quiet = group.n_quiet + 1 if window.ratio < _QUIET_BELOW else 0
        is_worse, group.severity = severity > group.severity, severity
        if group.n_quiet >= _N_QUIET:
            events.append(self._event(known, window, "close"))
        elif is_worse or (window.ratio > 1 and window.start_s - group.said_s >= _UPDATE_S):
            events.append(self._event(known, window, "update"))
        return events

    def _forget(self, window: ScoredWindow) -> None:
        """Drop keys without recent windows, else all but those with a group: an attacker can invent addresses."""
        since_s = window.start_s - _N_QUIET * window.window_s
        keys = self.memory.keys
        kept = {key: one for key, one in keys.items() if one.group is not None or one.last_s >= since_s}
        if len(kept) >= _MOST_KEYS:
            kept = {key: one for key, one in kept.items() if one.group is not None}
        self.memory.keys = kept

    def is_open(self, key: str) -> bool:
        """Return whether a group of a key is open."""
        known = self.memory.keys.get(key)
        return known is not None and known.group is not None

    def close(self) -> list[AlarmEvent]:
        """Return the ends of all open groups: the source has ended."""
        return [
            self._event(known, msgspec.structs.replace(known.group.worst, start_s=known.last_s), "close")
            for known in self.memory.keys.values()
            if known.group is not None
        ]

    def _opened(self, reached: list[ScoredWindow]) -> _Group:
        first, worst = reached[0], max(reached, key=lambda one: one.ratio)
        who = (self.device, self.model, self.source, first.key, first.name)
        name = hashlib.sha256(msgspec.json.encode(who)).hexdigest()[:16]
        severity = max(one.severity for one in reached)
        return _Group(name, first.name, reached[-1].name, worst, severity, len(reached))

    def _event(self, known: _Key, window: ScoredWindow, event: str) -> AlarmEvent:
        group = known.group
        assert group is not None
        number, group.n_events, group.said_s = group.n_events, group.n_events + 1, window.start_s
        if event == "close":
            known.group = None
        worst = group.worst
        return AlarmEvent(
            f"{group.name}-{number}",
            event,
            SEVERITIES[group.severity],
            self.device,
            self.source,
            window.key,
            self.model,
            group.start,
            group.end,
            group.n_alarms,
            worst.by,
            worst.score,
            worst.limit,
            worst.p_value,
            worst.features,
        )
