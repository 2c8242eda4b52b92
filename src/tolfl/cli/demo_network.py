"""The real part of `tolfl demo`: ten processes and a head that is killed; or one sentence about why not here."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from tolfl.cli.doctor import DEVICE_BYTES, free_memory
from tolfl.core.errors import TolFLError

if TYPE_CHECKING:
    from tolfl.core.spec import RunSpec
    from tolfl.datasets import FederatedDataset
    from tolfl.net.launcher import FleetView, Launcher


class NoNetworkError(TolFLError, OSError):
    """A real network cannot run on this machine, or did not survive on it."""


def run_network(spec: RunSpec, out: Path, data: FederatedDataset) -> None:
    """Run a fleet of real processes over mutual TLS and leave its run directory."""
    from tolfl.net.collect import collect
    from tolfl.net.launcher import Launcher

    check_memory(spec.devices, free_memory())
    launcher = Launcher(spec, out, data=data, is_insecure=False)
    _watch(launcher)
    collect(launcher.directory, spec, data, launcher.survivors)


def check_memory(n_devices: int, free: int | None) -> None:
    """Find out before ten processes have found out that memory is short; `free`: None where nobody knows."""
    needed = n_devices * DEVICE_BYTES
    if free is not None and free < needed:
        short = f"{free / 2**30:.1f} GiB of memory are free"
        raise NoNetworkError(f"{short}, and {n_devices} processes want {needed / 2**30:.1f} GiB")


def _watch(launcher: Launcher) -> None:
    from tolfl.net.collect import RoundScorer

    scorer = RoundScorer(launcher.spec, launcher.data, launcher.out / "devices", lambda: launcher.now_s)
    with _terminable():
        try:
            _start(launcher)
            with _shown(launcher) as refresh:
                for view in launcher:
                    refresh(view)
                    for line in scorer.look():
                        launcher.note(line)
                    _check_nobody_else_died(launcher)
        finally:
            launcher.stop()
        for line in scorer.finish():
            launcher.note(line)


def _start(launcher: Launcher) -> None:
    try:
        launcher.start()
    except OSError as error:
        if isinstance(error, TolFLError):
            raise
        # A limit on processes (ulimit -u) shows as "Resource temporarily unavailable".
        what = f"{launcher.spec.devices} processes cannot be started ({error.strerror})"
        raise NoNetworkError(f"{what}: a limit on processes (ulimit -u), or too little memory") from None


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


@contextmanager
def _shown(launcher: Launcher) -> Iterator[Callable[[FleetView], None]]:
    """Draw the live table where that works; on a terminal that cannot, a line now and then; elsewhere nothing."""
    from tolfl.cli.fleet_table import live_table

    if not (sys.stderr.isatty() and Console(stderr=True).is_dumb_terminal):
        with live_table(launcher) as refresh:
            yield refresh
        return
    told = -1

    def tell(view: FleetView) -> None:
        nonlocal told
        tenths = 10 * view.rounds_done // max(1, view.rounds)
        if tenths > told:
            told = tenths
            typer.echo(f"round {view.rounds_done} of {view.rounds}", err=True)

    yield tell


@contextmanager
def _terminable() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C, so that no device is left behind."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
