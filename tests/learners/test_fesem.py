"""FeSEM: golden numbers, an objective that only falls, empty centres, and distances on some layers alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.learners.rounds import ONE_FEATURE, SETTINGS, Round, clusters, full_batch, play, trained_to
from tests.sim.fleets import FULL_BATCH, Mean, closed, columns, params, simulated, some_data
from tolfl.core.contribution import Vector
from tolfl.core.errors import SpecError
from tolfl.core.spec import BlobsSpec, FeSEMSpec, ModelSpec, RunSpec, Weight
from tolfl.datasets import FederatedDataset
from tolfl.kernel import Update
from tolfl.learners import State, Turn
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.clustered import NOBODYS, Clusters
from tolfl.learners.fesem import FeSEM, distances_to
from tolfl.learners.torch_module import ModuleModel
from tolfl.learners.training import LocalTraining, Model
from tolfl.sim.simulation import Runs, run


def made(devices: int, m: int, fesem: FeSEMSpec | None = None, policy: str = "", model: Model = ONE_FEATURE) -> FeSEM:
    return FeSEM(
        LocalTraining(model, SETTINGS),
        RunSpec(
            data="blobs",
            scheme="fesem",
            devices=devices,
            clusters=m,
            rounds=10,
            train=FULL_BATCH,
            on_head_failure=policy,
            fesem=fesem or FeSEMSpec(),
        ),
    )


def to_state(given: Clusters, measured: list[float] | None = None, reseed: list[int] | None = None) -> State:
    """Return what travels: clusters, the parameters that count, and who is asked to found an empty centre."""
    ones = np.ones_like(given.centres[0])
    return {
        **given.to_state(),
        "measured": ones if measured is None else np.array(measured, dtype=float),
        "reseed": np.array(reseed or [NOBODYS] * len(given.centres)),
    }


# -- golden example C -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [[0, 0, 1], [1, 1, 0], [NOBODYS, 0, NOBODYS]], ids=str)
def test_a_round_of_example_c_has_the_groups_and_centres_worked_out_by_hand(members: list[int]) -> None:
    state = to_state(clusters([0.5, 9], members))
    played = play(made(3, 2), state, columns([1], [1], [1]), 1, trained_to({0: [0.0], 1: [1.0], 2: [10.0]}))

    assert played.account.groups == {"cluster-0": (0, 1), "cluster-1": (2,)}
    assert [centre.tolist() for centre in played.after.centres] == [[0.5], [10.0]]


@pytest.mark.parametrize(("weight", "centre"), [("equal", 0.5), ("samples", 0.25)])
def test_the_mean_of_a_centres_devices_is_plain_unless_samples_are_to_count(weight: Weight, centre: float) -> None:
    data = columns([1, 1, 1], [1], [1, 1])
    state = to_state(clusters([0.4, 9], [0, 0, 1]))
    learner = made(3, 2, FeSEMSpec(weight=weight))
    played = play(learner, state, data, 1, trained_to({0: [0.0], 1: [1.0], 2: [10.0]}))

    assert [float(after[0]) for after in played.after.centres] == pytest.approx([centre, 10.0])
    assert played.total.n_samples == 6


def test_training_starts_from_the_devices_own_centre() -> None:
    state = to_state(clusters([0, 10], [0, 1, NOBODYS]))
    starts: dict[int, list[float]] = {}

    def spy(turns: Sequence[Turn], given: Sequence[Vector], *asked: int | None) -> list[Update]:
        starts.update({turn.device: start.tolist() for turn, start in zip(turns, given, strict=True)})
        return full_batch().updates(turns, given, *asked)

    play(made(3, 2), state, columns([1], [9], [5]), 2, spy)

    assert starts == {0: [0], 1: [10], 2: [5]}  # a newcomer starts from the mean of the centres


# -- the objective ----------------------------------------------------------------------------------------------------


@st.composite
def situations(draw: st.DrawFn) -> tuple[Clusters, np.ndarray]:
    """Draw centres with members, and where each device's training ends."""
    n_devices = draw(st.integers(1, 8))
    m = draw(st.integers(1, n_devices))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    members = [int(rng.integers(m)) for _ in range(n_devices)]
    return clusters(rng.normal(0, 2, (m, 3)), members), rng.normal(0, 2, (n_devices, 3))


def objective(local: np.ndarray, centres: tuple[np.ndarray, ...], members: np.ndarray) -> float:
    return float(np.square(local - np.stack(centres)[members]).sum())


