"""A detector in a form that needs nothing of tolfl: one file that Python runs, or an ONNX graph.

`python score.pyz readings.csv` is the code of `tolfl score`, packed with a detector, with the same input and output. It
needs Python and the packages numpy, pyarrow, msgspec, safetensors and threadpoolctl.

A graph takes raw samples and gives scores; thresholds and names are in its metadata. It is written node by node instead
of traced: it has only what the detector has, and needs no compiler. It computes in double precision, as the detector
does: a reading of 1,013.25 hPa that moves by 0.01 would lose half of its digits in single precision before the model
sees it.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolfl.core.errors import SpecError, TolFLError
from tolfl.core.logarithm import log
from tolfl.detect.cells import GRID, KNEE, LEAST_STEP, Cells, Rows
from tolfl.detect.detector import Detector
from tolfl.detect.reconstruction import Reconstruction
from tolfl.detect.scoring import FORMS, ScoreRequest, score_stream
from tolfl.tables.schema import N_COUNTS

# -- one file that Python runs ----------------------------------------------------------------------------------------

NEEDS = ("numpy", "pyarrow", "msgspec", "safetensors", "threadpoolctl")
_MODEL = "model.tolfl"
_MAIN = """import sys
from tolfl.detect.export import main
sys.exit(main())
"""
_LOADED = """import sys
import tolfl.detect.export, tolfl.tables.signal_blocks, tolfl.tables.table_files, tolfl.tables.arrow_values
print(*sorted(name for name in sys.modules if name.split(".")[0] == "tolfl"))
"""


def standalone_scorer(detector: Detector) -> bytes:
    """Return the file: the modules that scoring loads, and the detector."""
    content = io.BytesIO(b"")
    content.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, source in _modules().items():
            _add(archive, name, source)
        _add(archive, "__main__.py", _MAIN.encode())
        _add(archive, _MODEL, detector.to_bytes())
    return content.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    # Reproducible bytes: no time, no permissions of this machine.
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)


@cache  # it starts an interpreter
def _modules() -> dict[str, bytes]:
    """Return the source of every module of tolfl that scoring loads, by its path in the archive."""
    found = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    root, modules = files("tolfl"), {}
    for name in found.stdout.split():
        inside = name.split(".")[1:]
        place = root.joinpath(*inside)
        is_package = place.is_dir()
        path = "/".join(["tolfl", *inside, "__init__.py"]) if is_package else "/".join(["tolfl", *inside]) + ".py"
        source = place.joinpath("__init__.py") if is_package else root.joinpath(*inside[:-1], f"{inside[-1]}.py")
        modules[path] = source.read_bytes()
    return modules


def main(arguments: list[str] | None = None) -> int:
    """Score a source with the detector inside; return 1 if a row could not be scored, 2 if nothing was."""
    parser = argparse.ArgumentParser(prog="score.pyz", description="Score rows with the detector inside.")
    parser.add_argument(
        "data", nargs="?", default="-", help="a table, capture, recording or a folder; -: standard input"
    )
    parser.add_argument("--device-column", default="", help="whose row it is: that device's own threshold is used")
    parser.add_argument("--time-column", default="", help="the column with the time")
    parser.add_argument("--alert-only", action="store_true", help="rows above the threshold only")
    parser.add_argument(
        "--group", type=float, help="alarms of a device are one group if at most so many seconds or rows lie between"
    )
    parser.add_argument("--top", type=int, default=3, help="so many features that make the score of an alarm")
    parser.add_argument("--explain-all", action="store_true", help="name these features for all rows")
    parser.add_argument("--fill-missing", action="store_true", help="take a missing value as the usual one")
    parser.add_argument("--encoding", default="", help="of CSV and JSON lines")
    parser.add_argument("--format", default="table", choices=list(FORMS))
    asked = vars(parser.parse_args(arguments))
    try:
        n_bad = score_stream(_inside(), ScoreRequest(**asked), sys.stdout.buffer, sys.stderr)
    except TolFLError as error:
        sys.stderr.write(f"score.pyz: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 1 if n_bad else 0


def _inside() -> Detector:
    """Return the detector of the archive that this module was loaded from."""
    loader = globals().get("__loader__")
    if not hasattr(loader, "get_data"):
        raise SpecError("there is no detector inside; make the scorer with tolfl export --to scorer")
    with tempfile.TemporaryDirectory(prefix="tolfl-") as folder:
        path = Path(folder) / _MODEL
        path.write_bytes(loader.get_data(_MODEL))  # type: ignore[union-attr]
        return Detector.load(path)


# -- a graph ----------------------------------------------------------------------------------------------------------

_OPSET, _IR = 17, 8  #: old enough for the runtimes on small devices
_CHECKED_ROWS = 256


class ExportError(TolFLError, RuntimeError):
    """An exported graph gives other scores than the detector."""


@dataclass
class _Graph:
    """Nodes and constants, as they are added."""

    onnx: ModuleType
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}-{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    @property
    def kinds(self) -> Any:
        return self.onnx.TensorProto

    def constant(self, values: ArrayLike) -> str:
        name = f"constant-{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name


def to_onnx(detector: Detector) -> bytes:
    """Return the detector as the content of an ONNX file: input `samples` (double), output `score` (float)."""
    onnx = import_module("onnx")
    helper, graph, model = onnx.helper, _Graph(onnx), detector.model
    if detector.novelty is not None:
        raise SpecError("a detector of 802.11 captures has novelty beside its score, which ONNX lacks; use --to scorer")
    lowest = _distance(graph, model) if isinstance(model, Cells) else _errors(graph, model)
    graph.nodes.append(helper.make_node("Cast", [lowest], ["score"], name="score", to=graph.kinds.FLOAT))
    whole = helper.make_graph(
        graph.nodes,
        "tolfl",
        [helper.make_tensor_value_info("samples", graph.kinds.DOUBLE, ["n_samples", detector.features.n])],
        [helper.make_tensor_value_info("score", graph.kinds.FLOAT, ["n_samples"])],
        graph.constants,
    )
    exported = helper.make_model(
        whole, producer_name="tolfl", opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR
    )
    helper.set_model_props(exported, {"tolfl": msgspec.json.encode(metadata_of(detector)).decode()})
    onnx.checker.check_model(exported)
    content: bytes = exported.SerializeToString(deterministic=True)
    return content


def metadata_of(detector: Detector) -> dict[str, object]:
    """Return names, thresholds and the levels of p-values, which a scorer needs beside the graph."""
    thresholds = detector.thresholds
    return {
        "format": 2,
        "model": detector.model.name,
        "features": detector.features.names,
        "units": detector.features.units,
        "fleet": msgspec.to_builtins(thresholds.fleet),
        "devices": {name: msgspec.to_builtins(one.own) for name, one in thresholds.devices.items() if one.own},
    }


def onnx_scores(content: bytes, rows: Rows) -> NDArray[np.float64]:
    """Return the scores that a graph gives under onnxruntime."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    scores: NDArray[np.float64] = session.run(["score"], {"samples": rows.astype(np.float64)})[0].astype(np.float64)
    return scores


