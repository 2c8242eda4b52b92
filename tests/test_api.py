"""What `import tolfl` promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tolfl
from tolfl.core.records import RoundClosed
from tolfl.core.spec import TrainSpec
from tolfl.learners.training import TrainedModel

RNG = np.random.default_rng(0)
SLICES = [RNG.random((n, 6)) for n in (20, 35, 0, 12)]
TEST = (np.concatenate([RNG.random((20, 6)), RNG.random((20, 6)) + 3]), np.repeat([0, 1], 20))


def trained(run: tolfl.Run) -> TrainedModel:
    assert isinstance(run.model, TrainedModel)
    return run.model


def test_a_run_tells_what_there_is_to_know() -> None:
    run = tolfl.simulate(scheme="tol-fl", data="blobs", devices=6, clusters=3, rounds=4, fail="server@2")

    assert run.auroc == run.summary["auroc"]
    assert run.summary["survivors"] == [1, 2, 3, 4, 5]
    assert len(run.records) > 5
    assert run.model.anomaly_score(np.zeros((2, 32))).shape == (2,)
    assert run.plot().axes
    assert "AUROC" in repr(run)


def test_arrays_of_unequal_length_are_data() -> None:
    run = tolfl.simulate(data=SLICES, test=TEST, rounds=5)

    assert run.summary["n_devices"] == 4
    assert run.auroc is not None
    assert run.auroc > 0.9


def test_layouts_agree_on_arrays() -> None:
    params = [trained(tolfl.simulate(data=SLICES, rounds=20, clusters=k)).params for k in (1, 2, 4)]

    np.testing.assert_allclose(params[0], params[1], atol=1e-5)
    np.testing.assert_allclose(params[0], params[2], atol=1e-5)


def test_any_module_can_be_the_model() -> None:
    module = nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv1d(4, 1, 3, padding=1))
    slices = [array[:, None, :] for array in SLICES if len(array)]

    run = tolfl.simulate(data=slices, model=module, clusters=2, rounds=3, train={"lr": 0.01}, fail="client@1")

    assert set(trained(run).tensors()) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert run.auroc is None


def test_options_override_a_specification_field_by_field() -> None:
    spec = tolfl.RunSpec(data="blobs", devices=4, clusters=2, rounds=2, train=TrainSpec(lr=0.01, epochs=2))

    run = tolfl.simulate(spec, rounds=3, train={"epochs": 1})

    assert (run.spec.devices, run.spec.rounds, run.spec.train.lr, run.spec.train.epochs) == (4, 3, 0.01, 1)


def test_the_sizes_of_the_autoencoder_are_a_dictionary_and_numpy_numbers_are_numbers() -> None:
    run = tolfl.simulate(data="blobs", devices=2, rounds=1, seed=np.int64(3), model={"hidden": [4], "code": 2})

    assert run.spec.seed == 3
    assert trained(run).tensors()["encoder.0.weight"].shape == (4, 32)
    assert isinstance(trained(run).to_module(), nn.Module)


def test_a_module_may_come_with_a_loss() -> None:
    def loss(module: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        error: torch.Tensor = module(batch) - batch
        return error.abs().sum(dim=1)

    run = tolfl.simulate(data=SLICES, model=nn.Linear(6, 6), loss=loss, rounds=2)

    sample = np.ones((1, 6), dtype=np.float32)
    expected = loss(trained(run).to_module(), torch.from_numpy(sample))
    assert run.model.anomaly_score(sample)[0] == pytest.approx(expected[0].item(), rel=1e-5)


def test_a_convolution_trains_on_standardised_data_as_it_comes() -> None:
    slices = [np.random.default_rng(device).normal(size=(30, 1, 8, 8)) for device in range(3)]
    module = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    run = tolfl.simulate(data=slices, model=module, rounds=5)

    losses = [record.loss for record in run.records if isinstance(record, RoundClosed)]
    assert losses[-1] is not None
    assert losses[0] is not None
    assert losses[-1] < losses[0]


def test_a_run_that_cannot_start_leaves_no_folder(tmp_path: Path) -> None:
    for options in ({"devices": 9}, {"data": [np.ones((3, 2, 2))]}):
        with pytest.raises(tolfl.TolFLError):
            tolfl.simulate(**{"data": SLICES, "out": tmp_path / "x", **options})  # type: ignore[arg-type]

    assert not (tmp_path / "x").exists()


def test_a_plain_baseline_says_that_it_has_no_model() -> None:
    run = tolfl.simulate(scheme="mean-vector", data="blobs", devices=3)

    assert repr(run).startswith("<Run mean-vector on blobs: AUROC 0.")
    with pytest.raises(LookupError, match="this run left no model: no rounds"):
        _ = run.model


def test_a_run_can_be_kept(tmp_path: Path) -> None:
    tolfl.simulate(data=SLICES, rounds=2, out=tmp_path / "x")

    assert (tmp_path / "x" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"roundz": 3}, "unknown key 'roundz'"),
        ({"data": [np.ones((3, 2)), np.full((3, 2), np.nan)]}, "the data of device 1 has values that are not finite"),
        ({"data": [np.ones((3, 2)), np.ones((3, 4))]}, "all devices need the same features"),
        ({"data": []}, "no device has data"),
        ({"data": [np.ones((3, 2, 2))]}, "the built-in autoencoder takes flat ones"),
        ({"data": [np.ones((3, 2))], "test": (np.ones((2, 2)), [0, 2])}, "the test labels must be 2 values of 0"),
        ({"data": [np.ones((3, 2))], "devices": 2, "clusters": 1}, "2 devices, but the data has slices for 1"),
        ({"data": "blobs", "test": TEST}, "test goes with arrays as data"),
        ({"repetitions": 2}, "simulate gives one run"),
        ({"test": TEST}, "test goes with arrays as data"),
        ({"data": [np.ones((3, 2))], "test": (np.ones((2, 2)), [0, 0])}, "needs typical samples .* and anomalous ones"),
        ({"model": nn.Linear}, "give an nn.Module .an object, not its class."),
        ({"loss": lambda module, batch: batch}, "loss goes with a module"),
        ({"model": nn.Linear(3, 3), "rounds": 1}, "the model cannot be used on this data: mat1 and mat2"),
        ({"data": [torch.ones(3, 2, requires_grad=True)]}, "is not an array of numbers"),
    ],
)
def test_a_bad_argument_gets_one_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(tolfl.TolFLError, match=sentence):
        tolfl.simulate(**options)  # type: ignore[arg-type]


def test_a_fleet_without_survivors_has_no_model() -> None:
    run = tolfl.simulate(devices=2, clusters=2, rounds=3, fail="device:0,1@1")

    assert run.auroc is None
    assert run.summary["ended"] == "no device is left"
    with pytest.raises(LookupError, match="no device is left"):
        _ = run.model
