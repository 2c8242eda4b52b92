"""IFCA: golden numbers, what holds for any choice among models, the restarts, and groups it is known to find."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.learners.rounds import ONE_FEATURE, SETTINGS, Round, clusters, full_batch, play
from tests.sim.fleets import FULL_BATCH, Mean, closed, columns, params, simulated, some_data
from tolfl.core.spec import IFCASpec, RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.learners import State
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.clustered import NOBODYS, Clusters
from tolfl.learners.ifca import IFCA, choose
from tolfl.learners.torch_module import ModuleModel
from tolfl.learners.training import LocalTraining, Model
from tolfl.runs.outcome import holders_of

TWO_FEATURES = ModuleModel(Mean(2))
FREE = IFCASpec(init="random", restarts=1)


def made(
    devices: int, m: int, ifca: IFCASpec = FREE, model: Model = ONE_FEATURE, seed: int = 0, policy: str = ""
) -> IFCA:
    spec = RunSpec(
        data="blobs",
        scheme="ifca",
        devices=devices,
        clusters=m,
        rounds=20,
        train=FULL_BATCH,
        on_head_failure=policy,
        ifca=ifca,
        seed=seed,
    )
    return IFCA(LocalTraining(model, SETTINGS), spec)


# -- golden example C -------------------------------------------------------------------------------------------------

EXAMPLE = columns([1, 3], [4], [6, 8, 10])


def example_round(weight: str) -> Round:
    ifca = msgspec.convert({"init": "random", "restarts": 1, "weight": weight}, IFCASpec)
    return play(made(3, 2, ifca), clusters([0, 10], 3).to_state(), EXAMPLE, round_index=1)


def test_the_losses_of_example_c_are_the_means_over_a_devices_own_samples() -> None:
    losses = [
        [float(ONE_FEATURE.sample_losses(np.array([theta]), EXAMPLE.slice_of(d)).mean()) for theta in (0.0, 10.0)]
        for d in range(3)
    ]

    assert losses == [[5, 65], [16, 36], [pytest.approx(200 / 3), pytest.approx(20 / 3)]]
    assert [choose(np.array(row)) for row in losses] == [0, 0, 1]


@pytest.mark.parametrize(("weight", "first"), [("samples", 8 / 15), ("equal", 0.6)])
def test_a_round_of_example_c_has_the_models_worked_out_by_hand(weight: str, first: float) -> None:
    played = example_round(weight)

    assert played.account.groups == {"cluster-0": (0, 1), "cluster-1": (2,)}
    assert played.after.members.tolist() == [0, 0, 1]
    assert [float(centre[0]) for centre in played.after.centres] == pytest.approx([first, 9.6], rel=1e-12)
    assert [list(one.parts) for one in played.contributions] == [["cluster-0"], ["cluster-0"], ["cluster-1"]]


@pytest.mark.parametrize("weight", ["samples", "equal"])
def test_the_loss_of_a_round_is_that_of_its_samples_whatever_the_weights_of_the_models(weight: str) -> None:
    played = example_round(weight)

    assert played.total.n_samples == 6
    assert played.account.loss == pytest.approx((2 * 5 + 16 + 3 * 20 / 3) / 6)


def test_the_first_of_equally_good_models_is_chosen() -> None:
    played = play(made(3, 3), clusters([2, 2, 2], 3).to_state(), EXAMPLE, round_index=1)

    assert played.after.members.tolist() == [0, 0, 0]


def test_a_model_that_nobody_chooses_stays_as_it_is() -> None:
    played = play(made(3, 2), clusters([5, 1000], 3).to_state(), EXAMPLE, round_index=1)

    assert played.account.groups == {"cluster-0": (0, 1, 2)}
    assert played.after.centres[1].tolist() == [1000]


# -- properties -------------------------------------------------------------------------------------------------------


@st.composite
def situations(draw: st.DrawFn) -> tuple[FederatedDataset, Clusters]:
    """Draw devices with a few samples of two features, and models between them with old members."""
    n_devices = draw(st.integers(1, 6))
    m = draw(st.integers(1, n_devices))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = [draw(st.integers(1, 5)) for _ in range(n_devices)]
    data = FederatedDataset.from_arrays([rng.normal(0, 3, (size, 2)) for size in sizes])
    return data, clusters(rng.normal(0, 3, (m, 2)), [int(rng.integers(m)) for _ in range(n_devices)])


def own_losses(data: FederatedDataset, given: Clusters) -> np.ndarray:
    """Return the mean loss of each device (rows) under each model, worked out without the model's code."""
    return np.array(
        [
            [np.square(data.slice_of(d).astype(float) - centre).sum(1).mean() for centre in given.centres]
            for d in range(data.n_devices)
        ]
    )