def largest_difference(detector: Detector, content: bytes, rows: Rows | None = None) -> float:
    """Return by how much scores of the graph differ from the detector's at most, relative to the larger of both.

    Scores below a millionth of the threshold count as that: they are rounding errors of a perfect reconstruction.
    """
    rows = synthetic_rows(detector) if rows is None else rows
    ours, theirs = detector.scores_of(rows).astype(np.float64), onnx_scores(content, rows)
    if not np.isfinite(theirs).all():
        raise ExportError("the exported graph gives scores that are not finite; use the detector itself")
    scale = np.maximum(np.maximum(np.abs(ours), np.abs(theirs)), 1e-6 * detector.thresholds.threshold)
    return float(np.max(np.abs(ours - theirs) / np.maximum(scale, np.finfo(np.float64).tiny), initial=0.0))


def synthetic_rows(detector: Detector) -> Rows:
    """Return rows in and around the range of the training rows."""
    rng, model = np.random.default_rng(0), detector.model
    low, high = (model.scaling.low, model.scaling.high) if isinstance(model, Cells) else (model.low, model.high)
    rows: NDArray[np.float64] = low + rng.uniform(-0.5, 1.5, (_CHECKED_ROWS, detector.features.n)) * (high - low)
    return rows


def _distance(graph: _Graph, model: Cells) -> str:
    """Add the distance to the nearest cell: shape `(n_samples,)`."""
    scaling = model.scaling
    samples = _with_rarities(graph, model)
    off = graph.node("Sub", samples, graph.constant(scaling.median))
    usual = graph.node("Div", off, graph.constant(np.where(scaling.is_constant, 1.0, scaling.spread)))
    size = graph.node("Abs", usual)
    knee = graph.constant(KNEE)
    beyond = graph.node("Mul", graph.node("Log", graph.node("Div", graph.node("Max", size, knee), knee)), knee)
    bent = graph.node("Mul", graph.node("Sign", usual), graph.node("Add", graph.node("Min", size, knee), beyond))
    is_off = graph.node("Greater", graph.node("Abs", off), graph.constant(LEAST_STEP * np.abs(scaling.median)))
    step = graph.node("Mul", graph.node("Sign", off), graph.constant(scaling.constant_step))
    stepped = graph.node("Mul", graph.node("Cast", is_off, to=graph.kinds.DOUBLE), step)
    z = graph.node("Where", graph.constant(scaling.is_constant), stepped, bent)
    grid = graph.constant(GRID)
    z = graph.node("Div", graph.node("Round", graph.node("Mul", z, grid)), grid)
    z = graph.node("Where", graph.node("IsNaN", z), graph.constant(0.0), z)
    turned = graph.node("MatMul", z, graph.constant(model.root))
    centres = model.centres @ model.root
    squares = graph.node("ReduceSum", graph.node("Mul", turned, turned), graph.constant([1]), keepdims=1)
    products = graph.node("MatMul", turned, graph.constant(-2 * centres.T))
    added = graph.constant(np.square(centres).sum(axis=1) + model.penalty)
    distances = graph.node("Add", graph.node("Add", products, added), squares)
    return graph.node("Max", graph.node("ReduceMin", distances, axes=[1], keepdims=0), graph.constant(0.0))


