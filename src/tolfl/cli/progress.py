"""Progress bars, on a terminal only, and Ctrl-C that leaves a run which `--resume` continues."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tolfl.sim.run import Progress, Runs


def follow(
    runs: Runs, title: str, out: Path | None = None, on_progress: Callable[[Progress], None] | None = None
) -> None:
    """Compute runs to their end, showing how far they are."""
    with _interruptible() as was_interrupted, progress_bar() as bar:
        task = bar.add_task(title, total=runs.spec.rounds, loss="")
        for progress in runs:
            loss = "" if progress.loss is None else f"loss {progress.loss:.4g}"
            if on_progress is not None:
                on_progress(progress)
            bar.update(task, completed=progress.rounds_done, loss=loss)
            if was_interrupted():
                if out is None:
                    raise KeyboardInterrupt
                runs.save_checkpoints()
                typer.echo(f"tolfl: stopped after round {progress.rounds_done}; to go on: "
                           f"tolfl simulate --out {out} --resume", err=True)  # fmt: skip
                raise typer.Exit(130)


def progress_bar() -> Bar:
    """Return a bar on standard error that shows nothing where nobody is watching."""
    console = Console(stderr=True)
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not sys.stderr.isatty(),
        transient=True,
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
