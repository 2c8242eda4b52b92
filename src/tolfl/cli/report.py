"""`tolfl report`: one file about a run that a browser shows without anything else."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tolfl.core.errors import RunDirectoryError, SpecError

if TYPE_CHECKING:
    from tolfl.runs.report.document import Document
    from tolfl.runs.report.reading import Reported


class ReportFormat(StrEnum):
    """How the report is written."""

    HTML = "html"
    MARKDOWN = "markdown"


def report(
    run: Annotated[Path, typer.Argument(help="A run directory, or the one above repetitions.")],
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

    A run that is not finished is told as far as it has come. The HTML file loads nothing from elsewhere.

    Example: tolfl report runs/real

    Example: tolfl report runs/real --undisturbed runs/clean --out report.html

    Example: tolfl report runs/real --simulate-undisturbed --format markdown --out docs/report.md
    """
    from tolfl.runs.report.building import build_report
    from tolfl.runs.report.reading import read_reported

    if undisturbed is not None and simulate_undisturbed:
        raise SpecError("--undisturbed names a run and --simulate-undisturbed computes one; use one of them")
    reported = read_reported(run)
    other = None if undisturbed is None else read_reported(undisturbed)
    if simulate_undisturbed:
        other = _simulated(reported)
    document = build_report(reported, other)
    target = out or run / ("report.html" if format is ReportFormat.HTML else "report.md")
    write_report(document, target, format)
    typer.echo(f"report: {target}")


def _simulated(reported: Reported) -> Reported:
    """Compute the same run without its failures."""
    from tolfl.cli.progress import follow
    from tolfl.runs.report.reading import Reported, ReportedRun
    from tolfl.sim.simulation import Runs

    spec = msgspec.structs.replace(reported.spec, fail="").check()
    runs = Runs(spec)
    follow(runs, "without failures")
    told = [ReportedRun(result.spec, result.records, result.summary) for result in runs.results]
    return Reported("simulated", spec, told)


def write_report(document: Document, target: Path, format: ReportFormat) -> None:
    """Write the files of a report."""
    from tolfl.runs.report.colours import filled
    from tolfl.runs.report.document import to_markdown
    from tolfl.runs.report.html import to_html

    if target.is_dir():
        raise RunDirectoryError(target, "is a folder; name a file with --out")
    files = {target: to_html(document)} if format is ReportFormat.HTML else {}
    if format is ReportFormat.MARKDOWN:
        folder = f"{target.stem}-figures"
        files[target] = to_markdown(document, folder)
        files |= {target.parent / folder / f"{one.name}.svg": filled(one.svg) for one in document.pictures}
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunDirectoryError(target.parent, f"the report cannot be written ({error.strerror})") from None
