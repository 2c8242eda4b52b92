"""An independent reader of run directories: do histories hang together, and do they lead to the model that is there?

It trusts nothing but the lines that devices wrote and the samples that they had; the model is computed anew with the
arithmetic of the simulator, from the included sets of the history that won.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from tolfl.core.contribution import GLOBAL, Contribution, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.records import AnyRecord, RosterChanged, RoundClosed, decode_records
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.datasets.federated import Samples
from tolfl.learners import Closing, Learner, State, Turn
from tolfl.learners.learner import contributions_of, digest_of
from tolfl.learners.registry import learner_of
from tolfl.net.storage import read_round
from tolfl.runs.outcome import fleet_of

Link: TypeAlias = RoundClosed | RosterChanged


class Name(NamedTuple):
    """A version, as lines spell it."""

    work: int
    round: int
    revision: int
    history: str


def name_of(line: AnyRecord) -> Name:
    work, round_index, revision, history = str(line.version).split(".")
    return Name(int(work), int(round_index), int(revision), history)


FIRST = Name(0, 0, 0, "")


@dataclass(frozen=True)
class Held:
    """The model that a device has on its disk, and its name."""

    device: int
    name: Name
    stopped: str
    params: Vector


def held_by(out: Path, devices: Iterable[int]) -> list[Held]:
    """Return what devices hold on their disks."""
    held = []
    for device in devices:
        record, stored = read_round(out / "devices" / str(device) / "round.safetensors")
        version = record.version
        name = Name(version.work, version.round, version.revision, version.history)
        models = record.state
        assert isinstance(models, dict)
        held.append(Held(device, name, stored.stopped, models[GLOBAL]))
    return held


def lines_of_devices(out: Path) -> list[AnyRecord]:
    """Return the lines of all devices in the order of time; a torn last line of a killed process is left out."""
    lines: list[AnyRecord] = []
    for path in sorted((out / "devices").glob("*/records.jsonl")):
        content = path.read_bytes()
        lines += decode_records(content[: content.rfind(b"\n") + 1].splitlines(), source=str(path))
    return sorted(lines, key=lambda line: line.time_s)


def chain_to(history: str, lines: Iterable[AnyRecord]) -> list[Link]:
    """Return the lines that lead to a history, the first one first; a missing link is an error."""
    links = {name_of(line).history: line for line in lines if isinstance(line, RoundClosed | RosterChanged)}
    chain: list[Link] = []
    while history:
        assert history in links, f"nobody wrote down how {history} came about"
        chain.append(links[history])
        history = links[history].parent
    return chain[::-1]


def check_link(before: Name, link: Link, data: FederatedDataset) -> None:
    """Check that a record extends the one before it, and that its sample counts are those of its devices."""
    name = name_of(link)
    assert link.parent == before.history
    if isinstance(link, RosterChanged):
        assert name[:3] == (before.work, before.round, before.revision + 1)
        return
    assert list(link.included) == sorted(set(link.included)), "a device is counted twice"
    assert not {str(device) for device in link.included} & set(link.missing)
    assert link.n_samples == sum(data.n_samples(device) for device in link.included)
    assert name[:3] == (before.work + link.n_samples, before.round + 1, 0)
    assert link.round == before.round


def check_everybody(lines: Iterable[AnyRecord], data: FederatedDataset) -> None:
    """Check every record on every branch, also on those that lost: one tree, from the first model on."""
    links = [line for line in lines if isinstance(line, RoundClosed | RosterChanged)]
    names = {"": FIRST, **{name_of(link).history: name_of(link) for link in links}}
    for link in links:
        assert link.parent in names, f"nobody wrote down how {link.parent} came about"
        check_link(names[link.parent], link, data)


def replayed(spec: RunSpec, data: FederatedDataset, chain: Sequence[Link]) -> Vector:
    """Return the model that the included sets of a history lead to."""
    return state_after(chain, learner_of(fleet_of(spec, data)), spec.seed, data.slice_of)[GLOBAL]


def state_after(
    chain: Sequence[Link], learner: Learner, seed: int, rows_of: Callable[[int], Samples], is_exact: bool = False
) -> State:
    """Return the state that the included sets of a history lead to, for any learner that asks for nothing else.

    `is_exact`: the state after each round has the name that its line gives, so all devices computed the same bits.
    """
    state = learner.start({})
    for link in rounds_of(chain):
        index = name_of(link).round - 1
        turns = [Turn(seed, device, index, state, rows_of(device)) for device in link.included]
        total = Contribution.total(one for turn in turns for one in contributions_of(learner, [turn]))
        state = learner.apply(state, total, Closing(seed, index, DeviceSet.of(link.present or link.included)))
        if is_exact:
            assert digest_of(state) == link.digest, f"round {index} ({link.stage}) led to another state"
    return state


def check_run(out: Path, spec: RunSpec, data: FederatedDataset, survivors: Sequence[int]) -> list[Link]:
    """Check a finished run; return its history: one for all survivors, and their model is the one it leads to."""
    lines, held = lines_of_devices(out), held_by(out, survivors)
    check_everybody(lines, data)
    assert {one.stopped for one in held} == {"over"}
    (last,) = {one.name for one in held}
    chain = chain_to(last.history, lines)
    check_replay(spec, data, chain, held[0].params)
    for one in held[1:]:
        assert np.array_equal(one.params, held[0].params)
    return chain


def check_replay(spec: RunSpec, data: FederatedDataset, chain: Sequence[Link], params: Vector) -> None:
    """Check a model against the history that it is said to come from."""
    np.testing.assert_allclose(params, replayed(spec, data, chain), rtol=0, atol=1e-5)


def rounds_of(chain: Iterable[Link]) -> list[RoundClosed]:
    return [link for link in chain if isinstance(link, RoundClosed)]


def with_rounds(spec: RunSpec, rounds: int) -> RunSpec:
    return msgspec.structs.replace(spec, rounds=rounds)
