"""Hear what happens in a training while it goes on: for progress bars and trackers.

Training is asked for by settings, several calls away from where rounds are computed; who wants to watch says so around
the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tolfl.core.records import AnyRecord
from tolfl.sim.batch_trainer import BatchTrainer
from tolfl.sim.simulation import Progress, Simulation


@dataclass(frozen=True)
class Seen:
    """How far a training is, and what has happened since the last time."""

    progress: Progress
    records: Sequence[AnyRecord]


Watcher = Callable[[Seen], None]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Tell `watcher` about every round that is trained inside the context."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def watched(simulation: Simulation) -> Simulation:
    """Compute a simulation to its end, telling whoever watches; return it."""
    watcher, trainer, n_told = _watcher.get(), BatchTrainer(), 0
    while works := simulation.next_works():
        trainer.compute(works)
        simulation.collect()
        if watcher is not None:
            watcher(Seen(_progress(simulation), simulation.records[n_told:]))
        n_told = len(simulation.records)
    simulation.collect()
    if watcher is not None:
        watcher(Seen(_progress(simulation), simulation.records[n_told:]))
    return simulation


def _progress(simulation: Simulation) -> Progress:
    learner, done = simulation.learner, simulation.rounds_done
    loss = simulation.accounts[-1].loss if simulation.accounts else None
    return Progress(done, learner.rounds, loss, learner.all_stages())
