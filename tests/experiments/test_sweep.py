"""Sweeps: what runs have in common is trained once, what is finished is never computed again, and nothing changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import msgspec
import pytest

from tolfl.core.errors import RunDirectoryError
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec
from tolfl.experiments.sweep import Cell, Summaries, Sweep, groups, read_finished, spec_hash
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


def cells() -> list[Cell]:
    asked = [
        SPEC,
        changed(fail="server@2"),
        changed(fail="server@4", on_head_failure="drop"),
        changed(scheme="fl", fail="server@4", on_head_failure="isolate"),
        changed(clusters=6, fail="server@4"),
        changed(scheme="ifca", fail="client@3"),
        changed(scheme="ifca"),
    ]
    return [Cell(f"cell {number}", spec) for number, spec in enumerate(asked)]


def without_clock(found: dict[str, Summaries]) -> dict[str, Summaries]:
    return {
        key: [{name: value for name, value in one.items() if name != "seconds_per_round"} for one in summaries]
        for key, summaries in found.items()
    }


def assert_as_separate_runs(asked: list[Cell]) -> None:
    sweep = Sweep(asked)
    list(sweep)
    for cell in asked:
        alone = [result.summary for result in run(cell.spec)]
        assert without_clock({"": sweep.summaries[cell.key]}) == without_clock({"": alone})


def test_rounds_that_cells_share_count_once_in_the_time_they_took(tmp_path: Path) -> None:
    pair = [Cell("clean", SPEC), Cell("failing", changed(fail="server@4"))]
    sweep = Sweep(pair, tmp_path)
    list(sweep)
    (clean_s, *_), (failing_s, *_) = ([one["seconds_per_round"] for one in sweep.summaries[cell.key]] for cell in pair)
    assert sweep.computing_s == pytest.approx(6 * clean_s + 3 * failing_s)

    from_disk = Sweep(pair, tmp_path)
    assert list(from_disk) == []
    assert from_disk.computing_s == sweep.computing_s


def test_a_sweep_gives_what_separate_runs_give() -> None:
    assert_as_separate_runs(cells())


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
        ("fedgroup", [("", ""), ("server@3", "strict"), ("server@3/chain", "rehome"), ("client@3", "strict")]),
        ("ifca", [("", ""), ("server@3", "strict"), ("server@3/chain", "rehome"), ("client@3", "strict")]),
        ("fesem", [("", ""), ("server@3", "strict"), ("server@3/chain", "rehome"), ("client@3", "strict")]),
        ("batch", [("", ""), ("server@3", "freeze"), ("client@3", "")]),
    ],
    ids=["tol-fl", "fedgroup", "ifca", "fesem", "batch"],
)
def test_whatever_fails_sharing_changes_nothing(scheme: str, plans: list[tuple[str, str]]) -> None:
    asked = [changed(scheme=scheme, fail=fail, on_head_failure=policy) for fail, policy in plans]
    assert_as_separate_runs([Cell(str(number), spec) for number, spec in enumerate(asked)])


def test_rounds_in_common_are_trained_once_whatever_the_scheme_k_and_round_of_failure() -> None:
    computed: dict[str, int] = {}
    for progress in Sweep(cells()):
        computed[progress.label] = computed.get(progress.label, 0) + 1

    assert computed == {
        "cell 0": 6,  # clean: the trunk of all Tol-FL and FL
        "cell 1": 5,
        "cell 2": 3,
        "cell 3": 3,
        "cell 4": 3,
        "cell 6": 6,  # IFCA's own trunk
        "cell 5": 4,
    }


@pytest.mark.parametrize("stops_after", [0, 6, 13, 20])
def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path, stops_after: int) -> None:
    whole = Sweep(cells())
    n_whole = len(list(whole))
    broken = Sweep(cells(), tmp_path)
    for place, _ in enumerate(broken):
        if place == stops_after:
            broken.save_checkpoints()
            break
    resumed = Sweep(cells(), tmp_path)
    n_resumed = len(list(resumed))

    assert without_clock(resumed.summaries) == without_clock(whole.summaries)
    assert stops_after + 1 + n_resumed <= n_whole + 1
    again = Sweep(cells(), tmp_path)
    assert list(again) == []
    assert again.summaries == resumed.summaries


@pytest.mark.processes
def test_what_another_process_computes_is_waited_for_and_taken_over_when_it_is_killed(tmp_path: Path) -> None:
    asked = [Cell("clean", SPEC)]
    path = tmp_path / "shared" / f"{asked[0].trunk}.turn"
    holds_it = (
        "import pathlib, sys; from tolfl.runs.write_lock import WriteLock; "
        f"lock = WriteLock(pathlib.Path({str(path)!r})); "
        "print(lock.take(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", holds_it], stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        sweep = Sweep(asked, tmp_path)
        labels = []
        for progress in sweep:
            labels.append(progress.label)
            if len(labels) == 2:
                other.kill()
    assert labels[:2] == ["clean (another process is at it)"] * 2
    assert labels[-SPEC.rounds :] == ["clean"] * SPEC.rounds
    assert sweep.is_finished(asked[0])


def test_a_new_failure_round_starts_from_the_nearest_rounds_on_disk(tmp_path: Path) -> None:
    list(Sweep(cells(), tmp_path))
    later = Cell("later", changed(fail="client@5"))

    assert len(list(Sweep([later], tmp_path))) == 3  # from round 3, which another failure had kept


def test_a_model_that_is_still_on_its_way_when_a_death_is_noticed_is_nobodys() -> None:
    # 784 inputs: 0.36 s at 20 Mbit/s, and a death is noticed after 0.2 s. Survivors never get the last model.
    wide = BlobsSpec(samples_per_device=4, n_features=784, n_groups=3, n_test=20, n_validation=0)
    spec = changed(blobs=wide, model=ModelSpec(), scheme="fl", fail="server@3", repetitions=1)
    asked = [Cell(policy, msgspec.structs.replace(spec, on_head_failure=policy)) for policy in ("isolate", "freeze")]
    sweep = Sweep(asked)
    list(sweep)

    for cell in asked:
        alone = [result.summary for result in run(cell.spec)]
        assert without_clock({"": sweep.summaries[cell.key]}) == without_clock({"": alone})
        assert alone[0]["rounds_lost"] == 1


def test_where_data_lie_is_no_part_of_a_results_name() -> None:
    elsewhere = changed(dataset=msgspec.structs.replace(SPEC.dataset, dir="somewhere/else"))
    assert spec_hash(elsewhere) == spec_hash(SPEC)
    assert spec_hash(changed(seed=1)) != spec_hash(SPEC)


def test_cells_of_one_trunk_come_together_the_longest_first() -> None:
    found = [[cell.label for cell in group] for group in groups(cells())]
    assert found == [["cell 0", "cell 2", "cell 3", "cell 4", "cell 1"], ["cell 6", "cell 5"]]


def test_a_cell_of_another_specification_is_not_taken_for_finished(tmp_path: Path) -> None:
    list(Sweep([Cell("one", SPEC, "same-folder")], tmp_path))

    assert read_finished(tmp_path / "same-folder", SPEC) is not None
    assert read_finished(tmp_path / "same-folder", changed(seed=7)) is None
    (tmp_path / "same-folder" / "summary.json").write_text("{")
    with pytest.raises(RunDirectoryError, match="delete its folder to compute it again"):
        read_finished(tmp_path / "same-folder", SPEC)


def test_repetitions_go_round_the_declared_splits() -> None:
    pictures = repetitions_of(RunSpec(data="mnist", repetitions=5, splits=2, seed=3))
    assert [(one.seed, one.dataset.declared) for one in pictures] == [(3, 0), (4, 1), (5, 0), (6, 1), (7, 0)]
    assert all(one.repetitions == one.splits == 1 for one in pictures)
    generated = repetitions_of(RunSpec(data="comms-ml", repetitions=3, splits=3))
    assert [(one.comms_ml.seed, one.dataset.declared) for one in generated] == [(0, 0), (1, 0), (2, 0)]
