"""Flags: made from the specification's own fields, or shared by several commands; and how they become a specification.

The help of a flag is the `title` in the field's type, its default is the field's: `tolfl.core.spec` is the one
place for both. A new flag is a field with a title there, and its name in a command's list.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import typer

from tolfl.cli.output import notify
from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec, title, type_at

# -- from the fields of the specification -----------------------------------------------------------------------

#: Where the field of a parameter is; all others are fields of the specification itself.
_SECTIONS = {
    "train": "lr epochs batch_size optimizer server_lr",
    "model": "dropout code",
    "blobs": "samples_per_device n_features",
    "links": "latency_s bandwidth_bps uplink seconds_per_sample speed_spread",
    "dataset": (
        "partition device_column label_column typical time_column columns ignore encoding window_s step_s per "
        "rate centre without_bursts"
    ),
    "learn": "run_config node_config python",
}
_PATHS = {name: f"{section}.{name}" for section, names in _SECTIONS.items() for name in names.split()}
_PATHS |= {"learn": "learn.what", "data_dir": "dataset.dir"}
_SHORT = {"devices": "-n", "clusters": "-k"}
#: Flags that are given once for each of several values, since a value may hold a comma.
_REPEATED = {"typical"}


def flag(parameter: str, usual: msgspec.Struct | None = None) -> Any:
    """Return the flag of a field: named after it without its unit, with the field's own words and default.

    >>> flag("rounds").help
    'How many rounds. (default: 100)'
    """
    start, steps = usual or RunSpec(), _steps(parameter, usual)
    said: str = title(type_at(type(start), steps))
    default: object = reduce(getattr, steps, start)
    if "(default:" not in said and default not in (None, "", ()) and default is not False:
        said = f"{said} (default: {f'{default:g}' if isinstance(default, float) else default})"
    spelled = re.sub(r"^n_|_(s|bps)$", "", parameter).replace("_", "-")
    return typer.Option(*filter(None, (f"--{spelled}", _SHORT.get(parameter))), help=said)


def _steps(parameter: str, of: msgspec.Struct | None) -> list[str]:
    """Return where the field of a parameter is; only a run's specification has sections."""
    return (_PATHS.get(parameter, parameter) if of is None or isinstance(of, RunSpec) else parameter).split(".")


DataDir = Annotated[str | None, flag("data_dir")]
DeviceColumn = Annotated[str | None, flag("device_column")]
LabelColumn = Annotated[str | None, flag("label_column")]
Typical = Annotated[list[str] | None, flag("typical")]
TimeColumn = Annotated[str | None, flag("time_column")]
Encoding = Annotated[str | None, flag("encoding")]

# -- others that several commands share -------------------------------------------------------------------------

