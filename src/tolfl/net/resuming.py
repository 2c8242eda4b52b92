"""What a run that is resumed has behind it: how far it came, who has ended, who is gone for good, who still runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tolfl.core.errors import RunDirectoryError
from tolfl.core.failures import FailurePlan
from tolfl.net.node_config import NodeConfig
from tolfl.net.ports import is_listening
from tolfl.net.storage import has_round, planned_deaths, read_round, round_path


@dataclass(frozen=True)
class Past:
    """What the folders of the devices tell of a run."""

    rounds_done: int = 0
    ended: tuple[int, ...] = ()  #: who has come to an end, with the last model
    is_over: bool = False  #: there is nothing left to train
    gone: frozenset[int] = frozenset()  #: who must not be started: dead as planned, or out with a dead head


def past_of(folders: Sequence[Path], plan: FailurePlan) -> Past:
    """Read what devices left in their folders when a run was interrupted."""
    kept = {d: read_round(round_path(folder)) for d, folder in enumerate(folders) if has_round(folder)}
    rounds_done = max((record.version.round for record, _ in kept.values()), default=0)
    dead = {d for d, folder in enumerate(folders) if _is_planned_dead(d, folder, plan, rounds_done)}
    over = {d for d, (_, stored) in kept.items() if stored.stopped == "over"} - dead
    dropped = {d for d, (_, stored) in kept.items() if stored.stopped == "dropped"} - dead
    left_to_run = set(range(len(folders))) - dead - dropped
    return Past(rounds_done, tuple(sorted(over | dropped)), bool(over) or not left_to_run, frozenset(dead | dropped))


def _is_planned_dead(device: int, folder: Path, plan: FailurePlan, rounds_done: int) -> bool:
    n_deaths = planned_deaths(folder)
    if not n_deaths:
        return False
    back = plan.of_device(device)[n_deaths - 1].returns_at
    return back is None or back > rounds_done


def check_nobody_runs(out: Path, folders: Sequence[Path]) -> None:
    """Say so if devices of a run are still there: a second process could not take their places."""
    addresses = [NodeConfig.from_file(folder / "node.toml").listen for folder in folders]
    running = [str(device) for device, address in enumerate(addresses) if is_listening(address)]
    if running:
        who = ", ".join(running)
        raise RunDirectoryError(out, f"has devices that are still running ({who}); resume when they have ended")
