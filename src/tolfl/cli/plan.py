"""`tolfl plan`: which k, and what to do when a head dies, for these failure odds, links and deadlines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.options import Format, new_directory, one_device_per_owner, spec_from_flags
from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from rich.table import Table

    from tolfl.experiments.planning.odds import FailureOdds
    from tolfl.experiments.planning.plan import Plan
    from tolfl.experiments.planning.request import Request

#: Parameters that are fields of a specification.
_FIELDS = (
    "data", "data_dir", "partition", "device_column", "label_column", "time_column", "devices", "rounds", "seed",
    "repetitions", "epochs", "timing", "latency_s", "uplink",
)  # fmt: skip
#: With ten devices, in nine trainings of ten nobody fails.
_USUAL_FAIL_ODDS = 0.01


def plan(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    devices: options.Devices = None,
    clusters: Annotated[
        str | None, typer.Option("--clusters", "-k", help="Which k: 1,2,5, or all. (default: 1, 2, root of N, N/2, N)")
    ] = None,
    rounds: options.Rounds = None,
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
        list[str] | None,
        typer.Option(help="paper, or a JSON file of results; may be repeated. (default: a rehearsal on --data)"),
    ] = None,
    data: options.Data = None,
    data_dir: options.DataDir = None,
    partition: options.Partition = None,
    device_column: options.DeviceColumn = None,
    label_column: options.LabelColumn = None,
    time_column: options.TimeColumn = None,
    rehearsal_rounds: Annotated[int, typer.Option(help="Rounds of the rehearsal; somebody fails at half time.")] = 40,
    repetitions: Annotated[int | None, typer.Option(help="Seeds of the rehearsal. (default: 1)")] = None,
    seed: options.Seed = None,
    sizes: Annotated[
        str | None, typer.Option(help="Samples of a device, or of each: 900,900,1200. (default: the data's; else 900)")
    ] = None,
    n_features: Annotated[int | None, typer.Option("--features", help="Features. (default: the data's)")] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="Bits per second of a device's link, or of each device's. (default: 2e7)")
    ] = None,
    latency_s: options.LatencyS = None,
    uplink: Annotated[str | None, typer.Option(help="Which time counts: serial or parallel. (default: serial)")] = None,
    seconds_per_sample: Annotated[
        float | None, typer.Option(help="Of local training, per epoch. (default: 1e-4)")
    ] = None,
    epochs: options.Epochs = None,
    timing: options.Timing = None,
    settings: options.Set = None,
    out: Annotated[
        Path | None, typer.Option(help="For plan.png and plan.json. (default: a new folder below runs/)")
    ] = None,
    format: options.HowShown = Format.TABLE,
) -> None:
    """Recommend a number of clusters and a policy, with expected AUROC, rounds lost, bytes and time of each.

    The AUROCs come from a rehearsal on the data, half a minute by default, from stored results, or from the paper.

    Example: tolfl plan --devices 10 --fail-odds 0.02 --head-fail-odds 0.05 --deadline 1.0

    Example: tolfl plan --data readings.csv --device-column site --label-column state --mtbf 500 --bandwidth 1e6

    Example: tolfl plan --auroc-from paper --data comms-ml --odds 0.90,0.08,0.02 --format json
    """
    asked = dict(locals())
    from tolfl.experiments.planning.request import Request

    given = {name: asked[name] for name in _FIELDS if asked[name] is not None}
    fields = [*(settings or [])]
    if seconds_per_sample is not None:
        fields.append(f"links.seconds_per_sample={seconds_per_sample!r}")
    spec = one_device_per_owner(spec_from_flags(RunSpec(), given, fields), given).check()
    request = Request(
        spec,
        _failures(odds, one_of_n, (fail_odds, head_fail_odds), (mtbf_h, head_mtbf_h)),
        _clusters(clusters, spec.devices),
        deadline_s,
        None if sizes is None else tuple(int(size) for size in _numbers("sizes", sizes, whole=True)),
        None if bandwidth is None else tuple(_numbers("bandwidth", bandwidth)),
        n_features,
    ).check()
    made = request.looked_up(auroc_from, data) if auroc_from else _rehearsed(request, rehearsal_rounds)
    _show(made, out or new_directory("plan", made.data), format)


def _rehearsed(request: Request, rounds: int) -> Plan:
    """Rehearse, showing how far it is."""
    from tolfl.cli.progress import progress_bar

    rehearsal = request.rehearsal(rounds)
    with progress_bar() as bar:
        task = bar.add_task("", total=rehearsal.n_cells * rounds, loss="")
        for progress in rehearsal:
            done = progress.jobs_done * rounds + progress.rounds_done
            bar.update(task, description=f"{progress.label:<27}", completed=done)
    return request.rehearsed(rehearsal)


# -- reading flags ----------------------------------------------------------------------------------------------------


def _failures(
    odds: str | None,
    one_of_n: bool,
    fail_odds: tuple[float | None, float | None],
    mtbf_h: tuple[float | None, float | None],
) -> FailureOdds:
    from tolfl.experiments.planning.odds import EachOnItsOwn, GivenOdds, Lifetimes, OneOfAll

    for device, head, flag in ((*fail_odds, "fail-odds"), (*mtbf_h, "mtbf")):
        if head is not None and device is None:
            raise SpecError(f"--head-{flag} goes with --{flag}; give both")
    if sum([odds is not None, one_of_n, fail_odds[0] is not None, mtbf_h[0] is not None]) > 1:
        raise SpecError("--odds, --one-of-n, --fail-odds and --mtbf are four ways to say the same; give one of them")
    if odds is not None:
        values = _numbers("odds", odds)
        if len(values) != 3:
            raise SpecError(f"--odds {odds!r}: give three, of nobody, a client and a head, as in 0.90,0.08,0.02")
        return GivenOdds(*values)
    if one_of_n:
        return OneOfAll()
    if mtbf_h[0] is not None:
        return Lifetimes(mtbf_h[0], mtbf_h[0] if mtbf_h[1] is None else mtbf_h[1])
    device = _USUAL_FAIL_ODDS if fail_odds[0] is None else fail_odds[0]
    return EachOnItsOwn(device, device if fail_odds[1] is None else fail_odds[1])


def _clusters(text: str | None, n_devices: int) -> tuple[int, ...]:
    from tolfl.experiments.planning.costs import usual_clusters

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


def _show(made: Plan, out: Path, shown: Format) -> None:
    result = msgspec.json.format(msgspec.json.encode(made.to_dict()), indent=2)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "plan.json").write_bytes(result + b"\n")
        made.plot().savefig(out / "plan.png", dpi=200)
    except OSError as error:
        raise RunDirectoryError(out, f"cannot be written ({error.strerror}); choose another --out") from None
    if shown is Format.JSON:
        typer.echo(result.decode())
        return
    from tolfl.cli.output import console_for_tables

    console = console_for_tables()
    network = made.question.network
    console.print(
        f"{made.data}: {made.question.n_devices} devices, {made.question.rounds} rounds; a model has "
        f"{network.model_bytes / 1e6:.3g} MB, training takes up to {max(network.train_s):.3g} s per round, a crash is "
        f"noticed after {network.detection_s:g} s",
        soft_wrap=True,
    )
    console.print(_table(made))
    for note in made.notes:
        console.print(note, soft_wrap=True)
    console.print(f"recommended: {made.reason}", soft_wrap=True)
    console.print(f"folder: {out}  (plan.png, plan.json)")


def _table(made: Plan) -> Table:
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
        cells += [number(row.worth.mean(scenario)) for scenario in ("none", "client", "server")]
        cells += [number(row.expected_auroc, 4) + mark, f"{row.odds.server:.3g}", f"{row.rounds_lost:.3g}"]
        cells += [f"{row.bytes_per_round / 1e6:.3g}", *(f"{row.round_s[uplink]:.3g}" for uplink in row.round_s)]
        if _has_deadline(made):
            cells.append("yes" if made.meets_deadline(row) else "no")
        table.add_row(*cells)
    return table


def _has_deadline(made: Plan) -> bool:
    return made.question.deadline_s is not None
