"""Commands around a detector: `tolfl fit`, `score`, `watch`, `inspect`, `evaluate`, `export`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.flags import SpecFlags, spec_from_flags, value_of
from tolfl.cli.output import indented_json, notify, number, save_figure, show, table_of
from tolfl.cli.progress import on_sigterm
from tolfl.core.errors import DataError, MissingDataError, SpecError, UnknownNameError
from tolfl.core.spec import RunSpec
from tolfl.detect.detector_spec import DetectorSpec

if TYPE_CHECKING:
    from tolfl.cli.output import Line
    from tolfl.datasets import FederatedDataset
    from tolfl.detect import Detector
    from tolfl.detect.quality import Evaluation, LabelledScores
    from tolfl.signals.wlan import Networks
    from tolfl.sim.simulation import Simulation
    from tolfl.tables import Roles, Schema
    from tolfl.watch.watcher import Watcher

Model = Annotated[Path, typer.Argument(help="A saved detector (tolfl fit).")]
FillMissing = Annotated[
    bool, typer.Option("--fill-missing", help="Take a missing value as the usual value of its column.")
]


# -- fit --------------------------------------------------------------------------------------------------------

#: Flags of the data, and those that are fields of a detector's specification.
_DATA = (
    "data_dir partition device_column label_column typical time_column columns ignore encoding window_s step_s per "
    "rate centre without_bursts devices fail seed"
)
_DETECTOR = (
    "model cells scheme clusters rounds on_head_failure contamination false_alarm_rate alarms_per_day "
    "windows_per_day trim"
)


@flags.spec_flags(_DATA, has_file=False, of_other=(_DETECTOR, DetectorSpec()))
def fit(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    asked: SpecFlags,
    data: Annotated[
        str, typer.Argument(help="A table, capture or recording, a folder with one per device, a data set, or -.")
    ],
    fill_missing: FillMissing = False,
    continue_from: Annotated[
        Path | None, typer.Option("--continue", help="A detector of cells to update with new typical rows.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file for the detector. (default: DATA.tolfl)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
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
    detector, measured = _trained(rows, detector_spec, (track, track_to, target.stem), before)
    _keep_networks(rows.networks, target, continue_from)
    detector.save(target)
    found = {"saved": str(target), **description_of(detector), **measured}
    show(found, format, _lines_of_fit(found))


def _keep_networks(networks: Networks | None, target: Path, before: Path | None) -> None:
    """Write the networks that are not new to a detector beside it; where there are none, nothing is left there."""
    from tolfl.runs.directory import write_file
    from tolfl.signals.wlan import as_bytes, joined_networks, networks_file, networks_known

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
    """Train, showing and tracking what happens; return the detector, what was sent, and how good it is where known."""
    from contextlib import nullcontext

    from tolfl.cli.progress import progress_bar, show_progress
    from tolfl.core.metrics import auroc, average_precision
    from tolfl.detect import Features, fit_detector, fit_more
    from tolfl.runs.tracking import tracker_for

    kind, where, name = track
    tracking = nullcontext(None) if kind is None else tracker_for(kind, name, where or "", list(data.names))
    with tracking as tracker, progress_bar() as bar:
        task = bar.add_task("training", total=None, loss="", place="")

        found: dict[str, float] = {}

        def on_round(simulation: Simulation) -> None:
            found["bytes"] = simulation.timeline.ledger.total_bytes
            show_progress(bar, task, simulation.progress, "training")
            if tracker is not None:
                tracker.add_new(simulation.records)

        if before is None:
            detector = fit_detector(data, spec, on_round=on_round)
        else:
            before.features.check_same(Features.named(data.feature_names))
            detector = fit_more(before, data, spec, on_round)
        quality = {}
        if data.test is not None and data.is_anomalous is not None:
            scores, truth = detector.scores_of(data.test).astype(float), data.is_anomalous
            quality = {"auroc": auroc(scores, truth), "average_precision": average_precision(scores, truth)}
        if tracker is not None:
            tracker.result(quality)
    return detector, {**quality, **found}


def _lines_of_fit(found: dict[str, Any]) -> Iterator[Line]:
    yield from lines_of_description(found)
    if "auroc" in found:
        yield f"AUROC {found['auroc']:.3f}, average precision {found['average_precision']:.3f}, on rows set aside"
    if found["bytes"]:
        yield f"sent by all devices: {found['bytes'] / 1e6:.3g} MB"
    yield f"detector: {found['saved']}"


# -- score ------------------------------------------------------------------------------------------------------


def score(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(help="CSV, JSON lines, Parquet, Arrow, NPZ, pcap, SigMF, a folder of these; -: standard input."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Keep reading a capture that grows; without a file: standard input."),
    ] = False,
    interface: flags.Interface = None,
    raw: flags.Raw = "",
    device_column: Annotated[
        str | None, typer.Option(help="Whose row it is: that device's own threshold is used.")
    ] = None,
    time_column: flags.TimeColumn = None,
    alert_only: Annotated[bool, typer.Option("--alert-only", help="Show rows above the threshold only.")] = False,
    group: Annotated[
        float | None,
        typer.Option(help="Show alarms of a device as one if no more seconds (without a time: rows) lie between."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="So many features that make the score of an alarm.")] = 3,
    explain_all: Annotated[
        bool, typer.Option("--explain-all", help="Name these features for all rows, which takes longer.")
    ] = False,
    fill_missing: FillMissing = False,
    encoding: flags.Encoding = None,
    format: Annotated[Literal["table", "csv", "jsonl", "json"], typer.Option(help="How to show the scores.")] = "table",
) -> None:
    """Score rows: the anomaly score, its p-value, the verdict, and the features behind an alarm.

    Columns are matched by name, and read as in training; others are not used. A row that cannot be scored gets a
    sentence on standard error, all others are scored, and the exit code is 1.

    Example: tolfl score model november.csv --device-column building --alert-only

    Example: tolfl score model november.csv --time-column time --group 600 --format csv

    Example: tail -f readings.jsonl | tolfl score model --follow --format jsonl

    Example: tolfl score model --interface wlan0 --alert-only
    """
    piped = "-" if data is None and follow and interface is None else data
    source = flags.source_of(
        piped, interface, "name what to score: a file, - (or --follow) for standard input, or --interface"
    )
    from tolfl.detect.detector import Detector
    from tolfl.detect.scoring import ScoreRequest, score_stream

    request = ScoreRequest(
        source,
        device_column or "",
        time_column or "",
        alert_only,
        group,
        top,
        explain_all,
        fill_missing,
        encoding or "",
        format,
        follow and data not in {None, "-"},
        raw,
    )
    detector, known = Detector.load(model), None
    if any(name.startswith("new_network_frames") for name in detector.features.names):
        from tolfl.signals.wlan import networks_file, networks_known

        known = networks_known(networks_file(model))
    if score_stream(detector, request, sys.stdout.buffer, sys.stderr, known):
        raise typer.Exit(1)


# -- watch ------------------------------------------------------------------------------------------------------

_SAID_EVERY_S = 0.5


def watch(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Model,
    source: Annotated[
        str | None, typer.Argument(help="A capture, a table, or - for standard input (pcap, pcapng, JSON lines, CSV).")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep reading a capture file that grows.")] = False,
    interface: flags.Interface = None,
    raw: flags.Raw = "",
    state: Annotated[Path, typer.Option(help="The folder of the queue: unsent alarms are sent after a restart.")] = (
        Path("tolfl-watch")
    ),
    json: Annotated[
        str, typer.Option(help="Alarms as JSON lines: a file, or - for standard output. (default: -, if no other)")
    ] = "",
    syslog: Annotated[
        str, typer.Option(help="Alarms by RFC 5424, at most once: udp://HOST:514, tcp://HOST:601, unix:///dev/log.")
    ] = "",
    mqtt: Annotated[str, typer.Option(help="Alarms to a broker: mqtt://USER:PASSWORD@HOST:1883, mqtts://...")] = "",
    webhook: Annotated[str, typer.Option(help="Alarms by HTTP POST: https://HOST/PATH.")] = "",
    device: Annotated[str, typer.Option(help="The name of this device in alarms; its own threshold is used.")] = "",
    device_column: Annotated[str | None, typer.Option(help="Whose row it is: alarms are grouped by it.")] = None,
    time_column: flags.TimeColumn = None,
    metrics: Annotated[str, typer.Option(help="host:port for Prometheus: tolfl_watch_*. (default: none)")] = "",
) -> None:
    """Watch a source with a detector, and send alarms: a group of windows opens, is updated, closes.

    A group opens when a window reaches twice its limit, or 2 of 3 windows reach it, and closes after 10 windows below
    half of it. Alarms are in a queue on disk until every sink has received them: a kill loses none. Failures are
    printed on standard error and retried; watching continues.

    Example: tolfl watch model november.csv --device-column building --json alarms.jsonl

    Example: tolfl watch model --interface wlan0 --mqtt mqtt://broker.example:1883 --device gate

    Example: tcpdump -i wlan0 -U -w - | tolfl watch model - --syslog unix:///dev/log

    Example: rtl_sdr -f 433.92M -s 250k - | tolfl watch model - --raw cu8
    """
    where = flags.source_of(source, interface, "name what to watch: a file, - for standard input, or --interface")
    from tolfl.net.addresses import split_address
    from tolfl.net.status import served
    from tolfl.tables import Roles
    from tolfl.watch.sinks import sinks_of
    from tolfl.watch.watcher import Watcher

    if where != "-" and interface is None and not Path(where).expanduser().exists():
        raise MissingDataError(f"{where}: no such file or folder; check the path")
    if metrics:
        split_address(metrics)
    is_silent = not (json or syslog or mqtt or webhook)
    sinks = sinks_of("-" if is_silent else json, syslog, mqtt, webhook, device)
    watcher = Watcher(
        where, state, sinks, device, follow=follow, roles=Roles(device_column or "", "", time_column or ""), raw=raw
    )
    ended = threading.Event()
    saying = threading.Thread(target=_print_problems, args=(watcher, ended), daemon=True)
    with on_sigterm(KeyboardInterrupt):
        try:
            watcher.load(model)
            saying.start()
            with served(metrics, lambda: watcher.metrics({"device": device})):
                watcher.run()
        finally:
            watcher.close()
            ended.set()
    if watcher.closed_output is not None:
        raise watcher.closed_output
    if watcher.n_known:
        notify(f"{watcher.n_known} window(s) had been watched before; --state with another folder starts over")
    n_waiting = sum(watcher.queue.n_waiting().values())
    rest = f"; {n_waiting} event(s) wait in {state} for the next start" if n_waiting else ""
    notify(f"{watcher.n_rows} window(s), {watcher.n_alarms} above the limit, {watcher.n_events} event(s){rest}")


def _print_problems(watcher: Watcher, ended: threading.Event) -> None:
    """Print each new problem once, and its end."""
    said = ""
    while not ended.wait(_SAID_EVERY_S):
        if watcher.trouble != said:
            said = watcher.trouble
            notify(said or "alarms are delivered again")


# -- inspect ----------------------------------------------------------------------------------------------------


def inspect(model: Model, format: flags.HowShown = "table") -> None:
    """Show a saved detector: features, model and why, thresholds, devices, failures during training.

    Example: tolfl inspect model

    Example: tolfl inspect model --format json
    """
    from tolfl.detect import Detector

    found = {"file": str(model), **description_of(Detector.load(model))}
    show(found, format, lines_of_description(found))


def description_of(detector: Detector) -> dict[str, Any]:
    """Return the description of a detector, as plain values."""
    thresholds: dict[str, Any] = msgspec.to_builtins(detector.thresholds)
    own = [one["own"] for one in thresholds["devices"].values() if one["own"] is not None]
    limits = [detector.thresholds.fleet, *(one.own for one in detector.thresholds.devices.values() if one.own)]
    for limit, found in zip([thresholds["fleet"], *own], limits, strict=True):
        for name in ("levels", "n_at_least"):  # hundreds of numbers that p-values are read from
            del limit[name]
        limit |= {"expected_rate": found.expected_rate, "promise": found.promise}
    arrays = detector.model.arrays()
    return {
        "name": detector.model.name,
        "model": detector.spec.model,
        "n_numbers": sum(array.size for array in arrays.values()),
        "own_cells": {name: len(cells) for name, cells in detector.own_cells.items()},
        "features": [
            {"name": name, "unit": unit}
            for name, unit in zip(detector.features.names, detector.features.units, strict=True)
        ],
        "thresholds": thresholds,
        "trainings": msgspec.to_builtins(detector.trainings),
        "spec": msgspec.to_builtins(detector.spec),
    }


#: Lines of a description: a detector of thousands of devices fits on a screen. All of it is in --format json.
_SHOWN_DEVICES, _SHOWN_LOSSES = 10, 5


def lines_of_description(found: Mapping[str, Any]) -> Iterator[Line]:
    """Yield a description as people read it."""
    last = found["trainings"][-1]
    n_devices = sum(device["rounds"] > 0 for device in last["devices"])
    trained = f"{last['n_samples']} rows of {n_devices} device(s), {last['rounds']} round(s) of {last['scheme']}"
    yield f"{found['name']}: {len(found['features'])} features; {trained}"
    names = list(dict.fromkeys(_name_of(one["name"], one["unit"]) for one in found["features"]))
    rest = f", ... ({len(names) - 20} more)" if len(names) > 20 else ""
    yield f"features: {', '.join(names[:20])}{rest}"
    for place, training in enumerate(found["trainings"]):
        of_training = f"training {place}, " if len(found["trainings"]) > 1 else ""
        events = training["events"]
        for event in events[:_SHOWN_LOSSES]:
            yield f"  {of_training}round {event['round']}: {event['device'] or ''} {event['what']}".rstrip()
        yield from [f"  {of_training}... {len(events) - _SHOWN_LOSSES} more"] * (len(events) > _SHOWN_LOSSES)
        yield from (f"  {note}" for note in training["notes"])
    more = len(last["devices"]) - _SHOWN_DEVICES
    rows = [_device_row(found, device) for device in last["devices"][:_SHOWN_DEVICES]]
    rows += [[f"... {more} more"]] * (more > 0)
    yield table_of(["device", "rows trained", "held back", "rounds", "threshold", ""], rows)
    yield _promise(found["thresholds"])
    if len(found["trainings"]) > 1:
        yield f"trained {len(found['trainings'])} times, each an update of the last"


def _name_of(feature: str, unit: str) -> str:
    """Return the name of a feature with its unit; of the many of a column of words, that of the column."""
    from tolfl.tables.schema import word_column

    column = word_column(feature)
    return f"{column} (words)" if column else f"{feature} [{unit}]" if unit else feature


def _device_row(found: Mapping[str, Any], device: Mapping[str, Any]) -> list[str]:
    name, limit, shown = device["name"], found["thresholds"]["devices"].get(device["name"]), "-"
    note = "" if device["is_survivor"] else "lost during training"
    if limit is not None:
        shown = f"{(limit['own'] or found['thresholds']['fleet'])['value']:.4g}"
        note = limit["own"]["promise"] if limit["own"] else "the fleet's: too few held-back rows for its own"
    if name in found["own_cells"]:
        note = f"{note + '; ' if note else ''}{found['own_cells'][name]} cells of its own"
    return [name, *(str(device[key]) for key in ("n_trained", "n_held_back", "rounds")), shown, note]


def _promise(thresholds: Mapping[str, Any]) -> str:
    fleet = thresholds["fleet"]
    found = f"threshold {fleet['value']:.4g}, from {fleet['n_scores']} {thresholds['calibrated_on']}"
    if thresholds["calibrated_on"] == "all rows":
        return f"{found}: {fleet['budget']:.3g} of the training rows are above it"
    odd = [f"{name}: {one['n_odd']}" for name, one in thresholds["devices"].items() if one["n_odd"]]
    shown = ", ".join(odd[:_SHOWN_DEVICES]) + ", ..." * (len(odd) > _SHOWN_DEVICES)
    return f"{found}: {fleet['promise']}" + (f" (odd rows by device: {shown})" if odd else "")


# -- evaluate ---------------------------------------------------------------------------------------------------


def evaluate(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Model,
    data: Annotated[str, typer.Argument(help="A table with truth, a folder of them, or -: standard input.")],
    label_column: flags.LabelColumn = None,
    typical: flags.Typical = None,
    device_column: flags.DeviceColumn = None,
    time_column: flags.TimeColumn = None,
    fill_missing: FillMissing = False,
    encoding: flags.Encoding = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for roc.png, histogram.png, timeline.png and evaluation.json.")
    ] = None,
    format: flags.HowShown = "table",
) -> None:
    """Compare verdicts with the truth: AUROC, average precision, alarms, time to detect; for the fleet and each device.

    The partial AUROC looks at thresholds with at most 1 % false alarms; 0.5 is chance, 1 is best. An event is a run of
    anomalous rows of one device; its time to detect is from its first row to its first alarm.

    Example: tolfl evaluate model november.csv --label-column state --device-column building --time-column time

    Example: tolfl evaluate model november.csv --label-column state --out pictures --format json
    """
    from tolfl.datasets.own_table import check_roles
    from tolfl.detect import Detector
    from tolfl.detect.quality import evaluation_of, plot_histogram, plot_roc, plot_timeline
    from tolfl.runs.directory import write_file
    from tolfl.tables import Roles

    detector = Detector.load(model)
    if out is not None:
        flags.free_bytes(out)
    check_roles(data, Roles(label=label_column or "truth"))
    roles = Roles(device_column or "", label_column or "", time_column or "")
    labelled = _score_table(detector, data, roles, tuple(typical or ()), fill_missing, encoding or "")
    found, threshold = evaluation_of(labelled), detector.thresholds.threshold
    result = {"model": str(model), "data": data, **msgspec.to_builtins(found)}
    if out is not None:
        write_file(out, "evaluation.json", indented_json(result))
        save_figure(plot_roc(labelled), out / "roc.png")
        save_figure(plot_histogram(labelled, threshold), out / "histogram.png")
        save_figure(plot_timeline(labelled, threshold), out / "timeline.png")
    show(result, format, _lines_of_evaluation(found, out))


def _score_table(
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


def _lines_of_evaluation(found: Evaluation, out: Path | None) -> Iterator[Line]:
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


# -- export -----------------------------------------------------------------------------------------------------

#: Scores of the graph and of the detector, relative: a larger difference is reported.
_PARITY = 1e-6


def export(
    model: Model,
    to: Annotated[
        str, typer.Option(help="scorer: one file that Python runs; onnx: a graph for other languages.")
    ] = "scorer",
    out: Annotated[Path | None, typer.Option(help="The file to write. (default: MODEL.pyz or MODEL.onnx)")] = None,
    format: flags.HowShown = "table",
) -> None:
    """Write a detector in a form that needs nothing of tolfl.

    A scorer is the code of tolfl score and the detector in one file: python MODEL.pyz readings.csv takes the same
    tables and options, and needs the packages numpy, pyarrow, msgspec, safetensors and threadpoolctl.

    An ONNX graph is scaling, model and score, with thresholds and names inside. Its scores are compared with the
    detector's at once.

    Example: tolfl export model --out device/score.pyz

    Example: tolfl export model --to onnx
    """
    if to not in {"scorer", "onnx"}:
        raise UnknownNameError("kind of export", to, ["scorer", "onnx"])
    from tolfl.detect.detector import Detector
    from tolfl.runs.directory import write_file

    detector = Detector.load(model)
    target = Path(f"{model}.{'pyz' if to == 'scorer' else 'onnx'}") if out is None else out.expanduser()
    found: dict[str, Any]
    if to == "scorer":
        from tolfl.detect.export import NEEDS, standalone_scorer

        content = standalone_scorer(detector)
        found = {"needs": NEEDS}
        said = f"run it: python {target} DATA; it needs {', '.join(NEEDS)}"
    else:
        from tolfl.detect.export import largest_difference, to_onnx

        content = to_onnx(detector)
        difference = largest_difference(detector, content)
        found = {"largest_relative_difference": difference}
        said = f"scores differ from the detector's by {difference:.1e} at most, relative"
        if difference > _PARITY:
            notify(f"scores differ by more than {_PARITY:g}; compare them on your own rows")
    write_file(target.parent, target.name, content)
    what = "scorer" if to == "scorer" else "graph"
    result = {what: str(target), "bytes": len(content), **found}
    show(result, format, [f"{what}: {target} ({len(content) / 1024:.1f} KiB)", said])
