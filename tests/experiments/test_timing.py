"""Rounds and virtual seconds until the loss is near batch's: by hand, by formula, and from stored rows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.sim.fleets import some_data
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec
from tolfl.experiments.paper.losses import LossRuns
from tolfl.experiments.paper.timing import TimingExperiment, dealt_out, report_of
from tolfl.experiments.paper.timing_report import Timings, first_within, label_of, round_s
from tolfl.experiments.report import ExperimentReport

SPEC = RunSpec(
    data="blobs",
    devices=10,
    rounds=4,
    repetitions=2,
    blobs=BlobsSpec(samples_per_device=20, n_features=8, n_groups=5, n_test=40, n_validation=0),
    model=ModelSpec(hidden=(8,), code=3),
)
GROUPED, DEALT = "averaging, one class per group", "averaging, dealt out at random"


@pytest.fixture(scope="module")
def report() -> ExperimentReport:
    experiment = TimingExperiment(spec=SPEC)
    steps = list(experiment)

    done = [step.done for step in steps]
    assert done == sorted(done)
    assert done[-1] == steps[0].total
    return experiment.report


def loss_row(training: str, seed: int, losses: list[float]) -> dict[str, Any]:
    row = {"kind": "loss", "data": "hand-made", "training": training, "seed": seed}
    return {**row, "n_devices": 10, "n_samples": 100, "losses": losses}


def time_row(scheme: str, k: int, per_round_s: float, uplink: str = "serial") -> dict[str, Any]:
    row = {"kind": "time", "scheme": scheme, "k": k, "uplink": uplink, "seconds_per_sample": 1e-4}
    return {**row, "bandwidth_bps": 2e7, "times_s": [per_round_s * number for number in (1, 2, 3)]}


def hand_made(grouped: list[float], seconds: dict[str, float]) -> list[dict[str, Any]]:
    """Batch reaches 1.0 in three rounds (both seeds), so the target is 1.05."""
    rows = [loss_row("batch", seed, [3.0, 1.04, 1.0]) for seed in (0, 1)]
    rows += [loss_row(GROUPED, seed, grouped) for seed in (0, 1)]
    rows += [loss_row(DEALT, 0, [2.0, 1.06, 1.05]), loss_row(DEALT, 1, [1.0, 1.0, 1.0])]
    layouts = {"batch": 1, "fl": 1, "tol-fl": 5, "sbt": 10}
    return rows + [time_row(scheme, k, seconds[scheme]) for scheme, k in layouts.items()]


SECONDS = {"batch": 4.0, "fl": 1.0, "tol-fl": 2.0, "sbt": 3.0}


def word(report: ExperimentReport, start: str) -> str:
    return next(verdict.word for verdict in report.verdicts if verdict.claim.startswith(start))


def test_rounds_and_seconds_of_rows_made_by_hand() -> None:
    timings = Timings(hand_made([3.0, 2.0, 2.0], SECONDS))
    sbt = next(clock for clock in timings.clocks if clock["scheme"] == "sbt")

    assert timings.targets() == [1.05, 1.05]
    assert timings.rounds_to_target("batch") == [2, 2]
    assert timings.rounds_to_target(GROUPED) == [None, None]
    assert timings.rounds_to_target(DEALT) == [3, 1]
    assert timings.seconds_to_target(sbt, DEALT).values == (9.0, 3.0)
    assert timings.seconds_to_target(sbt, GROUPED).mean is None


def test_what_is_not_reached_is_said_and_no_time_is_made_up() -> None:
    found = report_of(hand_made([3.0, 2.0, 2.0], SECONDS))

    assert "not reached in 3" in found.to_markdown()
    assert word(found, "FL, SBT and Tol-FL come within 5 % of batch (one class") == "not held"
    assert word(found, "FL, SBT and Tol-FL come within 5 % of batch (dealt") == "held"
    assert word(found, "Each takes less time than batch (training 0.1 ms per sample; one class") == "cannot tell"
    # The slowest, SBT: 3 s a round, after 3 and after 1 round; batch: 4 s a round, twice 2 rounds.
    assert word(found, "Each takes less time than batch (training 0.1 ms per sample; dealt") == "held"


@pytest.mark.parametrize(
    ("seconds", "order", "against_batch"),
    [
        (SECONDS, "held", "held"),
        ({**SECONDS, "fl": 2.5}, "not held", "held"),
        ({**SECONDS, "tol-fl": 3.5}, "not held", "held"),
        ({**SECONDS, "sbt": 9.0}, "held", "not held"),
    ],
)
def test_the_order_and_the_comparison_with_batch_follow_the_clock(
    seconds: dict[str, float], order: str, against_batch: str
) -> None:
    found = report_of(hand_made([1.0, 1.0, 1.0], seconds))

    assert word(found, "FL is fastest") == order
    assert word(found, "Each takes less time than batch (training 0.1 ms per sample; dealt") == against_batch


@given(losses=st.lists(st.floats(0.1, 10), min_size=1, max_size=20), target=st.floats(0.1, 10))
def test_before_the_first_round_within_reach_every_loss_is_above(losses: list[float], target: float) -> None:
    found = first_within(losses, target)

    before = losses if found is None else losses[: found - 1]
    assert all(loss > target for loss in before)
    assert found is None or losses[found - 1] <= target


def test_a_round_takes_as_long_as_its_longest_way(report: ExperimentReport) -> None:
    """With equal devices: training c, and h for each model that must arrive before the next may leave."""
    n_params = (8 * 8 + 8) + (8 * 3 + 3) + (3 * 8 + 8) + (8 * 8 + 8)
    links = SPEC.links
    tau = n_params * 4 * 8 / links.bandwidth_bps
    h = tau + links.latency_s
    for clock in Timings(report.rows).clocks:
        c = 20 * clock["seconds_per_sample"]
        is_serial = clock["uplink"] == "serial"
        expected = {
            "batch": 10 * c,
            "FL": c + 2 * h + (8 * tau if is_serial else 0.0),  # a star: up and down
            "Tol-FL (k = 5)": c + h + 4 * h + 2 * h,  # one member up, four hops, down to heads and to members
            "SBT": c + 9 * h + h,
        }
        if label_of(clock) in expected:
            assert round_s(clock) == pytest.approx(expected[label_of(clock)], rel=1e-6), clock


def test_fl_sbt_and_tol_fl_have_the_same_losses_bit_by_bit(report: ExperimentReport) -> None:
    shared = Timings(report.rows).losses(GROUPED)

    for scheme in ("sbt", "tol-fl"):
        runs = LossRuns(msgspec.structs.replace(SPEC, scheme=scheme, clusters=3))
        list(runs)
        assert [[closed.loss for closed in of_seed] for of_seed in runs.closed] == shared


@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(any), seed=st.integers(0, 99))
@examples(max_examples=20)
def test_dealing_out_moves_samples_and_changes_none(sizes: list[int], seed: int) -> None:
    data = some_data(sizes)
    dealt = dealt_out(data, seed)

    assert dealt.bounds == data.bounds
    assert sorted(dealt.pool.tolist()) == sorted(data.pool.tolist())


def test_dealt_out_samples_are_mixed() -> None:
    data = some_data([50, 50])  # device 1's are 1 higher on average
    dealt = dealt_out(data, seed=0)

    own = [float(np.mean(dealt.slice_of(device))) for device in (0, 1)]
    assert abs(own[1] - own[0]) < 0.5 < float(np.mean(data.slice_of(1)) - np.mean(data.slice_of(0)))


def test_stored_rows_give_the_same_report(report: ExperimentReport) -> None:
    again = report_of(json.loads(json.dumps(report.rows)))

    assert again.to_markdown() == report.to_markdown()


def test_a_panel_shows_every_layout_and_the_line_to_reach(report: ExperimentReport) -> None:
    figure = report.figures["timing"]()

    assert len(figure.axes) == 4
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert labels == ["batch", "FL", "Tol-FL (k = 3)", "Tol-FL (k = 5)", "SBT", "batch's least + 5 %"]


def test_an_experiment_that_was_stopped_can_be_started_again(report: ExperimentReport) -> None:
    experiment = TimingExperiment(spec=SPEC)
    next(iter(experiment))

    with pytest.raises(LookupError, match="not finished"):
        _ = experiment.report
    list(experiment)
    assert experiment.report.rows == report.rows
