"""What every experiment promises: rows with their own specification, the same report from stored rows, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.experiments.catalogue import EXPERIMENTS, RunningExperiment, stored_reports
from tolfl.experiments.experiment import Options
from tolfl.experiments.results import ExperimentReport, check_overwriting, read_results, write_results

QUICK_ONES = ("communication", "samples", "server-figure")
ALL = [pytest.param(name, marks=[] if name in QUICK_ONES else pytest.mark.slow) for name in EXPERIMENTS]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(scope="module")
def store_of_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache that holds one experiment only."""
    store = tmp_path_factory.mktemp("cells-of-one")
    computed("communication", store)
    return store


def computed(name: str, store: Path) -> RunningExperiment:
    experiment = EXPERIMENTS[name]
    data = [one for one in experiment.data if one in ("comms-ml", "blobs")]
    running = RunningExperiment(experiment, Options(data, quick=True, cache=store))
    for _ in running:
        pass
    return running


def written(running: RunningExperiment, folder: Path) -> ExperimentReport:
    write_results(folder, running.report, running.origin)
    return running.report


@pytest.mark.parametrize("name", ALL)
def test_every_row_names_its_specification_and_stored_rows_give_the_same_report(
    name: str, store: Path, tmp_path: Path
) -> None:
    running = computed(name, store)
    report = written(running, tmp_path)

    assert {row["job"] for row in running.rows} == set(running.specs)
    assert str(tmp_path) not in (tmp_path / f"{name}.json").read_text()
    again, origin = stored_reports(tmp_path)[name]
    assert again.to_markdown() == report.to_markdown()
    assert origin["is_quick"] is True
    for figure in report.figures:
        assert (tmp_path / f"{figure}.png").stat().st_size > 5_000
    from_cache = RunningExperiment(running.experiment, running.options)
    assert list(from_cache) == []  # all of it is on disk
    assert from_cache.rows == running.rows


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("summary.json", '"messages"', '"parcels"', r"another version of tolfl \(KeyError\('messages'\)\); delete it"),
        ("summary.json", "{", "", "cannot be read .* delete it to compute it again"),
        ("summary.json", '"bytes": ', '"bytes": "many", "n": ', "is damaged, or of another version of tolfl"),
        ("summary.json", '"scheme"', '"repetitions": [1, 2], "scheme"', "has 2 of 1 repetitions; delete it"),
        ("summary.json", '"scheme"', '"repetitions": 3, "scheme"', "cannot be read .* delete it"),
        ("spec.toml", "rounds =", "epochs =", "cannot be read .*unknown key 'epochs'.* delete it"),
        ("records.jsonl", '"kind":"run_started"', '"kind":"begun"', "records.jsonl.*begun"),
    ],
)
def test_a_cache_of_another_version_is_one_sentence_and_stays(
    name: str, old: str, new: str, words: str, store_of_one: Path
) -> None:
    (folder,) = store_of_one.glob("blobs-sbt-*")
    before = (folder / name).read_text()
    assert old in before
    (folder / name).write_text(before.replace(old, new, 1))
    try:
        with pytest.raises(TolFLError, match=words) as raised:
            computed("communication", store_of_one)
        assert "\n" not in str(raised.value)
        assert (folder / name).read_text() == before.replace(old, new, 1)
    finally:
        (folder / name).write_text(before)


@pytest.mark.parametrize("n_lines", [0, 1, 5])
def test_records_that_were_cut_off_are_named_and_never_counted(n_lines: int, store_of_one: Path) -> None:
    (path,) = store_of_one.glob("blobs-sbt-*/records.jsonl")
    before = path.read_text()
    path.write_text("".join(before.splitlines(keepends=True)[:n_lines]))
    try:
        with pytest.raises(TolFLError, match="lacks the end of its run; delete it to compute it again"):
            computed("communication", store_of_one)
    finally:
        path.write_text(before)


def test_a_mistake_in_an_experiments_own_rows_is_not_blamed_on_the_cache(tmp_path: Path) -> None:
    broken = replace(
        EXPERIMENTS["communication"], rows=lambda job, repetitions: [dict[str, dict[str, object]]()["nothing"]]
    )
    with pytest.raises(KeyError, match="nothing"):
        list(RunningExperiment(broken, Options(broken.data, cache=tmp_path)))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_data_sets_that_are_asked_for_are_run_quick_or_not(name: str) -> None:
    experiment = EXPERIMENTS[name]
    for data in experiment.data:
        for quick in (False, True):
            jobs = experiment.jobs(Options([data], quick), [])
            assert {job.spec.data for job in jobs} == {data}


@pytest.fixture(scope="module")
def stored(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    written(computed("communication", store), folder)
    return folder


def edited(stored: Path, folder: Path, old: str, new: str) -> Path:
    text = (stored / "communication.json").read_text()
    assert old in text
    (folder / "communication.json").write_text(text.replace(old, new, 1))
    return folder


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"rows": 5', '"rows": ', "holds no results that can be read"),
        ('"machine"', '"motor"', "holds no results that can be read .'machine'."),
        ('"schema": 2', '"schema": 1', "has schema 1; this version reads 2, so compute it again"),
        ('"rounds":5', '"rounds":6', "was edited by hand: job .* has not the specification it names"),
        ('"job":"', '"job":"0', "was edited by hand: job 0.* has not the specification it names"),
        ('"scheme":"fl","data"', '"schema":"fl","data"', "edited by hand, or is of another version"),
        ('"n_devices":10,', "", "was edited by hand: its rows are not those that were computed"),
        ('"bytes":3576960.0', '"bytes":3576961.0', "was edited by hand: its rows are not those that were computed"),
    ],
    ids=["torn", "origin", "schema", "specification", "job", "unknown-field", "column", "number"],
)
def test_a_results_file_that_was_edited_is_named_and_left_as_it_is(
    stored: Path, tmp_path: Path, old: str, new: str, words: str
) -> None:
    if old == '"rows": 5':
        (tmp_path / "communication.json").write_bytes((stored / "communication.json").read_bytes()[:-9])
    else:
        edited(stored, tmp_path, old, new)
    before = (tmp_path / "communication.json").read_bytes()
    with pytest.raises(RunDirectoryError, match=words) as raised:
        stored_reports(tmp_path)

    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["communication.json"]
    assert (tmp_path / "communication.json").read_bytes() == before


def test_quick_results_never_overwrite_full_ones(stored: Path, tmp_path: Path) -> None:
    check_overwriting(stored, "communication", is_quick=True)  # quick ones are
    edited(stored, tmp_path, '"is_quick": true', '"is_quick": false')
    report, origin = stored_reports(stored)["communication"]

    for attempt in (
        lambda: check_overwriting(tmp_path, "communication", is_quick=True),
        lambda: write_results(tmp_path, report, origin),
    ):
        with pytest.raises(RunDirectoryError, match="full results, which --quick does not overwrite"):
            attempt()
    check_overwriting(tmp_path, "communication", is_quick=False)
    assert json.loads((tmp_path / "communication.json").read_text())["is_quick"] is False


def test_results_say_what_computes_them(stored: Path) -> None:
    content = read_results(stored / "communication.json")
    assert content["specs"][content["rows"][1]["job"]] == {
        **{"scheme": "sbt", "data": "blobs", "clusters": 10, "rounds": 5},
        "blobs": {"samples_per_device": 4, "n_features": 112, "n_test": 4, "n_validation": 0},
        "ifca": {"warm_rounds": 1, "trial_rounds": 2},
    }
