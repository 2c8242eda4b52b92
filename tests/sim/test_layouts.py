"""Without failures the layout does not matter: the properties that say so."""

from __future__ import annotations

import sys

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sim.fleets import FULL_BATCH, Mean, OneWeight, closed, ended, params, simulated, some_data
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec, TrainSpec
from tolfl.core.topology import Topology
from tolfl.datasets import FederatedDataset
from tolfl.learners.torch_module import ModuleModel
from tolfl.sim.simulation import Run, run

few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SMALL = RunSpec(
    data="blobs",
    devices=7,
    rounds=20,
    model=ModelSpec(hidden=(6,), code=2, dropout=0.2),
    train=TrainSpec(lr=0.01, batch_size=4, epochs=2),
    blobs=BlobsSpec(samples_per_device=11, n_features=5, n_groups=3, n_test=40),
)


def written(clusters: list[list[int]]) -> str:
    return "|".join(",".join(map(str, cluster)) for cluster in clusters)


@st.composite
def layouts(draw: st.DrawFn, n_devices: int) -> str:
    order = draw(st.permutations(range(n_devices)))
    cuts = sorted(draw(st.sets(st.integers(1, n_devices - 1)))) if n_devices > 1 else []
    return written([order[a:b] for a, b in zip([0, *cuts], [*cuts, n_devices], strict=True)])


@pytest.fixture(scope="module")
def star() -> Run:
    return run(msgspec.structs.replace(SMALL, clusters=1))[0]


@few
@given(layouts(7))
def test_the_autoencoder_is_the_same_after_twenty_rounds_in_every_layout(star: Run, layout: str) -> None:
    """Dropout, mini-batches and two epochs included: draws are keyed by device and round, never by place."""
    result = run(msgspec.structs.replace(SMALL, topology=layout, clusters=1))[0]

    np.testing.assert_allclose(params(result), params(star), rtol=0, atol=1e-5)
    assert [r.loss for r in closed(result)] == pytest.approx([r.loss for r in closed(star)], rel=1e-5)
    assert result.summary["auroc"] == pytest.approx(star.summary["auroc"], abs=0.01)


@few
@given(st.data())
def test_any_fleet_gives_the_same_model_in_every_layout(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=20))
    layout = data.draw(layouts(len(sizes)))
    slices = some_data(sizes)
    spec = RunSpec(data="blobs", devices=len(sizes), clusters=1, rounds=5, train=FULL_BATCH)
    star, laid_out = simulated(spec, slices), simulated(msgspec.structs.replace(spec, topology=layout), slices)

    np.testing.assert_allclose(params(laid_out), params(star), rtol=1e-10)


@pytest.mark.parametrize("k", [1, 2, 5, 10])
def test_ten_devices_end_with_the_same_model_for_every_number_of_clusters(k: int) -> None:
    spec = msgspec.structs.replace(SMALL, devices=10, rounds=6)
    one, other = run(msgspec.structs.replace(spec, clusters=1))[0], run(msgspec.structs.replace(spec, clusters=k))[0]

    np.testing.assert_allclose(params(other), params(one), rtol=0, atol=1e-5)


def test_one_cluster_is_fl_and_a_cluster_per_device_is_sbt() -> None:
    spec = msgspec.structs.replace(SMALL, rounds=3)
    by_hand = [run(msgspec.structs.replace(spec, clusters=k))[0] for k in (1, 7)]
    by_name = [run(msgspec.structs.replace(spec, scheme=scheme))[0] for scheme in ("fl", "sbt")]

    for mine, theirs in zip(by_hand, by_name, strict=True):
        assert np.array_equal(params(mine), params(theirs))
        assert [r.heads for r in closed(mine)] == [r.heads for r in closed(theirs)]


def test_one_full_batch_epoch_is_batch_training() -> None:
    slices = some_data([3, 1, 7, 2, 5])
    spec = RunSpec(data="blobs", devices=5, clusters=3, rounds=10, train=FULL_BATCH)
    fleet = simulated(spec, slices)
    pooled = simulated(msgspec.structs.replace(spec, scheme="batch"), slices)

    np.testing.assert_allclose(params(fleet), params(pooled), rtol=1e-10)


@few
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(2, 5))
def test_repeating_everybodys_samples_changes_nothing(sizes: list[int], times: int) -> None:
    once = some_data(sizes)
    often = FederatedDataset.from_arrays([np.repeat(once.slice_of(d), times, axis=0) for d in range(len(sizes))])
    spec = RunSpec(data="blobs", devices=len(sizes), clusters=2, rounds=4, train=FULL_BATCH)

    np.testing.assert_allclose(params(simulated(spec, often)), params(simulated(spec, once)), rtol=1e-10)


def test_splitting_a_device_into_two_changes_nothing() -> None:
    whole = some_data([6, 10, 4])
    second = whole.slice_of(1)
    split = FederatedDataset.from_arrays([whole.slice_of(0), second[:3], second[3:], whole.slice_of(2)])
    spec = RunSpec(data="blobs", devices=3, clusters=2, rounds=5, train=FULL_BATCH)

    np.testing.assert_allclose(
        params(simulated(msgspec.structs.replace(spec, devices=4), split)), params(simulated(spec, whole)), rtol=1e-10
    )


