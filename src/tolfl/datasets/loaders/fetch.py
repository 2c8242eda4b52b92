"""One file over HTTP: into `NAME.part` first, on from where it stopped, under its own name only when it is right."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tolfl.datasets.loaders.problems import DownloadError

_CHUNK_BYTES = 256 * 1024
#: How often a cut connection is taken up again, each time only if it brought anything.
_ATTEMPTS = 5
_NOT_SATISFIABLE = 416
_PARTIAL = 206


@dataclass(frozen=True)
class DownloadProgress:
    """How far a file has come; `total` is None if the server does not say."""

    file: str
    done: int
    total: int | None


Report = Callable[[DownloadProgress], None]


def fetch(
    url: str, target: Path, is_right: Callable[[Path], bool], report: Report | None = None, timeout_s: float = 30.0
) -> None:
    """Fetch a file; a part of it that an earlier call left is completed, not fetched again."""
    if not url.startswith(("http://", "https://")):
        raise DownloadError(f"{url}: not an address that starts with http:// or https://; correct it")
    part = target.with_name(f"{target.name}.part")
    for _ in range(_ATTEMPTS):
        before = _size(part)
        if _receive(url, part, target.name, report, timeout_s):
            break
        if _size(part) <= before:
            raise DownloadError(f"{url}: the connection was cut; try again, it goes on where it stopped")
    else:
        raise DownloadError(f"{url}: the connection was cut {_ATTEMPTS} times; try again, it goes on where it stopped")
    if not is_right(part):
        part.unlink()
        raise DownloadError(f"{url}: the file that came has not the published checksum and was removed; try again")
    part.replace(target)


def _receive(url: str, part: Path, name: str, report: Report | None, timeout_s: float) -> bool:
    """Append what the server still has; tell whether that is all."""
    response = _open(url, part, timeout_s)
    with response:
        done, total = _extent(response, _size(part))
        with part.open("ab" if done else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                done += len(chunk)
                if report is not None:
                    report(DownloadProgress(name, done, total))
    return total is None or done >= total


def _open(url: str, part: Path, timeout_s: float) -> http.client.HTTPResponse:
    headers = {"User-Agent": "tolfl"}
    if _size(part):
        headers["Range"] = f"bytes={_size(part)}-"
    try:
        response: http.client.HTTPResponse = urlopen(Request(url, headers=headers), timeout=timeout_s)
    except HTTPError as problem:
        problem.close()
        if problem.code == _NOT_SATISFIABLE and "Range" in headers:  # the part is longer than the file
            part.unlink()
            return _open(url, part, timeout_s)
        raise DownloadError(f"{url}: the server answers {problem.code} {problem.reason}; name another place") from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        reason = getattr(problem, "reason", None) or problem
        raise DownloadError(f"{url}: cannot be reached ({reason}); check the connection") from None
    return response


def _extent(response: http.client.HTTPResponse, before: int) -> tuple[int, int | None]:
    """Return how many bytes are there already, and how many there will be."""
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", "").strip())
    if response.status == _PARTIAL and match and int(match[1]) == before:
        return before, int(match[2])
    if response.status == _PARTIAL:
        raise DownloadError(f"{response.url}: the server sent another part than was asked for; name another place")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException):
        return b""  # a cut connection: the length tells


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
