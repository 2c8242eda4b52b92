"""The estimator takes frames as `tolfl fit` takes tables: words, flags, dates, holes, a column of devices."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import tolfl
from tolfl.core.errors import DataError
from tolfl.detect import FederatedDetector
from tolfl.tables.arrow_values import plain

N = 120


def frame(seed: int = 0, n: int = N) -> pa.Table:
    rng = np.random.default_rng(seed)
    warm = rng.normal(20, 1, n)
    flow: list[float | None] = (2 * warm + rng.normal(0, 0.1, n)).tolist()
    flow[3] = None
    return pa.table(
        {
            "serial": np.arange(1000, 1000 + n),
            "site": [f"s{row % 3}" for row in range(n)],
            "warm": warm,
            "flow": flow,
            "mode": pa.array(["eco", "boost"] * (n // 2)).dictionary_encode(),
            "on": [True, False] * (n // 2),
            "day": [dt.date(2024, 1, 1 + row % 28) for row in range(n)],
        }
    )


@pytest.fixture(scope="module")
def detector() -> FederatedDetector:
    return FederatedDetector().fit(frame(), devices="site")


def test_words_flags_dates_holes_and_devices_are_taken_from_a_frame(detector: FederatedDetector) -> None:
    assert detector.devices_ == ("s0", "s1", "s2")
    assert detector.n_features_in_ == 6
    assert detector.feature_names_in_.tolist() == ["serial", "warm", "flow", "mode", "on", "day"]
    assert detector.detector_.schema is not None
    assert set(detector.detector_.schema.left_out) == {"serial", "day"}
    assert detector.detector_.features.n == 3 + 33


def test_the_columns_to_learn_from_can_be_chosen_as_on_the_command_line(caplog: pytest.LogCaptureFixture) -> None:
    FederatedDetector().fit(frame(), devices="site")
    assert "day (dates or times); to choose yourself: columns=['warm', 'flow', ...]" in caplog.text

    chosen = FederatedDetector(columns=["serial", "warm"]).fit(frame(), devices="site")
    fewer = FederatedDetector(ignore=["mode"]).fit(frame(), devices="site")

    assert chosen.detector_.features.names == ("serial", "warm")
    assert fewer.detector_.features.names == ("warm", "flow", "on")
    with pytest.raises(DataError, match="there is no column 'worm' of --ignore"):
        FederatedDetector(ignore=["worm"]).fit(frame(), devices="site")
    with pytest.raises(DataError, match="an array has none; give a frame"):
        FederatedDetector(columns=["x0"]).fit(np.zeros((20, 2)))


def test_a_frame_of_polars_is_taken_as_the_same_table_of_arrow() -> None:
    import polars

    rows = polars.DataFrame(frame())
    rows = rows.with_columns(mode=polars.col("mode").cast(polars.Categorical), on=polars.col("on").cast(polars.Int8))
    detector = FederatedDetector().fit(rows, devices="site")

    assert (
        detector.anomaly_score(rows).tolist()
        == FederatedDetector().fit(frame(), devices="site").anomaly_score(frame()).tolist()
    )
    numbers = FederatedDetector().fit(rows.select("warm", "flow"))
    assert str(numbers.explain(polars.Series([20.0, 40.0]))) == str(numbers.explain([20.0, 40.0]))
    with pytest.raises(DataError, match=r"X is a lazy frame, which has no rows yet; give X.collect\(\)"):
        detector.predict(rows.lazy())


def test_a_frame_of_pandas_is_taken_as_the_same_table_of_arrow(detector: FederatedDetector) -> None:
    import pandas

    table = frame()
    rows = table.to_pandas()
    fitted = FederatedDetector().fit(rows, devices="site")

    assert isinstance(rows["mode"].dtype, pandas.CategoricalDtype)
    assert (fitted.anomaly_score(rows) == detector.anomaly_score(table)).all()
    assert (fitted.anomaly_score(rows.convert_dtypes()[rows.columns[::-1]]) == detector.anomaly_score(table)).all()
    assert str(fitted.explain(rows.iloc[5])) == str(detector.explain(table.slice(5, 1)))
    with pytest.raises(DataError, match=r"^X: there are two columns 'warm'; give each a name of its own"):
        FederatedDetector().fit(rows[["warm", "warm"]])


def test_objects_of_several_types_in_a_column_are_what_they_are_in_a_file(tmp_path: Path) -> None:
    import pandas

    rng = np.random.default_rng(0)
    numbers = rng.normal(20, 1, N).round(3).tolist()
    holes: list[object] = [*numbers[:-2], "n/a", None]
    codes: list[object] = ["main", "spare", 7] * (N // 3)
    rows = pandas.DataFrame({"warm": numbers, "flow": pandas.Series(holes, dtype=object), "code": codes})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    text = pacsv.read_csv(tmp_path / "rows.csv")

    fitted = FederatedDetector().fit(rows)
    assert (fitted.anomaly_score(rows) == FederatedDetector().fit(text).anomaly_score(text)).all()
    assert fitted.detector_.features.n == 2 + 33


def test_the_example_of_the_reference_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "detector.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-W", "error", "-c", code]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "of typical rows expected to raise an alarm" in said


class Stream:
    """Rows that say nothing of themselves but how to get them, as those of a data base do."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def test_whatever_exports_a_stream_of_arrow_is_a_frame(detector: FederatedDetector) -> None:
    rows = frame(seed=1)
    fitted = FederatedDetector().fit(Stream(frame()), devices="site")

    assert (fitted.predict(Stream(rows), devices="site") == detector.predict(rows, devices="site")).all()
    assert (fitted.anomaly_score(Stream(rows)) == detector.anomaly_score(rows)).all()
    assert len(fitted.predict(Stream(rows.slice(0, 0)))) == 0


