"""A trained detector: model, thresholds, names, and the history of its trainings; in memory and as a file.

It does not need scikit-learn, so commands, exports and devices use it directly.

A file is safetensors with JSON in its header. Nothing is pickled, nothing is executed. One file and not a folder: it is
copied and flashed as one, and scaling, thresholds and model can never come from two versions. Any reader of
safetensors can open it. A digest over the content is checked on load.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open

from tolfl.core.errors import DataError
from tolfl.detect.cells import Cells, Floats, Floats32, Rows
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.features import Explanation, Features, FeatureShare, top_shares
from tolfl.detect.novelty import LIMIT, Novelty
from tolfl.detect.reconstruction import Reconstruction
from tolfl.detect.thresholds import Thresholds
from tolfl.tables import Roles, Schema, values
from tolfl.tables.schema import word_column


class DeviceShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device's part in a training."""

    name: str
    n_trained: int  #: samples it trained on
    n_held_back: int
    rounds: int  #: rounds that it contributed to
    is_survivor: bool  #: whether it was in the last round


class DeviceLoss(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device that was lost."""

    round: int | None  #: the first one without it
    device: str | None
    what: str


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One training of a fleet."""

    scheme: str
    model: str
    rounds: int
    n_samples: int  #: behind the model
    devices: tuple[DeviceShare, ...]
    events: tuple[DeviceLoss, ...]
    ended: str
    notes: tuple[str, ...] = ()

    @property
    def survivors(self) -> tuple[str, ...]:
        """The devices that were alive at the end."""
        return tuple(device.name for device in self.devices if device.is_survivor)


#: Rows of a device from which it makes one cell of its own.
ROWS_PER_OWN_CELL = 10
Names = NDArray[np.str_]
Devices = ArrayLike | None  #: the device of each row, or the name of a frame's column with it
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Detector:
    """Everything that scoring needs. It is immutable: an update makes a new one."""

    spec: DetectorSpec
    features: Features
    model: Cells | Reconstruction
    thresholds: Thresholds
    trainings: tuple[Training, ...]  #: the first one, and each update
    #: Cells of devices that were lost or are new, from their own typical rows; for their rows only.
    own_cells: Mapping[str, Floats] = field(default_factory=dict)
    schema: Schema | None = None  #: how tables are read; None: by the names of the features
    novelty: Novelty | None = None  #: what is outside of the usual ranges, where columns say what they measure

    # -- scoring ------------------------------------------------------------------------------------------------

    @property
    def columns(self) -> Schema:
        """How tables are read."""
        return self.schema or Schema.from_features(self.features.names)

    def rows(self, X: object, devices: Devices = None) -> tuple[Rows, Names | None]:
        """Return an array, or a frame whose columns are found by name, as rows to score, and whose they are."""
        if not is_frame(X):
            rows = self.features.check(X)
            return rows, device_labels(devices, len(rows))
        return rows_of_frame(X, self.columns, devices)

    def anomaly_score(self, X: object, devices: Devices = None) -> NDArray[np.float64]:
        """Return one score per row: the higher, the more anomalous. An empty stream has no scores."""
        return self.scores_of(*self.rows(X, devices)).astype(np.float64)

    def scores_of(self, rows: Rows, devices: Names | None = None) -> Floats32:
        """Return the scores of rows that have been checked; of a device with cells of its own, by those too."""
        scores = self.model.scores(rows)
        for name, own in self._own_among(devices).items():
            scores[own] = self.model.scores(rows[own], self.own_cells[name])
        return scores

    def attributions(self, rows: Rows, devices: Names | None = None) -> tuple[Floats, Floats]:
        """Split scores by feature: what is expected in place of each value, in its unit, and what the value adds."""
        expected, gains = self.model.attributions(rows)
        for name, own in self._own_among(devices).items():
            expected[own], gains[own] = self.model.attributions(rows[own], self.own_cells[name])
        return expected, gains

    def _own_among(self, devices: Names | None) -> dict[str, NDArray[np.int64]]:
        """Return the rows of each device that has cells of its own."""
        if devices is None or not self.own_cells:
            return {}
        found = {name: np.flatnonzero(devices == name) for name in self.own_cells}
        return {name: rows for name, rows in found.items() if len(rows)}

    def p_values(self, X: object, devices: Devices = None) -> NDArray[np.float64]:
        """Return for each row how likely a typical one is to score as high or higher, by the limit of its row."""
        rows, names = self.rows(X, devices)
        return self.thresholds.p_values(self.scores_of(rows, names), names)

    def verdicts(self, X: object, devices: Devices = None) -> NDArray[np.bool_]:
        """Return which rows raise an alarm: by the fleet's threshold, or by that of each row's device."""
        rows, names = self.rows(X, devices)
        return self.alarms_of(rows, self.scores_of(rows, names), names)[0]

    def alarms_of(
        self, rows: Rows, scores: Floats32 | Floats, devices: Names | None = None, is_partial: Flags | None = None
    ) -> tuple[Flags, Flags, Floats]:
        """Return which rows raise an alarm, which give notice only, and how novel each is (NaN: not known).

        A row raises an alarm if its score is above its threshold, or if it is novel. With novelty, a threshold that was
        extrapolated from few rows gives notice only. A window of which only a part is there is judged by novelty alone.
        """
        is_above = scores > self.thresholds.limits(len(rows), devices)
        if is_partial is not None:
            is_above = is_above & ~is_partial
        if self.novelty is None:
            return is_above, np.zeros(len(rows), np.bool_), np.full(len(rows), np.nan)
        novelty = self.novelty.scores(rows, devices, is_partial)
        is_sure = ~self.thresholds.are_extrapolated(len(rows), devices)
        is_alarm = (is_above & is_sure) | (novelty > LIMIT)
        return is_alarm, is_above & ~is_alarm, novelty

    # -- explaining ---------------------------------------------------------------------------------------------

    def explain(self, x: object, device: str | None = None) -> Explanation:
        """Return the explanation of one row's score or novelty; with its device, by the limit of its verdict."""
        if np.ndim(x) == 1:  # type: ignore[arg-type]
            to_frame = getattr(x, "to_frame", None) if hasattr(x, "index") else None  # a row of a frame of pandas
            x = np.asarray(x)[None, :] if to_frame is None else to_frame().T
        rows, _ = self.rows(x)
        if len(rows) != 1:
            raise DataError(f"explain takes one sample, not {len(rows)}; call it for each")
        names = None if device is None else np.array([str(device)])
        scores = self.scores_of(rows, names)
        (is_alarm,), _, novelty = self.alarms_of(rows, scores, names)
        (shares,) = self.top_features(rows, novelty, self.features.n, names)
        limit = self.thresholds.limit_for(None if device is None else str(device))
        (p_value,) = limit.p_values(scores).tolist()
        novel = None if self.novelty is None else float(novelty[0])
        return Explanation(float(scores[0]), limit.value, p_value, shares, bool(is_alarm), novel)

    def top_features(
        self,
        rows: Rows,
        novelty: Floats,
        n_top: int,
        devices: Names | None = None,
        is_partial: Flags | None = None,
    ) -> list[tuple[FeatureShare, ...]]:
        """Return for each row the features behind its score, the largest share first; of a novel row, behind that."""
        found: list[tuple[FeatureShare, ...]] = [()] * len(rows)
        is_novel = novelty > LIMIT
        for own in filter(len, (np.flatnonzero(~is_novel), np.flatnonzero(is_novel))):
            some, names = rows[own], None if devices is None else devices[own]
            if self.novelty is not None and is_novel[own[0]]:
                partial = None if is_partial is None else is_partial[own]
                shares = self.novelty.top(self.features, some, n_top, names, partial)
            else:
                shares = top_shares(self.features, some, *self.attributions(some, names), n_top)
            for place, one in zip(own.tolist(), shares, strict=True):
                found[place] = one
        return found

    # -- devices ------------------------------------------------------------------------------------------------

    def with_own_cells(self, slices: Mapping[str, object]) -> Detector:
        """Return a detector with further cells for devices that were lost or are new, from their typical rows.

        One cell for each ten rows; ten will do, fifty are better. Nothing is sent, and the thresholds stay.
        """
        if not isinstance(self.model, Cells):
            raise DataError(f"{self.model.kind} has no cells to add to; fit with the model cells")
        own = dict(self.own_cells)
        for name, X in slices.items():
            rows, _ = self.rows(X)
            if len(rows) < ROWS_PER_OWN_CELL:
                raise DataError(f"device {name}: {len(rows)} rows; give at least {ROWS_PER_OWN_CELL} typical ones")
            own[str(name)] = self.model.own_cells(rows, ROWS_PER_OWN_CELL)
        return replace(self, own_cells=own)

    # -- saving ------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the detector as the content of a file."""
        content = _Content(
            FORMAT,
            self.spec,
            self.features,
            self.model.kind,  # type: ignore[arg-type]  # checked when it is read
            self.thresholds,
            self.trainings,
            self.schema,
        )
        own = {_OWN + name: cells for name, cells in self.own_cells.items()}
        tensors = {**self.model.arrays(), **own, **({} if self.novelty is None else self.novelty.arrays())}
        return with_digest(
            msgspec.json.encode(content), {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        )

    def save(self, path: str | Path) -> Path:
        """Write the detector to one file, whole or not at all."""
        from tolfl.runs.directory import write_file  # noqa: PLC0415  (what only scores writes no file, loads no learner)

        path = Path(path).expanduser()
        write_file(path.parent, path.name, self.to_bytes())
        return path

    @staticmethod
    def load(path: str | Path) -> Detector:
        """Read a detector; a file that is no detector, is damaged or was altered is an error."""
        path = Path(path).expanduser()
        content, tensors = _read(path)
        try:
            version = msgspec.json.decode(content, type=_Version).format
            if version < FORMAT:
                raise DetectorFileError(
                    path, f"was saved by an older tolfl (format {version}); fit it again, on its rows"
                )
            if version > FORMAT:
                raise DetectorFileError(
                    path, f"has format {version}, this version of tolfl reads {FORMAT}; update tolfl"
                )
            return _detector(msgspec.json.decode(content, type=_Content), tensors)
        except (msgspec.DecodeError, KeyError, ValueError) as error:
            if isinstance(error, DetectorFileError):
                raise
            raise DetectorFileError(path, f"does not hold a valid detector ({error})") from None

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        last, fleet = self.trainings[-1], self.thresholds.fleet
        lost = [device.name for device in last.devices if not device.is_survivor]
        columns = list(dict.fromkeys(word_column(name) or name for name in self.features.names))
        facts = {
            "model": self.model.name,
            "features": f"{self.features.n}, of {', '.join(columns[:8])}{', ...' * (len(columns) > 8)}",
            "not learned from": ", ".join(self.schema.left_out) if self.schema else "",
            "trained on": f"{last.n_samples} rows of {len(last.devices)} device(s)",
            "lost during training": ", ".join(lost[:8]),
            "threshold": f"{fleet.value:.4g}; {fleet.promise}",
        }
        rows = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in facts.items() if text)
        return f"<table>{rows}</table>"

    def __repr__(self) -> str:
        n_devices = len(self.trainings[-1].devices)
        return f"<Detector {self.model.name}: {self.features.n} features, {n_devices} device(s)>"


# -- frames -----------------------------------------------------------------------------------------------------------


def is_frame(X: object) -> bool:
    """Return whether rows come with names and types of their own: a frame of pandas, polars or Arrow."""
    if hasattr(X, "collect") and not hasattr(X, "__arrow_c_stream__"):
        raise DataError("X is a lazy frame, which has no rows yet; give X.collect()")
    return hasattr(X, "__arrow_c_stream__") and not isinstance(X, np.ndarray)


def rows_of_frame(X: object, schema: Schema, devices: Devices) -> tuple[Rows, Names | None]:
    """Return a frame's rows as a schema reads them, and whose they are."""
    from tolfl.tables import blocks_of  # noqa: PLC0415  (pyarrow is an extra)

    (block,) = blocks_of(X)
    role = devices if isinstance(devices, str) else ""
    found = msgspec.structs.replace(schema, roles=Roles(device=role)).rows(block)
    if found.errors:
        place = min(found.errors)
        raise DataError(f"row {place} of X: {found.errors[place]}")
    return found.values, found.devices if role else device_labels(devices, len(found.values))


def device_labels(devices: Devices, n_rows: int) -> Names | None:
    """Return the name of each row's device, as that of a frame's column; None: not given."""
    if devices is None:
        return None
    labels = np.asarray(devices)
    if labels.shape != (n_rows,):
        raise DataError(f"devices has shape {labels.shape} for {n_rows} rows; give one device per row")
    names, is_missing = values.names(labels)
    if is_missing.any():
        raise DataError(f"devices has no name for row {int(np.argmax(is_missing))}; name the device of each row")
    return names


# -- files ------------------------------------------------------------------------------------------------------------

#: Incremented when a reader of the format before could not read the file.
FORMAT = 2
_KEY = "tolfl"  #: of the header's entry
_OWN = "own/"  #: before the name of a device that has cells of its own

Tensors = dict[str, NDArray[Any]]


class DetectorFileError(DataError):
    """A file is not a saved detector, or was changed."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"detector {path}: {problem}")
        self.path, self.problem = path, problem


class _WithDigest(msgspec.Struct, forbid_unknown_fields=True):
    """The one entry of the header (several would come in an order that changes from one writing to the next)."""

    sha256: str  #: of content and arrays
    content: msgspec.Raw


class _Version(msgspec.Struct):
    format: int


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the header; arrays are beside it."""

    format: int
    spec: DetectorSpec
    features: Features
    kind: Literal["autoencoder", "cells", "pca"]
    thresholds: Thresholds
    trainings: tuple[Training, ...]
    schema: Schema | None = None


def with_digest(content: bytes, tensors: Tensors) -> bytes:
    """Return a file with this content and these arrays, and their digest."""
    header = msgspec.json.encode(_WithDigest(_digest(content, tensors), msgspec.Raw(content)))
    return safetensors.numpy.save(tensors, metadata={_KEY: header.decode()})


def _read(path: Path) -> tuple[bytes, Tensors]:
    """Return header and arrays of a file whose digest is right."""
    if not path.is_file():
        what = "is a folder; name the file in it" if path.is_dir() else "there is no such file; tolfl fit makes one"
        raise DetectorFileError(path, what)
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
            if _KEY not in metadata:
                raise DetectorFileError(path, "is no detector: save one with Detector.save")
            header = msgspec.json.decode(metadata[_KEY], type=_WithDigest)
            tensors = {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError, TypeError, AttributeError, ValueError, KeyError) as error:
        if isinstance(error, DetectorFileError):
            raise
        raise DetectorFileError(path, f"is no detector, or is damaged ({error}); save it again") from None
    content = bytes(header.content)
    if _digest(content, tensors) != header.sha256:
        raise DetectorFileError(path, "is not as it was saved (its digest is wrong); get it again from its source")
    return content, tensors


def _digest(content: bytes, tensors: Tensors) -> str:
    digest = hashlib.sha256(content)
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _detector(content: _Content, tensors: Tensors) -> Detector:
    own = {name.removeprefix(_OWN): cells for name, cells in tensors.items() if name.startswith(_OWN)}
    model = Cells.from_arrays(tensors) if content.kind == "cells" else Reconstruction.from_arrays(content.kind, tensors)
    n_features, novelty = content.features.n, Novelty.from_arrays(tensors)
    widths = {model.n_features, len(model.fill), *(cells.shape[1] for cells in own.values())}
    widths |= set() if novelty is None else {len(one) for one in (novelty.unit, novelty.low, novelty.high)}
    if content.schema is not None and content.schema.n_features != n_features:
        raise ValueError(f"{n_features} features have names, the columns give {content.schema.n_features}")
    if widths != {n_features}:
        raise ValueError(f"{n_features} features have names, the arrays are for {sorted(widths)}")
    return Detector(
        content.spec, content.features, model, content.thresholds, content.trainings, own, content.schema, novelty
    )
