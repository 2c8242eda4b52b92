"""Flags that several commands have in common, and how they become a specification."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import typer

from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec


class Format(StrEnum):
    """How results are shown."""

    TABLE = "table"
    JSON = "json"


class ScoreFormat(StrEnum):
    """How scores are shown."""

    TABLE = "table"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"


Spec = Annotated[Path | None, typer.Argument(help="A specification in TOML; flags override it.")]
Data = Annotated[
    str | None, typer.Option(help="A data set (tolfl data list), or a path to a table or folder. (default: comms-ml)")
]
DataDir = Annotated[
    str | None, typer.Option("--data-dir", help="Where data sets lie. (default: TOLFL_DATA, the user's cache)")
]
Partition = Annotated[
    str | None,
    typer.Option(help="Who gets which samples: classes, iid, dirichlet, column. (default: classes; column if named)"),
]
DeviceColumn = Annotated[str | None, typer.Option(help="The column of a table that says whose sample it is.")]
LabelColumn = Annotated[str | None, typer.Option(help="The column with the class of a sample.")]
TimeColumn = Annotated[str | None, typer.Option(help="The column that says when.")]
Columns = Annotated[
    str | None,
    typer.Option(help="The only columns to learn from, as in a,b,c. (default: all but identifiers, counters, clocks)"),
]
Ignore = Annotated[str | None, typer.Option(help="Columns not to learn from, as in a,b.")]
Encoding = Annotated[str | None, typer.Option(help="Of CSV and JSON lines: latin-1, cp1252, ... (default: utf-8)")]
Devices = Annotated[
    int | None, typer.Option("--devices", "-n", help="How many devices. (default: 10, or fewer owners)")
]
Clusters = Annotated[
    int | None, typer.Option("--clusters", "-k", help="How many clusters. (default: 5, or fewer devices)")
]
Topology = Annotated[
    str | None, typer.Option(help="Another layout, such as '1,0|2,3', heads first; replaces --clusters.")
]
Rounds = Annotated[int | None, typer.Option(help="How many rounds. (default: 100)")]
Fail = Annotated[
    str | None,
    typer.Option(
        help="Who fails when: client@50, server@50/chain, device:3@50-60, head:2@50, closer@50, cluster:2@50, "
        "cut:3|4,5@50-55, random:0.01; a round of a stage: head@thresholds:1; "
        "phases /train /report /chain /distribute; joined by ';'."
    ),
]
Seed = Annotated[int | None, typer.Option(help="The seed of everything random. (default: 0)")]
MinDevices = Annotated[int | None, typer.Option(help="Fewer live devices do not train. (default: 1)")]
DeadlineS = Annotated[
    float | None, typer.Option("--deadline", help="Seconds a head waits for its members. (default: no limit)")
]
EvaluateEvery = Annotated[int | None, typer.Option(help="Score the model every so many rounds.")]
Lr = Annotated[float | None, typer.Option(help="Local step size. (default: by the number of features)")]
Epochs = Annotated[int | None, typer.Option(help="Local epochs per round. (default: 1)")]
BatchSize = Annotated[int | None, typer.Option(help="Local batch size; 0: one full batch. (default: 16)")]
Optimizer = Annotated[str | None, typer.Option(help="sgd, momentum or adam. (default: sgd)")]
ServerLr = Annotated[float | None, typer.Option(help="Step on the mean update. (default: 1)")]
Dropout = Annotated[float | None, typer.Option(help="Dropout on hidden layers. (default: 0.2)")]
Code = Annotated[int | None, typer.Option(help="Size of the autoencoder's code. (default: 32)")]
SamplesPerDevice = Annotated[int | None, typer.Option(help="Samples of a device (blobs). (default: 200)")]
NFeatures = Annotated[int | None, typer.Option("--features", help="Features of a sample (blobs). (default: 32)")]
Timing = Annotated[
    str | None, typer.Option(help="How fast deaths are noticed: localhost, lan, wireless. (default: localhost)")
]
LatencyS = Annotated[float | None, typer.Option("--latency", help="Seconds per message. (default: 0.005)")]
BandwidthBps = Annotated[float | None, typer.Option("--bandwidth", help="Bits per second. (default: 2e7)")]
Uplink = Annotated[str | None, typer.Option(help="serial or parallel. (default: serial)")]
SpeedSpread = Annotated[float | None, typer.Option(help="How unequal devices' speeds are. (default: 0)")]
Out = Annotated[Path | None, typer.Option(help="The run directory. (default: a new one below runs/)")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")]
HowShown = Annotated[Format, typer.Option(help="How to show the result.")]
LostModel = Annotated[
    str | None, typer.Option(help="A cluster's model whose head is gone, at scoring: lost or frozen. (default: lost)")
]
Track = Annotated[str | None, typer.Option(help="tensorboard or mlflow: write what happens as it happens.")]
TrackTo = Annotated[
    str | None,
    typer.Option(help="Its folder, or MLflow's address. (default: runs/tensorboard, sqlite:///runs/mlflow.db)"),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any field of the specification, as in --set ifca.restarts=5; may be repeated."),
]

Learn = Annotated[
    str | None,
    typer.Option(help="What the fleet learns: autoencoder, detector, or mine.py:KMeans. (default: by scheme)"),
]

Flower = Annotated[
    Path | None,
    typer.Option(help="The folder of a Flower app for the fleet to train; short for --learn flower:DIR."),
]
RunConfig = Annotated[
    list[str] | None,
    typer.Option(
        "--run-config", help="Of a Flower app, as flwr takes it: 'num-server-rounds=8 lr=0.1', or a TOML file."
    ),
]
NodeConfig = Annotated[
    list[str] | None,
    typer.Option("--node-config", help="Of a Flower app; partition-id and num-partitions are device and fleet size."),
]
Python = Annotated[
    Path | None, typer.Option(help="The Flower app's interpreter or virtual environment. (default: DIR/.venv)")
]

#: Flags that set a field of a section of the specification.
_SECTIONS = {
    "lr": "train",
    "epochs": "train",
    "batch_size": "train",
    "optimizer": "train",
    "server_lr": "train",
    "dropout": "model",
    "code": "model",
    "dir": "dataset",
    "partition": "dataset",
    "device_column": "dataset",
    "label_column": "dataset",
    "time_column": "dataset",
    "columns": "dataset",
    "ignore": "dataset",
    "encoding": "dataset",
    "window_s": "dataset",
    "step_s": "dataset",
    "samples_per_device": "blobs",
    "n_features": "blobs",
    "latency_s": "links",
    "bandwidth_bps": "links",
    "uplink": "links",
    "speed_spread": "links",
    "learn": "learn",
    "run_config": "learn",
    "node_config": "learn",
    "python": "learn",
}


def flags_of(
    command: Callable[..., None], without: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that takes keywords the flags of another one, before its own."""

    def flags(of: Callable[..., None]) -> list[inspect.Parameter]:
        types = get_type_hints(of, include_extras=True)
        return [
            parameter.replace(annotation=types[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(of).parameters.items()
            if name not in without and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]

    def give(taker: Callable[..., None]) -> Callable[..., None]:
        parameters = [*flags(command), *flags(taker)]
        taker.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        taker.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return taker

    return give


def spec_from_flags(spec: RunSpec, given: dict[str, Any], settings: list[str] | None = None) -> RunSpec:
    """Return the specification with the flags that were given put into their places."""
    fields = msgspec.to_builtins(spec)
    given = {"dir" if name == "data_dir" else name: value for name, value in with_flower(given).items()}
    for name, value in given.items():
        section = fields[_SECTIONS[name]] if name in _SECTIONS else fields
        if name in {"columns", "ignore"} and isinstance(value, str):
            value = [one.strip() for one in value.split(",") if one.strip()]  # noqa: PLW2901
        section["what" if name == "learn" else name] = value
    for setting in settings or []:
        _set(fields, setting)
    return RunSpec.from_fields(fields)


def with_flower(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return flags with `--flower DIR` as what is learned, and a Flower app's settings as texts."""
    plain = {name: value for name, value in given.items() if value is not None and name != "flower"}
    if given.get("flower") is not None:
        if "learn" in plain:
            raise SpecError("--flower and --learn: name one of them")
        plain["learn"] = f"flower:{given['flower'].expanduser().resolve()}"
    for name in ("run_config", "node_config"):
        if name in plain:
            plain[name] = " ".join(plain[name])
    if "python" in plain:
        plain["python"] = str(plain["python"].expanduser().absolute())
    return plain


def shown_data(spec: RunSpec) -> str:
    """Return a name of what a run learns from: a Flower app brings its own data."""
    what = str(spec.learn.get("what", ""))
    return what.removeprefix("flower:") if what.startswith("flower:") else spec.data


def tell_of_app(spec: RunSpec) -> None:
    """Say what a Flower app asks for, before its first round."""
    from tolfl.learners.layouts import is_plain
    from tolfl.learners.registry import brings_own_data, learner_of
    from tolfl.runs.outcome import data_for, fleet_of

    if not is_plain(spec) and brings_own_data(spec):
        typer.echo(str(learner_of(fleet_of(spec, data_for(spec)))), err=True)


def tell_of_app_files(spec: RunSpec, out: Path, survivors: Sequence[int]) -> None:
    """Say which files a Flower app's own code has left on the devices, and whether they are the same."""
    if not str(spec.learn.get("what", "")).startswith("flower:"):
        return
    folders = [out / "devices" / str(device) for device in survivors]
    # The run directory has the same files as a device, and others that no app writes.
    names = {path.name for path in out.iterdir() if path.is_file()} - {"records.jsonl", "model.safetensors"}
    for name in sorted(names):
        contents = [(folder / name).read_bytes() for folder in folders if (folder / name).is_file()]
        if contents:
            alike = "the same" if len(set(contents)) == 1 else f"{len(set(contents))} different ones"
            where = f"{out}/devices/*/: {alike} on {len(contents)} devices"
            typer.echo(f"{name}, written by the app, is in {where}", err=True)


def one_device_per_owner(spec: RunSpec, given: Mapping[str, object], file: Path | None = None) -> RunSpec:
    """Return the specification with as many devices as a table has owners, if these are few and nobody named a number.

    A table of three sites is a fleet of three; who names a number, in a flag or a file, gets it or an error.
    """
    from tolfl.datasets import is_path, load_raw

    of_table = is_path(spec.data) and spec.dataset.partition in (None, "column") and not spec.topology
    is_said = "devices" in given or file is not None or spec.devices != RunSpec().devices
    if is_said or not of_table:
        return spec
    owners = load_raw(spec).owners
    n_owners = spec.devices if owners is None else len(set(owners.tolist()))
    if n_owners >= spec.devices:
        return spec
    typer.echo(f"tolfl: {n_owners} devices, as {spec.data} has; --devices takes fewer", err=True)
    return msgspec.structs.replace(spec, devices=n_owners)


def _set(fields: dict[str, Any], setting: str) -> None:
    path, equals, text = setting.partition("=")
    *sections, name = path.strip().split(".")
    if not equals or not name:
        raise SpecError(f"--set {setting!r}: write a field and its value, as in ifca.restarts=5")
    place = fields
    for section in sections:
        if not isinstance(place.get(section), dict):
            raise SpecError(f"--set {setting!r}: the specification has no section {section!r}")
        place = place[section]
    try:
        place[name] = msgspec.toml.decode(f"value = {text}")["value"]
    except msgspec.DecodeError:
        place[name] = text.strip()


def new_directory(what: str, data: str) -> Path:
    """Make and return the next free folder below runs/; a run that starts at the same moment gets another."""
    parent = Path("runs")
    taken = [int(found[1]) for path in parent.glob("*") if (found := re.match(r"(\d+)-", path.name))]
    number = max(taken, default=0) + 1
    while True:
        path = parent / f"{number:03d}-{what}-{Path(data).stem}"  # data may be a path
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise RunDirectoryError(path, f"cannot be made ({error.strerror}); choose another --out") from None
        else:
            return path


@contextmanager
def run_directory(out: Path | None, what: str, data: str) -> Iterator[Path]:
    """Give the folder that was asked for, or a new one; what fails before its first file leaves no empty one behind."""
    path = new_directory(what, data) if out is None else out
    try:
        yield path
    except BaseException:
        for folder in (path, path.parent) if out is None else ():
            with suppress(OSError):  # it has something in it
                folder.rmdir()
        raise
