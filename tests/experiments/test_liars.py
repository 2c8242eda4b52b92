"""The table of attacks and defences, made of rows: what is shown, and what is said of runs that diverged."""

from __future__ import annotations

from typing import Any

import pytest

from tolfl.core.byzantine import parse_liars
from tolfl.experiments.catalogue import EXPERIMENTS, Options, experiments, report_of_stored
from tolfl.experiments.liars import ATTACKS, DEFENCES, report_of

pytestmark = pytest.mark.slow


def row(attack: str, defence: str, seed: int, auroc: float | None) -> dict[str, Any]:
    said = str(DEFENCES[defence])
    lies = ATTACKS[attack]
    return {"attack": attack, "liars": lies, "defence": defence, "set": said, "seed": seed, "auroc": auroc}


ROWS = [
    row("nobody lies", "none", 0, 0.80),
    row("nobody lies", "none", 1, 0.70),
    row("nobody lies", "median", 0, 0.79),
    row("nobody lies", "median", 1, 0.70),
    row("one flips", "none", 0, 0.60),
    row("one flips", "none", 1, None),
    row("one flips", "median", 0, 0.78),
    row("one flips", "median", 1, 0.64),
]


def test_every_attack_is_a_line_and_every_defence_a_column() -> None:
    (table,) = report_of(ROWS).tables

    assert table.columns == ("attack", "none", "median")
    assert table.rows == (
        ("nobody lies", "0.750 ±0.071", "0.745 ±0.064"),
        ("one flips", "0.600 1 lost", "0.710 ±0.099"),
    )


def test_a_verdict_compares_with_honest_devices_of_the_same_seed() -> None:
    found = {verdict.claim.partition(":")[0]: verdict for verdict in report_of(ROWS).verdicts}

    assert {name: verdict.held for name, verdict in found.items()} == {
        "nobody lies, median": True,
        "one flips, none": False,
        "one flips, median": False,
    }
    assert found["nobody lies, median"].evidence.startswith("-0.005")
    assert found["one flips, none"].evidence == "-0.200 against honest devices without a defence; 1 of 2 diverged"
    assert found["one flips, median"].evidence.startswith("-0.040")


def test_where_nobody_is_left_there_is_no_number() -> None:
    (table,) = report_of([ROWS[0], row("one flips", "none", 0, None)]).tables

    assert table.rows[1] == ("one flips", "1 lost")


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attack_can_be_read(attack: str) -> None:
    assert bool(parse_liars(ATTACKS[attack], n_devices=10)) is (attack != "nobody lies")


def test_the_experiment_is_in_the_catalogue() -> None:
    assert "liars" in EXPERIMENTS
    assert report_of_stored("liars", ROWS).name == "liars"
    assert [name for name, _ in experiments("liars", Options([]))] == ["liars"]


@pytest.mark.slow
def test_a_quick_run_has_a_row_per_attack_defence_and_repetition() -> None:
    ((_, experiment),) = experiments("liars", Options([], quick=True))
    for _ in experiment:
        pass

    (report,) = experiment.reports()
    assert len(report.rows) == 2 * len(ATTACKS) * len(DEFENCES)
