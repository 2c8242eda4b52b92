"""Training on threads and in pieces gives the numbers of training in one go."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec
from tolfl.sim import workshop
from tolfl.sim.run import run

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
    usual = run(SPEC)[0].models["global"].params
    monkeypatch.setattr(workshop, "_MAX_THREADS", n_threads)
    monkeypatch.setattr(workshop, "_DEVICES_AT_ONCE", at_once)
    monkeypatch.setattr("os.cpu_count", lambda: 4)

    np.testing.assert_allclose(run(SPEC)[0].models["global"].params, usual, rtol=0, atol=1e-6)


def test_the_number_of_torch_threads_is_left_as_it_was() -> None:
    before = torch.get_num_threads()
    run(SPEC)

    assert torch.get_num_threads() == before
