"""`tolfl plan`: which k, and what to do when a head dies, for these failure odds, links and deadlines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.flags import Format, SpecFlags, new_directory, spec_flags
from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec, Timing

if TYPE_CHECKING:
    from rich.table import Table

    from tolfl.experiments.planning import FailureRates, LayoutPlan

#: Of a device, where no data are looked at.
_USUAL_SAMPLES = 900


@spec_flags(
    "devices rounds data data_dir partition device_column label_column time_column repetitions seed bandwidth_bps "
    "latency_s uplink seconds_per_sample epochs timing",
    has_file=False,
)
def plan(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    asked: SpecFlags,
    clusters: Annotated[
        str | None, typer.Option("--clusters", "-k", help="Which k: 1,2,5, or all. (default: 1, 2, root of N, N/2, N)")
    ] = None,
    deadline_s: Annotated[
        float | None, typer.Option("--deadline", help="Seconds that a round may take. (default: no limit)")
    ] = None,
    odds: Annotated[
        str | None,
        typer.Option(help="Odds that nobody, one client, one head fails, the same for every k: 0.90,0.08,0.02."),
    ] = None,
    one_of_n: Annotated[bool, typer.Option("--one-of-n", help="Exactly one device fails, any of them alike.")] = False,
    fail_odds: Annotated[
        float | None, typer.Option(help="Odds that a device fails during the training. (default: 0.01)")
    ] = None,
    head_fail_odds: Annotated[float | None, typer.Option(help="The same of a head. (default: --fail-odds)")] = None,
    mtbf_h: Annotated[float | None, typer.Option("--mtbf", help="Mean hours between failures of a device.")] = None,
    head_mtbf_h: Annotated[float | None, typer.Option("--head-mtbf", help="The same of a head.")] = None,
    auroc_from: Annotated[
        str | None, typer.Option(help="paper: the AUROCs that it prints. (default: a rehearsal on --data)")
    ] = None,
    rehearsal_rounds: Annotated[int, typer.Option(help="Rounds of the rehearsal; somebody fails at half time.")] = 40,
    sizes: Annotated[int | None, typer.Option(help="Samples of a device. (default: the data's; else 900)")] = None,
    n_features: Annotated[int | None, typer.Option("--features", help="Features. (default: the data's)")] = None,
    out: Annotated[Path | None, typer.Option(help="For plan.json. (default: a new folder below runs/)")] = None,
    format: flags.HowShown = Format.TABLE,
) -> None:
    """Recommend a number of clusters and a policy, with expected AUROC, rounds lost, bytes and time of each.

    The AUROCs come from a rehearsal on the data, half a minute by default, or from the paper; what a round costs comes
    from playing the protocol without training.

    Example: tolfl plan --devices 10 --fail-odds 0.02 --head-fail-odds 0.05 --deadline 1.0

    Example: tolfl plan --data readings.csv --device-column site --label-column state --mtbf 500 --bandwidth 1e6

    Example: tolfl plan --auroc-from paper --data comms-ml --odds 0.90,0.08,0.02 --format json
    """
    from tolfl.experiments.planning import check_plan

    spec = asked.spec().check()
    rates = _failures(odds, one_of_n, (fail_odds, head_fail_odds), (mtbf_h, head_mtbf_h))
    chosen = _clusters(clusters, spec.devices)
    check_plan(spec, chosen, deadline_s)
    for name, value in (("sizes", sizes), ("features", n_features)):
        if value is not None and value < 1:
            raise SpecError(f"{name} {value}; use at least 1")
    if auroc_from not in (None, "paper"):
        raise SpecError(f"--auroc-from {auroc_from}: say paper, or leave it out for a rehearsal on --data")
    made = _planned(
        spec, rates, chosen, rehearsal_rounds if auroc_from is None else None, sizes, n_features, deadline_s
    )
    _show(made, out or new_directory("plan", made.aurocs.data), format)


def _planned(
    spec: RunSpec,
    rates: FailureRates,
    clusters: tuple[int, ...],
    rehearsal_rounds: int | None,
    size: int | None,
    n_features: int | None,
    deadline_s: float | None,
) -> LayoutPlan:
    """Rehearse, showing how far it is, or take the paper's AUROCs; then weigh the layouts."""
    from tolfl.cli.progress import follow
    from tolfl.datasets import check_name
    from tolfl.experiments.planning import aurocs_of_paper, aurocs_of_pilot, layouts_of, make_plan, pilot_jobs
    from tolfl.experiments.sweep import Sweep
    from tolfl.sim.simulation import datasets_of

    if rehearsal_rounds is None:
        from tolfl.experiments.paper.published import published

        aurocs = aurocs_of_paper(spec.data)
        shape = published()["data_sets"][spec.data]["shape"]
        sizes, known_features = [size or _USUAL_SAMPLES] * spec.devices, math.prod(shape)
    else:
        pilot = msgspec.structs.replace(spec, rounds=rehearsal_rounds).check()
        check_name(pilot)
        jobs, data = pilot_jobs(pilot, layouts_of(clusters)), datasets_of(pilot)
        sweep = Sweep(jobs, data=data)
        follow(sweep)
        aurocs = aurocs_of_pilot(pilot, sweep)
        sizes = [size or data[0].n_samples(device) for device in range(spec.devices)]
        known_features = data[0].n_features
    return make_plan(spec, rates, aurocs, clusters, sizes, n_features or known_features, deadline_s)


