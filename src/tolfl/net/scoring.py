"""Scores of closed models while a real fleet trains: beside the training, never in its path."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import cast

from tolfl.core.records import AnyRecord, Evaluated
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.learners import State
from tolfl.learners.registry import learner_of
from tolfl.net.storage import kept_rounds, read_round
from tolfl.runs.evaluation import mean_loss, score_models
from tolfl.runs.outcome import fleet_of, holders_of


class RoundScorer:
    """Scores the models that closers keep in their folders (`keep_models_every`), in a thread of its own."""

    def __init__(self, spec: RunSpec, data: FederatedDataset, devices: Path, now_s: Callable[[], float]) -> None:
        self._learner, self._data = learner_of(fleet_of(spec, data)), data
        self._devices, self._now_s = devices, now_s
        self._is_wanted = spec.evaluate_every > 0 and data.test is not None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scoring")
        self._seen: set[Path] = set()
        self._pending: list[Future[AnyRecord]] = []

    def look(self) -> list[AnyRecord]:
        """Begin to score what is new; return what was scored since the last look, in the order of rounds.

        A model that a slow disk keeps late is scored when it is there, after those of later rounds.
        """
        if not self._is_wanted:
            return []
        for path in kept_rounds(self._devices):
            if path not in self._seen:
                self._seen.add(path)
                self._pending.append(self._thread.submit(self._score, path))
        # One thread ends them in their order; asking each but once loses none that ends meanwhile.
        done = list(takewhile(lambda one: one.done(), self._pending))
        self._pending = self._pending[len(done) :]
        return [one.result() for one in done]

    def finish(self) -> list[AnyRecord]:
        """Return the scores that are still to come."""
        lines = self.look()
        lines += [one.result() for one in self._pending]
        self._pending = []
        self._thread.shutdown()
        return lines

    def _score(self, path: Path) -> AnyRecord:
        record, _ = read_round(path)
        results = self._learner.results(cast("State", record.state))
        holders = holders_of(results, record.included)
        return Evaluated(
            time_s=self._now_s(),
            round=record.version.round - 1,
            version=str(record.version),
            auroc=score_models(results, self._data, holders).auroc,
            loss=mean_loss(results, self._data.pool, holders),
        )
