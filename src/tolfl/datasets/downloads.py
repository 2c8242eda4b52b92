"""Public data sets, fetched from their publishers: whole, with the published checksum, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tolfl.core.errors import TolFLError
from tolfl.datasets.public_sets import how_to_get, missing_files, public_set

_CHUNK_BYTES = 256 * 1024


class DownloadError(TolFLError, OSError):
    """A public data set could not be fetched."""


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
            raise DownloadError(
                f"{url}: the downloaded file does not have the published checksum and was removed; try again"
            )
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
