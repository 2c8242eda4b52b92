"""Rows from files and pipes: matched by name, cut anywhere, and a bad one spoils no other."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.detect.rows import fleet, near_a_plane
from tolfl.core.errors import DataError, SpecError
from tolfl.detect import Detector, DetectorSpec, fit_detector
from tolfl.detect.features import Features
from tolfl.detect.gathering import is_anomalous
from tolfl.detect.matching import Matching, as_column, names_in
from tolfl.detect.scored import score_rows
from tolfl.detect.sources import tables_from, tables_in
from tolfl.detect.streams import ColumnRoles, ReadBatch, Reader, Table

NAMES = ("a", "b [dB]", "c", "d", "e", "f")
ROWS = near_a_plane(40, seed=3)


@pytest.fixture(scope="module")
def detector() -> Detector:
    return _detector()


def _detector() -> Detector:
    return fit_detector(fleet((120, 120)), DetectorSpec(model="pca", n_components=2), Features.named(NAMES))


class Trickle(io.RawIOBase):
    """A pipe that gives what was put into it in pieces of given sizes, as a slow sensor would."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        super().__init__()
        edges = np.cumsum([0, *sizes]).tolist()
        self._pieces = [data[first:last] for first, last in zip(edges, [*edges[1:], None], strict=True)]

    def read1(self, _size: int) -> bytes:
        while self._pieces:
            piece = self._pieces.pop(0)
            if piece:
                return piece
        return b""


def csv_of(rows: np.ndarray, names: tuple[str, ...] = NAMES) -> str:
    return "\n".join([",".join(names), *(",".join(map(repr, row)) for row in rows.tolist())])


def read(detector: Detector, data: bytes, sizes: list[int], roles: ColumnRoles | None = None) -> list[ReadBatch]:
    reader = Reader(detector, roles)
    return list(reader.batches(tables_from(Trickle(data, sizes))))  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 200), max_size=30), st.booleans(), st.booleans())
def test_where_a_pipe_is_cut_changes_nothing(sizes: list[int], is_json: bool, has_last_newline: bool) -> None:
    detector = _kept()
    text = csv_of(ROWS)
    if is_json:
        text = "\n".join(json.dumps(dict(zip(NAMES, row, strict=True))) for row in ROWS.tolist())
    batches = read(detector, (text + "\n" * has_last_newline).encode(), sizes)

    assert (np.concatenate([batch.rows for batch in batches]) == ROWS).all()
    assert np.concatenate([batch.numbers for batch in batches]).tolist() == list(range(1, 41))
    assert not any(batch.problems for batch in batches)


_detectors: list[Detector] = []


def _kept() -> Detector:
    if not _detectors:
        _detectors.append(_detector())
    return _detectors[0]


@given(st.permutations(range(6)), st.sets(st.sampled_from(["x", "y", "b2"])))
def test_the_order_of_columns_and_further_ones_change_nothing(order: list[int], more: set[str]) -> None:
    columns = {NAMES[place]: pa.chunked_array([ROWS[:, place]]) for place in order}
    columns |= {name: pa.chunked_array([["?"] * 40]) for name in more}
    matching = Matching.of(Features.named(NAMES), list(columns))
    rows, problems = matching.rows(columns)

    assert (rows == ROWS).all()
    assert problems == {}
    assert set(matching.ignored) == more


@given(st.lists(st.sampled_from(["1.5", " 2 ", "-3e2", ".5", "true", "", "NA", "x", "1,5", "inf"]), min_size=1))
def test_each_value_is_a_number_or_missing_or_has_a_sentence(texts: list[str]) -> None:
    known = {"1.5": 1.5, " 2 ": 2.0, "-3e2": -300.0, ".5": 0.5, "true": 1.0}
    matching = Matching.of(Features.named(["v"]), ["v"])
    rows, problems = matching.rows({"v": as_column(texts)})

    assert [row for row, text in enumerate(texts) if text in {"x", "1,5", "inf"}] == sorted(problems)
    for row, text in enumerate(texts):
        assert rows[row, 0] == known[text] if text in known else np.isnan(rows[row, 0])


