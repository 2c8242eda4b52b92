"""The step size: chosen on held-back typical samples, with room to the edge, and found again after a stop."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tolfl.core.errors import RunDirectoryError
from tolfl.experiments.paper.step_size import StepSizes, choose, report_of
from tolfl.experiments.paper.studies import STUDIES


def tried(*steps: tuple[float, float | None, bool]) -> list[dict[str, Any]]:
    return [
        {"data": "comms-ml", "lr": lr, "loss": loss, "losses": [loss] if loss else [], "too_large": too_large}
        for lr, loss, too_large in steps
    ]


def test_a_step_within_a_factor_of_two_of_one_that_is_too_large_is_not_taken() -> None:
    rows = tried((0.01, 3.0, False), (0.02, 2.0, False), (0.04, 1.0, False), (0.08, None, True))
    assert choose(rows) == 0.02
    assert choose(rows[-1:]) is None
    assert choose(rows[:-1]) == 0.04
    assert [row[1:] for row in report_of(rows).tables[0].rows][1:] == [
        ("2", "2 to 2", "chosen"),
        ("1", "1 to 1", ""),
        ("diverges", "-", "too large"),
    ]


@pytest.mark.slow
def test_a_step_too_small_to_learn_in_time_ends_nothing_and_what_was_tried_is_kept(tmp_path: Path) -> None:
    asked = ([STUDIES["comms-ml"]], True, "", tmp_path)
    list(islice(StepSizes(*asked), 4))  # stopped while the fourth step is announced
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    assert len(kept) == 3

    resumed = StepSizes(*asked)
    list(resumed)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    losses = [row["loss"] for row in resumed.rows]
    assert losses[0] > losses[3] > losses[6]  # ten rounds are too few for the smallest steps
    assert choose(resumed.rows) in {row["lr"] for row in resumed.rows[6:]}

    next(iter(kept)).write_text("{")
    with pytest.raises(RunDirectoryError, match="delete it to compute it again"):
        list(StepSizes(*asked))
