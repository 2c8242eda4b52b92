"""A detector as a learner: its stages, its file, what it says of devices that are lost, and its settings."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.detect.rows import Rows, detector_for, near_a_plane
from tests.learners.play import play, states
from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec, TrainSpec
from tolfl.datasets.scaling import Moments, Scaler, merged
from tolfl.detect import DetectorSpec, fit_detector
from tolfl.detect.detector_learner import DetectorResult, DetectorStages
from tolfl.detect.detector_stage import flat, split_rows
from tolfl.detect.features import Features
from tolfl.detect.scaling_rounds import Scaling
from tolfl.learners.learner import Fleet, Shape, Turn, contributions_of

LEARN: dict[str, dict[str, object]] = {
    "cells": {},
    "mahalanobis": {"model": "mahalanobis"},
    "trimmed": {"trim": 0.05, "cells": 4},
    "pca": {"model": "pca"},
    "pca-2": {"model": "pca", "n_components": 2},
    "autoencoder": {"model": "autoencoder", "hidden": [8], "code": 2, "scaling": "standard"},
}
ROWS = {device: near_a_plane(40 + 10 * device, seed=device) for device in range(4)}


def learner_of(name: str, n_devices: int = 4, **run: object) -> DetectorStages:
    spec = RunSpec(devices=n_devices, **{"rounds": 3, **run})  # type: ignore[arg-type]
    return detector_for(Fleet(spec, (6,), usual_rows=50), LEARN[name])


def file_of(learner: DetectorStages, rows: dict[int, Rows], gone: dict[int, int] | None = None) -> bytes:
    """Return the file after a run in which devices are gone from some round on."""
    gone = gone or {}
    state = play(learner, rows, lambda r: [device for device in rows if gone.get(device, 999) > r])
    return learner.results(state)["detector"].files()["detector.tolfl"]


def travelling(vector: NDArray[Any]) -> int:
    """Return the bytes of an array on the wire, where whole numbers are compressed."""
    return len(zlib.compress(vector.tobytes(), 1)) if vector.dtype == np.int64 else vector.nbytes


def test_pictures_are_taken_as_rows_of_numbers() -> None:
    pictures = np.arange(12.0, dtype=np.float32).reshape(2, 3, 2)

    np.testing.assert_array_equal(flat(pictures), [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]])


def test_statistics_of_six_columns_are_27_numbers_up_and_two_directions_with_their_mean_down() -> None:
    provenance = 2 * 8 * len(ROWS)

    assert learner_of("pca-2").nbytes(1) == (8 * 27, 8 * 3 * 6 + provenance)


@pytest.mark.parametrize("name", LEARN)
def test_each_round_carries_what_its_shapes_say_and_about_as_much_as_foretold(name: str) -> None:
    learner = learner_of(name)
    for round_index, state in enumerate(list(states(learner, ROWS))[:-1]):
        (own,) = contributions_of(learner, [Turn(0, 1, round_index, state, ROWS[1])])
        expected = learner.shapes(state, round_index) or {}
        up, down = learner.nbytes(round_index)
        n_bytes = sum(travelling(part.vector) for part in own.parts.values())

        assert {key: Shape.of(part) for key, part in own.parts.items()}.items() <= expected.items()
        others = {f"own/{device}" for device in ROWS}
        assert set(expected) - set(own.parts) <= {"diverged", "training", *others}
        assert n_bytes / 20 <= up <= 20 * n_bytes, learner.stage(round_index)
        assert down > 0


@pytest.mark.parametrize("name", LEARN)
def test_what_a_turn_gives_does_not_depend_on_the_others(name: str) -> None:
    learner = learner_of(name)
    for round_index, state in enumerate(list(states(learner, ROWS))[:-1]):
        turns = [Turn(0, device, round_index, state, rows) for device, rows in ROWS.items()]
        together = learner.contribute(turns)

        for turn, parts in zip(turns, together, strict=True):
            (alone,) = learner.contribute([turn])
            assert {key: part.vector.tobytes() for key, part in alone.items()} == {
                key: part.vector.tobytes() for key, part in parts.items()
            }


@pytest.mark.parametrize("name", LEARN)
def test_there_is_a_result_once_there_are_thresholds(name: str) -> None:
    learner = learner_of(name)
    seen = [bool(learner.results(state)) for state in states(learner, ROWS)]
    result = learner.results(play(learner, ROWS))["detector"]

    assert seen == [False] * (learner.rounds - 1) + [True, True]  # after the last round but one, and after the last
    assert isinstance(result, DetectorResult)
    assert result.users is None
    assert result.anomaly_score(ROWS[0]).tolist() == result.detector.anomaly_score(ROWS[0]).tolist()


@pytest.mark.parametrize("name", LEARN)
def test_a_fleet_leaves_what_fit_detector_leaves(name: str) -> None:
    spec = msgspec.convert({**LEARN[name], "rounds": 3}, DetectorSpec)
    slices = {str(device): rows for device, rows in ROWS.items()}
    expected = fit_detector(slices, spec, Features.named([f"x{place}" for place in range(6)]))
    found = learner_of(name).detector(play(learner_of(name), ROWS))

    assert found is not None
    assert found.anomaly_score(ROWS[0]).tolist() == expected.anomaly_score(ROWS[0]).tolist()
    assert found.thresholds == expected.thresholds
    assert found.trainings == expected.trainings


@given(st.sampled_from(sorted(LEARN)), st.dictionaries(st.integers(1, 3), st.integers(0, 40), max_size=3))
def test_the_file_says_who_was_lost_and_never_depends_on_the_failure_plan(name: str, gone: dict[int, int]) -> None:
    planned = learner_of(name, fail="device:3@1")
    content = file_of(learner_of(name), ROWS, gone)
    detector = learner_of(name).detector(
        play(planned, ROWS, lambda r: [device for device in ROWS if gone.get(device, 999) > r])
    )

    assert content == file_of(planned, ROWS, gone)
    assert detector is not None
    (training,) = detector.trainings
    n_rounds = planned.rounds
    assert [one.rounds for one in training.devices] == [min(gone.get(device, n_rounds), n_rounds) for device in ROWS]
    lost = {device: when for device, when in gone.items() if when < n_rounds}
    assert {(one.device, one.round) for one in training.events} == {
        (str(device), when) for device, when in lost.items()
    }
    assert set(training.survivors) == {str(device) for device in ROWS} - {str(device) for device in lost}
    assert set(detector.thresholds.devices) == set(training.survivors)


def test_a_device_that_comes_late_is_in_the_thresholds_with_its_rows() -> None:
    learner = learner_of("mahalanobis")
    state = play(learner, ROWS, lambda round_index: range(4 if round_index > 5 else 3))
    detector = learner.detector(state)

    assert detector is not None
    late = detector.trainings[0].devices[3]
    assert (late.n_trained, late.n_held_back, late.is_survivor) == (56, 14, True)
    assert detector.thresholds.devices["3"].n_scores == 14
    assert detector.trainings[0].events == ()


def test_a_device_that_diverges_costs_the_round_and_a_tenth_of_the_step_is_left() -> None:
    learner = detector_for(
        Fleet(RunSpec(devices=2, rounds=4), (6,)), {"model": "autoencoder", "hidden": [8], "scaling": "none"}
    )
    rows = {0: near_a_plane(60), 1: 1e4 * near_a_plane(60)}
    after = [state for state in states(learner, rows) if "step" in state]

    assert after[1]["step"][0] == pytest.approx(after[0]["step"][0] / 10)
    assert after[1]["autoencoder"] is after[0]["autoencoder"]
    assert np.isfinite(after[-1]["autoencoder"]).all()


@pytest.mark.parametrize("learn", [{"lr": 1e6}, {}], ids=["learn", "train"])
def test_a_given_step_that_diverges_is_an_error(learn: dict[str, object]) -> None:
    run = RunSpec(devices=1, rounds=4, train=TrainSpec(lr=None if learn else 1e6))
    learner = detector_for(Fleet(run, (6,)), {"model": "autoencoder", "hidden": [8], **learn})

    with pytest.raises(ArithmeticError, match="diverged"):
        play(learner, {0: near_a_plane(60)})


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.sampled_from(["min-max", "standard", "none"]), st.data())
def test_scaling_in_rounds_is_that_of_merged_moments(sizes: list[int], kind: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    rows = {device: rng.normal(3.0, 2.0, size=(size + 1, 3)) for device, size in enumerate(sizes)}
    for own in rows.values():
        own[rng.uniform(size=own.shape) < 0.3] = np.nan
    fleet = Fleet(RunSpec(devices=len(rows)), (3,))
    stage = Scaling(fleet, DetectorSpec(scaling=kind, held_back=0.0))  # type: ignore[arg-type]
    state = play(stage, rows)

    expected = Scaler.fit(merged(Moments.of(own) for own in rows.values()), kind)  # type: ignore[arg-type]
    if kind == "standard":
        np.testing.assert_allclose(state["scaler/factor"], expected.factor, rtol=1e-12)
    else:
        assert state["scaler/factor"].tobytes() == expected.factor.tobytes()
    assert state["scaler/shift"].tobytes() == expected.shift.tobytes()
    assert state["scaler/fill"].tobytes() == expected.fill.tobytes()
    assert state["sizes"].tolist() == [number for own in rows.values() for number in (len(own), 0)]


@pytest.mark.parametrize(
    ("learn", "problem"),
    [
        ({"modell": "pca"}, "a detector has no setting 'modell'; it has model, .*; did you mean 'model'"),
        ({"trim": 0.1, "model": "pca"}, "trim 0.1: pca trains on all rows"),
        ({"cells": 0}, "cells 0; use from 1 to 256"),
        ({"contamination": 0.1}, "a detector has no setting 'contamination'"),
        ({"fail": "server@1"}, "a detector has no setting 'fail'"),
        ({"model": "forest"}, "unknown model 'forest'; choose one of: cells"),
        ({"model": "auto"}, "model 'auto' is not supported"),
        ({"held_back": "much"}, "Expected `float`, got `str`"),
        ({"held_back": 0.9}, "held_back 0.9; use a share"),
        ({"model": "pca", "n_components": 9}, "n_components 9 for 6 features"),
    ],
    ids=["key", "trim", "cells", "contamination", "fail", "model", "auto", "word", "share", "components"],
)
def test_a_wrong_setting_gets_one_sentence(learn: dict[str, object], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        detector_for(Fleet(RunSpec(devices=2), (6,)), {"what": "detector", **learn})


def test_names_of_columns_and_devices_are_in_the_file() -> None:
    columns = ("load", "power [W]", "a", "b", "c", "d")
    fleet = Fleet(RunSpec(devices=4, scheme="sbt", seed=5), (6,), columns, ("north", "south", "west", "east"))
    learner = detector_for(fleet, {"alarms_per_day": 1.0, "windows_per_day": 20.0})
    detector = learner.detector(play(learner, ROWS, seed=5))

    assert detector is not None
    assert detector.features.units[1] == "W"
    assert tuple(detector.thresholds.devices) == fleet.names
    assert (detector.spec.scheme, detector.spec.seed, detector.thresholds.budget) == ("sbt", 5, 0.05)


def test_the_state_only_keeps_arrays_that_travel() -> None:
    for name in LEARN:
        for state in states(learner_of(name), ROWS):
            for key, array in state.items():
                assert array.ndim == 1, key
                assert array.dtype.str[1:] in {"f4", "f8", "i8", "u1"}, key
                assert np.isfinite(array).all(), key


def test_an_unchanged_array_is_the_same_object() -> None:
    learner = learner_of("pca")
    *_, before, after = states(learner, ROWS)

    assert all(after[key] is before[key] for key in ("pca/mean", "pca/directions", "scaler/shift", "threshold/counts"))


# -- rows that are held back ----------------------------------------------------------------------------------------


@given(n_rows=st.integers(1, 500), n_more=st.integers(0, 500), share=st.floats(0.0, 0.5), seed=st.integers(0, 2**31))
def test_a_row_stays_what_it_is_in_a_table_that_grows(n_rows: int, n_more: int, share: float, seed: int) -> None:
    train, held_back = split_rows(n_rows, share, seed, device=3)
    grown_train, grown_held_back = split_rows(n_rows + n_more, share, seed, device=3)

    assert sorted([*train, *held_back]) == list(range(n_rows))
    assert len(train) > 0
    assert int(n_rows * share) <= len(held_back) <= int(n_rows * share) + 1
    if len(held_back):
        assert set(train) <= set(grown_train)
        assert set(held_back) <= set(grown_held_back)


def test_another_seed_or_device_holds_back_other_rows() -> None:
    one, other_seed, other_device = (set(split_rows(1000, 0.2, *who)[1]) for who in ((0, 0), (1, 0), (0, 1)))

    assert len(one & other_seed) < 100
    assert len(one & other_device) < 100