def ended_at(before: Clusters, local: np.ndarray) -> Round:
    n_devices = len(local)
    learner = made(n_devices, len(before.centres))
    data = FederatedDataset.from_arrays([np.ones((1 + d, 3)) for d in range(n_devices)])
    return play(learner, to_state(before), data, 1, trained_to(dict(enumerate(local))))


@settings(max_examples=60)
@given(situations())
def test_neither_the_e_step_nor_the_m_step_raises_the_sum_of_squared_distances(
    situation: tuple[Clusters, np.ndarray],
) -> None:
    before, local = situation
    after = ended_at(before, local).after

    assigned = objective(local, before.centres, after.members)
    assert assigned <= objective(local, before.centres, before.members) + 1e-9
    assert objective(local, after.centres, after.members) <= assigned + 1e-9


@settings(max_examples=60)
@given(situations())
def test_every_device_is_with_its_nearest_centre_and_every_centre_amid_its_devices(
    situation: tuple[Clusters, np.ndarray],
) -> None:
    before, local = situation
    after = ended_at(before, local).after
    distances = np.square(local[:, None] - np.stack(before.centres)[None]).sum(2)

    assert after.members.tolist() == distances.argmin(axis=1).tolist()
    for cluster, centre in enumerate(after.centres):
        own = local[after.members == cluster]
        np.testing.assert_allclose(centre, own.mean(axis=0) if len(own) else before.centres[cluster], atol=1e-12)


@settings(max_examples=30)
@given(situations(), st.data())
def test_centres_in_another_order_give_the_same_results_in_that_order(
    situation: tuple[Clusters, np.ndarray], data: st.DataObject
) -> None:
    before, local = situation
    order = data.draw(st.permutations(range(len(before.centres))))
    place = {old: new for new, old in enumerate(order)}
    shuffled = clusters([before.centres[old] for old in order], [place[int(old)] for old in before.members])
    plain, other = ended_at(before, local).after, ended_at(shuffled, local).after

    assert [order[new] for new in other.members] == plain.members.tolist()
    for new, old in enumerate(order):
        np.testing.assert_allclose(other.centres[new], plain.centres[old], atol=1e-12)


def test_the_objective_falls_in_real_training_from_badly_placed_centres() -> None:
    means = [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]
    data = columns(*[[mean - 1, mean + 1] for mean in means])
    learner, state = made(6, 2), to_state(clusters([9, 13], [0, 1, 0, 1, 0, 1]))
    values = []
    for index in range(1, 6):
        ends: dict[int, float] = {}

        def thorough(
            turns: Sequence[Turn], starts: Sequence[Vector], *asked: int | None, ends: dict[int, float] = ends
        ) -> list[Update]:
            updates = full_batch().updates(turns, starts, epochs=10)
            for turn, start, update in zip(turns, starts, updates, strict=True):
                ends[turn.device] = float(start[0] - update.delta[0])
            return updates

        played = play(learner, state, data, index, thorough)
        local = np.array([[ends[d]] for d in range(6)])
        values.append(objective(local, played.after.centres, played.after.members))
        state = played.state

    assert (np.diff(values) <= 1e-12).all()
    assert values[-1] < 0.2 * values[0]
    assert played.account.groups == {"cluster-0": (0, 1, 2), "cluster-1": (3, 4, 5)}


# -- centres that nobody is near to -----------------------------------------------------------------------------------


def test_an_empty_centre_is_put_where_the_farthest_device_is() -> None:
    far = {0: [0.0], 1: [1.0], 2: [4.0], 3: [100.0]}
    data = columns([1], [1], [1], [1])
    learner = made(4, 3)
    emptied = play(learner, to_state(clusters([0, 100, 1000], [0, 0, 0, 1])), data, 1, trained_to(far))
    founded = play(learner, emptied.state, data, 2, trained_to(far))

    assert emptied.account.groups == {"cluster-0": (0, 1, 2), "cluster-1": (3,)}
    assert emptied.state["reseed"].tolist() == [NOBODYS, NOBODYS, 2]
    assert emptied.after.centres[2].tolist() == [1000]
    assert founded.account.groups == {"cluster-0": (0, 1), "cluster-1": (3,), "cluster-2": (2,)}
    assert [centre.tolist() for centre in founded.after.centres] == [[0.5], [100], [4]]
    assert founded.state["reseed"].tolist() == [NOBODYS] * 3


