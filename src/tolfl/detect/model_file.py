"""Saved detectors: one file, safetensors with JSON in its header. Nothing is pickled, nothing is executed.

One file and not a folder: it is copied and flashed as one, and scaling, thresholds and model can never
come from two versions. Any reader of safetensors can open it. A digest over the content is checked on load.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from tolfl.core.errors import DataError
from tolfl.detect.cells import Cells
from tolfl.detect.detector import Detector, Training
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.features import Features
from tolfl.detect.novelty import Novelty
from tolfl.detect.reconstruction import Reconstruction
from tolfl.detect.thresholds import Thresholds
from tolfl.tables import Schema

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


def save(detector: Detector, path: Path) -> Path:
    """Write a detector to a file, whole or not at all."""
    from tolfl.runs.directory import write_file  # noqa: PLC0415  (what only scores writes no file, and loads no learners)

    path = path.expanduser()
    write_file(path.parent, path.name, to_bytes(detector))
    return path


def to_bytes(detector: Detector) -> bytes:
    """Return a detector as the content of a file."""
    content = msgspec.json.encode(
        _Content(
            FORMAT,
            detector.spec,
            detector.features,
            detector.model.kind,  # type: ignore[arg-type]  # checked when it is read
            detector.thresholds,
            detector.trainings,
            detector.schema,
        )
    )
    own = {_OWN + name: cells for name, cells in detector.own_cells.items()}
    tensors = {**detector.model.arrays(), **own, **({} if detector.novelty is None else detector.novelty.arrays())}
    return with_digest(content, {name: np.ascontiguousarray(array) for name, array in tensors.items()})


def with_digest(content: bytes, tensors: Tensors) -> bytes:
    """Return a file with this content and these arrays, and their digest."""
    header = msgspec.json.encode(_WithDigest(_digest(content, tensors), msgspec.Raw(content)))
    return safetensors.numpy.save(tensors, metadata={_KEY: header.decode()})


def load(path: Path) -> Detector:
    """Read a detector; a file that is no detector, is damaged or was altered is an error."""
    path = path.expanduser()
    content, tensors = _read(path)
    try:
        version = msgspec.json.decode(content, type=_Version).format
        if version < FORMAT:
            raise DetectorFileError(path, f"was saved by an older tolfl (format {version}); fit it again, on its rows")
        if version > FORMAT:
            raise DetectorFileError(path, f"has format {version}, this version of tolfl reads {FORMAT}; update tolfl")
        return _detector(msgspec.json.decode(content, type=_Content), tensors)
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        if isinstance(error, DetectorFileError):
            raise
        raise DetectorFileError(path, f"does not hold a valid detector ({error})") from None


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
