"""Public data sets: where they lie, and how they are fetched from their publishers.

They are looked for in the folder one names, in `TOLFL_DATA`, in the user's cache and where Debian's packages put them.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tolfl.core.errors import MissingDataError, TolFLError, UnknownNameError
from tolfl.tables.folders import unreadable

_DEBIAN = Path("/usr/share/datasets")
_IDX_FILES = tuple(f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_CHUNK_BYTES = 256 * 1024


class DownloadError(TolFLError, OSError):
    """A public data set could not be fetched."""


@dataclass(frozen=True)
class PublicSet:
    """How a data set's folder and files are called in the wild."""

    folders: tuple[str, ...]
    """The publisher's own name first, then what other programs make of it."""
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
    if configured.is_absolute():  # a relative path is to be ignored, says the XDG specification
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
    """Return what to put where, for those who fetch a data set themselves."""
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
    # MNIST and Fashion-MNIST have the same file names: a folder called after the one is not the other.
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


# -- fetching ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DownloadProgress:
    """How far a file has come; `total` is None if the server does not say."""

    file: str
    done: int
    total: int | None


Report = Callable[[DownloadProgress], None]


def download(
    name: str,
    into: Path,
    base_url: str | None = None,
    progress: Report | None = None,
    timeout_s: float = 30.0,
) -> Path:
    """Return the folder, inside `into`, with a public data set; what is not there yet is fetched.

    `base_url` names another place with the same files. `progress` is called as bytes arrive.
    """
    known = public_set(name)
    folder = into / known.folders[0]
    if not missing_files(name, folder):
        return folder
    by_hand = how_to_get(name, into)
    if not known.md5:
        raise DownloadError(f"{name} has no address to fetch it from; {by_hand}")
    address = known.address if base_url is None else base_url
    for file, md5 in known.md5.items():
        is_archive = file.endswith(".tar.gz")
        target = (into if is_archive else folder) / file
        url = f"{address.rstrip('/')}/{file}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not (target.is_file() and _md5_of(target) == md5):
                _fetch(url, target, md5, progress, timeout_s)
            if is_archive:
                unpack(target, folder, known.files)
                target.unlink()
        except DownloadError as problem:
            raise DownloadError(f"{problem}; or {by_hand}") from None
        except OSError as problem:
            raise DownloadError(f"{target}: cannot be written ({problem.strerror or problem}); {by_hand}") from None
    return folder


def unpack(archive: Path, folder: Path, files: tuple[str, ...]) -> None:
    """Unpack an archive's files, which lie in a folder of that name, into `folder`; nothing is written elsewhere."""
    with tempfile.TemporaryDirectory(prefix=".tolfl-", dir=archive.parent) as scratch:
        try:
            with tarfile.open(archive, "r:gz") as packed:
                packed.extractall(scratch, filter="data")
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as problem:
            raise DownloadError(f"{archive}: cannot be unpacked ({problem}); delete it and try again") from None
        unpacked = Path(scratch) / folder.name
        missing = [file for file in files if not (unpacked / file).is_file()]
        if missing:
            raise DownloadError(f"{archive}: there is no {folder.name}/{missing[0]} in it; delete it and try again")
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(path for path in unpacked.iterdir() if path.is_file()):
            path.replace(folder / path.name)


def _fetch(url: str, target: Path, md5: str, report: Report | None, timeout_s: float) -> None:
    """Fetch a file into `NAME.part`; it gets its own name when it is whole and right."""
    if not url.startswith(("http://", "https://")):
        raise DownloadError(f"{url}: not an address that starts with http:// or https://; correct it")
    part = target.with_name(f"{target.name}.part")
    try:
        with _open(url, timeout_s) as response, part.open("wb") as file:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else None
            while chunk := _read(response, url):
                file.write(chunk)
                if report is not None:
                    report(DownloadProgress(target.name, file.tell(), total))
        if total is not None and part.stat().st_size < total:
            raise DownloadError(f"{url}: the connection was cut; try again")
        if _md5_of(part) != md5:
            raise DownloadError(f"{url}: the file that came has not the published checksum and was removed; try again")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _open(url: str, timeout_s: float) -> http.client.HTTPResponse:
    try:
        response: http.client.HTTPResponse = urlopen(Request(url, headers={"User-Agent": "tolfl"}), timeout=timeout_s)
    except HTTPError as problem:
        problem.close()
        raise DownloadError(f"{url}: the server answers {problem.code} {problem.reason}; name another place") from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        reason = getattr(problem, "reason", None) or problem
        raise DownloadError(f"{url}: cannot be reached ({reason}); check the connection") from None
    return response


def _read(response: http.client.HTTPResponse, url: str) -> bytes:
    try:
        return response.read(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException):
        raise DownloadError(f"{url}: the connection was cut; try again") from None


def _md5_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
