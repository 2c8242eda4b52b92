"""What the paper left out: every question is asked, equal runs are made once, and verdicts follow the rows."""

from __future__ import annotations

from typing import Any

import pytest

from tolfl.experiments.beyond import QUESTIONS, Beyond, report_of
from tolfl.experiments.sweep import groups


@pytest.fixture(scope="module")
def asked() -> Beyond:
    return Beyond(["comms-ml"], quick=True)


def test_each_question_is_asked_of_tol_fl_and_of_the_best_that_fl_can_do(asked: Beyond) -> None:
    names = [question.name for question in asked.questions]
    assert names == [question.name for question in QUESTIONS if question.data == "comms-ml"]
    by_label = {cell.label: cell.spec for cell in asked.sweep.cells}
    for name in ("early 5", "clusters 10", "several 3", "newcomer yes", "dirichlet 0.05", "dropout 0"):
        policies = {spec.on_head_failure for label, spec in by_label.items() if label.startswith(f"{name}: ")}
        assert policies == {"elect", "drop", "freeze", "isolate"}
    assert by_label["several 3: tol-fl (elect)"].fail == "device:0@5; device:4@6; device:7@7"


def test_fl_is_run_once_for_every_number_of_clusters_and_tol_fl_for_each(asked: Beyond) -> None:
    cells = [cell for cell in asked.sweep.cells if cell.label.startswith("clusters ")]
    keys = {scheme: {cell.key for cell in cells if cell.spec.scheme == scheme} for scheme in ("fl", "tol-fl")}
    assert len(keys["fl"]) == 2  # freeze and isolate
    assert len(keys["tol-fl"]) == 2 * 10
    assert len(groups(cells)) == 1  # all share the rounds before the failure


def rows(question: str, scheme: str, policy: str, auroc: float) -> list[dict[str, Any]]:
    names = {"question": question, "varied": "5", "scenario": "beyond", "data": "comms-ml"}
    return [
        {**names, "scheme": scheme, "policy": policy, "split": split, "seed": split, "auroc": auroc + 0.001 * split}
        for split in range(5)
    ]


def test_tol_fl_pays_only_if_it_beats_the_better_of_what_fl_can_do() -> None:
    fl = rows("early", "fl", "freeze", 0.75) + rows("early", "fl", "isolate", 0.60)
    ours = rows("early", "tol-fl", "elect", 0.80) + rows("early", "tol-fl", "drop", 0.70)
    report = report_of(ours + fl)

    verdicts = {verdict.claim: verdict for verdict in report.verdicts}
    assert verdicts["early 5: tol-fl elect pays"].held is True
    assert verdicts["early 5: tol-fl drop pays"].held is False
    assert verdicts["early 5: tol-fl drop pays"].evidence.endswith("against fl freeze")
    assert report.tables[0].rows == (("5", "0.802 ±0.002", "0.702 ±0.002", "0.752 ±0.002", "0.602 ±0.002"),)
