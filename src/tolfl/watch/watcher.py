"""Watching a source: rows are scored as they come, alarms go into the queue; failures are reported and retried."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from tolfl.detect.detector import Detector
from tolfl.detect.novelty import LIMIT
from tolfl.detect.scoring import ScoredRows, TableScorer
from tolfl.signals.pcap import CaptureSummary
from tolfl.signals.wlan import Networks, are_same_networks, networks_file, networks_known
from tolfl.tables import Block, Roles, Rows, blocks
from tolfl.tables.block_reader import INTERFACE, STDIN
from tolfl.watch.alarm_events import AlarmEvent, EventGroups, Memory, ScoredWindow
from tolfl.watch.alarm_queue import MAX_EVENTS, AlarmQueue
from tolfl.watch.kept_rows import KeptRows, Reached
from tolfl.watch.sinks import Delivery, Sink, sentence

_FIRST_BREAK_S, _MAX_BREAK_S = 1.0, 60.0
_CLOSE_S = 5.0
_LOG = logging.getLogger("tolfl")


class _InUse(NamedTuple):
    """A detector, the first digits of its file's SHA-256, and when the file was written."""

    detector: Detector
    model: str
    saved_s: float
    known: Networks | None  #: networks that are not new, in captures of 802.11


def _when(rows: Rows, place: int, *, is_utc: bool) -> str:
    """Return the time of a row as its source has it; of a capture, with its time zone."""
    text = "" if rows.time_texts is None else rows.time_texts[place] or ""
    return f"{text.replace(' ', 'T').removesuffix('.000000')}Z" if is_utc and text else text


class _Beginning:
    """Windows at the beginning of a source: up to a time, which a file that grows or is replaced keeps, or so many."""

    def __init__(self, n_windows: int, until_s: float | None) -> None:
        self._n_left, self._until_s = n_windows, until_s

    def holds(self, window: ScoredWindow) -> bool:
        """Return whether the next window is one of them."""
        self._n_left -= 1
        if self._until_s is not None and window.start_s > self._until_s:
            self._until_s = None
        return self._n_left >= 0 or self._until_s is not None


