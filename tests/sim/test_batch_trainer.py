"""Training on threads and in pieces gives the numbers of training in one go."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tests.sim.fleets import params
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec
from tolfl.models import threads
from tolfl.sim import batch_trainer
from tolfl.sim.simulation import run

SPEC = RunSpec(
    data="blobs",
    devices=130,
    clusters=7,
    rounds=2,
    model=ModelSpec(hidden=(8,), code=3),
    blobs=BlobsSpec(samples_per_device=5, n_features=6, n_test=20),
)


@pytest.mark.parametrize(("n_threads", "at_once"), [(2, 50), (2, 130), (1, 7), (1, 1000)])
def test_threads_and_pieces_do_not_change_the_model(
    n_threads: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = params(run(SPEC)[0])
    monkeypatch.setattr(batch_trainer, "_TURNS_AT_ONCE", at_once)
    with ThreadPoolExecutor(n_threads) as pool:
        monkeypatch.setattr(threads, "_pool", lambda: pool)
        other = params(run(SPEC)[0])

    np.testing.assert_allclose(other, usual, rtol=0, atol=1e-6)


def test_the_number_of_torch_threads_is_left_as_it_was() -> None:
    before = torch.get_num_threads()
    run(SPEC)

    assert torch.get_num_threads() == before
