"""Every scheme through the same checks: layout, contributions with provenance, a pure and exact step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from tolfl.schemes import SCHEMES, Closing, Scheme, Task, failure_plan, is_plain, layout, policy, scheme_of

from tests.sim.fleets import FULL_BATCH, Mean, some_data
from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import POLICIES, RunSpec, TrainSettings, TrainSpec
from tolfl.models import ModuleModel, TrainJob, Update

DATA = some_data([3, 0, 4, 2])
MODEL = ModuleModel(Mean(3))
SETTINGS = TrainSettings(lr=0.1, batch_size=0)

SMALL = RunSpec(data="blobs", devices=4, clusters=2, rounds=10, train=TrainSpec(batch_size=0, lr=0.1))
SEVERAL_MODELS = ("fedgroup", "ifca", "fesem")


def made(name: str, **options: object) -> Scheme:
    return scheme_of(msgspec.structs.replace(SMALL, scheme=name, **options))


every_scheme = pytest.mark.parametrize("scheme", [made(name) for name in SCHEMES], ids=list(SCHEMES))
one_model = pytest.mark.parametrize(
    "scheme",
    [made(name) for name in SCHEMES if name not in SEVERAL_MODELS],
    ids=[name for name in SCHEMES if name not in SEVERAL_MODELS],
)


def train(jobs: Sequence[TrainJob], epochs: int | None = None, n_batches: int | None = None) -> list[Update]:
    return MODEL.train(jobs, msgspec.structs.replace(SETTINGS, epochs=epochs or n_batches or SETTINGS.epochs))


def closing(round_index: int = 0, server_lr: float = 1.0) -> Closing:
    return Closing(0, round_index, DeviceSet.of(range(4)), server_lr)


def tasks(scheme: Scheme, round_index: int = 0, devices: tuple[int, ...] = (0, 1, 2, 3)) -> list[Task]:
    models = scheme.start(MODEL, seed=0)
    return [Task(0, d, round_index, models, DATA.pool, *DATA.bounds[d : d + 2]) for d in devices]


@every_scheme
def test_a_scheme_knows_its_name_and_a_policy_that_exists(scheme: Scheme) -> None:
    assert isinstance(scheme, SCHEMES[scheme.name])  # type: ignore[arg-type]
    assert set(scheme.policies) <= set(POLICIES)
    assert policy(RunSpec(data="blobs", scheme=scheme.name)) == scheme.policies[0]
    assert policy(RunSpec(data="blobs", scheme=scheme.name, on_head_failure=scheme.policies[1])) == scheme.policies[1]
    unknown = next(name for name in POLICIES if name not in scheme.policies)
    with pytest.raises(SpecError, match=f"policy '{unknown}' means nothing to {scheme.name}; choose one of: "):
        policy(RunSpec(data="blobs", scheme=scheme.name, on_head_failure=unknown))


@every_scheme
def test_a_scheme_lays_out_every_device_once(scheme: Scheme) -> None:
    for n_devices in (1, 2, 7):
        spec = RunSpec(data="blobs", scheme=scheme.name, devices=n_devices, clusters=min(3, n_devices))
        assert sorted(d for cluster in layout(spec).clusters for d in cluster) == list(range(n_devices))


@every_scheme
def test_contributions_say_whose_and_how_many_samples_are_inside(scheme: Scheme) -> None:
    contributions = scheme.contribute(tasks(scheme), MODEL, train)

    assert [list(one.included) for one in contributions] == [[0], [1], [2], [3]]
    assert [one.n_samples for one in contributions] == [3, 0, 4, 2]


@one_model
def test_a_step_is_the_gradient_step_on_all_samples_and_changes_nothing_it_was_given(scheme: Scheme) -> None:
    given = tasks(scheme)
    start = {key: value.copy() for key, value in given[0].models.items()}
    total = Contribution.total(scheme.contribute(given, MODEL, train))
    full = scheme.apply(given[0].models, total, closing(), given, train)
    half = scheme.apply(given[0].models, total, closing(server_lr=0.5), given, train)

    np.testing.assert_allclose(full.models[GLOBAL], 0.2 * DATA.pool.astype(float).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(half.models[GLOBAL], full.models[GLOBAL] / 2, rtol=1e-12)
    assert full.loss == pytest.approx(float(np.square(DATA.pool.astype(float)).sum(1).mean()), rel=1e-6)
    assert np.array_equal(given[0].models[GLOBAL], start[GLOBAL])


@every_scheme
def test_the_same_calls_give_the_same_results(scheme: Scheme) -> None:
    def step() -> dict[str, np.ndarray]:
        given = tasks(scheme, round_index=3)
        total = Contribution.total(scheme.contribute(given, MODEL, train))
        return scheme.apply(given[0].models, total, closing(3), given, train).models

    first, second = step(), step()

    assert first.keys() == second.keys()
    assert all(np.array_equal(first[key], second[key]) for key in first)


@every_scheme
def test_without_a_sample_nothing_changes(scheme: Scheme) -> None:
    given = tasks(scheme, devices=(1,))
    total = Contribution.total(scheme.contribute(given, MODEL, train))
    applied = scheme.apply(given[0].models, total, closing(), given, train)
    before, after = (scheme.serving(models, [1]) for models in (given[0].models, applied.models))

    assert {name: model.params.tolist() for name, model in after.items()} == {
        name: model.params.tolist() for name, model in before.items()
    }
    assert applied.loss is None
    assert applied.groups == {}


@every_scheme
def test_a_scheme_serves_a_model_to_every_device_with_samples(scheme: Scheme) -> None:
    given = tasks(scheme)
    total = Contribution.total(scheme.contribute(given, MODEL, train))
    models = scheme.apply(given[0].models, total, closing(), given, train).models
    served = scheme.serving(models, [0, 2, 3])

    assert sum(model.n_devices for model in served.values()) == 3
    assert all(model.params.shape == (3,) for model in served.values())
    assert scheme.models_up(0) >= 1
    assert scheme.models_down(0) >= 1


@every_scheme
def test_a_scheme_tells_whom_its_devices_report_to(scheme: Scheme) -> None:
    clusters = layout(msgspec.structs.replace(SMALL, scheme=scheme.name))
    wired = scheme.wiring(clusters)

    assert sorted(wired.cluster_of) == sorted(clusters.cluster_of)
    assert wired.server == clusters.server
    assert scheme.protocol_policy(scheme.policies[0]) in ("elect", "drop", "isolate", "freeze")


def test_fl_is_a_star_sbt_a_chain_and_tol_fl_what_is_asked_for() -> None:
    spec = RunSpec(data="blobs", devices=6, clusters=3)
    shapes = {
        name: [len(cluster) for cluster in layout(msgspec.structs.replace(spec, scheme=name)).clusters]
        for name in ("fl", "sbt", "tol-fl", "batch")
    }

    assert shapes == {"fl": [6], "sbt": [1] * 6, "tol-fl": [2, 2, 2], "batch": [6]}


def test_a_layout_of_its_own_is_for_tol_fl_and_for_schemes_whose_shape_it_has() -> None:
    spec = RunSpec(data="blobs", devices=3, topology="2,0|1")

    assert layout(spec).clusters == ((2, 0), (1,))
    assert layout(msgspec.structs.replace(spec, scheme="fl", topology="2,0,1")).server == 2
    assert layout(msgspec.structs.replace(spec, scheme="sbt", topology="2|0|1")).server == 2
    for scheme in ("fl", "sbt", "batch"):
        with pytest.raises(SpecError, match="has a layout of its own; use tol-fl"):
            layout(msgspec.structs.replace(spec, scheme=scheme))


def test_an_unknown_scheme_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown scheme 'gossip'; choose one of: batch,.* tol-fl"):
        scheme_of(RunSpec(data="blobs", scheme="gossip"))

    assert is_plain(RunSpec(data="blobs", scheme="pca-16"))
    assert not is_plain(RunSpec(data="blobs", scheme="fl"))


def test_batch_training_scales_its_batches_with_the_fleet_and_its_twin_does_not() -> None:
    assert made("batch").batch_size(16, 10) == 160
    assert made("batch").batch_size(0, 10) == 0
    for name in ("batch-small", "fl", "ifca"):
        assert made(name).batch_size(16, 10) == 16


def test_batch_training_reads_neighbouring_devices_in_place_and_others_too() -> None:
    batch = made("batch")
    asked: list[TrainJob] = []

    def spy(jobs: Sequence[TrainJob], epochs: int | None = None, n_batches: int | None = None) -> list[Update]:
        asked.extend(jobs)
        return train(jobs, epochs, n_batches)

    for devices in ((0, 1, 2, 3), (0, 3)):
        given = tasks(batch, devices=devices)
        batch.apply(given[0].models, Contribution.empty(), closing(), given, spy)
    whole, picked = asked

    assert whole.pool is DATA.pool
    assert (whole.first, whole.last) == (0, len(DATA.pool))
    assert np.array_equal(picked.pool, np.concatenate([DATA.slice_of(0), DATA.slice_of(3)]))


def test_a_failure_plan_follows_the_layout_of_the_scheme() -> None:
    spec = RunSpec(data="blobs", devices=6, clusters=3, fail="cluster:0@1", rounds=5, train=FULL_BATCH)

    assert [f.device for f in failure_plan(spec).failures] == [0, 1]
    assert len(failure_plan(msgspec.structs.replace(spec, scheme="fl")).failures) == 6
