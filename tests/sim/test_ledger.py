"""Counting messages: every accounting from one ledger."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.sim.fleets import FULL_BATCH, closed, simulated, some_data
from tolfl.core.spec import RunSpec
from tolfl.runs.ledger import Kind
from tolfl.sim.simulation import Run, run

N, ROUNDS = 10, 3
DATA = some_data([3] * N)
SPEC = RunSpec(data="blobs", devices=N, rounds=ROUNDS, train=FULL_BATCH)
MODEL_BYTES = 24  # three parameters in double precision
#: Two stages, of which the first starts from no array at all.
LATE = """
import numpy as np
from tolfl.learners import Learner, Stages

class Nothing(Learner):
    rounds = 1

    def start(self, state):
        return state

    def contribute(self, turns):
        return [{} for turn in turns]

    def apply(self, state, total, closing):
        return state

class Sums(Nothing):
    def start(self, state):
        return {**state, "sums": np.zeros(3)}

    def contribute(self, turns):
        return [{"sums": turn.total(np.ones(3))} for turn in turns]

def late(fleet):
    return Stages({"nothing": Nothing(), "sums": Sums()})
"""


def changed(**changes: object) -> RunSpec:
    return msgspec.structs.replace(SPEC, **changes)


def counts(result: Run) -> dict[str, int]:
    """Return the counts of a round, which must be those of every round."""
    rounds = [record.messages for record in closed(result)]
    assert rounds == [rounds[0]] * ROUNDS
    return rounds[0]


def test_the_papers_twenty_nine_and_fifteen_messages_come_out() -> None:
    by_scheme = {
        scheme: counts(simulated(changed(scheme=scheme, clusters=5), DATA)) for scheme in ("fl", "sbt", "tol-fl")
    }

    assert {scheme: count["paper"] for scheme, count in by_scheme.items()} == {"fl": 20, "sbt": 9, "tol-fl": 15}
    assert by_scheme["tol-fl"] == {"unicast": 18, "broadcast": 10, "per_cluster": 14, "hops": 14, "paper": 15}
    assert by_scheme["fl"] == {"unicast": 18, "broadcast": 10, "per_cluster": 10, "hops": 18, "paper": 20}
    assert by_scheme["sbt"] == {"unicast": 18, "broadcast": 10, "per_cluster": 19, "hops": 9, "paper": 9}


@pytest.mark.parametrize("k", range(1, N + 1))
def test_messages_follow_the_formulas_for_every_number_of_clusters(k: int) -> None:
    count = counts(simulated(changed(clusters=k), DATA))

    assert count["unicast"] == 2 * (N - 1)
    assert count["broadcast"] == N
    assert count["per_cluster"] == N - 1 + k
    assert count["hops"] == 2 * (N - k) + (k - 1)
    assert count["paper"] == 2 * N - k


@pytest.mark.parametrize("fail", ["", "server@1/chain", "device:3@0-2", "cut:0,1|2,3,4,5,6,7,8,9@1-2", "random:0.1"])
def test_bytes_are_messages_times_their_size(fail: str) -> None:
    result = simulated(changed(clusters=5, fail=fail), DATA)
    entries = list(result.ledger.entries)

    assert {entry.n_bytes for entry in entries} == {MODEL_BYTES}
    assert result.summary["bytes"] == sum(entry.n_bytes for entry in entries) == MODEL_BYTES * len(entries)
    messages = result.summary["messages"]
    assert isinstance(messages, dict)
    assert messages["unicast"] == len(entries)


def test_totals_are_the_sums_of_the_rounds_of_a_quiet_run() -> None:
    result = simulated(changed(clusters=5), DATA)
    rounds = closed(result)
    messages = result.summary["messages"]

    assert isinstance(messages, dict)
    assert messages == {name: sum(record.messages[name] for record in rounds) for name in rounds[0].messages}
    assert result.summary["bytes"] == sum(record.bytes for record in rounds)
    assert [record.bytes for record in rounds] == [18 * MODEL_BYTES] * ROUNDS


def test_the_ledger_says_who_sent_what_to_whom() -> None:
    spec = RunSpec(data="blobs", devices=4, clusters=2, rounds=1, train=FULL_BATCH)
    entries = list(simulated(spec, some_data([3] * 4)).ledger.entries)

    assert {(e.round_index, e.source, e.destination, e.kind) for e in entries} == {
        (0, 1, 0, Kind.REPORT),
        (0, 3, 2, Kind.REPORT),
        (0, 0, 2, Kind.MEAN),
        (0, 2, 0, Kind.MODEL),
        (0, 2, 3, Kind.MODEL),
        (0, 0, 1, Kind.MODEL),
    }


def test_a_lost_device_sends_nothing_any_more() -> None:
    quiet = simulated(changed(clusters=2, fail="client@1"), DATA)

    assert [record.messages["unicast"] for record in closed(quiet)] == [18, 16, 16]


def test_small_messages_are_counted_apart() -> None:
    result = simulated(changed(clusters=5), DATA)

    assert isinstance(result.summary["control_messages"], int)
    assert result.summary["control_messages"] > 0
    assert result.summary["control_bytes"] == 64 * result.summary["control_messages"]


def test_one_device_and_batch_training_send_no_model() -> None:
    alone = simulated(RunSpec(data="blobs", devices=1, clusters=1, rounds=2, train=FULL_BATCH), some_data([3]))
    batch = simulated(changed(scheme="batch"), DATA)

    for result in (alone, batch):
        assert set(closed(result)[0].messages.values()) == {0}
        assert result.summary["bytes"] == 0


def test_a_learner_that_starts_from_nothing_sends_what_it_adds_up_later(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text(LATE)
    (result,) = run(changed(clusters=5, learn={"what": f"{file}:late"}), DATA)
    first, second = (record.messages["unicast"] for record in closed(result))

    assert first == second == 2 * (N - 1)
    assert result.summary["bytes"] == 9 * 24 + 9 * 24  # up and down in the second round; the first has no size
