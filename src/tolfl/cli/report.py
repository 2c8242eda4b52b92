"""`tolfl report`: one file about a run that a browser shows without anything else."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.core.errors import RunDirectoryError, SpecError

if TYPE_CHECKING:
    from tolfl.runs.run_reader import RunFolder


class ReportFormat(StrEnum):
    """How the report is written."""

    HTML = "html"
    MARKDOWN = "markdown"


def report(
    run: Annotated[
        Path, typer.Argument(help="A run directory, the state folder of a device, or several of them in one folder.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write. (default: report.html or report.md in the run directory)")
    ] = None,
    format: Annotated[
        ReportFormat, typer.Option(help="html: one file; markdown: a file, and its figures in a folder beside it.")
    ] = ReportFormat.HTML,
    undisturbed: Annotated[
        Path | None, typer.Option(help="The run directory of the same run without failures: what did they cost?")
    ] = None,
    simulate_undisturbed: Annotated[
        bool, typer.Option("--simulate-undisturbed", help="Compute that run now, in the simulator.")
    ] = False,
) -> None:
    """Write a report of a run: what failed when, who took over, what it cost; curves, fleet, result, specification.

    A run that is not finished is told as far as it has come. A device on a machine of its own knows the whole run: its
    state folder is enough. The HTML file loads nothing from elsewhere.

    Example: tolfl report runs/real

    Example: tolfl report state --out report.html

    Example: tolfl report runs/real --undisturbed runs/clean --out report.html

    Example: tolfl report runs/real --simulate-undisturbed --format markdown --out docs/report.md
    """
    from tolfl.runs.run_reader import read_run
    from tolfl.runs.run_report import report_context

    if undisturbed is not None and simulate_undisturbed:
        raise SpecError("--undisturbed names a run and --simulate-undisturbed computes one; use one of them")
    found = read_run(run)
    other = None if undisturbed is None else read_run(undisturbed)
    if simulate_undisturbed:
        other = _simulated(found)
    target = out or run / ("report.html" if format is ReportFormat.HTML else "report.md")
    write_report(report_context(found, other), target, format)
    typer.echo(f"report: {target}")


def _simulated(run: RunFolder) -> RunFolder:
    """Compute the same run without its failures."""
    from tolfl.cli.progress import follow
    from tolfl.runs.run_reader import RunFolder
    from tolfl.sim.simulation import Runs

    if not run.has_spec:
        raise SpecError(
            f"run {run.name} has no specification in its folder; name an undisturbed run with --undisturbed"
        )
    spec = msgspec.structs.replace(run.spec, fail="").check()
    runs = Runs(spec)
    follow(runs, "without failures")
    told = [RunFolder("simulated", one.spec, one.records, one.summary, is_over=True) for one in runs.results]
    return told[0] if spec.repetitions == 1 else RunFolder("simulated", spec, repetitions=told)


def write_report(context: dict[str, Any], target: Path, format: ReportFormat) -> None:
    """Write the files of a report."""
    from tolfl.runs.run_figures import as_file
    from tolfl.runs.run_report import pictures_of, render

    if target.is_dir():
        raise RunDirectoryError(target, "is a folder; name a file with --out")
    files = {target: render(context, "report.html")} if format is ReportFormat.HTML else {}
    if format is ReportFormat.MARKDOWN:
        folder = f"{target.stem}-figures"
        files[target] = render(context, "report.md", folder)
        files |= {target.parent / folder / f"{one.name}.svg": as_file(one.svg) for one in pictures_of(context)}
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunDirectoryError(target.parent, f"the report cannot be written ({error.strerror})") from None
