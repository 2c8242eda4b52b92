"""`tolfl export`: a detector as an ONNX graph for small devices, and the one file that scores with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.fit import FillMissing, Typical
from tolfl.cli.inspect_model import Model
from tolfl.cli.options import Format
from tolfl.core.errors import SpecError, UnknownNameError

if TYPE_CHECKING:
    from tolfl.detect import Detector

#: Scores of the graph and of the detector, relative: a larger difference is said aloud.
_PARITY = 1e-5


def export(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Model,
    to: Annotated[str, typer.Option(help="onnx, the only one so far.")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="The file for the graph. (default: MODEL.onnx)")] = None,
    int8: Annotated[bool, typer.Option("--int8", help="Weights of 8 bits: a quarter of the size, less exact.")] = False,
    data: Annotated[Path | None, typer.Option(help="A table to compare the graph with the detector on.")] = None,
    label_column: options.LabelColumn = None,
    typical: Typical = None,
    fill_missing: FillMissing = False,
    format: options.HowShown = Format.TABLE,
) -> None:
    """Write scaling, model and score as one ONNX graph, thresholds and names inside, and score_onnx.py beside it.

    score_onnx.py needs numpy and onnxruntime, and nothing of tolfl. The graph's scores are compared with the detector's
    at once; with --data and --label-column, so is their AUROC.

    Example: tolfl export model --to onnx --out device/model.onnx

    Example: tolfl export model --to onnx --int8 --data november.csv --label-column state
    """
    if to != "onnx":
        raise UnknownNameError("kind of export", to, ["onnx"])
    if label_column is not None and data is None:
        raise SpecError("--label-column is a column of --data; give both")
    from tolfl.detect import Detector
    from tolfl.detect.onnx_export import export_onnx, largest_difference

    detector = Detector.load(model)
    target = Path(f"{model}.onnx") if out is None else out.expanduser()
    scorer = export_onnx(detector, target, int8)
    content = target.read_bytes()
    result: dict[str, Any] = {
        "graph": str(target),
        "scorer": str(scorer),
        "bytes": len(content),
        "largest_relative_difference": largest_difference(detector, content),
    }
    if data is not None:
        result |= _compared(detector, content, data, label_column or "", tuple(typical or ()), fill_missing)
    if format is Format.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        _show(result)
    if not int8 and result["largest_relative_difference"] > _PARITY:
        typer.echo(
            f"tolfl: scores differ by more than {_PARITY:g}; compare them on your own rows with --data", err=True
        )
    if int8 and data is None:
        typer.echo("tolfl: what 8 bits cost is not known; compare on your own rows with --data", err=True)


def _compared(
    detector: Detector, content: bytes, path: Path, label_column: str, typical: tuple[str, ...], fill_missing: bool
) -> dict[str, Any]:
    """Return how far graph and detector agree on the rows of a table."""
    import numpy as np

    from tolfl.core.metrics import auroc
    from tolfl.detect.gathering import is_anomalous
    from tolfl.detect.onnx_export import largest_difference, onnx_scores
    from tolfl.detect.sources import tables_in
    from tolfl.detect.streams import ColumnRoles, Reader

    reader = Reader(detector, ColumnRoles(label=label_column), fill_missing)
    ours, theirs, labels = [], [], []
    difference = 0.0
    for batch in reader.batches(tables_in(path, reader)):
        rows = batch.rows[batch.is_good]
        ours.append(detector.scores_of(rows))
        theirs.append(onnx_scores(content, rows))
        difference = max(difference, largest_difference(detector, content, rows))
        if batch.labels is not None:
            labels.append(batch.labels[batch.is_good])
    if not sum(map(len, ours)):
        raise SpecError(f"{path}: there is no row that could be scored")
    before, after, threshold = np.concatenate(ours), np.concatenate(theirs), detector.thresholds.threshold
    found: dict[str, Any] = {
        "largest_relative_difference": difference,
        "n_rows": len(before),
        "same_verdict": float(((before > threshold) == (after > threshold)).mean()),
    }
    if labels:
        truth = is_anomalous(np.concatenate(labels), typical)
        found |= {"auroc": auroc(before, truth), "auroc_exported": auroc(after, truth)}
        found["auroc_cost"] = found["auroc"] - found["auroc_exported"]
    return found


def _show(result: dict[str, Any]) -> None:
    typer.echo(f"graph: {result['graph']} ({result['bytes'] / 1024:.1f} KiB)")
    typer.echo(f"scorer: {result['scorer']}")
    typer.echo(f"scores differ from the detector's by {result['largest_relative_difference']:.1e} at most, relative")
    if "n_rows" in result:
        typer.echo(f"same verdict on {result['same_verdict']:.2%} of {result['n_rows']} rows")
    if "auroc" in result:
        before, after = result["auroc"], result["auroc_exported"]
        typer.echo(f"AUROC {after:.4f} instead of {before:.4f}: it costs {result['auroc_cost']:+.4f}")
