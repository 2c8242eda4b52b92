"""Run specifications: everything that a run depends on, read from TOML or flags, stored with every result.

What a number may be is declared in its type, and so is the meaning of fields that commands have a flag for (`title`).
Types are checked where a specification is read, and by `RunSpec.check` or `checked` where it was made in Python; what
several fields must be together is checked whenever they are set.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from tolfl.core.byzantine import parse_liars
from tolfl.core.errors import SpecError, UnknownNameError, did_you_mean

#: NaN is refused by every bound; infinity only by this one.
_LARGEST = sys.float_info.max
_MOST = 10**9  #: of anything that is counted: more is a slip of the finger
# What a number may be; the description is what an error says after "use".
AtLeast0 = Annotated[int, Meta(ge=0, description="at least 0")]
AtLeast1 = Annotated[int, Meta(ge=1, le=_MOST, description="at least 1")]
AtLeast2 = Annotated[int, Meta(ge=2, le=_MOST, description="at least 2")]
AtLeast3 = Annotated[int, Meta(ge=3, le=_MOST, description="at least 3")]
Positive = Annotated[float, Meta(gt=0, le=_LARGEST, description="a number above 0")]
NotNegative = Annotated[float, Meta(ge=0, le=_LARGEST, description="at least 0")]
Factor = Annotated[float, Meta(ge=1, le=_LARGEST, description="at least 1")]
Finite = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST, description="a finite number")]
Share = Annotated[float, Meta(ge=0, le=1, description="0 to 1")]
ShareBelow1 = Annotated[float, Meta(ge=0, lt=1, description="at least 0 and less than 1")]
TrimShare = Annotated[float, Meta(gt=0, lt=0.5, description="a share above 0 and below 0.5")]
#: The shortest window that a clock of nanoseconds can tell from none.
WindowSeconds = Annotated[float, Meta(ge=1e-9, le=_LARGEST, description="a number above 0")]
Delay = Annotated[int, Meta(ge=0, description="at least 0 samples")]
Decibels = Annotated[float, Meta(ge=0, le=_LARGEST, description="at least 0 dB")]
#: Of a defence: 0 switches it off.
Limit = Annotated[float, Meta(ge=0, le=_LARGEST, description="a number above 0, or 0 for none")]
CountLimit = Annotated[int, Meta(ge=0, description="a number above 0, or 0 for none")]

Optimizer = Literal["sgd", "momentum", "adam"]

_Spec = TypeVar("_Spec", bound=msgspec.Struct)


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When missed heartbeats become a failure. Shorter: less stall; longer: fewer healthy devices lost in a pause."""

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

    latency_s: Annotated[
        NotNegative, Meta(title="Seconds per message, from the last byte sent to the first event at the receiver.")
    ] = 0.005
    bandwidth_bps: Annotated[Positive, Meta(title="Bits per second of every device's link.")] = 20e6
    uplink: Annotated[
        Literal["serial", "parallel"],
        Meta(title="serial or parallel; serial: a receiver takes one transfer at a time."),
    ] = "serial"
    seconds_per_sample: Annotated[NotNegative, Meta(title="Local training time per sample and epoch at speed 1.")] = (
        1e-4
    )
    speed_spread: Annotated[
        NotNegative, Meta(title="How unequal devices' speeds are: drawn from 1 / (1 + U(0, spread)); 0: all alike.")
    ] = 0.0


class ChannelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A channel. Comms-ML as published has none (all frames look the same), so every number here is this project's.

    They are a choice: an indoor link sampled at 240 million readings a second, where neither multipath nor noise hides
    the twelve statistics.
    """

    delays_samples: tuple[Delay, ...] = (0, 5, 12, 24)  #: up to 0.1 microseconds, 30 m of detour
    powers_db: tuple[Finite, ...] = (0.0, -3.0, -7.0, -12.0)  #: of each echo; together they are scaled to power 1
    rician_k_db: Finite = 10.0  #: power of the paths that stay over the power of what changes with each frame
    gain_db: Decibels = 1.0  #: standard deviation of a frame's gain; the received level is not controlled
    snr_db: Finite = 20.0  #: signal to noise, per reading
    timing_offset_samples: Delay = 0  #: a frame's readings start up to so many samples early or late

    def __post_init__(self) -> None:
        n_delays, n_powers = len(self.delays_samples), len(self.powers_db)
        if not n_delays or n_delays != n_powers:
            raise SpecError(f"{n_delays} delays and {n_powers} powers of a channel; give one of each per path")


class CommsMLSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is generated, and how strong the anomalies are. The strengths are choices: only differences are evidence."""

    variant: Literal["default", "published"] = "default"
    seed: AtLeast0 = 0  #: of traffic, fading and noise; the seed of a run only splits and trains
    windows_per_region: AtLeast3 = 3000  #: the paper's samples per class; "published": what a week gives, about 1,950
    n_readings: AtLeast1 = 100  #: the paper's 112 features; the published files take 200
    window_s: Positive = 1.0  #: published files
    interval_s: Positive = 60.0  #: published files
    bandwidth_mhz: int = 160  #: published files: CBW160
    oversampling: Factor = 1.5  #: published files
    window: Literal["none", "ieee"] = "none"  #: of the waveform; what MATLAB does before the first sample is not known
    rate_factor: Positive = (
        8.0  #: "rate": all but the router so many times as busy; PCA-16 has AUROC 0.81, at 0.2 only 0.47
    )
    rare_factor: NotNegative = 0.0  #: "rare": all but the router so many times as busy, as in 0.125; 0: no such class
    bluetooth_db: Finite = -20.0  #: "bluetooth": power over that of the router's frame; PCA-16 0.95, at -15 dB 0.998
    own_share: Share = 0.65  #: "region-4": share of its paths that region 2 does not have
    #: Draws the phases of the regions' paths, that is where the receivers stand; no other seed changes them. How much
    #: region 4 differs depends on it: PCA-16 has 0.59 to 1.00 over the places 0 to 13, median 0.99; place 9, with 0.97,
    #: leaves something to find and something to miss.
    place_seed: AtLeast0 = 9
    channel: ChannelSettings = ChannelSettings()

    def __post_init__(self) -> None:
        if not self.window_s <= self.interval_s:
            raise SpecError(f"windows of {self.window_s:g} s every {self.interval_s:g} s; they must not overlap")


class DatasetSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From raw samples to one slice per device; what is left open is chosen by the data set."""

    dir: Annotated[str, Meta(title="Where data sets lie. (default: TOLFL_DATA, the user's cache)")] = ""
    # -- classes
    declared: AtLeast0 = 0  #: which of the data set's declared choices of anomalous classes
    typical: Annotated[
        tuple[str, ...],
        Meta(
            title="A class of the label column that is typical; may be repeated. (default: 0, normal, benign, ok, ...)"
        ),
    ] = ()  #: all others are anomalous unless named
    anomalous: tuple[str, ...] = ()  #: anomalous classes of one's own choice; all others are typical unless named
    colour: bool = False  #: CIFAR: 3,072 values instead of 1,024 grey ones
    fine: bool = False  #: CIFAR-100: 100 classes instead of 20 coarse ones
    # -- columns of a table
    device_column: Annotated[str, Meta(title="The column of a table that says whose sample it is.")] = ""
    label_column: Annotated[str, Meta(title="The column with the class of a sample.")] = ""
    time_column: Annotated[str, Meta(title="The column that says when.")] = ""
    columns: Annotated[
        tuple[str, ...],
        Meta(title="The only columns to learn from, as in a,b,c. (default: all but identifiers, counters, clocks)"),
    ] = ()
    ignore: Annotated[tuple[str, ...], Meta(title="Columns not to learn from, as in a,b.")] = ()
    encoding: Annotated[str, Meta(title="Of CSV and JSON lines: latin-1, cp1252, ... (default: utf-8)")] = ""
    # -- windows of a capture
    window_s: Annotated[WindowSeconds, Meta(title="Seconds in a window of a capture.")] = 1.0
    step_s: Annotated[
        WindowSeconds | None, Meta(title="Seconds from one window to the next. (default: the window's)")
    ] = None
    per: Annotated[
        Literal["", "bssid", "channel"],
        Meta(title="Of 802.11 captures, a row for each bssid or channel. (default: one row for all)"),
    ] = ""
    rate: Annotated[str, Meta(title="Samples a second of .cu8 and the like, where their names do not say: 250k.")] = ""
    centre: Annotated[
        str, Meta(title="What frequencies of receivers count from: 433.92M. (default: what each was tuned to)")
    ] = ""
    without_bursts: Annotated[bool, Meta(title="Leave out seconds of 802.11 that look like an attack.")] = False
    # -- training, validation, test
    split: Literal["random", "chronological"] = "random"  #: chronological: the last samples of each class are tested
    test_share: ShareBelow1 = 0.2  #: of typical samples, where the publisher has not set any aside
    validation_share: ShareBelow1 = 0.1  #: of the typical training samples
    max_train: AtLeast1 | None = None  #: at most so many training samples in all, drawn evenly from the classes
    max_test: AtLeast1 | None = None  #: at most so many test samples in all, half of them anomalous
    # -- devices
    partition: Annotated[
        Literal["classes", "iid", "dirichlet", "column"] | None,
        Meta(title="Who gets which samples: classes, iid, dirichlet, column. (default: classes; column if named)"),
    ] = None
    groups: AtLeast1 | None = None  #: groups of classes that share devices; None: the typical classes, at most 5
    alpha: Positive = 0.5  #: of the Dirichlet distribution: the smaller, the more unequal
    sizes: tuple[Positive, ...] = ()  #: relative sizes of the devices' slices (iid); (): equal
    # -- scaling
    scaling: Literal["min-max", "standard", "none"] | None = None  #: None: none for pictures, else min-max
    scaled_by: Literal["fleet", "all", "per-device"] = (
        "fleet"  #: fitted on typical training data, on all (a leak), alone
    )

    def __post_init__(self) -> None:
        if self.step_s is not None and not self.window_s <= self.step_s:
            raise SpecError(f"window_s {self.window_s:g}, step_s {self.step_s:g}; the step must be at least the window")
        if both := set(self.typical) & set(self.anomalous):
            raise SpecError(f"class {min(both)!r} cannot be typical and anomalous")


Weight = Literal["samples", "equal"]


class FedGroupSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """FedGroup; defaults of the authors' code (FlexCFL) unless said otherwise."""

    pretrain_scale: AtLeast1 = 20  #: at most so many devices per group form the groups; the others join later
    pretrain_iterations: AtLeast1 = 50  #: mini-batches of pre-training, rounded up to whole epochs
    measure: Literal["edc", "madc"] = "edc"  #: cosine features and k-means, or mean differences of cosines
    kmeans_iterations: AtLeast1 = 20
    inter_group_lr: NotNegative = 0.0  #: of the step between groups; the authors use 0, 0.01 and 0.1; 0: none
    weight: Weight = "samples"  #: of a member's model in its group


class IFCASpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """IFCA; the authors warm up for 20 rounds on FEMNIST, 5 are enough for the autoencoder."""

    init: Literal["warm", "random"] = "warm"  #: a random balanced partition first, or independent random models
    warm_rounds: AtLeast0 = 5  #: of federated averaging inside each part
    restarts: AtLeast1 = 3  #: first partitions that are tried; the one with the least training loss goes on
    trial_rounds: AtLeast1 = 10  #: rounds after which the restarts are compared
    weight: Weight = "samples"  #: the authors' mean is unweighted; their devices have equally many samples


class FeSEMSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """FeSEM, the multi-centre method; its code starts from random centres, which all devices may be far from."""

    init: Literal["k-means++", "random"] = "k-means++"
    pretrain_epochs: AtLeast1 = 5  #: of each device before the centres are found
    layers: tuple[str, ...] = ()  #: parameters that distances are measured on, by the start of their names; (): all
    weight: Weight = "equal"  #: the paper's M-step is the plain mean


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
    trim: TrimShare = 0.2  #: trimmed-mean: this share of the devices is cut off at each end, rounded up
    clip_norm: Limit = 0.0  #: an update that is longer is shortened to this length; 0: off
    clip_to_median: Limit = 0.0  #: the same in multiples of the median length in its cluster; 0: off
    max_samples: CountLimit = 0  #: no device counts for more samples; 0: off
    chain_clip: Limit = 0.0  #: the longest mean update that a cluster may add to the chain; 0: off

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


class TrainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Local training, with every number settled."""

    lr: NotNegative = 0.02  #: 0 measures and changes nothing
    epochs: AtLeast1 = 1
    batch_size: AtLeast0 = 32  #: 0 = one full batch
    optimizer: Optimizer = "sgd"
    momentum: ShareBelow1 = 0.9

    def epochs_for(self, n_batches: int, n_samples: int) -> int:
        """Return how many whole epochs make at least so many mini-batches.

        >>> TrainSettings(batch_size=16).epochs_for(n_batches=50, n_samples=200)
        4
        """
        per_epoch = -(-n_samples // self.batch_size) if self.batch_size else 1
        return -(-n_batches // per_epoch)


class TrainSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Local training as asked for; what is left open is chosen by the shape of the data."""

    lr: Annotated[Positive | None, Meta(title="Local step size. (default: by the number of features)")] = None
    epochs: Annotated[AtLeast1, Meta(title="Local epochs per round.")] = 1
    batch_size: Annotated[
        AtLeast0 | None,
        Meta(title="Local batch size; 0: one full batch. (default: 16 below 1,000 samples per device, else 32)"),
    ] = None
    optimizer: Annotated[Optimizer, Meta(title="sgd, momentum or adam.")] = "sgd"
    momentum: ShareBelow1 = 0.9
    server_lr: Annotated[Positive, Meta(title="Step on the mean update; 1 is FedAvg.")] = 1.0

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

    hidden: tuple[AtLeast1, ...] = (128, 64)
    code: Annotated[AtLeast1, Meta(title="Size of the autoencoder's code.")] = 32
    dropout: Annotated[ShareBelow1, Meta(title="Dropout on hidden layers.")] = 0.2
    code_activation: Literal["linear", "relu"] = "linear"
    module: str = ""  #: the name of a module that was handed in from Python instead


class BlobsSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The built-in data set: each group on a subspace of its own, anomalies off it."""

    samples_per_device: Annotated[AtLeast1, Meta(title="Samples of a device (blobs).")] = 200
    n_features: Annotated[AtLeast1, Meta(title="Features of a sample (blobs).")] = 32
    n_groups: AtLeast1 = 5
    n_test: AtLeast2 = 1000
    n_validation: AtLeast0 = 500  #: typical samples held out, to choose between models without their labels


class RunSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run. Defaults live here and nowhere else.

    >>> RunSpec.from_toml("devices = 4").devices
    4
    """

    scheme: Annotated[
        str, Meta(title="tol-fl, fl, sbt, batch, batch-small, fedgroup, ifca, fesem; or mean-vector, pca-16, pca-32.")
    ] = "tol-fl"
    data: Annotated[str, Meta(title="A data set (tolfl data list), or a path to a table or folder.")] = "comms-ml"
    devices: Annotated[AtLeast1, Meta(title="How many devices. (default: 10, or fewer owners)")] = 10
    clusters: Annotated[int | None, Meta(title="How many clusters. (default: 5, or fewer devices)")] = None
    topology: Annotated[str, Meta(title="Another layout, such as '1,0|2,3', heads first; replaces --clusters.")] = ""
    rounds: Annotated[AtLeast1, Meta(title="How many rounds.")] = 100
    fail: Annotated[
        str,
        Meta(
            title="Who fails when: client@50, server@50/chain, device:3@50-60, head:2@50, closer@50, cluster:2@50, "
            "cut:3|4,5@50-55, random:0.01; a round of a stage: head@thresholds:1; "
            "phases /train /report /chain /distribute; joined by ';'."
        ),
    ] = ""
    on_head_failure: Annotated[
        str, Meta(title="elect, drop, isolate or freeze; fedgroup, ifca, fesem: strict or rehome. (default: by scheme)")
    ] = ""
    lost_model: Annotated[
        Literal["lost", "frozen"],
        Meta(title="A cluster's model whose head is gone, at scoring: lost (not scored) or frozen (as it was)."),
    ] = "lost"
    seed: Annotated[AtLeast0, Meta(title="The seed of everything random.")] = 0
    repetitions: Annotated[AtLeast1, Meta(title="Runs with seeds seed, seed + 1, ...")] = 1
    splits: AtLeast1 = (
        1  #: repetitions go round so many declared splits: choices of classes, or draws of generated data
    )
    min_devices: Annotated[
        AtLeast1, Meta(title="Fewer live devices do not train; more than half the fleet keeps a minority side still.")
    ] = 1
    min_samples: AtLeast1 = 1
    deadline_s: Annotated[
        Positive | None, Meta(title="Seconds a head waits for its members. (default: until they report or die)")
    ] = None
    evaluate_every: Annotated[AtLeast0, Meta(title="Score the model every so many rounds; 0: only at the end.")] = 0
    checkpoint_every: AtLeast1 = 10  #: rounds between two checkpoints on disk
    timing: Annotated[str, Meta(title="How fast deaths are noticed: localhost, lan, wireless.")] = "localhost"
    train: TrainSpec = TrainSpec()
    model: ModelSpec = ModelSpec()
    links: LinkModel = LinkModel()
    blobs: BlobsSpec = BlobsSpec()
    comms_ml: CommsMLSettings = CommsMLSettings()
    dataset: DatasetSpec = DatasetSpec()
    fedgroup: FedGroupSpec = FedGroupSpec()
    ifca: IFCASpec = IFCASpec()
    fesem: FeSEMSpec = FeSEMSpec()
    defence: DefenceSpec = DefenceSpec()  #: against Byzantine devices; off
    liars: str = ""  #: Byzantine devices of an experiment, such as '3:flip'
    run: AtLeast1 = 1  #: of the same fleet: the next number learns anew, from what its watching devices kept
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
        return _converted(fields, cls)

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
        return msgspec.toml.encode(self.to_fields()).decode()

    def to_fields(self) -> dict[str, Any]:
        """Return the specification as plain values, without those that are not set."""
        fields: dict[str, Any] = _without_none(msgspec.to_builtins(self))
        return fields

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
        """Return the specification, or say in one sentence what is wrong with its numbers and names."""
        spec = checked(self)
        if spec.on_head_failure and spec.on_head_failure not in POLICIES:
            raise UnknownNameError("on-head-failure policy", spec.on_head_failure, list(POLICIES))
        Timing.preset(spec.timing)
        parse_liars(spec.liars, spec.devices)
        if spec.seed + spec.repetitions > 2**63:
            raise SpecError(f"seed {spec.seed}; use a smaller one (below 2**63)")
        if spec.min_devices > spec.devices:
            raise SpecError(f"min_devices {spec.min_devices} for {spec.devices} devices; the fleet could never train")
        return spec


