"""Run specifications: everything that a run depends on, read from TOML or flags, stored with every result."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from tolfl.core.byzantine import parse_liars
from tolfl.core.errors import SpecError, UnknownNameError, did_you_mean


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When silence becomes a death. Shorter: a failure stalls a round for less; longer: fewer healthy devices lost."""

    heartbeat_s: float  #: between two signs of life; shorter costs messages, longer delays every detection
    crash_detection_s: float  #: from a broken connection to a death; covers the refused reconnect that proves it
    silence_detection_s: float  #: from the last sign of life to a death; must exceed the longest pause of a busy device

    @classmethod
    def localhost(cls) -> Timing:
        """Return times for processes of one machine."""
        return cls(heartbeat_s=0.1, crash_detection_s=0.2, silence_detection_s=1.0)

    @classmethod
    def lan(cls) -> Timing:
        """Return times for machines on a wired network."""
        return cls(heartbeat_s=0.25, crash_detection_s=0.5, silence_detection_s=2.0)

    @classmethod
    def wireless(cls) -> Timing:
        """Return times for lossy, slow links, where a false alarm costs more than a second of waiting."""
        return cls(heartbeat_s=1.0, crash_detection_s=2.0, silence_detection_s=6.0)

    @classmethod
    def preset(cls, name: str) -> Timing:
        """Return a preset by its name."""
        presets = {"localhost": cls.localhost, "lan": cls.lan, "wireless": cls.wireless}
        if name not in presets:
            raise UnknownNameError("timing preset", name, list(presets))
        return presets[name]()


class LinkModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The simulated network and devices. Virtual time only: none of it changes a model without a deadline."""

    latency_s: float = 0.005  #: from the last byte sent to the first event at the receiver
    bandwidth_bps: float = 20e6  #: of every device's link
    uplink: Literal["serial", "parallel"] = "serial"  #: serial: a receiver takes one transfer at a time
    seconds_per_sample: float = 1e-4  #: local training time per sample and epoch at speed 1
    speed_spread: float = 0.0  #: device speeds are drawn from 1 / (1 + U(0, speed_spread)); 0: all alike


class ChannelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A channel. Comms-ML as published has none (all frames look the same), so every number here is this project's.

    They are a choice: an indoor link sampled at 240 million readings per second, where neither echoes nor noise drown
    the twelve statistics.
    """

    delays_samples: tuple[int, ...] = (0, 5, 12, 24)  #: up to 0.1 microseconds, 30 m of detour
    powers_db: tuple[float, ...] = (0.0, -3.0, -7.0, -12.0)  #: of each echo; together they are scaled to power 1
    rician_k_db: float = 10.0  #: power of the echoes that stay over the power of what changes with each frame
    gain_db: float = 1.0  #: standard deviation of a frame's gain; the received level is not controlled
    snr_db: float = 20.0  #: signal to noise, per reading
    timing_offset_samples: int = 0  #: a frame's readings start up to so many samples early or late

    def check(self) -> ChannelSettings:
        """Return the settings themselves, or say in one sentence what is wrong with them."""
        if not self.delays_samples or len(self.delays_samples) != len(self.powers_db):
            n_delays, n_powers = len(self.delays_samples), len(self.powers_db)
            raise SpecError(f"{n_delays} delays and {n_powers} powers of a channel; give one of each per echo")
        if min(self.delays_samples) < 0 or self.timing_offset_samples < 0:
            raise SpecError("delays and timing offset of a channel; use at least 0 samples")
        numbers = (*self.powers_db, self.rician_k_db, self.gain_db, self.snr_db)
        if not all(map(math.isfinite, numbers)) or self.gain_db < 0:
            raise SpecError(
                "powers, Rician factor, gain and SNR of a channel must be finite, and the gain at least 0 dB"
            )
        return self


class CommsMLSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is generated, and how strong the anomalies are. The strengths are choices: only differences are evidence."""

    variant: Literal["default", "published"] = "default"
    seed: int = 0  #: of traffic, fading and noise; the seed of a run only splits and trains
    windows_per_region: int = 3000  #: the paper's samples per class; "published": what a week gives, about 1,950
    n_readings: int = 100  #: the paper's 112 features; the published files take 200
    window_s: float = 1.0  #: published files
    interval_s: float = 60.0  #: published files
    bandwidth_mhz: int = 160  #: published files: CBW160
    oversampling: float = 1.5  #: published files
    window: Literal["none", "ieee"] = "none"  #: of the waveform; what MATLAB does before the first sample is not known
    rate_factor: float = (
        8.0  #: "rate": all but the router so many times as busy; PCA-16 has AUROC 0.81, at 0.2 only 0.47
    )
    bluetooth_db: float = -20.0  #: "bluetooth": power over that of the router's frame; PCA-16 0.95, at -15 dB 0.998
    own_share: float = 0.65  #: "region-4": share of its echoes that region 2 does not have
    #: Draws the phases of the regions' echoes, that is where the receivers stand; no other seed changes them. How much
    #: region 4 differs depends on it: PCA-16 has 0.59 to 1.00 over the places 0 to 13, median 0.99; place 9, with 0.97,
    #: leaves something to find and something to miss.
    place_seed: int = 9
    channel: ChannelSettings = ChannelSettings()

    def check(self) -> CommsMLSettings:
        """Return the settings themselves, or say in one sentence what is wrong with them."""
        if self.windows_per_region < 3:
            raise SpecError(f"{self.windows_per_region} windows per region; use at least 3")
        if self.n_readings < 1:
            raise SpecError(f"{self.n_readings} readings; use at least 1")
        if not 0 < self.window_s <= self.interval_s < math.inf:
            raise SpecError(f"windows of {self.window_s:g} s every {self.interval_s:g} s; they must not overlap")
        if not 0 < self.rate_factor < math.inf:
            raise SpecError(f"rate factor {self.rate_factor:g}; use a number above 0")
        if not math.isfinite(self.bluetooth_db):
            raise SpecError(f"bluetooth at {self.bluetooth_db:g} dB; use a finite number")
        if not 0 <= self.own_share <= 1:
            raise SpecError(f"own share {self.own_share:g}; use 0 to 1")
        if self.place_seed < 0:
            raise SpecError(f"place seed {self.place_seed}; use at least 0")
        self.channel.check()
        return self


class DatasetSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From raw samples to one slice per device; what is left open is chosen by the data set."""

    dir: str = ""  #: where to look first; then TOLFL_DATA, the user's cache, Debian's data sets
    # -- classes
    declared: int = 0  #: which of the data set's declared choices of anomalous classes
    typical: tuple[str, ...] = ()  #: typical classes of one's own choice; all others are anomalous unless named
    anomalous: tuple[str, ...] = ()  #: anomalous classes of one's own choice; all others are typical unless named
    colour: bool = False  #: CIFAR: 3,072 values instead of 1,024 grey ones
    fine: bool = False  #: CIFAR-100: 100 classes instead of 20 coarse ones
    # -- columns of a table
    device_column: str = ""
    label_column: str = ""
    time_column: str = ""
    # -- windows of a capture
    window_s: float = 1.0
    step_s: float | None = None  #: from one window's start to the next one's; None: as long as the window
    # -- training, validation, test
    split: Literal["random", "chronological"] = "random"
    test_share: float = 0.2  #: of typical samples, where the publisher has not set any aside
    validation_share: float = 0.1  #: of the typical training samples
    max_train: int | None = None  #: at most so many training samples in all, drawn evenly from the classes
    max_test: int | None = None  #: at most so many test samples in all, half of them anomalous
    # -- devices
    partition: Literal["classes", "iid", "dirichlet", "column"] | None = None  #: None: by column if there is one
    groups: int | None = None  #: groups of classes that share devices; None: the typical classes, at most 5
    alpha: float = 0.5  #: of the Dirichlet distribution: the smaller, the more unequal
    sizes: tuple[float, ...] = ()  #: relative sizes of the devices' slices (iid); (): equal
    # -- scaling
    scaling: Literal["min-max", "standard", "none"] | None = None  #: None: none for pictures, else min-max
    scaled_by: Literal["fleet", "all", "per-device"] = (
        "fleet"  #: fitted on typical training data, on all (a leak), alone
    )


