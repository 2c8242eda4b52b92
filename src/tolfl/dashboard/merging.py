"""One story from the lines of many devices: each thing once, as a simulation would write it."""

from __future__ import annotations

import msgspec

from tolfl.core.records import (
    AnyRecord,
    FailureHappened,
    RosterChanged,
    RoundClosed,
    RunEnded,
    RunStarted,
    Scored,
)

#: Lines of several devices about one death are one line.
SAME_DEATH_S = 10.0


class Story:
    """Decides line by line, in the order in which they come, what is news."""

    def __init__(self) -> None:
        self._has_started = False
        self._is_counted: dict[str | None, bool] = {}  #: closed rounds and rosters, by version
        self._deaths_s: dict[int | None, float] = {}

    def hear(self, line: AnyRecord) -> AnyRecord | None:
        """Return a device's or launcher's line as the page shows it; None: it is known already."""
        match line:
            case RunStarted():
                is_first, self._has_started = not self._has_started, True
                return msgspec.structs.replace(line, device=None) if is_first else None
            case RunEnded():
                return line if line.device is None else None  # a device's own end is not the run's
            case RoundClosed():
                return self._closed(line)
            case RosterChanged():
                is_new = line.version not in self._is_counted
                self._is_counted[line.version] = True
                return line if is_new else None
            case FailureHappened() if line.by is not None:
                before_s, self._deaths_s[line.device] = self._deaths_s.get(line.device), line.time_s
                is_new = before_s is None or line.time_s - before_s >= SAME_DEATH_S
                return line if is_new else None
        return line

    def hear_total(self, line: AnyRecord) -> AnyRecord | None:
        """Return a line of the file that is written when real devices have ended: counts, end and scores are news."""
        return self.hear(line) if isinstance(line, RoundClosed | RunEnded | Scored) else None

    def _closed(self, line: RoundClosed) -> RoundClosed | None:
        """Let a round through once, and a second time when its messages are counted."""
        is_known = line.version in self._is_counted
        is_counted = self._is_counted.get(line.version, False)
        self._is_counted[line.version] = is_counted or bool(line.messages)
        return line if not is_known or (line.messages and not is_counted) else None
