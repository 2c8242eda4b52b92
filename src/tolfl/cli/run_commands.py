"""Commands around one run: `tolfl simulate`, `tolfl up`, `tolfl report`, `tolfl dashboard`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tolfl.cli import flags
from tolfl.cli.flags import Format, SpecFlags, run_directory, spec_flags
from tolfl.cli.output import lines_of_run, notify, show
from tolfl.core.errors import RunDirectoryError, SpecError, TolFLError
from tolfl.core.records import AnyRecord
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.dashboard import AlarmsOfDevice, Page
    from tolfl.net.client import LastAnswer
    from tolfl.runs.run_reader import RunReader

#: A device without an answer for so long after the end of its run has ended, too.
_GONE_S = 10.0
#: As many as fit side by side on a wide screen, and as many colours as can be told apart.
_MOST_RUNS = 6
#: Learner, data, fleet and failures.
_RUN = (
    "scheme learn flower run_config node_config python data data_dir partition device_column label_column typical "
    "time_column columns ignore encoding devices clusters topology rounds fail on_head_failure seed min_devices "
    "deadline_s evaluate_every lr epochs batch_size optimizer server_lr dropout code samples_per_device n_features "
    "timing"
)


# -- simulate ---------------------------------------------------------------------------------------------------


@spec_flags(f"{_RUN} lost_model repetitions latency_s bandwidth_bps uplink speed_spread")
def simulate(
    asked: SpecFlags,
    out: flags.Out = None,
    resume: flags.Resume = False,
    track: flags.Track = None,
    track_to: flags.TrackTo = None,
    format: flags.HowShown = "table",
) -> None:
    """Simulate one run: devices train together in virtual time, and some of them fail.

    Example: tolfl simulate --learn detector --data readings.csv --device-column building --fail server@0

    Example: tolfl simulate --devices 10 --clusters 5 --rounds 100 --fail server@50 --seed 0

    Example: tolfl simulate --scheme fl --fail server@50 --on-head-failure freeze --format json

    Example: tolfl simulate --flower my-app --devices 100 --fail random:0.01

    Example: tolfl simulate run.toml --out runs/mine ; tolfl simulate --out runs/mine --resume
    """
    from tolfl.cli.progress import follow
    from tolfl.runs.tracking import tracker_for
    from tolfl.sim.simulation import Runs

    spec = _resumed(out, asked, "spec.toml", "run", format) if resume else _checked(asked.spec())
    if spec is None:
        return
    with run_directory(out, spec.scheme, shown_data(spec)) as folder:
        print_app_notes(spec)
        with nullcontext(None) if track is None else tracker_for(track, folder.name, track_to or "") as tracker:
            runs = Runs(spec, out=folder, resume=resume)

            def tell(records: Sequence[list[AnyRecord]]) -> None:
                if tracker is not None:
                    for seed, of_run in enumerate(records, start=spec.seed):
                        tracker.add_new(of_run, f"seed-{seed}/" if len(records) > 1 else "")

            title = f"{spec.scheme} on {Path(shown_data(spec)).stem}"
            command = f"tolfl simulate --out {folder} --resume"
            follow(runs, title, command, on_progress=lambda _: tell([one.records for one in runs.simulations]))
            tell([result.records for result in runs.results])
        show(runs.summary, format, lines_of_run(runs.summary, folder))


# -- up ---------------------------------------------------------------------------------------------------------


@spec_flags(_RUN)
def up(
    asked: SpecFlags,
    out: flags.Out = None,
    resume: flags.Resume = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Plain text between the devices instead of TLS.")
    ] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Show the fleet as a web page here, with buttons to kill devices.")
    ] = False,
    format: flags.HowShown = "table",
) -> None:
    """Run a fleet of real processes on this machine: the same flags, failure plans and results as `tolfl simulate`.

    Devices kill themselves as the failure plan has it; you may kill, freeze or restart any of them, too. Ctrl-C stops
    them all, and --resume goes on from the last round.

    Example: tolfl up --devices 10 --clusters 5 --rounds 20

    Example: tolfl up --fail server@5/chain --rounds 20 --out runs/real ; tolfl simulate runs/real/spec.toml

    Example: tolfl up --learn detector --data readings.csv --device-column site --fail server@0

    Example: tolfl up --flower my-app --devices 6 --run-config "num-server-rounds=8" --fail server@6

    Example: tolfl up --rounds 200 --dashboard

    Example: tolfl up --out runs/real --resume
    """
    spec = (
        _resumed(out, asked, "devices/spec.toml", "run of real devices", format)
        if resume
        else _checked(asked.spec(), is_real=True)
    )
    if spec is not None:
        with run_directory(out, f"{spec.scheme}-up", shown_data(spec)) as folder:
            _run_processes(spec, folder, resume, format, insecure, dashboard)


def _run_processes(spec: RunSpec, out: Path, resume: bool, shown: Format, insecure: bool, has_page: bool) -> None:
    from tolfl.cli.live_fleet import live_page, watch_fleet
    from tolfl.net.collect import collect
    from tolfl.net.launcher import Launcher

    print_app_notes(spec)
    launcher = Launcher(spec, out, resume=resume, is_insecure=insecure)
    with live_page(launcher) if has_page else nullcontext(lambda: None) as obey_page:
        if not watch_fleet(launcher, obey_page):
            done = launcher.view.rounds_done
            notify(f"stopped after {done} rounds; to go on: tolfl up --out {out} --resume")
            raise typer.Exit(130)
        summary = collect(launcher.directory, spec, launcher.data, launcher.survivors)
    show(summary, shown, lines_of_run(summary, out))
    print_app_files(spec, out, launcher.survivors)
    whys = {str(failure["what"]) for failure in summary["failures"]}  # type: ignore[attr-defined]
    if not launcher.survivors and len(whys) == 1 and "(failed: " in (why := whys.pop()):
        raise TolFLError(f"every device ended: {why.partition('(failed: ')[2].removesuffix(')')}")


# -- what both have in common -----------------------------------------------------------------------------------


def _checked(spec: RunSpec, is_real: bool = False) -> RunSpec:
    """Return a specification, checked before a folder is made for it."""
    from tolfl.datasets import check_name
    from tolfl.learners.layouts import check_scheme

    check_scheme(spec.check())  # first: an unknown name is a typo
    if is_real:
        from tolfl.net.prepare import check_networked

        check_networked(spec)
    check_name(spec)
    return spec


def _resumed(out: Path | None, asked: SpecFlags, marker: str, what: str, shown: Format) -> RunSpec | None:
    """Return the specification of the run to resume, which flags do not change; show a run that needs no resuming."""
    from tolfl.runs.run_folder import read_summary

    if out is None:
        raise SpecError("--resume needs --out, the run directory to continue")
    if not (out / marker).is_file():
        raise RunDirectoryError(out, f"holds no {what} to resume; leave out --resume to start one")
    stored = RunSpec.from_file(out / "spec.toml")
    if asked.file is not None and RunSpec.from_file(asked.file) != stored:
        raise RunDirectoryError(out, f"was not started with {asked.file}; resume it without a specification")
    if asked.applied_to(stored) != stored:
        raise RunDirectoryError(out, "was started with other options; resume it with --out and --resume alone")
    summary = read_summary(out)
    if summary is None:
        return stored
    notify(f"the run in {out} is finished already; this is its result")
    show(summary, shown, lines_of_run(summary, out))
    return None


def shown_data(spec: RunSpec) -> str:
    """Return the name of a run's data: a Flower app brings its own."""
    what = str(spec.learn.get("what", ""))
    return what.removeprefix("flower:") if what.startswith("flower:") else spec.data


