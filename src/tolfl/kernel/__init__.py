"""Training and scoring of dense autoencoders, and a detector's statistics: the same bits on every processor.

`tolfl_kernel.c` orders every sum by itself, whatever the compiler and the width of the vectors. `building` compiles it,
`compiled` calls it; `fallback` is the same in NumPy. `TrainJob` goes in, `Update` comes out. `cell_statistics`: both.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import TolFLError
from tolfl.core.spec import TrainSettings
from tolfl.kernel.building import HERE, BuildError, built_when_used, library_name
from tolfl.kernel.cell_statistics import Statistics
from tolfl.kernel.compiled import CompiledKernel
from tolfl.kernel.dense_network import Layer, Network
from tolfl.kernel.fallback import NumpyKernel
from tolfl.kernel.jobs import Floats, TrainJob, Update

__all__ = [
    "ChosenKernel",
    "Kernel",
    "KernelError",
    "Layer",
    "Network",
    "Statistics",
    "TrainJob",
    "Update",
    "chosen_kernel",
    "kernel",
]

_LOG = logging.getLogger("tolfl")
#: Of the parameters after a small training: what a compiler got wrong is not used.
_KNOWN_DIGEST = "38735fc121aef121"


class Kernel(Protocol):
    """What the compiled kernel and NumPy both do, to the same bits."""

    @property
    def name(self) -> str:
        """What it is."""
        ...

    @property
    def statistics(self) -> Statistics:
        """Medians, spreads, cells, scatter and distances."""
        ...

    def train(
        self, network: Network, settings: TrainSettings, jobs: Sequence[TrainJob]
    ) -> tuple[Floats, NDArray[np.float64]]:
        """Return each job's delta, shape `(n_jobs, n_params)`, and its loss: not finite where it diverged."""
        ...

    def add(
        self, network: Network, settings: TrainSettings, jobs: Sequence[TrainJob], weights: Floats, total: Floats
    ) -> NDArray[np.float64]:
        """Add each job's weighted delta to `total`, in place and in order; return the losses."""
        ...

    def score(self, network: Network, params: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """Return each row's squared error and the outputs `(n_rows, n_outputs)`; dropout is off."""
        ...


@dataclass(frozen=True)
class ChosenKernel:
    """The kernel in use and, where it is not the compiled one, the reason."""

    kernel: Kernel
    problem: str = ""


class KernelError(TolFLError, RuntimeError):
    """The compiled kernel is required, and there is none."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"TOLFL_KERNEL_REQUIRED is set and there is no compiled kernel: {problem}")
        self.problem = problem


@lru_cache(maxsize=1)
def chosen_kernel() -> ChosenKernel:
    """Return the library that was installed, one that is compiled now, or the kernel in NumPy and why."""
    problems = []
    for find in (_packaged, _cached):
        try:
            if (found := find()) is not None:
                return ChosenKernel(found)
        except BuildError as error:
            problems.append(str(error))
    problem = "; ".join(problems)
    if os.environ.get("TOLFL_KERNEL_REQUIRED", "") not in {"", "0"}:
        raise KernelError(problem)
    return ChosenKernel(NumpyKernel(), problem)


def _packaged() -> Kernel | None:
    """Return the library that was installed, if there is one."""
    path = HERE / library_name()
    return _checked(path) if path.is_file() else None


def _cached() -> Kernel:
    """Return the library in the user's cache; one that is of no use there is compiled anew at the next start."""
    path = built_when_used()
    try:
        return _checked(path)
    except BuildError:
        with suppress(OSError):
            path.unlink()
        raise


def _checked(path: Path) -> Kernel:
    found = CompiledKernel(path)
    check_kernel(found)
    return found


@lru_cache(maxsize=1)
def kernel() -> Kernel:
    """Return the kernel in use; the slow one says why it is."""
    chosen = chosen_kernel()
    if chosen.problem:
        _LOG.warning("tolfl: NumPy computes, right but slow: %s", chosen.problem)
    return chosen.kernel


def check_kernel(found: Kernel) -> None:
    """Raise `BuildError` unless a small training gives the known bits."""
    if digest_of_small_training(found) != _KNOWN_DIGEST:
        raise BuildError("the compiled kernel computes wrong numbers; set CC to another compiler")


def digest_of_small_training(found: Kernel) -> str:
    """Return a name of what some steps of every optimiser lead to, from numbers that are exact everywhere."""
    network = Network.autoencoder(21, [18], 5, dropout=0.25, has_code_relu=False)
    rows = ((np.arange(11 * 21) * 37 % 101).astype(np.float32) / 128).reshape(11, 21)
    start = ((np.arange(network.n_params) * 53 % 211 - 105).astype(np.float32)) / 512
    digest = hashlib.sha256()
    for optimizer in ("sgd", "momentum", "adam"):
        settings = TrainSettings(lr=2.0**-8, epochs=2, batch_size=4, optimizer=optimizer)
        deltas, losses = found.train(network, settings, [TrainJob(1, 2, 3, start, rows, 0, 11)])
        errors, outputs = found.score(network, start - deltas[0], rows)
        for array in (deltas, losses, errors, outputs):
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    for statistic in _small_statistics(found.statistics, rows - np.float32(0.5)):
        digest.update(statistic.astype(statistic.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:16]


def _small_statistics(found: Statistics, rows: Floats) -> list[NDArray[np.generic]]:
    centres = rows[:3].astype(np.float64)
    cells, sums, squares = found.sums_by_cell(rows, centres, has_squares=True)
    assert squares is not None
    turned = found.product(rows.astype(np.float64), rows.T.astype(np.float64))
    return [
        found.spread(rows, rows[4].astype(np.float64), np.zeros(rows.shape[1])),
        *(cells, sums, squares, found.scatter(rows, centres, cells), turned),
        found.least_distances(turned, turned[:3] + 0.3, np.arange(3.0)),
        found.counts(rows.view(np.uint32), np.full(rows.shape[1], 0x3E, np.uint32), 16),
    ]
