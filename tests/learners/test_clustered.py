"""What FedGroup, IFCA and FeSEM share: m models with hosts, the step inside groups, and what is left after a loss."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.learners.rounds import clusters, full_batch
from tests.sim.fleets import FULL_BATCH
from tolfl.core.contribution import Contribution, Part
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import RunSpec
from tolfl.learners import Account, Closing, Fleet, Scorer, State, Turn
from tolfl.learners.clustered import (
    NOBODYS,
    Clustered,
    Clusters,
    assigned,
    clustering_seed,
    clusters_of,
    device_key,
    group_means,
    in_order,
    k_means,
    local_updates,
)
from tolfl.learners.layouts import SCHEMES, layout, n_clusters, protocol_policy, wiring
from tolfl.learners.learner import DTYPES
from tolfl.learners.registry import learner_of
from tolfl.learners.training import TrainedModel
from tolfl.runs.outcome import holders_of

RIVALS = ("fedgroup", "ifca", "fesem")

labels = st.lists(st.integers(0, 5), min_size=1, max_size=12).map(np.array)


class Shared(Clustered):
    """What is shared, with nothing of a method's own."""

    def start(self, state: State) -> State:
        return {**state, **self.blank().to_state()}

    def phase(self, state: State) -> str:
        return ""

    def contribute_in(self, phase: str, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{} for _ in turns]

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        return {**state, **self.after_step(Clusters.of(state), total, closing).to_state()}


def made(
    policy: str = "strict",
    lost: str = "lost",
    devices: int = 6,
    m: int = 3,
    topology: str = "",
    server_lr: float = 1.0,
) -> Shared:
    spec = RunSpec(
        data="blobs",
        scheme="fedgroup",
        devices=devices,
        clusters=m,
        topology=topology,
        on_head_failure=policy,
        lost_model="frozen" if lost == "frozen" else "lost",
        train=FULL_BATCH,
    )
    return Shared(full_batch(server_lr=server_lr), spec)


def rival(name: str) -> Clustered:
    learner = learner_of(Fleet(RunSpec(data="blobs", scheme=name, devices=6, clusters=3), (4,), usual_rows=10))
    assert isinstance(learner, Clustered)
    return learner


# -- clusters that travel ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "trial-1/"])
def test_clusters_come_back_as_they_left(prefix: str) -> None:
    left = clusters([[1, 2], [3, 4], [5, 6]], [0, NOBODYS, 2, 2], [True, False, True])
    state = left.to_state(prefix)
    back = Clusters.of(state, prefix)

    assert {array.dtype.str[1:] for array in state.values()} <= set(DTYPES)
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


def test_turns_that_share_their_state_share_their_clusters() -> None:
    one, other = clusters([1, 2], 4).to_state(), clusters([3, 4], 4).to_state()
    turns = [Turn(0, d, 1, state, np.ones((1, 1))) for d, state in enumerate([one, other, one, other])]
    read = [of_turn for _, of_turn in clusters_of(turns)]

    assert read[0] is read[2]
    assert [float(of_turn.centres[0][0]) for of_turn in read] == [1, 3, 1, 3]


# -- who hosts and who is wired to whom -------------------------------------------------------------------------------


def test_the_host_of_a_model_is_the_head_of_its_cluster() -> None:
    assert made().hosts == (0, 2, 4)
    assert made(topology="1,0|2,5,3|4").hosts == (1, 2, 4)
    assert made().m == 3
    assert made().present_hosts(DeviceSet.of([0, 1, 4])).tolist() == [True, False, True]


@pytest.mark.parametrize("name", RIVALS)
def test_devices_report_to_one_server_that_another_can_replace(name: str) -> None:
    spec = RunSpec(data="blobs", scheme=name, devices=6, clusters=3)
    asked = [msgspec.structs.replace(spec, on_head_failure=policy) for policy in SCHEMES[name].policies]

    assert wiring(spec).clusters == (tuple(range(6)),)
    assert {protocol_policy(one) for one in asked} == {"elect"}
    assert n_clusters(spec) == len(layout(spec).clusters) == rival(name).m == 3


@pytest.mark.parametrize("name", ["fedgroup", "fesem"])
def test_a_device_sends_and_gets_one_model(name: str) -> None:
    learner = rival(name)

    assert {learner.models_moved(index) for index in range(30)} == {(1, 1)}
    assert {learner.nbytes(index) for index in range(30)} == {(learner.model_bytes, learner.model_bytes)}


