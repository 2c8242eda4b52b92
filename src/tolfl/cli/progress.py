"""Progress bars, on a terminal only, and Ctrl-C that leaves a run which `--resume` continues."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypedDict

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column
from rich.text import Text

if TYPE_CHECKING:
    from tolfl.experiments.catalogue import RunningExperiment
    from tolfl.experiments.comparison import Comparing
    from tolfl.experiments.sweep import Sweep
    from tolfl.sim.simulation import Progress, Runs


def follow(
    work: Runs | Sweep | Comparing | RunningExperiment,
    title: str = "",
    command: str = "",
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Compute something to its end, showing how far it is; `command` goes on with it after Ctrl-C."""
    with _interruptible() as was_interrupted, progress_bar() as bar:
        task = bar.add_task(title, total=None, loss="")
        for progress in work:
            on_progress(progress)
            loss = "" if progress.loss is None else f"loss {progress.loss:.4g}"
            place = progress.text if progress.stages else ""
            bar.update(task, completed=progress.done, total=progress.total, loss=loss, place=place)
            bar.update(task, description=f"{progress.label or title:<18}")
            if was_interrupted():
                if not command:
                    raise KeyboardInterrupt
                work.save_checkpoints()
                where = f"in {progress.label}" if progress.label else f"after {progress.rounds_done} rounds"
                typer.echo(f"tolfl: stopped {where}; to go on: {command}", err=True)
                raise typer.Exit(130)


def _can_draw() -> bool:
    """Tell whether somebody watches, on a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def on_terminal() -> OnTerminal:
    """Return what a bar on standard error needs to show nothing where nobody is watching."""
    return {"console": Console(stderr=True), "disable": not _can_draw(), "transient": True}


class OnTerminal(TypedDict):
    """Where and whether a bar is drawn."""

    console: Console
    disable: bool
    transient: bool


class _Place(MofNCompleteColumn):
    """How far it is: in words where the task has some, else as a fraction."""

    def render(self, task: Task) -> Text:
        """Return the text of the column."""
        words = task.fields.get("place")
        return Text(words) if words else super().render(task)


def progress_bar() -> Bar:
    """Return a bar of rounds."""
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        _Place(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
        **on_terminal(),
    )


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Note the first Ctrl-C and finish the round at hand; the second one stops at once."""
    seen: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)
