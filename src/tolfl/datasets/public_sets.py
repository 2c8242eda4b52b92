"""Public data sets: their folders on this machine, their publishers' addresses and formats.

They are looked for in the folder one names, in `TOLFL_DATA`, in the user's cache and where Debian's packages put them.

MNIST, Fashion-MNIST: IDX files of two zero bytes, the type (8 is unsigned byte), the number of dimensions, each
dimension as a big-endian 32-bit number, then the values. CIFAR-10, CIFAR-100 (binary version): records of one label
byte (CIFAR-100: two, coarse and fine), then 1,024 red, 1,024 green and 1,024 blue bytes, row by row; the file has no
header, its size says how many records there are.

WSN-DS: a simulated wireless sensor network (LEACH in NS-2) under four kinds of attacks, as CSV. Almomani, Al-Kasasbeh,
Al-Akhras: WSN-DS: A Dataset for Intrusion Detection Systems in Wireless Sensor Networks, Journal of Sensors 2016,
doi:10.1155/2016/4731953.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError, MissingDataError, SpecError, UnknownNameError
from tolfl.datasets.federated import RawData
from tolfl.tables import Roles
from tolfl.tables.block_reader import unreadable

Bytes = NDArray[np.uint8]

_DEBIAN = Path("/usr/share/datasets")
_IDX_FILES = tuple(f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
_CIFAR = "https://www.cs.toronto.edu/~kriz/"


@dataclass(frozen=True)
class PublicSet:
    """The names of a data set's folder and files, as various programs write them."""

    folders: tuple[str, ...]
    """The publisher's own name first, then those of other programs."""
    files: tuple[str, ...]
    pickled_folder: str = ""
    """The folder of a version that cannot be read."""
    by_hand: str = ""
    """Where to get it, if no address leads to its files."""
    address: str = ""
    """Of the folder that its files are fetched from."""
    md5: Mapping[str, str] = field(default_factory=dict)
    """The files there, with their published sums, which find damage: that is what they are for here."""
    class_names: tuple[str, ...] = ()
    """What its publisher calls the classes 0, 1, ...; of CIFAR-100 the coarse ones."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(re.split(r",\s*", text))


#: Every public data set that can be read. MNIST: PyTorch's copy, as its publisher's own address asks for a password.
#: Sums: torchvision, the publishers' pages.
PUBLIC_SETS = {
    "mnist": PublicSet(
        ("mnist", "MNIST", "MNIST/raw"),
        _IDX_FILES,
        address="https://ossci-datasets.s3.amazonaws.com/mnist/",
        md5={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        class_names=tuple("0123456789"),
    ),
    "fashion-mnist": PublicSet(
        ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw"),
        _IDX_FILES,
        address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        md5={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        class_names=_names("T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"),
    ),
    "cifar-10": PublicSet(
        ("cifar-10-batches-bin", "cifar-10"),
        (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
        "cifar-10-batches-py",
        address=_CIFAR,
        md5={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        class_names=_names("airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck"),
    ),
    "cifar-100": PublicSet(
        ("cifar-100-binary", "cifar-100"),
        ("train.bin", "test.bin"),
        "cifar-100-python",
        address=_CIFAR,
        md5={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        class_names=_names(
            """aquatic_mammals, fish, flowers, food_containers, fruit_and_vegetables,
            household_electrical_devices, household_furniture, insects, large_carnivores,
            large_man-made_outdoor_things, large_natural_outdoor_scenes, large_omnivores_and_herbivores,
            medium_mammals, non-insect_invertebrates, people, reptiles, small_mammals, trees, vehicles_1,
            vehicles_2"""
        ),
    ),
    "wsn-ds": PublicSet(
        ("wsn-ds", "WSN-DS"), ("wsn_ds.csv",), by_hand="https://www.kaggle.com/datasets/bassamkasasbeh1/wsnds"
    ),
}


def public_set(name: str) -> PublicSet:
    """Return what is known of a data set."""
    if name not in PUBLIC_SETS:
        raise UnknownNameError("public data set", name, sorted(PUBLIC_SETS))
    return PUBLIC_SETS[name]


def cache_dir() -> Path:
    """Return the user's own folder for data that can be fetched again."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if configured.is_absolute():  # by the XDG specification, a relative path is ignored
        return configured / "tolfl"
    try:
        return Path.home() / ".cache" / "tolfl"
    except RuntimeError:  # a user without a home, as in some containers
        return Path.cwd() / ".cache" / "tolfl"


