"""Feature means and mean pictures by class: by hand, from generated windows and from tiny picture files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.loaders.written import write_cifar_10
from tolfl.core.spec import DatasetSpec
from tolfl.datasets import RawData
from tolfl.datasets.loaders import load_public
from tolfl.experiments.paper.samples import Samples, feature_rows, picture_rows, report_of
from tolfl.experiments.paper.samples_report import distance
from tolfl.experiments.report import ExperimentReport
from tolfl.signals.statistics import STATISTICS

#: Two features; typical values lie between 0 and 4, and between 10 and 10.
TINY = RawData(
    "tiny",
    np.array([[0, 10], [2, 10], [4, 10], [6, 11], [8, 13]], np.float32),
    np.array(["normal", "normal", "normal", "odd", "odd"]),
    feature_names=("packets", "reading_0"),
)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep generated samples out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def report() -> ExperimentReport:
    experiment = Samples(quick=True)
    assert [step.what for step in experiment] == ["comms-ml"]
    return experiment.report


def test_means_spreads_and_scaled_means_are_those_by_hand() -> None:
    normal, odd = feature_rows(TINY, DatasetSpec())

    assert (normal["class"], normal["is_anomalous"], normal["n_samples"]) == ("normal", False, 3)
    assert (odd["class"], odd["is_anomalous"], odd["n_samples"]) == ("odd", True, 2)
    assert normal["means"] == [2, 10]
    assert odd["means"] == [7, 12]
    assert odd["stds"] == [1, 1]
    # Least typical value 0, greatest 4; the second feature has no range, so its distance to 10 stays as it is.
    assert odd["scaled_means"] == [7 / 4, 2]


def test_the_distance_of_two_classes_is_in_standard_deviations() -> None:
    normal, odd = feature_rows(TINY, DatasetSpec())

    # Variances 8/3 and 1 of the first feature, 0 and 1 of the second.
    assert distance(normal, odd) == pytest.approx([5 / np.sqrt((8 / 3 + 1) / 2), 2 / np.sqrt(0.5)])


@given(st.lists(st.floats(-9, 9), min_size=2, max_size=2), st.lists(st.floats(0, 3), min_size=2, max_size=2))
def test_a_class_is_nowhere_apart_from_itself(means: list[float], stds: list[float]) -> None:
    row = {"means": means, "stds": stds}

    assert distance(row, row).tolist() == [0, 0]


def test_generated_windows_have_every_statistic_with_its_unit(report: ExperimentReport) -> None:
    table = report.tables[0]

    assert len(table.rows) == len(STATISTICS) + 1
    assert table.columns == ("feature", "region-1", "region-2", "region-3", "rate*", "bluetooth*", "region-4*")
    units = {row[0].rsplit("(", 1)[-1].rstrip(")") for row in table.rows if "(" in row[0]}
    assert units == {"s", "bytes", "amplitude"}


def test_the_table_shows_the_means_of_the_rows(report: ExperimentReport) -> None:
    packets, readings = report.tables[0].rows[0], report.tables[0].rows[-1]

    assert packets[1:] == tuple(f"{row['means'][0]:.4g}" for row in report.rows)
    assert readings[1:] == tuple(f"{np.mean(row['means'][12:]):.3f}" for row in report.rows)


def test_a_busy_network_is_told_by_its_packets(report: ExperimentReport) -> None:
    evidence = report.verdicts[1].evidence

    busy = next(row for row in report.rows if row["class"] == "rate")
    assert busy["means"][0] > 2 * max(row["means"][0] for row in report.rows if not row["is_anomalous"])
    assert all(f"{name}: " in evidence for name in ("rate", "bluetooth", "region-4"))


def test_the_verdict_on_differences_follows_the_rows() -> None:
    rows = feature_rows(TINY, DatasetSpec())
    near = [rows[0], {**rows[1], "means": [2.1, 10.1], "stds": [1.0, 1.0]}]

    assert report_of(rows).verdicts[1].word == "held"
    assert report_of(near).verdicts[1].word == "not held"


def test_a_mean_picture_is_the_mean_of_its_class(tmp_path: Path) -> None:
    raw = load_public("cifar-10", str(write_cifar_10(tmp_path / "cifar-10-batches-bin").parent))
    rows = picture_rows(raw, DatasetSpec(typical=("0",), anomalous=("9",)))
    frogs, airplanes = (next(row for row in rows if row["class"] == name) for name in ("5", "0"))

    grey = raw.samples[raw.labels == "0"].mean() / 255
    assert airplanes["name"] == "airplane"
    assert airplanes["n_samples"] == 5
    assert airplanes["mean"] == pytest.approx([grey] * 1024, abs=5e-4)
    assert (airplanes["is_typical"], airplanes["is_anomalous"]) == (True, False)
    assert (frogs["is_typical"], frogs["is_anomalous"]) == (False, False)


def test_picture_sets_that_are_at_hand_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar_10(tmp_path / "cifar-10-batches-bin")
    monkeypatch.delenv("TOLFL_DATA", raising=False)

    full, quick = Samples(data_dir=str(tmp_path)), Samples(quick=True, data_dir=str(tmp_path))

    assert "cifar-10" in [spec.data for spec in full.specs]
    assert [spec.data for spec in quick.specs] == ["comms-ml"]


def test_pictures_get_a_figure_with_one_panel_per_class(tmp_path: Path) -> None:
    raw = load_public("cifar-10", str(write_cifar_10(tmp_path / "cifar-10-batches-bin").parent))
    found = report_of(picture_rows(raw, DatasetSpec(typical=("0",), anomalous=("9",))))
    panels = [axes for axes in found.figures["samples-pictures"]().axes if axes.images]

    assert [axes.get_title() for axes in panels] == [
        "airplane", "automobile", "bird", "cat", "deer", "dog", "truck*",
    ]  # fmt: skip
    assert "7 classes of 1 with 1024 features, printed 10 classes of 7,000" in found.verdicts[0].evidence


def test_stored_rows_give_the_same_report(report: ExperimentReport) -> None:
    again = report_of(json.loads(json.dumps(report.rows)))

    assert again.to_markdown() == report.to_markdown()


def test_the_figure_has_typical_readings_above_anomalous_ones(report: ExperimentReport) -> None:
    figure = report.figures["samples"]()
    panels = {axes.get_title(): len(axes.lines) for axes in figure.axes if axes.lines}

    assert panels == {"statistics of a window": 6, "first 50 radio readings, typical": 3, "anomalous": 3}


def test_an_experiment_that_was_stopped_has_no_report() -> None:
    experiment = Samples(quick=True)
    next(iter(experiment))

    with pytest.raises(LookupError, match="not finished"):
        _ = experiment.report
