"""From a data set or a table of one's own to what a detector trains on: rows by device, typical ones only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec
from tolfl.datasets.classes import is_typical_by_name
from tolfl.datasets.unscaled import unscaled
from tolfl.detect.features import Features, Rows
from tolfl.tables import Schema
from tolfl.tables.schema import word_column


@dataclass(frozen=True, eq=False)
class Gathered:
    """Typical rows of each device, and rows with known truth that nobody trains on, where the data have any."""

    slices: dict[str, Rows]
    features: Features
    schema: Schema | None = None
    test: tuple[Rows, NDArray[np.bool_]] | None = None
    notes: tuple[str, ...] = field(default=())


def gather(spec: RunSpec, n_devices: int | None = None, fill_missing: bool = False) -> Gathered:
    """Return the rows that a new detector trains on; the arguments are those of `unscaled`."""
    data, notes = unscaled(spec, n_devices, fill_missing)
    test = None if data.test is None or data.is_anomalous is None else (data.test, data.is_anomalous)
    slices = {name: data.slice_of(device) for device, name in enumerate(data.names)}
    features = Features.named(data.feature_names)
    schema = data.schema if data.schema is None else msgspec.structs.replace(data.schema, fill_missing=fill_missing)
    return Gathered(slices, features, schema, test, (*notes, *_constant(list(slices.values()), features)))


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


def _constant(slices: Sequence[Rows], features: Features) -> list[str]:
    low = np.fmin.reduce([np.fmin.reduce(own) for own in slices if len(own)])
    high = np.fmax.reduce([np.fmax.reduce(own) for own in slices if len(own)])
    names = [features.names[place] for place in np.flatnonzero(low == high) if not word_column(features.names[place])]
    if not names or len(names) > features.n // 2:  # the edges of pictures are no news
        return []
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return [f"constant in all training rows, so that any other value is anomalous: {shown}"]
