"""Dropout masks have the right statistics and belong to one device, round and step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tolfl.kernel.jobs import Floats
from tolfl.models import Autoencoder, TrainJob
from tolfl.models.dropout import DropoutMasks, keep_gain, keep_threshold
from tolfl.models.workspace import Workspace

POOL = np.zeros((1, 1), np.float32)


def job_of(device: int, round_index: int = 0, seed: int = 0) -> TrainJob:
    return TrainJob(seed, device, round_index, POOL[0], POOL, 0, 1)


def masks_of(jobs: list[TrainJob], *, step: int = 0, n_rows: int = 64, n_units: int = 100, rate: float = 0.2) -> Floats:
    masks = DropoutMasks(jobs, n_units, rate)
    values: Floats = masks.draw(step, len(jobs), n_rows, torch.float64, Workspace()).numpy().copy()
    return values


def binomial_bound(n_draws: int, rate: float) -> float:
    """Return five standard deviations of a mean of that many draws."""
    return 5 * math.sqrt(rate * (1 - rate) / n_draws)


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.5, 0.9])
def test_the_share_of_kept_units_is_right(rate: float) -> None:
    masks = masks_of([job_of(device) for device in range(50)], rate=rate)

    assert set(np.unique(masks)) == {0.0, 1.0}
    assert abs(masks.mean() - (1 - rate)) < binomial_bound(masks.size, rate)
    for axis in ((1, 2), (0, 2), (0, 1)):
        means = masks.mean(axis=axis)
        assert np.abs(means - (1 - rate)).max() < binomial_bound(masks.size // means.size, rate)


@pytest.mark.parametrize("rate", [0.01, 0.2, 1 / 3, 0.5, 0.9])
def test_the_gain_preserves_the_expectation_exactly(rate: float) -> None:
    assert keep_threshold(rate) / 2**16 * keep_gain(rate) == pytest.approx(1.0, abs=1e-15)
    assert keep_gain(0.0) == 1.0


@pytest.mark.parametrize(
    "others",
    [
        pytest.param(masks_of([job_of(device) for device in range(1, 9)]), id="devices"),
        pytest.param(masks_of([job_of(0, round_index) for round_index in range(1, 9)]), id="rounds"),
        pytest.param(masks_of([job_of(0, 0, seed) for seed in range(1, 9)]), id="seeds"),
        pytest.param(np.concatenate([masks_of([job_of(0)], step=step) for step in range(1, 9)]), id="steps"),
    ],
)
def test_masks_are_independent_over(others: Floats) -> None:
    mine = masks_of([job_of(0)])[0] - 0.8

    for other in others:
        correlation = (mine * (other - 0.8)).mean() / (0.2 * 0.8)
        assert abs(correlation) < 5 / mine.size**0.5


def test_a_mask_does_not_depend_on_the_group_or_on_padding() -> None:
    alone = masks_of([job_of(7)], step=3, n_rows=5)
    padded = masks_of([job_of(2), job_of(7), job_of(9)], step=3, n_rows=11)

    np.testing.assert_array_equal(alone[0], padded[1, :5])


def test_dropout_is_off_when_scoring() -> None:
    samples = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
    with_dropout, without = Autoencoder(6, (5,), 3, dropout=0.5), Autoencoder(6, (5,), 3, dropout=0.0)
    params = with_dropout.initial(0)

    np.testing.assert_array_equal(with_dropout.sample_losses(params, samples), without.sample_losses(params, samples))
