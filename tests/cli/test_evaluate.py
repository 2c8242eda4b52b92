"""`tolfl evaluate` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.detectors import lines_of_buildings, readings, run, small_detector, write_lines
from tolfl.core.metrics import auroc

ROLES = ("--label-column", "state", "--device-column", "building", "--time-column", "time")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "truth.csv", lines_of_buildings(is_labelled=True, seed=7))
    return small_detector().save(tmp_path / "model")


def test_verdicts_are_compared_with_the_truth(model: Path) -> None:
    done = run("evaluate", model, "truth.csv", *ROLES, "--format", "json")
    found = json.loads(done.out)

    assert (done.code, done.err) == (0, "")
    assert (found["fleet"]["n_rows"], found["fleet"]["n_anomalous"]) == (600, 20)
    assert found["fleet"]["auroc"] > 0.99
    assert found["fleet"]["detection_rate"] == 1.0
    assert found["fleet"]["false_alarm_rate"] < 0.05
    assert found["detections"] == {"n_events": 1, "n_detected": 1, "median_s": 0.0, "longest_s": 0.0}
    assert found["per_device"]["north"]["auroc"] is None  # nothing happened there
    assert found["detections_per_device"]["north"]["n_events"] == 0


def test_standard_input_is_a_table(model: Path) -> None:
    from_file, from_pipe = (
        run("evaluate", model, source, *ROLES, "--format", "json", stdin=Path("truth.csv").read_bytes())
        for source in ("truth.csv", "-")
    )

    assert (from_pipe.code, from_pipe.err) == (0, "")
    assert json.loads(from_pipe.out) == {**json.loads(from_file.out), "data": "-"}


def test_a_table_and_pictures_for_people(model: Path, tmp_path: Path) -> None:
    done = run("evaluate", model, "truth.csv", *ROLES, "--out", "pictures")

    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()[-5:]] == ["fleet", "north", "south", "west", "folder:"]
    for name in ("roc", "histogram", "timeline"):
        assert (tmp_path / "pictures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "pictures" / "evaluation.json").read_text())["fleet"]["n_rows"] == 600


def test_neither_time_nor_devices_are_needed(model: Path) -> None:
    found = json.loads(
        run("evaluate", model, "truth.csv", "--label-column", "state", "--out", "p", "--format", "json").out
    )

    assert found["detections"] is None
    assert found["per_device"] == {}


def test_arrays_have_usual_names(model: Path) -> None:
    rows, truth = readings(50, 9), np.repeat([0, 1], 25)
    rows[25:, 4] += 3
    np.savez("truth.npz", X=rows, y=truth)
    found = json.loads(run("evaluate", model, "truth.npz", "--format", "json").out)

    assert found["fleet"]["auroc"] == pytest.approx(auroc([*[0] * 25, *[1] * 25], truth))
