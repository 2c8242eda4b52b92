"""`tolfl demo`: ten real devices train a detector, their server is killed, the survivors finish it and raise alarms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli.flags import free_bytes, new_directory
from tolfl.cli.output import notify, number, print_lines, table_of
from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.records import RoundClosed
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from rich.table import Table

    from tolfl.datasets import FederatedDataset
    from tolfl.datasets.federated import Samples
    from tolfl.detect.detector import Detector
    from tolfl.net.launcher import Launcher
    from tolfl.runs.run_folder import RunFolder

#: The round in which the server is killed: half of a detector's, before its cells and thresholds are final.
_DETECTOR_HALF = 11
_PAPER_ROUNDS = 50
_REAL, _SIMULATED = "real", "simulated"  #: folders of the run by processes, and of its simulated counterpart
_TAKEN_OVER = "Tol-FL, a member takes over"
#: Rows put in at the end, for each device that is left.
_USUAL_ROWS, _UNUSUAL_ROWS = 60, 15
_ALARMS_SHOWN = 3


def demo(
    seed: Annotated[int, typer.Option(min=0, help="The seed of everything random.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Where runs and report go. (default: a new folder below runs/)")
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

    Example: tolfl demo --seed 3

    Example: tolfl demo --simulated
    """
    from tolfl.runs.outcome import data_for
    from tolfl.runs.run_folder import read_run

    if out is not None:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise RunDirectoryError(out, "is not empty; choose another --out")
        free_bytes(out)
    folder = out or new_directory("demo", data)
    base = RunSpec(data=data, devices=devices, clusters=min(3, devices), seed=seed, learn={"what": "detector"})
    chosen = msgspec.structs.replace(base, fail=f"server@{_DETECTOR_HALF}", on_head_failure="elect")
    how = "in the simulator" if simulated else "each a process of its own, over mutual TLS"
    print_lines(
        f"{devices} devices learn one anomaly detector together, each from its own rows of {data} (seed {seed}), {how}."
        f" After {_DETECTOR_HALF} rounds the server, device 0, is killed."
    )
    samples = data_for(chosen)
    if not simulated:
        try:
            run_network(chosen, folder / _REAL, samples)
        except OSError as error:
            notify(f"no real network here: {error.strerror or error}; the same in the simulator")
            simulated = True
    told = folder / (_SIMULATED if simulated else _REAL)
    specs = {_SIMULATED: (_TAKEN_OVER, chosen), **_alternatives(base)}
    for name, (what, spec) in specs.items():
        _simulate(what, spec, folder / name, samples)
    runs = {what: read_run(folder / name) for name, (what, _) in specs.items()}
    if not simulated:
        runs = {f"{_TAKEN_OVER} (real processes)": read_run(told)} | runs
        del runs[_TAKEN_OVER]
    print_lines("", _table(runs), "")
    is_kept = _show_what_happened(told, folder / _SIMULATED)
    _show_alarms(told, samples)
    _show_files(told, folder / "report.html")
    if not is_kept:
        raise typer.Exit(1)


# -- runs -------------------------------------------------------------------------------------------------------


