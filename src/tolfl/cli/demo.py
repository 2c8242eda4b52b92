"""`tolfl demo`: the whole story in a minute. Tol-FL and FL on the same devices, the server killed at half time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tolfl.core.spec import RunSpec


def demo(
    rounds: Annotated[int, typer.Option(help="How many rounds; the server dies at half time.")] = 100,
    seed: Annotated[int, typer.Option(help="The seed of everything random.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the figure goes.")] = Path("runs/demo"),
) -> None:
    """Train Tol-FL and FL on the same ten devices, kill the server half way, and show what each has left.

    Example: tolfl demo

    Example: tolfl demo --rounds 40 --seed 3
    """
    from rich.table import Table

    from tolfl.cli.progress import follow
    from tolfl.cli.tables import console_for_tables, number
    from tolfl.core.errors import RunDirectoryError
    from tolfl.runs.plots import plot_records
    from tolfl.sim.run import Result, Runs

    plan = f"server@{max(1, rounds // 2)}"
    rows: list[tuple[str, Result]] = []
    for scheme, policy, what in _STORY:
        fail = plan if policy else ""
        every = max(1, rounds // 25)
        spec = RunSpec(
            scheme=scheme,
            rounds=rounds,
            seed=seed,
            fail=fail,
            on_head_failure=policy,
            evaluate_every=every,
        )
        runs = Runs(spec)
        follow(runs, what)
        rows.append((what, runs.results[0]))

    console = console_for_tables()
    first = rows[0][1].summary
    console.print(
        f"Ten devices in five regions train one anomaly detector on {first['data']} (seed {seed}). "
        f"After {max(1, rounds // 2)} of {rounds} rounds the server, device 0, is killed."
    )
    console.print()
    table = Table("", "AUROC", "devices in the last round", "what is left", box=None, padding=(0, 2, 0, 0))
    for what, result in rows:
        table.add_row(what, number(result.summary["auroc"]), _last_round(result), _left(result))
    baselines = first["baselines"]
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


#: scheme, what happens when the head dies (empty: nobody dies), and how the table calls it.
_STORY = [
    ("tol-fl", "", "Tol-FL, nobody dies"),
    ("tol-fl", "elect", "Tol-FL, a member takes over"),
    ("tol-fl", "drop", "Tol-FL, the cluster is lost (the paper)"),
    ("fl", "freeze", "FL, training stops"),
    ("fl", "isolate", "FL, each device goes on alone"),
]


def _last_round(result: object) -> str:
    from tolfl.core.records import RoundClosed
    from tolfl.sim.run import Result

    assert isinstance(result, Result)
    closed = [record for record in result.records if isinstance(record, RoundClosed)]
    last = max(record.round or 0 for record in closed)
    together = max(len(record.included) for record in closed if record.round == last)
    return f"{together} of {result.spec.devices}" + ("" if last == result.spec.rounds - 1 else f" (round {last})")


def _left(result: object) -> str:
    from tolfl.sim.run import Result

    assert isinstance(result, Result)
    n_models = len(result.models)
    return "one model, the fleet's" if n_models == 1 else f"{n_models} models, one per device"