def search_order(data_dir: str = "") -> list[Path]:
    """Return the folders to look in, in order."""
    named = [Path(text).expanduser() for text in (data_dir, os.environ.get("TOLFL_DATA", "")) if text]
    return list(dict.fromkeys([*named, cache_dir(), _DEBIAN]))


def find(name: str, data_dir: str = "") -> Path:
    """Return the folder with all files of a public data set.

    Every place is searched for a folder of the set's own name, then for the files themselves.
    """
    known = public_set(name)
    if data_dir and not Path(data_dir).expanduser().is_dir():
        raise MissingDataError(f"{data_dir}: no such folder; check the data directory")
    hints: list[str] = []
    for place in search_order(data_dir):
        candidates = [place / folder for folder in known.folders]
        if not _is_of_another(place, name):
            candidates.append(place)
        for folder in candidates:
            missing = missing_files(name, folder)
            if not missing:
                return folder
            if len(missing) < len(known.files):
                hints.append(f"{folder} lacks {', '.join(missing)}")
        if known.pickled_folder and (place / known.pickled_folder).is_dir():
            hints.append(f"{place / known.pickled_folder} is pickled and never read: the binary version is needed")
    searched = search_order(data_dir)
    looked = f"{name} is in none of {', '.join(map(str, searched))}"
    by_hand = how_to_get(name, searched[0])
    fetch = by_hand if known.by_hand else f"fetch it with `tolfl data get {name}`, or {by_hand}"
    raise MissingDataError("; ".join([looked, *hints, fetch]))


def missing_files(name: str, folder: Path) -> list[str]:
    """Return which files of a data set a folder lacks."""
    there = _spellings(folder)
    return [file for file in public_set(name).files if _spelled(file) not in there]


def file_in(folder: Path, file: str) -> Path:
    """Return a file of a folder by its published name, also `.gz`, also with dots or capitals in other places."""
    found = _spellings(folder).get(_spelled(file))
    if found is None:
        raise MissingDataError(f"{folder}: there is no {file} in it, plain or .gz; get it again")
    return found


def how_to_get(name: str, place: Path) -> str:
    """Return the files and the folder for a manual download."""
    known = public_set(name)
    files = ", ".join(known.files)
    source = f" from {known.by_hand}" if known.by_hand else ""
    return f"put {files}{source} (plain or .gz) into {place / known.folders[0]}"


def _is_of_another(folder: Path, name: str) -> bool:
    # MNIST and Fashion-MNIST have the same file names: a folder named after one of them cannot be the other.
    others = {part.lower() for other, known in PUBLIC_SETS.items() if other != name for part in known.folders}
    own = {part.lower() for part in PUBLIC_SETS[name].folders}
    named = folder.parent if folder.name == "raw" else folder
    return named.name.lower() in others - own


def _spellings(folder: Path) -> dict[str, Path]:
    try:
        # Sorted backwards: of two spellings the plain one, which is read faster, comes last and stays.
        entries = sorted(
            (path for path in folder.iterdir() if path.is_file()), key=lambda path: path.name, reverse=True
        )
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise unreadable(folder, problem) from None
    return {_spelled(path.name): path for path in entries}


def _spelled(file: str) -> str:
    return re.sub(r"[-_.]", "_", file.lower().removesuffix(".gz"))


# -- files ------------------------------------------------------------------------------------------------------------


def load_public(name: str, data_dir: str = "", colour: bool = False, fine: bool = False) -> RawData:
    """Return a public data set from the folder where it is found; `colour` is for CIFAR, `fine` for CIFAR-100."""
    folder = find(name, data_dir)
    if name.startswith("cifar"):
        return read_cifar(folder, name, colour, fine)
    if name == "wsn-ds":
        return read_wsn_ds(folder)
    return read_idx_pictures(folder, name)


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


def _read_part(folder: Path, part: str) -> tuple[Bytes, Bytes]:
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


def read_idx(path: Path, n_dimensions: int) -> Bytes:
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


def _size(pictures: Bytes) -> str:
    return " x ".join(str(length) for length in pictures.shape[1:])


# -- CIFAR ------------------------------------------------------------------------------------------------------------

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
