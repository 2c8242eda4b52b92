"""Was a promise broken? Decided from what the devices of a run left behind, without a line of the protocol's code.

Three promises: the run has one history, no sample counts twice in it, and the model is the fold of the updates that the
history says are inside. Read are the lines that devices wrote, the rounds on their disks and the updates that they kept
under the debugging switch; versions are taken apart here, updates are added up here, in double precision.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import safe_open

Line = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]

#: Devices add up in single precision; what they lose per round is far below this.
TOLERANCE = 1e-4


class Name(NamedTuple):
    """A version, as lines spell it."""

    work: int
    round: int
    revision: int
    history: str

    @classmethod
    def of(cls, text: str) -> Name:
        """Read `work.round.revision.history`."""
        work, round_index, revision, history = text.split(".")
        return cls(int(work), int(round_index), int(revision), history)


FIRST = Name(0, 0, 0, "")


@dataclass(frozen=True)
class Update:
    """What a device trained, starting from the model of a history."""

    device: int
    started_from: str
    n_samples: int
    weights: Mapping[str, int]  #: how much each array weighs in its mean
    arrays: Arrays


@dataclass(frozen=True)
class Held:
    """What a device holds in the end."""

    device: int
    name: Name
    is_over: bool
    arrays: Arrays


@dataclass(frozen=True)
class Evidence:
    """What a run left behind."""

    lines: Sequence[Line]
    held: Sequence[Held]
    updates: Sequence[Update]
    first: Arrays  #: the model before the first round
    server_lr: float = 1.0
    excused: frozenset[int] = frozenset()  #: devices that said that their end is unconfirmed


def findings(evidence: Evidence) -> list[str]:
    """Return every broken promise in a sentence of its own; none: all were kept."""
    found = [*_of_the_tree(evidence.lines), *_of_the_ends(evidence)]
    chains = {one.name.history: _chain_to(one.name.history, evidence.lines) for one in _ended(evidence)}
    for history, chain in chains.items():
        if chain is None:
            found.append(f"nobody wrote down how {history} came about")
        else:
            found += _of_the_chain(chain, evidence)
    return found


# -- one history ------------------------------------------------------------------------------------------------------


def _closings(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if line["kind"] in ("round_closed", "roster")]


def _of_the_tree(lines: Iterable[Line]) -> list[str]:
    """Every line extends one that is there, by the numbers; and one name stands for one content."""
    found, closings = [], _closings(lines)
    named: dict[str, Line] = {}
    for line in closings:
        known = named.setdefault(Name.of(line["version"]).history, line)
        found += [
            f"{line['version']} stands for two rounds: {key} is {known.get(key)} and {line.get(key)}"
            for key in ("version", "parent", "included", "n_samples", "digest")
            if known.get(key) != line.get(key)
        ]
    for line in named.values():
        parent = named.get(line["parent"])
        if parent is None and line["parent"]:
            found.append(f"{line['version']} extends {line['parent']}, which nobody closed")
            continue
        before, name = FIRST if parent is None else Name.of(parent["version"]), Name.of(line["version"])
        is_update = line["kind"] == "round_closed"
        due = (
            (before.work + line["n_samples"], before.round + 1, 0) if is_update else (*before[:2], before.revision + 1)
        )
        if name[:3] != due:
            found.append(f"{line['version']} does not follow from {'.'.join(map(str, before))}")
    return found


def _ended(evidence: Evidence) -> list[Held]:
    return [one for one in evidence.held if one.is_over and one.device not in evidence.excused]


def _of_the_ends(evidence: Evidence) -> list[str]:
    """All who ended hold one version, and one model."""
    ended = _ended(evidence)
    names = {one.name for one in ended}
    found = [f"devices ended with {len(names)} histories: {sorted(names)}"] if len(names) > 1 else []
    for name in sorted(names):
        one, *others = [held for held in ended if held.name == name]
        found += [
            f"devices {one.device} and {other.device} hold two models under one name, {name}"
            for other in others
            if any(not np.array_equal(one.arrays[key], other.arrays[key]) for key in one.arrays)
        ]
    return found


def _chain_to(history: str, lines: Iterable[Line]) -> list[Line] | None:
    named = {Name.of(line["version"]).history: line for line in _closings(lines)}
    chain: list[Line] = []
    while history:
        if history not in named or len(chain) > len(named):
            return None
        chain.append(named[history])
        history = named[history]["parent"]
    return chain[::-1]


# -- no sample twice, and the fold ------------------------------------------------------------------------------------


def _of_the_chain(chain: Sequence[Line], evidence: Evidence) -> list[str]:
    found: list[str] = []
    state = {key: array.astype(np.float64) for key, array in evidence.first.items()}
    by_place: dict[tuple[str, int], list[Update]] = {}
    for update in evidence.updates:
        by_place.setdefault((update.started_from, update.device), []).append(update)
    for line in chain:
        if line["kind"] != "round_closed":
            continue
        included = line["included"]
        if len(set(included)) < len(included):
            found.append(f"{line['version']} counts a device twice: {included}")
        if set(map(str, included)) & line["missing"].keys():
            found.append(f"{line['version']} has devices that are included and missing")
        kept = [by_place.get((line["parent"], device), []) for device in included]
        absent = [device for device, updates in zip(included, kept, strict=True) if not updates]
        if absent:
            return [*found, f"{line['version']} includes devices {absent}, which trained nothing for it"]
        updates = [candidates[-1] for candidates in kept]
        n_samples = sum(update.n_samples for update in updates)
        if n_samples != line["n_samples"]:
            found.append(f"{line['version']} counts {line['n_samples']} samples; its devices have {n_samples}")
        _apply(state, updates, evidence.server_lr)
    (held,) = {
        one.name: one for one in _ended(evidence) if one.name.history == Name.of(chain[-1]["version"]).history
    }.values()
    for key, array in state.items():
        off = float(np.max(np.abs(array - held.arrays[key]), initial=0.0))
        if not off <= TOLERANCE:
            found.append(f"{held.name}: {key!r} is not the fold of the included updates, by {off:.3g}")
    return found


def _apply(state: dict[str, NDArray[np.float64]], updates: Sequence[Update], server_lr: float) -> None:
    """Step by the weighted mean of the updates; an array that nobody sent stays as it is."""
    for key, before in state.items():
        senders = [update for update in updates if key in update.arrays]
        weight = sum(update.weights[key] for update in senders)
        if weight:
            total = sum((update.weights[key] * update.arrays[key].astype(np.float64) for update in senders), 0.0)
            state[key] = before - server_lr * total / weight


# -- files ------------------------------------------------------------------------------------------------------------


def encode_update(
    device: int, incarnation: int, version: str, n_samples: int, weights: Mapping[str, int], arrays: Arrays
) -> bytes:
    """Return an update as a device keeps it, in `updates/<round>-<history or first>-<incarnation>.safetensors`."""
    parts = {key: {"weight": weight} for key, weight in weights.items()}
    told = {"device": device, "incarnation": incarnation, "version": version, "n_samples": n_samples, "parts": parts}
    return safetensors.numpy.save(dict(arrays), metadata={"update": json.dumps(told)})


def read_update(path: Path) -> Update:
    """Read an update back."""
    with safe_open(path, framework="numpy") as file:
        told = json.loads(file.metadata()["update"])
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (it is no mapping)
    weights = {key: part["weight"] for key, part in told["parts"].items()}
    return Update(told["device"], Name.of(told["version"]).history, told["n_samples"], weights, arrays)


def read_held(path: Path, device: int) -> Held:
    """Read the round that a device has on its disk."""
    with safe_open(path, framework="numpy") as file:
        told = json.loads(file.metadata()["round"])
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    version = told["version"]
    name = Name(*(version[part] for part in Name._fields))
    return Held(device, name, told["stopped"] == "over" and not told.get("is_private", False), arrays)


def read_run(out: Path, first: Arrays, server_lr: float = 1.0, excused: Iterable[int] = ()) -> Evidence:
    """Read what the devices of a run left in its directory; a torn last line of a killed process is left out."""
    lines: list[Line] = []
    held, updates = [], []
    for folder in sorted((out / "devices").iterdir()):
        content = (folder / "records.jsonl").read_bytes()
        lines += [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
        updates += [read_update(path) for path in sorted((folder / "updates").glob("*.safetensors"))]
        if (folder / "round.safetensors").exists():
            held.append(read_held(folder / "round.safetensors", int(folder.name)))
    return Evidence(lines, held, updates, first, server_lr, frozenset(excused))
