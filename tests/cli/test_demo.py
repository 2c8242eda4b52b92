"""`tolfl demo`, small: the real network and its simulated twin; and what it says where no network can be had."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.net.fleet_processes import nothing_is_left_of
from tests.runs.test_run_report import check_self_contained
from tolfl.cli.demo import NoNetworkError, check_memory, detector_bytes
from tolfl.core.records import FailureHappened
from tolfl.runs.run_reader import read_records

README = Path(__file__).resolve().parents[2] / "README.md"
SMALL = ["--devices", "4", "--data", "blobs"]
FILES = {"report.html", "simulated", "fl", "alone", "paper", "paper-fl", "central"}


def check_output(out: str, folder: Path) -> None:
    for line in ("FL, training stops", "no detector: stopped before thresholds", "3 detectors, one per device"):
        assert line in out
    assert "took over: device 1 for 0 in" in " ".join(out.split())
    assert "Now each of the 3 survivors scores new rows" in out
    assert re.search(r"^  device \d: score \d+, limit \d+; ", out, re.MULTILINE)
    assert "your table: tolfl up --learn detector" in out
    assert {path.name for path in folder.iterdir()} >= FILES
    check_self_contained((folder / "report.html").read_text())


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_real_processes_leave_the_simulated_detector_after_a_kill(tolfl: Command, tmp_path: Path) -> None:
    code, out, said = tolfl("demo", *SMALL, "--out", "d")

    assert code == 0, said
    assert "device 1 takes over cluster 0 from device 0\n" in said
    assert "tolfl: " not in said
    check_output(out, tmp_path / "d")
    assert "Tol-FL, a member takes over (real processes)" in out
    assert "it is the one that the simulator predicted, bit by bit" in out
    assert "replay:    tolfl dashboard d/real" in out
    assert len(detector_bytes(tmp_path / "d" / "real") | detector_bytes(tmp_path / "d" / "simulated")) == 1
    assert len(list((tmp_path / "d" / "real").glob("devices/*/detector.tolfl"))) == 3
    deaths = [line for line in read_records(tmp_path / "d" / "real") if isinstance(line, FailureHappened)]
    assert {(line.device, line.round) for line in deaths} == {(0, 11)}
    assert "\x1b" not in out
    nothing_is_left_of(tmp_path / "d" / "real")


def test_all_of_it_can_be_simulated_and_each_demo_gets_a_folder(tolfl: Command, tmp_path: Path) -> None:
    first = tolfl("demo", *SMALL, "--simulated")
    second = tolfl("demo", *SMALL, "--simulated")

    assert (first[0], second[0]) == (0, 0)
    check_output(first[1], tmp_path / "runs" / "001-demo-blobs")
    check_output(second[1], tmp_path / "runs" / "002-demo-blobs")
    assert "real processes" not in first[1]
    code, _, said = tolfl("demo", *SMALL, "--simulated", "--out", "runs/001-demo-blobs")
    assert (code, said) == (1, "tolfl: run directory runs/001-demo-blobs: is not empty; choose another --out\n")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_table_of_the_readme_is_that_of_the_demo(tolfl: Command) -> None:
    code, out, _ = tolfl("demo", "--simulated", "--out", "d")
    shown = [
        line.split("|")[2].strip() for line in README.read_text().splitlines() if re.match(r"\|.*\| [-0].* \|", line)
    ]
    rows = out[out.index("AUROC") :].split("\n\n")[0].splitlines()[1:]

    assert code == 0
    assert shown == [re.search(r" {2,}(0\.\d{3}|-) ", row)[1] for row in rows]  # type: ignore[index]
    assert len(shown) == 6


@pytest.mark.parametrize(
    ("program", "why"),
    [("/nowhere/python", "No such file or directory"), ("/bin/false", "failed with exit code 1")],
    ids=["no-process", "dies-at-once"],
)
@pytest.mark.slow
def test_without_a_network_it_says_why_and_simulates(
    program: str, why: str, tolfl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process limit does not hold for root, who may run the tests: a program that cannot start stands in for it.
    monkeypatch.setattr(sys, "executable", program)
    code, out, said = tolfl("demo", *SMALL, "--out", "d")

    assert code == 0
    assert "tolfl: no real network here: " in said
    assert why in said
    assert said.endswith("; the same in the simulator\n")
    check_output(out, tmp_path / "d")


def test_short_memory_is_found_before_anything_starts_as_doctor_counts_it() -> None:
    with pytest.raises(NoNetworkError, match=r"0\.5 GiB of memory are free, and 10 processes want 1\.0 GiB"):
        check_memory(10, 2**29)
    check_memory(4, 2**29)
    check_memory(10, None)