def test_two_empty_centres_get_two_devices_and_no_other_centre_is_emptied_for_it() -> None:
    far = {0: [0.0], 1: [3.0], 2: [5.0], 3: [112.0]}
    state = to_state(clusters([0, 100, 1000, 2000], [0, 0, 0, 1]))
    emptied = play(made(4, 4), state, columns([1], [1], [1], [1]), 1, trained_to(far))

    # Device 3 is the farthest from its centre but the only one there.
    assert emptied.state["reseed"].tolist() == [NOBODYS, NOBODYS, 2, 1]


def test_a_device_that_is_asked_to_found_a_lost_centre_stays_where_it_is() -> None:
    learner = made(3, 2)
    state = to_state(clusters([0, 100], [0, 0, 0], [True, False]), reseed=[NOBODYS, 2])
    played = play(learner, state, columns([1], [1], [1]), 1, trained_to({d: [float(d)] for d in range(3)}))

    assert played.account.groups == {"cluster-0": (0, 1, 2)}


def test_a_lost_centre_is_not_reseeded() -> None:
    state = to_state(clusters([0, 100], [0, 0, 0]))
    played = play(
        made(3, 2),
        state,
        columns([1], [1], [1]),
        1,
        trained_to(
            {d: [float(d)] for d in range(3)},
        ),
        present=[0, 1],
    )

    assert played.after.is_hosted.tolist() == [True, False]
    assert played.state["reseed"].tolist() == [NOBODYS, NOBODYS]


def test_one_device_cannot_fill_two_centres() -> None:
    played = play(
        made(2, 2),
        to_state(clusters([0, 100], [0, 0])),
        columns([1], [1]),
        1,
        trained_to({0: [1.0]}),
        devices=[0],
        present=[0],
    )

    assert played.state["reseed"].tolist() == [NOBODYS, NOBODYS]


# -- layers -----------------------------------------------------------------------------------------------------------


def test_distances_count_only_what_is_measured_and_lost_centres_are_far() -> None:
    given_ = clusters([[0, 0, 0], [3, 4, 0], [0, 0, 0]], 3, [True, True, False])
    local = np.array([0.0, 4.0, 9.0])

    assert distances_to(local, given_, np.array([1.0, 1.0, 0.0])).tolist() == [16, 9, np.inf]
    assert distances_to(local, given_, np.array([0.0, 0.0, 1.0])).tolist() == [81, 81, np.inf]


def test_a_device_is_nearest_by_the_measured_parameters_alone_but_all_are_averaged() -> None:
    state = to_state(clusters([[0, 0, 0], [10, 0, 0]], [0, 0]), measured=[0, 1, 1])
    everything = to_state(clusters([[0, 0, 0], [10, 0, 0]], [0, 0]))
    local = {0: [9.0, 1, 1], 1: [10.0, 3, 1]}
    by_layer, by_all = (
        play(made(2, 2), start, some_data([2, 2]), 1, trained_to(local)) for start in (state, everything)
    )

    assert by_layer.account.groups == {"cluster-0": (0, 1)}
    np.testing.assert_allclose(by_layer.after.centres[0], [9.5, 2, 1])
    assert by_layer.state["measured"].tolist() == [0, 1, 1]
    assert by_all.account.groups == {"cluster-1": (0, 1)}


def test_layers_are_named_by_how_their_parameters_begin() -> None:
    model = Autoencoder(4, (3,), 2)
    names = list(model.tensors(model.initial(0)))
    first = names[0]
    learner = made(2, 2, FeSEMSpec(layers=(first,)), model=model)
    measured = model.tensors(learner.start({})["measured"])
    everything = made(2, 2, model=model).start({})["measured"]

    assert {name for name, mask in measured.items() if mask.all()} == {first}
    assert {name for name, mask in measured.items() if mask.any()} == {first}
    assert everything.all()


def test_an_unknown_layer_is_refused_with_those_that_there_are() -> None:
    spec = RunSpec(
        data="blobs",
        scheme="fesem",
        devices=2,
        clusters=2,
        fesem=FeSEMSpec(layers=("theta", "decoder")),
        rounds=1,
    )

    with pytest.raises(SpecError, match=r"fesem layers: no parameter starts with 'decoder'; there are theta$"):
        Runs(spec, some_data([2, 2]), ModuleModel(Mean(3)))


