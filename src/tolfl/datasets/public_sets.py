"""Public data sets: their folders on this machine, and their publishers' addresses.

They are looked for in the folder one names, in `TOLFL_DATA`, in the user's cache and where Debian's packages put them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tolfl.core.errors import MissingDataError, UnknownNameError
from tolfl.tables.block_reader import unreadable

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
    ),
    "cifar-10": PublicSet(
        ("cifar-10-batches-bin", "cifar-10"),
        (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
        "cifar-10-batches-py",
        address=_CIFAR,
        md5={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    ),
    "cifar-100": PublicSet(
        ("cifar-100-binary", "cifar-100"),
        ("train.bin", "test.bin"),
        "cifar-100-python",
        address=_CIFAR,
        md5={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
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
    raise MissingDataError(_not_found(name, data_dir, hints))


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


def _not_found(name: str, data_dir: str, hints: list[str]) -> str:
    searched = search_order(data_dir)
    looked = f"{name} is in none of {', '.join(str(place) for place in searched)}"
    by_hand = how_to_get(name, searched[0])
    fetch = by_hand if public_set(name).by_hand else f"fetch it with `tolfl data get {name}`, or {by_hand}"
    return "; ".join([looked, *hints, fetch])


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
