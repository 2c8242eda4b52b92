"""One run directory from what the devices of a fleet wrote: lines in order, messages counted, models scored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from tolfl.core.contribution import GLOBAL, Vector
from tolfl.core.records import (
    AnyRecord,
    RosterChanged,
    RoundClosed,
    RunEnded,
    Traffic,
)
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.net.disk import StoredRound, has_round, read_round, round_path
from tolfl.protocol.history import ClosedRound
from tolfl.runs.directory import RunDirectory
from tolfl.runs.evaluation import TrainedModel, score_models
from tolfl.runs.ledger import Entry, Kind, Ledger
from tolfl.runs.records import lines_of_devices, one_story
from tolfl.runs.settling import autoencoder_for
from tolfl.runs.summary import in_the_end, scores_of, summarise
from tolfl.schemes import layout, scheme_of


@dataclass(frozen=True)
class Held:
    """What one device holds in the end."""

    device: int
    record: ClosedRound
    stored: StoredRound


def collect(
    directory: RunDirectory, spec: RunSpec, data: FederatedDataset, survivors: Sequence[int]
) -> dict[str, object]:
    """Write records, model and summary of a run from the folders of its devices; return the summary."""
    folders = {device: directory.path / "devices" / str(device) for device in range(spec.devices)}
    lines = lines_of_devices(directory.path)
    ledger = _ledger(spec, lines)
    held = [Held(d, *read_round(round_path(folders[d]))) for d in survivors if has_round(folders[d])]
    records = merged(lines, ledger, _ending(lines, held, survivors))
    models, holders, last_round = _models(spec, data, held, records)
    scores = score_models(models, data, holders)
    summary = summarise(spec, data, models, holders, scores, records, ledger)
    summary |= in_the_end(records, last_round, sum(one.stored.stopped == "dropped" for one in held))
    times = [line.time_s for line in records if isinstance(line, RoundClosed)]
    summary["rounds_lost"] = _lost_rounds(records, held)
    summary["seconds_per_round"] = (times[-1] - times[0]) / max(1, len(times) - 1) if times else 0.0
    summary["wall_s"] = summary.pop("virtual_s")
    records.append(scores_of(summary, records[-1]))
    directory.append(records)
    directory.finish({name: model.tensors() for name, model in models.items()}, summary)
    return summary


def _ledger(spec: RunSpec, lines: Iterable[AnyRecord]) -> Ledger:
    ledger = Ledger(scheme_of(spec).wiring(layout(spec)), spec.scheme)
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
    for line in one_story(lines):
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
    elif held and all(one.stored.stopped == "dropped" for one in held):
        reason = "the server is gone, training stopped"
    elif any(one.stored.stopped == "over" for one in held):
        branches = {one.record.version for one in held if one.stored.stopped == "over" and not one.stored.is_private}
        reason = "over" if len(branches) < 2 else f"over, in {len(branches)} branches that did not meet again"
    else:
        reason = "halted: too few devices or samples are left to train"
    return RunEnded(time_s=time_s, reason=reason, survivors=tuple(survivors))


def _models(
    spec: RunSpec, data: FederatedDataset, held: Sequence[Held], records: Sequence[AnyRecord]
) -> tuple[dict[str, TrainedModel], dict[str, int], str | None]:
    """Return the models that are left, how many devices hold each, and the history of the last round of the fleet's."""
    model, scheme = autoencoder_for(spec, data), scheme_of(spec)
    models: dict[str, TrainedModel] = {}
    holders: dict[str, int] = {}
    last_round: str | None = None
    together = [one for one in held if not one.stored.is_private]
    if together:
        heaviest = max(together, key=lambda one: one.record.version)
        users = [one.device for one in together if one.record.version == heaviest.record.version]
        served = scheme.serving(cast("dict[str, Vector]", heaviest.record.models), users)
        for name, one in served.items():
            models[name], holders[name] = TrainedModel(model, one.params), one.n_devices
        last_round = _last_round(heaviest.record.version.history, records)
    for alone in (one for one in held if one.stored.is_private):
        name = f"device-{alone.device}"
        params = cast("dict[str, Vector]", alone.record.models)[GLOBAL]
        models[name], holders[name] = TrainedModel(model, params), 1
    return models, holders, last_round


def _parents(records: Iterable[AnyRecord]) -> dict[str, str]:
    return {
        str(line.version).rpartition(".")[2]: line.parent
        for line in records
        if isinstance(line, RoundClosed | RosterChanged)
    }


def _last_round(history: str, records: Sequence[AnyRecord]) -> str | None:
    parents = _parents(records)
    updates = {str(line.version).rpartition(".")[2] for line in records if isinstance(line, RoundClosed)}
    place: str | None = history
    while place is not None and place not in updates:
        place = parents.get(place)
    return place


def _lost_rounds(records: Sequence[AnyRecord], held: Sequence[Held]) -> int:
    """Return how many closed rounds are in no history that a survivor holds."""
    parents, kept = _parents(records), set[str]()
    for one in held:
        place: str | None = one.record.version.history
        while place is not None and place not in kept:
            kept.add(place)
            place = parents.get(place)
    closed = {str(line.version).rpartition(".")[2] for line in records if isinstance(line, RoundClosed)}
    return len(closed - kept)
