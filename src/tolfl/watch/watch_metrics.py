"""What a watching process reports to Prometheus: `tolfl_watch_*`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tolfl.net.status import Metrics
from tolfl.signals.pcap import CaptureSummary

if TYPE_CHECKING:
    from tolfl.watch.watcher import Watcher

_START_S = 10.0


def watch_page(watcher: Watcher, labels: Mapping[str, str]) -> str:
    """Return the numbers of a watcher in Prometheus' text format."""
    counts, queue = watcher.counts or CaptureSummary(), watcher.queue
    lag_s = time.time() - watcher.last_s if watcher.last_s else 0.0
    numbers: list[tuple[str, str, str, str, float | Mapping[str, int]]] = [
        ("rows_total", "counter", "Windows scored.", "", watcher.n_rows),
        ("packets_total", "counter", "Packets of the source.", "", counts.n_packets),
        ("alarms_total", "counter", "Windows above the limit.", "", watcher.n_alarms),
        ("events_total", "counter", "Events of groups of alarms.", "", watcher.n_events),
        ("lost_packets_total", "counter", "Packets that are in no window.", "reason", counts.left_out),
        ("dropped_events_total", "counter", "Events that a sink never gets.", "sink", queue.n_dropped()),
        ("queue", "gauge", "Events that wait for a sink.", "sink", queue.n_waiting()),
        ("clock_steps_total", "counter", "Steps of the clock.", "", counts.n_clock_steps),
        ("model_age_seconds", "gauge", "Since the detector was saved.", "", round(watcher.model_age_s, 1)),
        ("lag_seconds", "gauge", "Since the end of the last window.", "", round(lag_s, 3)),
        ("source_up", "gauge", "1: the source gives rows.", "", int(watcher.is_up)),
        ("trouble", "gauge", "1: there is a problem, see the log.", "", int(bool(watcher.trouble))),
    ]
    lines = []
    for name, kind, what, label, values in numbers:
        lines += [f"# HELP tolfl_watch_{name} {what}", f"# TYPE tolfl_watch_{name} {kind}"]
        for key, value in values.items() if isinstance(values, Mapping) else [("", values)]:
            pairs = {**labels, label: key} if label else labels
            texts = ",".join(f'{one}="{_escaped(text)}"' for one, text in pairs.items())
            lines.append(f"tolfl_watch_{name}{{{texts}}} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


@contextmanager
def served(address: str, content: Callable[[], str]) -> Iterator[None]:
    """Serve `GET /metrics` in a thread of its own while the context is open; no address: nothing is served."""
    if not address:
        yield
        return
    loop, metrics = asyncio.new_event_loop(), Metrics(content)
    thread = threading.Thread(target=loop.run_forever, name="metrics", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(metrics.start(address), loop).result(_START_S)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(metrics.stop(), loop).result(_START_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_START_S)
        loop.close()
