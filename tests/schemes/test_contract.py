"""Every scheme through the same checks: layout, contributions with provenance, a pure and exact step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from tests.sim.fleets import FULL_BATCH, Mean, some_data
from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import POLICIES, RunSpec, TrainSettings
from tolfl.models import ModuleModel, TrainJob, Update
from tolfl.schemes import SCHEMES, Scheme, Task, failure_plan, is_plain, layout, policy, scheme_of

DATA = some_data([3, 0, 4, 2])
MODEL = ModuleModel(Mean(3))
SETTINGS = TrainSettings(lr=0.1, batch_size=0)

every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=list(SCHEMES))


def train(jobs: Sequence[TrainJob]) -> list[Update]:
    return MODEL.train(jobs, SETTINGS)


def tasks(scheme: Scheme, round_index: int = 0, devices: tuple[int, ...] = (0, 1, 2, 3)) -> list[Task]:
    models = scheme.start(MODEL, seed=0)
    return [Task(0, d, round_index, models, DATA.pool, *DATA.bounds[d : d + 2]) for d in devices]


@every_scheme
def test_a_scheme_knows_its_name_and_a_policy_that_exists(scheme: Scheme) -> None:
    assert SCHEMES[scheme.name] is scheme
    assert scheme.default_policy in POLICIES
    assert policy(RunSpec(scheme=scheme.name)) == scheme.default_policy
    assert policy(RunSpec(scheme=scheme.name, on_head_failure="drop")) == "drop"


@every_scheme
def test_a_scheme_lays_out_every_device_once(scheme: Scheme) -> None:
    for n_devices in (1, 2, 7):
        spec = RunSpec(scheme=scheme.name, devices=n_devices, clusters=min(3, n_devices))
        assert sorted(d for cluster in layout(spec).clusters for d in cluster) == list(range(n_devices))


@every_scheme
def test_contributions_say_whose_and_how_many_samples_are_inside(scheme: Scheme) -> None:
    contributions = scheme.contribute(tasks(scheme), MODEL, train)

    assert [list(one.included) for one in contributions] == [[0], [1], [2], [3]]
    assert [one.n_samples for one in contributions] == [3, 0, 4, 2]


@every_scheme
def test_a_step_is_the_gradient_step_on_all_samples_and_changes_nothing_it_was_given(scheme: Scheme) -> None:
    given = tasks(scheme)
    start = {key: value.copy() for key, value in given[0].models.items()}
    total = Contribution.total(scheme.contribute(given, MODEL, train))
    models, loss = scheme.apply(given[0].models, total, given, train, 1.0)
    half, _ = scheme.apply(given[0].models, total, given, train, 0.5)

    np.testing.assert_allclose(models[GLOBAL], 0.2 * DATA.pool.astype(float).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(half[GLOBAL], models[GLOBAL] / 2, rtol=1e-12)
    assert loss == pytest.approx(float(np.square(DATA.pool.astype(float)).sum(1).mean()), rel=1e-6)
    assert np.array_equal(given[0].models[GLOBAL], start[GLOBAL])


@every_scheme
def test_the_same_calls_give_the_same_results(scheme: Scheme) -> None:
    def step() -> np.ndarray:
        given = tasks(scheme, round_index=3)
        total = Contribution.total(scheme.contribute(given, MODEL, train))
        return np.asarray(scheme.apply(given[0].models, total, given, train, 1.0)[0][GLOBAL])

    assert np.array_equal(step(), step())


@every_scheme
def test_without_a_sample_nothing_changes(scheme: Scheme) -> None:
    given = tasks(scheme, devices=(1,))
    total = Contribution.total(scheme.contribute(given, MODEL, train))
    models, loss = scheme.apply(given[0].models, total, given, train, 1.0)

    assert models is given[0].models
    assert loss == 0.0


def test_fl_is_a_star_sbt_a_chain_and_tol_fl_what_is_asked_for() -> None:
    spec = RunSpec(devices=6, clusters=3)
    shapes = {
        name: [len(cluster) for cluster in layout(msgspec.structs.replace(spec, scheme=name)).clusters]
        for name in ("fl", "sbt", "tol-fl", "batch")
    }

    assert shapes == {"fl": [6], "sbt": [1] * 6, "tol-fl": [2, 2, 2], "batch": [6]}


def test_a_layout_of_its_own_is_for_tol_fl_and_for_schemes_whose_shape_it_has() -> None:
    spec = RunSpec(devices=3, topology="2,0|1")

    assert layout(spec).clusters == ((2, 0), (1,))
    assert layout(msgspec.structs.replace(spec, scheme="fl", topology="2,0,1")).server == 2
    assert layout(msgspec.structs.replace(spec, scheme="sbt", topology="2|0|1")).server == 2
    for scheme in ("fl", "sbt", "batch"):
        with pytest.raises(SpecError, match="has a layout of its own; use tol-fl"):
            layout(msgspec.structs.replace(spec, scheme=scheme))


def test_an_unknown_scheme_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown scheme 'gossip'; choose one of: batch,.* tol-fl"):
        scheme_of(RunSpec(scheme="gossip"))

    assert is_plain(RunSpec(scheme="pca-16"))
    assert not is_plain(RunSpec(scheme="fl"))


def test_batch_training_scales_its_batches_with_the_fleet_and_its_twin_does_not() -> None:
    assert SCHEMES["batch"].batch_size(16, 10) == 160
    assert SCHEMES["batch"].batch_size(0, 10) == 0
    assert SCHEMES["batch-small"].batch_size(16, 10) == 16
    assert SCHEMES["fl"].batch_size(16, 10) == 16


def test_batch_training_reads_neighbouring_devices_in_place_and_others_too() -> None:
    batch = SCHEMES["batch"]
    asked: list[TrainJob] = []

    def spy(jobs: Sequence[TrainJob]) -> list[Update]:
        asked.extend(jobs)
        return train(jobs)

    for devices in ((0, 1, 2, 3), (0, 3)):
        given = tasks(batch, devices=devices)
        batch.apply(given[0].models, Contribution.empty(), given, spy, 1.0)
    whole, picked = asked

    assert whole.pool is DATA.pool
    assert (whole.first, whole.last) == (0, len(DATA.pool))
    assert np.array_equal(picked.pool, np.concatenate([DATA.slice_of(0), DATA.slice_of(3)]))


def test_a_failure_plan_follows_the_layout_of_the_scheme() -> None:
    spec = RunSpec(devices=6, clusters=3, fail="cluster:0@1", rounds=5, train=FULL_BATCH)

    assert [f.device for f in failure_plan(spec).failures] == [0, 1]
    assert len(failure_plan(msgspec.structs.replace(spec, scheme="fl")).failures) == 6
