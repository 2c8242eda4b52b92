"""The built-in data: seeded, one subspace per group, anomalies off it, and no dependence on the number of clusters."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tolfl.core.metrics import auroc
from tolfl.core.spec import BlobsSpec, RunSpec
from tolfl.datasets import load
from tolfl.datasets.blobs import blobs
from tolfl.runs.baselines import pca

SPEC = BlobsSpec(samples_per_device=50, n_features=12, n_groups=3, n_test=200)


def test_the_same_seed_gives_the_same_data_and_another_seed_other_data() -> None:
    one, same, other = (blobs(6, seed, SPEC) for seed in (4, 4, 5))

    assert np.array_equal(one.pool, same.pool)
    assert one.test is not None
    assert same.test is not None
    assert np.array_equal(one.test, same.test)
    assert not np.array_equal(one.pool, other.pool)


def test_the_number_of_clusters_does_not_touch_the_data() -> None:
    spec = RunSpec(data="blobs", devices=6, blobs=SPEC)

    assert np.array_equal(load(spec).pool, load(msgspec.structs.replace(spec, clusters=1)).pool)


def test_every_device_has_as_many_samples_as_asked_for() -> None:
    data = blobs(7, 0, SPEC)

    assert {data.n_samples(device) for device in range(7)} == {50}
    assert data.pool.shape == (350, 12)
    assert data.pool.dtype == np.float32
    assert np.isfinite(data.pool).all()


def test_half_of_the_test_set_is_anomalous() -> None:
    data = blobs(6, 0, SPEC)

    assert data.is_anomalous is not None
    assert (len(data.is_anomalous), int(data.is_anomalous.sum())) == (200, 100)


@pytest.mark.parametrize("group", [0, 1, 2])
def test_a_group_lies_near_a_subspace_of_three_dimensions_that_is_its_own(group: int) -> None:
    data = blobs(6, 0, SPEC)
    own = np.concatenate([data.slice_of(2 * group), data.slice_of(2 * group + 1)])
    others = data.slice_of((2 * group + 2) % 6)
    score = pca(own, 3)

    assert score(own).mean() < 0.15  # nine directions of noise, 0.1 each
    assert score(others).mean() > 5 * score(own).mean()


def test_anomalies_can_be_told_from_typical_samples_but_not_for_nothing() -> None:
    data = blobs(6, 0, SPEC)
    assert data.test is not None
    assert data.is_anomalous is not None
    knows_all = auroc(pca(data.pool, 9)(data.test), data.is_anomalous)
    knows_one_group = auroc(pca(data.pool[:100], 3)(data.test), data.is_anomalous)

    assert knows_all > 0.75
    assert knows_one_group < knows_all


@pytest.mark.parametrize("n_devices", [1, 2, 3])
def test_fleets_smaller_than_the_number_of_groups_are_tested_on_the_groups_that_they_have(n_devices: int) -> None:
    data = blobs(n_devices, 0, SPEC)
    assert data.test is not None
    assert data.is_anomalous is not None
    typical = data.test[~data.is_anomalous]
    scores = np.stack([pca(data.slice_of(device), 3)(typical) for device in range(n_devices)])

    assert data.n_devices == n_devices
    assert scores.min(axis=0).max() < 0.5  # a typical row of a group that no device has is at 1 or more
    assert set(scores.argmin(axis=0)) == set(range(n_devices))


def test_a_single_feature_and_a_single_test_sample_do() -> None:
    data = blobs(2, 0, BlobsSpec(samples_per_device=1, n_features=1, n_groups=1, n_test=1))

    assert data.pool.shape == (2, 1)


# -- samples that are held back ---------------------------------------------------------------------------------------


def test_typical_samples_are_held_back_and_nobody_has_them() -> None:
    data = blobs(6, 0, BlobsSpec(samples_per_device=50, n_features=12, n_groups=3, n_test=200, n_validation=30))
    assert data.validation is not None
    assert data.test is not None
    typical = pca(data.pool, 9)

    assert data.validation.shape == (30, 12)
    assert data.validation.dtype == np.float32
    assert typical(data.validation).mean() < 2 * typical(data.pool).mean()
    for other in (data.pool, data.test):
        assert not (data.validation[:, None] == other[None]).all(axis=2).any()


def test_every_group_is_held_back_in_equal_shares() -> None:
    data = blobs(6, 0, BlobsSpec(samples_per_device=50, n_features=12, n_groups=3, n_test=20, n_validation=30))
    assert data.validation is not None
    scores = np.stack([pca(data.pool[100 * group : 100 * (group + 1)], 3)(data.validation) for group in range(3)])

    assert scores.argmin(axis=0).tolist() == [0, 1, 2] * 10


def test_how_many_samples_are_held_back_changes_nothing_else() -> None:
    some, none = (blobs(4, 0, msgspec.structs.replace(SPEC, n_validation=n)) for n in (7, 0))

    assert none.validation is None
    assert np.array_equal(some.pool, none.pool)
    assert some.test is not None
    assert none.test is not None
    assert np.array_equal(some.test, none.test)


def test_another_seed_holds_back_other_samples() -> None:
    one, same, other = (blobs(4, seed, SPEC).validation for seed in (0, 0, 1))
    assert one is not None
    assert same is not None
    assert other is not None

    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