@settings(max_examples=30)
@given(situations())
def test_every_device_chooses_the_model_with_its_own_least_loss(situation: tuple[FederatedDataset, Clusters]) -> None:
    data, before = situation
    learner = made(data.n_devices, len(before.centres), model=TWO_FEATURES)
    chosen = play(learner, before.to_state(), data, 3).after.members
    losses = own_losses(data, before)
    everybody = np.arange(data.n_devices)

    assert chosen.tolist() == losses.argmin(axis=1).tolist()
    sizes = np.diff(data.bounds)
    assert sizes @ losses[everybody, chosen] <= sizes @ losses[everybody, before.members] + 1e-9


@settings(max_examples=30)
@given(situations(), st.data())
def test_models_in_another_order_give_the_same_results_in_that_order(
    situation: tuple[FederatedDataset, Clusters], drawn: st.DataObject
) -> None:
    data, before = situation
    m = len(before.centres)
    order = drawn.draw(st.permutations(range(m)))
    shuffled = clusters([before.centres[old] for old in order], data.n_devices)
    learner = made(data.n_devices, m, model=TWO_FEATURES)
    plain = play(learner, before.to_state(), data, 3)
    other = play(learner, shuffled.to_state(), data, 3)

    assert [order[new] for new in other.after.members] == plain.after.members.tolist()
    for new, old in enumerate(order):
        np.testing.assert_allclose(other.after.centres[new], plain.after.centres[old], rtol=1e-12)
    assert other.account.loss == pytest.approx(plain.account.loss, rel=1e-12)


@settings(max_examples=30)
@given(situations())
def test_a_full_batch_step_after_the_choice_lowers_the_least_loss_of_the_fleet(
    situation: tuple[FederatedDataset, Clusters],
) -> None:
    data, before = situation
    learner = made(data.n_devices, len(before.centres), model=TWO_FEATURES)
    after = play(learner, before.to_state(), data, 3).after
    sizes = np.diff(data.bounds)

    assert sizes @ own_losses(data, after).min(axis=1) <= sizes @ own_losses(data, before).min(axis=1) + 1e-9


# -- how it starts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_devices", "m"), [(4, 2), (7, 3), (5, 5), (9, 1)])
def test_a_warm_start_is_a_balanced_partition_of_equal_models(n_devices: int, m: int) -> None:
    start = Clusters.of(made(n_devices, m, IFCASpec(restarts=1), seed=3).start({}))
    sizes = np.bincount(start.members, minlength=m)

    assert sizes.sum() == n_devices
    assert sizes.max() - sizes.min() <= 1
    assert {float(centre[0]) for centre in start.centres} == {0.0}


def test_restarts_and_seeds_have_partitions_of_their_own() -> None:
    free = made(12, 3, IFCASpec(init="random", restarts=1), Autoencoder(4, (3,), 2))
    partitions = [
        tuple(Clusters.of(made(12, 3, IFCASpec(restarts=3), seed=seed).start({}), f"trial-{trial}/").members)
        for seed in (0, 1)
        for trial in range(3)
    ]

    assert len(set(partitions)) == 6
    assert set(Clusters.of(free.start({})).members) == {NOBODYS}


def test_independent_random_models_differ_between_clusters_restarts_and_seeds() -> None:
    random, model = IFCASpec(init="random", restarts=2), Autoencoder(4, (3,), 2)
    centres = [
        centre.tobytes()
        for seed in (0, 1)
        for trial in range(2)
        for centre in Clusters.of(made(4, 2, random, model, seed).start({}), f"trial-{trial}/").centres
    ]

    assert len(set(centres)) == 8


def test_a_device_keeps_to_its_part_while_warming_up_and_is_free_afterwards() -> None:
    learner = made(3, 2, IFCASpec(restarts=1, warm_rounds=2))
    crossed = clusters([0, 10], [1, 1, 0]).to_state()
    warming, free = (play(learner, crossed, EXAMPLE, round_index) for round_index in (1, 2))

    assert warming.account.groups == {"cluster-0": (2,), "cluster-1": (0, 1)}
    assert free.account.groups == {"cluster-0": (0, 1), "cluster-1": (2,)}


def test_a_device_whose_part_is_lost_while_warming_up_chooses_among_the_others() -> None:
    learner = made(3, 2, IFCASpec(restarts=1), policy="rehome")
    lost = clusters([0, 10], [1, 1, 0], [True, False]).to_state()
    played = play(learner, lost, EXAMPLE, 1, present=[0, 1])

    assert played.account.groups == {"cluster-0": (0, 1, 2)}


# -- restarts ---------------------------------------------------------------------------------------------------------

POOR, GOOD = (0.0, 20.0), (2.0, 8.0)


def of_trials(*centres: tuple[float, float]) -> State:
    state: State = {}
    for trial, pair in enumerate(centres):
        state.update(clusters(pair, 3).to_state(f"trial-{trial}/"))
    return state


