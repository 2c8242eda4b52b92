"""Progress bars, on a terminal only, and Ctrl-C that leaves a run which `--resume` continues."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column

from tolfl.cli.output import notify

if TYPE_CHECKING:
    from tolfl.experiments.catalogue import RunningExperiment
    from tolfl.experiments.sweep import Sweep
    from tolfl.sim.simulation import Progress, Runs


def follow(
    work: Runs | Sweep | RunningExperiment,
    title: str = "",
    command: str = "",
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Compute something to its end with a progress bar; `command` resumes it after Ctrl-C."""
    where = ""
    with interruptions() as was_interrupted, progress_bar() as bar:
        task = bar.add_task(title, total=None, loss="", place="")
        for progress in work:
            on_progress(progress)
            show_progress(bar, task, progress, title)
            if was_interrupted():
                where = f" in {progress.label}" if progress.label else f" after {progress.rounds_done} rounds"
                work.save_checkpoints()
                break
    if not was_interrupted():  # also after the last round, while its models are scored
        return
    if not command:
        raise KeyboardInterrupt
    notify(f"stopped{where}; to go on: {command}")
    raise typer.Exit(130)


def bar_of(*columns: ProgressColumn) -> Bar:
    """Return a bar on standard error; it is hidden without a terminal, or on one that cannot draw."""
    can_draw = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Bar(*columns, console=Console(stderr=True), disable=not can_draw, transient=True)


def progress_bar() -> Bar:
    """Return a bar of rounds."""
    place = TextColumn("{task.fields[place]}", table_column=Column(no_wrap=True))
    columns = TextColumn("{task.description}"), BarColumn(), place, TextColumn("{task.fields[loss]}")
    return bar_of(*columns, TimeRemainingColumn())


def show_progress(bar: Bar, task: TaskID, progress: Progress, title: str = "") -> None:
    """Let a bar show how far a computation is."""
    loss = "" if progress.loss is None else f"loss {progress.loss:.4g}"
    place = progress.text if progress.stages else f"{int(progress.done)}/{progress.total}"
    title = progress.label or title
    bar.update(task, completed=progress.done, total=progress.total, loss=loss, place=place)
    bar.update(task, description=f"{title:<18}")


@contextmanager
def on_sigterm(error: type[BaseException]) -> Iterator[None]:
    """Raise this exception in the context on SIGTERM."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise error

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruptions(*more: signal.Signals, is_patient: bool = False) -> Iterator[Callable[[], bool]]:
    """Note Ctrl-C, so that a round is finished or devices are stopped in good order; a second one stops at once.

    `more` signals do the same. With `is_patient` further signals change nothing, in place of stopping at once.
    """
    seen: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if seen and not is_patient:
            raise KeyboardInterrupt
        seen.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, *more)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