def print_app_notes(spec: RunSpec) -> None:
    """Print a Flower app's notes on its run, before its first round."""
    from tolfl.learners.layouts import is_plain
    from tolfl.learners.registry import brings_own_data, learner_of
    from tolfl.runs.outcome import data_for, fleet_of

    if not is_plain(spec) and brings_own_data(spec):
        typer.echo(str(learner_of(fleet_of(spec, data_for(spec)))), err=True)


def print_app_files(spec: RunSpec, out: Path, survivors: Sequence[int]) -> None:
    """Print which files a Flower app's own code has written on the devices, and whether they are equal."""
    if not str(spec.learn.get("what", "")).startswith("flower:"):
        return
    from tolfl.flower.app_folder import PROBLEM_FILE

    folders = [out / "devices" / str(device) for device in survivors]
    problems = Counter((one / PROBLEM_FILE).read_text().strip() for one in folders if (one / PROBLEM_FILE).is_file())
    for problem, n_devices in sorted(problems.items()):
        notify(f"on {n_devices} devices: {problem}")
    # The run directory has the same files as a device, and others that no app writes.
    below = [path.relative_to(out) for path in out.rglob("*") if path.is_file()]
    names = {str(path) for path in below if path.parts[0] not in {"devices", "fleet"}}
    names -= {"records.jsonl", "model.safetensors", PROBLEM_FILE}
    for name in sorted(names):
        contents = [(folder / name).read_bytes() for folder in folders if (folder / name).is_file()]
        if contents:
            alike = "the same" if len(set(contents)) == 1 else f"{len(set(contents))} different ones"
            where = f"{out}/devices/*/: {alike} on {len(contents)} devices"
            typer.echo(f"{name}, written by the app, is in {where}", err=True)


