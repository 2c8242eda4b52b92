"""CIFAR-10 and CIFAR-100, in their publisher's binary version.

A record: one label byte (CIFAR-100: two, coarse and fine), then 1,024 red, 1,024 green and 1,024 blue bytes, row by
row. A file has no header: its size says how many records there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError, SpecError
from tolfl.datasets.loaders.files import read_bytes
from tolfl.datasets.loaders.places import file_in
from tolfl.datasets.raw import RawData

Bytes = NDArray[np.uint8]

_N_PIXELS = 1024
#: Pictures turned to grey at a time: the sums need four bytes per pixel.
_BLOCK = 2048


@dataclass(frozen=True)
class _CifarFiles:
    train: tuple[str, ...]
    test: str
    n_classes: tuple[int, ...]  #: per label byte


_VERSIONS = {
    "cifar-10": _CifarFiles(tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin", (10,)),
    "cifar-100": _CifarFiles(("train.bin",), "test.bin", (20, 100)),
}


def read_cifar(folder: Path, name: str, colour: bool = False, fine: bool = False) -> RawData:
    """Return the pictures of CIFAR-10 or CIFAR-100, flat, as bytes: 1,024 grey values, or 3,072 red, green, blue.

    Classes are numbers by name: "0" to "9", for CIFAR-100 the 20 coarse ones or (`fine`) all 100.
    """
    version = _VERSIONS[name]
    if fine and len(version.n_classes) == 1:
        raise SpecError(f"{name} has no fine classes; leave out fine, or take cifar-100")
    paths = [file_in(folder, file) for file in (*version.train, version.test)]
    parts = [read_records(path, version.n_classes) for path in paths]
    n_test = len(parts[-1][0])
    labels = np.concatenate([part[0][:, int(fine)] for part in parts])
    names = np.array([str(number) for number in range(version.n_classes[int(fine)])])
    return RawData(
        name=name,
        samples=np.concatenate([pixels if colour else to_grey(pixels) for _, pixels in parts]),
        labels=names[labels],
        is_test=np.arange(len(labels)) >= len(labels) - n_test,
        scale=1 / 255,
    )


def read_records(path: Path, n_classes: tuple[int, ...]) -> tuple[Bytes, Bytes]:
    """Return labels, shape `(n_records, n_label_bytes)`, and pixels, shape `(n_records, 3072)`."""
    data = np.frombuffer(read_bytes(path), np.uint8)
    n_labels = len(n_classes)
    size = n_labels + 3 * _N_PIXELS
    if len(data) % size:
        raise DataFileError(
            path, f"{len(data)} bytes are not a whole number of records of {size} bytes; delete it and get it again"
        )
    records = data.reshape(-1, size)
    labels, pixels = records[:, :n_labels], records[:, n_labels:]
    is_wrong = labels >= np.array(n_classes)
    if is_wrong.any():
        row, column = np.argwhere(is_wrong)[0]
        raise DataFileError(
            path,
            f"record {row + 1} has label {labels[row, column]}, the classes are 0 to {n_classes[column] - 1}; "
            "is it the binary version of this data set?",
        )
    return labels, pixels


def to_grey(pixels: Bytes) -> Bytes:
    """Return the luma of ITU-R 601, 0.299 R + 0.587 G + 0.114 B, rounded as Pillow's `convert("L")` does.

    >>> to_grey(np.repeat(np.array([[255, 0, 0]], np.uint8), 1024, axis=1))[0, 0]
    np.uint8(76)
    """
    grey = np.empty((len(pixels), _N_PIXELS), np.uint8)
    for first in range(0, len(pixels), _BLOCK):
        planes = pixels[first : first + _BLOCK].reshape(-1, 3, _N_PIXELS).astype(np.uint32)
        # The weights times 2^16; they add up to 2^16, so white stays white.
        luma = 19595 * planes[:, 0] + 38470 * planes[:, 1] + 7471 * planes[:, 2] + 2**15
        grey[first : first + _BLOCK] = luma >> 16
    return grey
