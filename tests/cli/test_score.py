"""`tolfl score` as a person types it, and as a pipe feeds it."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

from tests.cli.detectors import lines_of_buildings, readings, run, small_detector, write_lines
from tolfl.detect import Detector

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("--device-column", "building", "--time-column", "time")


@pytest.fixture(scope="module")
def detector() -> Detector:
    return small_detector()


@pytest.fixture
def model(detector: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "new.csv", lines_of_buildings(is_labelled=True, seed=7))
    return detector.save(tmp_path / "model")


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_rows_get_score_p_value_verdict_and_features(model: Path, detector: Detector) -> None:
    done = run("score", model, "new.csv", *ROLES, "--format", "jsonl")
    lines = json_lines(done.out)
    table = pa_csv.read_csv("new.csv")
    rows = np.column_stack([table[name] for name in table.column_names[2:7]])

    assert done.code == 0
    assert "columns that the detector does not use: state" in done.err
    assert [line["row"] for line in lines] == list(range(1, 601))
    devices = table["building"].to_pylist()
    rows = rows.astype(np.float32)
    assert [line["score"] for line in lines] == detector.anomaly_score(rows, devices).tolist()
    assert [line["p_value"] for line in lines] == detector.p_values(rows, devices).tolist()
    is_alarm = detector.verdicts(rows, table["building"].to_pylist())
    assert [line["verdict"] == "alarm" for line in lines] == is_alarm.tolist()
    top = detector.explain(rows[304]).features[:3]  # the motor of the south
    assert [one["name"] for one in lines[304]["features"]] == [one.name for one in top]  # type: ignore[attr-defined]
    assert lines[304]["features"][0]["name"] == "power"  # type: ignore[index]
    assert (lines[304]["device"], lines[304]["time"]) == ("south", "2026-01-01 01:41:00")


def test_all_formats_say_the_same(model: Path) -> None:
    arguments = ("score", model, "new.csv", *ROLES)
    lines = json_lines(run(*arguments, "--format", "jsonl").out)
    as_csv = list(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv").out)))
    as_array = json.loads(run(*arguments, "--format", "json").out)
    table = run(*arguments).out.splitlines()

    assert as_array == lines
    assert [float(row["score"]) for row in as_csv] == [line["score"] for line in lines]
    assert table[0].split()[:6] == ["row", "time", "device", "score", "p_value", "verdict"]
    assert len(table) == len(lines) + 2
    assert table[-1].startswith("600 row(s), ")


def test_only_alarms_are_shown_on_request(model: Path) -> None:
    everything = json_lines(run("score", model, "new.csv", *ROLES, "--format", "jsonl").out)
    alarms = json_lines(run("score", model, "new.csv", *ROLES, "--alert-only", "--format", "jsonl").out)

    assert len(alarms) >= 20
    assert alarms == [line for line in everything if line["verdict"] == "alarm"]


def test_alarms_close_in_time_are_one(model: Path) -> None:
    groups = json_lines(run("score", model, "new.csv", *ROLES, "--group", "120", "--format", "jsonl").out)
    motor = max(groups, key=lambda group: group["alarms"])  # type: ignore[arg-type, return-value]

    assert (motor["device"], motor["alarms"]) == ("south", 20)
    assert (motor["from"], motor["to"]) == ("2026-01-01 01:40:00", "2026-01-01 01:59:00")


def test_columns_go_by_their_names_whatever_the_kind_of_file(model: Path, tmp_path: Path) -> None:
    table = pa_csv.read_csv("new.csv")
    expected = run("score", model, "new.csv", "--format", "jsonl").out
    turned = table.select(table.column_names[::-1])
    pa_parquet.write_table(turned, "new.parquet")
    rows = [json.dumps({key: str(value) if key == "time" else value for key, value in row.items()})
            for row in turned.to_pylist()]  # fmt: skip
    write_lines(tmp_path / "new.jsonl", rows)
    (tmp_path / "semicolon.csv").write_text(
        (tmp_path / "new.csv").read_text().replace(",", ";").replace(".", ",").replace("[C]", "")
    )
    samples = np.column_stack([table[name] for name in table.column_names[2:7]])
    np.savez("new.npz", X=samples)

    for name in ("new.parquet", "new.jsonl", "semicolon.csv"):
        assert run("score", model, name, "--format", "jsonl").out == expected, name
    assert run("score", model, "-", "--format", "jsonl", stdin=(tmp_path / "new.csv").read_bytes()).out == expected
    scores = [line["score"] for line in json_lines(expected)]
    arrays = [line["score"] for line in json_lines(run("score", model, "new.npz", "--format", "jsonl").out)]
    assert arrays == scores


def test_a_bad_row_gets_a_sentence_and_all_others_a_score(model: Path, tmp_path: Path) -> None:
    lines = lines_of_buildings(4)
    cells = [line.split(",") for line in lines]
    cells[2][3] = "wet"
    cells[4][5] = ""
    cells[5] = cells[5][:3]
    cells[6][1] = "east"
    cells[7][2] = "1e60"
    cells[8][0] = "noon"
    text = "\n".join(",".join(line) for line in cells)
    (tmp_path / "bad.csv").write_text(text)
    from_file = run("score", model, "bad.csv", *ROLES, "--format", "jsonl")
    from_pipe = run("score", model, "--follow", *ROLES, "--format", "jsonl", stdin=text)

    assert from_file.code == from_pipe.code == 1
    assert from_file.out == from_pipe.out
    assert [line["row"] for line in json_lines(from_file.out) if line["score"] is None] == [2, 4, 5, 7, 8]
    assert "row 2: 'wet' in column 'humidity' is no number" in from_file.err
    assert "row 4: 'fan' is missing" in from_file.err
    assert "row 5: 3 values, the header has 7" in from_file.err
    assert "row 7: the value in column 'temp' is 1e+60, too large for single precision" in from_file.err
    assert "row 8: 'noon' in column 'time' is no time" in from_file.err
    assert "the fleet's is used: east" in from_file.err


def test_a_missing_value_can_be_taken_as_the_usual_one(model: Path, detector: Detector) -> None:
    done = run("score", model, "-", "--fill-missing", "--format", "jsonl", stdin='{"temp": 20.5, "co2": 612}\n')
    row = detector.model.fill.copy()
    row[[0, 2]] = 20.5, 612

    assert done.code == 0
    assert "3 missing values are taken as the usual value of their column" in done.err
    assert json.loads(done.out)["score"] == pytest.approx(detector.anomaly_score([row])[0], rel=1e-4)


def test_words_become_what_they_were_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{value:.3f},{'on' if value > 20 else 'off'}" for value in readings(200)[:, 0]]
    write_lines(tmp_path / "words.csv", ["temp,heating", *rows])
    assert run("fit", "words.csv", "--model", "pca", "--out", "m", "--set", "n_components=1").code == 0
    write_lines(tmp_path / "few.csv", ["heating,temp", "on,22", "broken,22"])
    done = run("score", "m", "few.csv", "--format", "jsonl")
    usual, odd = json_lines(done.out)

    assert Detector.load("m").features.n == 1 + 33
    assert float(str(odd["score"])) > float(str(usual["score"]))


@pytest.mark.parametrize("shown", ["table", "csv", "jsonl", "json"])
def test_an_empty_stream_is_no_error(model: Path, shown: str) -> None:
    done = run("score", model, "--follow", "--format", shown, stdin="")

    assert done.code == 0
    assert done.err == "tolfl: there was no row to score\n"
    assert done.out == {"table": "0 row(s), 0 alarm(s)\n", "json": "[]\n"}.get(shown, "")


@pytest.mark.slow
def test_a_file_larger_than_the_memory_it_may_take_is_streamed(model: Path, tmp_path: Path) -> None:
    lines = lines_of_buildings(1000)
    odd = lines[1].rpartition(",")[0] + ",1000"
    block = "\n".join([*lines[1:], odd]) + "\n"
    with (tmp_path / "large.csv").open("w") as file:
        file.write(lines[0] + "\n")
        file.writelines([block] * 200)
    # In a process of its own, whose peak is known; the first, small file brings everything that is loaded once.
    program = (
        "import resource, sys\n"
        "from tests.cli.detectors import run\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "roles = ('--device-column', 'building', '--alert-only', '--top', '0', '--format', 'csv')\n"
        "run('score', sys.argv[1], 'new.csv', *roles); before = peak()\n"
        "done = run('score', sys.argv[1], 'large.csv', *roles)\n"
        "print(done.code, len(done.out.splitlines()), peak() - before)"
    )
    command = [sys.executable, "-c", program, str(model)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=110, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    code, n_lines, grown = (int(word) for word in done.stdout.split())

    budget = 24 * 2**20
    assert (tmp_path / "large.csv").stat().st_size > 1.5 * budget
    assert code == 0
    assert n_lines > 100
    assert grown < budget


@pytest.mark.processes
def test_a_pipe_gets_its_answers_while_it_is_open_and_ctrl_c_ends_it(model: Path) -> None:
    # A shell lets what runs in the background ignore Ctrl-C.
    program = (
        "import signal, sys\nfrom tests.cli.detectors import app\nsys.argv[0] = 'tolfl'\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "app()"
    )
    command = [sys.executable, "-c", program, "score", str(model), "--follow", "--format", "jsonl"]
    lines = lines_of_buildings(2)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{lines[0]}\n{lines[1]}\n")
    process.stdin.flush()
    first = json.loads(process.stdout.readline())  # it answers although more may come
    process.stdin.write(f"{lines[2]}\n")
    process.stdin.flush()
    second = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)  # while the pipe is open: its end would end the command, too
    process.communicate(timeout=60)

    assert (first["row"], second["row"]) == (1, 2)
    assert process.returncode != 0
