"""Watching a source: rows scored as they come, alarms into the queue; what fails is said, and tried again."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from tolfl.detect.detector import Detector
from tolfl.detect.novelty import LIMIT
from tolfl.detect.scoring import ScoredRows, TableScorer
from tolfl.tables import Block, Roles, blocks
from tolfl.tables.block_reader import INTERFACE, STDIN
from tolfl.watch.alarm_events import AlarmEvent, EventGroups, Memory, ScoredWindow
from tolfl.watch.alarm_queue import MAX_EVENTS, AlarmQueue
from tolfl.watch.sinks import Delivery, Sink, sentence

_FIRST_BREAK_S, _MAX_BREAK_S = 1.0, 60.0
_CLOSE_S = 5.0
_LOG = logging.getLogger("tolfl")


class Watcher:
    """Watches one source with one detector at a time; `run` it, or `start` it beside other things.

    Parameters
    ----------
    source
        As `tolfl.tables.blocks` takes it: a file, `-`, `interface:wlan0`.
    state
        The folder of the queue.
    sinks
        Where alarms go.
    device
        Whose rows these are: its own threshold is used, and alarms carry its name.
    follow
        Whether a capture file is still being written.
    """

    def __init__(
        self,
        source: str,
        state: Path,
        sinks: list[Sink],
        device: str = "",
        *,
        follow: bool = False,
        roles: Roles | None = None,
        max_events: int = MAX_EVENTS,
    ) -> None:
        self._source, self._follow, self._device, self._roles = source, follow, device, roles or Roles()
        self.queue = AlarmQueue(state, [sink.name for sink in sinks], max_events)
        self._deliveries = [Delivery(self.queue, sink) for sink in sinks]
        for delivery in self._deliveries:
            delivery.start()
        self._detector: tuple[Detector, str, float] | None = None  #: with its digest, and since when
        self._memory: Memory | None = None  #: of the groups, as it is now
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._trouble = ""
        self._is_up = False
        self._counts: Block | None = None  #: the last block: it has the counts of the capture
        self._last_s = 0.0
        self.n_rows = self.n_alarms = self.n_events = self.n_known = 0

    # -- a detector, and the source --------------------------------------------------------------------------------

    def load(self, path: Path) -> None:
        """Take the detector in a file, for `run`."""
        detector = Detector.load(path)
        self._detector = (detector, hashlib.sha256(path.read_bytes()).hexdigest()[:12], time.time())

    def run(self) -> None:
        """Watch until the source ends or fails, or the watcher is closed."""
        try:
            while self._watch_with(self._in_use()):
                pass
        finally:
            self._is_up = False

    def _in_use(self) -> tuple[Detector, str, float]:
        assert self._detector is not None, "use a detector first"
        return self._detector

    def _watch_with(self, in_use: tuple[Detector, str, float]) -> bool:
        """Watch with one detector; tell whether there is another now."""
        detector, model, _ = in_use
        self._memory = memory = self._memory or self.queue.memory(self._source)
        # A file is read from its beginning again: what was judged before is not judged twice.
        is_live = self._source == STDIN or self._source.startswith(INTERFACE)
        n_known = 0 if is_live or self._follow else memory.n_judged
        known_s = memory.passed_s if self._follow else None
        groups = EventGroups(self._device, self._source, model, memory)
        scorer = TableScorer(detector, self._roles)
        found = blocks(self._source, scorer.schema.encoding, scorer.grid, per=scorer.per, follow=self._follow)
        with contextlib.closing(cast("Generator[Block]", found)):  # a child that captures ends with it
            for block in found:
                self._is_up, self._counts = True, block
                for window in self._judged(scorer, block):
                    if n_known > 0 or (known_s is not None and window.start_s <= known_s):
                        n_known -= 1
                        self.n_known += 1
                        continue
                    known_s = None
                    self._take(groups, window)
                self.queue.retry(self._source, groups.memory)
                if self._closing.is_set():
                    return False
                if self._detector is not in_use and self._source != STDIN:
                    return True
            if events := groups.close():
                self._put(groups, events)
            return False

    def _judged(self, scorer: TableScorer, block: Block) -> Iterator[ScoredWindow]:
        if not block.n_rows:
            return
        if self._device and not block.device:
            block = replace(block, device=self._device)
        if not self._roles.time and (time_column := block.roles.get("time")):
            scorer.schema = scorer.schema.with_roles(Roles(time=time_column))
        for scored in scorer.score([block]):
            yield from self._windows(scorer.detector, scored, block)

    def _windows(self, detector: Detector, scored: ScoredRows, block: Block) -> Iterator[ScoredWindow]:
        rows = scored.rows
        starts = rows.numbers.astype(np.float64) if rows.times is None else rows.times
        is_judged = scored.is_scored if block.is_partial is None else scored.is_scored & ~block.is_partial
        keys = [str(key) for key in block.table["key"].to_pylist()] if "key" in block.beside else []
        for place in np.flatnonzero(is_judged).tolist():
            device = "" if rows.devices is None else str(rows.devices[place])
            score, limit, novelty = scored.scores[place], scored.thresholds[place], scored.novelty[place]
            is_few = detector.thresholds.limit_for(device or None).is_extrapolated
            # An alarm if either says so: the one further above its limit; a limit from few rows gives way to novelty.
            by = "novelty" if novelty / LIMIT > (min(score / limit, 1.0) if is_few else score / limit) else "score"
            yield ScoredWindow(
                keys[place] if keys else "" if device == self._device else device,
                float(starts[place]),
                float(score if by == "score" else novelty),
                float(limit if by == "score" else LIMIT),
                float(scored.p_values[place]),
                block.window_s or 1.0,
                by,
                by == "score" and is_few,
                scored.top.get(place, ()),
                "" if rows.time_texts is None else rows.time_texts[place].as_py() or "",
            )

    def _take(self, groups: EventGroups, window: ScoredWindow) -> None:
        self.n_rows += 1
        self.n_alarms += window.ratio > 1
        self._last_s = window.start_s + window.window_s if window.when else 0.0
        if events := groups.take(window):
            self._put(groups, events)

    def _put(self, groups: EventGroups, events: list[AlarmEvent]) -> None:
        self.queue.put(events, self._source, groups.memory)
        self.n_events += len(events)
        for event in events:
            _LOG.info("tolfl: %s", sentence(event))

    # -- from outside ------------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """What an operator should look at."""
        failing = [delivery.trouble for delivery in self._deliveries if delivery.trouble]
        return "; ".join(filter(None, [self._trouble, self.queue.trouble, *failing]))

    @property
    def closed_output(self) -> BaseException | None:
        """The end of standard output, if nobody reads it any more."""
        return next((one.ended for one in self._deliveries if one.ended is not None), None)

    def close(self) -> None:
        """Stop watching, and send what can be sent at once; groups stay open for the next start."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
        for delivery in self._deliveries:
            delivery.close()
