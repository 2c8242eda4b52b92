"""The built-in data set: nothing to download, the same for everybody with the same seed.

Every group ("region") of devices sees samples on a low-dimensional subspace of its own, with a little noise. Anomalies
have the groups' means and spread but leave the subspaces. A detector that has never seen a group takes its typical
samples for anomalies, so losing a region costs something, as it does in the paper's data.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import BlobsSpec
from tolfl.datasets.federated import FederatedDataset, Samples

_SUBSPACE_DIMENSIONS = 3
_SPREAD = 0.8  #: standard deviation along the subspace
_NOISE = 0.1  #: off the subspace, typical samples
_ANOMALY = 0.25  #: off the subspace, anomalous samples
_SHARE_OF_ANOMALIES = 0.5

_MAX_BYTES = 2**30  #: of all rows; what is more is drawn piece by piece, and never kept
_PIECE = 1000  #: devices whose rows are drawn at once

#: Streams beyond the device ids, for what belongs to no device.
_TEST_STREAM, _SHAPE_STREAM, _VALIDATION_STREAM = 2**31 - 1, 2**31 - 2, 2**31 - 3


def blobs(n_devices: int, seed: int, spec: BlobsSpec) -> FederatedDataset:
    """Return blobs for `n_devices` devices; contiguous devices share a group, as clusters do.

    >>> data = blobs(4, seed=0, spec=BlobsSpec(samples_per_device=10, n_features=6, n_groups=2, n_test=8))
    >>> data.pool.shape, data.test.shape, int(data.is_anomalous.sum())
    ((40, 6), (8, 6), 4)
    """
    n_groups = min(spec.n_groups, n_devices)
    shape = rng_for(seed, Purpose.DATA, _SHAPE_STREAM)
    means = shape.uniform(0.0, 1.0, (n_groups, spec.n_features)).astype(np.float32)
    n_directions = min(_SUBSPACE_DIMENSIONS, spec.n_features)
    bases = [_orthonormal(shape.standard_normal((spec.n_features, n_directions))) for _ in range(n_groups)]
    n_anomalous = round(spec.n_test * _SHARE_OF_ANOMALIES)
    is_anomalous = np.arange(spec.n_test) >= spec.n_test - n_anomalous
    noises = np.where(is_anomalous, _ANOMALY, _NOISE).tolist()
    test = _of_all_groups(rng_for(seed, Purpose.DATA, _TEST_STREAM), noises, means, bases)
    validation = None
    if spec.n_validation:
        rng = rng_for(seed, Purpose.DATA, _VALIDATION_STREAM)
        validation = _of_all_groups(rng, spec.n_validation * [_NOISE], means, bases)
    if 4 * n_devices * spec.samples_per_device * spec.n_features > _MAX_BYTES:
        regions = _Regions(n_devices, seed, spec.samples_per_device, means, tuple(bases))
        bounds = tuple(range(0, n_devices * spec.samples_per_device + 1, spec.samples_per_device))
        return PiecewiseBlobs("blobs", regions.piece(0), bounds, test, is_anomalous, validation, regions=regions)
    pool = np.empty((n_devices * spec.samples_per_device, spec.n_features), dtype=np.float32)
    for device in range(n_devices):
        group = device * n_groups // n_devices
        rows = pool[device * spec.samples_per_device : (device + 1) * spec.samples_per_device]
        _draw(rng_for(seed, Purpose.DATA, device), means[group], bases[group], _NOISE, rows)
    bounds = tuple(range(0, len(pool) + 1, spec.samples_per_device))
    return FederatedDataset("blobs", pool, bounds, test, is_anomalous, validation)


@dataclass(frozen=True, eq=False)
class _Regions:
    """What rows of many devices are drawn from, piece by piece."""

    n_devices: int
    seed: int
    samples_per_device: int
    means: Samples
    bases: tuple[Samples, ...]

    def piece(self, index: int) -> Samples:
        """Return the rows of `_PIECE` devices; one generator for all of them: one for each would take longer."""
        first = index * _PIECE
        devices = np.arange(first, min(first + _PIECE, self.n_devices))
        rows = np.empty((len(devices) * self.samples_per_device, self.means.shape[1]), np.float32)
        groups = np.repeat(devices * len(self.means) // self.n_devices, self.samples_per_device)
        rng = rng_for(self.seed, Purpose.DATA, index, round_index=1)
        for group in np.unique(groups):
            is_here = np.flatnonzero(groups == group)
            place = slice(is_here[0], is_here[-1] + 1)  # contiguous devices share a group
            _draw(rng, self.means[group], self.bases[group], _NOISE, rows[place])
        return rows


@dataclass(frozen=True, eq=False)
class PiecewiseBlobs(FederatedDataset):
    """Blobs for more devices than fit into memory: rows are drawn anew whenever they are asked for.

    `pool` has the rows of the first piece alone, which baselines and the training loss are computed from.
    """

    regions: _Regions | None = None
    #: the piece at hand, and the CPU seconds spent on drawing
    _at_hand: dict[str, Any] = field(default_factory=lambda: {"index": -1, "rows": None, "seconds": 0.0})

    @property
    def drawing_s(self) -> float:
        """How many seconds of the CPU went into drawing rows."""
        return float(self._at_hand["seconds"])

    def slice_of(self, device: int) -> Samples:
        """Return the training samples of a device; devices in order cost least."""
        assert self.regions is not None
        index, place = divmod(device, _PIECE)
        if self._at_hand["index"] != index:
            started = time.process_time()
            self._at_hand.update(index=index, rows=self.regions.piece(index))
            self._at_hand["seconds"] += time.process_time() - started
        n = self.regions.samples_per_device
        rows: Samples = self._at_hand["rows"][place * n : (place + 1) * n]
        return rows


def _of_all_groups(
    rng: np.random.Generator, noises: Sequence[float], means: Samples, bases: Sequence[Samples]
) -> Samples:
    """Return a row for each noise, of one group after the other."""
    rows = np.empty((len(noises), means.shape[1]), dtype=np.float32)
    for row, noise in enumerate(noises):
        group = row % len(means)
        _draw(rng, means[group], bases[group], noise, rows[row : row + 1])
    return rows


def _draw(rng: np.random.Generator, mean: Samples, basis: Samples, noise: float, out: Samples) -> None:
    """Fill rows in place: 10,000 devices must not need a second copy of their data."""
    rng.standard_normal(out=out, dtype=np.float32)
    out *= np.float32(noise)
    along = rng.standard_normal((len(out), basis.shape[1]), dtype=np.float32) * np.float32(_SPREAD)
    out += along @ basis.T
    out += mean


def _orthonormal(directions: NDArray[np.float64]) -> Samples:
    return np.linalg.qr(directions)[0].astype(np.float32)
