"""`tolfl reproduce`: the paper's tables and figures, beside the paper's own numbers; and what it left out."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.flags import Format
from tolfl.core.errors import RunDirectoryError, SpecError

if TYPE_CHECKING:
    from tolfl.experiments.experiment import Experiment, Options
    from tolfl.experiments.results import ExperimentReport


def reproduce(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    experiment: Annotated[
        str,
        typer.Argument(
            help="clean, client, server, communication, timing, server-figure, samples, all; beyond, liars, step-size; "
            "render: tables and figures again, from the rows in --out."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(help="Data sets, with commas; all: those of the experiment that are available."),
    ] = "all",
    data_dir: flags.DataDir = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Everything tiny: to see that it works, not to learn from.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where rows, tables and figures go. (default: runs/reproduce; quick: runs/quick)"),
    ] = None,
    cache: Annotated[
        Path, typer.Option(help="Where finished runs are kept, by the hash of their specification.")
    ] = Path("runs/cells"),
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on with what is in --cache; --no-resume wants it empty.")
    ] = True,
    on: Annotated[
        str, typer.Option(help="Where runs are computed: local, ray (this machine) or ray:ADDRESS.")
    ] = "local",
    page: Annotated[
        list[Path] | None,
        typer.Option(help="render: also fill the blocks '<!-- results: NAME PART -->' of a Markdown page; repeatable."),
    ] = None,
    format: flags.HowShown = Format.TABLE,
) -> None:
    """Reproduce a table or figure of the paper: means and spreads, the paper's value beside each, and what follows.

    The tables take ten repetitions over five declared splits of each data set that is available; the others are named
    with what to do. What is finished is never computed again: stop with Ctrl-C and call the same command to go on.

    Example: tolfl reproduce server --quick

    Example: tolfl reproduce all --data-dir ~/data --out results

    Example: tolfl reproduce clean --data fashion-mnist --on ray
    """
    folder = out or Path("runs/quick" if quick else "runs/reproduce")
    if experiment == "render":
        _render(folder, page or [])
        return
    from tolfl.experiments.catalogue import chosen_experiments
    from tolfl.experiments.experiment import Options
    from tolfl.experiments.ray_cluster import check_executor
    from tolfl.experiments.results import check_overwriting

    chosen = chosen_experiments(experiment)
    if not resume and cache.exists() and any(cache.iterdir()):
        raise RunDirectoryError(cache, "is not empty; choose another --cache, or leave out --no-resume")
    executor, found = check_executor(on), _available(chosen, data, data_dir or "")
    for one in found:
        check_overwriting(folder, one.name, quick)
    reports = [
        _run(one, Options(names, quick, data_dir or "", cache, executor), folder) for one, names in found.items()
    ]
    if format is Format.JSON:
        typer.echo(msgspec.json.encode([_as_fields(report) for report in reports]).decode())
    else:
        _show(reports, folder)


def _available(chosen: list[Experiment], data: str, data_dir: str) -> dict[Experiment, list[str]]:
    """Return the data sets of each experiment; of `all`, those that have none of the named ones are left out."""
    from tolfl.experiments.paper.setups import available_data

    found: dict[Experiment, list[str]] = {}
    not_there: dict[str, str] = {}
    for one in chosen:
        named = data
        if data != "all" and len(chosen) > 1:
            named = ",".join(name for name in data.split(",") if name.strip() in one.data)
        names, missing = available_data(named, one.data, data_dir)
        not_there |= missing
        if names:
            found[one] = names
    for name, why in not_there.items():
        typer.echo(f"tolfl: without {name}: {why}", err=True)
    if not found:
        raise SpecError(f"--data {data}: no experiment is left to run")
    return found


def _run(experiment: Experiment, chosen: Options, folder: Path) -> ExperimentReport:
    from tolfl.cli.progress import follow
    from tolfl.experiments.catalogue import RunningExperiment
    from tolfl.experiments.results import provenance, write_results

    command = " ".join(["tolfl", *_without_folders(sys.argv[1:])])
    running, started = RunningExperiment(experiment, chosen), time.perf_counter()
    follow(running, command=f"tolfl {' '.join(sys.argv[1:])}")
    seconds, report = time.perf_counter() - started, running.report
    write_results(folder, report, provenance(command, seconds, running.computing_s, running.specs, chosen.quick))
    return report


def _without_folders(arguments: list[str]) -> list[str]:
    """Return a command line without the folders of this machine."""
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in ("--data-dir", "--cache", "--out"):
            skip = True
        elif not argument.startswith(("--data-dir=", "--cache=", "--out=")):
            kept.append(argument)
    return kept


def _render(folder: Path, pages: list[Path]) -> None:
    from tolfl.experiments.catalogue import stored_reports
    from tolfl.experiments.results import write_results

    stored = stored_reports(folder)
    if not stored:
        raise SpecError(f"--out {folder}: there are no results to render; run tolfl reproduce first")
    n_files = sum(len(write_results(folder, report, origin)) for report, origin in stored.values())
    for path in pages:
        _fill(path, {name: report for name, (report, _) in stored.items()})
    typer.echo(f"{folder}: {n_files} files of {len(stored)} experiments rendered; {len(pages)} pages filled")


def _fill(page: Path, reports: dict[str, ExperimentReport]) -> None:
    from tolfl.experiments.results import filled
    from tolfl.runs.directory import write_file

    def report(name: str) -> ExperimentReport:
        if name not in reports:
            raise SpecError(f"--page {page}: it asks for results of {name!r}; there are those of {', '.join(reports)}")
        return reports[name]

    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"--page {page}: cannot be read ({error})") from None
    write_file(page.parent, page.name, filled(text, report).encode())


def _show(reports: list[ExperimentReport], folder: Path) -> None:
    from rich.table import Table

    from tolfl.cli.output import console_for_tables

    console = console_for_tables()
    for report in reports:
        for table in (table for table in report.tables if not table.is_detail):
            shown = Table(*table.columns, title=table.title, title_justify="left", box=None, padding=(0, 2, 0, 0))
            for row in table.rows:
                shown.add_row(*row)
            console.print(shown)
            for note in table.notes:
                console.print(note, style="dim")
            console.print()
        for verdict in report.verdicts:
            console.print(f"{verdict.text:<13}  {verdict.claim}: {verdict.evidence}")
    names = ", ".join(report.name for report in reports)
    n_rows = sum(len(report.rows) for report in reports)
    console.print(f"{names}: {n_rows} rows in {folder} (JSON with specifications, Markdown, figures)", soft_wrap=True)


def _as_fields(report: ExperimentReport) -> dict[str, Any]:
    verdicts = [{"claim": v.claim, "is_supported": v.is_supported, "evidence": v.evidence} for v in report.verdicts]
    return {"name": report.name, "title": report.title, "rows": list(report.rows), "verdicts": verdicts}
