"""`tolfl export`: a detector as one file that scores, or as an ONNX graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tolfl.cli import flags
from tolfl.cli.fit import FillMissing
from tolfl.cli.inspect_model import Model
from tolfl.cli.output import notify, show
from tolfl.core.errors import SpecError, UnknownNameError

if TYPE_CHECKING:
    from tolfl.detect import Detector

#: Scores of the graph and of the detector, relative: a larger difference is reported.
_PARITY = 1e-5


def export(
    model: Model,
    to: Annotated[
        str, typer.Option(help="scorer: one file that Python runs; onnx: a graph for other languages.")
    ] = "scorer",
    out: Annotated[Path | None, typer.Option(help="The file to write. (default: MODEL.pyz or MODEL.onnx)")] = None,
    data: Annotated[Path | None, typer.Option(help="onnx: a table to compare the graph with the detector on.")] = None,
    label_column: flags.LabelColumn = None,
    typical: flags.Typical = None,
    fill_missing: FillMissing = False,
    format: flags.HowShown = "table",
) -> None:
    """Write a detector in a form that needs nothing of tolfl.

    A scorer is the code of tolfl score and the detector in one file: python MODEL.pyz readings.csv takes the same
    tables and options, and needs the packages numpy, pyarrow, msgspec, safetensors and threadpoolctl.

    An ONNX graph is scaling, model and score, with thresholds and names inside. Its scores are compared with the
    detector's at once; with --data and --label-column, so is their AUROC.

    Example: tolfl export model --out device/score.pyz

    Example: tolfl export model --to onnx --data november.csv --label-column state
    """
    if to not in {"scorer", "onnx"}:
        raise UnknownNameError("kind of export", to, ["scorer", "onnx"])
    if label_column is not None and data is None:
        raise SpecError("--label-column is a column of --data; give both")
    if to == "scorer" and data is not None:
        raise SpecError("--data compares a graph with its detector; a scorer is the detector's own code")
    from tolfl.detect.detector import Detector
    from tolfl.runs.directory import write_file

    detector = Detector.load(model)
    target = Path(f"{model}.{'pyz' if to == 'scorer' else 'onnx'}") if out is None else out.expanduser()
    if to == "scorer":
        from tolfl.detect.standalone import NEEDS, standalone_scorer

        content = standalone_scorer(detector)
        write_file(target.parent, target.name, content)
        result: dict[str, Any] = {"scorer": str(target), "bytes": len(content), "needs": NEEDS}
    else:
        from tolfl.detect.onnx_export import largest_difference, to_onnx

        content = to_onnx(detector)
        write_file(target.parent, target.name, content)
        difference = largest_difference(detector, content)
        result = {"graph": str(target), "bytes": len(content), "largest_relative_difference": difference}
    if data is not None:
        result |= _compared(detector, content, data, label_column or "", tuple(typical or ()), fill_missing)
    show(result, format, _lines_of(result))
    if result.get("largest_relative_difference", 0.0) > _PARITY:
        notify(f"scores differ by more than {_PARITY:g}; compare them on your own rows with --data")


def _compared(
    detector: Detector, content: bytes, path: Path, label_column: str, typical: tuple[str, ...], fill_missing: bool
) -> dict[str, Any]:
    """Return how far graph and detector agree on the rows of a table."""
    import numpy as np

    from tolfl.core.metrics import auroc
    from tolfl.detect.onnx_export import largest_difference, onnx_scores
    from tolfl.detect.quality import is_anomalous
    from tolfl.detect.scoring import TableScorer
    from tolfl.tables import Roles, blocks

    scorer = TableScorer(detector, Roles(label=label_column), fill_missing=fill_missing)
    ours, theirs, labels = [], [], []
    difference = 0.0
    for block in blocks(path, scorer.reading()):
        batch = scorer.rows(block)
        rows = batch.values[batch.is_good]
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


def _lines_of(result: dict[str, Any]) -> Iterator[str]:
    if "scorer" in result:
        yield f"scorer: {result['scorer']} ({result['bytes'] / 1024:.1f} KiB)"
        yield f"run it: python {result['scorer']} DATA; it needs {', '.join(result['needs'])}"
        return
    yield f"graph: {result['graph']} ({result['bytes'] / 1024:.1f} KiB)"
    yield f"scores differ from the detector's by {result['largest_relative_difference']:.1e} at most, relative"
    if "n_rows" in result:
        yield f"same verdict on {result['same_verdict']:.2%} of {result['n_rows']} rows"
    if "auroc" in result:
        before, after = result["auroc"], result["auroc_exported"]
        yield f"AUROC {after:.4f} instead of {before:.4f}: it costs {result['auroc_cost']:+.4f}"
