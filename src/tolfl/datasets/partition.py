"""Who gets which samples. Slices depend on the number of devices, the seed and the groups, never on k."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.datasets.raw import in_order

Rows = NDArray[np.int64]

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
        for device, share in zip(owners, even(of_group, len(owners)), strict=True):
            slices[device].append(share)
    return [np.concatenate(shares) if shares else np.empty(0, np.int64) for shares in slices]


def iid(rows: Rows, n_devices: int, seed: int, sizes: Sequence[float] = ()) -> list[Rows]:
    """Return slices that are alike: shuffled, and equal (to one sample) or of given relative sizes."""
    shuffled = rng_for(seed, Purpose.PARTITION).permutation(rows)
    if not sizes:
        return even(shuffled, n_devices)
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


def even(rows: Rows, n_parts: int) -> list[Rows]:
    """Return parts whose sizes differ by one at most, the larger ones first."""
    return [np.asarray(part) for part in np.array_split(rows, n_parts)]
