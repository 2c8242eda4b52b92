"""One line for each event of a run that matters, where nothing can be drawn: a log, a pipe, a plain terminal."""

from __future__ import annotations

import time
from collections.abc import Callable

import typer

from tolfl.core.records import AnyRecord, RoundAdopted, RoundClosed, RunStarted, how_far
from tolfl.runs.failure_history import describe, tone

#: Rounds without events: one line in so many seconds.
_EVERY_S = 60.0


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
        self._told_s: float | None = None  #: when a round was last told of

    def tell(self, record: AnyRecord) -> None:
        """Print a record, if it matters now."""
        if isinstance(record, RunStarted):
            self._stages = record.stages
        words = describe(record, self._stages) if tone(record) in {"good", "bad"} else self._progress(record)
        if words:
            typer.echo(f"{self._prefix(record)} {words}", err=True)

    def _progress(self, record: AnyRecord) -> str:
        if not isinstance(record, RoundClosed | RoundAdopted):
            return ""
        is_due = self._told_s is None or self._now_s() - self._told_s >= _EVERY_S
        if not (is_due or self._is_verbose):
            return ""
        self._told_s = self._now_s()
        loss = record.loss if isinstance(record, RoundClosed) else record.own_loss
        n_rounds = sum(rounds for _, rounds in self._stages)
        far = how_far(self._stages, 1 + (record.round or 0), n_rounds) if n_rounds else f"round {record.round}"
        return f"{far}: {len(record.included)} devices inside" + ("" if loss is None else f", loss {loss:.4g}")