def _reached(groups: EventGroups) -> Reached:
    return Reached(groups.memory.n_judged, groups.memory.passed_s)


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
        The device of the rows: its own threshold is used, and alarms carry its name.
    follow
        Whether a capture file is still being written.
    raw
        What samples of a receiver on standard input are: cu8, cs8, cs16, cf32.
    keeps
        How many recent rows without an alarm are kept in the folder, to learn from; 0: none.
    on_event
        Called with every event, in the thread that watches.
    """

    def __init__(  # noqa: PLR0913  (each is a flag or a line of a configuration)
        self,
        source: str,
        state: Path,
        sinks: list[Sink],
        device: str = "",
        *,
        follow: bool = False,
        roles: Roles | None = None,
        max_events: int = MAX_EVENTS,
        raw: str = "",
        keeps: int = 0,
        on_event: Callable[[AlarmEvent], None] = lambda _: None,
    ) -> None:
        self.source, self._follow, self._device, self._roles = source, follow, device, roles or Roles()
        self.queue = AlarmQueue(state, [sink.name for sink in sinks], max_events)
        self._state, self._raw, self._keeps, self._on_event = state, raw, keeps, on_event
        self._deliveries = [Delivery(self.queue, sink) for sink in sinks]
        for delivery in self._deliveries:
            delivery.start()
        self._detector: _InUse | None = None
        self._memory: Memory | None = None  #: of the groups, as it is now
        self._kept: KeptRows | None = None
        self._closing, self._is_given = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._trouble = ""
        self.is_up = False  #: whether the source gives rows, or reports that there are none yet
        self.counts: CaptureSummary | None = None  #: of the capture, where the source is one
        self._n_steps = 0  #: of the clock, that were reported
        self.last_s = 0.0  #: the end of the last window, since 1970; 0: windows have no time
        self.n_rows = self.n_alarms = self.n_events = self.n_known = 0

    # -- a detector, and the source --------------------------------------------------------------------------------

    def load(self, path: Path, networks: Path | None = None) -> None:
        """Use the detector in a file; a running watcher changes to it from the next rows on.

        `networks` is the file with those that are not new. (default: the one beside the detector, if there is one)
        """
        known = networks_known(networks or networks_file(path))
        detector = Detector.load(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        self._detector = _InUse(detector, digest, path.stat().st_mtime, known)
        self._is_given.set()

    def run(self) -> None:
        """Watch until the source ends or fails, or the watcher is closed."""
        try:
            while self._watch():
                pass
        finally:
            self.is_up = False

    def start(self) -> None:
        """Watch in a thread as soon as there is a detector; a source that fails is tried again until the end."""
        self._thread = threading.Thread(target=self._keep_watching, name="watching", daemon=True)
        self._thread.start()

    def _keep_watching(self) -> None:
        break_s = _FIRST_BREAK_S
        while not self._closing.is_set():
            if not self._is_given.wait(_FIRST_BREAK_S):
                continue
            self._is_given.clear()
            began_s = time.monotonic()
            try:
                self.run()
                self._trouble = "" if self._closing.is_set() else f"{self.source} has ended"
                continue  # until there is another detector
            except Exception as error:  # an error of a source must not end the device
                self._trouble = str(error) or repr(error)
                _LOG.warning("tolfl: %s; watching is retried", self._trouble)
            break_s = _FIRST_BREAK_S if time.monotonic() - began_s > _MAX_BREAK_S else min(2 * break_s, _MAX_BREAK_S)
            self._closing.wait(break_s)
            self._is_given.set()

    def _watch(self) -> bool:
        """Watch with a detector; return whether another one wants the source to be read anew."""
        assert self._detector is not None, "load a detector first"
        in_use = self._detector
        self._memory = memory = self._memory or self.queue.memory(self.source)
        groups = EventGroups(self._device, self.source, in_use.model, memory)
        scorer = self._scorer(in_use)
        # A file is read from its beginning again: what was taken in before is not taken in twice. After SIGKILL that
        # is what was before the last event; of rows to learn from, what is kept of the windows since then, too.
        known = self._beginning(Reached(memory.n_judged, memory.passed_s))
        kept = self._beginning(Reached() if self._kept is None else self._kept.reached)
        how = scorer.reading(self._raw, follow=self._follow, known=in_use.known)
        found = blocks(self.source, how)
        with contextlib.closing(cast("Generator[Block]", found)):  # a child that captures ends with it
            for block in found:
                self.is_up, self.counts, self._trouble = True, block.summary, ""
                self._report_steps(block.summary)
                events: list[AlarmEvent] = []
                try:
                    self._take(scorer, block, groups, known, kept, events)
                finally:
                    # Calm rows are kept by now: a kill before the events are stored has the whole block scored again.
                    self._put(groups, events)
                if self._closing.is_set():
                    # With or without an event: rows that are kept must not be kept again after the next start.
                    self.queue.put([], self.source, groups.memory)
                    return False
                if self._detector is not in_use:
                    in_use = self._detector
                    scorer, groups.model = self._scorer(in_use), in_use.model
                    new = scorer.reading(self._raw)
                    if (new.grid, new.per) != (how.grid, how.per) or not are_same_networks(how.known, in_use.known):
                        return True
            self._put(groups, groups.close())
            return False

    def _report_steps(self, counts: CaptureSummary | None) -> None:
        """Report a step of the clock when it happens: a live source has no end at which all is reported."""
        if counts is not None and counts.n_clock_steps > self._n_steps:
            _LOG.warning("%s: the clock of the capture stepped by %+.3f s", self.source, counts.last_clock_step_s)
        self._n_steps = 0 if counts is None else counts.n_clock_steps

    def _scorer(self, in_use: _InUse) -> TableScorer:
        if self._keeps:
            self._kept = KeptRows(self._state, in_use.detector.features.full, self.source, self._keeps)
        return TableScorer(in_use.detector, self._roles)

    def _beginning(self, reached: Reached) -> _Beginning:
        is_live = self.source == STDIN or self.source.startswith(INTERFACE)
        if self._follow:
            return _Beginning(0, reached.last_s)
        return _Beginning(0 if is_live else reached.n_windows, None)

    def _take(
        self,
        scorer: TableScorer,
        block: Block,
        groups: EventGroups,
        known: _Beginning,
        kept: _Beginning,
        events: list[AlarmEvent],
    ) -> None:
        """Take in the windows of a block that are not `known`, and keep the rows of those that are not `kept`."""
        if not block.n_rows:
            return
        if self._device and not block.device:
            block = replace(block, device=self._device)
        if not self._roles.time and (time_column := block.roles.get("time")):
            scorer.schema = scorer.schema.with_roles(Roles(time=time_column))
        for scored in scorer.score([block]):
            calm, n_left_out = dict[int, Reached](), 0
            for place, window in self._windows(scorer.detector, scored, block):
                is_kept = kept.holds(window)
                if known.holds(window):
                    self.n_known += 1
                    continue
                self._count(window)
                events += groups.take(window)
                if is_kept:
                    continue
                if scored.is_alarm[place] or groups.is_open(window.key):
                    n_left_out += 1
                else:
                    calm[place] = _reached(groups)
            if self._kept is not None and (calm or n_left_out):
                self._kept.add(scored.rows.values[list(calm)], list(calm.values()), n_left_out, _reached(groups))

    def _windows(self, detector: Detector, scored: ScoredRows, block: Block) -> Iterator[tuple[int, ScoredWindow]]:
        rows = scored.rows
        starts = rows.numbers.astype(np.float64) if rows.times is None else rows.times
        is_counted = scored.is_scored if block.is_partial is None else scored.is_scored & ~block.is_partial
        keys = block.table["key"].tolist() if "key" in block.beside else []
        for place in np.flatnonzero(is_counted).tolist():
            device = "" if rows.devices is None else str(rows.devices[place])
            score, limit, novelty = scored.scores[place], scored.thresholds[place], scored.novelty[place]
            is_few = detector.thresholds.limit_for(device or None).is_extrapolated
            # An alarm if either says so: the one further above its limit; a limit from few rows gives way to novelty.
            by = "novelty" if novelty / LIMIT > (min(score / limit, 1.0) if is_few else score / limit) else "score"
            yield (
                place,
                ScoredWindow(
                    keys[place] if keys else "" if device == self._device else device,
                    float(starts[place]),
                    float(score if by == "score" else novelty),
                    float(limit if by == "score" else LIMIT),
                    float(scored.p_values[place]),
                    block.window_s or 1.0,
                    by,
                    by == "score" and is_few,
                    scored.top.get(place, ()),
                    _when(rows, place, is_utc=block.summary is not None),
                ),
            )

    def _count(self, window: ScoredWindow) -> None:
        self.n_rows += 1
        self.n_alarms += window.ratio > 1
        self.last_s = window.start_s + window.window_s if window.when else 0.0

    def _put(self, groups: EventGroups, events: list[AlarmEvent]) -> None:
        if events:
            self.queue.put(events, self.source, groups.memory)
        else:
            self.queue.retry(self.source, groups.memory)
        self.n_events += len(events)
        for event in events:
            _LOG.info("tolfl: %s", sentence(event))
            self._on_event(event)

    # -- status -------------------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str:
        """The current problem, for the operator."""
        failing = [delivery.trouble for delivery in self._deliveries if delivery.trouble]
        kept = "" if self._kept is None else self._kept.trouble
        return "; ".join(filter(None, [self._trouble, self.queue.trouble, kept, *failing]))

    def metrics(self, labels: Mapping[str, str]) -> str:
        """Return its numbers in Prometheus' text format: `tolfl_watch_*`."""
        counts, queue = self.counts or CaptureSummary(), self.queue
        lag_s = time.time() - self.last_s if self.last_s else 0.0
        numbers: list[tuple[str, str, str, str, float | Mapping[str, int]]] = [
            ("rows_total", "counter", "Windows scored.", "", self.n_rows),
            ("packets_total", "counter", "Packets of the source.", "", counts.n_packets),
            ("alarms_total", "counter", "Windows above the limit.", "", self.n_alarms),
            ("events_total", "counter", "Events of groups of alarms.", "", self.n_events),
            ("lost_packets_total", "counter", "Packets that are in no window.", "reason", counts.left_out),
            ("dropped_events_total", "counter", "Events that a sink never gets.", "sink", queue.n_dropped()),
            ("queue", "gauge", "Events that wait for a sink.", "sink", queue.n_waiting()),
            ("clock_steps_total", "counter", "Steps of the clock.", "", counts.n_clock_steps),
            ("model_age_seconds", "gauge", "Since the detector was saved.", "", round(self.model_age_s, 1)),
            ("lag_seconds", "gauge", "Since the end of the last window.", "", round(lag_s, 3)),
            ("source_up", "gauge", "1: the source gives rows.", "", int(self.is_up)),
            ("trouble", "gauge", "1: there is a problem, see the log.", "", int(bool(self.trouble))),
        ]
        lines = []
        for name, kind, what, label, values in numbers:
            lines += [f"# HELP tolfl_watch_{name} {what}", f"# TYPE tolfl_watch_{name} {kind}"]
            for key, value in values.items() if isinstance(values, Mapping) else [("", values)]:
                pairs = {**labels, label: key} if label else labels
                texts = ",".join(f'{one}="{_escaped(text)}"' for one, text in pairs.items())
                lines.append(f"tolfl_watch_{name}{{{texts}}} {value}")
        return "\n".join(lines) + "\n"

    @property
    def model(self) -> str:
        """The first digits of the SHA-256 of the detector in use; nothing: there is none yet."""
        return "" if self._detector is None else self._detector.model

    @property
    def model_age_s(self) -> float:
        """How old the file of the detector in use is."""
        return 0.0 if self._detector is None else time.time() - self._detector.saved_s

    @property
    def closed_output(self) -> BaseException | None:
        """The end of standard output, if nobody reads it any more."""
        return next((one.ended for one in self._deliveries if one.ended is not None), None)

    def close(self) -> None:
        """Stop watching, and send what can be sent at once; groups stay open for the next start."""
        self._closing.set()
        self._is_given.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
        for delivery in self._deliveries:
            delivery.close()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
