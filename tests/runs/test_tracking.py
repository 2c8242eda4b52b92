"""What happens in a training, written as it happens and read back."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.detect.rows import fleet
from tolfl.core.errors import UnknownNameError
from tolfl.core.records import RoundClosed
from tolfl.core.spec import BlobsSpec, RunSpec
from tolfl.detect import DetectorSpec, fit_detector
from tolfl.runs.tracking import TrackingError, tracker_for
from tolfl.sim.simulation import Runs

SPEC = RunSpec(
    data="blobs", devices=4, clusters=2, rounds=6, fail="server@2;device:3@4", evaluate_every=2,
    blobs=BlobsSpec(samples_per_device=20, n_features=8, n_test=60),
)  # fmt: skip


def read(folder: Path) -> Any:
    reader = import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder))
    events.Reload()
    return events


def test_a_run_can_be_watched_in_tensorboard_while_it_goes_on(tmp_path: Path) -> None:
    runs = Runs(SPEC)
    n_seen = []
    with tracker_for("tensorboard", "run", str(tmp_path)) as tracker:
        for _ in runs:
            tracker.add_new(runs.simulations[0].records)
            tags = read(tmp_path / "run").Tags()["scalars"]
            n_seen.append(len(read(tmp_path / "run").Scalars("loss")) if "loss" in tags else 0)
        tracker.add_new(runs.results[0].records)
    events = read(tmp_path / "run")
    closed = [record for record in runs.results[0].records if isinstance(record, RoundClosed)]

    assert n_seen[3] >= 2  # not only in the end
    assert [point.step for point in events.Scalars("loss")] == [record.round for record in closed]
    assert [point.value for point in events.Scalars("loss")] == pytest.approx([record.loss for record in closed])
    assert [(point.step, point.value) for point in events.Scalars("failures")] == [(2, 1.0), (4, 2.0)]
    assert len(events.Scalars("auroc")) == 4  # three on the way, one in the end
    assert events.Scalars("auroc")[-1].value == pytest.approx(runs.results[0].summary["auroc"])
    said = [point.tensor_proto.string_val[0].decode() for point in events.Tensors("failure")]
    assert said == ["device 0 died (train)", "device 3 died (train)"]


def test_who_watches_a_training_is_told_after_each_round() -> None:
    spec = DetectorSpec(model="autoencoder", rounds=2, hidden=(4,), code=2, fail="device:1@2")
    seen: list[tuple[int, int]] = []
    watched = fit_detector(
        fleet((30, 30, 30)), spec, on_round=lambda one: seen.append((one.rounds_done, len(one.records)))
    )

    assert [n_rounds for n_rounds, _ in seen] == [1, 2, 3, 4, 5, 5]
    assert [n_records for _, n_records in seen] == sorted(n_records for _, n_records in seen)
    assert watched.to_bytes() == fit_detector(fleet((30, 30, 30)), spec).to_bytes()


def test_devices_have_names_and_trainings_prefixes(tmp_path: Path) -> None:
    runs = Runs(SPEC)
    for _ in runs:
        pass
    with tracker_for("tensorboard", "run", str(tmp_path), ["north", "south", "west", "east"]) as tracker:
        tracker.add_new(runs.results[0].records, "pca/")
        tracker.add_new(runs.results[0].records, "autoencoder/")
        tracker.result({"auroc": 0.5, "unknown": None})
    events = read(tmp_path / "run")

    assert {"pca/loss", "autoencoder/loss", "auroc"} <= set(events.Tags()["scalars"])
    assert "unknown" not in events.Tags()["scalars"]
    assert [point.value for point in events.Scalars("pca/failures")] == [1.0, 2.0]
    assert events.Tensors("pca/failure")[0].tensor_proto.string_val[0] == b"north died (train)"


@pytest.mark.filterwarnings("ignore")  # MLflow and its database library disagree about what is deprecated
@pytest.mark.slow  # three seconds, most of them to import MLflow
def test_mlflow_has_the_same_numbers(tmp_path: Path) -> None:
    mlflow = import_module("mlflow.tracking")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    runs = Runs(SPEC)
    with tracker_for("mlflow", "run", uri) as tracker:
        for _ in runs:
            tracker.add_new(runs.simulations[0].records)
        tracker.add_new(runs.results[0].records)
    client = mlflow.MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("tolfl").experiment_id])
    closed = [record for record in runs.results[0].records if isinstance(record, RoundClosed)]
    losses = client.get_metric_history(found.info.run_id, "loss")

    assert [(point.step, point.value) for point in losses] == [(record.round, record.loss) for record in closed]
    assert found.data.metrics["failures"] == 2.0
    assert found.data.tags["failure.round-2"] == "device 0 died (train)"


def test_what_cannot_be_tracked_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UnknownNameError, match="tensorboard, mlflow"):
        tracker_for("paper", "run")
    with pytest.raises(TrackingError, match="cannot be written"):
        tracker_for("tensorboard", "run", str(tmp_path / "file"))