Spec = Annotated[Path | None, typer.Argument(help="A specification in TOML; flags override it.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any field of the specification, as in --set ifca.restarts=5; may be repeated."),
]
Out = Annotated[Path | None, typer.Option(help="The run directory. (default: a new one below runs/)")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in --out.")]
Format = Literal["table", "json"]
HowShown = Annotated[Format, typer.Option(help="How to show the result.")]
Track = Annotated[str | None, typer.Option(help="tensorboard or mlflow: write what happens as it happens.")]
TrackTo = Annotated[
    str | None,
    typer.Option(help="Its folder, or MLflow's address. (default: runs/tensorboard, sqlite:///runs/mlflow.db)"),
]
#: Of what is scored or watched.
Interface = Annotated[
    str | None, typer.Option(help="Capture here in place of a file, by dumpcap or tcpdump: wlan0, lo, any.")
]
Raw = Annotated[
    str, typer.Option(help="Samples of a receiver on standard input: cu8, cs8, cs16 or cf32; as fast as in training.")
]
#: The learner is not a typed field: each has settings of its own.
_LEARNED: dict[str, Any] = {
    "learn": Annotated[
        str | None,
        typer.Option(help="What the fleet learns: autoencoder, detector, or mine.py:KMeans. (default: by scheme)"),
    ],
    "flower": Annotated[
        Path | None,
        typer.Option(help="The folder of a Flower app for the fleet to train; short for --learn flower:DIR."),
    ],
    "run_config": Annotated[
        list[str] | None,
        typer.Option(help="Of a Flower app, as flwr takes it: 'num-server-rounds=8 lr=0.1', or a TOML file."),
    ],
    "node_config": Annotated[
        list[str] | None,
        typer.Option(help="Of a Flower app; partition-id and num-partitions are device and fleet size."),
    ],
    "python": Annotated[
        Path | None, typer.Option(help="The Flower app's interpreter or virtual environment. (default: DIR/.venv)")
    ],
}


# -- a command that starts from a specification -----------------------------------------------------------------


@dataclass(frozen=True)
class SpecFlags:
    """The options given: a file, flags, and fields by --set."""

    given: Mapping[str, Any]  #: by parameter, without those that were not given
    settings: list[str]
    file: Path | None = None
    usual: RunSpec = field(default_factory=RunSpec)

    @property
    def is_empty(self) -> bool:
        """Whether no option was given."""
        return not self.given and not self.settings and self.file is None

    def applied_to(self, spec: RunSpec) -> RunSpec:
        """Return a specification with flags and --set in their places."""
        return spec_from_flags(spec, self.given, self.settings)

    def spec(self) -> RunSpec:
        """Return the specification that file, flags and the owners of a table add up to."""
        spec = self.applied_to(self.usual if self.file is None else RunSpec.from_file(self.file))
        is_said = "devices" in self.given or self.file is not None
        return spec if is_said else one_device_per_owner(spec)


def spec_flags(
    names: str,
    usual: RunSpec | None = None,
    has_file: bool = True,
    has_set: bool = True,
    of_other: tuple[str, msgspec.Struct] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each of these fields, and --set; it gets them as `SpecFlags`, its own by name.

    `of_other`: names of fields of another specification that the command also has, and its defaults.
    """
    start = usual or RunSpec()
    types: dict[str, Any] = {"spec": Spec} if has_file else {}
    types |= {
        name: _LEARNED.get(name) or Annotated[_flag_type(name, start), flag(name, start)] for name in names.split()
    }
    if of_other is not None:
        own, other = of_other
        types |= {name: Annotated[_flag_type(name, other), flag(name, other)] for name in own.split()}
    types |= {"settings": Set} if has_set else {}

    def give(command: Callable[..., None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            asked = {name: value for name in types if (value := values.pop(name, None)) is not None}
            file, settings = asked.pop("spec", None), asked.pop("settings", None)
            command(SpecFlags(asked, settings or [], file, start), **values)

        # Annotated types are given as they are: typer would look for their names in this module.
        hints = get_type_hints(command, include_extras=True)
        _, *own = inspect.signature(command).parameters.values()
        kind = inspect.Parameter.KEYWORD_ONLY
        made = [inspect.Parameter(name, kind, default=None, annotation=one) for name, one in types.items()]
        made += [parameter.replace(annotation=hints[parameter.name], kind=kind) for parameter in own]
        required = [one for one in made if one.default is inspect.Parameter.empty]
        run.__signature__ = inspect.Signature(required + [one for one in made if one not in required])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in made}
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        return run

    return give


def _flag_type(parameter: str, of: msgspec.Struct) -> Any:
    """Return what a flag takes; what its value may be is checked where the specification is made."""
    if parameter in _REPEATED:
        return list[str] | None
    kind = type_at(type(of), _steps(parameter, of))
    while get_origin(kind) is Annotated or NoneType in get_args(kind):
        kind = get_args(kind)[0]
    return (str if get_origin(kind) else kind) | None


def source_of(source: str | None, interface: str | None, otherwise: str) -> str:
    """Return what is read: a file, standard input or an interface; `otherwise` says what to do where none is named."""
    if interface is not None and source is not None:
        raise SpecError(f"--interface {interface} and {source}; leave one of them out")
    if source is None and interface is None:
        raise SpecError(otherwise)
    return f"interface:{interface}" if source is None else source


def spec_from_flags(spec: RunSpec, given: Mapping[str, Any], settings: list[str] | None = None) -> RunSpec:
    """Return the specification with the flags that were given put into their places."""
    fields = msgspec.to_builtins(spec)
    for parameter, value in with_flower(given).items():
        *sections, name = _PATHS.get(parameter, parameter).split(".")
        if name in {"columns", "ignore"} and isinstance(value, str):
            value = [one.strip() for one in value.split(",") if one.strip()]  # noqa: PLW2901
        (fields[sections[0]] if sections else fields)[name] = value
    for setting in settings or []:
        _set(fields, setting)
    return RunSpec.from_fields(fields)


def with_flower(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return flags with `--flower DIR` as what is learned, and a Flower app's settings as texts."""
    plain = {name: value for name, value in given.items() if value is not None and name != "flower"}
    if given.get("flower") is not None:
        if "learn" in plain:
            raise SpecError("--flower and --learn: name one of them")
        if "rounds" in plain:
            raise SpecError('--rounds: a Flower app sets them; use --run-config, as in "num-server-rounds=8"')
        if "data" in plain:
            raise SpecError("--data: a Flower app brings its own data; leave it out")
        plain["learn"] = f"flower:{given['flower'].expanduser().resolve()}"
    for name in ("run_config", "node_config"):
        if name in plain:
            plain[name] = " ".join(plain[name])
    if "python" in plain:
        plain["python"] = str(plain["python"].expanduser().absolute())
    return plain


def one_device_per_owner(spec: RunSpec) -> RunSpec:
    """Return the specification with as many devices as a table has owners, if these are few and no number was given.

    A table of three sites is a fleet of three; a number given in a flag or a file is used, or is an error.
    """
    from tolfl.datasets import is_path, load_raw

    of_table = is_path(spec.data) and spec.dataset.partition in (None, "column") and not spec.topology
    if spec.devices != RunSpec().devices or not of_table:
        return spec
    owners = load_raw(spec).owners
    n_owners = spec.devices if owners is None else len(set(owners.tolist()))
    if n_owners >= spec.devices:
        return spec
    notify(f"{n_owners} devices, as {spec.data} has; --devices takes fewer")
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
    place[name] = value_of(text)


def value_of(text: str) -> object:
    """Return a value of TOML, or a text that needs no quotes.

    >>> value_of("3"), value_of("fl"), value_of("[1, 2]")
    (3, 'fl', [1, 2])
    """
    try:
        return msgspec.toml.decode(f"value = {text}")["value"]
    except msgspec.DecodeError:
        return text.strip()


def free_bytes(folder: Path) -> int:
    """Return the free bytes of a folder, or of its first existing parent; nothing is left behind."""
    import shutil
    import tempfile

    place = folder.expanduser().absolute()
    place = next(one for one in (place, *place.parents) if one.exists() or one == one.parent)
    try:
        with tempfile.TemporaryFile(dir=place):
            return shutil.disk_usage(place).free
    except OSError as error:
        raise RunDirectoryError(folder, f"cannot be written ({error.strerror}); choose another --out") from None


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
    """Give the requested folder, or a new one; an error before its first file leaves no empty folder behind."""
    path = new_directory(what, data) if out is None else out
    try:
        yield path
    except BaseException:
        for folder in (path, path.parent) if out is None else ():
            with suppress(OSError):  # it has something in it
                folder.rmdir()
        raise