def check_dataset(spec: DatasetSpec) -> None:
    """Say in one sentence what is wrong with a number."""
    for name, share in (("test_share", spec.test_share), ("validation_share", spec.validation_share)):
        if not 0 <= share < 1:
            raise SpecError(f"dataset {name} {share:g}; use at least 0 and less than 1")
    for name, number in (("max_train", spec.max_train), ("max_test", spec.max_test), ("groups", spec.groups)):
        if number is not None and number < 1:
            raise SpecError(f"dataset {name} {number}; use at least 1")
    step_s = spec.window_s if spec.step_s is None else spec.step_s
    if not 1e-9 <= spec.window_s <= step_s < math.inf:
        raise SpecError(f"dataset window_s {spec.window_s:g}, step_s {step_s:g}; the step must be at least the window")
    if spec.declared < 0:
        raise SpecError(f"dataset declared {spec.declared}; use at least 0")
    if not (spec.alpha > 0 and math.isfinite(spec.alpha)):
        raise SpecError(f"dataset alpha {spec.alpha:g}; use a number above 0")
    if any(not (size > 0 and math.isfinite(size)) for size in spec.sizes):
        raise SpecError(f"dataset sizes {spec.sizes}; use numbers above 0")
    if both := set(spec.typical) & set(spec.anomalous):
        raise SpecError(f"dataset class {min(both)!r} cannot be typical and anomalous")


Weight = Literal["samples", "equal"]


class FedGroupSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """FedGroup; defaults of the authors' code (FlexCFL) unless said otherwise."""

    pretrain_scale: int = 20  #: at most so many devices per group form the groups; the others join later
    pretrain_iterations: int = 50  #: mini-batches of pre-training, rounded up to whole epochs
    measure: Literal["edc", "madc"] = "edc"  #: cosine features and k-means, or mean differences of cosines
    kmeans_iterations: int = 20
    inter_group_lr: float = 0.0  #: of the step between groups; the authors use 0, 0.01 and 0.1; 0: none
    weight: Weight = "samples"  #: of a member's model in its group


class IFCASpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """IFCA; the authors warm up for 20 rounds on FEMNIST, 5 are enough for the autoencoder."""

    init: Literal["warm", "random"] = "warm"  #: a random balanced partition first, or independent random models
    warm_rounds: int = 5  #: of federated averaging inside each part
    restarts: int = 3  #: first partitions that are tried; the one with the least training loss goes on
    trial_rounds: int = 10  #: rounds after which the restarts are compared
    weight: Weight = "samples"  #: the authors' mean is unweighted; their devices have equally many samples


class FeSEMSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """FeSEM, the multi-centre method; its code starts from random centres, which all devices may be far from."""

    init: Literal["k-means++", "random"] = "k-means++"
    pretrain_epochs: int = 5  #: of each device before the centres are found
    layers: tuple[str, ...] = ()  #: parameters that distances are measured on, by the start of their names; (): all
    weight: Weight = "equal"  #: the paper's M-step is the plain mean


def check_clustering(fedgroup: FedGroupSpec, ifca: IFCASpec, fesem: FeSEMSpec) -> None:
    """Say in one sentence what is wrong with a number."""
    numbers = {
        "fedgroup pretrain_scale": fedgroup.pretrain_scale,
        "fedgroup pretrain_iterations": fedgroup.pretrain_iterations,
        "fedgroup kmeans_iterations": fedgroup.kmeans_iterations,
        "ifca restarts": ifca.restarts,
        "ifca trial_rounds": ifca.trial_rounds,
        "fesem pretrain_epochs": fesem.pretrain_epochs,
    }
    for name, number in numbers.items():
        if number < 1:
            raise SpecError(f"{name} {number}; use at least 1")
    if ifca.warm_rounds < 0:
        raise SpecError(f"ifca warm_rounds {ifca.warm_rounds}; use at least 0")
    if not 0 <= fedgroup.inter_group_lr < float("inf"):
        raise SpecError(f"fedgroup inter_group_lr {fedgroup.inter_group_lr:g}; use at least 0")


