"""A fleet of tolfl on this machine, as `tolfl up` starts it: real processes, mutual TLS."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.fleets import Fleet
from benchmarks.flower_deployed.stalls import Round, disturbed_s
from tolfl.core.records import AnyRecord, RoundClosed
from tolfl.core.spec import RunSpec
from tolfl.learners.layouts import layout
from tolfl.net.launcher import Launcher


def roles_of(spec: RunSpec) -> dict[str, int]:
    """Return a member of the first cluster, the head of the second, and the head of the last."""
    clusters = layout(spec).clusters
    return {"client": clusters[0][-1], "head": clusters[1][0], "closer": clusters[-1][0]}


class SecureFleet(Fleet):
    """The fleet of the other benchmarks, with what `tolfl up` does by default."""

    def __init__(self, spec: RunSpec, folder: Path) -> None:
        self.launcher = Launcher(spec, folder)
        self.devices = range(spec.devices)
        self.lines: list[AnyRecord] = []

    def __enter__(self) -> SecureFleet:
        self.launcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.launcher.stop()

    def comparable_rounds(self, since_s: float = 0.0) -> list[Round]:
        """Return the rounds after a moment, with the fields that Flower's side has, too."""
        return [Round(line.time_s, len(line.included), _number(line)) for line in self.rounds(since_s)]


def _number(line: RoundClosed) -> int:
    return 1 + (line.round or 0)


def measure(
    spec: RunSpec, folder: Path, quiet_rounds: int, kills: int, rng: np.random.Generator
) -> tuple[float, list[float], dict[str, list[float]]]:
    """Return the seconds to the first round of all, those of quiet rounds, and of the rounds that kills disturbed."""
    began = time.monotonic()
    with SecureFleet(spec, folder) as fleet:
        fleet.wait_for_round_of(fleet.devices, since_s=0.0, timeout_s=300)
        startup_s = time.monotonic() - began
        quiet = fleet.wait_for_rounds(quiet_rounds)
        disturbed: dict[str, list[float]] = {}
        for _ in range(kills):
            for role, device in roles_of(spec).items():
                disturbed.setdefault(role, []).append(_kill(fleet, device, rng))
                fleet.wait_until(lambda d=device: not fleet.launcher.processes[d].is_running, "it is gone")  # type: ignore[misc]
                fleet.launcher.revive(device)
                fleet.wait_for_round_of(fleet.devices, since_s=fleet.now_s, timeout_s=300)
    return startup_s, quiet, disturbed


def _kill(fleet: SecureFleet, device: int, rng: np.random.Generator) -> float:
    time.sleep(rng.uniform(0, statistics.median(fleet.wait_for_rounds(5))))
    at_s = fleet.now_s
    fleet.launcher.kill(device)
    others = [one for one in fleet.devices if one != device]
    fleet.wait_for_round_of(others, since_s=at_s)
    return disturbed_s(fleet.comparable_rounds(since_s=at_s - 30), at_s, len(others))
