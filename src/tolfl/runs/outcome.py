"""The data and fleet that a run starts from, and the results that it leaves, for both drivers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tolfl.core.contribution import GLOBAL
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import DataError
from tolfl.core.records import AnyRecord, RosterChanged, RoundClosed, history_of
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset, load
from tolfl.datasets.catalog import fleet_rows
from tolfl.datasets.own_table import agreed_form, as_agreed
from tolfl.learners import Fleet, Learner, Scorer, State
from tolfl.learners.layouts import is_plain
from tolfl.learners.registry import brings_own_data, fewest_rows, takes_raw_rows, what_of


def data_for(spec: RunSpec) -> FederatedDataset:
    """Return the rows that a run learns from: scaled, or as they are where its learner scales them.

    Where the learner finds its data itself, a device has one row of no numbers: it counts, and holds nothing.
    """
    if not is_plain(spec) and brings_own_data(spec):
        name = Path(what_of(spec).partition(":")[2]).resolve().name
        return FederatedDataset(name, np.zeros((spec.devices, 0), np.float32), tuple(range(spec.devices + 1)))
    if is_plain(spec) or not takes_raw_rows(spec):
        return as_agreed(load(spec), spec)
    data = as_agreed(fleet_rows(spec), spec)
    if (n_rows := data.bounds[-1]) < (fewest := fewest_rows(spec)):
        raise DataError(
            f"{data.name}: n_samples={n_rows}: too few rows to train on; {what_of(spec)} takes at least {fewest}"
        )
    return data


def fleet_of(spec: RunSpec, data: FederatedDataset) -> Fleet:
    """Return what every device knows before the first round, where the rows of all are in one place."""
    sizes = [data.n_samples(device) for device in range(data.n_devices)]
    form = agreed_form(spec)
    if form is None and data.schema is not None:
        form = data.schema.form
    return Fleet(spec, data.sample_shape, data.feature_names, data.names, int(statistics.median(sizes)), form)


@dataclass(frozen=True)
class Held:
    """State and results of one live device at the end."""

    device: int
    version: Any  #: totally ordered: the heaviest history is the fleet's
    history: str
    state: State
    is_private: bool  #: it went on alone
    stopped: str  #: why it stopped


@dataclass(frozen=True)
class Outcome:
    """The results of a run by name, and how many live devices hold each."""

    results: dict[str, Scorer]
    holders: dict[str, int]
    history: str | None  #: of the results that devices share; None where each is on its own
    state: State | None  #: that they follow from
    n_dropped: int  #: live devices that a lost head has taken out of training


def outcome_of(learner: Learner, held: Sequence[Held]) -> Outcome:
    """Return what live devices hold: results together, or each its own where they went on alone."""
    results: dict[str, Scorer] = {}
    holders: dict[str, int] = {}
    together = [one for one in held if not one.is_private]
    heaviest = max(together, key=lambda one: one.version, default=None)
    if heaviest is not None:
        users = [one.device for one in together if one.version == heaviest.version]
        results = learner.results(heaviest.state)
        holders = holders_of(results, users)
    for alone in sorted((one for one in held if one.is_private), key=lambda one: one.device):
        for key, result in learner.results(alone.state).items():
            name = f"device-{alone.device}" if key in {GLOBAL, "detector"} else f"device-{alone.device}-{key}"
            results[name], holders[name] = result, 1
    n_dropped = sum(one.stopped == "dropped" for one in held)
    if heaviest is None:
        return Outcome(results, holders, None, None, n_dropped)
    return Outcome(results, holders, heaviest.history, heaviest.state, n_dropped)


def holders_of(results: Mapping[str, Scorer], devices: Iterable[int]) -> dict[str, int]:
    """Return how many of these devices use each result."""
    present = DeviceSet.of(devices)
    return {
        name: len(present) if result.users is None else len(present & result.users) for name, result in results.items()
    }


def last_update(history: str | None, records: Sequence[AnyRecord]) -> str | None:
    """Return the part of a history that ends in its last update; None if it has none."""
    parents, updates = _parents(records), _updates(records)
    while history is not None and history not in updates:
        history = parents.get(history)
    return history


def lost_rounds(histories: Iterable[str], records: Sequence[AnyRecord]) -> int:
    """Return how many closed rounds are in no history that a live device holds: work of a lighter branch."""
    parents, kept = _parents(records), set[str]()
    for history in histories:
        place: str | None = history
        while place is not None and place not in kept:
            kept.add(place)
            place = parents.get(place)
    return len(_updates(records) - kept)


def _parents(records: Iterable[AnyRecord]) -> dict[str, str]:
    closed = [line for line in records if isinstance(line, RoundClosed | RosterChanged)]
    return {history_of(line): line.parent for line in closed}


def _updates(records: Iterable[AnyRecord]) -> set[str]:
    return {history_of(line) for line in records if isinstance(line, RoundClosed)}
