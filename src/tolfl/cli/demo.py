"""`tolfl demo`: the whole story in a minute. Tol-FL and FL on the same devices, the server killed at half time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.runs.checkpoint import Checkpoint
    from tolfl.sim.run import Progress, Result

#: scheme, what happens when the head dies (empty: nobody dies), and how the table calls it.
_STORY = [
    ("tol-fl", "", "Tol-FL, nobody dies"),
    ("tol-fl", "elect", "Tol-FL, a member takes over"),
    ("tol-fl", "drop", "Tol-FL, the cluster is lost (the paper)"),
    ("fl", "freeze", "FL, training stops"),
    ("fl", "isolate", "FL, each device goes on alone"),
]


def demo(
    rounds: Annotated[int, typer.Option(min=2, help="How many rounds; the server dies at half time.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The seed of everything random.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the figure goes.")] = Path("runs/demo"),
) -> None:
    """Train Tol-FL and FL on the same ten devices, kill the server half way, and show what each has left.

    Example: tolfl demo

    Example: tolfl demo --rounds 40 --seed 3
    """
    from rich.table import Table

    from tolfl.cli.tables import console_for_tables, number
    from tolfl.core.errors import RunDirectoryError
    from tolfl.runs.plots import plot_records

    rows = _tell(rounds, seed)
    console = console_for_tables()
    console.print(
        f"Ten devices in three regions train one anomaly detector on {rows[0][1].data.name} (seed {seed}). "
        f"After {rounds // 2} of {rounds} rounds the server, device 0, is killed."
    )
    console.print()
    table = Table("", "AUROC", "devices in the last round", "what is left", box=None, padding=(0, 2, 0, 0))
    for what, result in rows:
        table.add_row(what, number(result.summary["auroc"]), _last_round(result), _left(result))
    baselines = rows[0][1].summary["baselines"]
    assert isinstance(baselines, dict)
    for name, value in baselines.items():
        table.add_row(f"{name} (plain, no fleet)", number(value), "", "needs all data in one place")
    console.print(table)
    figure = out / "server-lost.png"
    try:
        out.mkdir(parents=True, exist_ok=True)
        plot_records([(what, result.records) for what, result in rows]).savefig(figure, dpi=130)
    except OSError as error:
        raise RunDirectoryError(out, f"the figure cannot be written ({error.strerror}); choose another --out") from None
    console.print()
    console.print(f"figure: {figure}")
    console.print("more: tolfl simulate --help")


def _tell(rounds: int, seed: int) -> list[tuple[str, Result]]:
    """Run the story; the rounds before the failure are trained once per scheme."""
    from tolfl.cli.progress import follow
    from tolfl.sim.run import Runs

    half, rows = rounds // 2, []
    before_failure: dict[str, list[Checkpoint]] = {}
    for scheme, policy, what in _STORY:
        spec = RunSpec(
            scheme=scheme,
            clusters=3,  # one per region
            rounds=rounds,
            seed=seed,
            fail=f"server@{half}" if policy else "",
            on_head_failure=policy,
            evaluate_every=max(1, rounds // 50),
        )
        runs = Runs(spec, known=before_failure.get(scheme))

        def keep(progress: Progress, scheme: str = scheme, runs: Runs = runs) -> None:
            if progress.rounds_done == half:
                before_failure.setdefault(scheme, runs.checkpoints())

        follow(runs, what, on_progress=keep)
        rows.append((what, runs.results[0]))
    return rows


def _last_round(result: Result) -> str:
    from tolfl.core.records import RoundClosed

    closed = [record for record in result.records if isinstance(record, RoundClosed)]
    last = max(record.round or 0 for record in closed)
    together = max(len(record.included) for record in closed if record.round == last)
    return f"{together} of {result.spec.devices}" + ("" if last == result.spec.rounds - 1 else f" (round {last})")


def _left(result: Result) -> str:
    n_models = len(result.models)
    return "one model, the fleet's" if n_models == 1 else f"{n_models} models, one per device"
