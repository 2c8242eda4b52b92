"""Saved detectors: one file, safetensors with JSON in its header. Nothing is pickled, nothing is executed.

One file and not a folder: it is copied, mailed and flashed as one thing, and scaling, thresholds and model can never
come from two versions. Any tool that reads safetensors can look inside. A digest over the content is checked on load.
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

from tolfl.datasets.scaling import Scaler
from tolfl.detect.choosing import Choice
from tolfl.detect.features import Features
from tolfl.detect.fitted import Detector
from tolfl.detect.learning import Learned
from tolfl.detect.network import Dense, ScoringNetwork
from tolfl.detect.problems import DetectorFileError
from tolfl.detect.provenance import Training
from tolfl.detect.spec import FROM_STATISTICS, DetectorSpec
from tolfl.detect.thresholds import Thresholds
from tolfl.runs.directory import write_file

#: Raised when a file can no longer be read by what was written for the one before.
FORMAT = 1
_KEY = "tolfl"  #: of the header's entry

Tensors = dict[str, NDArray[Any]]


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    """The one entry of the header (several would come in an order that changes from one writing to the next)."""

    sha256: str  #: of content and arrays
    content: msgspec.Raw


class _Version(msgspec.Struct):
    format: int


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    """What the header says; arrays are beside it."""

    format: int
    spec: DetectorSpec
    features: Features
    kind: Literal["autoencoder", "mahalanobis", "pca"]
    code: int
    n_samples: dict[str, int]  #: behind each model
    relus: dict[str, tuple[bool, ...]]  #: of each model, layer by layer
    thresholds: Thresholds
    choice: Choice
    trainings: tuple[Training, ...]


def save(detector: Detector, path: Path) -> Path:
    """Write a detector to a file, whole or not at all."""
    path = path.expanduser()
    write_file(path.parent, path.name, to_bytes(detector))
    return path


def to_bytes(detector: Detector) -> bytes:
    """Return a detector as the content of a file."""
    learned = detector.learned
    content = msgspec.json.encode(
        _Content(
            FORMAT,
            detector.spec,
            detector.features,
            learned.kind,  # type: ignore[arg-type]  # checked when it is read
            learned.code,
            learned.n_samples,
            {name: tuple(layer.has_relu for layer in one.layers) for name, one in detector.networks.items()},
            detector.thresholds,
            detector.choice,
            detector.trainings,
        )
    )
    return sealed(content, {name: np.ascontiguousarray(array) for name, array in _tensors(detector).items()})


def sealed(content: bytes, tensors: Tensors) -> bytes:
    """Return a file with this content and these arrays, and their digest."""
    header = msgspec.json.encode(_Sealed(_digest(content, tensors), msgspec.Raw(content)))
    return safetensors.numpy.save(tensors, metadata={_KEY: header.decode()})


def load(path: Path) -> Detector:
    """Read a detector; what is no detector, is damaged or was altered is refused with one sentence."""
    path = path.expanduser()
    content, tensors = _read(path)
    try:
        version = msgspec.json.decode(content, type=_Version).format
        if version != FORMAT:
            raise DetectorFileError(path, f"has format {version}, this version of tolfl reads {FORMAT}; update tolfl")
        return _detector(msgspec.json.decode(content, type=_Content), tensors)
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        if isinstance(error, DetectorFileError):
            raise
        raise DetectorFileError(path, f"does not hold a detector that makes sense ({error})") from None


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
            seal = msgspec.json.decode(metadata[_KEY], type=_Sealed)
            tensors = {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError, TypeError, AttributeError, ValueError, KeyError) as error:
        if isinstance(error, DetectorFileError):
            raise
        raise DetectorFileError(path, f"is no detector, or is damaged ({error}); save it again") from None
    content = bytes(seal.content)
    if _digest(content, tensors) != seal.sha256:
        raise DetectorFileError(path, "is not as it was saved (its digest is wrong); get it again from its source")
    return content, tensors


def _digest(content: bytes, tensors: Tensors) -> str:
    digest = hashlib.sha256(content)
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _tensors(detector: Detector) -> Tensors:
    scaler, learned = detector.scaler, detector.learned
    tensors: Tensors = {"scaler/shift": scaler.shift, "scaler/factor": scaler.factor, "scaler/fill": scaler.fill}
    if learned.origin is not None:
        tensors["origin"] = learned.origin
    for name, params in learned.params.items():
        tensors[f"params/{name}"] = params
    for name, network in detector.networks.items():
        for place, layer in enumerate(network.layers):
            tensors[f"network/{name}/{place}/weight"] = layer.weight
            tensors[f"network/{name}/{place}/bias"] = layer.bias
    return tensors


def _detector(content: _Content, tensors: Tensors) -> Detector:
    is_residual = content.kind == "mahalanobis"
    networks = {name: _network(name, relus, tensors, is_residual) for name, relus in content.relus.items()}
    params = {name: tensors[f"params/{name}"] for name in content.relus}
    origin = tensors["origin"] if content.kind in FROM_STATISTICS else None
    scaler = Scaler(tensors["scaler/shift"], tensors["scaler/factor"], tensors["scaler/fill"])
    n_features = content.features.n
    widths = {scaler.shift.size, scaler.factor.size, *(one.n_features for one in networks.values())}
    if not networks or widths != {n_features}:
        raise ValueError(f"{n_features} features have names, the arrays are for {sorted(widths)}")
    return Detector(
        content.spec,
        content.features,
        scaler,
        Learned(content.kind, params, content.code, content.n_samples, origin),
        networks,
        content.thresholds,
        content.choice,
        content.trainings,
    )


def _network(name: str, relus: tuple[bool, ...], tensors: Tensors, is_residual: bool) -> ScoringNetwork:
    layers = []
    for place, has_relu in enumerate(relus):
        weight, bias = (tensors[f"network/{name}/{place}/{part}"] for part in ("weight", "bias"))
        if weight.ndim != 2 or bias.shape != weight.shape[:1] or weight.dtype != np.float32:
            raise ValueError(f"layer {place} of model {name!r} has shapes {weight.shape} and {bias.shape}")
        layers.append(Dense(weight, bias, has_relu))
    return ScoringNetwork(tuple(layers), is_residual)
