"""`tolfl evaluate`: how good a detector is on rows whose truth is known, in numbers and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.fit import FillMissing
from tolfl.cli.flags import spec_from_flags
from tolfl.cli.inspect_model import Model
from tolfl.cli.output import indented_json, notify, number, save_figure, show, table_of
from tolfl.core.errors import DataError, SpecError
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.cli.output import Line
    from tolfl.detect import Detector
    from tolfl.detect.quality import Evaluation, LabelledScores
    from tolfl.tables import Roles


def evaluate(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Model,
    data: Annotated[
        str,
        typer.Argument(help="A table or folder with truth, -: standard input, or a data set's name (its test rows)."),
    ],
    label_column: flags.LabelColumn = None,
    typical: flags.Typical = None,
    device_column: flags.DeviceColumn = None,
    time_column: flags.TimeColumn = None,
    data_dir: flags.DataDir = None,
    fill_missing: FillMissing = False,
    encoding: flags.Encoding = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for roc.png, histogram.png, timeline.png and evaluation.json.")
    ] = None,
    settings: flags.Set = None,
    format: flags.HowShown = "table",
) -> None:
    """Compare verdicts with the truth: AUROC, average precision, alarms, time to detect; for the fleet and each device.

    The partial AUROC looks at thresholds with at most 1 % false alarms; 0.5 is chance, 1 is best. An event is a run of
    anomalous rows of one device; its time to detect is from its first row to its first alarm.

    Example: tolfl evaluate model november.csv --label-column state --device-column building --time-column time

    Example: tolfl evaluate model comms-ml --out pictures --format json
    """
    from tolfl.datasets import is_path
    from tolfl.datasets.own_table import check_roles
    from tolfl.detect import Detector
    from tolfl.detect.quality import evaluation_of
    from tolfl.tables import Roles

    detector = Detector.load(model)
    if out is not None:
        flags.free_bytes(out)
    if data == "-" or is_path(data) or Path(data).exists():
        roles = Roles(device_column or "", label_column or "", time_column or "")
        check_roles(data, Roles(label=label_column or "truth"))
        judged = _judged_table(detector, data, roles, tuple(typical or ()), fill_missing, encoding or "")
    else:
        judged = _judged_set(detector, data, data_dir, settings)
    found = evaluation_of(judged)
    result = {"model": str(model), "data": data, **msgspec.to_builtins(found)}
    if out is not None:
        _draw(judged, detector.thresholds.threshold, result, out)
    show(result, format, _lines_of(found, out))


def _judged_table(
    detector: Detector, data: str, roles: Roles, typical: tuple[str, ...], fill_missing: bool, encoding: str
) -> LabelledScores:
    """Score a table block by block; scores and truth are kept, rows are not."""
    import numpy as np

    from tolfl.detect.quality import LabelledScores, is_anomalous
    from tolfl.detect.scoring import TableScorer
    from tolfl.tables import Roles, blocks

    scorer = TableScorer(detector, roles, n_top=0, fill_missing=fill_missing)
    how = scorer.reading()
    source = blocks(data, replace(how, encoding=encoding or how.encoding))
    first = next(source, None)
    usual = first.roles if first is not None else {}
    own = Roles(*(getattr(roles, role) or usual.get(role, "") for role in ("device", "label", "time")))
    own = msgspec.structs.replace(own, label=own.label or scorer.schema.roles.label)
    if not own.label:
        raise SpecError("--label-column says which column has the truth; give it")
    scorer = TableScorer(detector, own, n_top=0, fill_missing=fill_missing)
    kept = []
    for scored in scorer.score(chain([first] if first is not None else [], source)):
        scored.rows.values = np.empty((0, 0), np.float32)
        kept.append(scored)
    good = [one.is_scored for one in kept]
    n_bad = sum(int((~one).sum()) for one in good)
    for note in [*scorer.notes, *[f"{n_bad} rows cannot be scored and are left out"] * bool(n_bad)]:
        notify(note)
    if not sum(int(one.sum()) for one in good):
        raise DataError(f"{data}: there is no row that could be scored")

    def of_rows(name: str) -> Any:
        parts = [getattr(one.rows, name) for one in kept]
        return None if parts[0] is None else np.concatenate([p[own] for p, own in zip(parts, good, strict=True)])

    scores = np.concatenate([one.scores[own] for one, own in zip(kept, good, strict=True)])
    alarms = np.concatenate([one.is_alarm[own] for one, own in zip(kept, good, strict=True)])
    return LabelledScores(
        scores, alarms, is_anomalous(of_rows("labels"), typical), of_rows("devices"), of_rows("times")
    )


def _judged_set(detector: Detector, name: str, data_dir: str | None, settings: list[str] | None) -> LabelledScores:
    """Score the test rows of a data set, split as `tolfl fit` with the same seed splits it."""
    from tolfl.datasets.catalog import unscaled
    from tolfl.detect.quality import LabelledScores

    given = {"data": name, "seed": detector.spec.seed} | ({} if data_dir is None else {"data_dir": data_dir})
    found, _ = unscaled(spec_from_flags(RunSpec(), given, settings).check())
    if found.test is None or found.is_anomalous is None:
        raise DataError(f"{name} has no anomalous rows to test with; choose classes with --set dataset.anomalous")
    scores = detector.scores_of(detector.features.check(found.test)).astype(float)
    return LabelledScores(scores, scores > detector.thresholds.threshold, found.is_anomalous)


def _draw(judged: LabelledScores, threshold: float, result: dict[str, Any], out: Path) -> None:
    from tolfl.detect.quality import plot_histogram, plot_roc, plot_timeline
    from tolfl.runs.directory import write_file

    write_file(out, "evaluation.json", indented_json(result))
    save_figure(plot_roc(judged), out / "roc.png")
    save_figure(plot_histogram(judged, threshold), out / "histogram.png")
    save_figure(plot_timeline(judged, threshold), out / "timeline.png")


def _lines_of(found: Evaluation, out: Path | None) -> Iterator[Line]:
    heads = ("rows", "anomalous", "AUROC", "avg. precision", "partial AUROC", "false alarms", "detected")
    times = ("events", "noticed", "median s", "longest s") if found.detections is not None else ()
    parts = [("fleet", found.fleet, found.detections)]
    parts += [(name, one, found.detections_per_device.get(name)) for name, one in found.per_device.items()]
    rows = []
    for name, quality, detections in parts[:21]:
        scores = (number(value) for value in (quality.auroc, quality.average_precision, quality.partial_auroc))
        rates = (number(value, 4) for value in (quality.false_alarm_rate, quality.detection_rate))
        cells = [name, str(quality.n_rows), str(quality.n_anomalous), *scores, *rates]
        if detections is not None:
            cells += [str(detections.n_events), str(detections.n_detected)]
            cells += [number(detections.median_s, 1), number(detections.longest_s, 1)]
        rows.append(cells)
    yield table_of(["", *heads, *times], rows)
    if out is not None:
        yield f"folder: {out}  (roc.png, histogram.png, timeline.png, evaluation.json)"
