"""Record files: JSON lines, written as a run goes and read by tables, plots and the dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tolfl.core.errors import RunDirectoryError
from tolfl.core.records import (
    AnyRecord,
    Evaluated,
    FailureHappened,
    RosterChanged,
    RoundClosed,
    RunEnded,
    RunStarted,
    Scored,
    Traffic,
    decode_records,
)

#: Of a run, or of one device; and what only the launcher of real devices saw.
RECORDS, LAUNCHER = "records.jsonl", "launcher.jsonl"


def read_records(path: Path) -> list[AnyRecord]:
    """Read a record file, or the one of a run directory."""
    file = path / RECORDS if path.is_dir() else path
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise RunDirectoryError(path, f"has no records that can be read ({error.strerror})") from None
    return list(decode_records(lines, source=str(file)))


def whole_lines(path: Path) -> list[AnyRecord]:
    """Read a record file that may be written at the moment, or whose writer was killed; a piece of a line is none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunDirectoryError(path.parent, f"{path.name} cannot be read ({error.strerror})") from None
    return list(decode_records(content[: content.rfind(b"\n") + 1].splitlines(), source=str(path)))


def lines_of_devices(run: Path) -> list[AnyRecord]:
    """Return what the devices of a real run and its launcher wrote, in order of time."""
    files = [*sorted(run.glob(f"devices/*/{RECORDS}")), run / LAUNCHER]
    return sorted((line for file in files for line in whole_lines(file)), key=lambda line: line.time_s)


def one_story(lines: Iterable[AnyRecord]) -> list[AnyRecord]:
    """Return the lines of many devices as those of one run: each thing once, no traffic, no device's own end.

    An evaluation stands behind the closed round whose model it scored and has its time, as in a simulation; when the
    launcher came to score the model says nothing about the run.
    """
    story = Story()
    heard = (story.hear(line) for line in lines if not isinstance(line, Traffic | RunEnded))
    told = [line for line in heard if line is not None]
    closed = {line.version for line in told if isinstance(line, RoundClosed)}
    scores = {line.version: line for line in told if isinstance(line, Evaluated)}
    ordered: list[AnyRecord] = []
    for line in told:
        if not (isinstance(line, Evaluated) and line.version in closed):
            ordered.append(line)
        if isinstance(line, RoundClosed) and line.version in scores:
            ordered.append(msgspec.structs.replace(scores.pop(line.version), time_s=line.time_s))
    return ordered


#: Lines of several devices about one death are one line.
_SAME_DEATH_S = 10.0


class Story:
    """Decides line by line, in the order in which they come, what is news."""

    def __init__(self) -> None:
        self._has_started = False
        self._is_counted: dict[str | None, bool] = {}  #: closed rounds, by version
        self._told: set[tuple[type[AnyRecord], str | None]] = set()  #: rosters and evaluations, by version
        self._deaths_s: dict[int | None, float] = {}

    def hear(self, line: AnyRecord) -> AnyRecord | None:
        """Return a device's or launcher's line as a simulation would write it; None: it is known already."""
        match line:
            case RunStarted():
                is_first, self._has_started = not self._has_started, True
                return msgspec.structs.replace(line, device=None) if is_first else None
            case RunEnded():
                return line if line.device is None else None  # a device's own end is not the run's
            case RoundClosed():
                return self._closed(line)
            case RosterChanged() | Evaluated():
                what = type(line), line.version
                is_new = what not in self._told
                self._told.add(what)
                return line if is_new else None
            case FailureHappened() if line.by is not None:
                before_s, self._deaths_s[line.device] = self._deaths_s.get(line.device), line.time_s
                is_new = before_s is None or line.time_s - before_s >= _SAME_DEATH_S
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
