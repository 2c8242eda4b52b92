"""A device finds the fleet's columns in its own table by name, or says in one sentence which one it lacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tolfl.core.errors import DataError, SpecError, TolFLError
from tolfl.core.spec import RunSpec
from tolfl.datasets import load_raw
from tolfl.datasets.own_table import own_rows, table_spec
from tolfl.runs.outcome import data_for
from tolfl.tables import Column

WORDS = Column("mode", "words").features
FLEET = ("warm", "flow", *WORDS)


def rows_of(folder: Path, text: str, columns: tuple[str, ...] = FLEET, **dataset: object) -> np.ndarray:
    path = folder / "own.csv"
    path.write_text(text)
    learn = {"what": "detector", "columns": list(columns)}
    spec = table_spec(RunSpec.from_fields({"dataset": dataset, "learn": learn}), str(path))
    return own_rows(load_raw(spec), spec, columns)


def test_columns_are_found_by_name_in_any_order_and_others_are_left_alone(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "note,flow,mode,warm\n7,1,eco,20\n8,2,off,21\n")

    assert rows[:, :2].tolist() == [[20, 1], [21, 2]]
    assert rows[:, 2:34].sum(axis=1).tolist() == [1, 1]
    assert rows.dtype == np.float32


def test_codes_are_words_where_one_of_them_is_no_number(tmp_path: Path) -> None:
    assert rows_of(tmp_path, "warm,flow,mode\n20,1,404\n21,2,A12\n").shape == (2, 35)


def test_codes_of_a_fleet_may_all_be_numbers_on_one_device(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("warm,flow,mode\n20,1,404\n21,2,500\n")
    learn = {"what": "detector", "columns": list(FLEET), "schema": {"codes": ["mode"]}}
    spec = table_spec(RunSpec.from_fields({"learn": learn}), str(path))

    assert own_rows(load_raw(spec), spec, FLEET)[:, 2:34].sum(axis=1).tolist() == [1, 1]


def test_what_looks_like_an_identifier_here_is_a_warning_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "warm,flow,mode\n" + "".join(f"{100 + row},{row % 7}.5,eco\n" for row in range(60))

    assert rows_of(tmp_path, text).shape == (60, 35)
    assert "column 'warm' is learned from as asked: whole numbers, nearly all different" in caplog.text


def test_rows_of_an_anomalous_class_do_not_train(tmp_path: Path) -> None:
    text = "warm,flow,mode,state\n20,1,eco,normal\n90,9,off,leak\n"

    assert rows_of(tmp_path, text, label_column="state")[:, :2].tolist() == [[20, 1]]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("wram,flow,mode\n20,1,eco\n", "no column 'warm'.* did you mean 'wram'"),
        ("warm,flow,mode\nhot,1,eco\n", "'hot' in column 'warm' is no number"),
        ("warm,flow\n20,1\n", "no column 'mode'"),
        ("warm,flow,mode\n20,1,3\n21,2,4\n", "column 'mode' holds numbers, and the fleet learns words there"),
        ("warm,flow,mode\n20,1,eco\n21,,eco\n", "data row 2: 'flow' is missing"),
    ],
)
def test_what_does_not_fit_the_fleet_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        rows_of(tmp_path, text)


def test_the_columns_of_one_table_are_what_a_fleet_can_agree_on(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("warm,mode\n20,eco\n21,off\n")
    raw = load_raw(table_spec(RunSpec(), str(path)))

    assert raw.names == ("warm", *WORDS)


def test_what_a_table_leaves_open_is_read_as_the_fleet_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("warm;flow\n1.234;2\n")  # with points: 1.234, or a thousand

    def warm(**learn: object) -> float:
        fields = {"learn": {"what": "detector", "columns": ["warm", "flow"], **learn}}
        spec = table_spec(RunSpec.from_fields(fields), str(path))
        return float(own_rows(load_raw(spec), spec, ("warm", "flow"))[0, 0])

    assert [warm(), warm(schema={"decimal": ","})] == pytest.approx([1.234, 1234.0])
    path.write_text("warm;flow\n1,5;2\n")
    assert warm(schema={}) == 1.5
    for wrong in ({"decimal": "x"}, {"mark": ","}, ","):
        with pytest.raises(SpecError, match=r"learn.schema: .*; tolfl data describe TABLE --columns writes it"):
            warm(schema=wrong)


# -- all tables in one place: the simulator and `tolfl up` ------------------------------------------------------------

N_TIMES = 5  #: so often stands every row there, so that they are enough for a detector
TOGETHER = "site,warm,flow,mode\n" + "mill,1,2,eco\nkiln,3,4,off\nmill,5,6,eco\n" * N_TIMES


def run_of(folder: Path, **learn: object) -> RunSpec:
    path = folder / "readings.csv"
    path.write_text(TOGETHER)
    dataset = {"device_column": "site"}
    return RunSpec.from_fields(
        {"data": str(path), "devices": 2, "clusters": 2, "dataset": dataset, "learn": {"what": "detector", **learn}}
    )


def test_all_tables_in_one_place_have_the_columns_of_the_specification_in_its_order(tmp_path: Path) -> None:
    data = data_for(run_of(tmp_path, columns=[*WORDS, "flow", "warm"]))

    assert data.feature_names == (*WORDS, "flow", "warm")
    assert data.names == ("kiln", "mill")
    assert data.slice_of(0)[:, 33:].tolist() == [[4, 3]] * N_TIMES
    assert data.slice_of(1)[:, 33:].tolist() == [[2, 1], [6, 5]] * N_TIMES


def test_all_tables_in_one_place_have_the_devices_of_the_specification_in_its_order(tmp_path: Path) -> None:
    data = data_for(run_of(tmp_path, columns=["flow"], names=["mill", "kiln"]))

    assert data.names == ("mill", "kiln")
    assert [data.slice_of(device).tolist() for device in range(2)] == [[[2], [6]] * N_TIMES, [[4]] * N_TIMES]
    assert data_for(run_of(tmp_path, names=["a", "b"])).names == ("a", "b")


def test_fewer_rows_than_a_detector_takes_are_one_sentence(tmp_path: Path) -> None:
    spec = run_of(tmp_path)
    Path(spec.data).write_text("site,warm\n" + "mill,1\nkiln,2\n" * 4)

    with pytest.raises(DataError, match="n_samples=8: too few rows to train on; detector takes at least 10"):
        data_for(spec)


@pytest.mark.parametrize(
    ("learn", "sentence"),
    [
        ({"columns": ["wram"]}, "no column 'wram'.* did you mean 'warm'"),
        ({"columns": ["flow", "mode"]}, "no column 'mode', which the fleet has"),
        ({"columns": ["flow", "flow"]}, "learn.columns: a name occurs twice"),
        ({"columns": "flow"}, "learn.columns: 'flow'; give a list of names"),
        ({"names": ["mill", "klin"]}, "no rows of 'klin', which learn.names has; there are rows of kiln, mill"),
        ({"names": ["mill"]}, "1 names for 2 devices; give one each"),
    ],
)
def test_what_all_tables_together_lack_is_one_sentence(tmp_path: Path, learn: dict[str, object], sentence: str) -> None:
    with pytest.raises(TolFLError, match=sentence):
        data_for(run_of(tmp_path, **learn))
