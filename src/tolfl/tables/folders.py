"""A folder with one file per device: which files count, and whose they are."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from tolfl.core.errors import DataFileError, MissingDataError

#: Kinds of files by how their names end; the longer ending first.
_KINDS = {
    ".csv.gz": "csv",
    ".tsv.gz": "csv",
    ".csv.zst": "csv",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl.gz": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".npy": "npy",
    ".pcap.gz": "capture",
    ".pcapng.gz": "capture",
    ".pcap": "capture",
    ".pcapng": "capture",
    ".cap": "capture",
    ".sigmf-meta": "recording",
    ".sigmf-data": "recording",
    ".sigmf": "recording",
    ".cu8": "raw",
    ".cs8": "raw",
    ".cs16": "raw",
    ".cf32": "raw",
}
#: Reading any of these back would run code of the writer's choice.
_PICKLED = (".pkl", ".pickle", ".pt", ".pth", ".joblib")
#: What a folder may hold, but only one of it: files of one family have the same features.
_FAMILIES = {"npz": "arrays", "npy": "arrays", "capture": "captures", "recording": "recordings", "raw": "raw samples"}
#: How dumpcap calls the files that follow one another: a number, and the time of the first packet.
_ROTATED = re.compile(r"_\d{5}(_\d{14})?$")
#: Companions of data, which may lie beside them. Anything else is refused: it might be a device.
_COMPANIONS = (".md", ".txt", ".rst", ".html", ".pdf")


def refuse_pickle(path: Path) -> None:
    """Raise an error where a file is pickled by its name."""
    if path.suffix.lower() in _PICKLED:
        raise DataFileError(
            path, "pickled files are never read, they can run code; save the data as CSV, Parquet or NPZ instead"
        )


def unreadable(path: Path, problem: OSError) -> DataFileError | MissingDataError:
    """Return the error for a file that cannot be opened."""
    if isinstance(problem, FileNotFoundError):
        return MissingDataError(f"{path}: no such file; check the path")
    return DataFileError(path, f"cannot be read ({problem.strerror or problem}); check the path and its permissions")


def owner_of(path: Path) -> str:
    """Return whose file it is.

    >>> owner_of(Path("data/site-7.csv.gz")), owner_of(Path("router_00002_20240101120000.pcap"))
    ('site-7', 'router')
    """
    name = path.name[: len(path.name) - len(_ending(path))]
    return _ROTATED.sub("", name) if is_capture(path) else name


def is_capture(path: Path) -> bool:
    """Return whether a file is a capture by its name."""
    return _KINDS.get(_ending(path)) == "capture"


def is_of_arrays(path: Path) -> bool:
    """Return whether a file holds arrays of NumPy by its name."""
    return _FAMILIES.get(_KINDS.get(_ending(path), "")) == "arrays"


def is_recording(path: Path) -> bool:
    """Return whether a file is a recording by its name."""
    return _KINDS.get(_ending(path)) == "recording"


def is_raw(path: Path) -> bool:
    """Return whether a file holds samples of a receiver without metadata by its name."""
    return _KINDS.get(_ending(path)) == "raw"


def device_files(folder: Path) -> list[Path]:
    """Return the files of a folder, one per device, in the order of their names."""
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as problem:
        raise unreadable(folder, problem) from None
    files = [path for path in entries if not _is_companion(path)]
    if not files:
        raise DataFileError(
            folder, "there is no file in it; put one CSV, Parquet, NPZ, pcap or SigMF file per device there"
        )
    by_owner: dict[str, Path] = {}
    for path in files:
        if path.is_dir():
            raise DataFileError(path, "a folder inside the folder of devices; put one file per device there")
        families = sorted({_family(path), _family(files[0])})
        if len(families) > 1:
            mixed = " and ".join(families)
            raise DataFileError(path, f"{mixed} are mixed ({files[0].name}); use one kind for all devices")
        other = by_owner.setdefault(owner_of(path), path)
        if other != path and not (families == ["captures"] and _follows(other) and _follows(path)):
            raise DataFileError(path, f"the same device as {other.name}; give each device one file")
    return files


def _is_companion(path: Path) -> bool:
    """Return whether a file is only there beside the data; the samples of a recording belong to its metadata."""
    ending = path.suffix.lower()
    is_samples = ending == ".sigmf-data" and path.with_suffix(".sigmf-meta").exists()
    return is_samples or ending in (*_COMPANIONS, ".sigmf-collection") or path.name == "LICENSE"


def by_device(files: list[Path]) -> list[tuple[str, list[Path]]]:
    """Return files by the device they belong to: one each, but for captures that follow one another."""
    return [(owner, list(own)) for owner, own in groupby(sorted(files, key=_owner_and_name), key=owner_of)]


def _owner_and_name(path: Path) -> tuple[str, str]:
    return owner_of(path), path.name


def _family(path: Path) -> str:
    refuse_pickle(path)
    if not (ending := _ending(path)):
        raise DataFileError(path, f"unknown kind of file; use one of {', '.join(_KINDS)}")
    return _FAMILIES.get(_KINDS[ending], "tables")


def _follows(path: Path) -> bool:
    """Return whether a capture is one of several that follow one another, by its name."""
    return _ROTATED.search(path.name[: len(path.name) - len(_ending(path))]) is not None


def _ending(path: Path) -> str:
    return next((ending for ending in _KINDS if path.name.lower().endswith(ending)), "")
