"""`tolfl demo`: ten real devices train a detector, their server is killed, the survivors finish it and raise alarms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli.flags import free_bytes
from tolfl.cli.output import notify, number, print_lines, save_figure, table_of
from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.records import RoundClosed
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.datasets import FederatedDataset
    from tolfl.datasets.federated import Samples
    from tolfl.detect.detector import Detector
    from tolfl.net.launcher import Launcher
    from tolfl.runs.run_folder import RunFolder

#: The round in which the server is killed: half of a detector's, before its cells and thresholds are final.
_DETECTOR_HALF = 11
_REAL, _SIMULATED = "real", "simulated"  #: folders of the run by processes, and of its simulated counterpart
#: Rows put in at the end, for each device that is left.
_USUAL_ROWS, _UNUSUAL_ROWS = 60, 15
_ALARMS_SHOWN = 3


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
    from tolfl.runs.outcome import data_for
    from tolfl.runs.run_folder import read_run

    folder = _folder(out)
    base = RunSpec(data=data, devices=devices, clusters=min(3, devices), seed=seed, learn={"what": "detector"})
    chosen = msgspec.structs.replace(base, fail=f"server@{_DETECTOR_HALF}", on_head_failure="elect")
    how = "in the simulator" if simulated else "each a process of its own, over mutual TLS"
    print_lines(
        f"{devices} devices learn one anomaly detector together, each from its own rows of {data} (seed {seed}), {how}."
        f" After {_DETECTOR_HALF} rounds the server, device 0, is killed."
    )
    samples = data_for(chosen)
    told = _SIMULATED if simulated or not _has_real_run(chosen, folder, samples) else _REAL
    specs = {_SIMULATED: (_TAKEN_OVER, chosen), **_alternatives(base, rounds)}
    for name, (what, spec) in specs.items():
        _simulate(what, spec, folder / name, samples)
    runs = {_TAKEN_OVER + " (real processes)": read_run(folder / _REAL)} if told == _REAL else {}
    runs |= {what: read_run(folder / name) for name, (what, _) in specs.items() if name != _SIMULATED or name == told}
    print_lines("")
    _show_table(runs)
    is_kept = _show_what_happened(folder, told)
    _show_alarms(folder / told, samples)
    _show_files(runs, folder, told)
    if not is_kept:
        raise typer.Exit(1)


def _folder(out: Path | None) -> Path:
    """Return an empty folder."""
    if out is not None:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise RunDirectoryError(out, "is not empty; choose another --out")
        free_bytes(out)
        return out
    number, folder = 1, Path("runs/demo")
    while folder.exists():
        number += 1
        folder = Path(f"runs/demo-{number}")
    return folder


# -- runs -------------------------------------------------------------------------------------------------------

_TAKEN_OVER = "Tol-FL, a member takes over"


def _has_real_run(spec: RunSpec, folder: Path, samples: FederatedDataset) -> bool:
    """Train the detector with real processes; False where this machine does not allow them."""
    try:
        run_network(spec, folder / _REAL, samples)
    except NoNetworkError as error:
        notify(f"no real network here: {error}; the same in the simulator")
        return False
    except KeyboardInterrupt:
        notify("stopped; all devices have ended")
        raise typer.Exit(130) from None
    return True


def _alternatives(base: RunSpec, rounds: int) -> dict[str, tuple[str, RunSpec]]:
    """Return the alternatives with the same devices and rows, by folder."""

    def but(spec: RunSpec = base, **changes: Any) -> RunSpec:
        return msgspec.structs.replace(spec, **changes)

    paper = but(learn={}, rounds=rounds, fail=f"server@{rounds // 2}", evaluate_every=max(1, rounds // 10))
    alone: dict[str, Any] = {"scheme": "fl", "clusters": None}
    stops = {**alone, "on_head_failure": "freeze"}
    return {
        "fl": ("FL, training stops", but(**stops, fail=f"server@{_DETECTOR_HALF}")),
        "alone": ("each device alone, mean", but(**alone, fail="server@0", on_head_failure="isolate")),
        "paper": ("the paper's autoencoder, a member takes over", but(paper, on_head_failure="elect")),
        "paper-fl": ("the paper's autoencoder, FL, training stops", but(paper, **stops)),
        "central": ("all rows in one place, nobody dies", but(devices=1, clusters=1)),
    }


def _simulate(what: str, spec: RunSpec, folder: Path, samples: FederatedDataset) -> None:
    from tolfl.cli.progress import follow
    from tolfl.sim.simulation import Runs

    follow(Runs(spec, samples if spec.learn and spec.devices > 1 else None, out=folder), what)


class NoNetworkError(TolFLError, OSError):
    """A real network cannot run on this machine, or failed on it."""


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
    """Raise an error if memory is too short for the processes; `free`: None where it is not known."""
    from tolfl.cli.doctor import DEVICE_BYTES

    needed = n_devices * DEVICE_BYTES
    if free is not None and free < needed:
        short = f"{free / 2**30:.1f} GiB of memory are free"
        raise NoNetworkError(f"{short}, and {n_devices} processes want {needed / 2**30:.1f} GiB")


def _check_nobody_else_died(launcher: Launcher) -> None:
    """Raise an error after any other failure than the planned one."""
    planned = {failure.device for failure in launcher.plan.failures}
    for process in launcher.processes:
        code = process.exit_code
        if code and (code > 0 or process.device not in planned):
            log = process.folder / "log.txt"
            # A limit on threads, or too little memory, ends a process in many ways.
            how = f"was killed by signal {-code}" if code < 0 else f"failed: {_last_line(log)}"
            raise NoNetworkError(f"device {process.device} {how}; see {log}, ulimit -u and free")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    said = [line.removeprefix("tolfl: ") for line in lines if line.strip()]
    return said[-1] if said else "its log is empty"


# -- what is shown ----------------------------------------------------------------------------------------------


def _rounds(run: RunFolder) -> list[RoundClosed]:
    return [record for record in run.records if isinstance(record, RoundClosed)]


def _show_table(runs: Mapping[str, RunFolder]) -> None:
    rows = []
    for what, run in runs.items():
        assert run.summary is not None
        n_models = len(run.summary["auroc_per_model"])
        kind = "detector" if run.spec.learn else "model"
        left = f"one {kind}" if n_models == 1 else f"{n_models} {kind}s, one per device"
        left = left if n_models else "no detector: stopped before thresholds"
        rows.append((what, number(run.auroc), "" if run.spec.devices == 1 else _last_round(run), left))
    print_lines(table_of(["", "AUROC", "devices in the last round", "what is left"], rows))


def _last_round(run: RunFolder) -> str:
    last = run.rounds_done - 1
    together = max(len(record.included) for record in _rounds(run) if record.round == last)
    return f"{together} of {run.spec.devices}" + ("" if run.rounds_done == run.rounds else f" (round {last})")


def _show_what_happened(folder: Path, told: str) -> bool:
    """Print the cost of the kill; return False if real and simulated detectors should be equal and are not."""
    from tolfl.runs.descriptions import sentence
    from tolfl.runs.failure_history import FailureHistory
    from tolfl.runs.run_folder import read_run

    run = read_run(folder / told)
    history = FailureHistory.of(run.records)
    print_lines("")
    print_lines(" ".join(sentence(one, history.stages) for one in history.incidents))
    if told == _SIMULATED:
        return True
    if detector_bytes(folder / told) == detector_bytes(folder / _SIMULATED):
        print_lines("Every survivor left the same file, and it is the one that the simulator predicted, bit by bit.")
        return True
    print_lines("The detector differs from the one that the simulator predicted.")
    real, simulated = (
        [(line.round, line.included) for line in _rounds(one)] for one in (run, read_run(folder / _SIMULATED))
    )
    if real != simulated:
        print_lines("A device was missing from some rounds: on a busy machine one may be suspected for a while.")
    return real != simulated


def detector_bytes(folder: Path) -> set[bytes]:
    """Return the detectors of a run directory and of its devices: one, if all are equal."""
    return {path.read_bytes() for path in [folder / "detector.tolfl", *folder.glob("devices/*/detector.tolfl")]}


def _show_alarms(folder: Path, samples: FederatedDataset) -> None:
    """Score new rows with each survivor's own file; print how many raise an alarm, and why."""
    import numpy as np

    from tolfl.detect.detector import Detector
    from tolfl.runs.run_folder import read_run

    run = read_run(folder)
    assert samples.test is not None
    assert samples.is_anomalous is not None
    assert run.summary is not None
    survivors = run.summary["survivors"]
    rng = np.random.default_rng(run.spec.seed)
    usual, unusual = (
        rng.permutation(np.flatnonzero(samples.is_anomalous == wanted))[: n_rows * len(survivors)]
        for wanted, n_rows in ((False, _USUAL_ROWS), (True, _UNUSUAL_ROWS))
    )
    n_false = n_found = 0
    alarms: list[str] = []
    for place, device in enumerate(survivors):
        own = folder / "devices" / str(device) / "detector.tolfl"  # of a process; a simulated fleet has one file
        detector = Detector.load(own if own.exists() else folder / "detector.tolfl")
        n_false += int(detector.verdicts(samples.test[usual[place :: len(survivors)]]).sum())
        put_in = samples.test[unusual[place :: len(survivors)]]
        found = put_in[detector.verdicts(put_in)]
        n_found += len(found)
        if len(found):
            alarms.append(f"  device {device}: {_alarm(detector, found[0])}")
    print_lines("")
    print_lines(
        f"Now each of the {len(survivors)} survivors scores new rows, with the detector that it has. "
        f"Of {len(usual)} usual rows {n_false} raise an alarm ({n_false / len(usual):.1%}; 1 % was asked for), of "
        f"{len(unusual)} anomalies put in {n_found}. The first alarm of the first {_ALARMS_SHOWN}:"
    )
    print_lines("\n".join(alarms[:_ALARMS_SHOWN]))