# -- reading flags ----------------------------------------------------------------------------------------------------


def _failures(
    odds: str | None,
    one_of_n: bool,
    fail_odds: tuple[float | None, float | None],
    mtbf_h: tuple[float | None, float | None],
) -> FailureRates:
    from tolfl.experiments.planning import FailureRates

    for device, head, flag in ((*fail_odds, "fail-odds"), (*mtbf_h, "mtbf")):
        if head is not None and device is None:
            raise SpecError(f"--head-{flag} goes with --{flag}; give both")
    if sum([odds is not None, one_of_n, fail_odds[0] is not None, mtbf_h[0] is not None]) > 1:
        raise SpecError("--odds, --one-of-n, --fail-odds and --mtbf are four ways to say the same; give one of them")
    if odds is not None:
        values = _numbers("odds", odds)
        if len(values) != 3:
            raise SpecError(f"--odds {odds!r}: give three, of nobody, a client and a head, as in 0.90,0.08,0.02")
        return FailureRates(given=(values[0], values[1], values[2]))
    if one_of_n:
        return FailureRates(is_one_of_n=True)
    if mtbf_h[0] is not None:
        return FailureRates(mtbf_h=(mtbf_h[0], mtbf_h[0] if mtbf_h[1] is None else mtbf_h[1]))
    if fail_odds[0] is not None:
        return FailureRates((fail_odds[0], fail_odds[0] if fail_odds[1] is None else fail_odds[1]))
    return FailureRates()


def _clusters(text: str | None, n_devices: int) -> tuple[int, ...]:
    from tolfl.experiments.planning import usual_clusters

    if text is None:
        return usual_clusters(n_devices)
    if text.strip() == "all":
        return tuple(range(1, n_devices + 1))
    return tuple(sorted({int(value) for value in _numbers("clusters", text, whole=True)}))


def _numbers(name: str, text: str, whole: bool = False) -> list[float]:
    try:
        return [int(part) if whole else float(part) for part in text.split(",")]
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise SpecError(f"--{name} {text!r}: give {kind}, separated by commas") from None


# -- showing ----------------------------------------------------------------------------------------------------------


def _show(made: LayoutPlan, out: Path, shown: Format) -> None:
    result = msgspec.json.format(msgspec.json.encode(made.to_dict()), indent=2)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "plan.json").write_bytes(result + b"\n")
    except OSError as error:
        raise RunDirectoryError(out, f"cannot be written ({error.strerror}); choose another --out") from None
    if shown is Format.JSON:
        typer.echo(result.decode())
        return
    from tolfl.cli.output import console_for_tables

    console = console_for_tables()
    console.print(
        f"{made.aurocs.data}: {made.spec.devices} devices, {made.spec.rounds} rounds; a model has "
        f"{made.model_bytes / 1e6:.3g} MB, training takes up to {made.train_s:.3g} s per round, a crash is "
        f"noticed after {Timing.preset(made.spec.timing).crash_detection_s:g} s",
        soft_wrap=True,
    )
    console.print(_table(made))
    for note in made.notes:
        console.print(note, soft_wrap=True)
    console.print(f"recommended: {made.reason}", soft_wrap=True)
    console.print(f"folder: {out}  (plan.json)")


def _table(made: LayoutPlan) -> Table:
    from rich.table import Table

    from tolfl.cli.output import number

    table = Table(box=None, padding=(0, 2, 0, 0))
    aurocs = ("nobody lost", "client lost", "head lost", "expected AUROC")
    costs = ("odds of head lost", "rounds lost", "MB per round", "s per round, serial", "parallel")
    for column in ("", "k", *aurocs, *costs, *["in time"] * _has_deadline(made)):
        table.add_column(column, no_wrap=not column)
    for row in made.rows:
        mark = " <" if row is made.recommended else ""
        cells = [f"{row.layout.scheme} ({row.layout.policy})", str(row.layout.clusters)]
        cells += [number(row.auroc[scenario]) for scenario in ("none", "client", "server")]
        cells += [number(row.expected_auroc, 4) + mark, f"{row.odds.server:.3g}", f"{row.rounds_lost:.3g}"]
        cells += [f"{row.costs.n_bytes / 1e6:.3g}", *(f"{s:.3g}" for s in row.costs.round_s.values())]
        if _has_deadline(made):
            cells.append("yes" if made.meets_deadline(row) else "no")
        table.add_row(*cells)
    return table


def _has_deadline(made: LayoutPlan) -> bool:
    return made.deadline_s is not None
