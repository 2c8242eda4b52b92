"""Run specifications: everything that a run depends on, read from TOML or flags, stored with every result."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from tolfl.core.clustering import FedGroupSpec, FeSEMSpec, IFCASpec, check_clustering
from tolfl.core.comms_ml import CommsMLSettings
from tolfl.core.data_spec import DatasetSpec, check_dataset
from tolfl.core.defence import DefenceSpec
from tolfl.core.errors import SpecError, UnknownNameError, did_you_mean
from tolfl.core.liars import Liars
from tolfl.core.timing import Links, Timing

#: What may happen when a head dies: another member takes over; the cluster is lost; its members go on alone; they stop.
#: With a model per cluster: those who train the lost model are out, or they find another.
POLICIES = ("elect", "drop", "isolate", "freeze", "strict", "rehome")


class TrainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Local training, with every number settled."""

    lr: float = 0.02
    epochs: int = 1
    batch_size: int = 32  #: 0 = one full batch
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd"
    momentum: float = 0.9

    def epochs_for(self, n_batches: int, n_samples: int) -> int:
        """Return how many whole epochs make at least so many mini-batches.

        >>> TrainSettings(batch_size=16).epochs_for(n_batches=50, n_samples=200)
        4
        """
        per_epoch = -(-n_samples // self.batch_size) if self.batch_size else 1
        return -(-n_batches // per_epoch)


class TrainSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Local training as asked for; what is left open is chosen by the shape of the data."""

    lr: float | None = None  #: None: by the number of features
    epochs: int = 1
    batch_size: int | None = None  #: None: 16 below 1,000 samples per device, else 32; 0: one full batch
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd"
    momentum: float = 0.9
    server_lr: float = 1.0  #: step on the mean update; 1 is FedAvg

    def settle(self, n_features: int, n_samples: int, is_own_module: bool = False) -> TrainSettings:
        """Fill in what was left open, for devices with about `n_samples` samples each."""
        # Starting steps on the summed squared error, found on validation loss at 112, 784 and 1024 inputs. Of somebody
        # else's module nothing is known (a convolution's weights get the gradient of every pixel): a careful one.
        usual = 2e-2 if n_features <= 128 else 3e-3 if n_features <= 784 else 1e-3
        lr = self.lr if self.lr is not None else min(usual, 1e-3) if is_own_module else usual
        batch_size = self.batch_size if self.batch_size is not None else 16 if n_samples < 1000 else 32
        return TrainSettings(lr, self.epochs, batch_size, self.optimizer, self.momentum)


class ModelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The paper's autoencoder: in-128-64-32-64-128-in with dropout on its hidden layers."""

    hidden: tuple[int, ...] = (128, 64)
    code: int = 32
    dropout: float = 0.2
    code_activation: Literal["linear", "relu"] = "linear"
    module: str = ""  #: the name of a module that was handed in from Python instead


class BlobsSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The built-in data set: each group on a subspace of its own, anomalies off it."""

    samples_per_device: int = 200
    n_features: int = 32
    n_groups: int = 5
    n_test: int = 1000
    n_validation: int = 500  #: typical samples held back, to choose between models without their labels


class RunSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run. Defaults live here and nowhere else.

    >>> RunSpec.from_toml("devices = 4").devices
    4
    """

    scheme: str = "tol-fl"
    data: str = "comms-ml"
    devices: int = 10
    clusters: int | None = None  #: None: 5, or one per device where there are fewer
    topology: str = ""  #: another layout than contiguous ids, such as '1,0|2,3'; replaces `clusters`
    rounds: int = 100
    fail: str = ""  #: a failure plan
    on_head_failure: str = ""  #: empty: the scheme's default
    lost_model: Literal["lost", "frozen"] = "lost"  #: a cluster's model whose head is gone: not scored, or as it was
    seed: int = 0
    repetitions: int = 1  #: seeds seed, seed + 1, ...
    splits: int = 1  #: repetitions go round so many declared splits: choices of classes, or draws of generated data
    min_devices: int = 1  #: fewer live devices do not train; more than half the fleet keeps a minority side still
    min_samples: int = 1
    deadline_s: float | None = None  #: a head waits this long for its members; None: until they report or die
    evaluate_every: int = 0  #: score the model every so many rounds; 0: only at the end
    checkpoint_every: int = 10  #: rounds between two checkpoints on disk
    timing: str = "localhost"
    train: TrainSpec = TrainSpec()
    model: ModelSpec = ModelSpec()
    links: Links = Links()
    blobs: BlobsSpec = BlobsSpec()
    comms_ml: CommsMLSettings = CommsMLSettings()
    dataset: DatasetSpec = DatasetSpec()
    fedgroup: FedGroupSpec = FedGroupSpec()
    ifca: IFCASpec = IFCASpec()
    fesem: FeSEMSpec = FeSEMSpec()
    defence: DefenceSpec = DefenceSpec()  #: against devices that lie; off
    liars: str = ""  #: devices that lie on purpose, such as '3:flip'

    @classmethod
    def from_toml(cls, text: str, source: str = "spec") -> RunSpec:
        """Read a specification; an unknown key is an error."""
        try:
            return cls.from_fields(msgspec.toml.decode(text))
        except msgspec.DecodeError as error:
            raise SpecError(f"{source}: {error}") from None
        except SpecError as error:
            raise SpecError(f"{source}: {error}") from None

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> RunSpec:
        """Make a specification of plain values; a wrong one is named with what it may be."""
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise SpecError(_explain(str(error), cls)) from None

    @classmethod
    def from_file(cls, path: Path) -> RunSpec:
        """Read a TOML file."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise SpecError(f"spec {path}: cannot be read ({why}); name a file in TOML") from None
        return cls.from_toml(text, source=f"spec {path}")

    def to_toml(self) -> str:
        """Return the specification as TOML; reading it again gives the same one."""
        return msgspec.toml.encode(_without_none(msgspec.to_builtins(self))).decode()

    def repetition(self, index: int) -> RunSpec:
        """Return the specification of one repetition, which has no others.

        >>> RunSpec(data="mnist", repetitions=4, splits=2).repetition(3).dataset.declared
        1
        """
        split = index % self.splits
        one = msgspec.structs.replace(self, seed=self.seed + index, repetitions=1, splits=1)
        if split == 0:
            return one
        if self.data.startswith("comms-ml"):
            draw = msgspec.structs.replace(self.comms_ml, seed=self.comms_ml.seed + split)
            return msgspec.structs.replace(one, comms_ml=draw)
        choice = msgspec.structs.replace(self.dataset, declared=self.dataset.declared + split)
        return msgspec.structs.replace(one, dataset=choice)

    def check(self) -> RunSpec:
        """Return the specification itself, or say in one sentence what is wrong with its numbers and names."""
        if self.on_head_failure and self.on_head_failure not in POLICIES:
            raise UnknownNameError("on-head-failure policy", self.on_head_failure, list(POLICIES))
        Timing.preset(self.timing)
        check_clustering(self.fedgroup, self.ifca, self.fesem)
        check_dataset(self.dataset)
        self.comms_ml.check()
        self.defence.check()
        Liars.parse(self.liars, self.devices)
        _at_least(1, devices=self.devices, rounds=self.rounds, repetitions=self.repetitions, splits=self.splits)
        _at_least(1, min_devices=self.min_devices, min_samples=self.min_samples, checkpoint_every=self.checkpoint_every)
        _at_least(0, seed=self.seed, evaluate_every=self.evaluate_every, batch_size=self.train.batch_size or 0)
        _at_least(1, epochs=self.train.epochs, n_features=self.blobs.n_features, n_groups=self.blobs.n_groups)
        _at_least(1, samples_per_device=self.blobs.samples_per_device, code=self.model.code)
        _at_least(2, n_test=self.blobs.n_test)
        _at_least(0, n_validation=self.blobs.n_validation)
        _at_least(1, **{f"hidden layer {index}": size for index, size in enumerate(self.model.hidden)})
        _positive(lr=self.train.lr, server_lr=self.train.server_lr, deadline_s=self.deadline_s)
        _positive(bandwidth_bps=self.links.bandwidth_bps)
        _not_negative(latency_s=self.links.latency_s, seconds_per_sample=self.links.seconds_per_sample)
        _not_negative(speed_spread=self.links.speed_spread)
        if self.seed + self.repetitions > 2**63:
            raise SpecError(f"seed {self.seed}; use a smaller one (below 2**63)")
        if not 0 <= self.train.momentum < 1:
            raise SpecError(f"momentum {self.train.momentum:g}; use at least 0 and less than 1")
        if not 0 <= self.model.dropout < 1:
            raise SpecError(f"dropout {self.model.dropout:g}; use at least 0 and less than 1")
        if self.min_devices > self.devices:
            raise SpecError(f"min_devices {self.min_devices} for {self.devices} devices; nobody could ever train")
        return self


def _explain(problem: str, kind: Any) -> str:
    """Turn msgspec's "Invalid enum value 'x' - at `$.train.optimizer`" into a sentence that says what to do."""
    what, _, where = problem.partition(" - at `$.")
    where = where.rstrip("`")
    prefix = f"{where}: " if where else ""
    if unknown := re.fullmatch(r"Object contains unknown field `(.+)`", what):
        known = get_type_hints(_type_at(kind, where))
        near = did_you_mean(unknown[1], known)
        return f"{prefix}unknown key {unknown[1]!r}; known are: {', '.join(sorted(known))}{near}"
    if wrong := re.fullmatch(r"Invalid enum value (.+)", what):
        words = _words(_type_at(kind, where))
        near = did_you_mean(wrong[1].strip("'"), words)
        return f"{prefix}unknown value {wrong[1]}; choose one of: {', '.join(words)}{near}"
    return f"{prefix}{what[:1].lower()}{what[1:]}"


def _words(kind: Any) -> list[str]:
    """Return the words of a `Literal`, also of one that may be None."""
    return [word for part in get_args(kind) for word in ([part] if isinstance(part, str) else _words(part))]


def _type_at(kind: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        kind = get_type_hints(kind)[name]
    return kind


def _at_least(lowest: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < lowest:
            raise SpecError(f"{name.replace('_', ' ')} {number}; use at least {lowest}")


def _positive(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not (number > 0 and math.isfinite(number)):
            raise SpecError(f"{name.replace('_', ' ')} {number:g}; use a number above 0")


def _not_negative(**numbers: float) -> None:
    for name, number in numbers.items():
        if not (number >= 0 and math.isfinite(number)):
            raise SpecError(f"{name.replace('_', ' ')} {number:g}; use at least 0")


def _without_none(value: Any) -> Any:
    """Drop absent values: TOML has no null."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