def test_the_first_centres_are_found_on_the_measured_layers_too() -> None:
    # By the first parameter devices 0 and 1 are alike, by the second 0 and 2.
    local = {0: [0.0, 0, 0], 1: [0.1, 5, 0], 2: [20.0, 0.1, 0], 3: [20.1, 5.1, 0]}
    data = some_data([2] * 4)
    learner = made(4, 2, model=ModuleModel(Mean(3)))
    start = learner.start({})
    groups = [
        play(learner, start | {"measured": np.array(measured)}, data, 0, trained_to(local))
        for measured in ([1.0, 1, 1], [0.0, 1, 0])
    ]

    assert groups[0].account.groups == {"cluster-0": (0, 1), "cluster-1": (2, 3)}
    assert groups[1].account.groups == {"cluster-0": (0, 2), "cluster-1": (1, 3)}
    np.testing.assert_allclose(groups[1].after.centres, [[10, 0.05, 0], [10.1, 5.05, 0]])


# -- fleets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("m", [2, 3])
def test_groups_around_different_means_are_found_and_kept(m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = FederatedDataset.from_arrays([3 * np.eye(3)[d % m] + rng.normal(0, 0.3, (5, 3)) for d in range(3 * m)])
    spec = RunSpec(data="blobs", scheme="fesem", devices=3 * m, clusters=m, rounds=10, seed=seed, train=FULL_BATCH)
    result = simulated(spec, data)

    expected = {f"cluster-{group}": tuple(range(group, 3 * m, m)) for group in range(m)}
    assert [record.groups for record in closed(result)] == [expected] * 10
    for group in range(m):
        np.testing.assert_allclose(params(result, f"cluster-{group}"), 3 * np.eye(3)[group], atol=0.6)


BLOBS = RunSpec(
    data="blobs",
    scheme="fesem",
    devices=6,
    clusters=3,
    rounds=4,
    model=ModelSpec(hidden=(16,), code=3),
    blobs=BlobsSpec(samples_per_device=60, n_features=12, n_groups=3, n_test=40),
)


@pytest.mark.parametrize("layers", [(), ("encoder",)], ids=str)
def test_a_fleet_on_subspaces_of_its_own_is_separated_by_the_autoencoder(layers: tuple[str, ...]) -> None:
    for seed in (0, 1):
        result = run(msgspec.structs.replace(BLOBS, seed=seed, fesem=FeSEMSpec(layers=layers)))[0]
        assert closed(result)[-1].groups == {"cluster-0": (0, 1), "cluster-1": (2, 3), "cluster-2": (4, 5)}


def test_random_centres_collapse_to_one_as_in_the_authors_code() -> None:
    spec = msgspec.structs.replace(BLOBS, rounds=1, fesem=FeSEMSpec(init="random"))
    started = FeSEM(LocalTraining(Autoencoder(12, (16,), 3), SETTINGS), spec).start({})
    result = run(spec)[0]

    assert len({Clusters.of(started).centres[j].tobytes() for j in range(3)}) == 3
    assert len(closed(result)[0].groups) == 1


def test_random_centres_come_alive_where_empty_ones_are_reseeded() -> None:
    result = run(msgspec.structs.replace(BLOBS, rounds=8, fesem=FeSEMSpec(init="random")))[0]

    assert len(closed(result)[-1].groups) > 1


def test_pre_training_lasts_as_many_epochs_as_asked_for() -> None:
    data = columns([1], [9])
    one, many = (
        play(made(2, 2, FeSEMSpec(pretrain_epochs=epochs)), made(2, 2).start({}), data, 0) for epochs in (1, 2)
    )

    assert [float(c[0]) for c in one.after.centres] == pytest.approx([0.2, 1.8])
    assert [float(c[0]) for c in many.after.centres] == pytest.approx([0.36, 3.24])


# -- hosts that are not there -----------------------------------------------------------------------------------------


def test_an_orphan_finds_the_nearest_centre_that_is_left_only_if_it_may() -> None:
    lost = to_state(clusters([0, 5, 50], [0, 1, 1, 2], [True, False, True]))
    local = trained_to({0: [0.0], 1: [5.0], 2: [40.0], 3: [50.0]})
    strict, rehome = (
        play(made(4, 3, policy=policy), lost, columns([1], [1], [1], [1]), 4, local, present=[0, 1, 3])
        for policy in ("strict", "rehome")
    )

    assert strict.account.left_out == {1: "orphaned", 2: "orphaned"}
    assert strict.account.groups == {"cluster-0": (0,), "cluster-2": (3,)}
    assert rehome.account.left_out == {}
    assert rehome.account.groups == {"cluster-0": (0, 1), "cluster-2": (2, 3)}
    assert strict.after.centres[1].tolist() == rehome.after.centres[1].tolist() == [5]
