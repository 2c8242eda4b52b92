"""Bad inputs: one clear sentence each, or sensible behaviour."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from tests.detect.rows import near_a_plane
from tolfl.core.errors import DataError, SpecError
from tolfl.core.spec import RunSpec
from tolfl.detect import Detector, DetectorSpec, Features, FederatedDetector, fit_detector
from tolfl.detect.fitting import load_training_rows

X = near_a_plane(100)
FITTED = FederatedDetector(model="pca", features=list("abcdef"), units={"b": "dBm"}).fit(X)
BARE: Detector = FITTED.detector_


def test_a_wrong_number_of_features_is_named() -> None:
    with pytest.raises(ValueError, match="X has 5 features, but FederatedDetector is expecting 6"):
        FITTED.predict(X[:, :5])
    with pytest.raises(DataError, match="X has 5 features, but the detector was trained on 6"):
        BARE.anomaly_score(X[:, :5])


def test_a_value_that_is_infinite_is_named_with_its_column() -> None:
    bad = X.copy()
    bad[7, 2] = np.inf
    for use in (FITTED.predict, BARE.anomaly_score, FITTED.fit_more, FITTED.drift):
        with pytest.raises(DataError, match="contains infinity in column 'c' \\(first in row 7\\)"):
            use(bad)


def test_text_is_no_number() -> None:
    words = np.array([["a", "b"], ["c", "d"]], dtype=object)
    with pytest.raises(ValueError, match="could not convert"):
        FederatedDetector().fit(words)
    with pytest.raises(DataError, match="a value that is not a number"):
        BARE.anomaly_score(words)


@pytest.mark.parametrize("model", ["pca", "mahalanobis"])
def test_a_constant_column_is_learned_and_noticed_when_it_changes(model: str) -> None:
    rows = np.column_stack([X, np.full(len(X), 7.0)])
    detector = FederatedDetector(model=model, n_components=2).fit(rows)
    changed = rows[:1] + np.array([0, 0, 0, 0, 0, 0, 5.0])

    assert np.isfinite(detector.anomaly_score(rows)).all()
    assert detector.predict(changed).tolist() == [-1]
    assert detector.explain(changed[0]).features[0].name == "x6"
    assert detector.explain(changed[0]).features[0].expected == pytest.approx(7.0, abs=1e-5)


@pytest.mark.parametrize("model", ["pca", "mahalanobis"])
def test_only_constant_columns_are_a_point(model: str) -> None:
    detector = FederatedDetector(model=model).fit(np.ones((20, 3)))

    assert detector.predict([[1.0, 1.0, 1.0], [1.0, 2.0, 1.0]]).tolist() == [1, -1]


def test_a_device_with_one_row_takes_part() -> None:
    devices = np.repeat(["many", "one"], [99, 1])
    detector = FederatedDetector(model="pca").fit(X, devices=devices)
    shares = {share.name: share for share in detector.detector_.trainings[0].devices}

    assert (shares["one"].n_trained, shares["one"].n_held_back, shares["one"].rounds) == (1, 0, 4)
    assert detector.thresholds_.devices["one"].own is None


def test_a_device_that_is_not_known_has_the_threshold_of_the_fleet() -> None:
    assert (FITTED.predict(X, devices=["stranger"] * 100) == FITTED.predict(X)).all()


@pytest.mark.parametrize("empty", [np.empty((0, 6)), []], ids=["array", "list"])
def test_an_empty_stream_has_no_scores(empty: object) -> None:
    assert FITTED.anomaly_score(empty).shape == (0,)
    assert FITTED.predict(empty).shape == (0,)
    assert FITTED.p_values(empty).shape == (0,)
    assert BARE.anomaly_score(empty).shape == (0,)
    assert BARE.verdicts(empty, devices=[]).shape == (0,)


def test_devices_must_be_as_many_as_rows() -> None:
    with pytest.raises(DataError, match=r"devices has shape \(3,\) for 100 rows; give one device per row"):
        FederatedDetector().fit(X, devices=[1, 2, 3])


def test_nothing_to_train_on_is_said() -> None:
    with pytest.raises(DataError, match="no device has a row"):
        fit_detector({"a": np.empty((0, 3))}, DetectorSpec())
    with pytest.raises(DataError, match="give at least one table"):
        fit_detector({}, DetectorSpec())
    with pytest.raises(DataError, match="one row per sample"):
        fit_detector({"a": np.zeros(3)}, DetectorSpec())


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model": "forest"}, "unknown model 'forest'; choose one of: cells"),
        ({"scheme": "tolfl"}, "unknown scheme 'tolfl'"),
        ({"contamination": 0.7}, "contamination 0.7; use 'auto', or a share"),
        ({"false_alarm_rate": 0.0}, "a false-alarm budget of 0 per sample"),
        ({"alarms_per_day": 3.0}, "alarms_per_day and windows_per_day go together"),
        ({"trim": 0.9}, "trim 0.9; use a share from 0 to 0.5"),
        ({"rounds": 0}, "rounds 0; use at least 1"),
        ({"n_components": -1}, "n_components -1; use at least 0"),
        ({"n_components": 9, "model": "pca"}, "n_components 9 for 6 features"),
        ({"fail": "server@50"}, "round 50 never comes"),
        ({"features": ["a"]}, "1 feature names for 6 columns"),
        ({"units": ["m"]}, "1 units for 6 features"),
        ({"units": {"nowhere": "m"}}, "a unit is given for 'nowhere', which is no feature"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_a_wrong_setting_is_named(settings: dict[str, object], problem: str) -> None:
    with pytest.raises((SpecError, DataError), match=problem):
        FederatedDetector(**settings).fit(X)  # type: ignore[arg-type]


def test_more_clusters_than_devices_are_refused() -> None:
    with pytest.raises(SpecError, match="3 clusters for 2 devices; use at most 2"):
        FederatedDetector(model="pca", clusters=3).fit(X, devices=np.arange(100) % 2)


def test_names_and_units_come_with_an_arrow_table() -> None:
    fields = [pa.field("rssi", pa.float64(), metadata={"unit": "dBm"}), pa.field("rate [Hz]", pa.float32())]
    table = pa.table([X[:, 0], X[:, 1].astype(np.float32)], schema=pa.schema(fields))
    detector = FederatedDetector(model="pca").fit(table)

    assert detector.detector_.features == Features(("rssi", "rate"), ("dBm", "Hz"))
    assert detector.predict(table).shape == (100,)
    turned = table.select([1, 0])
    assert detector.detector_.anomaly_score(turned).tolist() == detector.anomaly_score(table).tolist()
    with pytest.raises(DataError, match="no column for 1 of 2 columns: 'rssi'; it has rate, gain"):
        detector.detector_.anomaly_score(turned.rename_columns(["rate", "gain"]))


def test_units_stand_in_brackets_or_are_given() -> None:
    assert Features.named(["a [m/s]", "b"]) == Features(("a", "b"), ("m/s", ""))
    assert Features.named(["a", "b"], ["x", "y"]).units == ("x", "y")
    assert FITTED.detector_.features.units == ("", "dBm", "", "", "", "")


def test_only_one_sample_is_explained_at_a_time() -> None:
    with pytest.raises(DataError, match="explain takes one sample, not 2"):
        FITTED.explain(X[:2])


def test_nobody_is_left() -> None:
    with pytest.raises(RuntimeError, match="training ended without a model"):
        FederatedDetector(model="pca", fail="server@0").fit(X)


def test_constant_columns_are_told_unless_most_are_constant_as_the_edges_of_pictures_are(tmp_path: Path) -> None:
    notes = {}
    for n_constant in (1, 4):
        path = tmp_path / f"{n_constant}.csv"
        columns = {name: X[:, place] for place, name in enumerate("abc")}
        columns |= {f"still{place}": np.full(len(X), 7.5) for place in range(n_constant)}
        pacsv.write_csv(pa.table(columns), path)
        _, notes[n_constant] = load_training_rows(RunSpec(data=str(path), devices=2, clusters=1), n_devices=2)

    assert any("constant in all training rows" in note and "still0" in note for note in notes[1])
    assert not any("constant" in note for note in notes[4])
