"""`tolfl export` as a person types it, and its scorer on a machine that has nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.detectors import lines_of_buildings, run, small_detector, write_lines
from tolfl.detect import Detector, small_scorer

ROLES = ("--device-column", "building")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "truth.csv", lines_of_buildings(is_labelled=True, seed=7))
    return small_detector().save(tmp_path / "model")


def test_a_graph_and_its_scorer_are_written(model: Path, tmp_path: Path) -> None:
    done = run("export", model, "--to", "onnx", "--out", "device/m.onnx", "--format", "json")
    found = json.loads(done.out)

    assert (done.code, done.err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "device").iterdir()) == ["m.onnx", "score_onnx.py"]
    assert found["largest_relative_difference"] < 1e-5
    assert found["bytes"] == (tmp_path / "device" / "m.onnx").stat().st_size


def test_what_eight_bits_cost_is_said(model: Path) -> None:
    arguments = ("export", model, "--int8", "--data", "truth.csv", "--label-column", "state")
    found = json.loads(run(*arguments, "--format", "json").out)

    assert found["n_rows"] == 600
    assert found["auroc_cost"] == found["auroc"] - found["auroc_exported"]
    assert abs(found["auroc_cost"]) < 0.05
    assert "it costs " in run(*arguments).out
    assert "what 8 bits cost is not known" in run("export", model, "--int8").err


def test_the_scorer_needs_numpy_and_onnxruntime_and_nothing_else(model: Path, tmp_path: Path) -> None:
    assert run("export", model, "--out", "device/m.onnx").code == 0
    # A place with these two packages alone; -S leaves out everything that is installed.
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in ("numpy", "onnxruntime"):
        found = find_spec(name)
        assert found is not None
        home = Path(str(found.origin)).parent
        for place in (home, home.with_name(f"{name}.libs")):
            if place.exists():
                (packages / place.name).symlink_to(place)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(packages)}
    command = [sys.executable, "-S", "-s", "device/score_onnx.py", "device/m.onnx", "-", *ROLES]
    done = subprocess.run(
        command, input=(tmp_path / "truth.csv").read_text(), env=environment, cwd=tmp_path, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [json.loads(line) for line in run("score", model, "truth.csv", *ROLES, "--format", "jsonl").out.splitlines()]
    unknown = subprocess.run(
        [sys.executable, "-S", "-c", "import tolfl"], env=environment, cwd=tmp_path, capture_output=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert [line["score"] for line in lines] == pytest.approx([line["score"] for line in ours], rel=1e-5)
    assert [line["verdict"] for line in lines] == [line["verdict"] for line in ours]
    assert unknown.returncode != 0


def test_the_scorer_loses_no_row_for_a_bad_one(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", model, "--out", "m.onnx").code == 0
    good = '{"temp [C]": 20, "humidity": 55, "co2": "600", "fan": 0.3, "power": 2.9}'
    write_lines(tmp_path / "rows.jsonl", [good, "nonsense", '{"temp": 20}', good.replace("20", "NaN"), good])
    code = small_scorer.main(["m.onnx", "rows.jsonl"])
    output = capsys.readouterr()
    lines = [json.loads(line) for line in output.out.splitlines()]

    assert code == 1
    assert [line["verdict"] for line in lines] == ["typical", *["not scored"] * 3, "typical"]
    assert output.err.splitlines() == ["row 2: no JSON object", "row 3: 'humidity' is missing", "row 4: 'temp' is nan"]


def test_the_scorer_refuses_what_is_no_detector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(b"hello")
    code = small_scorer.main([str(tmp_path / "m.onnx"), "-"])
    output = capsys.readouterr()

    assert (code, output.out) == (1, "")
    assert "cannot be read by onnxruntime" in output.err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--to", "paper"), 2, "unknown kind of export 'paper'"),
        (("--label-column", "state"), 2, "give both"),
        (("--data", "nowhere.csv"), 1, "no such file"),
        (("--out", "model/x.onnx"), 1, "cannot be written"),
    ],
    ids=["kind", "label", "data", "out"],
)
def test_a_mistake_gets_one_sentence(model: Path, arguments: tuple[str, ...], code: int, sentence: str) -> None:
    done = run("export", model, *arguments)

    assert (done.code, done.out) == (code, "")
    assert sentence in done.err


def test_the_detector_itself_is_not_touched(model: Path) -> None:
    before = model.read_bytes()
    run("export", model, "--int8")

    assert model.read_bytes() == before
    assert Detector.load(model).features.n == 5


def test_help_has_examples() -> None:
    assert "Example: tolfl export model" in run("export", "--help").out