# -- report -----------------------------------------------------------------------------------------------------


def report(
    run: Annotated[
        Path, typer.Argument(help="A run directory, the state folder of a device, or several of them in one folder.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write. (default: report.html or report.md in the run directory)")
    ] = None,
    format: Annotated[
        Literal["html", "markdown"],
        typer.Option(help="html: one file; markdown: a file, and its figures in a folder beside it."),
    ] = "html",
    failure_free: Annotated[
        Path | None, typer.Option(help="The run directory of the same run without failures: what did they cost?")
    ] = None,
) -> None:
    """Write a report of a run: what failed when, who took over, what it cost; curves, fleet, result, specification.

    An unfinished run is reported as far as it has come. A device on a machine of its own knows the whole run: its
    state folder is enough. The HTML file loads nothing from elsewhere.

    Example: tolfl report runs/real

    Example: tolfl report state --out report.html

    Example: tolfl report runs/real --failure-free runs/clean --out report.html

    Example: tolfl report runs/real --format markdown --out docs/report.md
    """
    from tolfl.runs.run_folder import read_run
    from tolfl.runs.run_report import report_context

    other = None if failure_free is None else read_run(failure_free)
    target = out or run / ("report.html" if format == "html" else "report.md")
    write_report(report_context(read_run(run), other), target, format)
    typer.echo(f"report: {target}")


