"""What commands print: JSON, tables, and the result of one run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tolfl.core.errors import RunDirectoryError
from tolfl.core.records import round_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table
    from rich.text import Text

    from tolfl.experiments.results import Table as ResultTable

    Line = str | Text | Table

Summary = Mapping[str, Any]


def indented_json(value: object) -> bytes:
    """Return a value as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def show(value: object, shown: str, lines: Iterable[Line]) -> None:
    """Print a result as JSON, or as lines and tables, which are made only then."""
    if shown == "json":
        typer.echo(indented_json(value).decode(), nl=False)
    else:
        print_lines(*lines)


def print_lines(*lines: Line) -> None:
    """Print lines and tables on standard output; wide where it is no terminal, so that pipes get whole lines."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False, markup=False)
    for line in lines:
        console.print(line, soft_wrap=not hasattr(line, "columns"))


def table_of(
    columns: Sequence[str], rows: Iterable[Iterable[str | Text]], title: str | None = None, whole: int | None = None
) -> Table:
    """Return rows in the style of all commands; the cells of one column may be kept on one line."""
    from rich.table import Table

    look: dict[str, Any] = {"title": title, "title_justify": "left", "box": None, "padding": (0, 2, 0, 0)}
    table = Table(*columns, show_header=any(columns), **look)
    for row in rows:
        table.add_row(*row)
    if whole is not None:
        table.columns[whole].no_wrap = True
    return table


def notify(text: str) -> None:
    """Print a message beside the result, on standard error."""
    typer.echo(f"tolfl: {text}", err=True)


def save_figure(figure: Figure, path: Path, dpi: int = 130) -> None:
    """Write a picture; a folder that cannot be written is an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=dpi)
    except OSError as error:
        what = f"cannot be written ({error.strerror}); choose another --out"
        raise RunDirectoryError(path.parent, what) from None


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


def lines_of_run(summary: Summary, out: Path) -> Iterator[Line]:
    """Yield the result of one run, or of its repetitions, as people read it."""
    from tolfl.runs.run_report import model_scores, run_facts

    yield _heading(summary)
    if summary.get("repetitions"):
        yield _repetitions_table(summary)
    else:
        yield from _incidents(out) if summary["failures"] else []
        scores = [(name, number(value)) for name, value in model_scores(summary)]
        if scores:
            yield table_of(["model", "AUROC"], scores)
        yield from (f"{name}: {text}" for name, text in run_facts(summary))
    yield f"run directory: {out}"


def _incidents(out: Path) -> list[str]:
    """Print what failed, which devices took over and which returned."""
    from tolfl.runs.descriptions import headline
    from tolfl.runs.failure_history import FailureHistory
    from tolfl.runs.run_reader import read_records

    history = FailureHistory.of(read_records(out))
    return [
        f"  round {round_name(history.stages, one.round)}: {headline(one, history.stages)[-1].text}"
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

    return table_of(
        REPETITION_COLUMNS,
        [
            *map(repetition_row, summary["repetitions"]),
            ("mean", number(summary["auroc"]), number(summary["average_precision"])),
            ("std", number(summary["auroc_std"])),
            *((f"{name} (plain)", number(value)) for name, value in summary["baselines"].items()),
        ],
    )


# -- many runs --------------------------------------------------------------------------------------------------


def lines_of_tables(tables: Iterable[ResultTable], *lines: str) -> Iterator[Line]:
    """Yield tables with their titles and notes, and then some lines."""
    from rich.text import Text

    for table in tables:
        yield table.title
        yield table_of(table.columns, table.rows, whole=0)  # the name of a line; what else is long takes two lines
        yield from (Text(note, style="dim") for note in table.notes)
        yield ""
    yield from lines
