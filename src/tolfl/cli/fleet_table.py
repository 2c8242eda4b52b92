"""The live table of a fleet on this machine: who is there, who does what, how far they are."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tolfl.core.records import AnyRecord, FailureHappened, Joined, TakenOver, how_far
from tolfl.learners.layouts import layout
from tolfl.net.launcher import FleetView, Launcher, Process

_N_NEWS = 6


@contextmanager
def live_table(launcher: Launcher) -> Iterator[Callable[[FleetView], None]]:
    """Draw the fleet on a terminal while it trains; nowhere else."""
    if not sys.stderr.isatty():
        yield lambda _view: None
        return
    clusters = layout(launcher.spec).cluster_of
    news: deque[str] = deque(maxlen=_N_NEWS)
    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:

        def refresh(view: FleetView) -> None:
            news.extend(filter(None, map(_sentence, view.news)))
            live.update(_picture(view, clusters, news))

        yield refresh


def _picture(view: FleetView, clusters: dict[int, int], news: deque[str]) -> Group:
    loss = "" if view.loss is None else f", loss {view.loss:.4g}"
    table = Table("device", "cluster", "role", "state", "pid", box=None, padding=(0, 2, 0, 0))
    for process in view.processes:
        table.add_row(
            str(process.device),
            str(clusters[process.device]),
            _role(process, view),
            _state(process),
            str(process.pid or ""),
        )
    lines = [Text(line, style="yellow") for line in news]
    far = how_far(view.stages, view.rounds_done, view.rounds)
    return Group(Text(f"{far}{loss}", style="bold"), table, *lines)


def _role(process: Process, view: FleetView) -> str:
    if not process.is_running or process.device not in view.heads:
        return "member" if process.is_running else ""
    return "head, closes the rounds" if process.device == view.heads[-1] else "head"


def _state(process: Process) -> Text:
    if process.is_running:
        return Text("frozen", style="cyan") if process.is_frozen else Text("running", style="green")
    if process.process is None:
        return Text("starts")
    return Text(process.ended or "done") if process.exit_code == 0 else Text("dead", style="red")


def _sentence(record: AnyRecord) -> str:
    match record:
        case FailureHappened():
            by = "" if record.by is None else f" (by device {record.by})"
            return f"{record.time_s:7.1f} s  device {record.device} {record.what}{by}"
        case TakenOver():
            what = f"takes over cluster {record.cluster} from {record.previous}"
            return f"{record.time_s:7.1f} s  device {record.device} {what}"
        case Joined():
            return f"{record.time_s:7.1f} s  device {record.device} is back"
    return ""
