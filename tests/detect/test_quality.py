"""How good a detector is, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.detect.quality import (
    Detections,
    LabelledScores,
    delays_of,
    evaluation_of,
    partial_auroc,
    plot_histogram,
    plot_roc,
    plot_timeline,
    quality_of,
)

#: Ten minutes of two devices. Events: a, 2 to 4 (noticed at 3); b, 6 (missed); b, 8 to 9 (noticed at once).
TIMES = np.array([*range(10), *range(10)], dtype=float) * 60
DEVICES = np.repeat(["a", "b"], 10)
TRUTH = np.zeros(20, bool)
TRUTH[[2, 3, 4, 16, 18, 19]] = True
SCORES = np.full(20, 0.1)
SCORES[[3, 4, 18, 19]] = 0.9
SCORES[0] = 0.8  # a false alarm
JUDGED = LabelledScores(SCORES, SCORES > 0.5, TRUTH, DEVICES, TIMES)


def test_rates_and_times_of_two_devices() -> None:
    found = evaluation_of(JUDGED)

    assert found.fleet.detection_rate == pytest.approx(4 / 6)
    assert found.fleet.false_alarm_rate == pytest.approx(1 / 14)
    assert found.detections == Detections(n_events=3, n_detected=2, median_s=30.0, longest_s=60.0)
    assert found.detections_per_device["a"] == Detections(1, 1, 60.0, 60.0)
    assert found.detections_per_device["b"] == Detections(2, 1, 0.0, 0.0)
    assert found.per_device["a"].false_alarm_rate == pytest.approx(1 / 7)
    # Of 6 x 14 pairs 4 x 14 are right, 2 x 13 tied, 2 x 1 wrong.
    assert found.fleet.auroc == pytest.approx((56 + 13) / 84)


def test_events_are_runs_in_time_not_in_the_order_of_rows() -> None:
    order = np.random.default_rng(0).permutation(20)
    shuffled = LabelledScores(SCORES[order], (SCORES > 0.5)[order], TRUTH[order], DEVICES[order], TIMES[order])

    assert evaluation_of(shuffled) == evaluation_of(JUDGED)


def test_without_time_nothing_is_said_of_delays_and_one_kind_of_rows_has_no_auroc() -> None:
    typical = LabelledScores(SCORES[:2], SCORES[:2] > 0.5, TRUTH[:2])
    found = quality_of(typical)

    assert delays_of(typical) is None
    assert evaluation_of(typical).detections is None
    assert (found.auroc, found.average_precision, found.partial_auroc, found.detection_rate) == (None,) * 4
    assert found.false_alarm_rate == 0.5


@given(st.integers(1, 50), st.integers(1, 50))
def test_the_partial_auroc_is_1_for_the_best_and_below_a_half_for_the_worst(n_typical: int, n_anomalous: int) -> None:
    truth = np.repeat([False, True], [n_typical, n_anomalous])
    best = truth.astype(float)

    assert partial_auroc(best, truth) == 1.0
    assert partial_auroc(-best, truth) < 0.5


def test_the_partial_auroc_looks_at_few_false_alarms_only() -> None:
    # 1,000 typical rows from 0 to 999. At most 10 of them may be false alarms. Ten anomalous rows score 994.5: the
    # curve is 0 up to 5 false alarms and 1 from there to 10, an area of 0.005; McClish makes (1 + (A - min) / (max -
    # min)) / 2 of it, with min = 0.01^2 / 2 and max = 0.01.
    scores = np.concatenate([np.arange(1000.0), np.full(10, 994.5)])
    truth = np.repeat([False, True], [1000, 10])
    least = 0.01**2 / 2

    assert partial_auroc(scores, truth) == pytest.approx((1 + (0.005 - least) / (0.01 - least)) / 2)


def test_figures_show_what_they_are_asked_for() -> None:
    roc, histogram, timeline = plot_roc(JUDGED), plot_histogram(JUDGED, 0.5), plot_timeline(JUDGED, 0.5)

    assert [line.get_label() for line in roc.axes[0].get_lines()][:3] == ["a", "b", "fleet"]
    assert [text.get_text() for text in histogram.axes[0].get_legend().get_texts()] == [  # type: ignore[union-attr]
        "typical (14)", "anomalous (6)", "threshold 0.5",
    ]  # fmt: skip
    assert [axis.get_ylabel() for axis in timeline.axes] == ["a", "b"]
    assert timeline.axes[-1].get_xlabel() == "time since the first row, minutes"


@pytest.mark.parametrize("scores", [np.zeros(4), np.array([0.0, 1.0, 2.0, 3.0])], ids=["all-zero", "some-zero"])
def test_figures_take_scores_of_zero(scores: np.ndarray) -> None:
    judged = LabelledScores(scores, scores > 1, np.array([False, False, True, True]))

    for figure in (plot_roc(judged), plot_histogram(judged, 1.0), plot_timeline(judged, 1.0)):
        figure.canvas.draw()  # what cannot be drawn fails here
