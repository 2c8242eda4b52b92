"""A detector as one ONNX graph: raw samples in, scores out, thresholds and names in its metadata.

The graph is written node by node instead of traced: it has nothing in it that the detector has not, and needs no
compiler. It computes in double precision, as the detector does: a reading of 1,013.25 hPa that moves by 0.01 would
lose half of its digits in single precision before the model sees it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import TolFLError
from tolfl.detect.features import Rows
from tolfl.detect.fitted import Detector
from tolfl.detect.network import ScoringNetwork
from tolfl.runs.directory import write_file
from tolfl.runs.extras import module_of_extra

EXTRA = "export"
SCORER = "score_onnx.py"  #: what the small scorer is called beside an export
_OPSET, _IR = 17, 8  #: old enough for the runtimes on small devices
_CHECKED_ROWS = 256


class ExportError(TolFLError, RuntimeError):
    """An exported graph does not say what the detector says."""


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

    def constant(self, values: NDArray[Any]) -> str:
        name = f"constant-{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name


def to_onnx(detector: Detector) -> bytes:
    """Return the detector as the content of an ONNX file: input `samples` (double), output `score` (float)."""
    onnx = module_of_extra("onnx", EXTRA)
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = _Graph(onnx)
    shifted = graph.node("Sub", "samples", graph.constant(detector.scaler.shift))
    scaled = graph.node("Cast", graph.node("Mul", shifted, graph.constant(detector.scaler.factor)), to=kinds.FLOAT)
    scaled = graph.node("Cast", scaled, to=kinds.DOUBLE)
    errors = [_errors(graph, network, scaled) for network in detector.networks.values()]
    lowest = errors[0] if len(errors) == 1 else graph.node("Min", *errors)
    graph.nodes.append(helper.make_node("Cast", [lowest], ["score"], name="score", to=kinds.FLOAT))
    whole = helper.make_graph(
        graph.nodes,
        "tolfl",
        [helper.make_tensor_value_info("samples", kinds.DOUBLE, ["n_samples", detector.features.n])],
        [helper.make_tensor_value_info("score", kinds.FLOAT, ["n_samples"])],
        graph.constants,
    )
    model = helper.make_model(
        whole, producer_name="tolfl", opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR
    )
    helper.set_model_props(model, {"tolfl": msgspec.json.encode(metadata_of(detector)).decode()})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def metadata_of(detector: Detector) -> dict[str, object]:
    """Return what a scorer needs beside the graph: names, thresholds, and the levels that p-values come from."""
    thresholds = detector.thresholds
    return {
        "format": 1,
        "model": detector.choice.name,
        "features": detector.features.names,
        "units": detector.features.units,
        "budget": thresholds.budget,
        "threshold": thresholds.threshold,
        "per_device": {name: one.threshold for name, one in thresholds.per_device.items()},
        "n_scores": thresholds.n_scores,
        "levels": thresholds.levels,
        "n_at_least": thresholds.n_at_least,
        "n_higher": thresholds.n_higher,
    }


def export_onnx(detector: Detector, path: Path, is_int8: bool = False) -> Path:
    """Write the graph, and the scorer that goes with it, into one folder; return where the scorer is."""
    content = to_onnx(detector)
    if is_int8:
        content = to_int8(content)
    write_file(path.parent, path.name, content)
    scorer = Path(__file__).with_name("small_scorer.py")
    write_file(path.parent, SCORER, scorer.read_bytes())
    return path.parent / SCORER


def to_int8(content: bytes) -> bytes:
    """Return a graph whose weights are whole numbers of 8 bits: a quarter of the size, and less exact."""
    quantization = module_of_extra("onnxruntime.quantization", EXTRA)
    with TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        before.write_bytes(content)
        logging.disable(logging.WARNING)  # it advises to fuse nodes first; there is nothing to fuse here
        try:
            quantization.quantize_dynamic(before, after, op_types_to_quantize=["MatMul"], per_channel=True)
        finally:
            logging.disable(logging.NOTSET)
        return after.read_bytes()


def onnx_scores(content: bytes, rows: Rows) -> NDArray[np.float64]:
    """Return the scores that a graph gives under onnxruntime."""
    runtime = module_of_extra("onnxruntime", EXTRA)
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
    rows = made_up_rows(detector) if rows is None else rows
    ours, theirs = detector.scores_of(rows).astype(np.float64), onnx_scores(content, rows)
    if not np.isfinite(theirs).all():
        raise ExportError("the exported graph gives scores that are not finite; use the detector itself")
    scale = np.maximum(np.maximum(np.abs(ours), np.abs(theirs)), 1e-6 * detector.thresholds.threshold)
    return float(np.max(np.abs(ours - theirs) / np.maximum(scale, np.finfo(np.float64).tiny), initial=0.0))


def made_up_rows(detector: Detector) -> Rows:
    """Return rows in and around the range of the training rows."""
    rng = np.random.default_rng(0)
    inside = rng.uniform(-0.5, 1.5, (_CHECKED_ROWS, detector.features.n))
    rows: NDArray[np.float64] = inside / detector.scaler.factor + detector.scaler.shift
    return rows


def _errors(graph: _Graph, network: ScoringNetwork, scaled: str) -> str:
    """Add a model's score, the sum of its squared errors: shape `(n_samples,)`."""
    out: str | None = scaled
    for layer in network.layers:
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
    gap = str(out) if network.is_residual else graph.node("Sub", str(out), scaled)
    square = graph.node("Mul", gap, gap)
    return graph.node("ReduceSum", square, graph.constant(np.array([1], np.int64)), keepdims=0)
