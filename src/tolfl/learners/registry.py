"""Finds the learner that a specification names: built in, by entry point of another package, or in a file.

A learner is code, and code comes from the local specification only, never over the network: its fingerprint is part of
the fleet's name, so devices with another one refuse each other.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from tolfl.core.errors import SpecError, TolFLError, UnknownNameError, missing_extra
from tolfl.core.spec import RunSpec
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.averaging import Averaging, Batch
from tolfl.learners.fedgroup import FedGroup
from tolfl.learners.fesem import FeSEM
from tolfl.learners.ifca import IFCA
from tolfl.learners.layouts import scheme_of
from tolfl.learners.learner import Fleet, Learner, Stages
from tolfl.learners.scaled import Scaled
from tolfl.learners.training import LocalTraining, Model

#: The group under which packages offer learners: a name, and what makes a learner from a `Fleet`.
GROUP = "tolfl.learners"
#: Schemes that are a learner of their own, by their names; all others run any learner.
_OWN_LEARNER = ("batch", "batch-small", "fedgroup", "ifca", "fesem")
#: What `[learn]` says of the fleet itself, whatever it learns.
OF_FLEETS = frozenset({"what", "columns", "names", "schema"})
BUILT_IN = ("autoencoder", *_OWN_LEARNER)


def what_of(spec: RunSpec) -> str:
    """Return the name of what a run learns; a scheme that is a learner itself learns nothing else."""
    scheme_of(spec)
    usual = spec.scheme if spec.scheme in _OWN_LEARNER else "autoencoder"
    what = spec.learn.get("what", usual)
    if not isinstance(what, str):
        raise SpecError(f"learn.what {what!r}; give a name, or a file and a class as in 'mine.py:KMeans'")
    if spec.scheme in _OWN_LEARNER and what != spec.scheme:
        raise SpecError(f"scheme {spec.scheme} learns its own models, not {what!r}; use tol-fl, fl or sbt for it")
    if what in _OWN_LEARNER and what != spec.scheme:
        raise SpecError(f"{what!r} is a scheme, too: choose it with --scheme {what}")
    return what


def learner_of(fleet: Fleet, model: Model | None = None) -> Learner:
    """Return the learner of a run; `model`: one that was handed in from Python in place of the built-in autoencoder."""
    what = what_of(fleet.spec)
    if what in BUILT_IN:
        if others := sorted(set(fleet.spec.learn) - OF_FLEETS):
            raise SpecError(f"learn.{others[0]}: {what} has no settings there; see train and model")
        return _built_in(what, fleet, model)
    if model is not None:
        raise SpecError(f"a model was handed in, and learner {what!r} brings its own; leave one of them out")
    make = _maker(what)
    try:
        learner: Learner = make(fleet)
    except TolFLError:
        raise
    except Exception as error:
        raise SpecError(f"learner {what!r} cannot be made ({type(error).__name__}: {error})") from error
    rounds = getattr(learner, "rounds", None)
    if not hasattr(learner, "contribute") or not isinstance(rounds, int) or rounds < 1:
        raise SpecError(f"learner {what!r} is no Learner with a number of rounds; see docs: how to add a learner")
    return learner


def scaled_learner_of(fleet: Fleet) -> Learner:
    """Return the learner of devices with tables of their own: they agree on a scaling first, if it needs one."""
    learner, what = learner_of(fleet), what_of(fleet.spec)
    if takes_raw_rows(fleet.spec) or brings_own_data(fleet.spec):
        return learner
    name = what.rpartition(":")[2].lower() if _is_file(what) else what.replace("-", "_")
    return Stages({"scaling": _maker("scaling")(fleet), name: Scaled(learner)})


def takes_raw_rows(spec: RunSpec) -> bool:
    """Return whether a run's learner takes rows as they are, and scales them itself; others get them scaled."""
    return bool(_said_by_maker(spec, "takes_raw_rows"))


def fewest_rows(spec: RunSpec) -> int:
    """Return how many rows a run's learner takes at least, of all devices together."""
    return int(_said_by_maker(spec, "fewest_rows"))


def fingerprint(spec: RunSpec) -> str:
    """Return a name of the code and settings of a run's learner: devices that differ in it cannot train together."""
    what = what_of(spec)
    if what not in BUILT_IN and hasattr(_maker(what), "fingerprint"):
        return str(_maker(what).fingerprint(spec))
    code = ""
    if _is_file(what):
        code = hashlib.sha256(_path(what).read_bytes()).hexdigest()
    elif what not in BUILT_IN:
        package = _entry_points()[what].dist if what in _entry_points() else None
        code = f"{package.name} {package.version}" if package is not None else ""
    settings = {key: value for key, value in spec.learn.items() if key != "what"}
    name = what.rpartition(":")[2] if _is_file(what) else what
    return hashlib.sha256(msgspec.json.encode((name, code, settings), order="sorted")).hexdigest()[:16]


def brings_own_data(spec: RunSpec) -> bool:
    """Return whether a run's learner finds its data itself, on each device; others get rows."""
    return bool(_said_by_maker(spec, "brings_own_data"))


def _said_by_maker(spec: RunSpec, name: str) -> Any:
    """Return what the class of a learner says of itself; nothing, where it is built in or says nothing."""
    what = what_of(spec)
    return 0 if what in BUILT_IN else getattr(_maker(what), name, 0)