def _alternatives(base: RunSpec) -> dict[str, tuple[str, RunSpec]]:
    """Return the alternatives with the same devices and rows, by folder."""
    but = msgspec.structs.replace
    paper = but(base, learn={}, rounds=_PAPER_ROUNDS, fail=f"server@{_PAPER_ROUNDS // 2}")
    alone: dict[str, Any] = {"scheme": "fl", "clusters": None}
    stops = {**alone, "on_head_failure": "freeze"}
    return {
        "fl": ("FL, training stops", but(base, **stops, fail=f"server@{_DETECTOR_HALF}")),
        "alone": ("each device alone, mean", but(base, **alone, fail="server@0", on_head_failure="isolate")),
        "paper": ("the paper's autoencoder, a member takes over", but(paper, on_head_failure="elect")),
        "paper-fl": ("the paper's autoencoder, FL, training stops", but(paper, **stops)),
        "central": ("all rows in one place, nobody dies", but(base, devices=1, clusters=1)),
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
    # A limit on processes (ulimit -u) shows as "Resource temporarily unavailable".
    if not watch_fleet(launcher, lambda: _check_nobody_else_died(launcher)):
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
            # A limit on threads, or too little memory, ends a process in many ways.
            how = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
            raise NoNetworkError(f"device {process.device} {how}; see {process.folder / 'log.txt'}, ulimit -u and free")


# -- what is shown ----------------------------------------------------------------------------------------------


def _rounds(run: RunFolder) -> list[RoundClosed]:
    return [record for record in run.records if isinstance(record, RoundClosed)]


def _table(runs: Mapping[str, RunFolder]) -> Table:
    rows = []
    for what, run in runs.items():
        assert run.summary is not None
        n_models, last = len(run.summary["auroc_per_model"]), run.rounds_done - 1
        kind = "detector" if run.spec.learn else "model"
        left = f"one {kind}" if n_models == 1 else f"{n_models} {kind}s, one per device"
        left = left if n_models else "no detector: stopped before thresholds"
        together = max(len(record.included) for record in _rounds(run) if record.round == last)
        inside = f"{together} of {run.spec.devices}" + ("" if run.rounds_done == run.rounds else f" (round {last})")
        rows.append((what, number(run.auroc), inside, left))
    return table_of(["", "AUROC", "devices in the last round", "what is left"], rows)


def _show_what_happened(told: Path, simulated: Path) -> bool:
    """Print the cost of the kill; return False if real and simulated detectors should be equal and are not."""
    from tolfl.runs.descriptions import sentence
    from tolfl.runs.failure_history import FailureHistory
    from tolfl.runs.run_folder import read_run

    run = read_run(told)
    history = FailureHistory.of(run.records)
    print_lines(" ".join(sentence(one, history.stages) for one in history.incidents))
    if told == simulated:
        return True
    if detector_bytes(told) == detector_bytes(simulated):
        print_lines("Every survivor left the same file, and it is the one that the simulator predicted, bit by bit.")
        return True
    print_lines("The detector differs from the one that the simulator predicted.")
    rounds, predicted = ([(one.round, one.included) for one in _rounds(of)] for of in (run, read_run(simulated)))
    if rounds != predicted:
        print_lines("A device was missing from some rounds: on a busy machine one may be suspected for a while.")
    return rounds != predicted


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
    survivors, rng = run.summary["survivors"], np.random.default_rng(run.spec.seed)
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
        alarms += [f"  device {device}: {_alarm(detector, one)}" for one in found[:1]]
    print_lines(
        "",
        f"Now each of the {len(survivors)} survivors scores new rows, with the detector that it has. "
        f"Of {len(usual)} usual rows {n_false} raise an alarm ({n_false / len(usual):.1%}; 1 % was asked for), of "
        f"{len(unusual)} anomalies put in {n_found}. The first alarm of the first {_ALARMS_SHOWN}:",
        *alarms[:_ALARMS_SHOWN],
    )


def _alarm(detector: Detector, row: Samples) -> str:
    why = detector.explain(row)
    largest = why.features[0]
    return (
        f"score {why.score:.0f}, limit {why.threshold:.0f}; {largest.name} is "
        f"{largest.value:.3g}{largest.unit and ' ' + largest.unit}, expected {largest.expected:.3g}"
    )


def _show_files(told: Path, page: Path) -> None:
    """Write the report, and print all paths and the next commands."""
    from tolfl.cli.run_commands import write_report
    from tolfl.runs.run_folder import read_run
    from tolfl.runs.run_report import report_context

    write_report(report_context(read_run(told)), page, "html")
    print_lines(
        "",
        f"report:    {page}  (open it in a browser)",
        f"replay:    tolfl dashboard {told}",
        f"detector:  tolfl inspect {told / 'detector.tolfl'}",
        "your table: tolfl up --learn detector --data readings.csv --device-column site",
    )