@pytest.mark.parametrize("scheme", ["tol-fl", "fl", "sbt", "batch", "batch-small"])
@pytest.mark.parametrize("silent", [0, 2, 4])
def test_a_device_without_samples_takes_part_and_changes_nothing(scheme: str, silent: int) -> None:
    sizes = [3, 4, 2, 5, 6]
    sizes[silent] = 0
    with_it = some_data(sizes)
    without = FederatedDataset.from_arrays([with_it.slice_of(d) for d in range(5) if sizes[d]])
    spec = RunSpec(data="blobs", scheme=scheme, devices=5, clusters=2, rounds=4, train=FULL_BATCH)
    result = simulated(spec, with_it)

    np.testing.assert_allclose(
        params(result), params(simulated(msgspec.structs.replace(spec, devices=4), without)), rtol=1e-10
    )
    assert {record.included for record in closed(result)} == {(0, 1, 2, 3, 4)}


def test_a_cluster_without_samples_is_a_hop_that_changes_nothing() -> None:
    sizes = [3, 4, 0, 0, 6]
    slices = some_data(sizes)
    without = FederatedDataset.from_arrays([slices.slice_of(d) for d in (0, 1, 4)])
    spec = RunSpec(data="blobs", devices=5, clusters=3, topology="0,1|2,3|4", rounds=4, train=FULL_BATCH)
    chained = simulated(spec, slices)
    shorter = simulated(
        RunSpec(data="blobs", devices=3, clusters=2, topology="0,1|2", rounds=4, train=FULL_BATCH), without
    )

    assert np.array_equal(params(chained), params(shorter))


def test_a_single_live_cluster_goes_on() -> None:
    slices = some_data([3, 4, 2, 5, 6, 4])
    spec = RunSpec(data="blobs", devices=6, clusters=3, rounds=4, train=FULL_BATCH, fail="cluster:0@1; cluster:2@1")
    result = simulated(spec, slices)

    assert [record.included for record in closed(result)] == [(0, 1, 2, 3, 4, 5), (2, 3), (2, 3), (2, 3)]
    assert ended(result).survivors == (2, 3)


@pytest.mark.parametrize("policy", ["elect", "drop", "isolate", "freeze"])
def test_when_nobody_is_left_the_run_says_so(policy: str) -> None:
    slices = some_data([3, 4, 2], with_test=True)
    spec = RunSpec(
        data="blobs", devices=3, clusters=2, rounds=4, train=FULL_BATCH, fail="random:1", on_head_failure=policy
    )
    result = simulated(spec, slices)

    assert ended(result).reason == "no device is left"
    assert ended(result).survivors == ()
    assert closed(result) == []
    assert (result.models, result.summary["auroc"], result.summary["model_sha256"]) == ({}, None, None)
    assert result.summary["rounds_done"] == 0


def test_the_same_seed_is_the_same_run_and_another_seed_another() -> None:
    spec = msgspec.structs.replace(SMALL, clusters=3, rounds=3, fail="random:0.1")
    first, again, other = (run(msgspec.structs.replace(spec, seed=seed))[0] for seed in (4, 4, 5))

    assert first.records == again.records
    assert first.summary["model_sha256"] == again.summary["model_sha256"] != other.summary["model_sha256"]


def test_one_device_is_a_fleet_too() -> None:
    result = simulated(RunSpec(data="blobs", devices=1, clusters=1, rounds=3, train=FULL_BATCH), some_data([4]))

    assert [record.included for record in closed(result)] == [(0,)] * 3
    assert result.summary["bytes"] == 0


def test_a_linear_model_in_double_is_the_same_in_every_layout_to_the_last_digits() -> None:
    slices = some_data([3, 4, 2, 5], n_features=1)
    spec = RunSpec(data="blobs", devices=4, clusters=1, rounds=20, train=TrainSpec(batch_size=2, lr=0.001, epochs=3))
    models = [
        simulated(msgspec.structs.replace(spec, topology=layout), slices, OneWeight())
        for layout in ("0,1,2,3", "3|2|1|0", "1,3|0,2")
    ]

    for other in models[1:]:
        np.testing.assert_allclose(params(other), params(models[0]), rtol=1e-10)


def test_layouts_written_out_and_asked_for_by_number_are_the_same() -> None:
    clusters = Topology.contiguous(5, 2).clusters
    slices, model = some_data([3, 4, 2, 5, 6]), ModuleModel(Mean(3))
    spec = RunSpec(data="blobs", devices=5, clusters=2, rounds=2, train=FULL_BATCH)
    text = written([list(cluster) for cluster in clusters])

    assert (
        run(spec, slices, model)[0].records
        == run(msgspec.structs.replace(spec, topology=text), slices, model)[0].records
    )


def test_a_chain_may_be_longer_than_python_recurses() -> None:
    n_devices = sys.getrecursionlimit() + 200
    spec = RunSpec(
        data="blobs", scheme="sbt", devices=n_devices, rounds=1, fail="device:3@0", model=ModelSpec(hidden=(4,), code=2)
    )
    blobs_spec = BlobsSpec(samples_per_device=2, n_features=4, n_test=10)
    result = run(msgspec.structs.replace(spec, blobs=blobs_spec))[0]

    assert result.summary["survivors"] == [device for device in range(n_devices) if device != 3]