def located(what: str, beside: Path | None = None) -> str:
    """Return what a run learns with the place of its file or folder spelled out: here, or else beside another file."""
    offered, colon, place = what.partition(":")
    is_offered = offered in _entry_points()
    file, _, name = what.rpartition(":")
    if not colon or (is_offered and not place):
        return what
    path = Path(place if is_offered else file).expanduser()
    if not path.exists() and beside is not None and (beside / path).exists():
        path = beside / path
    return f"{offered}:{path.resolve()}" if is_offered else f"{path.resolve()}:{name}"


def settings_of(fleet: Fleet, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Return what `[learn]` says, decoded as a learner's own settings; an unknown key is an error."""
    return settings_from(fleet.spec, kind)


def settings_from(spec: RunSpec, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Return what `[learn]` of a specification says, decoded as a learner's own settings."""
    given = {key: value for key, value in spec.learn.items() if key not in OF_FLEETS}
    known, what = kind.__struct_encode_fields__, what_of(spec)
    if unknown := sorted(set(given) - set(known)):
        raise SpecError(f"learn: unknown key {unknown[0]!r}; {what} takes {', '.join(known)}")
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise SpecError(f"learn: {error}; {what} takes {', '.join(known)}") from None


# -- built in ---------------------------------------------------------------------------------------------------


def training_of(fleet: Fleet, model: Model | None = None) -> LocalTraining:
    """Return the model and the settings of local training, with what the specification leaves open settled."""
    spec = fleet.spec
    is_own = model is not None and not isinstance(model, Autoencoder)
    settings = spec.train.settle(fleet.n_features, fleet.usual_rows, is_own)
    return LocalTraining(model or autoencoder_for(fleet), settings, spec.train.server_lr)


def autoencoder_for(fleet: Fleet) -> Autoencoder:
    """Return the built-in autoencoder for samples of this size."""
    asked = fleet.spec.model
    if asked.module:
        raise SpecError(f"model {asked.module!r} was given from Python; repeat the run there")
    if len(fleet.sample_shape) != 1:
        raise SpecError(
            f"samples of shape {fleet.sample_shape}: the built-in autoencoder takes flat ones; "
            "flatten them, or give a model"
        )
    return Autoencoder(fleet.n_features, asked.hidden, asked.code, asked.dropout, asked.code_activation)


def _built_in(what: str, fleet: Fleet, model: Model | None) -> Learner:
    spec, training = fleet.spec, training_of(fleet, model)
    match what:
        case "fedgroup":
            return FedGroup(training, spec)
        case "ifca":
            return IFCA(training, spec)
        case "fesem":
            return FeSEM(training, spec)
        case "batch":
            # As many updates in a round as the devices make.
            larger = msgspec.structs.replace(training.settings, batch_size=training.settings.batch_size * spec.devices)
            return Batch(replace(training, settings=larger), spec.rounds, spec.seed)
        case "batch-small":
            return Batch(training, spec.rounds, spec.seed)
    return Averaging(training, spec.rounds, spec.seed)


# -- other people's ---------------------------------------------------------------------------------------------


def _is_file(what: str) -> bool:
    return (":" in what or what.endswith(".py")) and what.partition(":")[0] not in _entry_points()


def _path(what: str) -> Path:
    path = Path(what.rpartition(":")[0] if ":" in what else what).expanduser()
    if not path.is_file():
        raise SpecError(f"learner {what!r}: there is no file {path}; name a file and a class, as in mine.py:KMeans")
    return path


def _from_file(what: str) -> Callable[[Fleet], Learner]:
    path, (_, colon, name) = _path(what), what.rpartition(":")
    if not colon or not name:
        raise SpecError(f"learner {what!r}: name the class in the file, as in {path.name}:KMeans")
    source = path.read_bytes()
    # Named by its content: a file that was changed is another module, and two files of one name are two.
    module_name = f"tolfl_learner_{hashlib.sha256(source).hexdigest()[:16]}"
    module = sys.modules.get(module_name)
    if module is None:
        module = ModuleType(module_name)
        module.__file__ = str(path)
        sys.modules[module_name] = module
        try:
            # Compiled here: an import may take bytecode of an older file that has the same size and second.
            exec(compile(source, str(path), "exec"), module.__dict__)
        except Exception as error:
            del sys.modules[module_name]
            if isinstance(error, ModuleNotFoundError) and missing_extra(error):
                raise  # the command says which extra, and how to install it
            raise SpecError(f"learner {what!r}: {path} cannot be loaded ({type(error).__name__}: {error})") from error
    if not hasattr(module, name):
        raise SpecError(f"learner {what!r}: {path} has no class {name}")
    made: Callable[[Fleet], Learner] = getattr(module, name)
    return made


def _maker(what: str) -> Any:
    """Return what makes a learner from a `Fleet`; what stands behind the colon of an entry point is the learner's."""
    return _from_file(what) if _is_file(what) else _from_package(what.partition(":")[0])


@cache
def _entry_points() -> dict[str, EntryPoint]:
    # Once per process: it reads a file of every installed package, and a device that starts asks seven times.
    return {point.name: point for point in entry_points(group=GROUP)}


def _from_package(what: str) -> Callable[[Fleet], Learner]:
    offered = _entry_points()
    if what not in offered:
        known = sorted({*offered, *BUILT_IN})
        raise UnknownNameError("learner", what, [*known, "or a file and a class, as in mine.py:KMeans"])
    try:
        made: Callable[[Fleet], Learner] = offered[what].load()
    except Exception as error:
        if isinstance(error, TolFLError | ModuleNotFoundError) and offered[what].value.startswith("tolfl."):
            raise  # a learner of ours that lacks an extra: the command says which
        where = f"{offered[what].value} cannot be loaded ({type(error).__name__}: {error})"
        raise SpecError(f"learner {what!r}: {where}; repair or remove the package that offers it") from error
    return made
