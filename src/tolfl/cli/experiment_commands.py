"""Commands around many runs: `tolfl compare`, `tolfl plan`, `tolfl reproduce`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.flags import Format, SpecFlags, free_bytes, new_directory, run_directory, spec_flags
from tolfl.cli.output import indented_json, lines_of_tables, notify, save_figure, show
from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.cli.output import Line
    from tolfl.experiments.experiment import Experiment
    from tolfl.experiments.results import ExperimentReport


# -- compare -------------------------------------------------------------------------------------------------------


@spec_flags(
    "data data_dir partition device_column label_column typical time_column columns ignore encoding devices clusters "
    "topology rounds fail lost_model seed repetitions",
    usual=RunSpec(repetitions=3),  # enough seeds to see a spread
)
def compare(
    asked: SpecFlags,
    schemes: Annotated[
        str | None,
        typer.Option(help="all, or some of tol-fl,sbt,fl,batch,batch-small,fedgroup,ifca,fesem. (default: all)"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where it goes. (default: a new folder below runs/)")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted comparison in --out.")] = False,
    format: flags.HowShown = "table",
) -> None:
    """Compare schemes: the same devices, data, seeds and failures for all, one table and one figure.

    Where a head dies, tol-fl is shown with elect and drop (the paper's), fl with isolate (the paper's), freeze and
    devices that are alone from the start, fedgroup, ifca and fesem with strict and rehome. The plain baselines are
    always there.

    Example: tolfl compare --schemes all --fail server@50

    Example: tolfl compare --schemes tol-fl,fl,ifca --rounds 40 --fail client@20 --format json

    Example: tolfl compare --schemes ifca --set ifca.restarts=5 --set train.lr=0.01 --out runs/mine
    """
    from tolfl.experiments.comparison import parse_schemes, read_spec

    if resume:
        if out is None:
            raise SpecError("--resume needs --out, the comparison to continue")
        if schemes is not None or not asked.is_empty:
            raise SpecError("--resume goes on as the comparison was started; give --out and --resume alone")
        _compare(*read_spec(out), out, True, format)
        return
    spec = asked.spec().check()
    if spec.on_head_failure:
        raise SpecError("on_head_failure does not apply to comparisons: they show every policy that matters")
    _compare(spec, parse_schemes("all" if schemes is None else schemes), out, False, format)


def _compare(spec: RunSpec, schemes: tuple[str, ...], out: Path | None, resume: bool, shown: Format) -> None:
    from tolfl.cli.progress import follow
    from tolfl.datasets import check_name
    from tolfl.experiments.comparison import comparison_of, comparison_sweep, scheme_jobs
    from tolfl.learners.layouts import check_scheme

    check_name(spec)
    for job in scheme_jobs(spec, schemes):
        check_scheme(job.spec)
    with run_directory(out, "compare", spec.data) as folder:
        sweep = comparison_sweep(spec, schemes, out=folder, resume=resume)
        follow(sweep, command=f"tolfl compare --out {folder} --resume")
        result = comparison_of(spec, sweep)
    where = f"folder: {folder}  (comparison.png, comparison.json, one run directory per row)"
    show(result, shown, lines_of_tables([result.table], where))
    save_figure(result.plot(), folder / "comparison.png")


# -- plan ----------------------------------------------------------------------------------------------------------


@spec_flags(
    "devices rounds data data_dir partition device_column label_column typical time_column columns ignore encoding "
    "repetitions seed bandwidth_bps latency_s uplink seconds_per_sample epochs timing",
    has_file=False,
)
def plan(
    asked: SpecFlags,
    clusters: Annotated[
        str | None, typer.Option("--clusters", "-k", help="Which k: 1,2,5, or all. (default: 1, 2, root of N, N/2, N)")
    ] = None,
    deadline_s: Annotated[
        float | None, typer.Option("--deadline", help="Seconds that a round may take. (default: no limit)")
    ] = None,
    fail_odds: Annotated[float, typer.Option(help="Probability that a device fails during the training.")] = 0.01,
    head_fail_odds: Annotated[float | None, typer.Option(help="The same of a head. (default: --fail-odds)")] = None,
    pilot_rounds: Annotated[
        int, typer.Option(help="Rounds of a pilot run, --rounds at most; a device fails at half time.")
    ] = 40,
    out: Annotated[Path | None, typer.Option(help="For plan.json. (default: a new folder below runs/)")] = None,
    format: flags.HowShown = "table",
) -> None:
    """Recommend a number of clusters and a policy, with the expected AUROC, bytes and time of each.

    The AUROCs come from pilot runs on the data, some seconds by default; what a round costs comes from playing the
    protocol without training.

    Example: tolfl plan --devices 10 --fail-odds 0.02 --head-fail-odds 0.05 --deadline 1.0

    Example: tolfl plan --data readings.csv --device-column site --label-column state --bandwidth 1e6
    """
    from tolfl.cli.progress import follow
    from tolfl.datasets import check_name
    from tolfl.experiments.planning import check_plan, layouts_of, make_plan, pilot_jobs, scored
    from tolfl.experiments.sweep import Sweep
    from tolfl.runs.directory import write_file
    from tolfl.sim.simulation import datasets_of

    spec, odds = asked.spec().check(), (fail_odds, fail_odds if head_fail_odds is None else head_fail_odds)
    chosen = _clusters(clusters, spec.devices)
    check_plan(spec, chosen, odds, deadline_s)
    if out is not None:
        free_bytes(out)
    pilot = msgspec.structs.replace(spec, rounds=min(pilot_rounds, spec.rounds)).check()
    check_name(pilot)
    jobs, data = pilot_jobs(pilot, layouts_of(chosen)), datasets_of(pilot)
    sweep = Sweep(list(jobs.values()), data=data)
    follow(sweep)
    pilots = {place: scored(job, sweep.results[job.key]) for place, job in jobs.items()}
    sizes = [data[0].n_samples(device) for device in range(spec.devices)]
    made = make_plan(spec, odds, pilots, sizes, data[0].n_features, deadline_s)
    folder = out or new_directory("plan", made.data)
    write_file(folder, "plan.json", indented_json(made))
    show(made, format, lines_of_tables([made.table], f"folder: {folder}  (plan.json)"))


def _clusters(text: str | None, n_devices: int) -> tuple[int, ...]:
    from tolfl.experiments.planning import usual_clusters

    if text is None:
        return usual_clusters(n_devices)
    if text.strip() == "all":
        return tuple(range(1, n_devices + 1))
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise SpecError(f"--clusters {text!r}: give whole numbers, separated by commas") from None


# -- reproduce -----------------------------------------------------------------------------------------------------


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
        bool, typer.Option("--quick", help="Everything tiny: a test that it works, without meaningful results.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where rows, tables and figures go. (default: runs/reproduce; quick: runs/quick)"),
    ] = None,
    cache: Annotated[
        Path, typer.Option(help="Where finished runs are kept, by the hash of their specification.")
    ] = Path("runs/cells"),
    resume: Annotated[
        bool,
        typer.Option("--resume/--no-resume", help="Continue with the runs in --cache; --no-resume needs it empty."),
    ] = True,
    on: Annotated[
        str, typer.Option(help="Where runs are computed: local, ray (this machine) or ray:ADDRESS.")
    ] = "local",
    page: Annotated[
        list[Path] | None,
        typer.Option(help="render: also fill the blocks '<!-- results: NAME PART -->' of a Markdown page; repeatable."),
    ] = None,
    format: flags.HowShown = "table",
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
    if page:
        raise SpecError("--page goes with render, once results are stored: tolfl reproduce render --out ... --page ...")
    from tolfl.cli.progress import follow
    from tolfl.experiments.catalogue import RunningExperiment, chosen_experiments
    from tolfl.experiments.experiment import Options
    from tolfl.experiments.ray_cluster import check_executor
    from tolfl.experiments.results import check_overwriting, write_results

    chosen = chosen_experiments(experiment)
    if not resume and cache.exists() and any(cache.iterdir()):
        raise RunDirectoryError(cache, "is not empty; choose another --cache, or leave out --no-resume")
    executor, found = check_executor(on), _available(chosen, data, data_dir or "")
    free_bytes(folder)
    for one in found:
        check_overwriting(folder, one.name, quick)
    reports = []
    for one, names in found.items():
        running = RunningExperiment(one, Options(names, quick, data_dir or "", cache, executor))
        follow(running, command=shlex.join(["tolfl", *sys.argv[1:]]))
        reports.append(running.report)
        write_results(folder, reports[-1], running.origin)
    shown = [{name: getattr(one, name) for name in ("name", "title", "rows", "verdicts")} for one in reports]
    show(shown, format, _lines_of(reports, folder))


def _lines_of(reports: Sequence[ExperimentReport], folder: Path) -> Iterator[Line]:
    for report in reports:
        claims = (f"{verdict.text:<13}  {verdict.claim}: {verdict.evidence}" for verdict in report.verdicts)
        yield from lines_of_tables([table for table in report.tables if not table.is_detail], *claims)
    names, n_rows = ", ".join(report.name for report in reports), sum(len(report.rows) for report in reports)
    yield f"{names}: {n_rows} rows in {folder} (JSON with specifications, Markdown, figures)"


def _available(chosen: list[Experiment], data: str, data_dir: str) -> dict[Experiment, list[str]]:
    """Return the data sets of each experiment; of `all`, those that have none of the named ones are left out."""
    from tolfl.experiments.paper.setups import available_data

    known = dict.fromkeys(name for one in chosen for name in one.data)
    names, not_there = available_data(data, list(known), data_dir)
    of_each = {one: [name for name in one.data if name in names] for one in chosen}
    found = {one: own for one, own in of_each.items() if own}
    for name, why in not_there.items():
        notify(f"without {name}: {why}")
    if not found:
        raise SpecError(f"--data {data}: no experiment is left to run")
    return found


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
    from tolfl.experiments.results import fill_page
    from tolfl.runs.directory import write_file

    def report(name: str) -> ExperimentReport:
        if name not in reports:
            raise SpecError(f"--page {page}: it names results of {name!r}; there are those of {', '.join(reports)}")
        return reports[name]

    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"--page {page}: cannot be read ({error})") from None
    if "<!-- results:" not in text:
        raise SpecError(f"--page {page}: it has no block; one begins with '<!-- results: NAME PART -->'")
    write_file(page.parent, page.name, fill_page(text, report).encode())
