"""Trackers: write loss, AUROC, devices and failures of a run to TensorBoard or MLflow as records come.

A tracker gets records, nothing else, so whatever writes records can be tracked: a simulation, a detector in training,
a real network.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from tolfl.core.errors import SpecError, TolFLError, UnknownNameError
from tolfl.core.records import AnyRecord, Evaluated, FailureHappened, RoundClosed, Scored, TakenOver
from tolfl.runs.descriptions import describe

EXPERIMENT = "tolfl"
TRACKERS = ("tensorboard", "mlflow")


class TrackingError(TolFLError, OSError):
    """A tracker cannot write to its folder or server."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"tracking to {where}: {problem}")
        self.where, self.problem = where, problem


class Tracker(ABC):
    """Writes records as curves and sentences; use it as a context, so that all is flushed in the end."""

    def __init__(self, device_names: Sequence[str] = ()) -> None:
        self._names = dict(enumerate(device_names))
        self._n_failures: Counter[str] = Counter()
        self._n_added: Counter[str] = Counter()
        self._last_round = 0

    def add_new(self, records: Sequence[AnyRecord], prefix: str = "") -> None:
        """Write the new records of a growing list; a prefix separates several trainings of one run."""
        for record in records[self._n_added[prefix] :]:
            self._write(record, prefix)
        self._n_added[prefix] = len(records)

    def result(self, numbers: Mapping[str, float | None]) -> None:
        """Write what is known in the end, at the last round."""
        for name, value in numbers.items():
            self._add(name, value, self._last_round)

    def _write(self, record: AnyRecord, prefix: str) -> None:
        step = self._last_round if record.round is None else record.round
        self._last_round = max(self._last_round, step)
        match record:
            case RoundClosed():
                self._add(f"{prefix}loss", record.loss, step)
                self._add(f"{prefix}devices", len(record.included), step)
            case Evaluated():
                self._add(f"{prefix}auroc", record.auroc, step)
            case Scored():
                self._add(f"{prefix}auroc", record.auroc, step)
                self._add(f"{prefix}average precision", record.average_precision, step)
            case FailureHappened():
                self._n_failures[prefix] += 1
                self._number(f"{prefix}failures", self._n_failures[prefix], step)
                self._text(f"{prefix}failure", self._described(record), step)
            case TakenOver():
                self._text(f"{prefix}takeover", self._described(record), step)

    def _add(self, name: str, value: float | None, step: int) -> None:
        if value is not None:
            self._number(name, float(value), step)

    def _described(self, record: AnyRecord) -> str:
        """Return the report's description of a record, with devices by name where they have one."""
        return re.sub(r"\bdevice (\d+)\b", lambda found: self._names.get(int(found[1]), found[0]), describe(record))

    def __enter__(self) -> Tracker:
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def _number(self, name: str, value: float, step: int) -> None:
        """Write one point of a curve."""

    @abstractmethod
    def _text(self, name: str, text: str, step: int) -> None:
        """Write a sentence."""


class TensorBoardTracker(Tracker):
    """Event files in a folder, for `tensorboard --logdir`."""

    def __init__(self, folder: Path, device_names: Sequence[str] = ()) -> None:
        super().__init__(device_names)
        writer = import_module("tensorboard.summary.writer.event_file_writer")
        self._summary = import_module("tensorboard.compat.proto.summary_pb2")
        self._event = import_module("tensorboard.compat.proto.event_pb2").Event
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = writer.EventFileWriter(str(folder))
        except OSError as error:
            raise TrackingError(str(folder), f"cannot be written ({error.strerror}); choose another place") from None

    def _number(self, name: str, value: float, step: int) -> None:
        self._write_value(step, tag=name, simple_value=value)

    def _text(self, name: str, text: str, step: int) -> None:
        tensor = {"dtype": "DT_STRING", "string_val": [text.encode()]}
        self._write_value(step, tag=name, metadata={"plugin_data": {"plugin_name": "text"}}, tensor=tensor)

    def _write_value(self, step: int, **value: object) -> None:
        summary = self._summary.Summary(value=[self._summary.Summary.Value(**value)])
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=summary))
        self._writer.flush()  # so that others see it now

    def __exit__(self, *_: object) -> None:
        self._writer.close()


class MLflowTracker(Tracker):
    """A run of the experiment `tolfl` on an MLflow server, or in a database file; sentences are tags of a round."""

    def __init__(self, uri: str, name: str, device_names: Sequence[str] = ()) -> None:
        super().__init__(device_names)
        module = import_module("mlflow.tracking")
        problems = import_module("mlflow.exceptions")
        try:
            self._client = module.MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(EXPERIMENT)
            experiment = self._client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
            self._run = self._client.create_run(experiment, run_name=name).info.run_id
        except (problems.MlflowException, OSError) as error:
            raise TrackingError(uri, f"MLflow refuses it ({str(error).splitlines()[0]}); check the address") from None

    def _number(self, name: str, value: float, step: int) -> None:
        self._client.log_metric(self._run, name, value, step=step)

    def _text(self, name: str, text: str, step: int) -> None:
        self._client.set_tag(self._run, f"{name}.round-{step}", text)

    def __exit__(self, *_: object) -> None:
        self._client.set_terminated(self._run)


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
        return TensorBoardTracker(Path(where or "runs/tensorboard").expanduser() / name, device_names)
    if not where:
        try:
            Path("runs").mkdir(exist_ok=True)
        except OSError as error:
            raise TrackingError("runs", f"cannot be made ({error.strerror}); name another place") from None
    return MLflowTracker(where or f"sqlite:///{Path('runs', 'mlflow.db')}", name, device_names)
