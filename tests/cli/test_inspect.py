"""`tolfl inspect` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.detectors import run, small_detector


def test_a_detector_says_what_it_is(tmp_path: Path) -> None:
    detector = small_detector(fail="device:2@1")
    path = detector.save(tmp_path / "model")
    done = run("inspect", path)

    assert (done.code, done.err) == (0, "")
    assert f"{detector.model.name}: 5 features;" in done.out
    assert "temp [C], humidity [%], co2 [ppm], fan, power [kW]" in done.out
    assert "round 1: west lost; last heard of in scaling 0" in done.out
    assert "lost during training" in done.out
    assert "of typical rows expected to raise an alarm; at most 1.00% guaranteed, on average" in done.out


def test_a_column_of_words_is_one_of_the_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(
        "a [C],mode\n" + "".join(f"{row % 7}.5,{'eco' if row % 3 else 'off'}\n" for row in range(40))
    )
    assert run("fit", "t.csv", "--out", "m").code == 0

    assert "features: a [C], mode (words)\n" in run("inspect", "m").out


def test_who_never_contributed_is_not_counted(tmp_path: Path) -> None:
    detector = small_detector(fail="device:2@0")
    done = run("inspect", detector.save(tmp_path / "model"))

    (training,) = detector.trainings
    assert f" of {len(training.devices) - 1} device(s), " in done.out
    assert "round 0: west never heard of" in done.out


def test_the_same_as_json(tmp_path: Path) -> None:
    detector = small_detector()
    found = json.loads(run("inspect", detector.save(tmp_path / "model"), "--format", "json").out)

    assert found["thresholds"]["fleet"]["value"] == detector.thresholds.threshold
    assert found["thresholds"]["fleet"]["expected_rate"] == detector.thresholds.fleet.expected_rate
    assert found["features"][2] == {"name": "co2", "unit": "ppm"}
    assert "levels" not in found["thresholds"]["fleet"]
