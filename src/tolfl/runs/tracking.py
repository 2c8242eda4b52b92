"""What happens in a run, written to TensorBoard or MLflow as it happens: loss, AUROC, devices, failures.

A tracker gets records, nothing else, so whatever writes records can be tracked: a simulation, a detector in training,
a real network.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from tolfl.core.errors import SpecError, TolFLError, UnknownNameError
from tolfl.core.records import AnyRecord, Evaluated, FailureHappened, RoundClosed, Scored, TakenOver
from tolfl.runs.failure_history import describe

EXPERIMENT = "tolfl"


class TrackingError(TolFLError, OSError):
    """What happened cannot be written where it was asked for."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"tracking to {where}: {problem}")
        self.where, self.problem = where, problem


class Store(Protocol):
    """Where numbers and texts go."""

    def number(self, name: str, value: float, step: int) -> None:
        """Write one point of a curve."""

    def text(self, name: str, text: str, step: int) -> None:
        """Write a sentence."""

    def flush(self) -> None:
        """Let others see what was written."""

    def close(self) -> None:
        """Write what is left; the run is over."""


class Tracker:
    """Writes what records say; use it as a context, so that the store is closed."""

    def __init__(self, store: Store, device_names: Sequence[str] = ()) -> None:
        self._store, self._device_names = store, device_names
        self._prefix = ""
        self._n_failures: Counter[str] = Counter()
        self._n_added: Counter[str] = Counter()
        self._last_round = 0

    def add(self, records: Sequence[AnyRecord], prefix: str = "") -> None:
        """Write new records; a prefix keeps several trainings of one run apart."""
        self._prefix = prefix
        for record in records:
            self._write(record)
        if records:
            self._store.flush()

    def add_new(self, records: Sequence[AnyRecord], prefix: str = "") -> None:
        """Write what is new in a list of records that grows."""
        first = self._n_added[prefix]
        self._n_added[prefix] = len(records)
        self.add(records[first:], prefix)

    def result(self, numbers: Mapping[str, float | None]) -> None:
        """Write what is known in the end, at the last round."""
        self._prefix = ""
        for name, value in numbers.items():
            self._number(name, value, self._last_round)
        self._store.flush()

    def _write(self, record: AnyRecord) -> None:
        step = self._last_round if record.round is None else record.round
        self._last_round = max(self._last_round, step)
        match record:
            case RoundClosed():
                self._number("loss", record.loss, step)
                self._number("devices", len(record.included), step)
            case Evaluated():
                self._number("auroc", record.auroc, step)
            case Scored():
                self._number("auroc", record.auroc, step)
                self._number("average precision", record.average_precision, step)
            case FailureHappened():
                self._n_failures[self._prefix] += 1
                self._number("failures", self._n_failures[self._prefix], step)
                self._store.text(f"{self._prefix}failure", self._described(record), step)
            case TakenOver():
                self._store.text(f"{self._prefix}takeover", self._described(record), step)
            case _:
                pass  # beginnings, ends and returns are no numbers

    def _described(self, record: AnyRecord) -> str:
        """Return what happened in the words of the report, with the names of devices that have one."""
        names = dict(enumerate(self._device_names))
        return re.sub(r"\bdevice (\d+)\b", lambda found: names.get(int(found[1]), found[0]), describe(record))

    def _number(self, name: str, value: float | None, step: int) -> None:
        if value is not None:
            self._store.number(self._prefix + name, float(value), step)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()


class TensorBoardStore:
    """Event files in a folder, for `tensorboard --logdir`."""

    def __init__(self, folder: Path) -> None:
        writer = import_module("tensorboard.summary.writer.event_file_writer")
        self._summary = import_module("tensorboard.compat.proto.summary_pb2")
        self._event = import_module("tensorboard.compat.proto.event_pb2")
        self._tensor = import_module("tensorboard.compat.proto.tensor_pb2")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = writer.EventFileWriter(str(folder))
        except OSError as error:
            raise TrackingError(str(folder), f"cannot be written ({error.strerror}); choose another place") from None

    def number(self, name: str, value: float, step: int) -> None:
        """Add a scalar."""
        self._add(self._summary.Summary.Value(tag=name, simple_value=value), step)

    def text(self, name: str, text: str, step: int) -> None:
        """Add a text, as TensorBoard's text plugin has them."""
        plugin = self._summary.SummaryMetadata.PluginData(plugin_name="text")
        tensor = self._tensor.TensorProto(dtype="DT_STRING", string_val=[text.encode()])
        metadata = self._summary.SummaryMetadata(plugin_data=plugin)
        self._add(self._summary.Summary.Value(tag=name, metadata=metadata, tensor=tensor), step)

    def _add(self, value: object, step: int) -> None:
        summary = self._summary.Summary(value=[value])
        self._writer.add_event(self._event.Event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        """Bring events to the file."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class MLflowStore:
    """A run of the experiment `tolfl` on an MLflow server, or in a database file."""

    def __init__(self, uri: str, name: str) -> None:
        module = import_module("mlflow.tracking")
        problems = import_module("mlflow.exceptions")
        try:
            self._client = module.MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(EXPERIMENT)
            experiment = self._client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
            self._run = self._client.create_run(experiment, run_name=name).info.run_id
        except (problems.MlflowException, OSError) as error:
            raise TrackingError(uri, f"MLflow refuses it ({str(error).splitlines()[0]}); check the address") from None

    def number(self, name: str, value: float, step: int) -> None:
        """Log a metric."""
        self._client.log_metric(self._run, name, value, step=step)

    def text(self, name: str, text: str, step: int) -> None:
        """Set a tag that names the round."""
        self._client.set_tag(self._run, f"{name}.round-{step}", text)

    def flush(self) -> None:
        """Do nothing: MLflow writes at once."""

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._run)


TRACKERS = ("tensorboard", "mlflow")


def tracker_for(kind: str, name: str, where: str = "", device_names: Sequence[str] = ()) -> Tracker:
    """Return a tracker by its kind.

    Parameters
    ----------
    kind
        `tensorboard` or `mlflow`.
    name
        Of the run.
    where
        A folder for TensorBoard, an address for MLflow (`http://...`, `sqlite:///runs/mlflow.db`).
    device_names
        What devices are called, by their number.
    """
    if kind not in TRACKERS:
        raise UnknownNameError("tracker", kind, list(TRACKERS))
    if not name:
        raise SpecError("a tracked run needs a name")
    if kind == "tensorboard":
        return Tracker(TensorBoardStore(Path(where or "runs/tensorboard").expanduser() / name), device_names)
    return Tracker(MLflowStore(_address(where), name), device_names)


def _address(where: str) -> str:
    if where:
        return where
    folder = Path("runs")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise TrackingError(str(folder), f"cannot be made ({error.strerror}); name another place") from None
    return f"sqlite:///{folder / 'mlflow.db'}"
