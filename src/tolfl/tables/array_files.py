"""Samples from NPY and NPZ files, with NumPy alone: a device that reads these needs no pyarrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError

#: Arrays of a NumPy file that are no samples, by the role that they have unless others are named.
_USUAL_ARRAYS = {"device": "device", "label": "y", "time": "time"}

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ArrayFile:
    """The samples of a file, one row each, and the arrays beside them, one value per row."""

    name: str
    samples: Array  #: `(n_rows, n_columns)`
    columns: tuple[str, ...]
    has_names: bool  #: False: columns are known by their place alone
    beside: dict[str, Array]

    @property
    def roles(self) -> dict[str, str]:
        """The arrays of device, label and time, by their usual names."""
        return {role: key for role, key in _USUAL_ARRAYS.items() if key in self.beside}


def read_arrays(stream: BinaryIO, name: str) -> ArrayFile:
    """Return the samples of an NPY file, or of an NPZ file: `X` and, if there, `names`, `device`, `y` and `time`."""
    try:
        loaded = np.load(stream, allow_pickle=False)
        packed = [] if isinstance(loaded, np.ndarray) else loaded.zip.namelist()
        arrays = {"X": loaded} if isinstance(loaded, np.ndarray) else {key: loaded[key] for key in loaded.files}
    except Exception as problem:  # a damaged header leads numpy to half a dozen kinds of errors
        if isinstance(problem, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        if any(word in str(problem) for word in ("allow_pickle", "Object arrays", "Python objects")):
            raise DataFileError(
                name, "it holds pickled objects, which are never read: they can run code; save arrays of numbers"
            ) from None
        raise DataFileError(name, "cannot be read as a NumPy file; check that it is whole") from None
    if other := next((one for one in packed if not one.endswith(".npy")), None):
        raise DataFileError(
            name, f"this is an archive or a workbook (with {other}); unpack it, or save the table as CSV"
        )
    samples = arrays.pop("X", None)
    if samples is None:
        raise DataFileError(name, f"there is no array 'X' for the samples; the arrays are {', '.join(sorted(arrays))}")
    if samples.dtype.kind not in "biuf":
        raise DataFileError(name, f"the samples are {samples.dtype}, not numbers; convert them")
    if samples.ndim < 2 or not samples.size:
        raise DataFileError(name, f"the samples have shape {samples.shape}; give one row per sample, and at least one")
    samples = samples.reshape(len(samples), -1)
    names = tuple(str(one) for one in arrays.pop("names", []))
    has_names = len(names) == samples.shape[1]
    names = names if has_names else tuple(f"x{place}" for place in range(samples.shape[1]))
    for key, array in arrays.items():
        if array.shape != (len(samples),):
            raise DataFileError(name, f"array {key!r} has shape {array.shape}; give one value per sample of X")
    beside = {key: _text_of(name, key, array) for key, array in arrays.items() if key not in names}
    return ArrayFile(name, samples, names, has_names, beside)


def _text_of(name: str, key: str, array: Array) -> Array:
    if array.dtype.kind not in "SUbiufM":
        raise DataFileError(name, f"array {key!r} is {array.dtype}; give names or numbers")
    if array.dtype.kind != "S":
        return array
    try:
        return np.char.decode(array, "utf-8")
    except UnicodeDecodeError:
        raise DataFileError(name, f"array {key!r} is {array.dtype}; give names or numbers") from None
