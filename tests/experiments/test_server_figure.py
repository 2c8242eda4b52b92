"""The loss after the server is lost: what the curves share, where they part, and what is said of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.spec import BlobsSpec, LinkModel, ModelSpec, RunSpec
from tolfl.experiments.paper.losses import ClosedLoss
from tolfl.experiments.paper.server_figure import ServerFigure, mean_over_models, report_of
from tolfl.experiments.paper.server_report import CURVES
from tolfl.experiments.report import ExperimentReport

SPEC = RunSpec(
    data="blobs",
    devices=6,
    clusters=3,
    rounds=8,
    repetitions=2,
    blobs=BlobsSpec(samples_per_device=20, n_features=8, n_groups=3, n_test=40, n_validation=0),
    model=ModelSpec(hidden=(8,), code=3),
)


@pytest.fixture(scope="module")
def report() -> ExperimentReport:
    experiment = ServerFigure(specs=[SPEC])
    steps = list(experiment)

    done = [step.done for step in steps]
    assert done == sorted(done)
    assert done[-1] == steps[0].total
    return experiment.report


def losses(report: ExperimentReport, scheme: str, policy: str) -> list[list[float]]:
    return [row["losses"] for row in report.rows if (row["scheme"], row["policy"]) == (scheme, policy)]


def hand_made(ends: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    """Two rounds at losses 5 and 3, then the server is lost; each curve ends where it is told to."""
    common = {"data": "hand-made", "k": 2, "n_devices": 4, "rounds": 4, "failed_after": 2}
    return [
        {
            **common,
            "scheme": scheme,
            "policy": policy,
            "seed": seed,
            "losses": [5.0, 3.0] if policy == "freeze" else [5.0, 3.0, 2.5, end],
            "last_losses_by_device": {"1": end},
        }
        for (scheme, policy), end in ends.items()
        for seed in (0, 1)
    ]


AS_HOPED = dict(zip(CURVES, (4.0, 2.0, 2.0, 2.5, 3.0), strict=True))


def words(report: ExperimentReport) -> list[str]:
    return [verdict.word for verdict in report.verdicts]


def test_before_the_failure_all_curves_are_one(report: ExperimentReport) -> None:
    for seed in (0, 1):
        starts = {tuple(losses(report, *curve)[seed][:4]) for curve in CURVES}
        assert len(starts) == 1


def test_after_the_failure_only_frozen_training_closes_no_round(report: ExperimentReport) -> None:
    lengths = {curve: {len(of_seed) for of_seed in losses(report, *curve)} for curve in CURVES}

    assert lengths == {curve: {4 if curve == ("fl", "freeze") else 8} for curve in CURVES}


def test_a_head_that_is_replaced_costs_what_a_device_of_sbt_costs(report: ExperimentReport) -> None:
    assert losses(report, "tol-fl", "elect") == losses(report, "sbt", "elect")
    assert losses(report, "tol-fl", "drop") != losses(report, "sbt", "elect")


def test_isolated_survivors_are_averaged_and_the_dead_server_is_not_among_them(report: ExperimentReport) -> None:
    for row in report.rows:
        if row["policy"] == "isolate":
            last = row["last_losses_by_device"]
            assert sorted(last) == ["1", "2", "3", "4", "5"]
            assert row["losses"][-1] == pytest.approx(np.mean(list(last.values())))


def test_the_server_s_last_model_counts_even_if_it_is_slow_to_arrive() -> None:
    # 812 bytes at 13 kbit/s take half a second, more than devices on one machine would wait for a dead server.
    slow = msgspec.structs.replace(SPEC, repetitions=1, links=LinkModel(bandwidth_bps=13e3))
    experiment = ServerFigure(specs=[slow])
    list(experiment)

    starts = {tuple(losses(experiment.report, *curve)[0][:4]) for curve in CURVES}
    assert len(starts) == 1
    assert losses(experiment.report, "tol-fl", "elect") == losses(experiment.report, "sbt", "elect")


@given(st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 3)), st.floats(0.1, 9), min_size=1))
def test_the_mean_of_a_round_lies_between_its_models(found: dict[tuple[int, int], float]) -> None:
    closed = [ClosedLoss(index, device, 0.0, loss) for (index, device), loss in found.items()]

    rounds = sorted({index for index, _ in found})
    for index, mean in zip(rounds, mean_over_models(closed), strict=True):
        of_round = [loss for (other, _), loss in found.items() if other == index]
        assert min(of_round) - 1e-9 <= mean <= max(of_round) + 1e-9


def test_every_verdict_holds_where_the_curves_are_as_the_paper_says() -> None:
    assert words(report_of(hand_made(AS_HOPED))) == ["held"] * 5


@pytest.mark.parametrize(
    ("curve", "end", "not_held"),
    [
        (("fl", "isolate"), 1.0, [0, 2]),
        (("sbt", "elect"), 3.5, [1, 4]),
        (("tol-fl", "drop"), 3.5, [3]),
        (("tol-fl", "elect"), 2.001, [4]),
    ],
)
def test_a_curve_that_ends_elsewhere_changes_its_verdicts(
    curve: tuple[str, str], end: float, not_held: list[int]
) -> None:
    found = words(report_of(hand_made({**AS_HOPED, curve: end})))

    assert [place for place, word in enumerate(found) if word == "not held"] == not_held


def test_one_seed_that_does_not_follow_is_enough_for_not_held() -> None:
    rows = hand_made(AS_HOPED)
    first = next(row for row in rows if row["policy"] == "isolate")
    first["losses"][-1] = 1.9

    assert words(report_of(rows))[0] == "not held"


def test_stored_rows_give_the_same_report(report: ExperimentReport) -> None:
    again = report_of(json.loads(json.dumps(report.rows)))

    assert again.to_markdown() == report.to_markdown()


def test_the_figure_has_all_curves_to_the_last_round(report: ExperimentReport) -> None:
    axes = report.figures["server-figure"]().axes[0]

    after = [line for line in axes.lines if np.size(line.get_xdata()) == 5]
    assert len(after) == len(CURVES)
    assert all(np.isfinite(np.asarray(line.get_ydata(), dtype=float)).all() for line in after)


def test_an_experiment_that_was_stopped_has_no_report() -> None:
    experiment = ServerFigure(specs=[SPEC])
    next(iter(experiment))

    with pytest.raises(LookupError, match="not finished"):
        _ = experiment.report
