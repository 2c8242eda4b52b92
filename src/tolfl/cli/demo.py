"""`tolfl demo`: ten real devices learn a detector, their server is killed, the rest goes on and raises alarms."""

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
    from tolfl.datasets.federated import Samples
    from tolfl.detect.detector import Detector
    from tolfl.net.launcher import Launcher

_DETECTOR = {"what": "detector"}
#: When the server dies: half of the rounds of a detector are done, its cells are being divided, thresholds are to come.
_DETECTOR_HALF = 11
_REAL = "real"  #: the folder of the run by processes
_TWIN = "simulated"
#: Rows put in at the end, for each device that is left.
_USUAL_ROWS, _UNUSUAL_ROWS = 60, 15
_ALARMS_SHOWN = 3


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
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of the paper's autoencoder, beside the detector.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="The seed of everything random.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Where runs, figure and report go. (default: runs/demo, or the next free one)")
    ] = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Start no processes: all of it simulated.")] = False,
    devices: Annotated[int, typer.Option(min=3, hidden=True)] = 10,
    data: Annotated[str, typer.Option(hidden=True)] = "comms-ml",
) -> None:
    """Learn a detector on ten real processes, kill the server half way, and let the survivors raise alarms.

    The processes talk over mutual TLS; the server, head of its cluster, is killed with SIGKILL. Where the machine does
    not let them (a process limit, little memory), the demo says why and simulates the same. A table has the
    alternatives beside it: FL, whose training stops; devices alone; the paper's autoencoder; all rows in one place.

    Example: tolfl demo

    Example: tolfl demo --rounds 40 --seed 3

    Example: tolfl demo --simulated
    """
    from tolfl.cli.output import console_for_tables
    from tolfl.runs.outcome import data_for

    folder = _folder(out)
    clusters = min(3, devices)  # one per region
    base = RunSpec(data=data, devices=devices, clusters=clusters, seed=seed, learn=_DETECTOR)
    chosen = msgspec.structs.replace(base, fail=f"server@{_DETECTOR_HALF}", on_head_failure="elect")
    console = console_for_tables()
    console.print(_opening(chosen, simulated), soft_wrap=True)
    samples = data_for(chosen)
    real = None if simulated else _real_row(chosen, folder, samples)
    twin = _simulated_row(chosen, folder / _TWIN, "Tol-FL, a member takes over", samples)
    told = real or twin
    rows = [told, *_alternatives(base, folder, samples, rounds)]
    console.print()
    _show_table(rows)
    is_kept = _show_what_happened(told, twin if real is not None else None)
    _show_alarms(told, samples)
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


def _opening(spec: RunSpec, simulated: bool) -> str:
    how = "in the simulator" if simulated else "each a process of its own, over mutual TLS"
    return (
        f"{spec.devices} devices learn one anomaly detector together, each from its own rows of {spec.data} "
        f"(seed {spec.seed}), {how}. After {_DETECTOR_HALF} rounds the server, device 0, is killed."
    )


# -- runs -------------------------------------------------------------------------------------------------------


def _real_row(spec: RunSpec, folder: Path, samples: FederatedDataset) -> DemoRow | None:
    """Learn the detector by real processes; None where this machine does not let us."""
    try:
        run_network(spec, folder / _REAL, samples)
    except NoNetworkError as error:
        typer.echo(f"tolfl: no real network here: {error}; the same in the simulator", err=True)
        return None
    except KeyboardInterrupt:
        typer.echo("tolfl: stopped; all devices have ended", err=True)
        raise typer.Exit(130) from None
    return DemoRow.read("Tol-FL, a member takes over (real processes)", folder / _REAL)


def _simulated_row(spec: RunSpec, folder: Path, what: str, samples: FederatedDataset | None = None) -> DemoRow:
    from tolfl.cli.progress import follow
    from tolfl.sim.simulation import Runs

    follow(Runs(spec, samples, out=folder), what)
    return DemoRow.read(what, folder)


