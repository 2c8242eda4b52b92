"""FedGroup: the step between groups, and hosts that are not there."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.learners.groups import UPDATES, made, two_ways
from tests.learners.rounds import clusters, moved_by, play
from tests.sim.fleets import FULL_BATCH, params, simulated, some_data
from tolfl.core.contribution import Contribution
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import FedGroupSpec, RunSpec
from tolfl.learners import Closing
from tolfl.learners.clustered import Clusters

# -- between groups ---------------------------------------------------------------------------------------------------


def between(rate: float, *centres: list[float], is_hosted: list[bool] | None = None) -> list[np.ndarray]:
    """Return the models after a round in which nobody trained anything."""
    m = len(centres)
    learner = made(m, m, FedGroupSpec(inter_group_lr=rate))
    state = {**learner.start({}), **clusters(centres, range(m)).to_state()}
    present = [d for d in range(m) if is_hosted is None or is_hosted[d]]
    closing = Closing(0, 1, DeviceSet.of(present))
    return list(Clusters.of(learner.apply(state, Contribution.empty(), closing)).centres)


def test_the_step_between_two_groups_is_the_one_worked_out_by_hand() -> None:
    # Norms 5 and 10; (3, 4) + 0.1 (6, 8)/10, divided by 1 + 0.1/10, and the other way round by 1 + 0.1/5.
    first, second = between(0.1, [3.0, 4.0, 0.0], [6.0, 8.0, 0.0])

    np.testing.assert_allclose(first, np.array([3.06, 4.08, 0]) / 1.01, rtol=1e-12)
    np.testing.assert_allclose(second, np.array([6.06, 8.08, 0]) / 1.02, rtol=1e-12)


@given(st.integers(0, 2**32), st.integers(1, 5), st.floats(0.01, 10))
def test_the_step_between_groups_follows_the_formula_and_pulls_models_together(seed: int, m: int, rate: float) -> None:
    before = np.random.default_rng(seed).normal(0, 2, (m, 3))
    after = between(rate, *before.tolist())

    for j in range(m):
        others = [before[other] for other in range(m) if other != j]
        pull = sum((other / np.linalg.norm(other) for other in others), np.zeros(3))
        scale = 1 + rate * sum(1 / np.linalg.norm(other) for other in others)
        np.testing.assert_allclose(after[j], (before[j] + rate * pull) / scale, rtol=1e-9, atol=1e-12)
    # Each new model is a weighted mean of all: the smallest box around them cannot grow.
    assert (np.max(after, axis=0) <= before.max(axis=0) + 1e-12).all()
    assert (np.min(after, axis=0) >= before.min(axis=0) - 1e-12).all()


def test_without_a_rate_or_a_neighbour_nothing_moves_between_groups() -> None:
    assert [c.tolist() for c in between(0.0, [3.0, 4.0, 0.0], [6.0, 8.0, 0.0])] == [[3, 4, 0], [6, 8, 0]]
    assert [c.tolist() for c in between(0.1, [3.0, 4.0, 0.0])] == [[3, 4, 0]]


def test_a_model_of_zeros_has_no_direction_and_pulls_nobody() -> None:
    first, second = between(0.1, [3.0, 4.0, 0.0], [0.0, 0.0, 0.0])

    assert first.tolist() == [3, 4, 0]
    np.testing.assert_allclose(second, np.array([0.06, 0.08, 0]) / 1.02, rtol=1e-12)


def test_a_lost_model_neither_pulls_nor_is_pulled() -> None:
    first, second = between(0.1, [3.0, 4.0, 0.0], [6.0, 8.0, 0.0], is_hosted=[True, False])

    assert first.tolist() == [3, 4, 0]
    assert second.tolist() == [6, 8, 0]


def test_models_of_a_run_with_a_step_between_groups_are_nearer_to_each_other() -> None:
    spec = RunSpec(data="blobs", scheme="fedgroup", devices=6, clusters=2, rounds=8, train=FULL_BATCH)
    gaps = []
    for rate in (0.0, 0.1, 1.0):
        result = simulated(msgspec.structs.replace(spec, fedgroup=FedGroupSpec(inter_group_lr=rate)), two_ways(6))
        gaps.append(float(np.linalg.norm(params(result, "cluster-0") - params(result, "cluster-1"))))

    assert gaps[0] > gaps[1] > gaps[2]


# -- hosts that are not there -----------------------------------------------------------------------------------------


def test_groups_take_the_models_that_have_a_host() -> None:
    learner = made(4, 3)
    updates = {d: np.eye(3)[d // 2] for d in range(4)}
    started = play(learner, learner.start({}), some_data([2] * 4), 0, moved_by(updates), [1, 2, 3])
    hosts = learner.hosts

    assert hosts == (0, 2, 3)
    assert started.after.is_hosted.tolist() == [False, True, True]
    assert started.account.groups == {"cluster-1": (0, 1), "cluster-2": (2, 3)}
    assert started.after.centres[0].tolist() == [0, 0, 0]


def test_a_group_fewer_than_models_leaves_one_at_the_mean_of_all() -> None:
    learner = made(4, 3)
    # Twice the same direction and twice another: k-means cannot make three groups of two points.
    updates = {d: np.eye(3)[d // 2] for d in range(4)}
    started = play(learner, learner.start({}), some_data([2] * 4), 0, moved_by(updates))

    assert started.account.groups == {"cluster-0": (0, 1), "cluster-1": (2, 3)}
    np.testing.assert_allclose(started.after.centres[2], [-0.5, -0.5, 0], rtol=1e-12)
    assert not started.state["direction-2"].any()


def test_an_orphan_finds_another_group_only_if_it_may() -> None:
    lost = {
        **made(4, 2).start({}),
        **clusters([[1.0, 0, 0], [0, 1.0, 0]], [0, 0, 1, 1], [True, False]).to_state(),
        "direction-0": np.array([1.0, 0, 0]),
        "direction-1": np.array([0, 1.0, 0]),
    }
    train = moved_by(dict(enumerate(UPDATES)))
    strict, rehome = (
        play(made(4, 2, policy=policy), lost, some_data([2] * 4), 3, train, present=[0, 1, 3])
        for policy in ("strict", "rehome")
    )

    assert strict.account.groups == {"cluster-0": (0, 1)}
    assert strict.account.left_out == {2: "orphaned", 3: "orphaned"}
    assert [len(one.parts) for one in strict.contributions] == [1, 1, 0, 0]
    assert [one.n_samples for one in strict.contributions] == [
        2,
        2,
        2,
        2,
    ]  # rows are weight in the history, trained or not
    assert rehome.account.groups == {"cluster-0": (0, 1, 2, 3)}
    assert rehome.account.left_out == {}
