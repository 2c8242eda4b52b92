"""Messages and bytes of a round: counted against formulas and numbers by hand, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.sim.fleets import FULL_BATCH, Mean, some_data
from tolfl.core.spec import RunSpec
from tolfl.experiments.paper.communication import Communication, report_of, row_of
from tolfl.experiments.paper.communication_report import ACCOUNTINGS, fit_of, formulas, label_of, paper_mb
from tolfl.experiments.report import ExperimentReport, Row
from tolfl.learners.torch_module import ModuleModel
from tolfl.sim.simulation import run

BY_HAND = {
    "FL": (18, 10, 10, 18, 20),
    "SBT": (18, 10, 19, 9, 9),
    "Tol-FL (k = 3)": (18, 10, 12, 16, 17),
    "Tol-FL (k = 5)": (18, 10, 14, 14, 15),
}


@pytest.fixture(scope="module")
def report() -> ExperimentReport:
    experiment = Communication(quick=True)
    steps = list(experiment)

    assert [step.done for step in steps] == list(range(1, steps[0].total + 1))
    return experiment.report


def averaging(report: ExperimentReport) -> list[Row]:
    return [row for row in report.rows if label_of(row) in BY_HAND]


def with_messages(rows: Sequence[Row], label: str, accounting: str, count: float) -> list[dict[str, Any]]:
    copy: list[dict[str, Any]] = json.loads(json.dumps(rows))
    next(row for row in copy if label_of(row) == label)["messages"][accounting] = count
    return copy


def words(report: ExperimentReport) -> dict[str, str]:
    return {verdict.claim.split(" (")[0]: verdict.word for verdict in report.verdicts}


def test_ten_devices_send_what_was_worked_out_by_hand(report: ExperimentReport) -> None:
    found = {label_of(row): tuple(row["messages"][name] for name in ACCOUNTINGS) for row in averaging(report)}

    assert found == BY_HAND


@given(data=st.data(), n_devices=st.integers(2, 9))
@examples(max_examples=25)
def test_counted_messages_are_those_of_the_formulas(data: st.DataObject, n_devices: int) -> None:
    scheme = data.draw(st.sampled_from(["fl", "sbt", "tol-fl"]))
    asked = data.draw(st.integers(1, n_devices))
    k = {"fl": 1, "sbt": n_devices}.get(scheme, asked)
    spec = RunSpec(scheme=scheme, devices=n_devices, clusters=asked, rounds=2, train=FULL_BATCH)
    row = row_of(run(spec, some_data([2] * n_devices, 1), ModuleModel(Mean()))[0], k)

    assert row["messages"] == formulas(scheme, n_devices, k)
    assert row["messages"]["unicast"] == 2 * (n_devices - 1)
    assert row["bytes"] == row["messages"]["unicast"] * row["model_bytes"]


def test_ifca_moves_all_its_models_and_at_first_those_of_every_restart(report: ExperimentReport) -> None:
    moved = {row["scheme"]: (row["models_in_first_round"], row["models_in_last_round"]) for row in report.rows}

    # Nine members: one model up and five down; with three restarts 3 up and 15 down.
    assert moved["ifca"] == (9 * 3 + 9 * 15, 9 + 9 * 5)
    assert moved["fedgroup"] == moved["fesem"] == (18, 18)


def test_the_paper_s_megabytes_fit_its_accounting_with_five_clusters(report: ExperimentReport) -> None:
    counts, mb, worst = fit_of(averaging(report), "paper", 5) or ([], 0.0, 0.0)
    errors = {(name, k): (fit_of(averaging(report), name, k) or ([], 0.0, 0.0))[2] for name in BY_NAME for k in (3, 5)}

    assert counts == [20, 9, 15]
    assert mb == pytest.approx((28.3 / 20 + 12.8 / 9 + 21.0 / 15) / 3)
    assert worst == pytest.approx(abs(mb * 15 / 21.0 - 1))
    assert min(errors, key=errors.__getitem__) == ("paper", 5)
    assert errors["hops", 5] > 0.05


BY_NAME = tuple(ACCOUNTINGS)


def test_the_paper_prints_these_megabytes() -> None:
    assert paper_mb() == {"fl": 28.3, "sbt": 12.8, "tol-fl": 21.0}


def test_verdicts_say_what_holds_and_what_does_not(report: ExperimentReport) -> None:
    assert words(report) == {
        "20 : 9 : 15 under the paper's accounting": "held",
        "Tol-FL sends less than FL, as the paper counts": "held",
        "Tol-FL sends less than FL, however one counts": "not held",
        "Tol-FL sends less than every other method, as the paper counts": "not held",
        "The unicast count is independent of k": "held",
    }


@pytest.mark.parametrize(
    ("label", "accounting", "count", "claim"),
    [
        ("SBT", "paper", 10, "20 : 9 : 15 under the paper's accounting"),
        ("Tol-FL (k = 5)", "paper", 20, "Tol-FL sends less than FL, as the paper counts"),
        ("Tol-FL (k = 3)", "unicast", 17, "The unicast count is independent of k"),
    ],
)
def test_other_counts_change_the_verdict(
    report: ExperimentReport, label: str, accounting: str, count: float, claim: str
) -> None:
    other = report_of(with_messages(report.rows, label, accounting, count))

    assert words(other)[claim] == "not held"


def test_stored_rows_give_the_same_report(report: ExperimentReport) -> None:
    again = report_of(json.loads(json.dumps(report.rows)))

    assert again.to_markdown() == report.to_markdown()
    assert again.figures.keys() == {"communication"}


def test_the_figure_has_a_bar_for_every_count(report: ExperimentReport) -> None:
    axes = report.figures["communication"]().axes[0]

    heights = [bar.get_height() for group in axes.containers for bar in group]
    assert heights == [count for label in BY_HAND for count in BY_HAND[label]]


def test_an_experiment_that_was_stopped_has_no_report() -> None:
    experiment = Communication()
    next(iter(experiment))

    with pytest.raises(LookupError, match="not finished"):
        _ = experiment.report
