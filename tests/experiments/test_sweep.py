"""Sweeps: what runs have in common is trained once, what is finished is never computed again, and nothing changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE

import msgspec
import pytest

from tolfl.core.errors import RunDirectoryError
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec
from tolfl.experiments.paper.setups import SETUPS
from tolfl.experiments.sweep import Job, Repetition, Sweep, groups, read_finished, spec_hash
from tolfl.sim.simulation import repetitions_of, run

SPEC = RunSpec(
    data="blobs",
    devices=6,
    clusters=3,
    rounds=6,
    repetitions=2,
    blobs=BlobsSpec(samples_per_device=12, n_features=6, n_groups=3, n_test=40, n_validation=20),
    model=ModelSpec(hidden=(5,), code=2),
)


def changed(**fields: object) -> RunSpec:
    return msgspec.structs.replace(SPEC, **fields)


def jobs() -> list[Job]:
    asked = [
        SPEC,
        changed(fail="server@2"),
        changed(fail="server@4", on_head_failure="drop"),
        changed(scheme="fl", fail="server@4", on_head_failure="isolate"),
        changed(clusters=6, fail="server@4"),
        changed(scheme="ifca", fail="client@3"),
        changed(scheme="ifca"),
    ]
    return [Job(f"job {number}", spec) for number, spec in enumerate(asked)]


def without_clock(found: dict[str, list[Repetition]]) -> dict[str, list[dict[str, object]]]:
    return {key: [plain(one.summary) for one in repetitions] for key, repetitions in found.items()}


def plain(summary: Mapping[str, object] | None) -> dict[str, object]:
    return {name: value for name, value in (summary or {}).items() if name != "seconds_per_round"}


def assert_as_separate_runs(asked: list[Job]) -> None:
    sweep = Sweep(asked)
    list(sweep)
    for job in asked:
        alone = [plain(result.summary) for result in run(job.spec)]
        assert without_clock(sweep.results)[job.key] == alone


def test_rounds_that_cells_share_count_once_in_the_time_they_took(tmp_path: Path) -> None:
    pair = [Job("clean", SPEC), Job("failing", changed(fail="server@4"))]
    sweep = Sweep(pair, tmp_path)
    list(sweep)
    (clean_s, *_), (failing_s, *_) = (
        [(one.summary or {})["seconds_per_round"] for one in sweep.results[job.key]] for job in pair
    )
    assert sweep.computing_s == pytest.approx(6 * clean_s + 3 * failing_s)

    from_disk = Sweep(pair, tmp_path)
    assert list(from_disk) == []
    assert from_disk.computing_s == sweep.computing_s


def test_a_sweep_gives_what_separate_runs_give() -> None:
    assert_as_separate_runs(jobs())


@pytest.mark.parametrize(
    ("scheme", "plans"),
    [
        (
            "tol-fl",
            [
                ("server@0", "elect"),
                ("server@0", "drop"),
                ("server@3", "isolate"),
                ("server@3/chain", "freeze"),
                ("cut:0,1|2,3,4@3-5", "elect"),
                ("device:3@3-5", "elect"),
                ("random:0.1", "drop"),
            ],
        ),
        pytest.param(
            "fedgroup",
            [("", ""), ("server@3", "strict"), ("server@3/chain", "rehome"), ("client@3", "strict")],
            marks=pytest.mark.slow,
        ),
        ("ifca", [("", ""), ("server@3", "strict"), ("server@3/chain", "rehome"), ("client@3", "strict")]),
        pytest.param(
            "fesem",
            [("", ""), ("server@3", "strict"), ("server@3/chain", "rehome"), ("client@3", "strict")],
            marks=pytest.mark.slow,
        ),
        ("batch", [("", ""), ("server@3", "freeze"), ("client@3", "")]),
    ],
    ids=["tol-fl", "fedgroup", "ifca", "fesem", "batch"],
)
def test_whatever_fails_sharing_changes_nothing(scheme: str, plans: list[tuple[str, str]]) -> None:
    asked = [changed(scheme=scheme, fail=fail, on_head_failure=policy) for fail, policy in plans]
    assert_as_separate_runs([Job(str(number), spec) for number, spec in enumerate(asked)])


def test_rounds_in_common_are_trained_once_whatever_the_scheme_k_and_round_of_failure() -> None:
    computed: dict[str, int] = {}
    for progress in Sweep(jobs()):
        computed[progress.label] = computed.get(progress.label, 0) + 1

    assert computed == {
        "job 0": 6,  # clean: the trunk of all Tol-FL and FL
        "job 1": 5,
        "job 2": 3,
        "job 3": 3,
        "job 4": 3,
        "job 6": 6,  # IFCA's own trunk
        "job 5": 4,
    }


@pytest.mark.parametrize("stops_after", [pytest.param(place, marks=pytest.mark.slow) for place in (0, 6, 20)] + [13])
def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path, stops_after: int) -> None:
    whole = Sweep(jobs())
    n_whole = len(list(whole))
    broken = Sweep(jobs(), tmp_path)
    for place, _ in enumerate(broken):
        if place == stops_after:
            broken.save_checkpoints()
            break
    resumed = Sweep(jobs(), tmp_path)
    n_resumed = len(list(resumed))

    assert without_clock(resumed.results) == without_clock(whole.results)
    assert stops_after + 1 + n_resumed <= n_whole + 1
    again = Sweep(jobs(), tmp_path)
    assert list(again) == []
    assert without_clock(again.results) == without_clock(resumed.results)


@pytest.mark.processes
def test_what_another_process_computes_comes_last_and_is_taken_over_when_that_is_killed(tmp_path: Path) -> None:
    asked = [Job("clean", SPEC), Job("other", changed(seed=5))]
    path = tmp_path / "shared" / f"{asked[0].shared_key}.lock"
    path.parent.mkdir()
    holds_it = (
        "import filelock, sys; "
        f"lock = filelock.FileLock({str(path)!r}); lock.acquire(); print('held', flush=True); sys.stdin.read()"
    )
    sweep, labels = Sweep(asked, tmp_path), []
    with subprocess.Popen([sys.executable, "-c", holds_it], stdin=PIPE, stdout=PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for progress in sweep:
            labels.append(progress.label)
            if len(labels) == SPEC.rounds + 2:
                holder.kill()
                holder.wait()
    waiting = ["clean (another process computes it)"] * 2
    assert labels == ["other"] * SPEC.rounds + waiting + ["clean"] * SPEC.rounds
    assert sweep.is_finished(asked[0])


def test_a_new_failure_round_starts_from_the_nearest_rounds_on_disk(tmp_path: Path) -> None:
    list(Sweep(jobs(), tmp_path))
    later = Job("later", changed(fail="client@5"))

    assert len(list(Sweep([later], tmp_path))) == 3  # from round 3, which another failure had kept


def test_a_model_that_is_still_on_its_way_when_a_death_is_noticed_is_nobodys() -> None:
    # 784 inputs: 0.36 s at 20 Mbit/s, and a death is noticed after 0.2 s. Survivors never get the last model.
    wide = BlobsSpec(samples_per_device=4, n_features=784, n_groups=3, n_test=20, n_validation=0)
    spec = changed(blobs=wide, model=ModelSpec(), scheme="fl", fail="server@3", repetitions=1)
    asked = [Job(policy, msgspec.structs.replace(spec, on_head_failure=policy)) for policy in ("isolate", "freeze")]
    sweep = Sweep(asked)
    list(sweep)

    for job in asked:
        alone = [plain(result.summary) for result in run(job.spec)]
        assert without_clock(sweep.results)[job.key] == alone
        assert alone[0]["rounds_lost"] == 1


def test_where_data_lie_is_no_part_of_a_results_name() -> None:
    elsewhere = changed(dataset=msgspec.structs.replace(SPEC.dataset, dir="somewhere/else"))
    assert spec_hash(elsewhere) == spec_hash(SPEC)
    assert spec_hash(changed(seed=1)) != spec_hash(SPEC)


def test_cells_of_one_trunk_come_together_the_longest_first() -> None:
    found = [[job.label for job in group] for group in groups(jobs())]
    assert found == [["job 0", "job 2", "job 3", "job 4", "job 1"], ["job 6", "job 5"]]


def test_a_cell_of_another_specification_is_not_taken_for_finished(tmp_path: Path) -> None:
    list(Sweep([Job("one", SPEC, folder="same-folder")], tmp_path))

    one, other = (Job("one", spec, folder="same-folder") for spec in (SPEC, changed(seed=7)))
    assert read_finished(tmp_path, one) is not None
    assert read_finished(tmp_path, other) is None
    (tmp_path / "same-folder" / "summary.json").write_text("{")
    with pytest.raises(RunDirectoryError, match="delete it to compute it again"):
        read_finished(tmp_path, one)


def test_a_cache_of_another_version_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    job = Job("one", SPEC)
    list(Sweep([job], tmp_path))
    spec = tmp_path / job.name / "spec.toml"
    spec.write_text(spec.read_text() + "\n[of_a_later_version]\nfield = 1\n")

    with pytest.raises(RunDirectoryError, match=r"unknown key 'of_a_later_version'.*; delete it to compute it again"):
        list(Sweep([job], tmp_path))
    assert "of_a_later_version" in spec.read_text()


def test_a_hash_has_not_changed_since_results_were_stored() -> None:
    stored = msgspec.structs.replace(SETUPS["comms-ml"].spec(), fail="device:0@50", on_head_failure="elect")
    assert spec_hash(stored) == "3aa6bf6c70cf4f27"  # results/server.json


def test_links_and_clocks_do_not_change_a_model_so_its_rounds_are_shared() -> None:
    slow = msgspec.structs.replace(SPEC.links, bandwidth_bps=1e5, uplink="parallel")
    asked = [Job("clean", SPEC), Job("slow", changed(links=slow, timing="wireless")), Job("star", changed(scheme="fl"))]
    assert_as_separate_runs(asked)
    assert [progress.label for progress in Sweep(asked)].count("clean") == SPEC.rounds
    assert len(list(Sweep(asked))) == SPEC.rounds


def test_a_batch_in_which_one_repetition_diverges_is_computed_one_by_one(tmp_path: Path) -> None:
    wild = Job("wild", changed(liars="1:scale=-1e6", repetitions=2))
    sweep = Sweep([wild, Job("clean", SPEC)], tmp_path)
    list(sweep)

    assert [one.summary for one in sweep.results[wild.key]] == [None, None]
    assert [one.key for one in sweep.results[wild.key]] == [spec_hash(one) for one in repetitions_of(wild.spec)]
    assert all(one.summary is not None for one in sweep.results[Job("clean", SPEC).key])
    again = Sweep([wild], tmp_path)
    assert list(again) == []
    assert [one.summary for one in again.results[wild.key]] == [None, None]


def test_records_are_those_of_the_run_from_memory_and_from_disk(tmp_path: Path) -> None:
    job = Job("one", SPEC)
    here, stored = Sweep([job]), Sweep([job], tmp_path)
    list(here)
    list(stored)
    expected = [result.records for result in run(SPEC)]

    assert [list(one.records) for one in here.results[job.key]] == expected
    assert [list(one.records) for one in stored.results[job.key]] == expected


def test_repetitions_go_round_the_declared_splits() -> None:
    pictures = repetitions_of(RunSpec(data="mnist", repetitions=5, splits=2, seed=3))
    assert [(one.seed, one.dataset.declared) for one in pictures] == [(3, 0), (4, 1), (5, 0), (6, 1), (7, 0)]
    assert all(one.repetitions == one.splits == 1 for one in pictures)
    generated = repetitions_of(RunSpec(data="comms-ml", repetitions=3, splits=3))
    assert [(one.comms_ml.seed, one.dataset.declared) for one in generated] == [(0, 0), (1, 0), (2, 0)]


def test_a_job_goes_on_where_its_data_have_been_moved_since(tmp_path: Path) -> None:
    here = changed(dataset=msgspec.structs.replace(SPEC.dataset, dir="old/place"), checkpoint_every=1)
    for place, _ in enumerate(started := Sweep([Job("one", here)], tmp_path)):
        if place == 3:
            started.save_checkpoints()
            break
    there = msgspec.structs.replace(here, dataset=msgspec.structs.replace(SPEC.dataset, dir="new/place"))

    assert len(list(Sweep([Job("one", there)], tmp_path))) == SPEC.rounds - 4