def test_a_stream_that_can_be_read_once_is_trained_on_and_scored(detector: FederatedDetector) -> None:
    fitted = FederatedDetector().fit(frame().to_reader(50), devices="site")
    rows = frame(seed=1)

    assert (fitted.predict(rows.to_reader(50), devices="site") == detector.predict(rows, devices="site")).all()


def test_text_of_any_encoding_of_arrow_is_words() -> None:
    views = pa.array(["eco", "boost"], pa.string_view())
    modes = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.uint32()), views)
    chunks = pa.chunked_array([modes, modes.slice(1)])

    assert plain(chunks).to_pylist() == ["eco", "boost", None, "boost", None]
    assert plain(chunks.slice(0, 0)).to_pylist() == []


def test_columns_are_found_by_name_and_further_ones_change_nothing(detector: FederatedDetector) -> None:
    rows = frame(seed=1)
    moved = rows.select(["on", "mode", "flow", "warm"]).append_column("new", pa.array(["?"] * N))

    assert (detector.anomaly_score(moved) == detector.anomaly_score(rows)).all()
    with pytest.raises(DataError, match="no column for 1 of 4 columns: 'warm'"):
        detector.predict(rows.drop_columns(["warm"]))


def test_a_word_that_nobody_has_seen_is_an_alarm_of_its_column(detector: FederatedDetector) -> None:
    odd = frame().slice(0, 1).set_column(4, "mode", pa.array(["unheard"]))

    assert detector.predict(odd).tolist() == [-1]
    found = detector.explain(odd).features
    assert (found[0].name, found[0].has_no_number) == ("mode", True)
    assert str(found[0]).startswith("mode (")
    assert len(found) == 4  # columns, not hashes of words


def test_a_saved_detector_comes_back_with_all_its_methods(detector: FederatedDetector, tmp_path: Path) -> None:
    again = tolfl.load(detector.save(tmp_path / "m.tolfl"))
    rows = frame(seed=2)

    assert (again.predict(rows, devices="site") == detector.predict(rows, devices="site")).all()
    assert (again.p_values(rows) == detector.p_values(rows)).all()
    assert again.get_params() == detector.get_params()
    assert "not learned from" in again.detector_._repr_html_()


def test_missing_values_in_an_array_are_taken_as_usual_ones() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    rows[5, 1] = np.nan

    assert np.isfinite(FederatedDetector().fit(rows).anomaly_score(rows)).all()


@pytest.mark.parametrize("labels", [(0, 1), (1, -1), (0.0, 1.0), ("0.0", "1.0"), ("normal", "leak"), (False, True)])
def test_two_classes_train_on_the_typical_one_and_say_so(
    labels: tuple[object, object], caplog: pytest.LogCaptureFixture
) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    rows[:10] += 50
    y = np.array([labels[1]] * 10 + [labels[0]] * 50)
    with_y, without = FederatedDetector().fit(rows, y), FederatedDetector().fit(rows[10:])

    assert with_y.threshold_ == without.threshold_
    assert "trained on the 50 typical rows of 60" in caplog.text