def _alarm(detector: Detector, row: Samples) -> str:
    why = detector.explain(row)
    largest = why.features[0]
    return (
        f"score {why.score:.0f}, limit {why.threshold:.0f}; {largest.name} is "
        f"{largest.value:.3g}{largest.unit and ' ' + largest.unit}, expected {largest.expected:.3g}"
    )


def _show_files(runs: Mapping[str, RunFolder], folder: Path, told: str) -> None:
    """Write the figure and the report, and print all paths and the next commands."""
    from tolfl.cli.run_commands import write_report
    from tolfl.runs.run_figures import has_curves, plot_curves
    from tolfl.runs.run_folder import read_run
    from tolfl.runs.run_report import report_context

    figure, page = folder / "server-lost.png", folder / "report.html"
    curved = {what.rpartition(", ")[2]: run for what, run in runs.items() if has_curves([(what, run.records)])}
    drawn = plot_curves([(ending, run.records) for ending, run in curved.items()])
    ends = ", ".join(f"{run.auroc:.3f} if {ending}" for ending, run in curved.items())
    drawn.suptitle(f"The server is lost half way: {ends}", fontsize=10)
    save_figure(drawn, figure)
    write_report(report_context(read_run(folder / told)), page, "html")
    print_lines(
        f"""
figure:    {figure}
report:    {page}  (open it in a browser)
replay:    tolfl dashboard {folder / told}
detector:  tolfl inspect {folder / told / "detector.tolfl"}
your table: tolfl up --learn detector --data readings.csv --device-column site"""
    )
