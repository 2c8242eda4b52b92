"""Data handed in: kept as it is, or refused in one sentence that says whose it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import DataError
from tolfl.core.spec import RunSpec
from tolfl.datasets import DATASETS, FederatedDataset, load

GOOD = np.ones((3, 2))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any))
def test_every_device_has_its_own_rows_and_together_they_are_all_there_is(sizes: list[int]) -> None:
    slices = [np.full((size, 2), device, dtype=np.float32) for device, size in enumerate(sizes)]
    data = FederatedDataset.from_arrays(slices)

    assert data.n_devices == len(sizes)
    assert [data.n_samples(device) for device in range(len(sizes))] == sizes
    assert len(data.pool) == sum(sizes)
    for device, own in enumerate(slices):
        assert np.array_equal(data.slice_of(device), own)


def test_samples_become_single_precision_and_keep_their_shape() -> None:
    data = FederatedDataset.from_arrays([np.ones((2, 1, 4, 5)), np.zeros((1, 1, 4, 5), dtype=int)])

    assert data.pool.dtype == np.float32
    assert (data.sample_shape, data.n_features) == ((1, 4, 5), 20)
    assert np.shares_memory(data.slice_of(0), data.pool)


def test_an_empty_list_is_a_device_without_samples_whatever_its_shape() -> None:
    data = FederatedDataset.from_arrays([np.empty((0, 7)), GOOD])

    assert (data.n_samples(0), data.slice_of(0).shape) == (0, (0, 2))


def test_a_test_set_keeps_its_labels() -> None:
    data = FederatedDataset.from_arrays([GOOD], test=([[0, 0], [9, 9]], [0, 1]))

    assert data.test is not None
    assert data.is_anomalous is not None
    assert data.is_anomalous.tolist() == [False, True]


@pytest.mark.parametrize(
    ("slices", "sentence"),
    [
        ([], "no device has data"),
        ([np.empty((0, 2))], "no device has a single sample"),
        ([GOOD, np.array([[1.0, np.nan]])], "the data of device 1 has values that are not finite"),
        ([np.array([[np.inf, 1.0]])], "the data of device 0 has values that are not finite"),
        ([GOOD, np.ones((3, 4))], "the data of device 1 has samples of shape (4,), those before it (2,)"),
        ([GOOD, np.ones((3, 2, 1))], "the data of device 1 has samples of shape (2, 1)"),
        ([np.ones(5)], "the data of device 0 has shape (5,); give one row per sample"),
        ([[["a", "b"]]], "the data of device 0 is not an array of numbers"),
        ([GOOD, [[1, 2], [3]]], "the data of device 1 is not an array of numbers with rows of equal length"),
        ([[[1e300, 0.0]]], "the data of device 0 has values that are not finite"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_data_that_cannot_be_trained_on_is_named(slices: list[object], sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        FederatedDataset.from_arrays(slices)  # type: ignore[arg-type]

    assert sentence in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        ((np.ones((2, 3)), [0, 1]), "the test set has samples of shape (3,), the training data (2,)"),
        ((np.ones((2, 2)), [0, 1, 1]), "the test labels must be 2 values of 0 (typical) or 1 (anomalous)"),
        ((np.ones((2, 2)), [0, 2]), "the test labels must be 2 values"),
        ((np.ones((2, 2)), [[0], [1]]), "the test labels must be 2 values"),
        (([[np.nan, 1.0]], [0]), "the test set has values that are not finite"),
        ((np.ones(4), [0]), "the test set has shape (4,)"),
    ],
)
def test_a_test_set_that_does_not_fit_is_named(test: tuple[object, object], sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        FederatedDataset.from_arrays([GOOD], test=test)  # type: ignore[arg-type]

    assert sentence in str(caught.value)


def test_an_unknown_data_set_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"unknown data set 'snow'; choose one of: .*blobs"):
        load(RunSpec(data="snow"))

    assert "blobs" in DATASETS
