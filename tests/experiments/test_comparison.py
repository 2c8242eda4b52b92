"""Schemes side by side: the same devices fail in all of them, and nothing is trained twice."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import tolfl
from tests.sim.fleets import FULL_BATCH, Mean, some_data
from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec
from tolfl.experiments.comparison import (
    COMPARED_POLICIES,
    Comparison,
    comparison_of,
    comparison_sweep,
    over_seeds,
    parse_schemes,
    scheme_jobs,
)
from tolfl.experiments.sweep import Job, Repetition, Sweep
from tolfl.learners.layouts import failure_plan
from tolfl.learners.torch_module import ModuleModel
from tolfl.sim.simulation import repetitions_of, run

SPEC = RunSpec(
    data="blobs",
    devices=6,
    clusters=3,
    rounds=6,
    repetitions=2,
    blobs=BlobsSpec(samples_per_device=20, n_features=8, n_groups=3, n_test=40, n_validation=20),
    model=ModelSpec(hidden=(8,), code=3),
)
ALL = tuple(COMPARED_POLICIES)


def changed(**changes: object) -> RunSpec:
    return msgspec.structs.replace(SPEC, **changes)


def labels(found: list[Job]) -> list[str]:
    return [job.label for job in found]


def finished(spec: RunSpec, schemes: tuple[str, ...], out: Path | None = None, resume: bool = False) -> Comparison:
    sweep = comparison_sweep(spec, schemes, out=out, resume=resume)
    list(sweep)
    return comparison_of(spec, sweep)


def computed_rounds(spec: RunSpec, schemes: tuple[str, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for progress in comparison_sweep(spec, schemes):
        counts[progress.label] = counts.get(progress.label, 0) + 1
    return counts


def test_without_a_dying_head_every_scheme_is_one_row() -> None:
    assert labels(scheme_jobs(SPEC, ALL)) == list(ALL)
    assert labels(scheme_jobs(changed(fail="client@3"), ("tol-fl", "fl", "ifca"))) == ["tol-fl", "fl", "ifca"]


def test_where_a_head_dies_every_policy_that_matters_is_a_row() -> None:
    found = labels(scheme_jobs(changed(fail="server@3"), ALL))
    # Device 2 leads a cluster of Tol-FL and keeps a model, but FL's server is device 0.
    other = labels(scheme_jobs(changed(fail="device:2@3"), ("tol-fl", "fl", "fesem")))

    assert found == [
        "tol-fl (elect)", "tol-fl (drop)", "sbt (elect)", "fl (isolate)", "fl (freeze)", "batch (freeze)",
        "batch-small (freeze)", "fedgroup (strict)", "fedgroup (rehome)", "ifca (strict)", "ifca (rehome)",
        "fesem (strict)", "fesem (rehome)",
    ]  # fmt: skip
    assert other == ["tol-fl (elect)", "tol-fl (drop)", "fl", "fesem (strict)", "fesem (rehome)"]


@pytest.mark.parametrize("topology", ["", "3,2|0,1|5,4"])
@pytest.mark.parametrize("fail", ["server@3/chain", "cluster:1@2", "device:4@1-3; cut:0,1|2,3,4,5@4", "random:0.2"])
def test_a_plan_means_the_same_devices_for_every_scheme(fail: str, topology: str) -> None:
    found = scheme_jobs(changed(fail=fail, topology=topology, clusters=None if topology else 3), ALL)
    plans = [failure_plan(msgspec.structs.replace(job.spec, seed=7)) for job in found]

    assert len({str(plan) for plan in plans}) == 1
    assert plans[0].failures or plans[0].cuts


@pytest.mark.parametrize("fail", ["server@3", pytest.param("random:0.1", marks=pytest.mark.slow)])
def test_rows_that_share_their_beginning_equal_runs_of_their_own(fail: str) -> None:
    spec = changed(fail=fail)
    sweep = comparison_sweep(spec, ("tol-fl", "sbt", "fl", "batch", "ifca", "fedgroup", "fesem"))
    list(sweep)

    for job, row in zip(sweep.jobs, comparison_of(spec, sweep).rows, strict=False):
        summaries = [one.summary for one in run(job.spec)]
        for score in ("auroc", "auroc_all_models"):
            assert row[score]["values"] == [summary[score] for summary in summaries]


def test_what_is_shared_is_trained_once() -> None:
    # FL's freeze trains nothing after the failure, and isolated devices have two more rounds each.
    assert computed_rounds(changed(fail="server@4"), ("tol-fl", "sbt", "fl", "fesem")) == {
        "tol-fl (elect)": 6, "tol-fl (drop)": 3, "sbt (elect)": 3, "fl (isolate)": 3, "fl (freeze)": 1,
        "fl (alone)": 6, "fesem (strict)": 6, "fesem (rehome)": 3,
    }  # fmt: skip


def test_layouts_of_ones_own_and_deadlines_share_within_a_scheme_only() -> None:
    for spec in (
        changed(fail="server@4", topology="1,0|2,3|4,5", clusters=None),
        changed(fail="server@4", deadline_s=9.0),
    ):
        assert computed_rounds(spec, ("tol-fl", "fl")) == {
            "tol-fl (elect)": 6,
            "tol-fl (drop)": 3,
            "fl (isolate)": 6,
            "fl (freeze)": 1,
            "fl (alone)": 6,
        }


@pytest.mark.parametrize("stops_after", [pytest.param(4, marks=pytest.mark.slow), 9])
def test_an_interrupted_comparison_goes_on_where_it_was(tmp_path: Path, stops_after: int) -> None:
    spec, schemes = changed(fail="server@3", checkpoint_every=2), ("tol-fl", "fl", "ifca")
    finished(spec, schemes, out=tmp_path / "whole")
    for place, _ in enumerate(comparison_sweep(spec, schemes, out=tmp_path / "broken")):
        if place == stops_after:
            break
    resumed = comparison_sweep(spec, schemes, out=tmp_path / "broken", resume=True)
    n_computed = stops_after + 1 + len(list(resumed))
    comparison_of(spec, resumed)

    files = {path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.json*")}
    for name in files:
        if name.name != "summary.json":  # these hold how long it took
            assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert len(files) > 10
    # Not more is trained again than what lies between two checkpoints.
    assert n_computed <= sum(computed_rounds(spec, schemes).values()) + 2


def test_a_comparison_is_not_resumed_with_other_options(tmp_path: Path) -> None:
    finished(SPEC, ("fl",), tmp_path / "x")

    with pytest.raises(RunDirectoryError, match="was started with other options"):
        finished(changed(seed=3), ("fl",), tmp_path / "x", resume=True)
    with pytest.raises(RunDirectoryError, match="was started with other options"):
        finished(SPEC, ("fl", "sbt"), tmp_path / "x", resume=True)


def test_a_torn_file_of_a_comparison_is_named(tmp_path: Path) -> None:
    finished(SPEC, ("fl",), tmp_path / "x")
    (tmp_path / "x" / "fl" / "summary.json").write_text("{")
    with pytest.raises(RunDirectoryError, match="delete it to compute it again"):
        finished(SPEC, ("fl",), tmp_path / "x", resume=True)

    (tmp_path / "x" / "compare.toml").write_text("schemes = [")
    with pytest.raises(RunDirectoryError, match="no comparison that can be read"):
        finished(SPEC, ("fl",), tmp_path / "x", resume=True)


def of_summaries(aurocs: dict[str, list[float | None]]) -> Comparison:
    """Return the comparison of jobs whose repetitions have these AUROCs; None: it diverged."""
    spec = changed(fail="server@3")
    jobs = [job for job in scheme_jobs(spec, ALL) if job.label in aurocs]
    sweep = Sweep(sorted(jobs, key=lambda job: list(aurocs).index(job.label)))
    summary = {"data": "blobs", "baselines": {"mean-vector": 0.6}}
    for job in sweep.jobs:
        sweep.results[job.key] = [
            Repetition(one, job.key, None if auroc is None else {**summary, "auroc": auroc})
            for one, auroc in zip(repetitions_of(job.spec), aurocs[job.label], strict=True)
        ]
    return comparison_of(spec, sweep)


def test_differences_to_the_first_row_of_tol_fl_are_taken_seed_by_seed() -> None:
    frozen, elect, drop, plain = of_summaries(
        {"fl (freeze)": [0.7, None], "tol-fl (elect)": [0.8, 0.9], "tol-fl (drop)": [0.5, 0.5]}
    ).rows

    assert [row["label"] for row in (frozen, elect, drop)] == ["fl (freeze)", "tol-fl (elect)", "tol-fl (drop)"]
    assert plain["label"] == "mean-vector (plain)"
    assert frozen["difference_to_reference"]["values"] == pytest.approx([-0.1, None])
    assert drop["difference_to_reference"]["mean"] == pytest.approx(-0.35)
    assert drop["difference_to_reference"]["std"] == pytest.approx(0.1 / 2**0.5)
    alone = of_summaries({"fl (freeze)": [0.7, 0.9]})
    assert alone.reference is None
    assert alone.rows[0]["difference_to_reference"]["values"] == []


def test_one_model_has_one_score_also_where_a_mean_over_devices_is_rounded() -> None:
    spec = RunSpec(data="blobs", devices=4, clusters=2, rounds=4, repetitions=2)
    found = tolfl.compare(["tol-fl", "fl"], spec, fail="server@2")
    by_label = {line[0]: line[2:5] for line in found.table.rows}

    assert by_label["fl (freeze)"] == by_label["tol-fl (elect)"] == ("", "", "")
    assert all(by_label["fl (isolate)"])


def test_a_scheme_that_diverged_with_every_seed_has_a_row_without_scores() -> None:
    found = of_summaries({"tol-fl (elect)": [0.8, 0.9], "fl (freeze)": [None, None]})

    assert found["fl (freeze)"]["auroc"] == {"mean": None, "std": None, "values": [None, None]}
    assert over_seeds([0.5])["std"] is None


def test_names_are_read_in_the_order_of_rows() -> None:
    assert parse_schemes("all") == ALL
    assert parse_schemes(" fesem,tol-fl ") == ("tol-fl", "fesem")


def test_arrays_and_modules_of_ones_own_are_compared() -> None:
    data = some_data([8, 9, 7, 8], with_test=True)
    assert data.test is not None
    assert data.is_anomalous is not None
    found = tolfl.compare(
        "all", data=data, model=Mean(3), clusters=2, rounds=4, fail="server@2", train=FULL_BATCH, repetitions=2
    )
    arrays = [data.slice_of(device) for device in range(4)]
    again = tolfl.compare(
        ["tol-fl", "ifca"],
        data=arrays,
        test=(data.test, data.is_anomalous),
        validation=arrays[0],
        model=Mean(3),
        clusters=2,
        rounds=4,
        fail="server@2",
        train=FULL_BATCH,
        repetitions=2,
    )

    assert found.chosen_by == "training loss"
    assert again.chosen_by == "validation loss"
    assert again["ifca (strict)"]["auroc"] == found["ifca (strict)"]["auroc"]
    with pytest.raises(KeyError, match=r"no row 'ifca'; there are tol-fl \(elect\)"):
        again["ifca"]
    with pytest.raises(SpecError, match="does not apply to comparisons"):
        tolfl.compare("fl", on_head_failure="freeze")
    with pytest.raises(SpecError, match="validation goes with arrays"):
        tolfl.compare("fl", validation=arrays[0])


def test_without_a_test_set_there_is_a_comparison_without_scores(tmp_path: Path) -> None:
    spec = changed(repetitions=1)
    sweep = comparison_sweep(spec, ("tol-fl", "ifca"), some_data([4] * 6), ModuleModel(Mean(3)))
    list(sweep)
    found = comparison_of(spec, sweep)
    found.plot().savefig(tmp_path / "x.png")

    assert [row["auroc"]["mean"] for row in found.rows] == [None, None]


def test_the_figure_shows_every_row_and_the_scores_that_differ() -> None:
    found = tolfl.compare(["tol-fl", "fl", "ifca"], changed(fail="server@3"))
    axes = found.plot().axes[0]

    assert [tick.get_text() for tick in axes.get_yticklabels()] == [row["label"] for row in found.rows]
    n_points = {container.get_label(): len(container[0].get_xdata()) for container in axes.containers}
    assert n_points == {
        "mean over devices": len(found.rows),
        "best single model (oracle)": 4,
        "model chosen without labels": 4,
        "all models together": 4,
    }