def test_a_feature_without_a_column_is_named(detector: Detector) -> None:
    with pytest.raises(DataError, match="no column for 2 of 6 features: 'b', 'd'; the columns are a, c, e, f"):
        Matching.of(detector.features, ["a", "c", "e", "f"])


def test_a_name_with_an_equals_sign_is_a_column_first() -> None:
    features = Features.named(["x=y", "x=z=w"])

    assert [(one.column, one.category) for one in Matching.of(features, ["x=y", "x"]).sources] == [
        ("x=y", None),
        ("x", "z=w"),
    ]


def test_devices_go_by_the_names_they_had_in_training() -> None:
    rows = {"7": ROWS, "site 8": ROWS}
    detector = fit_detector(rows, DetectorSpec(model="pca"), Features.named(NAMES))
    reader = Reader(detector, ColumnRoles(device="who"))
    columns = {name: pa.chunked_array([ROWS[:3, place]]) for place, name in enumerate(NAMES)}
    columns["who"] = pa.chunked_array([["07", "site 8", "9.0"]])
    (batch,) = reader.batches([Table(columns, 0, "here")])

    assert batch.devices is not None
    assert batch.devices.tolist() == ["7", "site 8", "9.0"]
    assert reader.unknown_devices == {"9.0": 1}
    assert names_in(pa.chunked_array([[1.0, 2.5, None]])) == ["1", "2.5", None]


def test_a_folder_has_one_device_per_file(detector: Detector, tmp_path: Path) -> None:
    for name in ("site-0", "site-1"):
        (tmp_path / f"{name}.csv").write_text(csv_of(ROWS[:5]))
    reader = Reader(detector)
    batches = list(reader.batches(tables_in(tmp_path, reader)))

    assert [set(batch.devices.tolist()) for batch in batches if batch.devices is not None] == [{"site-0"}, {"site-1"}]


def detectors() -> dict[str, Detector]:
    """Return detectors of three sites, one of them with two models."""
    small = DetectorSpec(model="autoencoder", rounds=4, hidden=(8,), code=2)
    specs = {"cells": DetectorSpec(), "pca": DetectorSpec(model="pca"), "autoencoder": small}
    slices = {**fleet((120, 120)), "large": near_a_plane(700, seed=9)}
    return {name: fit_detector(slices, spec, Features.named(NAMES)) for name, spec in specs.items()}


@pytest.mark.parametrize("name", ["cells", "pca", "autoencoder"])
def test_what_is_said_of_many_rows_is_what_is_said_of_each(name: str) -> None:
    detector = detectors()[name]
    if name == "cells":
        detector = detector.with_own_cells({"nobody": 3 + near_a_plane(20, seed=4)})
    devices = np.array(["site-0", "nobody", "large", "site-1"] * 10)
    scored = score_rows(detector, ROWS, devices, n_top=4)
    alone = [detector.explain(row, device) for row, device in zip(ROWS, devices.tolist(), strict=True)]

    assert scored.scores.tolist() == [one.score for one in alone]
    assert scored.p_values.tolist() == [one.p_value for one in alone]
    assert (scored.is_alarm == detector.verdicts(ROWS, devices)).all()
    for row, one in enumerate(alone):
        found = scored.top_features(row)
        assert [feature.name for feature in found] == [feature.name for feature in one.features[:4]]
        assert [feature.share for feature in found] == pytest.approx([f.share for f in one.features[:4]], abs=1e-6)
        assert [feature.expected for feature in found] == pytest.approx([f.expected for f in one.features[:4]])


def test_features_may_be_named_for_alarms_alone(detector: Detector) -> None:
    rows = np.concatenate([ROWS[:5], ROWS[:5] + 9.0])
    every, few = score_rows(detector, rows), score_rows(detector, rows, only_alarms=True)

    assert few.is_alarm.any()
    assert (few.scores == every.scores).all()
    for row in np.flatnonzero(few.is_alarm).tolist():
        assert few.top_features(row) == every.top_features(row)


def test_truth_comes_from_names_or_is_asked_for() -> None:
    labels = np.array(["x", "y", "x"])

    assert is_anomalous(labels, ["x"]).tolist() == [False, True, False]
    with pytest.raises(SpecError, match="--typical x"):
        is_anomalous(labels)
