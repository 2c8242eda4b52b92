"""`tolfl evaluate`: how good a detector is on rows whose truth is known, in numbers and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.fit import FillMissing, Typical
from tolfl.cli.inspect_model import Model
from tolfl.cli.options import Format, spec_from_flags
from tolfl.core.errors import DataError, RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.detect import Detector
    from tolfl.detect.assessment import Assessment, Judged
    from tolfl.detect.streams import ColumnRoles


def evaluate(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Model,
    data: Annotated[str, typer.Argument(help="A table or folder with truth, or a data set's name (its test rows).")],
    label_column: options.LabelColumn = None,
    typical: Typical = None,
    device_column: options.DeviceColumn = None,
    time_column: options.TimeColumn = None,
    data_dir: options.DataDir = None,
    fill_missing: FillMissing = False,
    out: Annotated[
        Path | None, typer.Option(help="A folder for roc.png, histogram.png, timeline.png and evaluation.json.")
    ] = None,
    settings: options.Set = None,
    format: options.HowShown = Format.TABLE,
) -> None:
    """Compare verdicts with the truth: AUROC, average precision, alarms, time to detect; for the fleet and each device.

    The partial AUROC looks at thresholds with at most 1 % false alarms; 0.5 is chance, 1 is best. An event is a run of
    anomalous rows of one device; its time to detect is from its first row to its first alarm.

    Example: tolfl evaluate model november.csv --label-column state --device-column building --time-column time

    Example: tolfl evaluate model comms-ml --out pictures --format json
    """
    from tolfl.datasets import is_path
    from tolfl.datasets.loaders.captures import refuse_captures
    from tolfl.detect import Detector
    from tolfl.detect.assessment import assess
    from tolfl.detect.streams import ColumnRoles

    detector = Detector.load(model)
    if is_path(data) or Path(data).exists():
        refuse_captures(Path(data))
        if label_column is None and not data.endswith(".npz"):
            raise SpecError("--label-column says which column has the truth; give it")
        roles = ColumnRoles(device_column or "", label_column or "", time_column or "")
        judged = _judged_table(detector, Path(data), roles, tuple(typical or ()), fill_missing)
    else:
        judged = _judged_set(detector, data, data_dir, settings)
    found = assess(judged)
    result = {"model": str(model), "data": data, **msgspec.to_builtins(found)}
    if out is not None:
        _draw(judged, detector.thresholds.threshold, result, out)
    if format is Format.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
        return
    _show(found, out)


def _judged_table(
    detector: Detector, path: Path, roles: ColumnRoles, typical: tuple[str, ...], fill_missing: bool
) -> Judged:
    """Score a table block by block; scores and truth are kept, rows are not."""
    import numpy as np

    from tolfl.detect.assessment import Judged
    from tolfl.detect.gathering import is_anomalous
    from tolfl.detect.scored import score_rows
    from tolfl.detect.sources import roles_in, tables_in
    from tolfl.detect.streams import Reader

    roles = roles_in(path, roles)
    if not roles.label:
        raise SpecError(f"{path} has no array 'y' with the truth; name it with --label-column")
    reader = Reader(detector, roles, fill_missing)
    scores, alarms = [], []
    labels: list[Any] = []
    devices: list[Any] = []
    times: list[Any] = []
    n_bad = 0
    for batch in reader.batches(tables_in(path, reader)):
        good, n_bad = batch.is_good, n_bad + len(batch.problems)
        owners = None if batch.devices is None else batch.devices[good]
        scored = score_rows(detector, batch.rows[good], owners, n_top=0)
        scores.append(scored.scores)
        alarms.append(scored.is_alarm)
        for kept, values in ((labels, batch.labels), (devices, batch.devices), (times, batch.times)):
            if values is not None:
                kept.append(values[good])
    for note in [*reader.notes, *[f"{n_bad} rows cannot be scored and are left out"] * bool(n_bad)]:
        typer.echo(f"tolfl: {note}", err=True)
    if not sum(map(len, scores)):
        raise DataError(f"{path}: there is no row that could be scored")
    truth = is_anomalous(np.concatenate(labels), typical)
    return Judged(
        np.concatenate(scores),
        np.concatenate(alarms),
        truth,
        np.concatenate(devices) if devices else None,
        np.concatenate(times) if times else None,
    )


def _judged_set(detector: Detector, name: str, data_dir: str | None, settings: list[str] | None) -> Judged:
    """Score the test rows of a data set, split as `tolfl fit` with the same seed splits it."""
    from tolfl.detect.assessment import Judged
    from tolfl.detect.gathering import gather
    from tolfl.detect.scored import score_rows

    given = {"data": name, "seed": detector.spec.seed} | ({} if data_dir is None else {"data_dir": data_dir})
    gathered = gather(spec_from_flags(RunSpec(), given, settings).check())
    if gathered.test is None:
        raise DataError(f"{name} has no anomalous rows to test with; choose classes with --set dataset.anomalous")
    rows, truth = gathered.test
    scored = score_rows(detector, detector.features.check(rows), n_top=0)
    return Judged(scored.scores, scored.is_alarm, truth)


def _draw(judged: Judged, threshold: float, result: dict[str, Any], out: Path) -> None:
    from tolfl.detect.plots import plot_histogram, plot_roc, plot_timeline
    from tolfl.runs.directory import write_file

    write_file(out, "evaluation.json", msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    figures = {
        "roc": plot_roc(judged),
        "histogram": plot_histogram(judged, threshold),
        "timeline": plot_timeline(judged, threshold),
    }
    try:
        for name, figure in figures.items():
            figure.savefig(out / f"{name}.png", dpi=130)
    except OSError as error:
        raise RunDirectoryError(out, f"cannot be written ({error.strerror}); choose another --out") from None


def _show(found: Assessment, out: Path | None) -> None:
    from rich.table import Table

    from tolfl.cli.output import console_for_tables, number

    console = console_for_tables()
    heads = ("rows", "anomalous", "AUROC", "avg. precision", "partial AUROC", "false alarms", "detected")
    times = ("events", "noticed", "median s", "longest s") if found.detections is not None else ()
    table = Table("", *heads, *times, box=None, padding=(0, 2, 0, 0))
    rows = [("fleet", found.fleet, found.detections)]
    rows += [(name, one, found.detections_per_device.get(name)) for name, one in found.per_device.items()]
    for name, quality, detections in rows[:21]:
        scores = (number(value) for value in (quality.auroc, quality.average_precision, quality.partial_auroc))
        rates = (number(value, 4) for value in (quality.false_alarm_rate, quality.detection_rate))
        cells = [name, str(quality.n_rows), str(quality.n_anomalous), *scores, *rates]
        if detections is not None:
            cells += [str(detections.n_events), str(detections.n_detected)]
            cells += [number(detections.median_s, 1), number(detections.longest_s, 1)]
        table.add_row(*cells)
    console.print(table)
    if out is not None:
        console.print(f"folder: {out}  (roc.png, histogram.png, timeline.png, evaluation.json)")
