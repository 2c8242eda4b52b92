"""`python -m tests.net.soak` (`make soak`): thousands of failures on ten real devices, then their history is checked.

Every second or so a device is killed, frozen or cut off, and brought back some seconds later; four at most are
disturbed at a time. In the end all must train together again, everything that anybody wrote must be one tree of rounds
in which no sample counts twice, and the model must be the one that the included sets of the history that won lead to.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np

from tests.net.fleet_processes import Fleet, fleet_of, small_spec
from tests.net.replay import lines_of_devices
from tests.net.test_freezes import check_history
from tolfl.core.errors import TolFLError
from tolfl.core.records import RoundClosed

DEVICES, CLUSTERS, MOST_DISTURBED = 10, 3, 4
KINDS = ("killed", "frozen", "cut")


class Storm:
    """Failures of a fleet: one at a time is begun, several go on."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet, self.counts = fleet, Counter[str]()
        self._rng = np.random.default_rng(seed)
        self._disturbed: dict[int, tuple[str, float]] = {}  #: how, and until when

    def strike(self) -> None:
        """Begin a failure, unless enough are disturbed."""
        free = [device for device in range(DEVICES) if device not in self._disturbed]
        if len(self._disturbed) >= MOST_DISTURBED:
            return
        kind = str(self._rng.choice([kind for kind in KINDS if kind != "cut" or not self._is_cut]))
        device = int(self._rng.choice(free))
        match kind:
            case "killed":
                self.fleet.launcher.kill(device)
            case "frozen":
                self.fleet.launcher.freeze(device)
            case "cut":
                self._tell_cut(device)
        self._disturbed[device] = kind, time.monotonic() + self._rng.uniform(0.3, 5.0)
        self.counts[kind] += 1

    @property
    def _is_cut(self) -> bool:
        return any(kind == "cut" for kind, _ in self._disturbed.values())

    def _tell_cut(self, cut: int | None) -> None:
        """Tell everybody who is cut off; a frozen device is told when it is thawed."""
        for device in self.fleet.running:
            if self._disturbed.get(device, ("", 0.0))[0] != "frozen":
                others = [one for one in range(DEVICES) if one != device]
                with suppress(TolFLError):  # it may be starting
                    self.fleet.cut(device, others if device == cut else [] if cut is None else [cut])

    def relent(self, is_over: bool = False) -> None:
        """End the failures whose time has come, or all."""
        for device, (kind, until_s) in list(self._disturbed.items()):
            if not is_over and time.monotonic() < until_s:
                continue
            match kind:
                case "killed":
                    self.fleet.until(lambda d=device: d not in self.fleet.running, "it is dead")  # type: ignore[misc]
                    self.fleet.launcher.revive(device)
                case "frozen":
                    self.fleet.launcher.thaw(device)
            del self._disturbed[device]
            if kind != "killed":
                cut = [one for one, (what, _) in self._disturbed.items() if what == "cut"]
                self._tell_cut(cut[0] if cut else None)


def soak(n_failures: int, seed: int, folder: Path, pause_s: float = 1.0, longest_s: float = math.inf) -> None:
    """Run it, with fewer failures if there is no time for more; an AssertionError says what was broken."""
    spec = small_spec(DEVICES, CLUSTERS, rounds=10_000_000, min_devices=DEVICES // 2 + 1)
    with fleet_of(spec, folder / "run") as fleet:
        everybody = list(range(DEVICES))
        fleet.until_all_train(everybody, rounds=3)
        storm, began_s = Storm(fleet, seed), time.monotonic()
        while storm.counts.total() < n_failures and time.monotonic() < began_s + longest_s:
            next_s = time.monotonic() + pause_s
            storm.relent()
            storm.strike()
            fleet.until(lambda at_s=next_s: time.monotonic() >= at_s, "time passes")  # type: ignore[misc]
            if storm.counts.total() % 50 == 0:
                print(f"{storm.counts.total()} failures, {fleet.rounds_done} rounds", flush=True)
        took_s = time.monotonic() - began_s
        storm.relent(is_over=True)
        fleet.until_all_train(everybody, rounds=20)
        n_rounds = fleet.rounds_done
        fleet.leave_one_by_one()
    n_closed = sum(isinstance(line, RoundClosed) for line in lines_of_devices(fleet.out))
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(storm.counts.items()))
    print(
        f"{storm.counts.total()} failures ({kinds}) in {took_s:.0f} s, {n_rounds} rounds of {n_closed} closed",
        flush=True,
    )
    check_history(fleet, spec)
    print("one history, no sample twice, and the model that its included sets lead to", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failures", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no failure after so many")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak(arguments.failures, arguments.seed, Path(folder), longest_s=60 * arguments.minutes)


if __name__ == "__main__":
    main()
