"""From a data set or a table of one's own to what a detector trains on: rows by device, typical ones only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError, SpecError
from tolfl.core.spec import RunSpec
from tolfl.datasets import check_name, is_path, load, load_raw
from tolfl.datasets.classes import Choice, choose, is_typical_by_name
from tolfl.datasets.partition import Rows as Places
from tolfl.datasets.prepare import Parts, share_out, split
from tolfl.datasets.raw import RawData, in_order
from tolfl.datasets.scaling import Moments, merged
from tolfl.detect.detector import THE_DEVICE
from tolfl.detect.features import Features, Rows
from tolfl.detect.fitted import Detector
from tolfl.detect.sources import tables_in
from tolfl.detect.streams import Reader, Roles


@dataclass(frozen=True, eq=False)
class Gathered:
    """Typical rows of each device, and rows with known truth that nobody trains on, where the data have any."""

    slices: dict[str, Rows]
    features: Features
    test: tuple[Rows, NDArray[np.bool_]] | None = None
    notes: tuple[str, ...] = field(default=())


def gather(spec: RunSpec, n_devices: int | None = None, fill_missing: bool = False) -> Gathered:
    """Return the rows that a new detector trains on.

    Parameters
    ----------
    spec
        The data set, its classes, its partition.
    n_devices
        None: as many as the table names, or one where it names none; a data set has its usual number.
    fill_missing
        Whether a missing value becomes the mean over the fleet; else it is an error.
    """
    check_name(spec)
    if spec.data == "blobs":
        data = load(spec)
        test = None if data.test is None or data.is_anomalous is None else (data.test, data.is_anomalous)
        slices = {str(device): data.slice_of(device) for device in range(data.n_devices)}
        return Gathered(slices, Features.of(data.pool, data.n_features), test)
    raw = load_raw(spec)
    choice = choose(raw, spec.dataset)
    parts = _parts(raw, choice, spec)
    if not len(parts.train):
        raise DataError(f"{raw.name}: no typical row is left to train on; the typical classes are {choice[0]}")
    places = _places(raw, parts.train, choice, spec, n_devices)
    values, notes = _values(raw, list(places.values()), fill_missing)
    slices = {name: values[own] for name, own in places.items()}
    tested = np.concatenate([parts.typical_test, parts.anomalous_test])
    has_test = len(parts.typical_test) > 0 and len(parts.anomalous_test) > 0
    test = (values[tested], np.arange(len(tested)) >= len(parts.typical_test)) if has_test else None
    names = raw.feature_names or tuple(f"x{place}" for place in range(values.shape[1]))
    features = Features.named(names)
    return Gathered(slices, features, test, (*notes, *_constant(list(slices.values()), features)))


def gather_more(
    detector: Detector, path: Path, roles: Roles, typical: Sequence[str] = (), fill_missing: bool = False
) -> Gathered:
    """Return the rows of a table that a detector can go on training on, its columns matched by name."""
    reader = Reader(detector, roles, fill_missing)
    kept: dict[str, list[Rows]] = {}
    for batch in reader.batches(tables_in(path, reader)):
        for row, problem in sorted(batch.problems.items()):
            raise DataError(f"{batch.source}: data row {batch.numbers[row]}: {problem}; correct it or leave it out")
        is_used = np.ones(len(batch.rows), bool) if batch.labels is None else ~is_anomalous(batch.labels, typical)
        devices = np.full(len(batch.rows), THE_DEVICE) if batch.devices is None else batch.devices
        for name in np.unique(devices[is_used]).tolist():
            kept.setdefault(name, []).append(batch.rows[is_used & (devices == name)])
    if not kept:
        raise DataError(f"{path}: no typical row to train on")
    slices = {name: np.concatenate(kept[name]) for name in in_order(list(kept))}
    return Gathered(slices, detector.features, None, tuple(reader.notes))


def is_anomalous(labels: NDArray[np.str_], typical: Sequence[str] = ()) -> NDArray[np.bool_]:
    """Return which rows are anomalous by their class; without typical classes, those are known by their names.

    >>> is_anomalous(np.array(["0", "normal", "leak"])).tolist()
    [False, False, True]
    """
    classes, which = np.unique(labels, return_inverse=True)
    names = classes.tolist()
    if unknown := [name for name in typical if name not in names]:
        raise SpecError(f"no row has the class {unknown[0]!r}; the classes are {', '.join(names[:20])}")
    flags = [name not in typical if typical else not is_typical_by_name(name) for name in names]
    if all(flags):
        raise SpecError(f"the classes are {', '.join(names[:20])}; say which are typical, as in --typical {names[0]}")
    anomalous: NDArray[np.bool_] = np.array(flags)[which]
    return anomalous


def _parts(raw: RawData, choice: Choice, spec: RunSpec) -> Parts:
    """Return training and test rows: nothing is tested where nothing is anomalous; the detector holds back itself."""
    has_anomalies = bool(np.isin(raw.labels, np.array(choice[1], dtype=str)).any())
    asked = msgspec.structs.replace(spec.dataset, validation_share=0.0)
    if not has_anomalies and raw.is_test is None:
        asked = msgspec.structs.replace(asked, test_share=0.0)
    return split(raw, choice, asked, spec.seed)


def _places(raw: RawData, train: Places, choice: Choice, spec: RunSpec, n_devices: int | None) -> dict[str, Places]:
    if n_devices is None and is_path(spec.data) and spec.dataset.partition in {None, "column"}:
        if raw.owners is None:
            return {THE_DEVICE: train}
        owners = raw.owners[train]
        return {name: train[owners == name] for name in in_order(np.unique(owners).tolist())}
    return {str(device): own for device, own in enumerate(share_out(raw, train, choice, spec))}


def _values(raw: RawData, slices: Sequence[Places], fill_missing: bool) -> tuple[Rows, tuple[str, ...]]:
    """Return all samples as flat rows; a missing value is filled as a fleet would, from moments, or refused."""
    values = raw.samples.reshape(raw.n_samples, -1).astype(np.float32)
    if raw.scale != 1.0:
        values *= np.float32(raw.scale)
    if raw.missing is None:
        return values, ()
    missing = raw.missing.reshape(values.shape)
    if not fill_missing:
        row, column = (int(place) for place in np.argwhere(missing)[0])
        name = raw.feature_names[column] if raw.feature_names else f"x{column}"
        raise DataError(
            f"{raw.name}: data row {row + 1}: {name!r} is missing ({int(missing.sum())} values are); "
            "fill them in, leave the rows out, or use --fill-missing"
        )
    means = merged(Moments.of(values[own], missing[own]) for own in slices if len(own)).means
    filled = np.where(missing, means.astype(np.float32), values)
    return filled, (f"{int(missing.sum())} missing values are taken as the mean of the typical training rows",)


def _constant(slices: Sequence[Rows], features: Features) -> list[str]:
    moments = merged(Moments.of(own) for own in slices if len(own))
    names = [
        name for name, low, high in zip(features.names, moments.lowest, moments.highest, strict=True) if low == high
    ]
    if not names or len(names) > features.n // 2:  # the edges of pictures are no news
        return []
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return [f"constant in all training rows, so that any other value is strange: {shown}"]
