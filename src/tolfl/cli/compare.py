"""`tolfl compare`: every scheme under one failure plan, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.flags import Format, SpecFlags, run_directory, spec_flags
from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.experiments.comparison import Comparing


@spec_flags(
    "data data_dir partition device_column label_column time_column devices clusters topology rounds fail lost_model "
    "seed repetitions",
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
    format: flags.HowShown = Format.TABLE,
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
        stored = read_spec(out)
        _run(stored.run, stored.schemes, out, True, format)
        return
    spec = asked.spec().check()
    if spec.on_head_failure:
        raise SpecError("on_head_failure is not for comparisons: they show every policy that matters")
    _run(spec, parse_schemes("all" if schemes is None else schemes), out, False, format)


def _run(spec: RunSpec, schemes: tuple[str, ...], out: Path | None, resume: bool, shown: Format) -> None:
    from tolfl.cli.output import show_comparison
    from tolfl.cli.progress import follow
    from tolfl.datasets import check_name
    from tolfl.experiments.comparison import Comparing, scheme_jobs
    from tolfl.learners.layouts import check_scheme

    check_name(spec)
    for job in scheme_jobs(spec, schemes):
        check_scheme(job.spec)
    with run_directory(out, "compare", spec.data) as folder:
        comparing = Comparing(spec, schemes, out=folder, resume=resume)
        follow(comparing, command=f"tolfl compare --out {folder} --resume")
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
