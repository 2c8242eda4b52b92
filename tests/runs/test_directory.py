"""Run directories: whole files or none, one clear sentence when they cannot be written, and nothing lost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tests.sim.fleets import FULL_BATCH, Mean, finished, some_data
from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.records import FailureHappened
from tolfl.core.spec import RunSpec
from tolfl.learners import Account
from tolfl.learners.torch_module import ModuleModel
from tolfl.learners.training import TrainedModel
from tolfl.runs.checkpoint import Checkpoint
from tolfl.runs.directory import RunDirectory, models_sha256
from tolfl.runs.run_reader import read_records
from tolfl.sim.simulation import Runs

SPEC = RunSpec(data="blobs", devices=3, clusters=2, rounds=2, train=FULL_BATCH)
HAPPENED = FailureHappened(time_s=1.0, device=1, round=0, what="died (train)")


def at(*theta: float) -> TrainedModel:
    return TrainedModel(ModuleModel(Mean(len(theta))), np.array(theta))


MODEL = at(0.0, 1.0, 2.0)


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() or file.is_symlink()}


def test_a_new_run_keeps_its_specification_and_an_empty_record_file(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "deep" / "run", SPEC)

    assert files(directory.path) == {"spec.toml", "records.jsonl"}
    assert RunSpec.from_file(directory.path / "spec.toml") == SPEC
    assert not (directory.path / "summary.json").is_file()


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert RunDirectory.create(tmp_path, SPEC).path == tmp_path


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")

    with pytest.raises(RunDirectoryError, match=r"is not empty; choose another --out, or continue .* --resume"):
        RunDirectory.create(tmp_path, SPEC)
    assert files(tmp_path) == {"thesis.tex"}


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")

    with pytest.raises(RunDirectoryError, match="is a file; name a folder"):
        RunDirectory.create(file, SPEC)


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_that_cannot_be_made_is_named_in_one_sentence(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    out = tmp_path / "file" / "run"

    with pytest.raises(RunDirectoryError) as caught:
        Runs(SPEC, some_data([1, 2, 3]), ModuleModel(Mean(3)), out=out, resume=resume)
    assert str(out) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert files(tmp_path) == {"file"}


def test_there_is_nothing_to_resume_in_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="holds no run to resume"):
        RunDirectory.reopen(tmp_path, SPEC)


def test_a_run_is_resumed_only_with_its_own_specification(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, SPEC).append([HAPPENED])

    with pytest.raises(RunDirectoryError, match="started with another specification"):
        RunDirectory.reopen(tmp_path, RunSpec(data="blobs"))
    assert RunDirectory.reopen(tmp_path, SPEC).path == tmp_path


def test_records_are_added_line_by_line(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, SPEC)
    directory.append([])
    directory.append([HAPPENED])
    directory.append([HAPPENED, HAPPENED])

    assert read_records(tmp_path) == [HAPPENED] * 3
    assert read_records(tmp_path / "records.jsonl") == [HAPPENED] * 3


def test_records_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="has no records that can be read"):
        read_records(tmp_path)
    (tmp_path / "records.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(TolFLError, match=r"records\.jsonl, line 1"):
        read_records(tmp_path)


# -- a full disk: /dev/full takes nothing -----------------------------------------------------------------------------

FULL = Path("/dev/full")
needs_dev_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


@needs_dev_full
def test_records_that_do_not_fit_on_the_disk_are_reported_in_one_sentence(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, SPEC)
    (tmp_path / "records.jsonl").unlink()
    (tmp_path / "records.jsonl").symlink_to(FULL)

    with pytest.raises(RunDirectoryError, match=r"No space left on device.*make room") as caught:
        directory.append([HAPPENED])
    assert len(str(caught.value).splitlines()) == 1


@needs_dev_full
@pytest.mark.parametrize("name", ["checkpoint.safetensors", "model.safetensors", "summary.json"])
def test_a_file_that_does_not_fit_leaves_nothing_half_written(tmp_path: Path, name: str) -> None:
    directory = RunDirectory.create(tmp_path, SPEC)
    directory.save_checkpoint(Checkpoint([Account(1.0)], states={0: {"global": np.zeros(3)}}))
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    (tmp_path / f"{name}.part").symlink_to(FULL)

    def save() -> None:
        if name.startswith("checkpoint"):
            directory.save_checkpoint(Checkpoint([Account(1.0), Account(2.0)]))
        else:
            directory.finish({"global": MODEL}, {"auroc": 0.5})

    with pytest.raises(RunDirectoryError, match="No space left on device"):
        save()
    assert not any(file.endswith(".part") for file in files(tmp_path))
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    assert not (directory.path / "summary.json").is_file()


@needs_dev_full
def test_a_run_that_fills_the_disk_can_be_resumed_when_there_is_room(tmp_path: Path) -> None:
    data, out = some_data([1, 2, 3]), tmp_path / "run"
    runs = Runs(SPEC, data, ModuleModel(Mean(3)), out=out)
    (out / "model.safetensors.part").symlink_to(FULL)
    with pytest.raises(RunDirectoryError, match="No space left on device"):
        finished(runs)

    resumed = finished(Runs(SPEC, data, ModuleModel(Mean(3)), out=out, resume=True))
    assert resumed[0].records == read_records(out)
    assert (out / "summary.json").is_file()


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_finished_run_leaves_its_model_and_summary_and_no_checkpoint(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, SPEC)
    directory.save_checkpoint(Checkpoint([Account(1.0)]))
    directory.finish({"global": MODEL}, {"auroc": 0.5, "models": None})

    assert files(tmp_path) == {"spec.toml", "records.jsonl", "model.safetensors", "summary.json"}
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8")) == {"auroc": 0.5, "models": None}
    assert safetensors.numpy.load_file(tmp_path / "model.safetensors")["theta"].tolist() == [0.0, 1.0, 2.0]
    assert (directory.path / "summary.json").is_file()


def test_several_models_get_a_folder(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, SPEC)
    directory.finish({"device-1": MODEL, "device-2": MODEL}, {})

    assert {"models/device-1.safetensors", "models/device-2.safetensors"} <= files(tmp_path)


def test_nobodys_model_is_no_file(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, SPEC)
    directory.finish({}, {"auroc": None})

    assert files(tmp_path) == {"spec.toml", "records.jsonl", "summary.json"}


def test_equal_models_have_equal_hashes_and_others_do_not() -> None:
    same = TrainedModel(MODEL.model, np.arange(6.0)[::2] / 2)
    other = TrainedModel(MODEL.model, np.arange(3.0) + 1e-9)

    assert models_sha256({"global": MODEL}) == models_sha256({"global": same})
    assert models_sha256({"global": MODEL}) != models_sha256({"global": other})
    assert models_sha256({}) is None


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = Checkpoint(
        [Account(0.1 + 0.2), Account(), Account(3.0, {"cluster-0": (0, 2)}, {1: "orphaned"})],
        {0: (0.5, 1.5), 2: (None, None)},
        {1: {"global": np.arange(3, dtype=np.float32)}, 2: {"global": np.array([1 / 3]), "a/b": np.zeros(2)}},
    )
    directory = RunDirectory.create(tmp_path, SPEC)
    directory.save_checkpoint(kept)
    found = directory.checkpoint()

    assert found is not None
    assert (found.accounts, found.evaluations, found.n_steps) == (kept.accounts, kept.evaluations, 3)
    assert {step: sorted(state) for step, state in found.states.items()} == {1: ["global"], 2: ["a/b", "global"]}
    for step, state in kept.states.items():
        for key, vector in state.items():
            assert np.array_equal(found.states[step][key], vector)
            assert found.states[step][key].dtype == vector.dtype


@pytest.mark.parametrize("content", [b"", b"nonsense", safetensors.numpy.save({"a": np.zeros(2)})])
def test_a_checkpoint_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    directory = RunDirectory.create(tmp_path, SPEC)
    (tmp_path / "checkpoint.safetensors").write_bytes(content)

    with pytest.raises(RunDirectoryError, match=r"is no checkpoint that can be read .*delete it to start anew"):
        directory.checkpoint()


def test_a_run_without_a_checkpoint_has_none(tmp_path: Path) -> None:
    assert RunDirectory.create(tmp_path, SPEC).checkpoint() is None