def test_of_several_classes_those_that_are_typical_by_their_names_train() -> None:
    rows = np.random.default_rng(0).normal(size=(90, 3))
    rows[::3] += 50
    classes = ["scan", "normal", "benign"] * 30

    assert (
        FederatedDetector().fit(rows, classes).threshold_
        == FederatedDetector().fit(rows[np.arange(90) % 3 > 0]).threshold_
    )
    classes[0] = None  # type: ignore[call-overload]
    assert FederatedDetector().fit(rows, classes).detector_.trainings[0].n_samples == 48


@pytest.mark.parametrize("unknown", [None, np.nan])
def test_rows_without_a_label_do_not_train(unknown: object) -> None:
    rows = np.random.default_rng(0).normal(size=(90, 3))
    labels = [0, 1, unknown] * 30
    floats = np.array([0.0, 1.0, np.nan] * 30)

    alone = FederatedDetector().fit(rows[::3]).threshold_
    assert FederatedDetector().fit(rows, labels).threshold_ == alone
    assert FederatedDetector().fit(rows, floats[:, None]).threshold_ == alone


@pytest.mark.parametrize("labels", [(2, 5), ("leak", "burst"), (1.5, 2.5), (0, "leak"), ("normal", "ok")])
def test_what_y_says_of_nothing_typical_is_not_used_and_the_log_says_so(
    labels: tuple[object, object], caplog: pytest.LogCaptureFixture
) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))

    assert FederatedDetector().fit(rows, labels * 30).threshold_ == FederatedDetector().fit(rows).threshold_
    assert caplog.text.count("trained on all 60 rows") == 1


def test_a_y_of_another_length_is_one_sentence() -> None:
    with pytest.raises(DataError, match="y has 2 values for 60 rows"):
        FederatedDetector().fit(np.zeros((60, 3)), [0, 1])


def test_a_column_of_one_device_is_one_sentence() -> None:
    rows = frame().drop_columns("site").append_column("site", pa.array(["mill"] * N))

    with pytest.raises(DataError, match="X: column 'site' names one device, mill, which has all the rows"):
        FederatedDetector().fit(rows, devices="site")


@pytest.mark.parametrize("nobody", [None, np.nan])
def test_a_row_of_no_device_is_one_sentence(nobody: object) -> None:
    with pytest.raises(DataError, match="devices has no name for row 1"):
        FederatedDetector().fit(np.zeros((20, 3)), devices=np.array([7, nobody] * 10, dtype=object))


@pytest.mark.parametrize("sites", [[0, 1, 2], [0.0, 1.0, 2.0], [0.5, 1.0, 2.25], [True, False, True], ["a", " b", "c"]])
def test_a_device_has_one_name_in_a_column_and_in_an_array(sites: list[float] | list[str]) -> None:
    rows, given = frame().select(["warm", "flow"]), np.array(sites * (N // 3))
    of_column = FederatedDetector().fit(rows.append_column("site", pa.array(given)), devices="site")
    of_array = FederatedDetector().fit(rows, devices=given)

    assert of_array.devices_ == of_column.devices_
    assert of_array.thresholds_ == of_column.thresholds_


def test_an_array_for_a_detector_of_a_frame_is_one_sentence(detector: FederatedDetector) -> None:
    numbers = FederatedDetector().fit(frame().select(["serial", "warm", "flow"]))

    for fitted in (detector, numbers):
        with pytest.raises(DataError, match="trained on a frame with words, or columns left out; give such a frame"):
            fitted.predict(np.zeros((2, fitted.n_features_in_)))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (np.array([[1.0, np.inf]] * 20), "contains infinity in column 'x1'"),
        (pa.table({"a": ["x", "y"] * 10}), "only words are there"),
        (pa.table({"a": [1.0] * 19 + [float("inf")]}), "infinite"),
    ],
)
def test_what_cannot_be_trained_on_is_one_sentence(rows: object, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        FederatedDetector().fit(rows)


def test_an_array_has_no_column_of_devices() -> None:
    with pytest.raises(DataError, match="devices='site' names a column"):
        FederatedDetector().fit(np.ones((20, 2)), devices="site")
    with pytest.raises(DataError, match=r"there is no column 'sit' for the device; .*; did you mean 'site'"):
        FederatedDetector().fit(frame(), devices="sit")
