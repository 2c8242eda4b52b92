"""Corners of FedGroup, IFCA and FeSEM: uneven sides of a cut, returns, degenerate data, what records then say."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from torch import nn

from tests.sim.fleets import Mean, closed, columns, finished, params, some_data
from tests.sim.fleets import simulated as module_run
from tests.sim.rivals import BLOBS, DATA, MODEL, assert_same, changed, n_samples, simulated
from tolfl.core.errors import SpecError
from tolfl.core.records import RunStarted
from tolfl.core.spec import FedGroupSpec, FeSEMSpec, IFCASpec, LinkModel, RunSpec, TrainSettings, TrainSpec
from tolfl.datasets import FederatedDataset
from tolfl.kernel import TrainJob, Update
from tolfl.learners import Fleet
from tolfl.learners.registry import learner_of
from tolfl.learners.torch_module import ModuleModel
from tolfl.runs.checkpoint import Checkpoint
from tolfl.sim.simulation import Run, Runs, run


@pytest.mark.parametrize("scheme", ["fedgroup", "ifca", "fesem"])
def test_sides_of_a_cut_that_are_not_equally_fast_do_not_disturb_each_other(scheme: str) -> None:
    data = some_data([3, 3, 30, 30, 30, 30])
    spec = changed(
        scheme=scheme,
        rounds=4,
        fail="cut:0,1|2,3,4,5@0",
        links=LinkModel(seconds_per_sample=1.0),
        ifca=IFCASpec(warm_rounds=1, trial_rounds=2),
    )
    uneven = run(spec, data, MODEL)[0]
    even = run(msgspec.structs.replace(spec, links=LinkModel()), data, MODEL)[0]

    def lines(result: Run) -> Sequence[object]:
        return sorted((c.round, c.included, sorted(c.groups.items())) for c in closed(result))

    assert lines(uneven) == lines(even)


@pytest.mark.parametrize("scheme", ["fedgroup", "ifca", "fesem"])
def test_repetitions_that_resume_from_different_rounds_are_the_uninterrupted_runs(scheme: str) -> None:
    spec = msgspec.structs.replace(BLOBS, scheme=scheme, repetitions=2)
    whole = run(spec)
    runs = Runs(spec)
    for place, _ in enumerate(runs, start=1):
        if place == 3:
            known = [runs.checkpoints()[0], Checkpoint([])]
            break
    for one, other in zip(finished(Runs(spec, known=known)), whole, strict=True):
        assert_same(one, other)


def test_fesem_does_not_reseed_a_centre_whose_members_come_back_with_its_host() -> None:
    last = closed(simulated(changed(scheme="fesem", rounds=12, fail="device:0@5-8")))[-1]
    assert last.groups == {"cluster-0": (0, 1), "cluster-1": (2, 3), "cluster-2": (4, 5)}


@pytest.mark.parametrize("scheme", ["fedgroup", "ifca", "fesem"])
def test_who_trained_nothing_in_the_round_of_a_return_is_not_included(scheme: str) -> None:
    for record in closed(simulated(changed(scheme=scheme, rounds=12, fail="device:0@5-8"))):
        assert sorted(d for m in record.groups.values() for d in m) == list(record.included)


@pytest.mark.parametrize("policy", ["drop", "freeze"])
def test_devices_lost_with_a_head_of_tol_fl_are_counted(policy: str) -> None:
    summary = simulated(changed(scheme="tol-fl", fail="server@2", on_head_failure=policy)).summary
    assert (summary["devices_in_last_round"], summary["devices_lost_with_head"]) == (4, 1)


def test_the_last_round_of_the_summary_is_that_of_the_models_that_are_scored() -> None:
    result = simulated(
        changed(scheme="fedgroup", fail="cut:2,3|0,1,4,5@2", links=LinkModel(seconds_per_sample=0.1, speed_spread=1.5))
    )
    assert set(result.models) == {"cluster-0", "cluster-2"}
    assert (result.summary["clusters_in_use"], result.summary["devices_in_last_round"]) == (2, 4)


@pytest.mark.parametrize(
    ("data", "changes", "n_models"),
    [
        pytest.param(columns(*[[d, d + 1] for d in range(6)]), {}, 3, id="a model of one parameter"),
        pytest.param(some_data([3]), {"devices": 1, "clusters": 1}, 1, id="alone"),
        pytest.param(DATA, {"clusters": 1, "fedgroup": FedGroupSpec(pretrain_scale=1)}, 1, id="one device is drawn"),
        pytest.param(FederatedDataset.from_arrays([np.ones((3, 3))] * 6), {}, 3, id="the same data on all"),
    ],
)
def test_fedgroup_trains_everybody_on_degenerate_data(
    data: FederatedDataset, changes: dict[str, object], n_models: int
) -> None:
    result = module_run(changed(scheme="fedgroup", **changes), data)
    last = closed(result)[-1]

    assert len(result.models) == n_models
    assert all(np.isfinite(params(result, name)).all() for name in result.models)
    assert sorted(d for members in last.groups.values() for d in members) == list(range(data.n_devices))


def test_fedgroup_whose_drawn_devices_all_fail_still_forms_groups() -> None:
    spec = changed(scheme="fedgroup", clusters=2, fedgroup=FedGroupSpec(pretrain_scale=1), fail="device:4,5@0")
    assert len(closed(run(spec, DATA, MODEL)[0])[-1].groups) == 2


def test_the_loss_of_a_round_in_which_nobody_trained_is_unknown() -> None:
    assert closed(simulated(changed(scheme="fedgroup", clusters=1, fail="server@2")))[-1].loss is None


def test_the_loss_of_the_round_of_a_failure_is_that_of_the_included() -> None:
    lost = closed(simulated(changed(scheme="fedgroup", fail="server@3")))[3]
    clean = run(changed(scheme="fedgroup", rounds=3), DATA, MODEL)[0]
    of = {2: "cluster-1", 3: "cluster-1", 4: "cluster-2", 5: "cluster-2"}
    expected = sum(clean.models[of[d]].anomaly_score(DATA.slice_of(d)).sum() for d in of) / n_samples(list(of))
    assert lost.loss == pytest.approx(expected, rel=1e-6)


def test_one_hosted_model_has_a_host_in_the_first_record() -> None:
    started = simulated(changed(scheme="fedgroup", clusters=1)).records[0]
    assert isinstance(started, RunStarted)
    assert started.hosts == (0,)


def test_pre_training_counts_batches_of_the_size_that_is_trained() -> None:
    data = some_data([1000, 200, 200])
    asked: dict[int, tuple[int, int]] = {}
    spec = RunSpec(data="blobs", scheme="fedgroup", devices=3, clusters=1, rounds=1, train=TrainSpec(lr=1e-3))

    class Spy(ModuleModel):
        def train(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
            asked.update({job.device: (settings.epochs, settings.batch_size) for job in jobs})
            return super().train(jobs, settings)

    run(spec, data, Spy(Mean(3)))
    epochs, batch = asked[0]
    assert epochs == -(-50 // -(-1000 // batch))


@pytest.mark.parametrize("scheme", ["ifca", "fesem"])
@pytest.mark.parametrize("m", [2, 3])
def test_random_models_that_are_all_the_same_are_refused(scheme: str, m: int) -> None:
    spec = changed(scheme=scheme, clusters=m, ifca=IFCASpec(init="random", restarts=1), fesem=FeSEMSpec(init="random"))

    with pytest.raises(SpecError, match="starts with the same weights for every seed"):
        learner_of(Fleet(spec, (3,)), ModuleModel(nn.Linear(3, 3))).start({})
