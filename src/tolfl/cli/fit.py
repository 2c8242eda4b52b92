"""`tolfl fit`: a detector from a table or a data set, trained by its devices together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.flags import Format, spec_from_flags
from tolfl.cli.output import show_json
from tolfl.core.errors import RunDirectoryError, SpecError, UnknownNameError
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    from tolfl.detect import Detector, DetectorSpec
    from tolfl.detect.fitting import Gathered
    from tolfl.signals.captures.known_networks import Networks

#: Flags that are fields of a detector's specification, and those that say which data.
_DETECTOR = (
    "model", "cells", "scheme", "clusters", "rounds", "fail", "on_head_failure", "contamination", "false_alarm_rate",
    "alarms_per_day", "windows_per_day", "trim", "seed",
)  # fmt: skip
_DATA = (
    "data", "data_dir", "partition", "device_column", "label_column", "time_column", "columns", "ignore", "encoding",
    "window_s", "step_s", "per", "rate", "centre", "without_bursts", "devices", "seed",
)  # fmt: skip

FillMissing = Annotated[
    bool, typer.Option("--fill-missing", help="Take a missing value as the usual value of its column.")
]
Typical = Annotated[
    list[str] | None,
    typer.Option(
        help="A class of the label column that is typical; may be repeated. (default: 0, normal, benign, ...)"
    ),
]


def fit(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    data: Annotated[
        str, typer.Argument(help="A table, capture or recording, a folder with one per device, a data set, or -.")
    ],
    device_column: flags.DeviceColumn = None,
    label_column: flags.LabelColumn = None,
    time_column: flags.TimeColumn = None,
    columns: flags.Columns = None,
    ignore: flags.Ignore = None,
    encoding: flags.Encoding = None,
    window_s: Annotated[
        float | None, typer.Option("--window", help="Seconds in a window of a capture. (default: 1)")
    ] = None,
    step_s: Annotated[
        float | None, typer.Option("--step", help="Seconds from one window to the next. (default: the window's)")
    ] = None,
    per: Annotated[
        str | None, typer.Option(help="Of 802.11 captures, a row for each: bssid or channel. (default: one for all)")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Samples a second of .cu8 and the like, where names do not say it: 250k.")
    ] = None,
    centre: Annotated[
        str | None, typer.Option(help="What frequencies of receivers count from: 433.92M. (default: their tuning)")
    ] = None,
    without_bursts: Annotated[
        bool | None, typer.Option("--without-bursts", help="Leave out seconds of 802.11 that look like an attack.")
    ] = None,
    typical: Typical = None,
    data_dir: flags.DataDir = None,
    devices: Annotated[
        int | None, typer.Option("--devices", "-n", help="How many devices. (default: as the table has; else 10)")
    ] = None,
    partition: flags.Partition = None,
    model: Annotated[str | None, typer.Option(help="cells, mahalanobis, autoencoder or pca. (default: cells)")] = None,
    cells: Annotated[int | None, typer.Option(help="At most so many cells. (default: 32)")] = None,
    scheme: Annotated[str | None, typer.Option(help="How devices train together. (default: tol-fl)")] = None,
    clusters: flags.Clusters = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds of the autoencoder. (default: 100)")] = None,
    fail: flags.Fail = None,
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
        float | None, typer.Option(help="Share of rows that may be anomalous, to be left out of cells. (default: 0)")
    ] = None,
    fill_missing: FillMissing = False,
    seed: flags.Seed = None,
    continue_from: Annotated[
        Path | None, typer.Option("--continue", help="A detector of cells to go on from, with new typical rows.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file for the detector. (default: DATA.tolfl)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    track: flags.Track = None,
    track_to: flags.TrackTo = None,
    settings: flags.Set = None,
    format: flags.HowShown = Format.TABLE,
) -> None:
    """Train a detector on typical rows, by devices that share parameters and keep their rows, and save it.

    Numbers, true and false, and words are learned from; dates, identifiers, counters and clocks are not, unless
    --columns names them. Rows of an anomalous class are left out of training; with such rows, a fifth of the typical
    ones is set aside, too, and both are used to say how good the detector is.

    Example: tolfl fit readings.csv --device-column building --out model

    Example: tolfl fit flows.csv --ignore port --label-column attack --typical benign

    Example: tolfl fit comms-ml --devices 10 --fail server@50 --out model

    Example: tolfl fit readings.csv --device-column building --alarms-per-day 1 --windows-per-day 1440

    Example: tolfl fit router.pcap --window 10 --out model
    """
    asked = dict(locals())
    from tolfl.detect import Detector
    from tolfl.detect.fitting import gather
    from tolfl.tables import spooled

    before = None if continue_from is None else Detector.load(continue_from)
    target = _target(out, data, force)
    with spooled(data) as source:
        detector_spec, data_spec = _specs({**asked, "data": source})
        gathered = gather(data_spec, devices, fill_missing)
    for note in gathered.notes:
        typer.echo(f"tolfl: {note}", err=True)
    detector, quality = _trained(gathered, detector_spec, (track, track_to, target.stem), before)
    _keep_networks(gathered.networks, target, continue_from)
    replace(detector, schema=gathered.schema).save(target)
    _show(detector, target, quality, format)


def _keep_networks(networks: Networks | None, target: Path, before: Path | None) -> None:
    """Write the networks that are not new to a detector beside it; where there are none, nothing is left there."""
    from tolfl.runs.directory import write_file
    from tolfl.signals.captures.known_networks import as_bytes, joined_networks, networks_file, networks_known

    path = networks_file(target)
    known = joined_networks(None if before is None else networks_known(networks_file(before)), networks)
    if known is not None:
        write_file(path.parent, path.name, as_bytes(known))
    elif target.exists():  # the file of the detector that is replaced
        path.unlink(missing_ok=True)


def _target(out: Path | None, data: str, force: bool) -> Path:
    """Return where the detector goes, found out before hours of training; a file is replaced only on request."""
    target = Path(f"{Path(data).name.split('.')[0].strip('-') or 'model'}.tolfl") if out is None else out.expanduser()
    if target.is_dir():
        raise SpecError(f"--out {target} is a folder; give the name of a file")
    if target.exists() and not force:
        raise SpecError(f"--out {target} is there already; choose another name, or replace it with --force")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=target.parent, prefix=".tolfl-"):
            pass
    except OSError as error:
        raise RunDirectoryError(target.parent, f"cannot be written ({error.strerror}); choose another --out") from None
    return target


def _specs(asked: dict[str, Any]) -> tuple[DetectorSpec, RunSpec]:
    """Return what was asked of the detector and of the data; --set goes to the one that has the field."""
    from tolfl.detect import DetectorSpec
    from tolfl.detect.detector_spec import SCALINGS, check_model

    fields = msgspec.to_builtins(DetectorSpec())
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
    check_model(str(fields["model"]))
    if fields["scaling"] not in SCALINGS:
        raise UnknownNameError("scaling", str(fields["scaling"]), list(SCALINGS))
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


def _trained(
    gathered: Gathered, spec: DetectorSpec, track: tuple[str | None, str | None, str], before: Detector | None = None
) -> tuple[Detector, dict[str, float]]:
    """Train, showing and tracking what happens; return the detector and how good it is, where that can be known."""
    from contextlib import nullcontext

    from tolfl.cli.progress import progress_bar, show
    from tolfl.core.metrics import auroc, average_precision
    from tolfl.detect import fit_detector, fit_more
    from tolfl.detect.fitting import Seen, watched_by
    from tolfl.runs.tracking import tracker_for

    kind, where, name = track
    tracking = nullcontext(None) if kind is None else tracker_for(kind, name, where or "", list(gathered.slices))
    with tracking as tracker, progress_bar() as bar:
        task = bar.add_task("training", total=None, loss="")

        def watch(seen: Seen) -> None:
            show(bar, task, seen.progress, "training")
            if tracker is not None:
                tracker.add(seen.records)

        with watched_by(watch):
            if before is None:
                detector = fit_detector(gathered.slices, spec, gathered.features)
            else:
                before.features.check_same(gathered.features)
                detector = fit_more(before, gathered.slices, spec)
        quality: dict[str, float] = {}
        if gathered.test is not None:
            rows, truth = gathered.test
            scores = detector.scores_of(rows).astype(float)
            quality = {"auroc": auroc(scores, truth), "average_precision": average_precision(scores, truth)}
        if tracker is not None:
            tracker.result(quality)
    return detector, quality


def _show(detector: Detector, out: Path, quality: dict[str, float], shown: Format) -> None:
    from tolfl.cli.inspect_model import description_of, show_description

    found: dict[str, Any] = {"saved": str(out), **description_of(detector), **quality}
    if shown is Format.JSON:
        show_json(found)
        return
    show_description(found)
    if quality:
        typer.echo(
            f"AUROC {quality['auroc']:.3f}, average precision {quality['average_precision']:.3f}, on rows set aside"
        )
    typer.echo(f"detector: {out}")
