"""`tolfl reproduce`: the paper's tables and figures, beside the paper's own numbers; and what it left out."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.options import Format
from tolfl.core.errors import RunDirectoryError, SpecError, UnknownNameError

if TYPE_CHECKING:
    from tolfl.experiments.catalogue import Options
    from tolfl.experiments.report import ExperimentReport


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
        typer.Option(
            help="Data sets, with commas: all at hand, or some of comms-ml, fashion-mnist, cifar-10, cifar-100."
        ),
    ] = "all",
    data_dir: options.DataDir = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Everything tiny: to see that it works, not to learn from.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where rows, tables and figures go.")] = Path("runs/reproduce"),
    cache: Annotated[
        Path, typer.Option(help="Where finished runs are kept, by the hash of their specification.")
    ] = Path("runs/cells"),
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on with what is in --cache; --no-resume wants it empty.")
    ] = True,
    on: Annotated[
        str, typer.Option(help="Where sweeps are computed: local, ray (this machine) or ray:ADDRESS.")
    ] = "local",
    page: Annotated[
        list[Path] | None,
        typer.Option(help="render: also fill the blocks '<!-- results: NAME PART -->' of a Markdown page; repeatable."),
    ] = None,
    format: options.HowShown = Format.TABLE,
) -> None:
    """Reproduce a table or figure of the paper: mean and spread, the paper's value beside each cell, and a verdict.

    The tables take ten repetitions over five declared splits of each data set that is at hand; the others are named
    with what to do. What is finished is never computed again: stop with Ctrl-C and call the same command to go on.

    Example: tolfl reproduce server --quick

    Example: tolfl reproduce all --data-dir ~/data --out results

    Example: tolfl reproduce clean --data fashion-mnist --on ray
    """
    if experiment == "render":
        _render(out, page or [])
        return
    from tolfl.experiments.catalogue import EXPERIMENTS, Options
    from tolfl.experiments.paper.studies import chosen_studies
    from tolfl.experiments.spreading import place_of

    if experiment not in EXPERIMENTS:
        raise UnknownNameError("experiment", experiment, [*EXPERIMENTS, "render"])
    if not resume and cache.exists() and any(cache.iterdir()):
        raise RunDirectoryError(cache, "is not empty; choose another --cache, or leave out --no-resume")
    place = place_of(on)
    studies, missing = chosen_studies(data, data_dir or "")
    for name, why in missing.items():
        typer.echo(f"tolfl: without {name}: {why}", err=True)
    reports = _run(experiment, Options(studies, quick, cache, data_dir or "", place), out)
    if format is Format.JSON:
        typer.echo(msgspec.json.encode([_as_fields(report) for report in reports]).decode())
    else:
        _show(reports, out)


def _run(name: str, chosen: Options, out: Path) -> list[ExperimentReport]:
    from tolfl.cli.progress import follow_experiment
    from tolfl.experiments.catalogue import experiments
    from tolfl.experiments.reproduce import provenance, write_report

    command = " ".join(["tolfl", *_without_places(sys.argv[1:])])
    specs = {study.data: study.spec(chosen.quick).to_toml() for study in chosen.studies}
    reports = []
    for title, experiment in experiments(name, chosen):
        started = time.perf_counter()
        follow_experiment(experiment, title, f"tolfl {' '.join(sys.argv[1:])}")
        seconds = time.perf_counter() - started
        for report in experiment.reports():
            write_report(out, report, provenance(command, seconds, specs, experiment.computing_s))
            reports.append(report)
    return reports


def _without_places(arguments: list[str]) -> list[str]:
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


def _render(out: Path, pages: list[Path]) -> None:
    from tolfl.experiments.catalogue import EXPERIMENTS, report_of_stored
    from tolfl.experiments.paper.tables import SCENARIOS
    from tolfl.experiments.reproduce import read_results, write_report

    stored = {name: read_results(out / f"{name}.json") for name in EXPERIMENTS if (out / f"{name}.json").is_file()}
    if not stored:
        raise SpecError(f"--out {out}: there are no results to render; run tolfl reproduce first")
    in_tables = [row for name in SCENARIOS if name in stored for row in stored[name]["rows"]]
    reports = {name: report_of_stored(name, content["rows"], in_tables) for name, content in stored.items()}
    for name, content in stored.items():
        report = reports[name]
        origin = {key: value for key, value in content.items() if key not in ("rows", "verdicts", "name", "title")}
        for path in write_report(out, report, origin):
            typer.echo(path)
    for path in pages:
        _fill(path, reports)
        typer.echo(path)


def _fill(page: Path, reports: Mapping[str, ExperimentReport]) -> None:
    from tolfl.experiments.pages import filled
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


def _show(reports: list[ExperimentReport], out: Path) -> None:
    from rich.table import Table

    from tolfl.cli.tables import console_for_tables

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
            console.print(f"{verdict.word:<11}  {verdict.claim}: {verdict.evidence}")
    console.print(f"folder: {out}  (rows as JSON, all tables as Markdown, figures)")


def _as_fields(report: ExperimentReport) -> dict[str, Any]:
    verdicts = [{"claim": v.claim, "held": v.held, "evidence": v.evidence} for v in report.verdicts]
    return {"name": report.name, "title": report.title, "rows": list(report.rows), "verdicts": verdicts}