def checked(spec: _Spec) -> _Spec:
    """Return a specification that was made in Python, or say in one sentence which value is not allowed.

    >>> checked(LinkModel(latency_s=-1))
    Traceback (most recent call last):
    tolfl.core.errors.SpecError: latency_s -1; use at least 0
    """
    return _converted(msgspec.to_builtins(spec, enc_hook=_plain), type(spec))


def _plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, and a path as its text."""
    return value.item() if hasattr(value, "item") else str(value)


def _converted(fields: object, kind: type[_Spec]) -> _Spec:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise SpecError(_explain(str(error), fields, kind)) from None


def _explain(problem: str, fields: object, kind: Any) -> str:
    """Turn msgspec's "Expected `int` >= 1 - at `$.train.epochs`" into a sentence that says what to do."""
    placed = re.fullmatch(r"(.*) - at `\$\.(.+)`", problem, re.DOTALL)
    what, where = placed.groups() if placed else (problem, "")
    steps = re.findall(r"\w+|\[\d+\]", where)
    prefix = f"{where}: " if where else ""
    kind = type_at(kind, steps)
    if unknown := re.fullmatch(r"Object contains unknown field `(.+)`", what):
        known = get_type_hints(kind)
        near = did_you_mean(unknown[1], known)
        return f"{prefix}unknown key {unknown[1]!r}; known are: {', '.join(sorted(known))}{near}"
    if wrong := re.fullmatch(r"Invalid enum value (.+)", what):
        words = _words(kind)
        near = did_you_mean(wrong[1].strip("'"), words)
        return f"{prefix}unknown value {wrong[1]}; choose one of: {', '.join(words)}{near}"
    if re.fullmatch(r"Expected `(int|float)` [<>]=? .+", what):
        value = _value_at(fields, steps)
        given = f"{value:g}" if isinstance(value, float) else str(value)
        rule = f"at most {_MOST:,}" if isinstance(value, int) and value > _MOST else allowed(kind)
        return f"{' '.join(steps).replace(' [', '[')} {given}; use {rule}"
    return f"{prefix}{what[:1].lower()}{what[1:]}"


def _words(kind: Any) -> list[str]:
    """Return the words of a `Literal`, also of one that may be None."""
    return [word for part in get_args(kind) for word in ([part] if isinstance(part, str) else _words(part))]


def allowed(kind: Any) -> str:
    """Return what the numbers of a type may be, in words; nothing where all are allowed.

    >>> allowed(Positive | None)
    'a number above 0'
    """
    for part in get_args(kind):
        if found := (part.description or "") if isinstance(part, Meta) else allowed(part):
            return found
    return ""


def title(kind: Any) -> str:
    """Return what the type of a field says of it; nothing where it says nothing.

    >>> title(type_at(RunSpec, ["rounds"]))
    'How many rounds.'
    """
    return next((part.title for part in get_args(kind) if isinstance(part, Meta) and part.title), "")


def type_at(kind: Any, steps: list[str]) -> Any:
    """Return the type of a field, or of a field of a section."""
    for step in steps:
        while get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        kind = get_args(kind)[0] if step.startswith("[") else _hints(kind)[step]
    return kind


@cache  # a command line asks for the types of eighty fields as it starts
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _value_at(value: Any, steps: list[str]) -> Any:
    for step in steps:
        value = value[int(step[1:-1])] if step.startswith("[") else value[step]
    return value


def _without_none(value: Any) -> Any:
    """Drop absent values: TOML has no null."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
