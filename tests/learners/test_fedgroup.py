"""FedGroup: golden numbers, what groups must not depend on, newcomers, and the step between groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.learners.groups import MODEL, UPDATES, made, two_ways
from tests.learners.rounds import Round, full_batch, moved_by, play
from tests.sim.fleets import FULL_BATCH, closed, params, simulated, some_data
from tolfl.core.contribution import Vector
from tolfl.core.spec import BlobsSpec, FedGroupSpec, ModelSpec, RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.kernel import Update
from tolfl.learners import Turn
from tolfl.learners.clustered import NOBODYS, in_order, k_means
from tolfl.learners.fedgroup import FedGroup, cosine_features, cosines, dissimilarities, madc
from tolfl.sim.simulation import run

Measure = Literal["edc", "madc"]

both_measures = pytest.mark.parametrize("measure", ["edc", "madc"])


# -- golden example C -------------------------------------------------------------------------------------------------

NEWCOMER = np.array([0.2, 1, 0])
FIVE = some_data([2, 3, 1, 4, 2])


def example_start(measure: Measure = "edc", **settings_: object) -> tuple[FedGroup, Round]:
    """Play the cold start of four devices; the fifth is not there yet."""
    learner = made(5, 2, msgspec.structs.replace(FedGroupSpec(measure=measure), **settings_))
    train = moved_by({**dict(enumerate(UPDATES)), 4: NEWCOMER})
    return learner, play(learner, learner.start({}), FIVE, 0, train, devices=range(4))


def test_the_distances_of_cosine_features_are_those_worked_out_by_hand() -> None:
    features = cosine_features(UPDATES, 2, seed=0)
    distances = {(a, b): np.linalg.norm(features[a] - features[b]) / 2 for a in range(4) for b in range(a + 1, 4)}

    assert features.shape == (4, 2)
    assert distances[0, 1] == pytest.approx(0.04961, abs=5e-6)
    assert distances[0, 2] == pytest.approx(0.70545, abs=5e-6)
    assert distances[1, 2] == pytest.approx(0.66957, abs=5e-6)
    assert distances[2, 3] == pytest.approx(0.00202, abs=5e-6)


def test_the_mean_differences_of_cosines_are_those_worked_out_by_hand() -> None:
    distances = madc(UPDATES)

    assert distances[0, 1] == pytest.approx(0.09926, abs=5e-6)
    assert distances[0, 2] == pytest.approx(0.94529, abs=5e-6)
    assert distances[2, 3] == pytest.approx(0.00025, abs=5e-6)
    assert np.array_equal(distances, distances.T)
    assert not np.diag(distances).any()


@both_measures
def test_the_cold_start_of_example_c_has_its_groups_directions_and_models(measure: Measure) -> None:
    _, started = example_start(measure)

    assert started.account.groups == {"cluster-0": (0, 1), "cluster-1": (2, 3)}
    assert started.after.members.tolist() == [0, 0, 1, 1, NOBODYS]
    np.testing.assert_allclose(started.state["direction-0"], [1.5, 0.1, 0], rtol=1e-12)
    np.testing.assert_allclose(started.state["direction-1"], [0, 2, 0.15], rtol=1e-12)
    # An update is start minus trained, so the plain mean of the members' models is minus the direction.
    np.testing.assert_allclose(started.after.centres, [[-1.5, -0.1, 0], [0, -2, -0.15]], rtol=1e-12)


def test_the_newcomer_of_example_c_is_nearer_to_the_second_direction() -> None:
    distances = dissimilarities(NEWCOMER, [np.array([1.5, 0.1, 0]), np.array([0, 2, 0.15])])

    assert distances.tolist() == pytest.approx([0.36955, 0.01108], abs=5e-6)


@both_measures
def test_a_newcomer_joins_the_group_whose_direction_its_update_has(measure: Measure) -> None:
    learner, started = example_start(measure)
    second = play(learner, started.state, FIVE, 1, moved_by({**dict(enumerate(UPDATES)), 4: NEWCOMER}))

    assert second.account.groups == {"cluster-0": (0, 1), "cluster-1": (2, 3, 4)}
    assert second.after.members.tolist() == [0, 0, 1, 1, 1]
    assert second.account.left_out == {}
    # 2, 3 and 4 have 1, 4 and 2 samples.
    mean = (UPDATES[2] + 4 * UPDATES[3] + 2 * NEWCOMER) / 7
    np.testing.assert_allclose(second.after.centres[1], started.after.centres[1] - mean, rtol=1e-12)
    np.testing.assert_allclose(second.state["direction-1"], [0, 2, 0.15], rtol=1e-12)


def test_members_may_weigh_the_same() -> None:
    learner, started = example_start(weight="equal")
    second = play(learner, started.state, FIVE, 1, moved_by(dict(enumerate(UPDATES))), devices=range(4))

    np.testing.assert_allclose(started.after.centres[0] - second.after.centres[0], [1.5, 0.1, 0], rtol=1e-12)
    assert second.total.n_samples == 10


def test_a_newcomer_trains_from_the_model_of_its_group_after_it_has_found_it() -> None:
    learner, started = example_start()
    seen: list[list[float]] = []

    def spy(turns: Sequence[Turn], starts: Sequence[Vector], *asked: int | None) -> list[Update]:
        seen.extend(start.tolist() for start in starts)
        return moved_by({4: NEWCOMER})(turns, starts, *asked)

    play(learner, started.state, FIVE, 1, spy, devices=[4])

    assert seen == [[0, 0, 0], started.after.centres[1].tolist()]


def test_groups_are_static() -> None:
    learner, started = example_start()
    swapped = moved_by({0: UPDATES[2], 1: UPDATES[3], 2: UPDATES[0], 3: UPDATES[1], 4: NEWCOMER})
    second = play(learner, started.state, FIVE, 1, swapped, devices=range(4))

    assert second.account.groups == started.account.groups


def test_pre_training_is_as_many_mini_batches_as_asked_for() -> None:
    asked: list[tuple[int | None, int | None]] = []

    def spy(turns: Sequence[Turn], starts: Sequence[Vector], epochs: int | None, n_batches: int | None) -> list[Update]:
        asked.append((epochs, n_batches))
        return full_batch(MODEL).updates(turns, starts, epochs=1)

    learner = made(1, 1, FedGroupSpec(pretrain_iterations=7))
    play(learner, learner.start({}), some_data([20]), 0, spy)

    assert asked == [(None, 7)]


# -- what groups do not depend on -------------------------------------------------------------------------------------


@st.composite
def directed(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Draw updates along m orthogonal directions, two to four devices each, of any length and a little noise."""
    m = draw(st.integers(1, 4))
    n_params = draw(st.integers(m + 1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    axes = np.linalg.qr(rng.normal(size=(n_params, n_params)))[0][:m]
    group = np.repeat(np.arange(m), [draw(st.integers(2, 4)) for _ in range(m)])
    lengths = rng.uniform(0.5, 2, (len(group), 1))
    return lengths * (axes[group] + rng.normal(0, 0.02, (len(group), n_params))), m


@settings(max_examples=20)
@given(directed(), st.floats(1e-6, 1e6), st.sampled_from(["edc", "madc"]))
def test_the_length_of_all_updates_changes_no_group(
    drawn: tuple[np.ndarray, int], factor: float, measure: Measure
) -> None:
    updates, m = drawn
    learner = made(len(updates), m, FedGroupSpec(measure=measure))

    assert learner.group(factor * updates, m, 0).tolist() == learner.group(updates, m, 0).tolist()


@settings(max_examples=20)
@given(directed(), st.data())
def test_the_signs_of_singular_directions_change_no_group_and_no_distance(
    drawn: tuple[np.ndarray, int], data: st.DataObject
) -> None:
    updates, m = drawn
    features = cosine_features(updates, m, 0)
    signs = np.array([data.draw(st.sampled_from([-1, 1])) for _ in range(m)])

    assert k_means(features * signs, m, 0).tolist() == k_means(features, m, 0).tolist()
    gaps, mirrored = (points[:, None] - points[None] for points in (features, features * signs))
    np.testing.assert_allclose(np.linalg.norm(gaps, axis=2), np.linalg.norm(mirrored, axis=2), rtol=1e-12)


@settings(max_examples=20)
@given(directed(), st.data(), st.sampled_from(["edc", "madc"]))
def test_devices_in_another_order_form_the_same_groups(
    drawn: tuple[np.ndarray, int], data: st.DataObject, measure: Measure
) -> None:
    updates, m = drawn
    learner = made(len(updates), m, FedGroupSpec(measure=measure))
    order = data.draw(st.permutations(range(len(updates))))

    plain = learner.group(updates, m, 0)
    assert learner.group(updates[order], m, 0).tolist() == in_order(plain[order]).tolist()


@settings(max_examples=20)
@given(directed(), st.integers(0, 3), st.sampled_from(["edc", "madc"]))
def test_well_separated_directions_are_told_apart_whatever_the_seed(
    drawn: tuple[np.ndarray, int], seed: int, measure: Measure
) -> None:
    updates, m = drawn
    cosine = cosines(updates, updates)
    same = cosine > 0.5
    labels = made(len(updates), m, FedGroupSpec(measure=measure)).group(updates, m, seed)

    assert (np.equal.outer(labels, labels) == same).all()


@settings(max_examples=20)
@given(directed(), st.data())
def test_an_update_of_zero_does_no_harm_to_the_groups_of_the_others(
    drawn: tuple[np.ndarray, int], data: st.DataObject
) -> None:
    updates, m = drawn
    place = data.draw(st.integers(0, len(updates)))
    learner = made(len(updates) + 1, m)
    labels = learner.group(np.insert(updates, place, 0.0, axis=0), m, 0)
    others = np.delete(labels, place)

    assert in_order(others).tolist() == learner.group(updates, m, 0).tolist()


def test_a_zero_vector_is_at_a_right_angle_to_everything() -> None:
    assert cosines(np.zeros((1, 3)), np.eye(3)).tolist() == [[0, 0, 0]]
    assert dissimilarities(np.zeros(3), [np.ones(3), np.zeros(3)]).tolist() == [0.5, 0.5]
    assert dissimilarities(np.ones(3), [np.ones(3), -np.ones(3)]).tolist() == pytest.approx([0, 1], abs=1e-12)


@both_measures
def test_as_many_groups_as_updates_are_one_each(measure: Measure) -> None:
    learner = made(3, 3, FedGroupSpec(measure=measure))

    assert learner.group(np.eye(3), 3, 0).tolist() == [0, 1, 2]
    assert learner.group(np.eye(3)[:2], 3, 0).tolist() == [0, 1]
    assert learner.group(np.eye(3), 1, 0).tolist() == [0, 0, 0]


def test_one_update_is_a_group_by_mean_differences_of_cosines() -> None:
    assert made(1, 1, FedGroupSpec(measure="madc")).group(np.eye(3)[:1], 1, 0).tolist() == [0]
    assert madc(np.eye(2)).tolist() == [[0, 1], [1, 0]]


# -- fleets -----------------------------------------------------------------------------------------------------------


@both_measures
@pytest.mark.parametrize("seed", [0, 1])
def test_two_directions_are_separated(measure: Measure, seed: int) -> None:
    spec = RunSpec(
        data="blobs",
        scheme="fedgroup",
        devices=6,
        clusters=2,
        rounds=8,
        seed=seed,
        train=FULL_BATCH,
        fedgroup=FedGroupSpec(measure=measure),
    )
    result = simulated(spec, two_ways(6))

    assert [record.groups for record in closed(result)] == [{"cluster-0": (0, 2, 4), "cluster-1": (1, 3, 5)}] * 8
    np.testing.assert_allclose(params(result, "cluster-0"), [2, 2, 2], atol=0.5)
    np.testing.assert_allclose(params(result, "cluster-1"), [-2, -2, -2], atol=0.5)


def test_a_fleet_on_subspaces_of_its_own_is_separated_by_the_autoencoder() -> None:
    spec = RunSpec(
        data="blobs",
        scheme="fedgroup",
        devices=6,
        clusters=3,
        rounds=2,
        model=ModelSpec(hidden=(16,), code=3),
        blobs=BlobsSpec(samples_per_device=60, n_features=12, n_groups=3, n_test=40),
    )

    for seed in (0, 1, 2):
        result = run(msgspec.structs.replace(spec, seed=seed))[0]
        assert closed(result)[-1].groups == {"cluster-0": (0, 1), "cluster-1": (2, 3), "cluster-2": (4, 5)}


def test_most_of_a_large_fleet_waits_for_a_group_and_then_joins_the_right_one() -> None:
    spec = RunSpec(
        data="blobs",
        scheme="fedgroup",
        devices=20,
        clusters=2,
        rounds=3,
        train=FULL_BATCH,
        fedgroup=FedGroupSpec(pretrain_scale=3),
    )
    result = simulated(spec, two_ways(20))
    first, *later = closed(result)
    waiting = [int(d) for d, reason in first.missing.items() if reason == "waits for a group"]

    assert len(waiting) == len(first.missing) == 14
    assert first.included == (4, 5, 6, 10, 16, 19)  # of this seed, in every version: stored results go by it
    assert {d % 2 for d in first.included} == {0, 1}
    assert sorted([*first.included, *waiting]) == list(range(20))
    assert first.n_samples == 24
    for record in later:
        assert record.missing == {}
        assert record.included == tuple(range(20))
        assert record.n_samples == 80
        assert set(record.groups.values()) == {tuple(range(0, 20, 2)), tuple(range(1, 20, 2))}


def test_who_is_drawn_depends_on_the_seed_alone() -> None:
    spec = RunSpec(data="blobs", scheme="fedgroup", devices=20, clusters=2, rounds=1, train=FULL_BATCH)
    small = msgspec.structs.replace(spec, fedgroup=FedGroupSpec(pretrain_scale=3))
    drawn = [closed(simulated(msgspec.structs.replace(small, seed=s), two_ways(20)))[0].included for s in (0, 0, 1)]

    assert drawn[0] == drawn[1] != drawn[2]


def test_a_device_that_was_away_in_the_cold_start_joins_the_right_group() -> None:
    spec = RunSpec(
        data="blobs", scheme="fedgroup", devices=6, clusters=2, rounds=8, train=FULL_BATCH, fail="device:5@0-3"
    )
    result = simulated(spec, two_ways(6))

    assert closed(result)[0].groups == {"cluster-0": (0, 2, 4), "cluster-1": (1, 3)}
    assert closed(result)[-1].groups == {"cluster-0": (0, 2, 4), "cluster-1": (1, 3, 5)}


def test_a_device_whose_first_update_is_zero_takes_part_all_the_same() -> None:
    slices = [two_ways(6).slice_of(d) for d in range(5)]
    data = FederatedDataset.from_arrays([*slices, np.zeros((4, 3))])
    result = simulated(
        RunSpec(data="blobs", scheme="fedgroup", devices=6, clusters=2, rounds=4, train=FULL_BATCH), data
    )
    groups = closed(result)[-1].groups

    assert {tuple(d for d in members if d != 5) for members in groups.values()} == {(0, 2, 4), (1, 3)}
    assert sum(5 in members for members in groups.values()) == 1
    assert all(np.isfinite(params(result, name)).all() for name in groups)