@pytest.mark.parametrize(
    ("restarts", "good"), [*((3, good) for good in range(3)), *((12, good) for good in (1, 2, 5, 10, 11))]
)
@pytest.mark.parametrize("round_index", [4, 5])
def test_the_restart_with_the_least_training_loss_goes_on(restarts: int, good: int, round_index: int) -> None:
    learner = made(3, 2, IFCASpec(init="random", restarts=restarts, trial_rounds=4))
    trials = [GOOD if trial == good else POOR for trial in range(restarts)]
    played = play(learner, of_trials(*trials), EXAMPLE, round_index)
    alone = play(made(3, 2), clusters(GOOD, 3).to_state(), EXAMPLE, round_index)

    assert played.state.keys() == {"cluster-0", "cluster-1", "members", "hosted"}
    assert [c.tolist() for c in played.after.centres] == [c.tolist() for c in alone.after.centres]
    assert played.account.groups == alone.account.groups == {"cluster-0": (0, 1), "cluster-1": (2,)}


def test_while_restarts_are_compared_groups_loss_and_holders_are_those_of_the_best_one() -> None:
    learner = made(3, 2, IFCASpec(init="random", restarts=2, trial_rounds=4))
    played = play(learner, of_trials(POOR, GOOD), EXAMPLE, 3)
    alone = play(made(3, 2), clusters(GOOD, 3).to_state(), EXAMPLE, 3)

    assert played.account.groups == alone.account.groups
    assert played.account.loss == pytest.approx(alone.account.loss)
    assert holders_of(learner.results(played.state), range(3)) == {"cluster-0": 2, "cluster-1": 1}


def test_the_comparison_of_restarts_counts_samples_and_not_devices() -> None:
    learner = made(3, 2, IFCASpec(init="random", restarts=2, trial_rounds=1))
    # The first restart is exact on two devices with one sample each, the second on the device with ten.
    data = columns([0.0], [4.0], [9.0] * 10)
    played = play(learner, of_trials((0.0, 4.0), (9.0, 8.0)), data, 1)

    assert played.after.centres[0].tolist() == [9.0]
    assert played.account.groups == {"cluster-0": (2,), "cluster-1": (0, 1)}


def test_before_it_is_time_every_restart_takes_its_own_step() -> None:
    learner = made(3, 2, IFCASpec(init="random", restarts=2, trial_rounds=4))
    state = play(learner, of_trials(POOR, GOOD), EXAMPLE, 3).state

    for trial, pair in enumerate((POOR, GOOD)):
        alone = play(made(3, 2), clusters(pair, 3).to_state(), EXAMPLE, 3)
        after = Clusters.of(state, f"trial-{trial}/")
        assert [c.tolist() for c in after.centres] == [c.tolist() for c in alone.after.centres]
        assert after.members.tolist() == alone.after.members.tolist()


def test_a_device_reports_once_per_restart_and_the_loss_of_each() -> None:
    learner = made(3, 2, IFCASpec(init="random", restarts=2, trial_rounds=4))
    played = play(learner, of_trials(POOR, GOOD), EXAMPLE, 3)
    keys = {key for key in played.contributions[2].parts if "cluster" in key}
    losses = played.contributions[2].parts["trial-losses"].mean

    assert keys == {"trial-0/cluster-0", "trial-1/cluster-1"}
    assert losses.tolist() == pytest.approx([200 / 3, 8 / 3])


def test_the_messages_are_as_many_as_the_restarts_until_one_is_chosen() -> None:
    learner = made(8, 4, IFCASpec(restarts=3, trial_rounds=2))

    assert [learner.models_moved(index) for index in range(5)] == [(3, 12), (3, 12), (3, 4), (1, 4), (1, 4)]
    assert [learner.nbytes(index) for index in range(5)] == [(24, 96), (24, 96), (24, 32), (8, 32), (8, 32)]
    assert learner.model_bytes == 8


def test_a_run_shorter_than_the_trials_chooses_in_its_last_round() -> None:
    spec = RunSpec(
        data="blobs", scheme="ifca", devices=4, clusters=2, rounds=3, train=FULL_BATCH, ifca=IFCASpec(trial_rounds=10)
    )
    result = simulated(spec, some_data([3, 4, 5, 2]))

    assert set(result.models) == {"cluster-0", "cluster-1"}
    assert IFCA(full_batch(), spec).models_moved(2) == (3, 2)


def test_one_model_needs_no_restarts_and_is_federated_averaging() -> None:
    data = some_data([3, 4, 5, 2], with_test=True)
    spec = RunSpec(data="blobs", devices=4, clusters=1, rounds=4, train=FULL_BATCH)
    ifca, fl = (simulated(msgspec.structs.replace(spec, scheme=name), data) for name in ("ifca", "fl"))

    assert params(ifca, "cluster-0").tolist() == params(fl).tolist()
    assert [record.bytes for record in closed(ifca)] == [record.bytes for record in closed(fl)]


def test_contributing_leaves_the_models_as_they_were() -> None:
    state = of_trials(POOR, GOOD)
    before = {key: value.copy() for key, value in state.items()}
    learner = made(3, 2, IFCASpec(init="random", restarts=2))
    play(learner, state, EXAMPLE, 1)

    assert all(np.array_equal(state[key], before[key]) for key in before)
    assert state.keys() == before.keys()
