"""`tolfl fit` as a person types it."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.cli.detectors import BUILDINGS, lines_of_buildings, readings, run, write_lines
from tolfl import simulate
from tolfl.detect import Detector

ROLES = ("--device-column", "building", "--time-column", "time")
PCA = ("--model", "pca")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "typical.csv", lines_of_buildings())
    write_lines(tmp_path / "labelled.csv", lines_of_buildings(is_labelled=True))
    return tmp_path


def test_a_table_becomes_a_detector_of_its_devices(folder: Path) -> None:
    done = run("fit", "typical.csv", *ROLES, *PCA, "--out", "new/model")

    assert (done.code, done.err) == (0, "")
    assert "sent by all devices: " in done.out
    assert "detector: new/model" in done.out
    detector = Detector.load(folder / "new" / "model")
    assert tuple(device.name for device in detector.trainings[0].devices) == BUILDINGS
    assert detector.features.names == ("temp", "humidity", "co2", "fan", "power")
    assert detector.features.units == ("C", "%", "ppm", "", "kW")


def test_what_is_sent_is_what_a_simulation_of_the_same_training_sends() -> None:
    fit = json.loads(run("fit", "typical.csv", *ROLES, "--format", "json").out)
    columns = {"device_column": "building", "time_column": "time", "partition": "column"}
    simulated = simulate(data="typical.csv", learn={"what": "detector"}, dataset=columns, devices=3, clusters=1)
    alone = json.loads(
        run("fit", "typical.csv", *ROLES[2:], "--ignore", "building", "--out", "m", "--format", "json").out
    )

    assert fit["bytes"] == simulated.summary["bytes"]
    assert fit["bytes"] > 0
    assert alone["bytes"] == 0


def test_many_devices_and_losses_fit_on_a_screen() -> None:
    values = readings(1200).tolist()
    rows = [f"site{row % 60},{row},{temp:.4f},{power:.4f}" for row, (temp, *_, power) in enumerate(values)]
    write_lines(Path("sites.csv"), ["site,serial,a,b", *rows])
    fail = ";".join(f"device:{device}@5" for device in range(20))
    done = run("fit", "sites.csv", "--device-column", "site", "--fail", fail, "--out", "m")

    assert (done.code, len(done.out.splitlines()) + len(done.err.splitlines()) <= 25) == (0, True)
    assert "  ... 15 more\n" in done.out
    assert "... 50 more" in done.out


def test_json_is_all_that_standard_output_gets() -> None:
    done = run("fit", "typical.csv", *ROLES, *PCA, "--format", "json")
    found = json.loads(done.out)

    assert (done.code, found["saved"], found["model"]) == (0, "typical.tolfl", "pca")
    assert "auroc" not in found
    assert [device["name"] for device in found["trainings"][0]["devices"]] == list(BUILDINGS)


def test_anomalous_rows_are_not_trained_on_and_say_how_good_it_is() -> None:
    found = json.loads(run("fit", "labelled.csv", *ROLES, *PCA, "--label-column", "state", "--format", "json").out)
    south = next(device for device in found["trainings"][0]["devices"] if device["name"] == "south")

    assert found["auroc"] > 0.99
    # 180 typical rows, of which a fifth of all typical rows (drawn over the fleet) is set aside for the test.
    assert 120 < south["n_trained"] + south["n_held_back"] < 165


def test_a_typical_class_can_be_named() -> None:
    lines = [line.replace("normal", "running") for line in lines_of_buildings(is_labelled=True)]
    write_lines(Path("words.csv"), lines)
    arguments = ("fit", "words.csv", *ROLES, *PCA, "--label-column", "state")

    assert "name the typical ones, as in --typical running" in run(*arguments).err
    assert run(*arguments, "--typical", "running").code == 0


def test_a_device_dies_on_the_way_and_the_rest_carry_on() -> None:
    done = run("fit", "typical.csv", *ROLES, *PCA, "--fail", "server@1", "--format", "json")
    training = json.loads(done.out)["trainings"][0]

    assert [device["is_survivor"] for device in training["devices"]] == [False, True, True]
    assert training["events"][0]["device"] == "north"


def test_settings_of_the_detector_and_of_the_data_go_to_their_places() -> None:
    done = run(
        "fit", "labelled.csv", *ROLES, *PCA, "--label-column", "state", "--set", "held_back=0.5",
        "--set", "dataset.test_share=0.5", "--contamination", "0.1", "--format", "json",
    )  # fmt: skip
    found = json.loads(done.out)

    assert (found["spec"]["held_back"], found["spec"]["contamination"]) == (0.5, 0.1)
    assert sum(device["n_trained"] + device["n_held_back"] for device in found["trainings"][0]["devices"]) == 290


def test_a_false_alarm_budget_may_be_given_per_day() -> None:
    done = run(
        "fit", "typical.csv", *ROLES, *PCA, "--alarms-per-day", "36", "--windows-per-day", "1440", "--format", "json"
    )

    assert json.loads(done.out)["thresholds"]["fleet"]["budget"] == pytest.approx(0.025)


def test_training_goes_on_from_a_file() -> None:
    first = run("fit", "typical.csv", *ROLES, "--out", "first")
    done = run("fit", "typical.csv", *ROLES, "--continue", "first", "--out", "second", "--format", "json")

    assert (first.code, done.code) == (0, 0), done.err
    before, after = (one["n_samples"] for one in json.loads(done.out)["trainings"])
    assert after == 2 * before


def test_training_goes_on_with_few_rows_of_other_columns_in_another_order(folder: Path) -> None:
    """Of 40 rows nobody can tell that a number is a serial one: what is learned from was settled before."""
    rows = [f"{6000 + row},{row % 7}.5,{('eco', 'off')[row % 2]},{row % 5}" for row in range(120)]
    write_lines(folder / "first.csv", ["serial,power,mode,load", *rows])
    moved = [",".join([*row.split(",")[::-1], "7"]) for row in rows[:40]]
    write_lines(folder / "more.csv", ["load,mode,power,serial,note", *moved])
    write_lines(folder / "numbers.csv", ["power,mode,load", *(f"{row % 7}.5,{row % 2},{row % 5}" for row in range(40))])
    first = run("fit", "first.csv", "--out", "first")
    done = run("fit", "more.csv", "--continue", "first", "--out", "second", "--format", "json")
    refused = run("fit", "numbers.csv", "--continue", "first", "--out", "third")

    assert (first.code, done.code) == (0, 0), done.err
    before, after = (one["n_samples"] for one in json.loads(done.out)["trainings"])
    assert after - before == 32  # and a fifth held back
    assert (refused.code, refused.out) == (2, "")
    assert "the new rows have no column of words 'mode'; give the columns that the detector has" in refused.err


def test_a_data_set_goes_by_its_name() -> None:
    done = run("fit", "blobs", "--devices", "4", *PCA, "--out", "blobs", "--format", "json")
    found = json.loads(done.out)

    assert done.code == 0
    assert [device["name"] for device in found["trainings"][0]["devices"]] == ["0", "1", "2", "3"]
    assert found["auroc"] > 0.9


def test_a_tracked_training_ends_with_its_auroc(folder: Path) -> None:
    arguments = ("--label-column", "state", "--track", "tensorboard", "--track-to", "events", "--format", "json")
    done = run("fit", "labelled.csv", *ROLES, *PCA, "--out", "model", *arguments)
    reader = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder / "events" / "model"))
    events.Reload()

    assert events.Scalars("auroc")[-1].value == pytest.approx(json.loads(done.out)["auroc"])


def test_a_missing_value_is_refused_or_filled_on_request(folder: Path) -> None:
    lines = lines_of_buildings()
    cells = lines[5].split(",")
    lines[5] = ",".join([*cells[:3], "", *cells[4:]])
    write_lines(folder / "holes.csv", lines)
    refused = run("fit", "holes.csv", *ROLES, *PCA, "--out", "model")
    filled = run("fit", "holes.csv", *ROLES, *PCA, "--out", "model", "--fill-missing")

    assert (refused.code, refused.out) == (2, "")
    assert "holes.csv: data row 5: 'humidity [%]' is missing; " in refused.err
    assert filled.code == 0
    assert "1 missing values are taken as the usual value of their column" in filled.err


def test_a_missing_word_is_one_missing_value(folder: Path) -> None:
    """A word has 33 features."""
    words = ["eco", "boost", "", "none", "?", *["off"] * 35]
    write_lines(folder / "words.csv", ["power,mode", *(f"{row % 7}.5,{word}" for row, word in enumerate(words))])
    refused = run("fit", "words.csv", "--out", "model")
    filled = run("fit", "words.csv", "--out", "model", "--fill-missing")
    scored = run("score", "model", "words.csv")

    assert "words.csv: data row 3: 'mode' is missing (1 more is); " in refused.err
    assert "2 missing values are taken as the usual value of their column" in filled.err
    assert "2 missing values are taken as the usual value of their column" in scored.err


def test_odd_but_usable_tables_are_used(folder: Path) -> None:
    lines = lines_of_buildings(40)
    # A constant column, and a device with a single row.
    odd = [f"{lines[0]},door", *(f"{line},1" for line in lines[1:]), f"{lines[-1].replace('west', 'east')},1"]
    write_lines(folder / "odd.csv", odd)
    done = run("fit", "odd.csv", *ROLES, *PCA, "--format", "json")
    devices = {one["name"]: one["n_trained"] for one in json.loads(done.out)["trainings"][0]["devices"]}

    assert done.code == 0
    assert devices["east"] == 1
    assert "constant in all training rows, so that any other value is anomalous: door" in done.err


def test_a_folder_with_one_file_per_device_needs_no_column(folder: Path) -> None:
    (folder / "sites").mkdir()
    for place, name in enumerate(BUILDINGS):
        rows = [",".join(map(str, row)) for row in readings(60, place)]
        write_lines(folder / "sites" / f"{name}.csv", ["a,b,c,d,e", *rows])
    done = run("fit", "sites", *PCA, "--out", "model", "--format", "json")

    assert [device["name"] for device in json.loads(done.out)["trainings"][0]["devices"]] == list(BUILDINGS)


def test_arrays_may_all_be_of_the_one_device_that_they_name(folder: Path) -> None:
    np.savez(folder / "one.npz", X=readings(60), device=np.full(60, "mill"))
    done = run("fit", "one.npz", *PCA, "--out", "m")

    assert (done.code, done.err) == (0, "")
    assert Detector.load("m").trainings[0].devices[0].name == "mill"


def test_a_training_is_tracked_as_it_happens(folder: Path) -> None:
    arguments = ("--fail", "server@3", "--rounds", "6", "--track", "tensorboard", "--track-to", "events")
    assert run("fit", "typical.csv", *ROLES, "--model", "autoencoder", "--out", "model", *arguments).code == 0
    reader = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder / "events" / "model"))
    events.Reload()

    assert [point.step for point in events.Scalars("loss")] == list(range(1, 7))
    assert [(point.step, point.value) for point in events.Scalars("failures")] == [(3, 1.0)]
    assert events.Tensors("failure")[0].tensor_proto.string_val[0] == b"north died (train)"