def write_report(context: dict[str, Any], target: Path, format: str) -> None:
    """Write the files of a report."""
    from tolfl.runs.run_figures import as_file
    from tolfl.runs.run_report import pictures_of, render

    if target.is_dir():
        raise RunDirectoryError(target, "is a folder; name a file with --out")
    files = {target: render(context, "report.html")} if format == "html" else {}
    if format == "markdown":
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
        list[str],
        typer.Argument(
            help="Run directories, state folders of devices, or record files; several are shown together. Or host:port "
            "of one device: its whole fleet is shown, live."
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep reading while the runs continue.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0: any port that is free.")] = 8350,
    host: Annotated[
        str, typer.Option(help="Who can reach the page; 0.0.0.0: everybody in the network can read it.")
    ] = "127.0.0.1",
    credentials: Annotated[
        Path | None, typer.Option(help="For host:port: your key and certificate, a folder (tolfl enroll operator).")
    ] = None,
) -> None:
    """Show runs as a web page on this machine: members, who takes over, loss and AUROC, stalls and bytes.

    The page reads records only and can be moved through time. Of a running fleet any one device is enough: it knows
    the whole run; where it stops answering, another one is queried. Devices that watch are queried for their alarms
    one by one: the page shows the age of each answer, and which devices do not answer. To kill devices of a fleet on
    this machine by a click, start it with tolfl up --dashboard.

    Example: tolfl dashboard runs/001-tol-fl-comms-ml

    Example: tolfl dashboard runs/tol-fl runs/fl --port 9000

    Example: tolfl dashboard --follow runs/real

    Example: tolfl dashboard 10.0.0.3:7000 --credentials fleet/devices/me
    """
    from tolfl.dashboard import Page
    from tolfl.runs.run_folder import readers_of

    names: dict[str, Any] = {} if host in ("127.0.0.1", "localhost", "::1") else {"names": ()}
    if len(runs) == 1 and not Path(runs[0]).exists() and ":" in runs[0]:
        with _mirrored(runs[0], credentials) as (reader, told):
            _serve_page(Page([reader], is_following=True, **told, **names), host, port)
        return
    readers = [reader for path in runs for reader in readers_of(Path(path), follow)]
    if len(readers) > _MOST_RUNS:
        raise SpecError(f"{len(readers)} runs; the page shows up to {_MOST_RUNS} side by side")
    _serve_page(Page(readers, is_following=follow, **names), host, port)


def _serve_page(page: Page, host: str, port: int) -> None:
    from tolfl.dashboard import address_of, listen, serve

    listening = listen(host, port)
    names = ", ".join(reader.name for reader in page.readers)
    notify(f"{address_of(listening)} shows {names}; Ctrl-C ends it")
    serve(page, listening)


@contextmanager
def _mirrored(address: str, credentials: Path | None) -> Iterator[tuple[RunReader, dict[str, Any]]]:
    """Give a reader of the records of the fleet behind an address, and what else the page shows of it."""
    import asyncio
    from tempfile import TemporaryDirectory

    from tolfl.net.client import RecordsMirror, credentials_for, places
    from tolfl.runs.run_reader import RunReader

    (place,) = places(address)
    with TemporaryDirectory(prefix="tolfl-") as folder:
        mirror = RecordsMirror(place, credentials_for(address, credentials), Path(folder))
        try:
            asyncio.run(mirror.look())
        except (OSError, EOFError, ValueError) as error:
            question = "is a device running there, and have you given a certificate (--credentials)?"
            raise TolFLError(f"{address} does not answer ({str(error) or 'too late'}); {question}") from None

        def source() -> str:
            age_s = int(mirror.silent_s)
            return f"from the device at {mirror.address}" + (f", no answer for {age_s} s" if age_s >= 2 else "")

        with mirror.running():
            reader = RunReader(Path(folder), f"the fleet at {address}")
            told = {"source": source, "goes_on": lambda: mirror.silent_s < _GONE_S}
            yield reader, {**told, "alarms": lambda: _last_alarms(mirror.last_answers)}


def _last_alarms(answers: Sequence[LastAnswer]) -> tuple[AlarmsOfDevice, ...]:
    """Return the last alarms of every device that watches or never answered; None while none is known to watch."""
    from tolfl.dashboard import AlarmsOfDevice, ShownAlarm

    found, is_any = [], False
    for one in answers:
        if one.status is None:
            found.append(AlarmsOfDevice(one.device, (), None, one.is_silent))
        elif (watch := one.status.watch) is not None:
            is_any, heard_s = True, one.heard_unix_s
            alarms = (
                ShownAlarm(alarm.event, alarm.severity, alarm.what, heard_s - alarm.age_s) for alarm in watch.latest
            )
            found.append(AlarmsOfDevice(one.device, tuple(alarms), heard_s, one.is_silent))
    return tuple(found) if is_any else ()
