"""`tolfl data` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Command
from tolfl.core.spec import RunSpec
from tolfl.datasets.catalog import _load_raw

TINY = ("--set", "comms_ml.windows_per_region=30")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TOLFL_DATA", raising=False)
    _load_raw.cache_clear()


def table(path: Path) -> Path:
    rows = ["site,load,state,fan,when"]
    rows += [
        f"s{i % 4},{i * 7 % 80 * 0.5},{'bad' if i % 10 == 9 else 'normal'},{'on' if i % 3 else 'off'},{i}"
        for i in range(80)
    ]
    path.write_text("\n".join(rows))
    return path


def test_the_list_says_what_is_here_and_how_to_get_the_rest(tolfl: Command) -> None:
    code, out, _ = tolfl("data", "list")
    _, as_json, _ = tolfl("data", "list", "--format", "json")

    assert code == 0
    assert "not downloaded: tolfl data get fashion-mnist" in " ".join(out.split())
    where = {row["name"]: row["where"] for row in json.loads(as_json)}
    assert where["comms-ml"] == "generated"
    assert where["cifar-10"] == ""


def test_a_table_of_ones_own_is_described_and_trained_on(tolfl: Command, tmp_path: Path) -> None:
    path = str(table(tmp_path / "readings.csv"))
    columns = ("--device-column", "site", "--label-column", "state", "--time-column", "when", "--devices", "4")
    _, out, _ = tolfl("data", "describe", path, *columns, "--format", "json", "--out", "pictures")
    described = json.loads(out)
    code, run, _ = tolfl("simulate", "--data", path, *columns, "--rounds", "2", "--format", "json")
    made = [folder.name for folder in (tmp_path / "runs").iterdir()]

    assert made == ["001-tol-fl-readings"]
    assert described["n_features"] == 34  # load, and 33 of fan
    assert described["anomalous"] == ["bad"]
    assert [sum(counts.values()) > 5 for counts in described["per_device"]] == [True] * 4
    assert (tmp_path / "pictures" / "readings.png").is_file()
    assert code == 0
    assert json.loads(run)["auroc"] is not None


def test_the_columns_of_a_table_are_written_for_the_specification_of_a_fleet(tolfl: Command, tmp_path: Path) -> None:
    path = tmp_path / "kiln.csv"
    rows = [f'{20 + row % 7},{row % 5:03d};{row};"{"eco" if row % 2 else "off"}"' for row in range(60)]
    path.write_text("\n".join(["warm [C];serial;mode", *rows]))
    _, out, _ = tolfl("data", "describe", str(path), "--columns", "--time-column", "serial")
    run = RunSpec.from_toml(out + 'what = "detector"\n')

    assert run.learn["columns"][:2] == ["warm [C]", "mode (hash 0)"]
    assert run.learn["schema"] == {"decimal": ",", "roles": {"device": "", "label": "", "time": "serial"}}


def test_generated_samples_are_the_same_again_and_go_straight_in(tolfl: Command, tmp_path: Path) -> None:
    code, out, _ = tolfl("data", "generate", "comms-ml", "--out", "one", *TINY)
    tolfl("data", "generate", "comms-ml", "--out", "two", *TINY)
    tolfl("data", "generate", "comms-ml", "--out", "other", "--seed", "1", *TINY)
    one, two, other = (np.load(tmp_path / name / "samples.npz") for name in ("one", "two", "other"))
    got, run, _ = tolfl(
        "simulate", "--data", "one/samples.npz", "--set", 'dataset.typical=["region-1", "region-2", "region-3"]',
        "--devices", "3", "--clusters", "3", "--rounds", "2", "--format", "json",
    )  # fmt: skip

    assert code == 0
    assert "one/samples.npz: 180 samples of 112 features" in out
    assert np.array_equal(one["X"], two["X"])
    assert not np.array_equal(one["X"], other["X"])
    assert got == 0
    assert json.loads(run)["auroc"] is not None


def test_the_default_data_set_runs_and_is_kept_in_the_cache(tolfl: Command, tmp_path: Path) -> None:
    arguments = ("simulate", *TINY, "--devices", "6", "--clusters", "3", "--rounds", "2", "--format", "json")
    code, first, _ = tolfl(*arguments, "--out", "a")
    _, second, _ = tolfl(*arguments, "--out", "b")
    kept = list((tmp_path / "cache" / "tolfl").iterdir())

    assert code == 0
    assert json.loads(first)["data"] == "comms-ml"
    assert json.loads(first)["model_sha256"] == json.loads(second)["model_sha256"]
    assert [path.suffix for path in kept] == [".npz"]


def test_a_torn_cache_is_made_again(tolfl: Command, tmp_path: Path) -> None:
    tolfl("data", "describe", "comms-ml", *TINY)
    (kept,) = (tmp_path / "cache" / "tolfl").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:100])
    _load_raw.cache_clear()
    code, _, _ = tolfl("data", "describe", "comms-ml", *TINY)

    assert code == 0
    assert len(kept.read_bytes()) == len(whole)
