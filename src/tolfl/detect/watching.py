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
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.models import Autoencoder, Model
from tolfl.sim.run import Progress, Result, Runs


@dataclass(frozen=True)
class Seen:
    """How far a training is, and what has happened since the last time."""

    model: str  #: `autoencoder` or `pca`
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


def run_watched(spec: RunSpec, data: FederatedDataset, model: Model) -> Result:
    """Run a specification to its end, and tell whoever watches."""
    watcher = _watcher.get()
    runs = Runs(spec, data, model)
    kind = "autoencoder" if isinstance(model, Autoencoder) else "pca"
    n_told, progress = 0, Progress(0, spec.rounds, None)
    for progress in runs:
        records = runs.simulations[0].records
        if watcher is not None:
            watcher(Seen(kind, progress, records[n_told:]))
        n_told = len(records)
    if watcher is not None:
        watcher(Seen(kind, progress, runs.results[0].records[n_told:]))
    return runs.results[0]
