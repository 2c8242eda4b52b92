"""Runs that were interrupted, runs that share a beginning, and repetitions in lock-step: nobody can tell them apart."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.sim.fleets import FULL_BATCH, FastMean, Mean, finished, params, some_data
from tolfl.core.errors import RunDirectoryError
from tolfl.core.spec import BlobsSpec, LinkModel, ModelSpec, RunSpec, TrainSpec
from tolfl.runs.directory import RunDirectory
from tolfl.runs.run_reader import read_records
from tolfl.sim.simulation import Run, Runs, run

DATA = some_data([3, 4, 5, 2, 6, 4], with_test=True)
SPEC = RunSpec(
    data="blobs",
    devices=6,
    clusters=3,
    rounds=7,
    train=FULL_BATCH,
    evaluate_every=2,
    links=LinkModel(seconds_per_sample=0.05),
)

#: What may happen before, at and after the interruption.
PLANS = [
    {},
    {"fail": "server@2/chain"},
    {"fail": "server@2", "on_head_failure": "drop"},
    {"fail": "server@2", "on_head_failure": "isolate"},
    {"fail": "server@2", "on_head_failure": "isolate", "scheme": "fl"},
    {"fail": "server@4", "on_head_failure": "freeze", "scheme": "batch"},
    {"fail": "device:3@2-4"},
    {"fail": "device:3@1-3; device:0@2-5/distribute"},
    {"fail": "device:0@1-3; device:3@0-2; device:4@3-6", "on_head_failure": "isolate", "evaluate_every": 0},
    {"fail": "device:4@2/distribute"},
    {"fail": "cut:0,1|2,3,4,5@2-4"},
    {"fail": "cut:5,2|0,1,4,3@3", "clusters": 4},
    {"fail": "random:0.1"},
    {"min_devices": 5, "fail": "client@2; device:3@3"},
]


def changed(spec: RunSpec, **changes: object) -> RunSpec:
    return msgspec.structs.replace(spec, **changes)


def small_runs(spec: RunSpec, out: Path | None = None, resume: bool = False) -> Runs:
    return Runs(spec, DATA, FastMean(Mean(3)), out=out, resume=resume)


def comparable(summary: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in summary.items() if key != "seconds_per_round"}


def interrupted(spec: RunSpec, out: Path, after: int) -> None:
    """Stop as a power cut would: after a checkpoint, in the middle of everything else."""
    runs = small_runs(spec, out)
    for place, _ in enumerate(runs, start=1):
        if place == after:
            runs.save_checkpoints()
            break


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_resumed_run_is_the_uninterrupted_run(tmp_path: Path, plan: dict[str, object], after: int) -> None:
    spec = changed(SPEC, **plan)
    whole = finished(small_runs(spec, tmp_path / "whole"))[0]
    interrupted(spec, tmp_path / "resumed", after)
    resumed = finished(small_runs(spec, tmp_path / "resumed", resume=True))[0]

    assert comparable(resumed.summary) == comparable(whole.summary)
    assert resumed.records == whole.records
    assert read_records(tmp_path / "resumed") == read_records(tmp_path / "whole") == whole.records
    lines = [(tmp_path / name / "records.jsonl").read_bytes() for name in ("whole", "resumed")]
    assert lines[0] == lines[1]
    assert {p.name for p in (tmp_path / "whole").iterdir()} == {p.name for p in (tmp_path / "resumed").iterdir()}


def test_a_run_may_be_interrupted_again_and_again(tmp_path: Path) -> None:
    spec = changed(SPEC, fail="server@2/chain; device:3@3-5")
    whole = finished(small_runs(spec))[0]
    interrupted(spec, tmp_path / "run", 2)
    for _ in range(2):
        for place, _ in enumerate(runs := small_runs(spec, tmp_path / "run", resume=True)):
            if place == 1:
                runs.save_checkpoints()
                break
    resumed = finished(small_runs(spec, tmp_path / "run", resume=True))[0]

    assert resumed.records == whole.records
    assert comparable(resumed.summary) == comparable(whole.summary)


def test_a_resumed_run_trains_only_what_is_missing(tmp_path: Path) -> None:
    interrupted(SPEC, tmp_path / "run", 4)
    places = [progress.rounds_done for progress in small_runs(SPEC, tmp_path / "run", resume=True)]

    assert places == [5, 6, 7]


def test_a_run_without_a_checkpoint_starts_anew(tmp_path: Path) -> None:
    runs = small_runs(SPEC, tmp_path / "run")
    next(iter(runs))

    assert finished(small_runs(SPEC, tmp_path / "run", resume=True))[0].records == finished(small_runs(SPEC))[0].records


def test_a_finished_run_may_be_resumed_and_says_the_same(tmp_path: Path) -> None:
    first = finished(small_runs(SPEC, tmp_path / "run"))[0]
    again = finished(small_runs(SPEC, tmp_path / "run", resume=True))[0]

    assert again.records == first.records
    assert comparable(again.summary) == comparable(first.summary)


def test_a_run_of_another_specification_is_not_resumed(tmp_path: Path) -> None:
    interrupted(SPEC, tmp_path / "run", 2)

    with pytest.raises(RunDirectoryError, match="was started with another specification"):
        small_runs(changed(SPEC, seed=1), tmp_path / "run", resume=True)
    with pytest.raises(RunDirectoryError, match="is not empty"):
        small_runs(SPEC, tmp_path / "run")


def test_checkpoints_appear_as_often_as_asked_for(tmp_path: Path) -> None:
    runs = small_runs(changed(SPEC, checkpoint_every=3), tmp_path / "run")
    seen = [(progress.rounds_done, RunDirectory(tmp_path / "run").checkpoint()) for progress in runs]

    known = [0 if checkpoint is None else checkpoint.n_steps for _, checkpoint in seen]
    assert known == [0, 0, 3, 3, 3, 6, 6]
    assert RunDirectory(tmp_path / "run").checkpoint() is None


# -- the built-in model -----------------------------------------------------------------------------------------------

BLOBS = RunSpec(
    data="blobs",
    devices=5,
    clusters=2,
    rounds=6,
    model=ModelSpec(hidden=(8,), code=2),
    train=TrainSpec(lr=0.01, batch_size=8),
    blobs=BlobsSpec(samples_per_device=20, n_features=6, n_groups=2, n_test=40),
    evaluate_every=3,
)


def assert_same(one: Run, other: Run) -> None:
    assert one.records == other.records
    assert comparable(one.summary) == comparable(other.summary)
    assert list(one.models) == list(other.models)
    for name in one.models:
        assert np.array_equal(params(one, name), params(other, name))


@pytest.mark.parametrize(
    "plan", [{}, {"fail": "random:0.1"}, {"fail": "server@2", "on_head_failure": "isolate"}], ids=str
)
def test_repetitions_in_lock_step_are_the_runs_with_those_seeds(plan: dict[str, object]) -> None:
    together = run(changed(BLOBS, seed=10, repetitions=3, **plan))
    alone = [run(changed(BLOBS, seed=seed, **plan))[0] for seed in (10, 11, 12)]

    assert [result.spec.seed for result in together] == [10, 11, 12]
    for one, other in zip(together, alone, strict=True):
        assert_same(one, other)


def test_repetitions_are_kept_side_by_side_and_resumed_together(tmp_path: Path) -> None:
    spec = changed(BLOBS, repetitions=2, fail="server@2")
    whole = run(spec)
    for place, _ in enumerate(runs := Runs(spec, out=tmp_path / "run")):
        if place == 2:
            runs.save_checkpoints()
            break
    resumed = finished(Runs(spec, out=tmp_path / "run", resume=True))

    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["repetition-0", "repetition-1", "spec.toml", "summary.json"]
    for one, other in zip(resumed, whole, strict=True):
        assert_same(one, other)
