"""From raw samples to one slice per device and a common test set, without leaks.

No device trains on an anomalous sample, a test sample or a validation sample; scaling is fitted on typical training
samples only. Which classes are typical is declared beforehand, so that the most favourable choice cannot be picked:
number 0 is the usual one, the others were drawn once from a fixed seed, before anything was trained on them.
Slices depend on the number of devices, the seed and the groups, never on k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError, SpecError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import DatasetSpec, RunSpec
from tolfl.datasets.federated import FederatedDataset, RawData, Samples, bounds_of, in_order
from tolfl.datasets.scaling import Kind, Moments, Scaler, merged
from tolfl.tables.schema import RARITY

Rows = NDArray[np.int64]

# -- which classes are typical ----------------------------------------------------------------------------------------

#: How many choices there are for data sets with ten or more classes.
_N_DECLARED = 10
#: The usual choice: typical and anomalous classes. Upper-body garments; the first five; five coarse groups each.
_USUAL: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fashion-mnist": (("0", "2", "3", "4", "6"), ("1", "5", "7", "8", "9")),
    "mnist": (("0", "1", "2", "3", "4"), ("5", "6", "7", "8", "9")),
    "cifar-10": (("0", "1", "2", "3", "4"), ("5", "6", "7", "8", "9")),
    "cifar-100": (("0", "1", "2", "3", "4"), ("5", "6", "7", "8", "9")),
}
#: Data sets whose classes are typical or anomalous by what they are.
_FIXED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "comms-ml": (("region-1", "region-2", "region-3"), ("rate", "bluetooth", "region-4")),
    "comms-ml-published": (("region-1", "region-2", "region-3"), ("region-4",)),
}

Choice = tuple[tuple[str, ...], tuple[str, ...]]  #: typical, anomalous


def declared_choices(name: str, classes: tuple[str, ...]) -> list[Choice]:
    """Return the declared choices of a data set; those after the first are random halves.

    >>> declared_choices("mnist", tuple("0123456789"))[0]
    (('0', '1', '2', '3', '4'), ('5', '6', '7', '8', '9'))
    """
    if name not in _USUAL:
        return [_FIXED[name]] if name in _FIXED else []
    choices = [_USUAL[name]]
    half = len(choices[0][0])
    number = 0
    while len(choices) < _N_DECLARED:
        number += 1
        order = rng_for(0, Purpose.PARTITION, device=number).permutation(len(classes))
        typical = in_order([classes[i] for i in order[:half]])
        anomalous = in_order([classes[i] for i in order[half : 2 * half]])
        if (typical, anomalous) not in choices:
            choices.append((typical, anomalous))
    return choices


def choose(raw: RawData, spec: DatasetSpec) -> Choice:
    """Return the typical and the anomalous classes of a run."""
    classes = raw.classes
    for name in (*spec.typical, *spec.anomalous):
        if name not in classes:
            raise SpecError(f"dataset class {name!r}: {raw.name} has no such class; it has {', '.join(classes)}")
    if spec.typical or spec.anomalous:
        typical = spec.typical or tuple(name for name in classes if name not in spec.anomalous)
        anomalous = spec.anomalous or tuple(name for name in classes if name not in spec.typical)
        return in_order(typical), in_order(anomalous)
    choices = declared_choices(raw.name, classes)
    if choices:
        if spec.declared >= len(choices):
            raise SpecError(f"dataset declared {spec.declared}: {raw.name} has {len(choices)} choices, from 0")
        return choices[spec.declared]
    typical = tuple(name for name in classes if is_typical_by_name(name))
    if not typical:
        known, guess = ", ".join(classes), commonest(raw.labels)
        raise SpecError(f"{raw.name} has the classes {known}; name the typical ones, as in --typical {guess}")
    return typical, tuple(name for name in classes if name not in typical)


def is_typical_by_name(name: str) -> bool:
    """Return whether a class is typical by its name alone: 0, false, normal, benign, ok, typical."""
    return name.strip().lower() in ("0", "0.0", "false", "normal", "benign", "ok", "typical")


def commonest(labels: np.ndarray) -> str:
    """Return the class of the most rows: the best guess for one that is typical."""
    classes, counts = np.unique(labels, return_counts=True)
    return str(classes[counts.argmax()])


def mask_of(labels: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return which labels are among the names."""
    return np.isin(labels, np.array(names, dtype=str))


# -- training and test rows --------------------------------------------------------------------------------------------

#: Streams of `Purpose.PARTITION`; 0 is the partition's own.
_TEST, _VALIDATION, _FEWER = 101, 102, 103


@dataclass(frozen=True)
class Parts:
    """Rows of the raw data by use."""

    train: Rows
    validation: Rows
    test: Rows | None
    """Typical rows, then anomalous ones; None where either are missing."""
    is_anomalous: NDArray[np.bool_] | None
    """Which of the rows to test on are."""


def federate(raw: RawData, spec: RunSpec) -> FederatedDataset:
    """Return the data set of a run: split, shared out over the devices, scaled."""
    choice = choose(raw, spec.dataset)
    parts = split(raw, choice, spec.dataset, spec.seed)
    slices = share_out(raw, parts.train, choice, spec)
    return _scaled(_with_rarities(raw, parts.train), slices, parts, spec.dataset)


