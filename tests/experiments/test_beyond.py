"""What the paper left out: every question is asked, equal runs are made once, and verdicts follow the rows."""

from __future__ import annotations

from typing import Any

import pytest

from tolfl.experiments.beyond.answers import report_of
from tolfl.experiments.beyond.questions import QUESTIONS
from tolfl.experiments.beyond.work import Beyond
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


def rows(
    question: str, scheme: str, policy: str, auroc: float, varied: str = "5", n_splits: int = 5
) -> list[dict[str, Any]]:
    names = {"question": question, "varied": varied, "scenario": "beyond", "data": "comms-ml"}
    return [
        {**names, "scheme": scheme, "policy": policy, "split": split, "seed": split, "auroc": auroc + 0.001 * split}
        for split in range(n_splits)
    ]


def test_tol_fl_pays_only_if_it_beats_the_better_of_what_fl_can_do() -> None:
    fl = rows("early", "fl", "freeze", 0.75) + rows("early", "fl", "isolate", 0.60)
    ours = rows("early", "tol-fl", "elect", 0.80) + rows("early", "tol-fl", "drop", 0.70)
    report = report_of(ours + fl)

    verdicts = {verdict.claim: verdict for verdict in report.verdicts}
    assert verdicts["early 5: tol-fl elect pays"].held is True
    assert verdicts["early 5: tol-fl drop pays"].held is False
    assert verdicts["early 5: tol-fl drop pays"].evidence.endswith("against fl freeze")
    assert report.tables[0].rows == (  # of one value, a line per method
        ("tol-fl elect", "0.802 ±0.002"),
        ("tol-fl drop", "0.702 ±0.002"),
        ("fl freeze", "0.752 ±0.002"),
        ("fl isolate", "0.602 ±0.002"),
    )


def test_a_device_that_fails_is_any_of_them_so_that_one_verdict_speaks_of_their_mean() -> None:
    server = [("tol-fl", "elect", 0.80), ("tol-fl", "drop", 0.70), ("fl", "freeze", 0.75), ("fl", "isolate", 0.60)]
    member = [("tol-fl", "", 0.80), ("fl", "", 0.80)]
    both = [row for scheme, policy, auroc in server for row in rows("victim", scheme, policy, auroc, "0")]
    both += [row for scheme, policy, auroc in member for row in rows("victim", scheme, policy, auroc, "1")]
    report = report_of(both)

    assert [(verdict.claim, verdict.held) for verdict in report.verdicts] == [
        ("victim, mean of 2: tol-fl elect pays", True),
        ("victim, mean of 2: tol-fl drop pays", False),
    ]
    assert report.verdicts[0].evidence == "+0.025 (+0.025 to +0.025) against fl freeze"
    # A member's failure asks no policy: its run stands in each policy's column.
    assert report.tables[0].rows[1] == ("1", *4 * ("0.802 ±0.002",))
    assert report.tables[0].rows[2][0] == "mean"


def test_one_run_with_one_class_anomalous_settles_nothing_and_ten_classes_do() -> None:
    classes = [str(number) for number in range(10)]

    def rotated(chosen: list[str]) -> list[dict[str, Any]]:
        pairs = (("tol-fl", "elect", 0.8), ("fl", "freeze", 0.75))
        return [r for scheme, policy, a in pairs for c in chosen for r in rows("rotation", scheme, policy, a, c, 1)]

    assert [verdict.held for verdict in report_of(rotated(classes)).verdicts] == [True]
    assert [verdict.held for verdict in report_of(rotated(classes[:1])).verdicts] == [None]