# -- the step ---------------------------------------------------------------------------------------------------------


def reported(device: int, n_samples: int, cluster: int, delta: float) -> Contribution:
    return Contribution.of_device(device, n_samples, {f"cluster-{cluster}": np.array([delta])}, 1.0)


def account_of(after: Clusters, total: Contribution) -> Account:
    before = clusters([10, 20, 30], [0, 1, 1, 2, 2, NOBODYS])
    return made().account(before.to_state(), after.to_state(), total, 3)


def stepped(present: list[int], server_lr: float = 1.0) -> tuple[Clusters, Contribution]:
    total = Contribution.total([reported(0, 1, 0, 4.0), reported(1, 3, 0, 8.0), reported(2, 2, 1, -2.0)])
    before = clusters([10, 20, 30], [0, 1, 1, 2, 2, NOBODYS])
    return made(server_lr=server_lr).after_step(before, total, Closing(0, 3, DeviceSet.of(present))), total


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
    account = account_of(after, total)

    assert [float(centre[0]) for centre in after.centres] == [10.0, 22.0, 30.0]
    assert after.is_hosted.tolist() == [False, True, True]
    assert account.left_out == {0: "orphaned", 1: "orphaned"}
    assert account.groups == {"cluster-1": (2,)}


def test_who_trained_nothing_is_in_no_group() -> None:
    after, _ = stepped([0, 1, 2, 3, 4, 5])
    nothing = Contribution.of_device(3, 0, {}, 0.0)
    account = account_of(after, Contribution.total([reported(1, 3, 0, 8.0), nothing]))

    assert account.groups == {"cluster-0": (1,)}
    assert account.left_out == {}


def test_the_models_that_were_given_are_not_changed() -> None:
    before = clusters([10, 20], [0, 1])
    total = reported(1, 1, 0, 4.0)
    made(devices=2, m=2).after_step(before, total, Closing(0, 1, DeviceSet.of([0, 1])))

    assert [float(centre[0]) for centre in before.centres] == [10, 20]
    assert before.members.tolist() == [0, 1]


# -- what is served ---------------------------------------------------------------------------------------------------


def served(results: dict[str, Scorer]) -> dict[str, tuple[float, tuple[int, ...]]]:
    found = {}
    for name, one in results.items():
        assert isinstance(one, TrainedModel)
        assert one.users is not None
        found[name] = (float(one.params[0]), tuple(one.users))
    return found


def test_a_lost_model_is_served_only_where_lost_models_are_kept() -> None:
    state = clusters([10, 20, 30], [0, 0, 1, 1, 1, NOBODYS], [False, True, True]).to_state()
    lost, frozen = (made(lost=kept).results(state) for kept in ("lost", "frozen"))

    assert served(lost) == {"cluster-1": (20, (2, 3, 4)), "cluster-2": (30, ())}
    assert served(frozen) == {"cluster-0": (10, (0, 1)), "cluster-1": (20, (2, 3, 4)), "cluster-2": (30, ())}
    assert holders_of(lost, [1, 2, 3, 5]) == {"cluster-1": 2, "cluster-2": 0}
    assert holders_of(frozen, [1, 2, 3, 5]) == {"cluster-0": 1, "cluster-1": 2, "cluster-2": 0}


def test_nothing_is_served_where_all_hosts_are_gone() -> None:
    state = clusters([10, 20], [0, 1], [False, False]).to_state()

    assert made().results(state) == {}
    assert set(made(lost="frozen").results(state)) == {"cluster-0", "cluster-1"}


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
    turn = Turn(0, 4, 1, {}, np.ones((3, 1)))
    alike = made()
    alike.weight = "equal"
    by_samples, equal = (
        learner.parts(turn, {"cluster-0": np.array([6.0])}, 2.0)["cluster-0"] for learner in (made(), alike)
    )

    assert (by_samples.n_trained, by_samples.weight, by_samples.loss, list(by_samples.included)) == (3, 3, 2.0, [4])
    assert (equal.n_trained, equal.weight, equal.loss, list(equal.included)) == (3, 1, 2.0, [4])
    assert made().parts(turn, {}, 2.0) == {}