#: What may happen when a head dies: another member takes over; the cluster is lost; its members go on alone; they stop.
#: With a model per cluster: those who train the lost model are out, or they find another.
POLICIES = ("elect", "drop", "isolate", "freeze", "strict", "rehome")


Inside = Literal["mean", "median", "trimmed-mean"]


class DefenceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a head does with its members' updates before it passes their mean on.

    With `median`, `trimmed-mean`, `clip_to_median` or `chain_clip` the model depends on who is in which cluster: that
    any number of clusters gives the same model is then not promised.

    >>> DefenceSpec().is_on, DefenceSpec(max_samples=500).depends_on_layout, DefenceSpec("median").depends_on_layout
    (False, False, True)
    """

    inside: Inside = "mean"  #: of a cluster, by coordinate; median and trimmed mean give each device one vote
    trim: float = 0.2  #: trimmed-mean: this share of the devices is cut off at each end, rounded up
    clip_norm: float = 0.0  #: an update that is longer is shortened to this length; 0: off
    clip_to_median: float = 0.0  #: the same in multiples of the median length in its cluster; 0: off
    max_samples: int = 0  #: no device counts for more samples; 0: off
    chain_clip: float = 0.0  #: the longest mean update that a cluster may add to the chain; 0: off

    @property
    def is_on(self) -> bool:
        """Whether anything differs from plain sums."""
        return self.depends_on_layout or bool(self.clip_norm or self.max_samples)

    @property
    def depends_on_layout(self) -> bool:
        """Whether another number of clusters gives another model."""
        return self.inside != "mean" or bool(self.clip_to_median or self.chain_clip)

    def __str__(self) -> str:
        """Say what is on, and what is then not promised.

        >>> str(DefenceSpec("trimmed-mean", max_samples=500))
        'trimmed-mean (0.2), max_samples 500; the model depends on the clusters'
        """
        rule = {"mean": "", "median": "median", "trimmed-mean": f"trimmed-mean ({self.trim:g})"}[self.inside]
        numbers = ("clip_norm", "clip_to_median", "max_samples", "chain_clip")
        limits = [f"{name} {getattr(self, name):g}" for name in numbers if getattr(self, name)]
        note = "; the model depends on the clusters" if self.depends_on_layout else ""
        return ", ".join(filter(None, [rule, *limits])) + note

    def check(self) -> None:
        """Say in one sentence what is wrong with a number."""
        if not 0 < self.trim < 0.5:
            raise SpecError(f"defence trim {self.trim:g}; use a share above 0 and below 0.5")
        for name in ("clip_norm", "clip_to_median", "max_samples", "chain_clip"):
            number = getattr(self, name)
            if not 0 <= number < math.inf:
                raise SpecError(f"defence {name} {number:g}; use a number above 0, or 0 for none")


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
    links: LinkModel = LinkModel()
    blobs: BlobsSpec = BlobsSpec()
    comms_ml: CommsMLSettings = CommsMLSettings()
    dataset: DatasetSpec = DatasetSpec()
    fedgroup: FedGroupSpec = FedGroupSpec()
    ifca: IFCASpec = IFCASpec()
    fesem: FeSEMSpec = FeSEMSpec()
    defence: DefenceSpec = DefenceSpec()  #: against devices that lie; off
    liars: str = ""  #: devices that lie on purpose, such as '3:flip'
    learn: dict[str, Any] = {}  #: what the fleet learns: `what`, and the settings of that learner; {}: by scheme

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
        parse_liars(self.liars, self.devices)
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
