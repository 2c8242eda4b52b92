"""Makes one run directory of the files of all devices, and scores models while the fleet trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import cast

import msgspec

from tolfl.core.records import (
    AnyRecord,
    Evaluated,
    RoundClosed,
    RunEnded,
    Traffic,
)
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.learners import State
from tolfl.learners.layouts import wiring
from tolfl.learners.registry import learner_of
from tolfl.net.storage import StoredRound, has_round, kept_rounds, read_round, round_path
from tolfl.protocol.history import ClosedRound
from tolfl.runs.directory import RunDirectory
from tolfl.runs.evaluation import mean_loss, score_models
from tolfl.runs.ledger import Kind, Ledger, SentMessage
from tolfl.runs.merged_records import merged_records
from tolfl.runs.outcome import Held, fleet_of, holders_of
from tolfl.runs.run_reader import device_records
from tolfl.runs.summary import scores_of, summarise


def collect(
    directory: RunDirectory, spec: RunSpec, data: FederatedDataset, survivors: Sequence[int]
) -> dict[str, object]:
    """Write records, model and summary of a run from the folders of its devices; return the summary."""
    folders = {device: directory.path / "devices" / str(device) for device in range(spec.devices)}
    lines = device_records(directory.path)
    ledger = _ledger(spec, lines)
    learner = learner_of(fleet_of(spec, data))
    held = [_held(d, *read_round(round_path(folders[d]))) for d in survivors if has_round(folders[d])]
    records = merged(lines, ledger, _ending(lines, held, survivors))
    outcome, summary = summarise(spec, data, learner, held, records, ledger)
    times = [line.time_s for line in records if isinstance(line, RoundClosed)]
    summary["seconds_per_round"] = (times[-1] - times[0]) / max(1, len(times) - 1) if times else 0.0
    summary["wall_s"] = summary.pop("virtual_s")
    records.append(scores_of(summary, records[-1]))
    directory.append(records)
    directory.finish(outcome.results, summary, outcome.state)
    return summary


def _held(device: int, record: ClosedRound, stored: StoredRound) -> Held:
    state = cast("State", record.state)
    return Held(device, record.version, record.version.history, state, stored.is_private, stored.stopped)


def _ledger(spec: RunSpec, lines: Iterable[AnyRecord]) -> Ledger:
    ledger = Ledger(wiring(spec), spec.scheme)
    rounds = {line.parent: line.round or 0 for line in lines if isinstance(line, RoundClosed)}
    for line in lines:
        if isinstance(line, Traffic) and line.device is not None:
            ledger.control_messages += line.control_messages
            ledger.control_bytes += line.control_bytes
            index = rounds.get(line.history, 0)
            for destination, kind, n_bytes in line.sent:
                ledger.add(line.history, SentMessage(index, line.device, destination, Kind(kind), n_bytes))
    return ledger


def merged(lines: Sequence[AnyRecord], ledger: Ledger, ending: RunEnded) -> list[AnyRecord]:
    """Return the lines of a run as a simulation writes them: once each, with all messages of a round counted."""
    records: list[AnyRecord] = []
    for line in merged_records(line for line in lines if not isinstance(line, Traffic | RunEnded)):
        if isinstance(line, RoundClosed):
            counts, n_bytes = ledger.counts(line.parent), ledger.bytes_of(line.parent)
            records.append(msgspec.structs.replace(line, messages=counts, bytes=n_bytes))
        else:
            records.append(line)
    return [*records, ending]


def _ending(lines: Sequence[AnyRecord], held: Sequence[Held], survivors: Sequence[int]) -> RunEnded:
    time_s = lines[-1].time_s if lines else 0.0
    if not survivors:
        reason = "no device is left"
    elif held and all(one.stopped == "dropped" for one in held):
        reason = "the server is gone, training stopped"
    elif any(one.stopped == "over" for one in held):
        branches = {one.version for one in held if one.stopped == "over" and not one.is_private}
        reason = "over" if len(branches) < 2 else f"over, in {len(branches)} branches that did not meet again"
    else:
        reason = "halted: too few devices or samples are left to train"
    return RunEnded(time_s=time_s, reason=reason, survivors=tuple(survivors))


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
