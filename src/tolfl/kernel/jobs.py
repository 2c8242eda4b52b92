"""Input and output of training: one job and one update per device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError
from tolfl.core.seeding import Purpose, stream_keys
from tolfl.core.spec import Optimizer

OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)

Floats: TypeAlias = NDArray[np.floating]
"""An array of float32 or float64."""


@dataclass(frozen=True, slots=True)
class TrainJob:
    """One device's training in one round.

    Many jobs share one `pool`, so that a device is two numbers and no copy of its samples.
    """

    seed: int
    device: int
    round_index: int
    start: Floats
    """The parameters to start from, flat: shape `(n_params,)`. Its dtype is the dtype of the training."""
    pool: Floats
    """Samples of many devices, shape `(n_rows, *sample_shape)`."""
    first: int
    last: int
    """This device's samples are `pool[first:last]`."""

    @classmethod
    def of_rows(cls, seed: int, device: int, round_index: int, start: Floats, rows: Floats) -> TrainJob:
        """Return the training on a device's rows; rows of one larger array share it, so that a group reads it once."""
        pool, first = _pool_of(rows)
        return cls(seed, device, round_index, start, pool, first, first + len(rows))

    def __post_init__(self) -> None:
        """Reject a job that has nothing to train on or nothing to start from."""
        if not 0 <= self.first < self.last <= len(self.pool):
            raise DataError(
                f"device {self.device} has rows {self.first} to {self.last} of {len(self.pool)}; "
                "leave devices without samples out of the training"
            )
        if self.start.ndim != 1 or self.start.dtype.char not in "fd":
            raise DataError(
                f"device {self.device} starts from {self.start.dtype} of shape {self.start.shape}; "
                "give a flat vector of float32 or float64"
            )

    @property
    def n_samples(self) -> int:
        """Return how many samples the device trains on."""
        return self.last - self.first


def _pool_of(rows: Floats) -> tuple[Floats, int]:
    """Return the array that rows are a run of, and where in it they begin; the rows themselves, if they are none."""
    pool = rows.base
    is_run = isinstance(pool, np.ndarray) and (pool.dtype, pool.strides, pool.shape[1:]) == (
        rows.dtype,
        rows.strides,
        rows.shape[1:],
    )
    if pool is None or not is_run or not rows.flags.c_contiguous or not rows.strides or not rows.strides[0]:
        return rows, 0
    offset = rows.__array_interface__["data"][0] - pool.__array_interface__["data"][0]
    first, within = divmod(offset, rows.strides[0])
    return (rows, 0) if within else (pool, first)  # rows that begin in the middle of one are no run of these


def joined(slices: Sequence[Floats]) -> Floats:
    """Return rows one after the other: a view where they lie so already, for data that would not fit twice.

    >>> pool = np.zeros((6, 1))
    >>> joined([pool[1:3], pool[3:5]]).base is pool
    True
    """
    places = [_pool_of(rows) for rows in slices]
    pool, first = places[0]
    ends = [start + len(rows) for (_, start), rows in zip(places, slices, strict=True)]
    follow = all(own is pool and start == end for (own, start), end in zip(places[1:], ends, strict=False))
    return pool[first : ends[-1]] if follow else np.concatenate(list(slices))


@dataclass(frozen=True, slots=True)
class Update:
    """What one device's training did to the model."""

    delta: Floats
    """Start minus trained (the pseudo-gradient times the step size): flat, in the dtype of the start."""
    loss: float
    """Mean loss over the samples as they were visited in the last local epoch, dropout on."""
    n_samples: int


def check_jobs(jobs: Sequence[TrainJob], n_params: int, sample_shape: tuple[int, ...] | None) -> None:
    """Raise `DataError` where a job does not fit the model; `sample_shape=None` accepts any shape."""
    for job in jobs:
        if job.start.size != n_params:
            raise DataError(f"device {job.device} starts from {job.start.size} parameters; the model has {n_params}")
        if sample_shape is not None and job.pool.shape[1:] != sample_shape:
            raise DataError(
                f"samples of device {job.device} have shape {job.pool.shape[1:]}; the model takes {sample_shape}"
            )


WORDS_PER_STEP = 2**32
"""Epoch (or step) i of a stream starts at word i * 2**32, so that no device's draws depend on another's size."""


def keys_of(jobs: Sequence[TrainJob]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the keys of each job's streams: of the order of its rows, and of dropout."""
    numbers = np.array([(job.seed, job.device, job.round_index) for job in jobs], np.uint64).reshape(-1, 3).T
    seeds, devices, rounds = numbers
    return (
        stream_keys(seeds, Purpose.BATCH_ORDER, devices, rounds),
        stream_keys(seeds, Purpose.DROPOUT, devices, rounds),
    )
