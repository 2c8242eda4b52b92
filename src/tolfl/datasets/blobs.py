"""The built-in data set: nothing to download, the same for everybody with the same seed.

Every group ("region") of devices sees samples on a low-dimensional subspace of its own, with a little noise. Anomalies
have the groups' means and spread but leave the subspaces. A detector that has never seen a group takes its typical
samples for anomalies, so losing a region costs something, as it does in the paper's data.
"""

from __future__ import annotations

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
    pool = np.empty((n_devices * spec.samples_per_device, spec.n_features), dtype=np.float32)
    for device in range(n_devices):
        group = device * n_groups // n_devices
        rows = pool[device * spec.samples_per_device : (device + 1) * spec.samples_per_device]
        _draw(rng_for(seed, Purpose.DATA, device), means[group], bases[group], _NOISE, rows)
    bounds = tuple(range(0, len(pool) + 1, spec.samples_per_device))
    test, is_anomalous = _test_set(seed, spec.n_test, means, bases)
    return FederatedDataset("blobs", pool, bounds, test, is_anomalous, _validation_set(seed, spec, means, bases))


def _validation_set(seed: int, spec: BlobsSpec, means: Samples, bases: list[Samples]) -> Samples | None:
    if not spec.n_validation:
        return None
    rng = rng_for(seed, Purpose.DATA, _VALIDATION_STREAM)
    samples = np.empty((spec.n_validation, spec.n_features), dtype=np.float32)
    for row in range(spec.n_validation):
        group = row % len(means)
        _draw(rng, means[group], bases[group], _NOISE, samples[row : row + 1])
    return samples


def _test_set(seed: int, n_test: int, means: Samples, bases: list[Samples]) -> tuple[Samples, NDArray[np.bool_]]:
    rng = rng_for(seed, Purpose.DATA, _TEST_STREAM)
    n_anomalous = round(n_test * _SHARE_OF_ANOMALIES)
    test = np.empty((n_test, means.shape[1]), dtype=np.float32)
    for row in range(n_test):
        group = row % len(means)
        noise = _ANOMALY if row >= n_test - n_anomalous else _NOISE
        _draw(rng, means[group], bases[group], noise, test[row : row + 1])
    return test, np.arange(n_test) >= n_test - n_anomalous


def _draw(rng: np.random.Generator, mean: Samples, basis: Samples, noise: float, out: Samples) -> None:
    """Fill rows in place: 10,000 devices must not need a second copy of their data."""
    rng.standard_normal(out=out, dtype=np.float32)
    out *= np.float32(noise)
    along = rng.standard_normal((len(out), basis.shape[1]), dtype=np.float32) * np.float32(_SPREAD)
    out += along @ basis.T
    out += mean


def _orthonormal(directions: NDArray[np.float64]) -> Samples:
    return np.linalg.qr(directions)[0].astype(np.float32)
