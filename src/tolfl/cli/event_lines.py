"""One line for each important event of a run, where nothing can be drawn: a log, a pipe, a plain terminal."""

from __future__ import annotations

import time
from collections.abc import Callable

import typer

from tolfl.core.records import (
    AnyRecord,
    FailureHappened,
    Joined,
    RoundAdopted,
    RoundClosed,
    RunStarted,
    how_far,
    round_name,
)
from tolfl.runs.descriptions import describe, device_list, tone
from tolfl.runs.merged_records import TakeOvers

#: Rounds without events: one line in so many seconds.
EVERY_S = 60.0


class EventLines:
    """Prints what happens as it becomes known: failures, take-overs and returns at once, rounds once a minute.

    Parameters
    ----------
    prefix
        Returns what stands before a line, such as a clock.
    is_verbose
        Print a line for every round.
    """

    def __init__(
        self, prefix: Callable[[AnyRecord], str], is_verbose: bool = False, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._prefix, self._is_verbose, self._now_s = prefix, is_verbose, now_s
        self._stages: tuple[tuple[str, int], ...] = ()
        self._printed_s: float | None = None  #: when a round was last printed
        self._gone: dict[int, int] = {}  #: devices whose failure was printed, and its round
        self._inside: set[int] = set()  #: whose samples are in the newest round
        self._newest = -1  #: round
        self._takeovers = TakeOvers()
        self._newest_s = now_s()  #: when the last round was closed

    @property
    def idle_s(self) -> float:
        """Seconds since the last round was closed; since the start, if there was none."""
        return self._now_s() - self._newest_s

    def print_event(self, record: AnyRecord) -> None:
        """Print a record, if it is important now."""
        if not self._takeovers.is_new(record):
            return
        words = describe(record, self._stages) if tone(record) in {"good", "bad"} else ""
        match record:
            case RunStarted():
                self._stages = record.stages
            case FailureHappened() if record.device is not None:
                if record.by is not None and record.device in self._gone:
                    return  # several devices detect it
                self._gone[record.device] = record.round or 0
            case Joined() if record.device is not None:
                self._gone.pop(record.device, None)
            case RoundClosed() | RoundAdopted():
                self._newest_s = self._now_s()
                self._print(record, self._absences(record))
                words = self._progress(record)
        self._print(record, words)

    def _print(self, record: AnyRecord, words: str) -> None:
        if words:
            typer.echo(f"{self._prefix(record)} {words}", err=True)

    def _absences(self, record: RoundClosed | RoundAdopted) -> str:
        """Return which devices are missing since this round: it may be the only sign that one failed or left."""
        now = record.round or 0
        if now < self._newest or not record.included:
            return ""  # of a device whose file is read later than those of others; or the roster alone has changed
        for device in record.included:
            if self._gone.get(device, now) < now:
                del self._gone[device]
        failed = {int(device) for device, why in record.missing.items() if why == "failed"} - self._gone.keys()
        left = self._inside - {*record.included, *map(int, record.missing), *self._gone}
        self._gone |= dict.fromkeys(failed | left, now)
        self._inside, self._newest = set(record.included), now
        where = round_name(self._stages, now)
        told = [f"{device_list(sorted(failed))} missing from round {where}"] if failed else []
        told += [f"{device_list(sorted(left))} left before round {where}"] if left else []
        return "; ".join(told)

    def _progress(self, record: RoundClosed | RoundAdopted) -> str:
        is_due = self._printed_s is None or self._now_s() - self._printed_s >= EVERY_S
        if not (is_due or self._is_verbose):
            return ""
        self._printed_s = self._now_s()
        n_rounds = sum(rounds for _, rounds in self._stages)
        far = how_far(self._stages, 1 + (record.round or 0), n_rounds) if n_rounds else f"round {record.round}"
        return f"{far}: {len(record.included)} devices inside" + (
            "" if record.loss is None else f", loss {record.loss:.4g}"
        )
