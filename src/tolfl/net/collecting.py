"""One run directory from what the devices of a fleet wrote: lines in order, messages counted, models scored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from tolfl.core.records import (
    AnyRecord,
    RoundClosed,
    RunEnded,
    Traffic,
)
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.learners import State
from tolfl.learners.layouts import wiring
from tolfl.learners.registry import learner_of
from tolfl.net.storage import StoredRound, has_round, read_round, round_path
from tolfl.protocol.history import ClosedRound
from tolfl.runs.directory import RunDirectory
from tolfl.runs.evaluation import score_models
from tolfl.runs.ledger import Entry, Kind, Ledger
from tolfl.runs.outcome import Held, fleet_of, last_update, lost_rounds, outcome_of
from tolfl.runs.run_reader import device_records, merged_records
from tolfl.runs.summary import in_the_end, scores_of, summarise, what_was_learned


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
    outcome = outcome_of(learner, held)
    scores = score_models(outcome.results, data, outcome.holders)
    summary = summarise(spec, data, outcome.results, outcome.holders, scores, records, ledger)
    summary |= in_the_end(records, last_update(outcome.history, records), outcome.n_dropped)
    times = [line.time_s for line in records if isinstance(line, RoundClosed)]
    summary |= what_was_learned(spec, learner, outcome.state)
    summary["rounds_lost"] = lost_rounds([one.history for one in held], records)
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
                ledger.add(line.history, Entry(index, line.device, destination, Kind(kind), n_bytes))
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
