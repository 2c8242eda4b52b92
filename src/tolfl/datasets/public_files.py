"""Public sets in their publishers' formats: MNIST, Fashion-MNIST (IDX), CIFAR-10, CIFAR-100 (binary version), WSN-DS.

An IDX file: two zero bytes, the type (8 is unsigned byte), the number of dimensions, each dimension as a big-endian
32-bit number, then the values. A record of CIFAR: one label byte (CIFAR-100: two, coarse and fine), then 1,024 red,
1,024 green and 1,024 blue bytes, row by row; the file has no header, its size says how many records there are.

WSN-DS: a simulated wireless sensor network (LEACH in NS-2) under four kinds of attacks, as CSV. Almomani, Al-Kasasbeh,
Al-Akhras: WSN-DS: A Dataset for Intrusion Detection Systems in Wireless Sensor Networks, Journal of Sensors 2016,
doi:10.1155/2016/4731953.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError, SpecError
from tolfl.datasets.federated import RawData
from tolfl.datasets.public_sets import PUBLIC_SETS, file_in
from tolfl.tables import Roles
from tolfl.tables.block_reader import unreadable


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Class names by data set; the place in the tuple is the class. CIFAR-100: the coarse ones.
CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "mnist": tuple(str(number) for number in range(10)),
    "fashion-mnist": (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    "cifar-10": _words("airplane automobile bird cat deer dog frog horse ship truck"),
    "cifar-100": _words(
        """aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
        household_furniture insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes
        large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles small_mammals trees
        vehicles_1 vehicles_2"""
    ),
}

_GZIP = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """Return what is in a file, unpacked."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise unreadable(path, problem) from None
    if not data:
        raise DataFileError(path, "the file is empty; get it again")
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        raise DataFileError(path, "the gzip file is damaged or cut short; delete it and get it again") from None


# -- IDX --------------------------------------------------------------------------------------------------------------

_UNSIGNED_BYTE = 8
_N_CLASSES = 10
#: How the publishers' two parts are called.
_IDX_PARTS = ("train", "t10k")


def read_idx_pictures(folder: Path, name: str) -> RawData:
    """Return the pictures of a folder with four IDX files, flat, as bytes; classes are "0" to "9"."""
    parts = [_read_part(folder, part) for part in _IDX_PARTS]
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


# -- CIFAR ------------------------------------------------------------------------------------------------------------

Bytes = NDArray[np.uint8]

_N_PIXELS = 1024
#: Pictures turned to grey at a time: the sums need four bytes per pixel.
_BLOCK = 2048


#: How many classes each label byte of a record has.
_CIFAR_CLASSES = {"cifar-10": (10,), "cifar-100": (20, 100)}


def read_cifar(folder: Path, name: str, colour: bool = False, fine: bool = False) -> RawData:
    """Return the pictures of CIFAR-10 or CIFAR-100, flat, as bytes: 1,024 grey values, or 3,072 red, green, blue.

    Classes are numbers by name: "0" to "9", for CIFAR-100 the 20 coarse ones or (`fine`) all 100.
    """
    n_classes = _CIFAR_CLASSES[name]
    if fine and len(n_classes) == 1:
        raise SpecError(f"{name} has no fine classes; leave out fine, or take cifar-100")
    parts = [read_records(file_in(folder, file), n_classes) for file in PUBLIC_SETS[name].files]  # the last is to test
    n_test = len(parts[-1][0])
    labels = np.concatenate([part[0][:, int(fine)] for part in parts])
    names = np.array([str(number) for number in range(n_classes[int(fine)])])
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


# -- WSN-DS -----------------------------------------------------------------------------------------------------------

#: `id` is the round and the node, `who_CH` the id of its cluster head: neither is anything a node measured.
_NOT_MEASURED = ("id", "who_ch", "time", "attack_type")
_NODES_PER_ROUND = 1000


def read_wsn_ds(path: Path) -> RawData:
    """Return WSN-DS from its CSV file or the folder that it is in: one owner per node, class "Normal" is typical."""
    import pyarrow as pa  # noqa: PLC0415  (an extra)

    from tolfl.tables import Block, blocks, settle  # noqa: PLC0415  (as above)
    from tolfl.tables.arrow_values import numbers, plain  # noqa: PLC0415  (as above)

    if path.is_dir():
        path = file_in(path, PUBLIC_SETS["wsn-ds"].files[0])
    read = [block.table for block in blocks(path)]
    # Copies differ in blanks: " id", "who CH" and "who_CH", "Attack type" and "Attack_type".
    table = pa.concat_tables(read).rename_columns([re.sub(r"\s+", "_", name) for name in read[0].column_names])
    spelled = {name.lower(): name for name in table.column_names}
    for needed in _NOT_MEASURED:
        if needed not in spelled:
            raise DataFileError(path, f"there is no column {needed!r}, so this is not WSN-DS; get it again")
    ids, is_bad = numbers(plain(table.column(spelled["id"])))
    if is_bad.any() or not np.isfinite(ids).all():
        raise DataFileError(path, "column 'id' is not a whole number in every row; get the file again")
    table = table.drop_columns([spelled["id"], spelled["who_ch"]])
    roles = Roles(label=spelled["attack_type"], time=spelled["time"])
    measured = [name for name in table.column_names if name not in roles.columns]
    block = Block(table, source=str(path))
    rows = settle([block], roles, columns=measured).rows(block)
    if rows.errors:
        raise block.error(min(rows.errors), rows.errors[min(rows.errors)])
    assert rows.labels is not None
    nodes = (ids % _NODES_PER_ROUND).astype(np.int64).astype(str)
    return RawData("wsn-ds", rows.values, rows.labels, owners=nodes, times=rows.times, feature_names=tuple(measured))
