"""`tolfl simulate`: one run, or repetitions of it, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.options import Format, one_device_per_owner, run_directory, shown_data, spec_from_flags, tell_of_app
from tolfl.core.errors import RunDirectoryError, SpecError, missing_extra
from tolfl.core.records import AnyRecord
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.sim.simulation import Runs

Tracked = tuple[str | None, str]  #: where to, if anywhere, and its folder or address
#: Parameters that are no field of a specification.
_NO_FIELDS = ("spec", "settings", "out", "resume", "format", "track", "track_to")


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
    if resume:
        tracked = (track, track_to or "")
        _resume(out, spec, lambda stored: spec_from_flags(stored, given, settings), format, tracked)
        return
    chosen = spec_from_flags(RunSpec() if spec is None else RunSpec.from_file(spec), given, settings)
    chosen = one_device_per_owner(chosen, given, spec).check()
    _check_names(chosen)
    with run_directory(out, chosen.scheme, shown_data(chosen)) as folder:
        _run(chosen, folder, False, format, (track, track_to or ""))


def _check_names(spec: RunSpec) -> None:
    """Find what is wrong with a specification before a folder is made for it."""
    from tolfl.datasets import check_name
    from tolfl.learners.layouts import check_scheme

    check_name(spec)
    check_scheme(spec)


def _resume(
    out: Path | None, spec: Path | None, change: Callable[[RunSpec], RunSpec], shown: Format, tracked: Tracked
) -> None:
    if out is None:
        raise SpecError("--resume needs --out, the run directory to continue")
    if not (out / "spec.toml").is_file():
        raise RunDirectoryError(out, "holds no run to resume; leave out --resume to start one")
    stored = RunSpec.from_file(out / "spec.toml")
    if spec is not None and RunSpec.from_file(spec) != stored:
        raise RunDirectoryError(out, f"was not started with {spec}; resume it without a specification")
    if change(stored) != stored:
        raise RunDirectoryError(out, "was started with other options; resume it with --out and --resume alone")
    if (out / "summary.json").is_file():
        from tolfl.cli.output import show_run

        typer.echo(f"tolfl: the run in {out} is finished already; this is its result", err=True)
        show_run(msgspec.json.decode((out / "summary.json").read_bytes()), shown, out)
        return
    _run(stored, out, True, shown, tracked)


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


def _run(spec: RunSpec, out: Path, resume: bool, shown: Format, tracked: Tracked) -> None:
    from tolfl.cli.output import show_run
    from tolfl.sim.simulation import Runs

    tell_of_app(spec)
    runs = Runs(spec, out=out, resume=resume)
    _follow(runs, out, tracked)
    draw_rounds(out, [(f"seed {result.spec.seed}", result.records) for result in runs.results])
    show_run(runs.summary, shown, out)


def draw_rounds(out: Path, labelled: Sequence[tuple[str, list[AnyRecord]]]) -> None:
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
