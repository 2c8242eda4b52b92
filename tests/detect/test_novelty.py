"""Novelty: ranges that one odd row does not make, in units that are known before a row is seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.detect.rows import detector_for
from tolfl.core.spec import RunSpec
from tolfl.detect import DetectorSpec, FederatedDetector, fit_detector
from tolfl.detect.cells import restored, transformed
from tolfl.detect.detector import Detector
from tolfl.detect.features import Features
from tolfl.detect.novelty import LIMIT
from tolfl.detect.scoring import TableScorer
from tolfl.learners import Fleet
from tolfl.learners.checks import check_learner
from tolfl.tables import blocks_of

NAMES_ALONE = ["deauthentications", "beacons", "signal"]
NAMES = ["deauthentications [; count]", "beacons [; count]", "signal [dBm; level]"]


def rows(seed: int, n_rows: int = 60) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.column_stack([np.zeros(n_rows), rng.poisson(10, n_rows), rng.normal(-60, 2, n_rows)]).astype(np.float32)


def fitted(fail: str = "") -> Detector:
    return fit_detector(
        {name: rows(place) for place, name in enumerate("abc")}, DetectorSpec(fail=fail), Features.named(NAMES)
    )


def test_a_flood_in_a_constant_column_is_novel_and_says_what_is_usual(tmp_path: Path) -> None:
    detector = Detector.load(fitted().save(tmp_path / "model"))
    assert detector.novelty is not None
    flood = np.array([[64, 10, -60]], np.float32)

    assert detector.verdicts(flood).tolist() == [True]
    explained = detector.explain(flood[0])
    assert str(explained) == "deauthentications 64, usual 0 to 0"
    assert explained.is_alarm
    assert explained.novelty == detector.novelty.scores(flood)[0]
    assert "; novelty" in explained.plot().axes[0].get_title()


def test_the_estimator_and_score_call_the_same_windows_alarms() -> None:
    few = fit_detector({"a": rows(0, 30)}, DetectorSpec(), Features.named(NAMES))
    given = np.concatenate([rows(7) + np.array([k // 9 + 8 * (k // 12), k, k / 3], np.float32) for k in range(13)])
    table = pa.table(dict(zip(NAMES_ALONE, given.T, strict=True)))
    (scored,) = TableScorer(few).score(blocks_of(table))
    verdicts = FederatedDetector.from_detector(few).predict(table)

    assert (verdicts == np.where(scored.is_alarm, -1, 1)).all()
    assert [few.explain(row).is_alarm for row in given[::5]] == scored.is_alarm[::5].tolist()
    assert scored.is_alarm.any()
    assert scored.is_notice.any()


def test_a_row_goes_by_the_ranges_of_its_device_or_else_by_those_of_the_fleet() -> None:
    novelty = fitted().novelty
    assert novelty is not None
    wider = replace(novelty, own={"wide": (novelty.low, novelty.high + 100)})
    floods = np.array([[64, 10, -60]] * 2, np.float32)
    own, other = wider.scores(floods, np.array(["wide", "other"]))

    assert own == 0.0
    assert other == novelty.scores(floods)[1] > LIMIT


def test_one_odd_row_does_not_make_the_range() -> None:
    odd = rows(0)
    odd[7, 0] = 500
    detector = fit_detector({"a": odd, "b": rows(1)}, DetectorSpec(), Features.named(NAMES))
    assert detector.novelty is not None

    assert detector.novelty.scores(np.array([[64, 10, -60]], np.float32))[0] > 3


@pytest.mark.parametrize("round_index", range(0, 24, 4))
def test_ranges_survive_the_loss_of_a_device_in_any_round(round_index: int) -> None:
    detector = fitted(f"device:2@{round_index}")
    assert detector.novelty is not None

    assert detector.novelty.scores(np.array([[64, 10, -60], [0, 10, -60]], np.float32)).round(1)[1] == 0


def test_what_a_device_reports_of_a_column_without_a_value_can_travel() -> None:
    """In a simulation it need not: a real fleet refused it, and waited for ever."""
    given = [rows(place, 12 + 4 * place) for place in range(3)]
    given[1][:, 2] = np.nan
    fleet = Fleet(RunSpec(devices=3), (3,), tuple(NAMES), usual_rows=16)

    check_learner(lambda: detector_for(fleet, {"model": "mahalanobis"}), given)


def test_a_missing_value_is_not_novel_and_of_a_partial_row_only_more_is() -> None:
    novelty = fitted().novelty
    assert novelty is not None
    given = np.array([[0, np.nan, np.nan], [0, 0, -60]], np.float32)

    assert novelty.scores(given)[0] == 0
    assert novelty.scores(given, is_partial=np.array([True, True])).tolist() == [0, 0]


def test_transformations_are_undone() -> None:
    values = np.array([[0.0, 10.0, -60.0], [3.0, 400.0, -20.0]])
    measures = np.array([1, 4, 3])

    assert np.allclose(restored(transformed(values, measures), measures), values)


def test_a_column_without_a_value_can_travel_to_other_devices() -> None:
    empty = rows(0)
    empty[:, 2] = np.nan
    detector = fit_detector({"a": empty, "b": empty}, DetectorSpec(), Features.named(NAMES))
    assert detector.novelty is not None

    # A device refuses numbers of 1e18 and more: the fleet stood still in its fifth round.
    assert np.abs([detector.novelty.low, detector.novelty.high]).max() < 1e18
    assert [one.name for one in detector.novelty.top(detector.features, rows(1)[:1] + 50, 3)[0]] == NAMES_ALONE[:2]
