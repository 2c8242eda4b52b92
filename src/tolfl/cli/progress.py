"""Progress bars, on a terminal only, and Ctrl-C that leaves a run which `--resume` continues."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
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
    from tolfl.experiments.sweep import SweepProgress
    from tolfl.sim.simulation import Progress, Runs


def follow(
    runs: Runs, title: str, out: Path | None = None, on_progress: Callable[[Progress], None] | None = None
) -> None:
    """Compute runs to their end, showing how far they are."""
    with _interruptible() as was_interrupted, progress_bar() as bar:
        task = bar.add_task(title, total=runs.spec.rounds, loss="")
        for progress in runs:
            if on_progress is not None:
                on_progress(progress)
            place = progress.text if progress.stages else ""
            bar.update(task, completed=progress.rounds_done, total=progress.rounds, loss=_loss(progress), place=place)
            if was_interrupted():
                _stop(runs, f"after {progress.rounds_done} rounds", "simulate", out)


def follow_jobs(work: Comparing | RunningExperiment, command: str) -> None:
    """Compute jobs to their end, showing how far they are; `command` goes on with them."""
    with _interruptible() as was_interrupted, progress_bar() as bar:
        task = bar.add_task("", total=None, loss="")
        for progress in work:
            done = progress.jobs_done + progress.rounds_done / max(1, progress.rounds)
            bar.update(task, description=f"{progress.label:<18}", completed=done, total=progress.n_jobs)
            bar.update(task, loss=_loss(progress))
            if was_interrupted():
                work.save_checkpoints()
                typer.echo(f"tolfl: stopped in {progress.label}; to go on: {command}", err=True)
                raise typer.Exit(130)


def _loss(progress: Progress | SweepProgress) -> str:
    return "" if progress.loss is None else f"loss {progress.loss:.4g}"


def _stop(work: Runs, where: str, command: str, out: Path | None) -> None:
    if out is None:
        raise KeyboardInterrupt
    work.save_checkpoints()
    typer.echo(f"tolfl: stopped {where}; to go on: tolfl {command} --out {out} --resume", err=True)
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
