"""`tolfl demo`, small: the real network and its simulated twin; and what it says where no network can be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.net.fleet_processes import nothing_is_left_of
from tests.runs.test_run_report import check_self_contained
from tolfl.cli.demo import NoNetworkError, check_memory, largest_difference
from tolfl.core.records import FailureHappened
from tolfl.runs.run_reader import read_records

SMALL = ["--rounds", "6", "--devices", "4", "--data", "blobs"]
FILES = {"server-lost.png", "report.html", "tol-fl-clean", "tol-fl-elect", "tol-fl-drop", "fl-freeze", "fl-isolate"}


def check_story(out: str, folder: Path) -> None:
    for line in ("Tol-FL, a member takes over", "FL, training stops", "3 models, one per device", "mean-vector"):
        assert line in out
    assert {path.name for path in folder.iterdir()} >= FILES
    assert (folder / "server-lost.png").stat().st_size > 10_000
    check_self_contained((folder / "report.html").read_text())


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_real_processes_come_to_the_simulated_model_after_a_kill(tolfl: Command, tmp_path: Path) -> None:
    code, out, said = tolfl("demo", *SMALL, "--out", "d")

    assert (code, said) == (0, "")
    check_story(out, tmp_path / "d")
    assert "Tol-FL, a member takes over (real processes)" in out
    assert "Its model is the simulated one" in out
    assert "replay:  tolfl dashboard d/real" in out
    assert largest_difference(tmp_path / "d" / "real", tmp_path / "d" / "tol-fl-elect") <= 1e-5
    deaths = [line for line in read_records(tmp_path / "d" / "real") if isinstance(line, FailureHappened)]
    assert {(line.device, line.round) for line in deaths} == {(0, 3)}
    assert "\x1b" not in out
    nothing_is_left_of(tmp_path / "d" / "real")


def test_all_of_it_can_be_simulated_and_each_demo_gets_a_folder(tolfl: Command, tmp_path: Path) -> None:
    first = tolfl("demo", *SMALL, "--simulated")
    second = tolfl("demo", *SMALL, "--simulated")

    assert (first[0], second[0]) == (0, 0)
    check_story(first[1], tmp_path / "runs" / "demo")
    check_story(second[1], tmp_path / "runs" / "demo-2")
    assert "real processes" not in first[1]
    code, _, said = tolfl("demo", *SMALL, "--simulated", "--out", "runs/demo")
    assert (code, said) == (1, "tolfl: run directory runs/demo: is not empty; choose another --out\n")


@pytest.mark.parametrize(
    ("program", "why"),
    [("/nowhere/python", "4 processes cannot be started"), ("/bin/false", "failed: it said nothing")],
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
    assert said.endswith("; the same story in the simulator\n")
    check_story(out, tmp_path / "d")


def test_short_memory_is_found_before_anything_starts_as_doctor_counts_it() -> None:
    with pytest.raises(NoNetworkError, match=r"2\.0 GiB of memory are free, and 10 processes want 3\.6 GiB"):
        check_memory(10, 2 * 2**30)
    check_memory(4, 2 * 2**30)
    check_memory(10, None)


def test_help_has_examples(tolfl: Command) -> None:
    code, out, _ = tolfl("demo", "--help")

    assert code == 0
    assert "Example: tolfl demo --simulated" in out
    assert "--devices" not in out
