"""A device of a fleet that watches its own source, with the newest detector that its fleet has agreed on."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError, TolFLError
from tolfl.core.records import AlarmSent
from tolfl.detect.detector_learner import DETECTOR_FILE
from tolfl.net.node_config import NodeConfig, WatchConfig
from tolfl.net.prepare import run_folder
from tolfl.net.wire import AlarmStatus, WatchStatus
from tolfl.signals.wlan import DEVICE_FILE
from tolfl.tables.block_reader import INTERFACE
from tolfl.watch.alarm_events import AlarmEvent
from tolfl.watch.kept_rows import kept_rows
from tolfl.watch.sinks import sentence, sinks_of
from tolfl.watch.watcher import Watcher

_N_SHOWN = 5  #: groups of alarms in a status


class FleetWatch:
    """Watches during the training and after it; the detector of an earlier run serves until the present one is over.

    Parameters
    ----------
    config
        Of the device; it has a table `[watch]`.
    run
        The number of the present run.
    name
        Of the device, as its fleet calls it.
    uses_previous
        Watch with the detector before the newest one, whatever this run learns.
    """

    def __init__(self, config: NodeConfig, run: int, name: str, *, uses_previous: bool = False) -> None:
        watch = config.watch
        assert watch is not None
        self._state, self._run, self._uses_previous = Path(config.state), run, uses_previous
        self._networks = self._state / DEVICE_FILE
        self.on_alarm: Callable[[AlarmSent], None] = lambda _: None
        self._device, self._labels = config.device, {"device": str(config.device), "name": name}
        self.watcher = Watcher(
            watch.source or INTERFACE + watch.interface,
            self._state,
            sinks_of(watch.json, watch.syslog, watch.mqtt, watch.webhook, name),
            name,
            follow=watch.follow,
            max_events=watch.max_events,
            keeps=watch.keep_rows,
            on_event=self._tell,
        )

    def start(self) -> str:
        """Start; return which detector it uses, as a sentence."""
        found = self._detectors()
        if self._uses_previous:
            if len(found) < 2:
                raise SpecError(
                    f"--use previous: {self._state} has {len(found)} detector(s); an earlier run must have left one"
                )
            found = found[1:]
        if found:
            self.watcher.load(found[0], self._networks)
        self.watcher.start()
        return f"watches {self.watcher.source} " + (f"with {found[0]}" if found else "once the fleet has a detector")

    def _detectors(self) -> list[Path]:
        """Return the detectors that runs up to the present one have left, the newest first."""
        folders = [run_folder(self._state, number) for number in range(self._run, 0, -1)]
        return [path for folder in folders if (path := folder / DETECTOR_FILE).exists()]

    def learned(self, folder: Path) -> None:
        """Take the detector that a run has left in a folder."""
        path = folder / DETECTOR_FILE
        if path.exists() and not self._uses_previous:
            self.watcher.load(path, self._networks)

    def status(self) -> WatchStatus:
        """Return what there is to know."""
        watcher, n_waiting, latest, trouble = self.watcher, 0, tuple[AlarmStatus, ...](), self.watcher.trouble
        try:
            n_waiting = sum(watcher.queue.n_waiting().values())
            latest = _last_groups(watcher.queue.latest(), time.time())
        except sqlite3.Error as error:  # a status query must not end the device
            trouble = trouble or f"alarms.sqlite cannot be read ({error})"
        return WatchStatus(
            source=watcher.source,
            model=watcher.model,
            is_up=watcher.is_up,
            rows=watcher.n_rows,
            alarms=watcher.n_alarms,
            waiting=n_waiting,
            trouble=trouble,
            latest=latest,
        )

    def metrics(self) -> str:
        """Return it in Prometheus' text format."""
        try:
            return self.watcher.metrics(self._labels)
        except sqlite3.Error:  # as above
            return ""

    def _tell(self, event: AlarmEvent) -> None:
        words = sentence(event)
        self.on_alarm(
            AlarmSent(
                time_s=0.0, device=self._device, id=event.id, event=event.event, severity=event.severity, what=words
            )
        )

    def close(self) -> None:
        """Stop watching."""
        self.watcher.close()


def _last_groups(events: list[tuple[float, AlarmEvent]], now_unix_s: float) -> tuple[AlarmStatus, ...]:
    """Return the last event of each of the last groups: a long one must not hide the others."""
    newest: dict[str, AlarmStatus] = {}
    for unix_s, event in events:
        one = AlarmStatus(event.id, event.event, event.severity, sentence(event), max(0.0, now_unix_s - unix_s))
        newest.setdefault(event.id.rpartition("-")[0], one)
    return tuple(newest.values())[:_N_SHOWN]


def rows_to_learn(
    state: Path, watch: WatchConfig | None, run: int
) -> tuple[tuple[str, ...], NDArray[np.float32], str] | None:
    """Return columns and rows of late for a run after the first, with a sentence on them; None: there are none."""
    found = kept_rows(state) if watch is not None and watch.keep_rows and run > 1 else None
    if found is None:
        return None
    columns, rows, n_left_out = found
    if not len(rows):
        raise TolFLError(
            f"{state}: there is not a row without an alarm to learn from ({n_left_out} left out); watch longer, or set "
            "keep_rows = 0 under [watch] to learn from data"
        )
    return columns, rows, f"learns from {len(rows)} rows that raised no alarm; {n_left_out} others are left out"
