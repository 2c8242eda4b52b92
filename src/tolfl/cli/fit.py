"""`tolfl fit`: a detector from a table or a data set, trained by its devices together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.flags import SpecFlags, spec_from_flags, value_of
from tolfl.cli.inspect_model import description_of, lines_of_description
from tolfl.cli.output import notify, show
from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec
from tolfl.detect.detector_spec import DetectorSpec

if TYPE_CHECKING:
    from tolfl.cli.output import Line
    from tolfl.datasets import FederatedDataset
    from tolfl.detect import Detector
    from tolfl.signals.wlan import Networks
    from tolfl.sim.simulation import Simulation
    from tolfl.tables import Schema

#: Flags that say which data, and those that are fields of a detector's specification.
_DATA = (
    "data_dir partition device_column label_column typical time_column columns ignore encoding window_s step_s per "
    "rate centre without_bursts devices fail seed"
)
_DETECTOR = (
    "model cells scheme clusters rounds on_head_failure contamination false_alarm_rate alarms_per_day "
    "windows_per_day trim"
)

FillMissing = Annotated[
    bool, typer.Option("--fill-missing", help="Take a missing value as the usual value of its column.")
]


@flags.spec_flags(_DATA, has_file=False, of_other=(_DETECTOR, DetectorSpec()))
def fit(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    asked: SpecFlags,
    data: Annotated[
        str, typer.Argument(help="A table, capture or recording, a folder with one per device, a data set, or -.")
    ],
    fill_missing: FillMissing = False,
    continue_from: Annotated[
        Path | None, typer.Option("--continue", help="A detector of cells to go on from, with new typical rows.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file for the detector. (default: DATA.tolfl)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    track: flags.Track = None,
    track_to: flags.TrackTo = None,
    format: flags.HowShown = "table",
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
    from tolfl.detect import Detector
    from tolfl.detect.fitting import load_training_rows
    from tolfl.tables import spooled

    before = None if continue_from is None else Detector.load(continue_from)
    target = _target(out, data, force)
    with spooled(data) as source:
        detector_spec, data_spec = _specs(asked, source)
        if before is not None:
            data_spec = _as_before(data_spec, before.schema)
        rows, notes = load_training_rows(data_spec, asked.given.get("devices"), fill_missing)
    for note in notes:
        notify(note)
    detector, quality = _trained(rows, detector_spec, (track, track_to, target.stem), before)
    _keep_networks(rows.networks, target, continue_from)
    detector.save(target)
    found = {"saved": str(target), **description_of(detector), **quality}
    show(found, format, _lines_of(found))


def _keep_networks(networks: Networks | None, target: Path, before: Path | None) -> None:
    """Write the networks that are not new to a detector beside it; where there are none, nothing is left there."""
    from tolfl.runs.directory import write_file
    from tolfl.signals.known_networks import as_bytes, joined_networks, networks_file, networks_known

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
    flags.free_bytes(target.parent)
    return target


def _specs(asked: SpecFlags, data: str) -> tuple[DetectorSpec, RunSpec]:
    """Return what was asked of the detector and of the data; --set goes to the one that has the field."""
    given = asked.given
    fields: dict[str, Any] = {name: given[name] for name in [*_DETECTOR.split(), "fail", "seed"] if name in given}
    of_data = []
    for setting in asked.settings:
        name, _, text = setting.partition("=")
        if name.strip() in DetectorSpec.__struct_fields__:
            fields[name.strip()] = value_of(text)
        elif "." in name or name.strip() in RunSpec.__struct_fields__:
            of_data.append(setting)
        else:
            known = ", ".join(DetectorSpec.__struct_fields__)
            raise SpecError(f"--set {setting!r}: a detector has no such field; it has {known}")
    if isinstance(fields.get("contamination"), str):
        fields["contamination"] = value_of(fields["contamination"])
    spec = DetectorSpec.from_fields(fields)
    of_run = {name: given[name] for name in _DATA.split() if name in given and name != "fail"}
    run = spec_from_flags(RunSpec(), {**of_run, "data": data}, of_data)
    return spec, run.check()


def _as_before(spec: RunSpec, schema: Schema | None) -> RunSpec:
    """Return the data with a detector's columns, whatever few new rows make of them; windows bring their own."""
    from tolfl.datasets.catalog import is_path

    names = tuple(column.name for column in schema.columns if not column.measure) if schema is not None else ()
    if not names or not is_path(spec.data) or spec.dataset.columns:
        return spec
    return msgspec.structs.replace(spec, dataset=msgspec.structs.replace(spec.dataset, columns=names))


def _trained(
    data: FederatedDataset,
    spec: DetectorSpec,
    track: tuple[str | None, str | None, str],
    before: Detector | None = None,
) -> tuple[Detector, dict[str, float]]:
    """Train, showing and tracking what happens; return the detector and how good it is, where that can be known."""
    from contextlib import nullcontext

    from tolfl.cli.progress import progress_bar, show
    from tolfl.core.metrics import auroc, average_precision
    from tolfl.detect import Features, fit_detector, fit_more
    from tolfl.runs.tracking import tracker_for

    kind, where, name = track
    tracking = nullcontext(None) if kind is None else tracker_for(kind, name, where or "", list(data.names))
    with tracking as tracker, progress_bar() as bar:
        task = bar.add_task("training", total=None, loss="")

        def on_round(simulation: Simulation) -> None:
            show(bar, task, simulation.progress, "training")
            if tracker is not None:
                tracker.add_new(simulation.records)

        if before is None:
            detector = fit_detector(data, spec, on_round=on_round)
        else:
            before.features.check_same(Features.named(data.feature_names))
            detector = fit_more(before, data, spec, on_round)
        quality: dict[str, float] = {}
        if data.test is not None and data.is_anomalous is not None:
            scores, truth = detector.scores_of(data.test).astype(float), data.is_anomalous
            quality = {"auroc": auroc(scores, truth), "average_precision": average_precision(scores, truth)}
        if tracker is not None:
            tracker.result(quality)
    return detector, quality


def _lines_of(found: dict[str, Any]) -> Iterator[Line]:
    yield from lines_of_description(found)
    if "auroc" in found:
        yield f"AUROC {found['auroc']:.3f}, average precision {found['average_precision']:.3f}, on rows set aside"
    yield f"detector: {found['saved']}"