def _with_rarities(graph: _Graph, model: Cells) -> str:
    """Replace hashes of words by how rare they are, column by column."""
    scaling, samples = model.scaling, "samples"
    for column, counts in zip(scaling.word_columns.tolist(), scaling.word_counts, strict=True):
        rarity = graph.constant(-log((counts + 0.5) / (counts.sum() + 1.0)))
        hashes = graph.node("Gather", "samples", graph.constant([column]), axis=1)
        is_missing = graph.node("IsNaN", hashes)
        known = graph.node("Where", is_missing, graph.constant(0.0), hashes)
        known = graph.node("Min", graph.node("Max", known, graph.constant(0.0)),
                           graph.constant(N_COUNTS - 1.0))  # fmt: skip
        found = graph.node("Gather", rarity, graph.node("Cast", known, to=graph.kinds.INT64))
        found = graph.node("Where", is_missing, hashes, found)
        is_column = graph.constant(np.arange(model.n_features) == column)
        samples = graph.node("Where", is_column, found, samples)
    return samples


def _errors(graph: _Graph, model: Reconstruction) -> str:
    """Add a model's score, the sum of its squared errors: shape `(n_samples,)`."""
    shifted = graph.node("Sub", "samples", graph.constant(model.scaler.shift))
    scaled = graph.node("Cast", graph.node("Mul", shifted, graph.constant(model.scaler.factor)), to=graph.kinds.FLOAT)
    scaled = graph.node("Cast", scaled, to=graph.kinds.DOUBLE)
    out: str | None = scaled
    for layer in model.layers:
        bias = graph.constant(layer.bias.astype(np.float64))
        if not len(layer.weight):
            out = None  # PCA of no component: what comes after is the mean alone
            continue
        if out is None:
            out = bias
            continue
        product = graph.node("MatMul", out, graph.constant(layer.weight.T.astype(np.float64)))
        out = graph.node("Add", product, bias)
        if layer.has_relu:
            out = graph.node("Relu", out)
    gap = graph.node("Sub", str(out), scaled)
    square = graph.node("Mul", gap, gap)
    return graph.node("ReduceSum", square, graph.constant([1]), keepdims=0)
