"""The checker finds nothing in runs of the simulator, and finds every violation that is planted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from tests.checker.history import Evidence, Held, Line, Name, Update, encode_update, findings, read_run
from tests.sim.fleets import some_data
from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.core.device_set import DeviceSet
from tolfl.core.records import encode_records
from tolfl.core.spec import ModelSpec, RunSpec, TrainSpec
from tolfl.learners import Closing, Turn
from tolfl.learners.learner import contributions_of
from tolfl.learners.registry import learner_of
from tolfl.runs.outcome import fleet_of
from tolfl.sim.simulation import run

DATA = some_data([5, 3, 8, 2, 6, 4])
SPEC = RunSpec(
    data="blobs", devices=6, clusters=3, rounds=6, model=ModelSpec(hidden=(4,), code=2), train=TrainSpec(lr=0.001)
)
PLANS = {
    "nothing fails": "",
    "a member": "device:1@1/report",
    "heads and a closer": "device:0@1/chain; device:2@2/report; device:4@3/distribute",
    "a device returns": "device:3@1-4/train",
}


def evidence_of(plan: str) -> Evidence:
    """Return what a simulated run leaves behind, with the updates that its devices would have kept."""
    spec = RunSpec(**{name: getattr(SPEC, name) for name in SPEC.__struct_fields__} | {"fail": plan})
    result = run(spec, DATA)[0]
    lines = [json.loads(line) for line in encode_records(result.records).splitlines()]
    closings = {Name.of(line["version"]).history: line for line in lines if line["kind"] == "round_closed"}
    changes = {Name.of(line["version"]).history: line for line in lines if line["kind"] == "roster"}
    (end,) = [line for line in changes.values() if line["is_over"]]
    chain, place = [], end["parent"]
    while place:
        line = closings.get(place) or changes[place]
        chain.append(line)
        place = line["parent"]
    learner = learner_of(fleet_of(spec, DATA))
    state = first = learner.start({})
    updates = []
    for line in reversed(chain):
        if line["kind"] != "round_closed":
            continue
        turns = [Turn(spec.seed, device, line["round"], state, DATA.slice_of(device)) for device in line["included"]]
        contributions = contributions_of(learner, turns)
        for device, one in zip(line["included"], contributions, strict=True):
            weights = {key: part.weight for key, part in one.parts.items()}
            arrays = {key: part.vector for key, part in one.parts.items()}
            updates.append(Update(device, line["parent"], one.n_samples, weights, arrays))
        closing = Closing(spec.seed, line["round"], DeviceSet.of(line["included"]))
        state = learner.apply(state, Contribution.total(contributions), closing)
    assert result.state is not None
    survivors = next(line["survivors"] for line in lines if line["kind"] == "run_ended")
    held = [Held(device, Name.of(end["version"]), True, dict(result.state)) for device in survivors]
    return Evidence(lines, held, updates, dict(first))


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return evidence_of(PLANS["heads and a closer"])


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_nothing_is_found_in_a_run_of_the_simulator(plan: str) -> None:
    assert findings(evidence_of(plan)) == []


# -- planted violations -----------------------------------------------------------------------------------------------

Plant = Callable[[Evidence], Evidence]


def _closed(evidence: Evidence) -> list[Line]:
    return [line for line in evidence.lines if line["kind"] == "round_closed"]


def _with_line(evidence: Evidence, changed: Line, **fields: Any) -> Evidence:
    return replace(evidence, lines=[{**line, **fields} if line is changed else line for line in evidence.lines])


def _another_end(evidence: Evidence) -> Evidence:
    other = replace(evidence.held[0], name=Name.of(_closed(evidence)[-1]["version"]))
    return replace(evidence, held=[other, *evidence.held[1:]])


def _another_model(evidence: Evidence) -> Evidence:
    other = replace(evidence.held[-1], arrays={GLOBAL: evidence.held[0].arrays[GLOBAL] + np.float32(1e-6)})
    return replace(evidence, held=[*evidence.held[:-1], other])


def _one_name_for_two(evidence: Evidence) -> Evidence:
    line = _closed(evidence)[2]
    return replace(evidence, lines=[*evidence.lines, {**line, "included": line["included"][1:]}])


def _twice(evidence: Evidence) -> Evidence:
    line = _closed(evidence)[-1]
    return _with_line(evidence, line, included=[*line["included"], line["included"][0]])


def _more_samples(evidence: Evidence) -> Evidence:
    line = _closed(evidence)[0]
    return _with_line(evidence, line, n_samples=line["n_samples"] + 1)


def _missing_link(evidence: Evidence) -> Evidence:
    line = _closed(evidence)[1]
    return replace(evidence, lines=[other for other in evidence.lines if other is not line])


def _never_trained(evidence: Evidence) -> Evidence:
    return replace(evidence, updates=evidence.updates[1:])


def _another_update(evidence: Evidence) -> Evidence:
    first, *others = evidence.updates
    return replace(evidence, updates=[replace(first, arrays={GLOBAL: first.arrays[GLOBAL] + 1}), *others])


def _for_another_version(evidence: Evidence) -> Evidence:
    """An update is in the mean of a round for which it was not trained."""
    *others, last = evidence.updates
    return replace(evidence, updates=[*others, replace(last, started_from=others[0].started_from)])


def _false_model(evidence: Evidence) -> Evidence:
    arrays = {GLOBAL: evidence.held[0].arrays[GLOBAL] * np.float32(1.01)}
    return replace(evidence, held=[replace(one, arrays=arrays) for one in evidence.held])


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (_another_end, "histories"),
        (_another_model, "two models under one name"),
        (_one_name_for_two, "stands for two rounds"),
        (_twice, "twice"),
        (_more_samples, "does not follow from"),
        (_missing_link, "nobody"),
        (_never_trained, "trained nothing for it"),
        (_another_update, "not the fold"),
        (_for_another_version, "trained nothing for it"),
        (_false_model, "not the fold"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_violation_is_found(plant: Plant, sentence: str, evidence: Evidence) -> None:
    found = findings(plant(evidence))

    assert any(sentence in one for one in found), found


def test_whoever_said_that_its_end_is_unconfirmed_is_excused(evidence: Evidence) -> None:
    other = _another_end(evidence)

    assert findings(replace(other, excused=frozenset({other.held[0].device}))) == []


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_run_directory_says_the_same(evidence: Evidence, tmp_path: Path) -> None:
    for held in evidence.held:
        folder = tmp_path / "devices" / str(held.device)
        (folder / "updates").mkdir(parents=True)
        told = {"version": held.name._asdict(), "stopped": "over"}
        arrays = {key: np.ascontiguousarray(array) for key, array in held.arrays.items()}
        (folder / "round.safetensors").write_bytes(safetensors.numpy.save(arrays, metadata={"round": json.dumps(told)}))
        is_first = held is evidence.held[0]
        lines = "".join(json.dumps(line) + "\n" for line in (evidence.lines if is_first else []))
        (folder / "records.jsonl").write_text(lines + '{"kind": "round_cl')
        for place, update in enumerate(evidence.updates if is_first else []):
            content = encode_update(
                update.device, 0, f"0.0.0.{update.started_from}", update.n_samples, update.weights, update.arrays
            )
            (folder / "updates" / f"{place}.safetensors").write_bytes(content)

    read = read_run(tmp_path, evidence.first)
    assert len(read.updates) == len(evidence.updates)
    assert findings(read) == []
