"""`tolfl data`: list, describe, download and generate data sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.flags import SpecFlags, spec_flags, spec_from_flags
from tolfl.cli.output import save_figure, show, table_of
from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import RunSpec

if TYPE_CHECKING:
    import numpy as np

    from tolfl.cli.output import Line
    from tolfl.datasets.describe import Description
    from tolfl.signals.comms_ml_generator import TrafficPart

app = typer.Typer(help="Data sets: list, describe, download, generate, draw.", no_args_is_help=True)

_LONGEST_RECORDING_S = 60.0  #: 5 GB
_PICTURES = (".png", ".svg", ".pdf")

Name = Annotated[str, typer.Argument(help="A data set's name, or a path to a table or a folder.")]


@app.command("list")
def list_(data_dir: flags.DataDir = None, format: flags.HowShown = "table") -> None:
    """List the data sets by name, and whether each is on this machine.

    Example: tolfl data list

    Example: tolfl data list --data-dir ~/data --format json
    """
    from tolfl.datasets import DATASETS

    found = [{"name": name, "what": what, "where": _where(name, data_dir or "")} for name, what in DATASETS.items()]
    rows = (
        (one["name"], one["what"], one["where"] or f"not downloaded: tolfl data get {one['name']}") for one in found
    )
    show(found, format, [table_of(["name", "what", "where"], rows)])


def _where(name: str, data_dir: str) -> str:
    """Return the folder of a public data set, `generated` for ours, empty where it is not on this machine."""
    from tolfl.core.errors import MissingDataError
    from tolfl.datasets.public_sets import PUBLIC_SETS, find

    if name not in PUBLIC_SETS:
        return "generated"
    try:
        return str(find(name, data_dir))
    except MissingDataError:
        return ""


@app.command()
@spec_flags(
    "data_dir devices partition device_column label_column typical time_column ignore encoding seed", has_file=False
)
def describe(
    asked: SpecFlags,
    name: Name,
    columns: Annotated[
        bool, typer.Option("--columns", help="Write the columns instead, as a fleet's specification names them.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="A folder for the picture. (default: none is drawn)")] = None,
    format: flags.HowShown = "table",
) -> None:
    """Count what devices get of a data set, by class, and draw its classes.

    Example: tolfl data describe comms-ml --out pictures

    Example: tolfl data describe readings.csv --device-column site --label-column state -n 4

    Example: tolfl data describe readings.csv --device-column site --label-column state --columns
    """
    asked = replace(asked, given={**asked.given, "data": name})
    if out is not None:
        flags.free_bytes(out)
    if columns:
        _write_columns(asked.applied_to(RunSpec()).check(), name)
        return
    spec = asked.spec()
    from tolfl.datasets import load
    from tolfl.datasets.describe import describe as described
    from tolfl.datasets.describe import plot_classes

    data = load(spec.check())
    found = described(data)
    show(msgspec.to_builtins(found), format, _lines_of(found))
    if out is not None:
        path = out / f"{Path(name).stem}.png"
        save_figure(plot_classes(data), path, dpi=120)
        typer.echo(f"picture: {path}", err=format == "json")


def _write_columns(spec: RunSpec, name: str) -> None:
    """Write the columns of a table in TOML, for the specification that all devices of a fleet share."""
    from tolfl.datasets import check_name, load_raw
    from tolfl.datasets.own_table import table_spec

    own = table_spec(spec, name)
    check_name(own)
    raw = load_raw(own)
    lines = "".join(f"    {_quoted(column)},\n" for column in raw.names)
    typer.echo(f"[learn]\ncolumns = [\n{lines}]")
    if raw.schema is not None:
        typer.echo(f"schema = {_inline(raw.schema.form)}")


def _quoted(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _inline(value: object) -> str:
    """Return plain values in TOML on one line: what comes behind still belongs to the same table."""
    if not isinstance(value, dict):
        return _quoted(value)
    return "{" + ", ".join(f"{_quoted(key)} = {_inline(one)}" for key, one in value.items()) + "}"


def _lines_of(found: Description) -> Iterator[Line]:
    n_train = sum(sum(counts.values()) for counts in found.per_device)
    n_test = sum(found.test.values())
    held_back = f"{found.n_validation} held back for validation, {n_test} to test"
    yield f"{found.name}: {found.n_features} features; {n_train} samples to train on, {held_back}"
    classes = list(dict.fromkeys(name for counts in found.per_device for name in counts))
    rows = [
        (f"device {device}", *(str(counts.get(name, "")) for name in classes))
        for device, counts in enumerate(found.per_device)
    ]
    yield table_of(["training samples", *classes], rows)
    if not found.test:
        yield "no test set: there is no anomalous class"
        return
    kinds = {name: "anomalous" if name in found.anomalous else "typical" for name in found.test}
    yield table_of(["test samples", "", ""], ((name, str(count), kinds[name]) for name, count in found.test.items()))


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="fashion-mnist, mnist, cifar-10 or cifar-100.")],
    data_dir: flags.DataDir = None,
) -> None:
    """Download a data set from where its publisher keeps it, into --data-dir or the user's cache.

    Every file's checksum is compared; an interrupted download leaves nothing behind.

    Example: tolfl data get fashion-mnist
    """
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn

    from tolfl.cli.progress import bar_of
    from tolfl.datasets.downloads import DownloadProgress, download
    from tolfl.datasets.public_sets import PUBLIC_SETS, cache_dir

    if name not in PUBLIC_SETS:
        raise UnknownNameError("data set to get", name, sorted(PUBLIC_SETS))
    into = cache_dir() if data_dir is None else Path(data_dir).expanduser()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with bar_of(*columns) as bar:
        tasks: dict[str, TaskID] = {}

        def report(progress: DownloadProgress) -> None:
            if progress.file not in tasks:
                tasks[progress.file] = bar.add_task(progress.file, total=progress.total)
            bar.update(tasks[progress.file], completed=progress.done)

        folder = download(name, into, progress=report)
    typer.echo(f"{name}: {folder}")


@app.command()
def generate(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    name: Annotated[str, typer.Argument(help="comms-ml or comms-ml-published.")],
    out: Annotated[Path, typer.Option(help="The folder for samples.npz.")],
    sim_config: Annotated[Path | None, typer.Option(help="A sim_cfgX.json of the original project.")] = None,
    sampling_config: Annotated[Path | None, typer.Option(help="Its sampling_cfgX.json.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of traffic, fading and noise. (default: 0, or the file's)")
    ] = None,
    pcap: Annotated[
        bool, typer.Option("--pcap", help="Also write the traffic: captures/KIND/region-N.pcap beside the samples.")
    ] = False,
    iq: Annotated[
        bool,
        typer.Option("--iq", help="Also write the radio samples: recordings/KIND/region-N.sigmf-meta (SigMF)."),
    ] = False,
    seconds: Annotated[float, typer.Option(help="How long each recording is; 80 MB per second.")] = 0.5,
    settings: flags.Set = None,
) -> None:
    """Generate wireless traffic and samples, and write them as samples.npz (X, y, time, names).

    With the two configuration files of the original project, what these describe; nothing in them is run as code.

    Recordings are of regions 1 to 3, without (typical) and with a Bluetooth intruder in their second half (bluetooth).

    Captures hold all packets, not only those of the windows: 4.8 GB for comms-ml-published; for comms-ml about 9 MB
    times comms_ml.windows_per_region, 27 GB with the usual 3000.

    Example: tolfl data generate comms-ml --out data --set comms_ml.windows_per_region=500

    Example: tolfl data generate comms-ml --pcap --out data --set comms_ml.windows_per_region=100

    Example: tolfl data generate comms-ml --iq --seconds 0.25 --out data

    Example: tolfl data generate comms-ml --sim-config sim_cfg1.json --sampling-config sampling_cfg1.json --out data
    """
    import numpy as np

    if name not in ("comms-ml", "comms-ml-published"):
        raise UnknownNameError("data set to generate", name, ["comms-ml", "comms-ml-published"])
    if (sim_config is None) != (sampling_config is None):
        raise SpecError("--sim-config and --sampling-config go together; give both or neither")
    if iq and not 0 < seconds <= _LONGEST_RECORDING_S:
        raise SpecError(f"--seconds {seconds:g}; use a number above 0 and at most {_LONGEST_RECORDING_S:g}")
    flags.free_bytes(out)
    if sim_config is not None and sampling_config is not None:
        from tolfl.signals.published_configs import read_sampling_config, read_sim_config, sample_configs

        if pcap or iq:
            raise SpecError("--pcap and --iq write the traffic of comms-ml; leave out --sim-config")
        found = sample_configs(read_sim_config(sim_config), read_sampling_config(sampling_config), seed)
        _write(out, {"X": found.features, "time": found.start_s, "names": np.array(found.names)})
        return
    given = {} if seed is None else {"comms_ml": {**msgspec.to_builtins(RunSpec().comms_ml), "seed": seed}}
    spec = spec_from_flags(RunSpec(data=name), given, settings).check()
    from tolfl.datasets import load_raw

    raw = load_raw(spec)
    times = np.arange(raw.n_samples) if raw.times is None else raw.times
    if pcap:
        _write_captures(out / "captures", _traffic_of(spec))
    if iq:
        _write_recordings(out / "recordings", _traffic_of(spec), seconds)
    _write(out, {"X": raw.samples, "y": raw.labels, "time": times, "names": np.array(raw.feature_names)})


def _traffic_of(spec: RunSpec) -> list[TrafficPart]:
    """Return the traffic behind a data set; it takes seconds, so only on request."""
    from tolfl.signals.comms_ml_generator import comms_ml, traffic_parts

    settings = spec.comms_ml
    if spec.data == "comms-ml-published":
        settings = msgspec.structs.replace(settings, variant="published")
    return traffic_parts(comms_ml(settings.seed, settings), settings.seed, settings)


def _write_captures(folder: Path, parts: list[TrafficPart]) -> None:
    from tolfl.signals.comms_ml_generator import write_parts

    for path, n_packets in write_parts(folder, parts):
        typer.echo(f"{path}: {n_packets} packets, {path.stat().st_size / 1e6:.1f} MB")


def _write_recordings(folder: Path, parts: list[TrafficPart], seconds: float) -> None:
    from tolfl.signals.scene import scenes, write_scene
    from tolfl.signals.sigmf import open_recording

    typical = [part for part in parts if part.kind == "typical"]
    for part in typical:
        for kind, (scene,) in scenes(seconds, part.seed, [part.region]).items():
            path = write_scene(folder / kind / f"region-{part.region.number}", scene)
            found = open_recording(path)
            size = found.file.stat().st_size / 1e6
            typer.echo(f"{path}: {found.duration_s:g} s, {len(found.annotations)} emissions, {size:.1f} MB")


def _write(out: Path, arrays: dict[str, np.ndarray]) -> None:
    from io import BytesIO

    import numpy as np

    from tolfl.runs.directory import write_file

    content = BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_file(out, "samples.npz", content.getvalue())
    n_samples, n_features = arrays["X"].shape
    typer.echo(f"{out / 'samples.npz'}: {n_samples} samples of {n_features} features")


@app.command()
def spectrogram(
    recording: Annotated[Path, typer.Argument(help="A recording: .sigmf-meta, .sigmf-data or .sigmf.")],
    out: Annotated[Path, typer.Option(help="The picture: a file that ends in .png, .svg or .pdf.")],
    from_s: Annotated[
        float, typer.Option("--from", help="Begin so many seconds after the recording's beginning.")
    ] = 0.0,
    seconds: Annotated[float | None, typer.Option(help="Draw so many seconds. (default: all)")] = None,
) -> None:
    """Draw frequency over time, with a box around each annotation (up to 400 of them).

    A recording that was retuned on the way is drawn up to the first retuning.

    Example: tolfl data spectrogram data/recordings/bluetooth/region-1.sigmf-meta --out picture.png

    Example: tolfl data spectrogram theirs.sigmf --from 0.25 --seconds 0.02 --out picture.png
    """
    if out.suffix.lower() not in _PICTURES:
        raise SpecError(f"--out {out}: a picture ends in one of {', '.join(_PICTURES)}")
    from tolfl.signals.sigmf import open_recording
    from tolfl.signals.spectrograms import plot_spectrogram

    save_figure(plot_spectrogram(open_recording(recording), from_s, seconds), out, dpi=100)
    typer.echo(f"picture: {out}")
