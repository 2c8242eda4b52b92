"""The compiled kernel, called through ctypes, so that other threads can run at the same time."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_void_p
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tolfl.core.spec import TrainSettings
from tolfl.kernel.building import BuildError, source_hash
from tolfl.kernel.cell_statistics import CompiledStatistics
from tolfl.kernel.dense_network import Network
from tolfl.kernel.jobs import OPTIMIZERS, Floats, TrainJob, keys_of


class _Layer(ctypes.Structure):
    _fields_ = [
        ("n_in", c_int64),
        ("n_out", c_int64),
        ("gain", c_float),
        ("has_relu", c_int32),
        ("has_dropout", c_int32),
        ("is_residual", c_int32),
    ]


class _Settings(ctypes.Structure):
    _fields_ = [
        ("optimizer", c_int32),
        ("threshold", c_int32),
        ("n_epochs", c_int64),
        ("batch_size", c_int64),
        ("lr", c_double),
        ("momentum", c_double),
    ]


#: `TolflJob`, many of them in one array.
_JOB = np.dtype(
    [
        ("start", "u8"),
        ("rows", "u8"),
        ("n_rows", "i8"),
        ("order_key", "u8"),
        ("dropout_key", "u8"),
        ("weight", "f4"),
        ("unused", "i4"),
    ]
)


def _check_whole(path: Path) -> None:
    """Raise `OSError` for a library that ends too early: to load it would end the process."""
    with path.open("rb") as file:
        header = file.read(64)
        n_bytes = file.seek(0, os.SEEK_END)
    if len(header) < 64 or header[:5] != b"\x7fELF\x02":
        return  # whoever loads it says what is wrong with it
    order = "<" if header[5] == 1 else ">"
    (sections,), (size, number) = (
        struct.unpack_from(f"{order}Q", header, 40),
        struct.unpack_from(f"{order}HH", header, 58),
    )
    if n_bytes < sections + size * number:  # they are the last thing in the file
        raise OSError("it is torn")


class CompiledKernel:
    """The kernel in a shared library.

    Parameters
    ----------
    path
        The library; one that was made from another source is refused.
    variant
        The instruction set: empty for the best that the processor has, or `avx512`, `avx2`, `base`.
    """

    def __init__(self, path: Path, variant: str = "") -> None:
        try:
            _check_whole(path)
            library = ctypes.CDLL(str(path))
            library.tolfl_source.restype = library.tolfl_variant.restype = c_char_p
        except (OSError, AttributeError) as error:
            raise BuildError(f"{path} cannot be loaded ({error}); remove it") from error
        if library.tolfl_source() != source_hash().encode():
            raise BuildError(f"{path} was made from another source; remove it")
        library.tolfl_use.argtypes = [c_char_p]
        library.tolfl_train.argtypes = [
            POINTER(_Layer),
            c_int64,
            POINTER(_Settings),
            c_void_p,
            c_int64,
            c_void_p,
            c_void_p,
            c_void_p,
        ]
        library.tolfl_score.argtypes = [POINTER(_Layer), c_int64, c_void_p, c_void_p, c_int64, c_void_p, c_void_p]
        library.tolfl_train.restype = library.tolfl_score.restype = c_int
        if library.tolfl_use(variant.encode()):
            raise BuildError(f"this processor has no {variant}")
        self._library, self.path = library, path
        self.statistics = CompiledStatistics(library)

    @property
    def name(self) -> str:
        """What it is, and the instruction set that it uses."""
        return f"compiled ({self._library.tolfl_variant().decode()})"

    def train(
        self, network: Network, settings: TrainSettings, jobs: Sequence[TrainJob]
    ) -> tuple[Floats, NDArray[np.float64]]:
        """Return each job's delta, shape `(n_jobs, n_params)`, and its loss: not finite where it diverged."""
        deltas = np.empty((len(jobs), network.n_params), np.float32)
        return deltas, self._train(network, settings, jobs, None, deltas)

    def add(
        self, network: Network, settings: TrainSettings, jobs: Sequence[TrainJob], weights: Floats, total: Floats
    ) -> NDArray[np.float64]:
        """Add each job's weighted delta to `total`, in place and in order; return the losses.

        The bits are those of `total += weight * delta` with the deltas of `train`, whose memory is never touched.
        """
        return self._train(network, settings, jobs, weights, total)

    def _train(
        self,
        network: Network,
        settings: TrainSettings,
        jobs: Sequence[TrainJob],
        weights: Floats | None,
        out: Floats,
    ) -> NDArray[np.float64]:
        losses = np.empty(len(jobs), np.float64)
        table, alive = table_of(jobs)
        if weights is not None:
            table["weight"] = weights
        how = settings_of(network, settings)
        into = (None, out.ctypes.data) if weights is None else (out.ctypes.data, None)
        failed = self._library.tolfl_train(
            *layers_of(network), ctypes.byref(how), table.ctypes.data, len(jobs), *into, losses.ctypes.data
        )
        del alive
        if failed:
            raise MemoryError("training needs more memory than there is; use a smaller batch size")
        return losses

    def score(self, network: Network, params: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """Return each row's squared error and the outputs `(n_rows, n_outputs)`; dropout is off."""
        params = np.ascontiguousarray(params, np.float32)
        rows = np.ascontiguousarray(rows, np.float32)
        errors = np.empty(len(rows), np.float32)
        outputs = np.empty((len(rows), network.n_outputs), np.float32)
        if len(rows) and self._library.tolfl_score(
            *layers_of(network),
            params.ctypes.data,
            rows.ctypes.data,
            len(rows),
            errors.ctypes.data,
            outputs.ctypes.data,
        ):
            raise MemoryError("scoring needs more memory than there is")
        return errors, outputs


def layers_of(network: Network) -> tuple[ctypes.Array[_Layer], int]:
    """Return the layers as the kernel reads them, and how many there are."""
    last = len(network.layers) - 1
    layers = [
        _Layer(one.n_in, one.n_out, one.gain, one.has_relu, one.has_dropout, network.is_residual and place == last)
        for place, one in enumerate(network.layers)
    ]
    return (_Layer * len(layers))(*layers), len(layers)


def settings_of(network: Network, settings: TrainSettings) -> _Settings:
    """Return the settings as the kernel reads them."""
    return _Settings(
        OPTIMIZERS.index(settings.optimizer),
        network.threshold,
        settings.epochs,
        settings.batch_size,
        settings.lr,
        settings.momentum,
    )


def table_of(jobs: Sequence[TrainJob]) -> tuple[NDArray[np.void], list[Floats]]:
    """Return the jobs as the kernel reads them, and the arrays that must be kept until it has."""
    table = np.zeros(len(jobs), _JOB)
    table["order_key"], table["dropout_key"] = keys_of(jobs)
    known: dict[int, Floats] = {}
    addresses: dict[int, int] = {}

    def address_of(array: Floats) -> int:
        if id(array) not in known:
            known[id(array)] = np.ascontiguousarray(array, np.float32)
            addresses[id(array)] = known[id(array)].ctypes.data
        return addresses[id(array)]

    table["start"] = [address_of(job.start) for job in jobs]
    row_bytes = 4 * int(np.prod(jobs[0].pool.shape[1:])) if jobs else 0
    table["rows"] = [address_of(job.pool) + job.first * row_bytes for job in jobs]
    table["n_rows"] = [job.last - job.first for job in jobs]
    return table, list(known.values())
