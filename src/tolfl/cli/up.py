"""`tolfl up`: the same run as `tolfl simulate`, with a real process for every device."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

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
from tolfl.cli.simulate import draw_rounds, simulate
from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable

#: Flags of `simulate` that make no sense for real processes.
_SIMULATED_ONLY = (
    "repetitions", "lost_model", "latency_s", "bandwidth_bps", "uplink", "speed_spread", "track", "track_to",
)  # fmt: skip
_NO_FIELDS = ("spec", "settings", "out", "resume", "format")


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
        spec = _stored(out, given["spec"], lambda stored: spec_from_flags(stored, fields, given["settings"]))
    else:
        base = RunSpec() if given["spec"] is None else RunSpec.from_file(given["spec"])
        spec = one_device_per_owner(spec_from_flags(base, fields, given["settings"]), fields, given["spec"])
        _check(spec)
    with run_directory(out, f"{spec.scheme}-up", shown_data(spec)) as folder:
        _run(spec, folder, given["resume"], shown, insecure, dashboard)


def _check(spec: RunSpec) -> None:
    """Find what is wrong with a specification before a folder is made for it."""
    from tolfl.datasets import check_name
    from tolfl.learners.layouts import check_scheme
    from tolfl.net.prepare import check_networked

    check_scheme(spec.check())  # first: a name that nobody knows is a typo
    check_networked(spec)
    check_name(spec)


def _stored(out: Path | None, spec: Path | None, change: Callable[[RunSpec], RunSpec]) -> RunSpec:
    if out is None:
        raise SpecError("--resume needs --out, the run directory to continue")
    if not (out / "devices" / "spec.toml").is_file():
        raise RunDirectoryError(out, "holds no run of real devices to resume; leave out --resume to start one")
    stored = RunSpec.from_file(out / "spec.toml")
    if spec is not None and RunSpec.from_file(spec) != stored:
        raise RunDirectoryError(out, f"was not started with {spec}; resume it without a specification")
    if change(stored) != stored:
        raise RunDirectoryError(out, "was started with other options; resume it with --out and --resume alone")
    return stored


def _run(spec: RunSpec, out: Path, resume: bool, shown: Format, insecure: bool, has_page: bool) -> None:
    from tolfl.cli.live_fleet import live_page, watch_fleet
    from tolfl.cli.output import show_run
    from tolfl.net.collect import collect
    from tolfl.net.launcher import Launcher
    from tolfl.runs.run_reader import read_records

    if resume and (out / "summary.json").is_file():
        typer.echo(f"tolfl: the run in {out} is finished already; this is its result", err=True)
        show_run(msgspec.json.decode((out / "summary.json").read_bytes()), shown, out)
        return
    tell_of_app(spec)
    launcher = Launcher(spec, out, resume=resume, is_insecure=insecure)
    with live_page(launcher) if has_page else nullcontext(lambda: None) as obey_page:
        if not watch_fleet(launcher, obey_page):
            done = launcher.view.rounds_done
            typer.echo(f"tolfl: stopped after round {done}; to go on: tolfl up --out {out} --resume", err=True)
            raise typer.Exit(130)
        summary = collect(launcher.directory, spec, launcher.data, launcher.survivors)
    draw_rounds(out, [("real devices", read_records(out))])
    show_run(summary, shown, out)
    tell_of_app_files(spec, out, launcher.survivors)
