"""`tolfl fit`: a detector from a table or a data set, trained by its devices together; or more training for one."""

from __future__ import annotations

from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.options import Format, spec_from_flags
from tolfl.core.errors import RunDirectoryError, SpecError, UnknownNameError
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.detect import Detector, DetectorSpec, Drift
    from tolfl.detect.gathering import Gathered
    from tolfl.runs.tracking import Tracker

#: Flags that are fields of a detector's specification, and those that say which data.
_DETECTOR = (
    "model", "scheme", "clusters", "rounds", "fail", "on_head_failure", "contamination", "false_alarm_rate",
    "alarms_per_day", "windows_per_day", "trim", "seed",
)  # fmt: skip
_DATA = (
    "data", "data_dir", "partition", "device_column", "label_column", "time_column", "window_s", "step_s", "devices",
    "seed",
)  # fmt: skip

FillMissing = Annotated[
    bool, typer.Option("--fill-missing", help="Take a missing value as the mean of the training rows.")
]
Typical = Annotated[
    list[str] | None,
    typer.Option(
        help="A class of the label column that is typical; may be repeated. (default: 0, normal, benign, ...)"
    ),
]


def fit(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    data: Annotated[
        str, typer.Argument(help="A table, capture or recording, a folder with one per device, or a data set's name.")
    ],
    device_column: options.DeviceColumn = None,
    label_column: options.LabelColumn = None,
    time_column: options.TimeColumn = None,
    window_s: Annotated[
        float | None, typer.Option("--window", help="Seconds in a window of a capture. (default: 1)")
    ] = None,
    step_s: Annotated[
        float | None, typer.Option("--step", help="Seconds from one window to the next. (default: the window's)")
    ] = None,
    typical: Typical = None,
    data_dir: options.DataDir = None,
    devices: Annotated[
        int | None, typer.Option("--devices", "-n", help="How many devices. (default: as the table has; else 10)")
    ] = None,
    partition: options.Partition = None,
    model: Annotated[str | None, typer.Option(help="auto, autoencoder, mahalanobis or pca. (default: auto)")] = None,
    scheme: Annotated[str | None, typer.Option(help="How devices train together. (default: tol-fl)")] = None,
    clusters: options.Clusters = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds. (default: 100; PCA without failures: 1)")] = None,
    fail: options.Fail = None,
    on_head_failure: Annotated[str | None, typer.Option(help="elect, drop, ... (default: by scheme)")] = None,
    contamination: Annotated[
        str | None, typer.Option(help="auto, or the share of training rows that is to be anomalous. (default: auto)")
    ] = None,
    false_alarm_rate: Annotated[
        float | None, typer.Option(help="Share of typical rows that may raise an alarm. (default: 0.01)")
    ] = None,
    alarms_per_day: Annotated[float | None, typer.Option(help="In its place: so many false alarms a day ...")] = None,
    windows_per_day: Annotated[float | None, typer.Option(help="... of so many rows a day.")] = None,
    trim: Annotated[
        float | None, typer.Option(help="Share of rows that may be anomalous and is left out. (default: 0)")
    ] = None,
    fill_missing: FillMissing = False,
    seed: options.Seed = None,
    continue_from: Annotated[
        Path | None, typer.Option("--continue", help="A saved detector to go on from, with new rows.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file for the detector. (default: DATA.tolfl)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    track: options.Track = None,
    track_to: options.TrackTo = None,
    settings: options.Set = None,
    format: options.HowShown = Format.TABLE,
) -> None:
    """Train a detector on typical rows, by devices that share parameters and keep their rows, and save it.

    Rows of an anomalous class are left out of training; with such rows, a fifth of the typical ones is set aside, too,
    and both are used to say how good the detector is.

    Example: tolfl fit readings.csv --device-column building --out model

    Example: tolfl fit comms-ml --devices 10 --fail server@50 --out model

    Example: tolfl fit readings.csv --device-column building --alarms-per-day 1 --windows-per-day 1440

    Example: tolfl fit router.pcap --window 10 --out model

    Example: tolfl fit november.csv --device-column building --continue model --out model-2
    """
    asked = dict(locals())
    target = _target(out, data, continue_from, force)
    from tolfl.detect import Detector

    before = None if continue_from is None else Detector.load(continue_from)
    detector_spec, data_spec = _specs(asked, before)
    gathered = _gathered(before, data_spec, asked)
    for note in gathered.notes:
        typer.echo(f"tolfl: {note}", err=True)
    drift = None if before is None else _drift(before, gathered)
    detector, quality = _trained(before, gathered, detector_spec, (track, track_to, target.stem))
    detector.save(target)
    _show(detector, target, quality, drift, format)


def _target(out: Path | None, data: str, continue_from: Path | None, force: bool) -> Path:
    """Return where the detector goes, found out before hours of training; a file is replaced only on request."""
    target = Path(f"{Path(data).name.split('.')[0] or 'model'}.tolfl") if out is None else out.expanduser()
    if target.is_dir():
        raise SpecError(f"--out {target} is a folder; give the name of a file")
    is_update = continue_from is not None and out is not None and target == continue_from.expanduser()
    if target.exists() and not force and not is_update:
        raise SpecError(f"--out {target} is there already; choose another name, or replace it with --force")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=target.parent, prefix=".tolfl-"):
            pass
    except OSError as error:
        raise RunDirectoryError(target.parent, f"cannot be written ({error.strerror}); choose another --out") from None
    return target


def _specs(asked: dict[str, Any], before: Detector | None) -> tuple[DetectorSpec, RunSpec]:
    """Return what was asked of the detector and of the data; --set goes to the one that has the field."""
    from tolfl.detect import DetectorSpec
    from tolfl.detect.spec import MODELS, SCALINGS

    fields = msgspec.to_builtins(DetectorSpec() if before is None else before.spec)
    if before is not None:  # other devices may be there now, and the failures of then are over
        fields |= {"clusters": None, "fail": "", "on_head_failure": ""}
    fields |= {name: asked[name] for name in _DETECTOR if asked[name] is not None}
    if asked["alarms_per_day"] is None and asked["false_alarm_rate"] is not None:
        fields |= {"alarms_per_day": None, "windows_per_day": None}
    of_data = []
    for setting in asked["settings"] or []:
        name, _, text = setting.partition("=")
        if name.strip() in DetectorSpec.__struct_fields__:
            fields[name.strip()] = _value(text)
        elif "." in name or name.strip() in RunSpec.__struct_fields__:
            of_data.append(setting)
        else:
            known = ", ".join(DetectorSpec.__struct_fields__)
            raise SpecError(f"--set {setting!r}: a detector has no such field; it has {known}")
    if fields["contamination"] != "auto":
        fields["contamination"] = _value(str(fields["contamination"]))
    for field, choices in (("model", MODELS), ("scaling", SCALINGS)):
        if fields[field] not in choices:
            raise UnknownNameError(field, str(fields[field]), list(choices))
    try:
        spec = msgspec.convert(fields, DetectorSpec).check()
    except msgspec.ValidationError as error:
        raise SpecError(f"a setting of the detector is wrong: {error}") from None
    given = {name: asked[name] for name in _DATA if asked[name] is not None}
    data = spec_from_flags(RunSpec(), given, of_data)
    if asked["typical"]:
        data = msgspec.structs.replace(
            data, dataset=msgspec.structs.replace(data.dataset, typical=tuple(asked["typical"]))
        )
    return spec, data.check()


def _value(text: str) -> object:
    try:
        return msgspec.toml.decode(f"value = {text}")["value"]
    except msgspec.DecodeError:
        return text.strip()


def _gathered(before: Detector | None, spec: RunSpec, asked: dict[str, Any]) -> Gathered:
    from tolfl.datasets import is_path
    from tolfl.detect.gathering import gather, gather_more
    from tolfl.detect.streams import Roles

    if before is None or not is_path(spec.data):
        return gather(spec, asked["devices"], asked["fill_missing"])
    columns = spec.dataset
    roles = Roles(columns.device_column, columns.label_column, columns.time_column)
    return gather_more(before, Path(spec.data), roles, columns.typical, asked["fill_missing"])


def _drift(before: Detector, gathered: Gathered) -> Drift:
    """Say aloud whether the new rows still look like the old ones."""
    from tolfl.detect import drift_of

    slices = {name: before.features.check(rows) for name, rows in gathered.slices.items()}
    drift = drift_of({name: before.scores_of(rows) for name, rows in slices.items()}, before.thresholds)
    who = f"; on their own: {', '.join(drift.drifting_devices)}" if drift.drifting_devices else ""
    typer.echo(f"tolfl: {drift}{who}", err=True)
    return drift


def _trained(
    before: Detector | None, gathered: Gathered, spec: DetectorSpec, track: tuple[str | None, str | None, str]
) -> tuple[Detector, dict[str, float]]:
    """Train, showing and tracking what happens; return the detector and how good it is, where that can be known."""
    from contextlib import nullcontext

    from tolfl.cli.progress import progress_bar
    from tolfl.core.metrics import auroc, average_precision
    from tolfl.detect import fit_detector, fit_more
    from tolfl.detect.watching import Seen, watched_by
    from tolfl.runs.tracking import tracker_for

    kind, where, name = track
    tracking = nullcontext(None) if kind is None else tracker_for(kind, name, where or "", list(gathered.slices))
    with tracking as tracker, progress_bar() as bar:
        task = bar.add_task("training", total=None, loss="")

        def watch(seen: Seen) -> None:
            loss = "" if seen.progress.loss is None else f"loss {seen.progress.loss:.4g}"
            bar.update(
                task, description=seen.model, completed=seen.progress.rounds_done, total=seen.progress.rounds, loss=loss
            )
            _tell(tracker, seen)

        with watched_by(watch):
            if before is None:
                detector = fit_detector(gathered.slices, spec, gathered.features)
            else:
                detector = fit_more(before, gathered.slices, spec)
        quality: dict[str, float] = {}
        if gathered.test is not None:
            rows, truth = gathered.test
            scores = detector.anomaly_score(rows)
            quality = {"auroc": auroc(scores, truth), "average_precision": average_precision(scores, truth)}
        if tracker is not None:
            tracker.result(quality)
    return detector, quality


def _tell(tracker: Tracker | None, seen: Any) -> None:
    if tracker is not None:
        tracker.hear(seen.records, f"{seen.model}/")


def _show(detector: Detector, out: Path, quality: dict[str, float], drift: Drift | None, shown: Format) -> None:
    from tolfl.cli.inspect_model import description_of, show_description

    found: dict[str, Any] = {"saved": str(out), **description_of(detector), **quality}
    if drift is not None:
        found["drift"] = {**msgspec.to_builtins(drift), "is_drifting": drift.is_drifting}
    if shown is Format.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    show_description(found)
    if quality:
        typer.echo(
            f"AUROC {quality['auroc']:.3f}, average precision {quality['average_precision']:.3f}, on rows set aside"
        )
    typer.echo(f"detector: {out}")
