"""What FedGroup, IFCA and FeSEM share: m models with hosts, the step inside groups, and what is left after a loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tolfl.schemes import SCHEMES, Closing, Scheme, Task, layout
from tolfl.schemes.clustered import (
    NOBODYS,
    Clustered,
    Clusters,
    assigned,
    clustering_seed,
    clusters_of,
    in_order,
    k_means,
)
from tolfl.schemes.cold_start import device_key, group_means, local_updates

from tests.schemes.rounds import clusters
from tests.sim.fleets import FULL_BATCH
from tolfl.core.contribution import Contribution
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import RunSpec

RIVALS = ("fedgroup", "ifca", "fesem")

labels = st.lists(st.integers(0, 5), min_size=1, max_size=12).map(np.array)


def made(policy: str = "strict", lost: str = "lost", devices: int = 6, m: int = 3, topology: str = "") -> Clustered:
    return Clustered(
        RunSpec(
            data="blobs",
            devices=devices,
            clusters=m,
            topology=topology,
            on_head_failure=policy,
            lost_model="frozen" if lost == "frozen" else "lost",
            train=FULL_BATCH,
        )
    )


def rival(name: str, **options: object) -> Scheme:
    return SCHEMES[name](RunSpec.from_fields({"scheme": name, "devices": 6, "clusters": 3, **options}))


# -- clusters that travel ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "trial-1/"])
def test_clusters_come_back_as_they_left(prefix: str) -> None:
    left = clusters([[1, 2], [3, 4], [5, 6]], [0, NOBODYS, 2, 2], [True, False, True])
    models = left.to_models(prefix)
    back = Clusters.of(models, prefix)

    assert all(np.issubdtype(array.dtype, np.floating) for array in models.values())
    assert [centre.tolist() for centre in back.centres] == [[1, 2], [3, 4], [5, 6]]
    assert back.members.tolist() == [0, NOBODYS, 2, 2]
    assert back.hosted.tolist() == [0, 2]


def test_an_orphan_is_a_device_whose_model_is_lost() -> None:
    given_ = clusters([1, 2], [0, 1, NOBODYS], [True, False])

    assert [given_.is_orphan(device) for device in range(3)] == [False, True, False]
    assert [made("strict").is_out(given_, device) for device in range(3)] == [False, True, False]
    assert [made("rehome").is_out(given_, device) for device in range(3)] == [False, False, False]


@pytest.mark.parametrize("policy", ["strict", "rehome"])
def test_where_all_models_are_lost_everybody_is_out(policy: str) -> None:
    given_ = clusters([1, 2], [0, 1, NOBODYS], [False, False])

    assert all(made(policy).is_out(given_, device) for device in range(3))


def test_tasks_that_share_their_models_share_their_clusters() -> None:
    one, other = clusters([1, 2], 4).to_models(), clusters([3, 4], 4).to_models()
    tasks = [Task(0, d, 1, models, np.ones((4, 1)), d, d + 1) for d, models in enumerate([one, other, one, other])]
    read = [of_task for _, of_task in clusters_of(tasks)]

    assert read[0] is read[2]
    assert [float(of_task.centres[0][0]) for of_task in read] == [1, 3, 1, 3]


# -- who hosts and who is wired to whom -------------------------------------------------------------------------------


def test_the_host_of_a_model_is_the_head_of_its_cluster() -> None:
    assert made().hosts == (0, 2, 4)
    assert made(topology="1,0|2,5,3|4").hosts == (1, 2, 4)
    assert made().m == 3
    assert made().present_hosts(DeviceSet.of([0, 1, 4])).tolist() == [True, False, True]


@pytest.mark.parametrize("name", RIVALS)
def test_devices_report_to_one_server_that_another_can_replace(name: str) -> None:
    scheme = rival(name)
    spec = RunSpec(data="blobs", scheme=name, devices=6, clusters=3)

    assert scheme.wiring(layout(spec)).clusters == (tuple(range(6)),)
    assert {scheme.protocol_policy(policy) for policy in scheme.policies} == {"elect"}
    assert scheme.n_clusters(3, 6) == 3


@pytest.mark.parametrize("name", ["fedgroup", "fesem"])
def test_a_device_sends_and_gets_one_model(name: str) -> None:
    scheme = rival(name)

    assert {scheme.models_up(index) for index in range(30)} == {scheme.models_down(index) for index in range(30)} == {1}


# -- the step ---------------------------------------------------------------------------------------------------------


def reported(device: int, n_samples: int, cluster: int, delta: float) -> Contribution:
    return Contribution.of_device(device, n_samples, {f"cluster-{cluster}": np.array([delta])}, 1.0)


def stepped(present: list[int], server_lr: float = 1.0) -> tuple[Clusters, Contribution]:
    total = Contribution.total([reported(0, 1, 0, 4.0), reported(1, 3, 0, 8.0), reported(2, 2, 1, -2.0)])
    before = clusters([10, 20, 30], [0, 1, 1, 2, 2, NOBODYS])
    return made().after_step(before, total, Closing(0, 3, DeviceSet.of(present), server_lr)), total


def test_a_group_moves_by_the_mean_of_its_members_and_an_empty_one_stays() -> None:
    after, _ = stepped([0, 1, 2, 3, 4, 5])

    assert [float(centre[0]) for centre in after.centres] == [3.0, 22.0, 30.0]
    assert after.members.tolist() == [0, 0, 1, 2, 2, NOBODYS]
    assert after.is_hosted.all()


def test_the_step_of_the_server_scales_the_move() -> None:
    after, _ = stepped([0, 1, 2, 3, 4, 5], server_lr=0.5)

    assert [float(centre[0]) for centre in after.centres] == [6.5, 21.0, 30.0]


def test_a_model_whose_host_died_in_the_round_stays_as_it_was_and_its_members_are_left_out() -> None:
    after, total = stepped([1, 2, 3, 4, 5])
    applied = made().applied(after, total, [], {})

    assert [float(centre[0]) for centre in after.centres] == [10.0, 22.0, 30.0]
    assert after.is_hosted.tolist() == [False, True, True]
    assert applied.left_out == {0: "orphaned", 1: "orphaned"}
    assert applied.groups == {"cluster-1": (2,)}


def test_who_trained_nothing_is_in_no_group() -> None:
    after, _ = stepped([0, 1, 2, 3, 4, 5])
    nothing = Contribution.of_device(3, 0, {}, 0.0)
    applied = made().applied(after, Contribution.total([reported(1, 3, 0, 8.0), nothing]), [], {})

    assert applied.groups == {"cluster-0": (1,)}
    assert applied.left_out == {}


def test_the_models_that_were_given_are_not_changed() -> None:
    before = clusters([10, 20], [0, 1])
    total = reported(1, 1, 0, 4.0)
    made(devices=2, m=2).after_step(before, total, Closing(0, 1, DeviceSet.of([0, 1])))

    assert [float(centre[0]) for centre in before.centres] == [10, 20]
    assert before.members.tolist() == [0, 1]


# -- what is served ---------------------------------------------------------------------------------------------------


def test_a_lost_model_is_served_only_where_lost_models_are_kept() -> None:
    models = clusters([10, 20, 30], [0, 0, 1, 1, 1, NOBODYS], [False, True, True]).to_models()
    lost, frozen = (made(lost=kept).serving(models, [1, 2, 3, 5]) for kept in ("lost", "frozen"))

    assert {name: (float(one.params[0]), one.n_devices) for name, one in lost.items()} == {
        "cluster-1": (20, 2),
        "cluster-2": (30, 0),
    }
    assert {name: (float(one.params[0]), one.n_devices) for name, one in frozen.items()} == {
        "cluster-0": (10, 1),
        "cluster-1": (20, 2),
        "cluster-2": (30, 0),
    }


def test_nothing_is_served_where_all_hosts_are_gone() -> None:
    models = clusters([10, 20], [0, 1], [False, False]).to_models()

    assert made().serving(models, [0, 1]) == {}
    assert set(made(lost="frozen").serving(models, [0, 1])) == {"cluster-0", "cluster-1"}


# -- numbering and k-means --------------------------------------------------------------------------------------------


@given(labels)
def test_groups_are_numbered_by_their_first_member(drawn: np.ndarray) -> None:
    numbered = in_order(drawn)
    firsts = [int(np.flatnonzero(numbered == label)[0]) for label in range(int(numbered.max()) + 1)]

    assert (np.equal.outer(numbered, numbered) == np.equal.outer(drawn, drawn)).all()
    assert firsts == sorted(firsts)
    assert in_order(numbered).tolist() == numbered.tolist()


@given(labels, st.permutations(range(6)))
def test_names_of_groups_do_not_matter(drawn: np.ndarray, names: list[int]) -> None:
    assert in_order(np.array(names)[drawn]).tolist() == in_order(drawn).tolist()


def test_k_means_finds_what_is_far_apart_and_gives_fewer_groups_where_points_coincide() -> None:
    points = np.array([[9.0, 9], [0, 0], [9, 8], [0, 1]])

    assert k_means(points, 2, seed=0).tolist() == [0, 1, 0, 1]
    assert k_means(np.ones((4, 2)), 3, seed=0).tolist() == [0, 0, 0, 0]
    assert k_means(points[:2], 5, seed=0).tolist() == [0, 1]
    assert k_means(points, 1, seed=0).tolist() == [0, 0, 0, 0]


def test_a_clustering_has_a_seed_of_its_own_per_trial() -> None:
    seeds = [clustering_seed(seed, trial) for seed in (0, 1) for trial in (0, 1)]

    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert clustering_seed(7) == clustering_seed(7)


def test_groups_take_the_models_that_have_a_host_in_order() -> None:
    before = clusters([1, 2, 3], 5, [False, True, True])
    after = assigned(before, [1, 2, 4], np.array([0, 1, 0]))

    assert after.members.tolist() == [NOBODYS, 1, 2, NOBODYS, 1]
    assert before.members.tolist() == [NOBODYS] * 5


# -- models of their own ----------------------------------------------------------------------------------------------


def test_devices_are_in_the_order_of_their_numbers_and_not_of_their_names() -> None:
    total = Contribution.total(
        [Contribution.of_device(d, 1, {device_key(d): np.array([float(d)])}, 0.0) for d in (10, 2, 1)]
    )
    devices, rows = local_updates(total)

    assert devices == [1, 2, 10]
    assert rows.tolist() == [[1], [2], [10]]
    assert local_updates(Contribution.empty())[0] == []


def test_the_mean_of_a_group_is_plain() -> None:
    rows = np.array([[1.0, 0], [3, 0], [0, 7]])

    assert [mean.tolist() for mean in group_means(rows, np.array([0, 0, 1]))] == [[2, 0], [0, 7]]


def test_members_weigh_by_samples_unless_they_are_to_be_equal() -> None:
    class Equal(Clustered):
        weight = "equal"

    task = Task(0, 4, 1, {}, np.ones((3, 1)), 0, 3)
    by_samples = made().contribution(task, {"cluster-0": np.array([6.0])}, 2.0)
    equal = Equal(RunSpec(data="blobs", devices=6, clusters=3)).contribution(task, {"cluster-0": np.array([6.0])}, 2.0)
    nothing = made().contribution(task, {}, 2.0)

    assert (by_samples.n_samples, by_samples.parts["cluster-0"].weight, by_samples.loss) == (3, 3, 2.0)
    assert (equal.n_samples, equal.parts["cluster-0"].weight, equal.loss) == (3, 1, 2.0)
    assert (nothing.n_samples, nothing.parts, nothing.loss, list(nothing.included)) == (0, {}, None, [4])