def _alternatives(base: RunSpec, folder: Path, samples: FederatedDataset, rounds: int) -> list[DemoRow]:
    """Simulate what else could be done with these devices and rows."""
    replace = msgspec.structs.replace
    fl = replace(base, scheme="fl", clusters=None)
    half = {"fail": f"server@{_DETECTOR_HALF}"}
    paper = replace(base, learn={}, rounds=rounds, fail=f"server@{rounds // 2}", evaluate_every=max(1, rounds // 10))
    of_paper = {"scheme": "fl", "clusters": None, "on_head_failure": "freeze"}
    return [
        _simulated_row(replace(fl, **half, on_head_failure="freeze"), folder / "fl", "FL, training stops", samples),
        _simulated_row(
            replace(fl, fail="server@0", on_head_failure="isolate"),
            folder / "alone",
            "each device alone, mean",
            samples,
        ),
        _simulated_row(
            replace(paper, on_head_failure="elect"), folder / "paper", "the paper's autoencoder, a member takes over"
        ),
        _simulated_row(replace(paper, **of_paper), folder / "paper-fl", "the paper's autoencoder, FL, training stops"),
        _simulated_row(replace(base, devices=1, clusters=1), folder / "central", "all rows in one place, nobody dies"),
    ]


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
    """Refuse to go on after another failure than the one that was planned."""
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


def _show_table(rows: Sequence[DemoRow]) -> None:
    from tolfl.cli.output import console_for_tables, new_table, number

    table = new_table("", "AUROC", "devices in the last round", "what is left")
    for row in rows:
        table.add_row(row.what, number(row.summary["auroc"]), _last_round(row), _left(row))
    console_for_tables().print(table)


def _last_round(row: DemoRow) -> str:
    if row.summary["n_devices"] == 1:
        return ""
    last = max(record.round or 0 for record in row.rounds)
    together = max(len(record.included) for record in row.rounds if record.round == last)
    is_last = last == row.summary["rounds"] - 1
    return f"{together} of {row.summary['n_devices']}" + ("" if is_last else f" (round {last})")


def _left(row: DemoRow) -> str:
    n_models, what = len(row.summary["auroc_per_model"]), "detector" if row.summary["learn"] == "detector" else "model"
    if not n_models:
        return "no detector: thresholds were to come"
    return f"one {what}" if n_models == 1 else f"{n_models} {what}s, one per device"


def _show_what_happened(told: DemoRow, twin: DemoRow | None) -> bool:
    """Say what the kill cost, and whether real and simulated detectors are the same file; False: they should be."""
    from tolfl.cli.output import console_for_tables
    from tolfl.runs.failure_history import FailureHistory, sentence

    console = console_for_tables()
    history = FailureHistory.of(told.records)
    console.print()
    console.print(" ".join(sentence(one, history.stages) for one in history.incidents))
    if twin is None:
        return True
    if detector_bytes(told.folder) == detector_bytes(twin.folder):
        console.print("Every survivor left the same file, and it is the one that the simulator predicted, bit by bit.")
        return True
    console.print("The detector differs from the one that the simulator predicted.")
    taken_part = [[(line.round, line.included) for line in row.rounds] for row in (told, twin)]
    if taken_part[0] != taken_part[1]:
        console.print("A device was missing from some rounds: on a busy machine one may be suspected for a while.")
        return True
    return False


def detector_bytes(folder: Path) -> set[bytes]:
    """Return the detector of a run directory, as it and each of its devices has it: one, if all agree."""
    return {path.read_bytes() for path in [folder / "detector.tolfl", *folder.glob("devices/*/detector.tolfl")]}


def _show_alarms(told: DemoRow, samples: FederatedDataset) -> None:
    """Let each survivor score rows that nobody has seen, with its own file; say how many raise an alarm, and why."""
    import numpy as np

    from tolfl.cli.output import console_for_tables
    from tolfl.detect.detector import Detector

    assert samples.test is not None
    assert samples.is_anomalous is not None
    rng = np.random.default_rng(told.summary["seed"])
    survivors: list[int] = told.summary["survivors"]
    usual, unusual = (
        rng.permutation(np.flatnonzero(samples.is_anomalous == wanted))[: n_rows * len(survivors)]
        for wanted, n_rows in ((False, _USUAL_ROWS), (True, _UNUSUAL_ROWS))
    )
    n_false = n_found = 0
    alarms: list[str] = []
    for place, device in enumerate(survivors):
        own = told.folder / "devices" / str(device) / "detector.tolfl"  # of a process; a simulated fleet has one file
        detector = Detector.load(own if own.exists() else told.folder / "detector.tolfl")
        n_false += int(detector.verdicts(samples.test[usual[place :: len(survivors)]]).sum())
        put_in = samples.test[unusual[place :: len(survivors)]]
        found = put_in[detector.verdicts(put_in)]
        n_found += len(found)
        if len(found) and len(alarms) < _ALARMS_SHOWN:
            alarms.append(f"  device {device}: {_alarm(detector, found[0])}")
    console = console_for_tables()
    console.print()
    console.print(
        f"Now each of the {len(survivors)} survivors scores rows that nobody has seen, with the detector that it has. "
        f"Of {len(usual)} usual rows {n_false} raise an alarm ({n_false / len(usual):.1%}; 1 % was asked for), of "
        f"{len(unusual)} anomalies put in {n_found}. The first alarm of the first {_ALARMS_SHOWN}:"
    )
    for line in alarms:
        console.print(line, soft_wrap=True)


def _alarm(detector: Detector, row: Samples) -> str:
    why = detector.explain(row)
    largest = why.features[0]
    return (
        f"score {why.score:.0f}, limit {why.threshold:.0f}; {largest.name} is "
        f"{largest.value:.3g}{largest.unit and ' ' + largest.unit}, expected {largest.expected:.3g}"
    )


def _show_files(rows: Sequence[DemoRow], folder: Path) -> None:
    """Write the figure and the report, and say where everything is and what to do next."""
    from tolfl.cli.output import console_for_tables
    from tolfl.cli.run_commands import ReportFormat, write_report
    from tolfl.runs.run_figures import has_curves, plot_curves
    from tolfl.runs.run_reader import read_run
    from tolfl.runs.run_report import report_context

    figure, page = folder / "server-lost.png", folder / "report.html"
    curved = [row for row in rows if has_curves([(row.what, list(row.records))])]
    drawn = plot_curves([(row.what.rpartition(", ")[2], list(row.records)) for row in curved])
    ends = ", ".join(f"{row.summary['auroc']:.3f} if {row.what.rpartition(', ')[2]}" for row in curved)
    drawn.suptitle(f"The server is lost half way: {ends}", fontsize=10)
    try:
        drawn.savefig(figure, dpi=130)
    except OSError as error:
        problem = f"the figure cannot be written ({error.strerror}); choose another --out"
        raise RunDirectoryError(folder, problem) from None
    told = rows[0]
    write_report(report_context(read_run(told.folder)), page, ReportFormat.HTML)
    console = console_for_tables()
    console.print()
    console.print(f"figure:    {figure}", soft_wrap=True)
    console.print(f"report:    {page}  (open it in a browser)", soft_wrap=True)
    console.print(f"replay:    tolfl dashboard {told.folder}", soft_wrap=True)
    console.print(f"detector:  tolfl inspect {told.folder / 'detector.tolfl'}", soft_wrap=True)
    console.print("your table: tolfl up --learn detector --data readings.csv --device-column site")
