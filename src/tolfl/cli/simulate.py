"""`tolfl simulate`: one run, or repetitions of it, in virtual time."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec


class Format(StrEnum):
    """How results are shown."""

    TABLE = "table"
    JSON = "json"


#: Flags that set a field of a section of the specification.
_SECTIONS = {
    "lr": "train",
    "epochs": "train",
    "batch_size": "train",
    "optimizer": "train",
    "server_lr": "train",
    "dropout": "model",
    "code": "model",
    "samples_per_device": "blobs",
    "n_features": "blobs",
    "latency_s": "links",
    "bandwidth_bps": "links",
    "uplink": "links",
    "speed_spread": "links",
}


def simulate(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    spec: Annotated[Path | None, typer.Argument(help="A specification in TOML; flags override it.")] = None,
    scheme: Annotated[
        str | None,
        typer.Option(help="tol-fl, fl, sbt, batch, batch-small; or mean-vector, pca-16, pca-32. (default: tol-fl)"),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The data set. (default: blobs)")] = None,
    devices: Annotated[int | None, typer.Option("--devices", "-n", help="How many devices. (default: 10)")] = None,
    clusters: Annotated[
        int | None, typer.Option("--clusters", "-k", help="How many clusters, tol-fl. (default: 5, or fewer devices)")
    ] = None,
    topology: Annotated[
        str | None, typer.Option(help="Another layout, such as '1,0|2,3', heads first; replaces --clusters.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds. (default: 100)")] = None,
    fail: Annotated[
        str | None,
        typer.Option(
            help="Who fails when: client@50, server@50/chain, device:3@50-60, cluster:2@50, cut:3|4,5@50-55, "
            "random:0.01; phases /train /report /chain /distribute; joined by ';'."
        ),
    ] = None,
    on_head_failure: Annotated[
        str | None, typer.Option(help="elect, drop, isolate or freeze. (default: by scheme)")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of everything random. (default: 0)")] = None,
    repetitions: Annotated[int | None, typer.Option(help="Runs with seeds seed, seed + 1, ... (default: 1)")] = None,
    min_devices: Annotated[int | None, typer.Option(help="Fewer live devices do not train. (default: 1)")] = None,
    deadline_s: Annotated[
        float | None, typer.Option("--deadline", help="Seconds a head waits for its members. (default: no limit)")
    ] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Score the model every so many rounds.")] = None,
    lr: Annotated[float | None, typer.Option(help="Local step size. (default: by the number of features)")] = None,
    epochs: Annotated[int | None, typer.Option(help="Local epochs per round. (default: 1)")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Local batch size; 0: one full batch. (default: 16)")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, momentum or adam. (default: sgd)")] = None,
    server_lr: Annotated[float | None, typer.Option(help="Step on the mean update. (default: 1)")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout on hidden layers. (default: 0.2)")] = None,
    code: Annotated[int | None, typer.Option(help="Size of the autoencoder's code. (default: 32)")] = None,
    samples_per_device: Annotated[int | None, typer.Option(help="Samples of a device (blobs). (default: 200)")] = None,
    n_features: Annotated[
        int | None, typer.Option("--features", help="Features of a sample (blobs). (default: 32)")
    ] = None,
    timing: Annotated[
        str | None, typer.Option(help="How fast deaths are noticed: localhost, lan, wireless. (default: localhost)")
    ] = None,
    latency_s: Annotated[float | None, typer.Option("--latency", help="Seconds per message. (default: 0.005)")] = None,
    bandwidth_bps: Annotated[float | None, typer.Option("--bandwidth", help="Bits per second. (default: 2e7)")] = None,
    uplink: Annotated[str | None, typer.Option(help="serial or parallel. (default: serial)")] = None,
    speed_spread: Annotated[float | None, typer.Option(help="How unequal devices' speeds are. (default: 0)")] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory. (default: a new one below runs/)")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")] = False,
    format: Annotated[Format, typer.Option(help="How to show the result.")] = Format.TABLE,
) -> None:
    """Simulate one run: devices train together in virtual time, and some of them die.

    Example: tolfl simulate --devices 10 --clusters 5 --rounds 100 --fail server@50 --seed 0

    Example: tolfl simulate --scheme fl --fail server@50 --on-head-failure freeze --format json

    Example: tolfl simulate run.toml --out runs/mine ; tolfl simulate --out runs/mine --resume
    """
    flags = {name: value for name, value in locals().items() if name not in ("spec", "out", "resume", "format")}
    given = {name: value for name, value in flags.items() if value is not None}
    if resume:
        _resume(out, spec, given, format)
        return
    chosen = spec_from_flags(RunSpec() if spec is None else RunSpec.from_file(spec), given).check()
    _check_names(chosen)
    _run(chosen, out or _new_directory(chosen), False, format)


def _check_names(spec: RunSpec) -> None:
    """Find what is wrong with a specification before a folder is made for it."""
    from tolfl.datasets import check_name
    from tolfl.schemes import failure_plan

    check_name(spec)
    failure_plan(spec)


def spec_from_flags(spec: RunSpec, given: dict[str, Any]) -> RunSpec:
    """Return the specification with the flags that were given put into their places."""
    fields = msgspec.to_builtins(spec)
    for name, value in given.items():
        section = fields[_SECTIONS[name]] if name in _SECTIONS else fields
        section[name] = value
    return RunSpec.from_fields(fields)


def _resume(out: Path | None, spec: Path | None, given: dict[str, Any], shown: Format) -> None:
    if out is None:
        raise SpecError("--resume needs --out, the run directory to continue")
    if not (out / "spec.toml").is_file():
        raise RunDirectoryError(out, "holds no run to resume; leave out --resume to start one")
    stored = RunSpec.from_file(out / "spec.toml")
    if spec is not None and RunSpec.from_file(spec) != stored:
        raise RunDirectoryError(out, f"was not started with {spec}; resume it without a specification")
    if spec_from_flags(stored, given) != stored:
        raise RunDirectoryError(out, "was started with other options; resume it with --out and --resume alone")
    if (out / "summary.json").is_file():
        from tolfl.cli.tables import show

        typer.echo(f"tolfl: the run in {out} is finished already; this is its result", err=True)
        show(msgspec.json.decode((out / "summary.json").read_bytes()), shown, out)
        return
    _run(stored, out, True, shown)


def _new_directory(spec: RunSpec) -> Path:
    """Make and return the next free folder below runs/; a run that starts at the same moment gets another."""
    parent = Path("runs")
    taken = [int(found[1]) for path in parent.glob("*") if (found := re.match(r"(\d+)-", path.name))]
    number = max(taken, default=0) + 1
    while True:
        path = parent / f"{number:03d}-{spec.scheme}-{spec.data}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise RunDirectoryError(path, f"cannot be made ({error.strerror}); choose another --out") from None
        else:
            return path


def _run(spec: RunSpec, out: Path, resume: bool, shown: Format) -> None:
    from tolfl.cli.progress import follow
    from tolfl.cli.tables import show
    from tolfl.runs.plots import plot_records
    from tolfl.sim.run import Runs

    runs = Runs(spec, out=out, resume=resume)
    follow(runs, f"{spec.scheme} on {spec.data}", out)
    try:
        labelled = [(f"seed {result.spec.seed}", result.records) for result in runs.results]
        plot_records(labelled).savefig(out / "loss.png", dpi=120)
    except OSError as error:
        typer.echo(f"tolfl: {out / 'loss.png'} cannot be written ({error.strerror}); all else is there", err=True)
    show(runs.summary, shown, out)
