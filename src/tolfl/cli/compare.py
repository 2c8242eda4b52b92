"""`tolfl compare`: every scheme under one failure plan, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.options import Format, one_device_per_owner, run_directory, spec_from_flags
from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.experiments.comparison import Comparing

#: Parameters that are no field of a specification.
_NO_FIELDS = ("spec", "schemes", "settings", "out", "resume", "format")
#: Without a specification: enough seeds to see a spread.
_USUAL_REPETITIONS = 3


def compare(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    spec: options.Spec = None,
    schemes: Annotated[
        str | None,
        typer.Option(help="all, or some of tol-fl,sbt,fl,batch,batch-small,fedgroup,ifca,fesem. (default: all)"),
    ] = None,
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
    lost_model: options.LostModel = None,
    seed: options.Seed = None,
    repetitions: Annotated[
        int | None, typer.Option(help="Runs of each scheme, with seeds seed, seed + 1, ... (default: 3)")
    ] = None,
    settings: options.Set = None,
    out: Annotated[Path | None, typer.Option(help="Where it goes. (default: a new folder below runs/)")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted comparison in --out.")] = False,
    format: options.HowShown = Format.TABLE,
) -> None:
    """Compare schemes: the same devices, data, seeds and failures for all, one table and one figure.

    Where a head dies, tol-fl is shown with elect and drop (the paper's), fl with isolate (the paper's), freeze and
    devices that are alone from the start, fedgroup, ifca and fesem with strict and rehome. The plain baselines are
    always there.

    Example: tolfl compare --schemes all --fail server@50

    Example: tolfl compare --schemes tol-fl,fl,ifca --rounds 40 --fail client@20 --format json

    Example: tolfl compare --schemes ifca --set ifca.restarts=5 --set train.lr=0.01 --out runs/mine
    """
    given = {name: value for name, value in locals().items() if name not in _NO_FIELDS and value is not None}
    if resume:
        _resume(out, spec, schemes, given or settings, format)
        return
    from tolfl.experiments.comparison import parse_schemes

    usual = RunSpec(repetitions=_USUAL_REPETITIONS)
    chosen = spec_from_flags(usual if spec is None else RunSpec.from_file(spec), given, settings)
    chosen = one_device_per_owner(chosen, given, spec).check()
    if chosen.on_head_failure:
        raise SpecError("on_head_failure is not for comparisons: they show every policy that matters")
    _run(chosen, parse_schemes("all" if schemes is None else schemes), out, False, format)


def _resume(out: Path | None, spec: Path | None, schemes: str | None, given: Any, shown: Format) -> None:
    from tolfl.experiments.comparison import read_spec

    if out is None:
        raise SpecError("--resume needs --out, the comparison to continue")
    if spec is not None or schemes is not None or given:
        raise SpecError("--resume goes on as the comparison was started; give --out and --resume alone")
    stored = read_spec(out)
    _run(stored.run, stored.schemes, out, True, shown)


def _run(spec: RunSpec, schemes: tuple[str, ...], out: Path | None, resume: bool, shown: Format) -> None:
    from tolfl.cli.output import show_comparison
    from tolfl.cli.progress import follow_jobs
    from tolfl.datasets import check_name
    from tolfl.experiments.comparison import Comparing, scheme_jobs
    from tolfl.learners.layouts import check_scheme

    check_name(spec)
    for job in scheme_jobs(spec, schemes):
        check_scheme(job.spec)
    with run_directory(out, "compare", spec.data) as folder:
        comparing = Comparing(spec, schemes, out=folder, resume=resume)
        follow_jobs(comparing, f"tolfl compare --out {folder} --resume")
    _save_figure(comparing, folder)
    if shown is Format.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(comparing.result.to_dict()), indent=2).decode())
    else:
        show_comparison(comparing.result, spec.devices, folder)


def _save_figure(comparing: Comparing, folder: Path) -> None:
    figure = folder / "comparison.png"
    try:
        comparing.result.plot().savefig(figure, dpi=130)
    except OSError as error:
        typer.echo(f"tolfl: {figure} cannot be written ({error.strerror}); all else is there", err=True)