def _with_rarities(raw: RawData, train: Rows) -> RawData:
    """Return samples whose words are counted among the training rows: rare words get large values."""
    places = [place for place, name in enumerate(raw.feature_names) if name.endswith(RARITY)]
    if not places:
        return raw
    samples = raw.samples.copy()
    for place in places:
        codes = samples[:, place].astype(np.int64)
        counts = np.bincount(codes[train], minlength=256)
        samples[:, place] = -np.log((counts[codes] + 0.5) / (len(train) + 1))
    return replace(raw, samples=samples)


def split(raw: RawData, choice: Choice, spec: DatasetSpec, seed: int) -> Parts:
    """Return which rows train (at least one), validate and test; class by class, so that each is there in all."""
    is_typical, is_anomalous = (mask_of(raw.labels, names) for names in choice)
    if raw.is_test is not None:
        train, typical_test = np.flatnonzero(is_typical & ~raw.is_test), np.flatnonzero(is_typical & raw.is_test)
        anomalous_test = np.flatnonzero(is_anomalous & raw.is_test)
    else:
        train, typical_test = _set_aside(raw, np.flatnonzero(is_typical), spec.test_share, spec, seed, _TEST)
        anomalous_test = np.flatnonzero(is_anomalous)
    train = _at_most(raw, train, spec.max_train, seed)
    train, validation = _set_aside(raw, train, spec.validation_share, spec, seed, _VALIDATION)
    if not len(train):
        raise DataError(f"{raw.name}: no typical row is left to train on; the typical classes are {choice[0]}")
    half = None if spec.max_test is None else max(1, spec.max_test // 2)
    tests = [_at_most(raw, rows, half, seed) for rows in (typical_test, anomalous_test)]
    if not all(map(len, tests)):
        return Parts(train, validation, None, None)
    return Parts(train, validation, np.concatenate(tests), np.repeat([False, True], [*map(len, tests)]))


def _set_aside(raw: RawData, rows: Rows, share: float, spec: DatasetSpec, seed: int, stream: int) -> tuple[Rows, Rows]:
    """Return the rows that stay and those that are set aside: at random, or the last in time of each class."""
    kept, aside = [], []
    rng = rng_for(seed, Purpose.PARTITION, stream)
    for name in np.unique(raw.labels[rows]):
        of_class = rows[raw.labels[rows] == name]
        if spec.split == "random":
            order = rng.permutation(of_class)
        else:
            order = of_class if raw.times is None else of_class[np.argsort(raw.times[of_class], kind="stable")]
        n_aside = round(len(order) * share)
        kept.append(order[: len(order) - n_aside])
        aside.append(order[len(order) - n_aside :])
    empty = [np.empty(0, np.int64)]
    return np.sort(np.concatenate(kept or empty)), np.sort(np.concatenate(aside or empty))


def _at_most(raw: RawData, rows: Rows, n: int | None, seed: int) -> Rows:
    """Return at most `n` rows, as evenly from the classes as these allow."""
    if n is None or len(rows) <= n:
        return rows
    rng = rng_for(seed, Purpose.PARTITION, _FEWER)
    by_class = [rng.permutation(rows[raw.labels[rows] == name]) for name in np.unique(raw.labels[rows])]
    taken, left = [], n
    for place, of_class in enumerate(sorted(by_class, key=len)):
        share = min(len(of_class), left // (len(by_class) - place))
        taken.append(of_class[:share])
        left -= share
    return np.sort(np.concatenate(taken))


def share_out(raw: RawData, train: Rows, choice: Choice, spec: RunSpec) -> list[Rows]:
    """Return the training rows of each device."""
    asked = spec.dataset
    if raw.schema is not None and len(train) < spec.devices:
        raise DataError(
            f"{raw.name}: {len(train)} typical row(s) to train on for {spec.devices} devices; give more rows, or use "
            "fewer devices (--devices)"
        )
    partition = asked.partition or ("classes" if raw.owners is None else "column")
    present = set(np.unique(raw.labels[train]).tolist())
    classes = [name for name in choice[0] if name in present]
    if asked.sizes and partition != "iid":
        raise SpecError(f"dataset sizes go with partition iid, not {partition}")
    match partition:
        case "iid":
            return iid(train, spec.devices, spec.seed, asked.sizes)
        case "dirichlet":
            return dirichlet(train, raw.labels, classes, spec.devices, spec.seed, asked.alpha)
        case "column":
            if raw.owners is None:
                raise SpecError(f"partition column: {raw.name} does not say whose samples these are; name a column "
                                "with --device-column")  # fmt: skip
            return by_owner(train, raw.owners, spec.devices)
        case _:
            return one_class_per_group(train, raw.labels, classes, spec.devices, spec.seed, asked.groups)


# -- partitions over devices ------------------------------------------------------------------------------------------

_USUAL_GROUPS = 5


def one_class_per_group(
    rows: Rows, labels: NDArray[np.str_], classes: Sequence[str], n_devices: int, seed: int, groups: int | None
) -> list[Rows]:
    """Return the paper's slices: every group of classes to neighbouring devices, shared evenly among them."""
    n_groups = min(groups or min(len(classes), _USUAL_GROUPS), len(classes))
    rng = rng_for(seed, Purpose.PARTITION)
    slices: list[list[Rows]] = [[] for _ in range(n_devices)]
    for group in range(n_groups):
        inside = [name for place, name in enumerate(classes) if place * n_groups // len(classes) == group]
        of_group = rng.permutation(rows[np.isin(labels[rows], inside)])
        if n_devices >= n_groups:
            owners = [device for device in range(n_devices) if device * n_groups // n_devices == group]
        else:
            owners = [group * n_devices // n_groups]
        for device, share in zip(owners, np.array_split(of_group, len(owners)), strict=True):
            slices[device].append(share)
    return [np.concatenate(shares) if shares else np.empty(0, np.int64) for shares in slices]


def iid(rows: Rows, n_devices: int, seed: int, sizes: Sequence[float] = ()) -> list[Rows]:
    """Return slices that are alike: shuffled, and equal (to one sample) or of given relative sizes."""
    shuffled = rng_for(seed, Purpose.PARTITION).permutation(rows)
    if not sizes:
        return np.array_split(shuffled, n_devices)
    if len(sizes) != n_devices:
        raise SpecError(f"dataset sizes has {len(sizes)} numbers for {n_devices} devices; give one each")
    edges = np.round(np.cumsum([0, *sizes]) / sum(sizes) * len(rows)).astype(int)
    return [shuffled[first:last] for first, last in pairwise(edges)]


def dirichlet(
    rows: Rows, labels: NDArray[np.str_], classes: Sequence[str], n_devices: int, seed: int, alpha: float
) -> list[Rows]:
    """Return slices in which each class is shared out by a draw from a Dirichlet distribution."""
    rng = rng_for(seed, Purpose.PARTITION)
    slices: list[list[Rows]] = [[] for _ in range(n_devices)]
    for name in classes:
        of_class = rng.permutation(rows[labels[rows] == name])
        shares = rng.dirichlet(np.full(n_devices, alpha))
        edges = np.round(np.cumsum([0.0, *shares]) * len(of_class)).astype(int)
        for device in range(n_devices):
            slices[device].append(of_class[edges[device] : edges[device + 1]])
    return [np.concatenate(shares) for shares in slices]


def by_owner(rows: Rows, owners: NDArray[np.str_], n_devices: int) -> list[Rows]:
    """Return slices by whose sample it is; where there are fewer devices than owners, neighbours share one."""
    names = in_order(np.unique(owners).tolist())
    if n_devices > len(names):
        raise SpecError(f"{n_devices} devices, but the data have {len(names)} owners; use at most {len(names)} devices")
    device_of = {name: place * n_devices // len(names) for place, name in enumerate(names)}
    found, inverse = np.unique(owners[rows], return_inverse=True)
    devices = np.array([device_of[name] for name in found.tolist()], dtype=np.int64)[inverse]
    return [rows[devices == device] for device in range(n_devices)]


# -- scaling ----------------------------------------------------------------------------------------------------------


def _scaled(raw: RawData, slices: list[Rows], parts: Parts, spec: DatasetSpec) -> FederatedDataset:
    """Return slices and test rows, scaled as a fleet would: each device tells its moments, these are merged."""
    kind: Kind = spec.scaling or ("none" if raw.scale != 1.0 else "min-max")
    fleet: Scaler | None = None
    if kind != "none" or raw.missing is not None:
        told = slices if spec.scaled_by != "all" else [np.arange(raw.n_samples)]
        fleet = Scaler.fit(merged(Moments.of(_raw_values(raw, rows)) for rows in told if len(rows)), kind)

    def values(rows: Rows, own: Scaler | None = None) -> Samples:
        found, scaler = _raw_values(raw, rows), own or fleet
        return found if scaler is None else scaler(found)

    rows = np.concatenate(slices)
    if spec.scaled_by == "per-device" and fleet is not None:
        scalers = [Scaler.fit(Moments.of(_raw_values(raw, own)), kind) if len(own) else None for own in slices]
        pool: Samples = np.concatenate([values(own, scaler) for own, scaler in zip(slices, scalers, strict=True)])
    else:
        pool = values(rows)
    return FederatedDataset(
        raw.name,
        pool,
        bounds_of(slices),
        None if parts.test is None else values(parts.test),
        parts.is_anomalous,
        values(parts.validation) if len(parts.validation) else None,
        raw.labels[rows],
        None if parts.test is None else raw.labels[parts.test],
        raw.feature_names,
    )


def _raw_values(raw: RawData, rows: Rows) -> NDArray[np.float32]:
    values = raw.samples[rows].astype(np.float32)
    if raw.scale != 1.0:
        values *= np.float32(raw.scale)
    if raw.missing is not None:
        values[raw.missing[rows]] = np.nan
    return values
