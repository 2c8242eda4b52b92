"""NumPy files: samples in the array `X`, and beside it who, what and when. Nothing in them is ever unpickled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tolfl.datasets.loaders.columns import Column, names, seconds
from tolfl.datasets.loaders.files import unreadable
from tolfl.datasets.loaders.problems import DataFileError
from tolfl.datasets.loaders.rows import Rows
from tolfl.datasets.raw import RawData

#: The class of all rows where nothing says otherwise.
TYPICAL = "typical"


def read_arrays(path: Path, device_array: str = "", label_array: str = "", time_array: str = "") -> RawData:
    """Return the samples of an NPY file, or of an NPZ file with `X` and, if there, `device`, `y` and `time`."""
    arrays = _load(path)
    if "X" not in arrays:
        raise DataFileError(path, f"there is no array 'X' for the samples; the arrays are {', '.join(sorted(arrays))}")
    rows = Rows.of(path)
    samples, missing = _samples(rows, arrays["X"])
    device = _pick(path, arrays, device_array, "device")
    label = _pick(path, arrays, label_array, "y")
    time = _pick(path, arrays, time_array, "time")
    for name, array in ((device, arrays.get(device)), (label, arrays.get(label)), (time, arrays.get(time))):
        if array is not None and array.shape != (len(samples),):
            raise DataFileError(path, f"array {name!r} has shape {array.shape}; give one value per sample of X")
    return RawData(
        name=path.name,
        samples=samples,
        labels=names(rows, label, _column(path, label, arrays[label])) if label else np.full(len(samples), TYPICAL),
        owners=names(rows, device, _column(path, device, arrays[device])) if device else None,
        times=seconds(rows, time, _column(path, time, arrays[time])) if time else None,
        missing=missing,
    )


def join_arrays(name: str, files: Sequence[Path], parts: Sequence[RawData], owners: Sequence[str] | None) -> RawData:
    """Return the samples of one or several files as one; `owners` has the device of each file."""
    for file, part in zip(files, parts, strict=True):
        if part.samples.shape[1:] != parts[0].samples.shape[1:]:
            raise DataFileError(
                file,
                f"samples of shape {part.samples.shape[1:]}, those of {files[0].name} have "
                f"{parts[0].samples.shape[1:]}; all devices need the same features",
            )
        if (part.times is None) != (parts[0].times is None) or (part.owners is None) != (parts[0].owners is None):
            raise DataFileError(file, f"it has other arrays than {files[0].name}; give all files the same")
    own = [part.owners for part in parts if part.owners is not None]
    times = [part.times for part in parts if part.times is not None]
    if not own and owners is not None:
        own = [np.full(part.n_samples, owner) for part, owner in zip(parts, owners, strict=True)]
    missing = [np.zeros(part.samples.shape, np.bool_) if part.missing is None else part.missing for part in parts]
    return RawData(
        name=name,
        samples=np.concatenate([part.samples for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        owners=np.concatenate(own) if own else None,
        times=np.concatenate(times) if times else None,
        missing=np.concatenate(missing) if any(part.missing is not None for part in parts) else None,
    )


def _load(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"X": loaded}
            with loaded:
                return {name: loaded[name] for name in loaded.files}
    except (FileNotFoundError, PermissionError) as problem:
        raise unreadable(path, problem) from None
    except Exception as problem:  # a damaged header leads numpy to half a dozen kinds of errors
        text = str(problem)
        if "allow_pickle" in text or "Object arrays" in text or "Python objects" in text:
            raise DataFileError(
                path, "it holds pickled objects, which are never read, they can run code; save arrays of numbers"
            ) from None
        raise DataFileError(path, f"cannot be read as {path.suffix[1:].upper()}; check that it is whole") from None


def _samples(rows: Rows, array: NDArray[np.generic]) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
    path = rows.path
    if array.dtype.kind not in "biuf":
        raise DataFileError(path, f"the samples are {array.dtype}, not numbers; convert them")
    if array.ndim < 2 or not array.size:
        raise DataFileError(path, f"the samples have shape {array.shape}; give one row per sample, and at least one")
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which has a sentence of its own
        samples = array.astype(np.float32)
    is_infinite = np.isinf(samples)
    if is_infinite.any():
        row = int(np.argwhere(is_infinite)[0][0])
        raise rows.error(row, "a value is infinite or too large for single precision; correct it or write NaN")
    missing = np.isnan(samples)
    if not missing.any():
        return samples, None
    return np.where(missing, np.float32(0), samples), missing


def _pick(path: Path, arrays: dict[str, NDArray[np.generic]], asked: str, usual: str) -> str:
    """Return the array that was asked for, else the usual one, else nothing."""
    if asked and asked not in arrays:
        raise DataFileError(path, f"there is no array {asked!r}; the arrays are {', '.join(sorted(arrays))}")
    return asked or (usual if usual in arrays else "")


def _column(path: Path, name: str, array: NDArray[np.generic]) -> Column:
    try:
        texts = np.char.decode(array.astype(np.bytes_), "utf-8") if array.dtype.kind == "S" else array
        return pa.chunked_array([pa.array(texts, from_pandas=True)])
    except (pa.ArrowException, UnicodeDecodeError, TypeError):
        raise DataFileError(path, f"array {name!r} is {array.dtype}; give names or numbers") from None
