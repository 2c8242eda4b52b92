"""MNIST and Fashion-MNIST, in the IDX format of both publishers.

An IDX file: two zero bytes, the type (8 is unsigned byte), the number of dimensions, each dimension as a big-endian
32-bit number, then the values.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError
from tolfl.datasets.loaders.files import read_bytes
from tolfl.datasets.loaders.places import file_in
from tolfl.datasets.raw import RawData

_UNSIGNED_BYTE = 8
_N_CLASSES = 10
#: How the publishers' two parts are called.
_PARTS = ("train", "t10k")


def read_idx_pictures(folder: Path, name: str) -> RawData:
    """Return the pictures of a folder with four IDX files, flat, as bytes; classes are "0" to "9"."""
    parts = [_read_part(folder, part) for part in _PARTS]
    (train, train_labels), (test, test_labels) = parts
    if train.shape[1:] != test.shape[1:]:
        raise DataFileError(
            folder, f"training pictures are {_size(train)}, test pictures {_size(test)}; the files are of two data sets"
        )
    names = np.array([str(number) for number in range(_N_CLASSES)])
    return RawData(
        name=name,
        samples=np.concatenate([pictures.reshape(len(pictures), -1) for pictures, _ in parts]),
        labels=names[np.concatenate([train_labels, test_labels])],
        is_test=np.arange(len(train) + len(test)) >= len(train),
        scale=1 / 255,
    )


def _read_part(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    images, numbers = file_in(folder, f"{part}-images-idx3-ubyte"), file_in(folder, f"{part}-labels-idx1-ubyte")
    pictures, labels = read_idx(images, 3), read_idx(numbers, 1)
    if len(pictures) != len(labels):
        raise DataFileError(
            numbers, f"{len(labels)} labels for the {len(pictures)} pictures of {images.name}; get both files again"
        )
    if not pictures.size:
        raise DataFileError(images, "there is no picture in it; get it again")
    if labels.max() >= _N_CLASSES:
        place = int(np.argmax(labels >= _N_CLASSES))
        raise DataFileError(numbers, f"label {place + 1} is {labels[place]}, the classes are 0 to 9; get it again")
    return pictures, labels


def read_idx(path: Path, n_dimensions: int) -> NDArray[np.uint8]:
    """Return the bytes of an IDX file (also gzip) with so many dimensions."""
    data = read_bytes(path)
    header = 4 + 4 * n_dimensions
    if len(data) < header or data[:2] != b"\0\0":
        raise DataFileError(path, "this is no IDX file, plain or gzip; get it again")
    if data[2] != _UNSIGNED_BYTE or data[3] != n_dimensions:
        raise DataFileError(
            path,
            f"an IDX file of type {data[2]} with {data[3]} dimensions, expected bytes (type {_UNSIGNED_BYTE}) with "
            f"{n_dimensions}; are pictures (3) and labels (1) mixed up?",
        )
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, header, 4))
    expected = math.prod(shape)
    if len(data) - header != expected:
        raise DataFileError(
            path, f"{len(data) - header} bytes of data, its header promises {expected}; delete it and get it again"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _size(pictures: NDArray[np.uint8]) -> str:
    return " x ".join(str(length) for length in pictures.shape[1:])
