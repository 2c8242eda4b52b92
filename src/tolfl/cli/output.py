"""What commands print: JSON, tables, and the result of one run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tolfl.core.records import round_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tolfl.experiments.results import Table as ResultTable

Summary = Mapping[str, Any]


def indented_json(value: object) -> bytes:
    """Return a value as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def show_json(value: object) -> None:
    """Print a value as indented JSON."""
    typer.echo(indented_json(value).decode(), nl=False)


def console_for_tables() -> Console:
    """Return a console on standard output; wide where it is no terminal, so that pipes get whole lines."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False, markup=False)


def new_table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table in the style of all commands."""
    from rich.table import Table

    return Table(*columns, title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))


def number(value: object, digits: int = 3) -> str:
    """Return a number for a cell; a dash where there is none."""
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "-"


def age(seconds: float) -> str:
    """Return how old something is, in the unit that fits.

    >>> [age(4.2), age(240.0), age(7300.0), age(400_000.0)]
    ['4 s', '4 min', '2 h', '4 d']
    """
    for unit, size, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds // 86_400:.0f} d"


# -- one run ----------------------------------------------------------------------------------------------------


def show_run(summary: Summary, shown: str, out: Path) -> None:
    """Print the result of one run, or of its repetitions."""
    from tolfl.runs.run_report import model_scores, run_facts

    if shown == "json":
        show_json(summary)
        return
    console = console_for_tables()
    console.print(_heading(summary))
    if summary.get("repetitions"):
        console.print(_repetitions_table(summary))
    else:
        for line in _incidents(out) if summary["failures"] else []:
            console.print(line)
        table = new_table("model", "AUROC")
        for name, value in model_scores(summary):
            table.add_row(name, number(value))
        if table.rows:
            console.print(table)
        for name, text in run_facts(summary):
            console.print(f"{name}: {text}")
    console.print(f"run directory: {out}")


def _incidents(out: Path) -> list[str]:
    """Say what failed, and who took over."""
    from tolfl.runs.failure_history import FailureHistory, what_failed, who_took_over
    from tolfl.runs.run_reader import read_records

    history = FailureHistory.of(read_records(out))
    return [
        f"  round {round_name(history.stages, one.round)}: {what_failed(one)}"
        + (f"; took over: {who_took_over(one)}" if one.takeovers else "")
        for one in history.incidents
    ]


def _heading(summary: Summary) -> str:
    clusters = f" in {summary['n_clusters']} clusters" if summary["n_clusters"] > 1 else ""
    policy = f" ({summary['on_head_failure']})" if summary["fail"] and summary["on_head_failure"] else ""
    times = f", {len(summary['repetitions'])} repetitions" if summary.get("repetitions") else ""
    what = summary.get("learn", "autoencoder")
    learned = "" if what in {"autoencoder", summary["scheme"]} else f"{what.partition(':/')[0]} by "
    return (
        f"{learned}{summary['scheme']}{policy} on {summary['data']}: {summary['n_devices']} devices{clusters}, "
        f"{summary['rounds']} rounds, seed {summary['seed']}{times}"
    )


def _repetitions_table(summary: Summary) -> Table:
    from tolfl.runs.run_report import REPETITION_COLUMNS, repetition_row

    table = new_table(*REPETITION_COLUMNS)
    for one in summary["repetitions"]:
        table.add_row(*repetition_row(one))
    table.add_row("mean", number(summary["auroc"]), number(summary["average_precision"]))
    table.add_row("std", number(summary["auroc_std"]), end_section=True)
    for name, value in summary["baselines"].items():
        table.add_row(f"{name} (plain)", number(value))
    return table


# -- many runs --------------------------------------------------------------------------------------------------


def show_tables(tables: Iterable[ResultTable], *lines: str) -> None:
    """Print tables, what they are above and the notes below them, and then some lines."""
    console = console_for_tables()
    for table in tables:
        console.print(table.title, soft_wrap=True)
        shown = new_table()
        for place, column in enumerate(table.columns):
            shown.add_column(column, no_wrap=not place)  # the name of a line; what else is long takes two lines
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
        for note in table.notes:
            console.print(note, style="dim", soft_wrap=True)
        console.print()
    for line in lines:
        console.print(line, soft_wrap=True)
