"""Commands around one run: `tolfl simulate`, `tolfl up`, `tolfl report`, `tolfl dashboard`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.options import (
    Format,
    flags_of,
    one_device_per_owner,
    run_directory,
    shown_data,
    spec_from_flags,
    tell_of_app,
    tell_of_app_files,
)
from tolfl.cli.output import show_run
from tolfl.core.errors import RunDirectoryError, SpecError, missing_extra
from tolfl.core.records import AnyRecord
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.runs.run_reader import RunFolder
    from tolfl.sim.simulation import Runs

Tracked = tuple[str | None, str]  #: where to, if anywhere, and its folder or address
#: Parameters that are no field of a specification.
_NO_FIELDS = ("spec", "settings", "out", "resume", "format", "track", "track_to")
#: Flags of `simulate` that make no sense for real processes.
_SIMULATED_ONLY = (
    "repetitions", "lost_model", "latency_s", "bandwidth_bps", "uplink", "speed_spread", "track", "track_to",
)  # fmt: skip
#: As many as fit side by side on a wide screen, and as many colours as can be told apart.
_MOST_RUNS = 6


# -- simulate ---------------------------------------------------------------------------------------------------


def simulate(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    spec: options.Spec = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            help="tol-fl, fl, sbt, batch, batch-small, fedgroup, ifca, fesem; or mean-vector, pca-16, pca-32. "
            "(default: tol-fl)"
        ),
    ] = None,
    learn: options.Learn = None,
    flower: options.Flower = None,
    run_config: options.RunConfig = None,
    node_config: options.NodeConfig = None,
    python: options.Python = None,
    data: options.Data = None,
    data_dir: options.DataDir = None,
    partition: options.Partition = None,
    device_column: options.DeviceColumn = None,
    label_column: options.LabelColumn = None,
    time_column: options.TimeColumn = None,
    devices: options.Devices = None,
    clusters: options.Clusters = None,
    topology: options.Topology = None,
    rounds: options.Rounds = None,
    fail: options.Fail = None,
    on_head_failure: Annotated[
        str | None,
        typer.Option(
            help="elect, drop, isolate or freeze; fedgroup, ifca, fesem: strict or rehome. (default: by scheme)"
        ),
    ] = None,
    lost_model: options.LostModel = None,
    seed: options.Seed = None,
    repetitions: Annotated[int | None, typer.Option(help="Runs with seeds seed, seed + 1, ... (default: 1)")] = None,
    min_devices: options.MinDevices = None,
    deadline_s: options.DeadlineS = None,
    evaluate_every: options.EvaluateEvery = None,
    lr: options.Lr = None,
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    optimizer: options.Optimizer = None,
    server_lr: options.ServerLr = None,
    dropout: options.Dropout = None,
    code: options.Code = None,
    samples_per_device: options.SamplesPerDevice = None,
    n_features: options.NFeatures = None,
    timing: options.Timing = None,
    latency_s: options.LatencyS = None,
    bandwidth_bps: options.BandwidthBps = None,
    uplink: options.Uplink = None,
    speed_spread: options.SpeedSpread = None,
    out: options.Out = None,
    resume: options.Resume = False,
    settings: options.Set = None,
    track: options.Track = None,
    track_to: options.TrackTo = None,
    format: options.HowShown = Format.TABLE,
) -> None:
    """Simulate one run: devices train together in virtual time, and some of them die.

    Example: tolfl simulate --learn detector --data readings.csv --device-column building --fail server@0

    Example: tolfl simulate --devices 10 --clusters 5 --rounds 100 --fail server@50 --seed 0

    Example: tolfl simulate --scheme fl --fail server@50 --on-head-failure freeze --format json

    Example: tolfl simulate --flower my-app --devices 100 --fail random:0.01

    Example: tolfl simulate run.toml --out runs/mine ; tolfl simulate --out runs/mine --resume
    """
    given = {name: value for name, value in locals().items() if name not in _NO_FIELDS and value is not None}
    tracked = (track, track_to or "")
    if resume:
        stored = _stored_spec(out, spec, lambda one: spec_from_flags(one, given, settings), "spec.toml", "run")
        if out is not None and not _show_if_finished(out, format):
            _simulate(stored, out, True, format, tracked)
        return
    chosen = spec_from_flags(RunSpec() if spec is None else RunSpec.from_file(spec), given, settings)
    chosen = one_device_per_owner(chosen, given, spec).check()
    _check_names(chosen)
    with run_directory(out, chosen.scheme, shown_data(chosen)) as folder:
        _simulate(chosen, folder, False, format, tracked)


def _check_names(spec: RunSpec) -> None:
    """Find what is wrong with a specification before a folder is made for it."""
    from tolfl.datasets import check_name
    from tolfl.learners.layouts import check_scheme

    check_name(spec)
    check_scheme(spec)


def _follow(runs: Runs, out: Path, tracked: Tracked) -> None:
    """Compute the runs, telling a tracker what happens if one is asked for."""
    from tolfl.cli.progress import follow
    from tolfl.runs.tracking import tracker_for

    title, (kind, where) = f"{runs.spec.scheme} on {Path(shown_data(runs.spec)).stem}", tracked
    if kind is None:
        follow(runs, title, out)
        return
    with tracker_for(kind, out.name, where) as tracker:

        def tell(records: Sequence[list[AnyRecord]]) -> None:
            for seed, of_run in enumerate(records, start=runs.spec.seed):
                tracker.hear_new(of_run, f"seed-{seed}/" if len(records) > 1 else "")

        follow(runs, title, out, on_progress=lambda _: tell([one.records for one in runs.simulations]))
        tell([result.records for result in runs.results])


def _simulate(spec: RunSpec, out: Path, resume: bool, shown: Format, tracked: Tracked) -> None:
    from tolfl.sim.simulation import Runs

    tell_of_app(spec)
    runs = Runs(spec, out=out, resume=resume)
    _follow(runs, out, tracked)
    _draw_rounds(out, [(f"seed {result.spec.seed}", result.records) for result in runs.results])
    show_run(runs.summary, shown, out)


# -- up ---------------------------------------------------------------------------------------------------------


@flags_of(simulate, without=_SIMULATED_ONLY)
def up(
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Plain text between the devices instead of TLS.")
    ] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Show the fleet as a web page here, with buttons to kill devices.")
    ] = False,
    **given: Any,
) -> None:
    """Run a fleet of real processes on this machine: the same flags, failure plans and results as `tolfl simulate`.

    Devices kill themselves where the plan says so; kill, freeze or restart any of them yourself, too. Ctrl-C stops
    them all, and --resume goes on from the last round.

    Example: tolfl up --devices 10 --clusters 5 --rounds 20

    Example: tolfl up --fail server@5/chain --rounds 20 --out runs/real ; tolfl simulate runs/real/spec.toml

    Example: tolfl up --learn detector --data readings.csv --device-column site --fail server@0

    Example: tolfl up --flower my-app --devices 6 --run-config "num-server-rounds=8" --fail server@6

    Example: tolfl up --rounds 200 --dashboard

    Example: tolfl up --out runs/real --resume
    """
    out, shown = given["out"], given["format"]
    fields = {name: value for name, value in given.items() if name not in _NO_FIELDS and value is not None}
    if given["resume"]:
        change = lambda one: spec_from_flags(one, fields, given["settings"])  # noqa: E731
        spec = _stored_spec(out, given["spec"], change, "devices/spec.toml", "run of real devices")
        if _show_if_finished(out, shown):
            return
    else:
        base = RunSpec() if given["spec"] is None else RunSpec.from_file(given["spec"])
        spec = one_device_per_owner(spec_from_flags(base, fields, given["settings"]), fields, given["spec"])
        _check_networked(spec)
    with run_directory(out, f"{spec.scheme}-up", shown_data(spec)) as folder:
        _run_processes(spec, folder, given["resume"], shown, insecure, dashboard)


def _check_networked(spec: RunSpec) -> None:
    """Find what is wrong with a specification before a folder is made for it."""
    from tolfl.datasets import check_name
    from tolfl.learners.layouts import check_scheme
    from tolfl.net.prepare import check_networked

    check_scheme(spec.check())  # first: a name that nobody knows is a typo
    check_networked(spec)
    check_name(spec)


def _run_processes(spec: RunSpec, out: Path, resume: bool, shown: Format, insecure: bool, has_page: bool) -> None:
    from tolfl.cli.live_fleet import live_page, watch_fleet
    from tolfl.net.collect import collect
    from tolfl.net.launcher import Launcher
    from tolfl.runs.run_reader import read_records

    tell_of_app(spec)
    launcher = Launcher(spec, out, resume=resume, is_insecure=insecure)
    with live_page(launcher) if has_page else nullcontext(lambda: None) as obey_page:
        if not watch_fleet(launcher, obey_page):
            done = launcher.view.rounds_done
            typer.echo(f"tolfl: stopped after {done} rounds; to go on: tolfl up --out {out} --resume", err=True)
            raise typer.Exit(130)
        summary = collect(launcher.directory, spec, launcher.data, launcher.survivors)
    _draw_rounds(out, [("real devices", read_records(out))])
    show_run(summary, shown, out)
    tell_of_app_files(spec, out, launcher.survivors)


# -- what both have in common -----------------------------------------------------------------------------------


def _stored_spec(
    out: Path | None, spec: Path | None, change: Callable[[RunSpec], RunSpec], marker: str, what: str
) -> RunSpec:
    """Return the specification of the run to resume; `change`: what the flags would make of it, which is nothing."""
    if out is None:
        raise SpecError("--resume needs --out, the run directory to continue")
    if not (out / marker).is_file():
        raise RunDirectoryError(out, f"holds no {what} to resume; leave out --resume to start one")
    stored = RunSpec.from_file(out / "spec.toml")
    if spec is not None and RunSpec.from_file(spec) != stored:
        raise RunDirectoryError(out, f"was not started with {spec}; resume it without a specification")
    if change(stored) != stored:
        raise RunDirectoryError(out, "was started with other options; resume it with --out and --resume alone")
    return stored


def _show_if_finished(out: Path, shown: Format) -> bool:
    """Show the result of a run that needs no resuming; False: it does."""
    from tolfl.runs.run_reader import read_summary

    summary = read_summary(out)
    if summary is not None:
        typer.echo(f"tolfl: the run in {out} is finished already; this is its result", err=True)
        show_run(summary, shown, out)
    return summary is not None


def _draw_rounds(out: Path, labelled: Sequence[tuple[str, list[AnyRecord]]]) -> None:
    """Draw loss and AUROC over rounds into a run directory, where rounds have any."""
    from tolfl.runs.run_figures import has_curves, plot_curves

    if not has_curves(labelled):
        return
    try:
        plot_curves(labelled).savefig(out / "loss.png", dpi=120)
    except ModuleNotFoundError as error:
        typer.echo(f"tolfl: loss.png is not drawn: {missing_extra(error) or error}", err=True)
    except OSError as error:
        typer.echo(f"tolfl: {out / 'loss.png'} cannot be written ({error.strerror}); all else is there", err=True)


# -- report -----------------------------------------------------------------------------------------------------


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
        other = _simulate_undisturbed(found)
    target = out or run / ("report.html" if format is ReportFormat.HTML else "report.md")
    write_report(report_context(found, other), target, format)
    typer.echo(f"report: {target}")


def _simulate_undisturbed(run: RunFolder) -> RunFolder:
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


# -- dashboard --------------------------------------------------------------------------------------------------


def dashboard(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run directories, state folders of devices, or record files; several are shown together."),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on reading while the runs go on.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0: any port that is free.")] = 8350,
    host: Annotated[
        str, typer.Option(help="Who can reach the page; 0.0.0.0: everybody in the network can read it.")
    ] = "127.0.0.1",
) -> None:
    """Show runs as a web page on this machine: who is there, who takes over, loss and AUROC, stalls and bytes.

    The page reads records only and can be moved through time. To kill devices of a fleet on this machine by a click,
    start it with tolfl up --dashboard.

    Example: tolfl dashboard runs/001-tol-fl-comms-ml

    Example: tolfl dashboard runs/tol-fl runs/fl --port 9000

    Example: tolfl dashboard --follow runs/real

    Example: tolfl dashboard state
    """
    try:
        from tolfl.dashboard import Page, address_of, listen, serve
        from tolfl.runs.run_reader import readers_of
    except ImportError:
        raise SpecError("tolfl dashboard needs starlette and uvicorn; install tolfl[dashboard]") from None

    readers = [reader for path in runs for reader in readers_of(path, follow)]
    if len(readers) > _MOST_RUNS:
        raise SpecError(f"{len(readers)} runs; the page shows up to {_MOST_RUNS} side by side")
    is_local = host in ("127.0.0.1", "localhost", "::1")
    page = Page(readers, is_following=follow) if is_local else Page(readers, is_following=follow, names=())
    listening = listen(host, port)
    names = ", ".join(reader.name for reader in readers)
    typer.echo(f"tolfl: {address_of(listening)} shows {names}; Ctrl-C ends it", err=True)
    serve(page, listening)
