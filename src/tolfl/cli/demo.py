"""`tolfl demo`: the whole story in a minute or two. A real network, its server killed at half time; FL beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.records import AnyRecord, RoundClosed
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.datasets import FederatedDataset
    from tolfl.net.launcher import Launcher
    from tolfl.runs.checkpoint import Checkpoint
    from tolfl.sim.simulation import Progress

#: scheme, what happens when the head dies (empty: nobody dies), and how the table calls it.
_STORY = [
    ("tol-fl", "", "Tol-FL, nobody dies"),
    ("tol-fl", "elect", "Tol-FL, a member takes over"),
    ("tol-fl", "drop", "Tol-FL, the cluster is lost (the paper)"),
    ("fl", "freeze", "FL, training stops"),
    ("fl", "isolate", "FL, each device goes on alone"),
]
_REAL = "real"  #: the folder of the run by processes
_PROMISED = 1e-5  #: how far real and simulated models may be apart


@dataclass(frozen=True)
class DemoRow:
    """One line of the table: a run on disk."""

    what: str
    folder: Path
    records: Sequence[AnyRecord]
    summary: dict[str, Any]

    @classmethod
    def read(cls, what: str, folder: Path) -> DemoRow:
        """Read a finished run."""
        from tolfl.runs.run_reader import read_records

        summary = msgspec.json.decode((folder / "summary.json").read_bytes(), type=dict[str, Any])
        return cls(what, folder, read_records(folder), summary)

    @property
    def rounds(self) -> list[RoundClosed]:
        """The rounds that were closed."""
        return [record for record in self.records if isinstance(record, RoundClosed)]


def demo(
    rounds: Annotated[int, typer.Option(min=2, help="How many rounds; the server dies at half time.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="The seed of everything random.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Where runs, figure and report go. (default: runs/demo, or the next free one)")
    ] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Start no processes: all of it simulated.")] = False,
    devices: Annotated[int, typer.Option(min=2, hidden=True)] = 10,
    data: Annotated[str, typer.Option(hidden=True)] = "comms-ml",
) -> None:
    """Train Tol-FL on ten real processes, kill the server half way, and show what is left; FL beside it.

    The processes talk over mutual TLS; the server, head of its cluster, is killed with SIGKILL. Where the machine does
    not let them (a process limit, little memory), the demo says why and tells the same story in the simulator.

    Example: tolfl demo

    Example: tolfl demo --rounds 40 --seed 3

    Example: tolfl demo --simulated
    """
    from tolfl.cli.output import console_for_tables
    from tolfl.datasets import load

    folder = _folder(out)
    base = RunSpec(
        data=data,
        devices=devices,
        clusters=min(3, devices),  # one per region
        rounds=rounds,
        seed=seed,
        evaluate_every=max(1, rounds // 10),
    )
    console = console_for_tables()
    console.print(_opening(base, simulated), soft_wrap=True)
    samples = load(base)
    real = None if simulated else _real_row(base, folder, samples)
    rows = _simulated_rows(base, folder, samples)
    twin = rows[1]
    console.print()
    if real is not None:
        rows[1] = real
    _show_story(rows)
    is_kept = real is None or _show_agreement(real, twin)
    _show_files(rows, folder)
    if not is_kept:
        raise typer.Exit(1)


def _folder(out: Path | None) -> Path:
    """Return a folder that nothing is in yet."""
    if out is not None:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise RunDirectoryError(out, "is not empty; choose another --out")
        return out
    number, folder = 1, Path("runs/demo")
    while folder.exists():
        number += 1
        folder = Path(f"runs/demo-{number}")
    return folder


def _opening(base: RunSpec, simulated: bool) -> str:
    how = "in the simulator" if simulated else "each a process of its own, over mutual TLS"
    return (
        f"{base.devices} devices in three regions train one anomaly detector on {base.data} (seed {base.seed}), {how}. "
        f"After {base.rounds // 2} of {base.rounds} rounds the server, device 0, is killed."
    )


def _spec_of(base: RunSpec, scheme: str, policy: str) -> RunSpec:
    fail = f"server@{base.rounds // 2}" if policy else ""
    return msgspec.structs.replace(base, scheme=scheme, fail=fail, on_head_failure=policy)


# -- runs -------------------------------------------------------------------------------------------------------


def _real_row(base: RunSpec, folder: Path, samples: FederatedDataset) -> DemoRow | None:
    """Run the row in which a member takes over by real processes; None where this machine does not let us."""
    scheme, policy, what = _STORY[1]
    try:
        run_network(_spec_of(base, scheme, policy), folder / _REAL, samples)
    except NoNetworkError as error:
        typer.echo(f"tolfl: no real network here: {error}; the same story in the simulator", err=True)
        return None
    except KeyboardInterrupt:
        typer.echo("tolfl: stopped; all devices have ended", err=True)
        raise typer.Exit(130) from None
    return DemoRow.read(f"{what} (real processes)", folder / _REAL)


def _simulated_rows(base: RunSpec, folder: Path, samples: FederatedDataset) -> list[DemoRow]:
    """Simulate the story; the rounds before the failure are trained once per scheme."""
    from tolfl.cli.progress import follow
    from tolfl.sim.simulation import Runs

    half, rows = base.rounds // 2, []
    before_failure: dict[str, list[Checkpoint]] = {}
    for scheme, policy, what in _STORY:
        place = folder / f"{scheme}-{policy or 'clean'}"
        runs = Runs(_spec_of(base, scheme, policy), samples, out=place, known=before_failure.get(scheme))

        def keep(progress: Progress, scheme: str = scheme, runs: Runs = runs) -> None:
            if progress.rounds_done == half:
                before_failure.setdefault(scheme, runs.checkpoints())

        follow(runs, what, on_progress=keep)
        rows.append(DemoRow.read(what, place))
    return rows


class NoNetworkError(TolFLError, OSError):
    """A real network cannot run on this machine, or did not survive on it."""


def run_network(spec: RunSpec, out: Path, data: FederatedDataset) -> None:
    """Run a fleet of real processes over mutual TLS and leave its run directory."""
    from tolfl.cli.doctor import free_memory
    from tolfl.cli.live_fleet import watch_fleet
    from tolfl.net.collect import collect
    from tolfl.net.launcher import Launcher

    check_memory(spec.devices, free_memory())
    launcher = Launcher(spec, out, data=data, is_insecure=False)
    try:
        is_complete = watch_fleet(launcher, lambda: _check_nobody_else_died(launcher))
    except OSError as error:
        if isinstance(error, TolFLError):
            raise
        # A limit on processes (ulimit -u) shows as "Resource temporarily unavailable".
        what = f"{spec.devices} processes cannot be started ({error.strerror})"
        raise NoNetworkError(f"{what}: a limit on processes (ulimit -u), or too little memory") from None
    if not is_complete:
        raise KeyboardInterrupt
    collect(launcher.directory, spec, data, launcher.survivors)


def check_memory(n_devices: int, free: int | None) -> None:
    """Find out before ten processes have found out that memory is short; `free`: None where nobody knows."""
    from tolfl.cli.doctor import DEVICE_BYTES

    needed = n_devices * DEVICE_BYTES
    if free is not None and free < needed:
        short = f"{free / 2**30:.1f} GiB of memory are free"
        raise NoNetworkError(f"{short}, and {n_devices} processes want {needed / 2**30:.1f} GiB")


def _check_nobody_else_died(launcher: Launcher) -> None:
    """Refuse to tell the story of another failure than the one that was planned."""
    planned = {failure.device for failure in launcher.plan.failures}
    for process in launcher.processes:
        code = process.exit_code
        if code and (code > 0 or process.device not in planned):
            log = process.folder / "log.txt"
            # A thread that a limit forbids, or memory that is not there, ends a process in many ways.
            how = f"was killed by signal {-code}" if code < 0 else f"failed: {_last_line(log)}"
            raise NoNetworkError(f"device {process.device} {how}; see {log}, ulimit -u and free")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    said = [line for line in lines if line.strip()]
    return said[-1].removeprefix("tolfl: ") if said else "it said nothing"


# -- what is shown ----------------------------------------------------------------------------------------------


def _show_story(rows: Sequence[DemoRow]) -> None:
    from rich.table import Table

    from tolfl.cli.output import console_for_tables, number

    console = console_for_tables()
    table = Table("", "AUROC", "devices in the last round", "what is left", box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(row.what, number(row.summary["auroc"]), _last_round(row), _left(row))
    for name, value in rows[0].summary["baselines"].items():
        table.add_row(f"{name} (plain, no fleet)", number(value), "", "needs all data in one place")
    console.print(table)


def _last_round(row: DemoRow) -> str:
    last = max(record.round or 0 for record in row.rounds)
    together = max(len(record.included) for record in row.rounds if record.round == last)
    is_last = last == row.summary["rounds"] - 1
    return f"{together} of {row.summary['n_devices']}" + ("" if is_last else f" (round {last})")


def _left(row: DemoRow) -> str:
    n_models = len(row.summary["auroc_per_model"])
    return "one model, the fleet's" if n_models == 1 else f"{n_models} models, one per device"


def _show_agreement(real: DemoRow, twin: DemoRow) -> bool:
    """Say what the kill cost, and whether real and simulated devices have the same model; False: they should have."""
    from tolfl.cli.output import console_for_tables
    from tolfl.runs.failure_history import FailureHistory, sentence

    console = console_for_tables()
    history = FailureHistory.of(real.records)
    console.print()
    console.print("The real run: " + " ".join(sentence(one, history.stages) for one in history.incidents))
    difference = largest_difference(real.folder, twin.folder)
    if difference <= _PROMISED:
        how = f"no parameter differs by more than {difference:.1g}" if difference else "bit by bit"
        console.print(f"Its model is the simulated one, {how} (promised: to {_PROMISED:g}).")
        return True
    taken_part = [[(line.round, line.included) for line in row.rounds] for row in (real, twin)]
    console.print(f"Its model differs from the simulated one by up to {difference:.1g}, more than {_PROMISED:g}.")
    if taken_part[0] != taken_part[1]:
        console.print("A device was missing from some rounds: on a busy machine one may be taken for dead for a while.")
        return True
    return False


def largest_difference(one: Path, other: Path) -> float:
    """Return by how much the models of two run directories differ, over all parameters."""
    import numpy as np
    import safetensors.numpy

    models = [safetensors.numpy.load_file(folder / "model.safetensors") for folder in (one, other)]
    return max(float(np.max(np.abs(models[0][name] - models[1][name]))) for name in models[0])


def _show_files(rows: Sequence[DemoRow], folder: Path) -> None:
    """Write the figure and the report, and say where everything is."""
    from tolfl.cli.output import console_for_tables
    from tolfl.cli.run_commands import ReportFormat, write_report
    from tolfl.runs.run_figures import plot_curves
    from tolfl.runs.run_reader import read_run
    from tolfl.runs.run_report import report_context

    figure, page = folder / "server-lost.png", folder / "report.html"
    try:
        plot_curves([(row.what, list(row.records)) for row in rows]).savefig(figure, dpi=130)
    except OSError as error:
        problem = f"the figure cannot be written ({error.strerror}); choose another --out"
        raise RunDirectoryError(folder, problem) from None
    clean, elected = rows[0], rows[1]
    write_report(report_context(read_run(elected.folder), read_run(clean.folder)), page, ReportFormat.HTML)
    console = console_for_tables()
    console.print()
    console.print(f"figure:  {figure}", soft_wrap=True)
    console.print(f"report:  {page}  (open it in a browser)", soft_wrap=True)
    console.print(f"replay:  tolfl dashboard {elected.folder}", soft_wrap=True)
    console.print("more:    tolfl up --help")
