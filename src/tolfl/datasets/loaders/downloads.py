"""Public data sets from their official places: resumed where a connection was cut, checked, renamed when whole."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tolfl.datasets.loaders.fetch import DownloadProgress, fetch
from tolfl.datasets.loaders.places import how_to_get, missing_files, public_set
from tolfl.datasets.loaders.problems import DownloadError

__all__ = ["SOURCES", "DownloadProgress", "RemoteFile", "Source", "download", "unpack"]

#: What the publishers chose. It finds damage, which is what it is for here.
_md5 = partial(hashlib.md5, usedforsecurity=False)


@dataclass(frozen=True)
class RemoteFile:
    """A file and its published MD5 sums: of the file, and of what is packed in it (mirrors pack anew)."""

    name: str
    md5: str
    md5_unpacked: str = ""


@dataclass(frozen=True)
class Source:
    """Where a data set's files are."""

    address: str
    files: tuple[RemoteFile, ...]


#: MNIST: PyTorch's copy, as its publisher's own address asks for a password. Sums: torchvision, the publishers' pages.
SOURCES = {
    "mnist": Source(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        (
            RemoteFile(
                "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"
            ),
            RemoteFile(
                "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"
            ),
            RemoteFile(
                "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"
            ),
            RemoteFile(
                "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"
            ),
        ),
    ),
    "fashion-mnist": Source(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            RemoteFile(
                "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", "f4a8712d7a061bf5bd6d2ca38dc4d50a"
            ),
            RemoteFile(
                "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", "9018921c3c673c538a1fc5bad174d6f9"
            ),
            RemoteFile(
                "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", "8181f5470baa50b63fa0f6fddb340f0a"
            ),
            RemoteFile(
                "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", "15d484375f8d13e6eb1aabb0c3f46965"
            ),
        ),
    ),
    "cifar-10": Source(
        "https://www.cs.toronto.edu/~kriz/", (RemoteFile("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),)
    ),
    "cifar-100": Source(
        "https://www.cs.toronto.edu/~kriz/",
        (RemoteFile("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
    ),
}


def download(
    name: str,
    into: Path,
    base_url: str | None = None,
    progress: Callable[[DownloadProgress], None] | None = None,
    timeout_s: float = 30.0,
) -> Path:
    """Return the folder, inside `into`, with a public data set; what is not there yet is fetched.

    `base_url` names another place with the same files. `progress` is called as bytes arrive.
    """
    folder = into / public_set(name).folders[0]
    if not missing_files(name, folder):
        return folder
    by_hand = how_to_get(name, into)
    if name not in SOURCES:
        raise DownloadError(f"{name} has no address to fetch it from; {by_hand}")
    address = SOURCES[name].address if base_url is None else base_url
    for file in SOURCES[name].files:
        is_archive = file.name.endswith(".tar.gz")
        target = (into if is_archive else folder) / file.name
        url = f"{address.rstrip('/')}/{file.name}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not (target.is_file() and _is_right(file, target)):
                fetch(url, target, partial(_is_right, file), progress, timeout_s)
            if is_archive:
                unpack(target, folder, public_set(name).files)
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


def _is_right(file: RemoteFile, path: Path) -> bool:
    with path.open("rb") as stream:
        if hashlib.file_digest(stream, _md5).hexdigest() == file.md5:
            return True
    if not file.md5_unpacked:
        return False
    try:
        return _md5(gzip.decompress(path.read_bytes())).hexdigest() == file.md5_unpacked
    except (OSError, EOFError, zlib.error):
        return False
